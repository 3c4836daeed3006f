//! The simulator finds nothing in the product, tells the same story twice, and finds what is planted.

use dolomedes_chaos::sim::{self, Coverage, Sabotage};

/// Enough for each kind of fault to happen many times.
const SEEDS: u64 = 40;

#[test]
fn the_promises_are_kept() {
    let mut coverage = Coverage::default();
    for seed in 1..=SEEDS {
        let ended = sim::run(seed, Sabotage::None);
        let tail = ended.story[ended.story.len().saturating_sub(30)..].join("\n");
        assert_eq!(ended.violation, None, "seed {seed}:\n{tail}");
        coverage.add(&ended.coverage);
    }
    // What did not happen proves nothing.
    let happened = [
        ("cuts", coverage.cuts),
        ("cuts while opening", coverage.cuts_in_opening),
        ("lost writes", coverage.lost.writes),
        ("lost spooled records", coverage.lost.spooled),
        ("lost delivered records", coverage.lost.delivered),
        ("completions taken up", coverage.taken_up),
        ("refused results", coverage.refused),
        ("repeated requests", coverage.repeated),
        ("wrong clocks", coverage.clock_jumps),
        ("hung disks", coverage.stalls),
    ];
    for (what, times) in happened {
        assert!(times > 0, "there were no {what}");
    }
}

#[test]
fn a_seed_tells_one_story() {
    for seed in [3, 17, 29] {
        let (one, other) = (sim::run(seed, Sabotage::None), sim::run(seed, Sabotage::None));
        assert_eq!(one.story, other.story);
        assert_eq!(one.coverage, other.coverage);
    }
}

/// Planted bugs, and the promise that each of them breaks.
#[test]
fn planted_bugs_are_caught() {
    for (sabotage, promises) in [
        (Sabotage::DeliverBeforeCompletion, &["6"][..]),
        (Sabotage::CompleteBeforeSync, &["6", "11"]),
        (Sabotage::NoTakeUp, &["2"]),
        (Sabotage::HoldNotReplicated, &["4"]),
    ] {
        let caught = (1..=200).find_map(|seed| sim::run(seed, sabotage).violation);
        let caught = caught.unwrap_or_else(|| panic!("{sabotage:?} was not caught"));
        let number = caught.promise.split(':').next().unwrap();
        assert!(promises.contains(&number), "{sabotage:?} was caught as {caught:?}");
    }
}

//! One crawl on simulated time, disk and web from one seed, with power cuts between any two durable steps. The real cores
//! do the work (the machine, its codec, the crawl's window, pace, robots, spool records); the shells around them are modelled.
//! Single-threaded, without clock or randomness of its own: a seed tells one story.
//!
//! Not here: openraft and networks between nodes, the real files of spool and sinks, HTML.

mod disk;
mod finish;
mod log;
mod node;
mod open;
mod plan;
mod web;
mod world;

use std::fmt;

pub use disk::Lost;
pub use plan::Sabotage;
pub use web::Expected;

use self::{node::Node, plan::Cut, world::World};
use crate::invariant::{Violation, counters::Counters, records};

/// Runs of the crawler in one simulation at most.
const MAX_RUNS: u32 = 64;

/// Why the simulated node stops before its crawl is over.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The power was cut.
    Cut,
    /// A promise was broken.
    Broken(Violation),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

impl From<dolomedes_storage::Error> for Stop {
    fn from(error: dolomedes_storage::Error) -> Self {
        broken("1: acknowledged", error.to_string())
    }
}

fn broken(promise: &'static str, text: String) -> Stop {
    Stop::Broken(Violation { promise, text })
}

/// What happened in a simulation, to show that its faults did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// URLs that were to be found.
    pub urls: u64,
    /// Requests for pages.
    pub requests: u64,
    /// Requests that were repeated because a lease was lost.
    pub repeated: u64,
    /// Power cuts, one after each orderly end among them.
    pub cuts: u64,
    /// Power cuts while the data directory was opened.
    pub cuts_in_opening: u64,
    /// What they took.
    pub lost: Lost,
    /// Spooled completions that were handed in again.
    pub taken_up: u64,
    /// Results that were refused.
    pub refused: u64,
    /// Clocks that were found to be wrong at a start.
    pub clock_jumps: u64,
    /// Disks that hung.
    pub stalls: u64,
    /// Simulated milliseconds.
    pub simulated_ms: u64,
}

impl Coverage {
    /// Adds what happened in another simulation.
    pub fn add(&mut self, other: &Self) {
        self.urls += other.urls;
        self.requests += other.requests;
        self.repeated += other.repeated;
        self.cuts += other.cuts;
        self.cuts_in_opening += other.cuts_in_opening;
        self.lost.writes += other.lost.writes;
        self.lost.spooled += other.lost.spooled;
        self.lost.delivered += other.lost.delivered;
        self.taken_up += other.taken_up;
        self.refused += other.refused;
        self.clock_jumps += other.clock_jumps;
        self.stalls += other.stalls;
        self.simulated_ms += other.simulated_ms;
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {} URLs, {} requests, {} of them repeated", self.urls, self.requests, self.repeated)?;
        writeln!(
            f,
            "  {} power cuts, {} of them while opening; lost: {} writes, {} spooled and {} delivered records",
            self.cuts, self.cuts_in_opening, self.lost.writes, self.lost.spooled, self.lost.delivered
        )?;
        writeln!(
            f,
            "  {} completions handed in again, {} results refused, {} wrong clocks, {} hung disks",
            self.taken_up, self.refused, self.clock_jumps, self.stalls
        )?;
        write!(f, "  {} simulated hours", self.simulated_ms / 3_600_000)
    }
}

/// A simulation that is over.
#[derive(Debug)]
pub struct Ended {
    /// What happened, line by line.
    pub story: Vec<String>,
    /// What it covered.
    pub coverage: Coverage,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
}

/// Runs the simulation of `seed`.
pub fn run(seed: u64, sabotage: Sabotage) -> Ended {
    let mut world = World::new(seed, sabotage);
    let violation = match live(&mut world) {
        Ok(()) => None,
        // `live` handles cuts; the last run has none.
        Err(Stop::Cut) => Some(Violation { promise: "power", text: "it was cut out of turn".into() }),
        Err(Stop::Broken(violation)) => Some(violation),
    };
    let (story, coverage) = world.end();
    Ended { story, coverage, violation }
}

/// One run of the crawler after another, until one finishes the crawl; then one more, which has nothing to do.
fn live(world: &mut World) -> Result<(), Stop> {
    let mut cuts = std::mem::take(&mut world.plan.cuts).into_iter();
    let mut finished = false;
    for _ in 0..MAX_RUNS {
        let cut = cuts.next().filter(|_| !finished);
        world.disk.power = match cut {
            Some(Cut::AfterSteps(steps)) => Some(steps),
            _ => None,
        };
        world.begin_run();
        let ended = Node::open(world).and_then(|mut node| {
            if let Some(Cut::AfterMs(ms)) = cut {
                node.cut_after(world, ms);
            }
            node.run(world)
        });
        match ended {
            Ok(()) if finished => return judge(world),
            Ok(()) => finished = true,
            Err(Stop::Cut) => {}
            Err(broken) => return Err(broken),
        }
        // A crawl that has ended is closed in order; what was not synced may be lost all the same.
        world.crash();
    }
    Err(broken("14: the end", format!("the crawl is not over after {MAX_RUNS} runs")))
}

fn judge(world: &mut World) -> Result<(), Stop> {
    let truth = &world.truth;
    let delivered = world.records()?;
    records::at_end(&delivered, truth)?;
    let sizes = truth.values().filter_map(|expected| match expected {
        Expected::Fetched(bytes) => Some(*bytes),
        Expected::Refused | Expected::Failed => None,
    });
    let (units, bytes) = sizes.fold((0, 0), |(units, sum), bytes| (units + 1, sum + bytes));
    for queue in log::state(&world.disk).queues()? {
        Counters::at_end(&queue, truth.len() as u64, units, bytes)?;
    }
    world.coverage.repeated = world.checks.repeats.at_end(&world.web.requests)?;
    world.coverage.urls = truth.len() as u64;
    world.coverage.requests = world.web.requests.values().map(|&sent| u64::from(sent)).sum();
    world.coverage.simulated_ms = world.now;
    Ok(())
}

//! The whole chain under crashes: whatever dies when, each accepted record is in each sink once and in order.

use std::fs::OpenOptions;

use proptest::prelude::*;

use super::{super::mark::Mark, *};

#[derive(Clone, Debug)]
enum Step {
    /// Pages are fetched; their records go into the spool.
    Append(u64),
    /// The spool is synced and completions are judged, these ones (by bit) refused.
    Judge { refused: u16 },
    /// The sinks are given what was judged; so much time passes.
    Deliver { ms: u64 },
    /// The process dies; of what was not synced such parts of 256 are on disk.
    Crash { spool: u64, sinks: [u64; 3] },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u64..6).prop_map(Step::Append),
        4 => any::<u16>().prop_map(|refused| Step::Judge { refused: refused & 0x2491 }),
        4 => (0u64..1500).prop_map(|ms| Step::Deliver { ms }),
        2 => (0u64..=256, prop::array::uniform3(0u64..=256)).prop_map(|(spool, sinks)| Step::Crash { spool, sinks }),
    ];
    prop::collection::vec(step, 1..50)
}

/// The machine's part: what was judged, durably.
#[derive(Default)]
struct Machine {
    verdicts: Vec<bool>,
}

impl Machine {
    fn judge(&mut self, upto: u64, mut refused: u16) {
        while (self.verdicts.len() as u64) < upto {
            self.verdicts.push(refused & 1 == 0);
            refused = refused.rotate_right(1);
        }
    }
}

/// Body of the record with this number: some are alike, some are large.
fn body(number: u64) -> Vec<u8> {
    match number % 5 {
        0 => b"the same everywhere".to_vec(),
        1 => (0..2_000).map(|at| (at * number) as u8).collect(),
        _ => format!("body of {number}").into_bytes(),
    }
}

fn cut(path: &Path, synced: u64, part: u64) {
    let written = size(path);
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(synced + (written - synced) * part / 256)
        .unwrap();
}

fn last_segment(place: &Place) -> PathBuf {
    let mut files: Vec<_> =
        fs::read_dir(place.spool_dir()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.pop().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_accepted_record_is_delivered_once_and_in_order(steps in steps()) {
        let place = Place::new();
        let mut machine = Machine::default();
        let mut spool = place.spool();
        let mut delivery = place.delivery(&spool, true).unwrap();
        let mut now = Duration::ZERO;
        let mut told = 0;
        let mut synced_file = (last_segment(&place), size(&last_segment(&place)));
        for step in steps {
            match step {
                Step::Append(count) => {
                    for _ in 0..count {
                        let number = spool.last_seq() + 1;
                        spool.append(&envelope(number, &body(number)).encode()).unwrap();
                    }
                }
                Step::Judge { refused } => {
                    let synced = spool.sync().unwrap();
                    synced_file = (last_segment(&place), size(&last_segment(&place)));
                    machine.judge(synced, refused);
                    for seq in told + 1..=synced {
                        delivery.judge(seq, machine.verdicts[seq as usize - 1]).unwrap();
                    }
                    told = synced;
                }
                Step::Deliver { ms } => {
                    now += Duration::from_millis(ms);
                    delivery.poll(now).unwrap();
                }
                Step::Crash { spool: spool_part, sinks } => {
                    drop(delivery);
                    drop(spool);
                    let segment = last_segment(&place);
                    // A newer segment begins with a durable header and holds nothing that was synced.
                    let synced = if segment == synced_file.0 { synced_file.1 } else { 28 };
                    cut(&segment, synced, spool_part);
                    let marks = place.marks();
                    for (name, at) in [("jsonl", 0), ("warc", 1)] {
                        let mark: Mark = marks.load(name).unwrap().unwrap();
                        for (file, marked) in mark.files.iter().enumerate() {
                            let path = place.out().join(&marked.name);
                            cut(&path, marked.bytes, sinks[at + file]);
                        }
                    }
                    spool = place.spool();
                    prop_assert!(spool.last_seq() >= machine.verdicts.len() as u64);
                    // What was never judged is handed in again.
                    machine.judge(spool.last_seq(), 0x0421);
                    synced_file = (last_segment(&place), size(&last_segment(&place)));
                    delivery = place.delivery(&spool, true).unwrap();
                    told = spool.last_seq();
                    for seq in delivery.next_seq()..=told {
                        delivery.judge(seq, machine.verdicts[seq as usize - 1]).unwrap();
                    }
                }
            }
        }
        let last = spool.sync().unwrap();
        machine.judge(last, 0);
        for seq in told + 1..=last {
            delivery.judge(seq, machine.verdicts[seq as usize - 1]).unwrap();
        }
        delivery.flush(now).unwrap();
        delivery.finish().unwrap();
        prop_assert_eq!(delivery.released(), last);
        let wanted: Vec<u64> = (1..=last).filter(|&seq| machine.verdicts[seq as usize - 1]).collect();
        prop_assert_eq!(place.lines(), wanted.iter().map(|&seq| line(seq)).collect::<Vec<_>>());
        check_warcs(&place, &wanted);
    }
}

/// The WARC files hold exactly these pages, in order, each with its three records, and the index points at them.
fn check_warcs(place: &Place, wanted: &[u64]) {
    let mut urls = Vec::new();
    let mut ids = std::collections::HashSet::new();
    let mut entries = Vec::new();
    for path in place.warcs() {
        let records = read::records(&path);
        assert!(records.is_empty() || records[0].kind() == "warcinfo");
        assert!(records.len() % 3 == records.len().min(1), "the records of a fetch stay together");
        for fetch in records.get(1..).unwrap_or_default().chunks(3) {
            let [response, request, metadata] = fetch else { panic!("a fetch has three records") };
            assert!(matches!(response.kind(), "response" | "revisit"));
            assert_eq!((request.kind(), metadata.kind()), ("request", "metadata"));
            assert_eq!(request.get("warc-concurrent-to"), response.get("warc-record-id"));
            let url = response.get("warc-target-uri").to_owned();
            let number: u64 = url.split(['/', '?']).nth(4).unwrap().parse().unwrap();
            if response.kind() == "response" {
                assert_eq!(response.payload(), body(number));
            } else {
                assert_eq!(number % 5, 0);
                assert!(response.payload().is_empty());
            }
            let file = path.file_name().unwrap().to_str().unwrap();
            entries.push((url.clone(), response.offset, response.length, file.to_owned()));
            urls.push(number);
            assert!(fetch.iter().all(|record| ids.insert(record.get("warc-record-id").to_owned())));
        }
    }
    assert_eq!(urls, wanted);
    let index = fs::read_to_string(place.out().join("warc/index.cdxj")).unwrap();
    assert!(index.lines().is_sorted());
    let mut indexed = Vec::new();
    for line in index.lines() {
        let json: serde_json::Value = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
        let text = |name: &str| json[name].as_str().unwrap().to_owned();
        let number = |name: &str| text(name).parse::<usize>().unwrap();
        indexed.push((text("url"), number("offset"), number("length"), text("filename")));
    }
    entries.sort();
    indexed.sort();
    assert_eq!(indexed, entries);
}

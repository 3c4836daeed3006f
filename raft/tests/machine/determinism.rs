//! The same log gives the same bytes: however it is cut into chunks, whether the process starts anew in between, whatever the
//! filter knows, and over either engine.

use dolomedes_raft::{
    codec::{decode_entry, encode_entry},
    command::{Command, Entry},
    machine::{Machine, Overlay},
};
use dolomedes_storage::{
    engine::{Durability, Engine, Family},
    memory::MemoryEngine,
    rocks::RocksEngine,
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use super::{
    harness::{GENERATION, GROUP, dump},
    model, ops,
};

pub(super) type Dump = Vec<(Vec<u8>, Vec<u8>)>;

/// Applies `log` in chunks; with each, a new machine if `restart`, and its filter filled first if `fill`.
pub(super) fn replay(
    engine: &dyn Engine,
    log: &[(u64, Command)],
    chunk: usize,
    restart: bool,
    fill: bool,
) -> (Dump, Dump) {
    let mut machine = Machine::new(GROUP, GENERATION);
    let mut index = 0;
    for chunk in log.chunks(chunk) {
        if restart {
            machine = Machine::new(GROUP, GENERATION);
        }
        let filter = machine.seen_filter();
        if fill && !filter.is_complete() {
            assert_eq!(filter.rebuild(engine, &[], usize::MAX).unwrap(), None);
        }
        let mut overlay = Overlay::new(engine);
        for (stamp, command) in chunk {
            index += 1;
            let entry = Entry { stamp: *stamp, commands: vec![command.clone()] };
            let entry = decode_entry(encode_entry(&entry).into()).unwrap();
            machine.apply(&mut overlay, index, &entry).unwrap();
        }
        engine.write(overlay.into_batch(), Durability::Buffered).unwrap();
    }
    (dump(engine, Family::State), dump(engine, Family::Seen))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_restarts_and_the_filter_leave_no_trace(
        config in ops::rules(),
        steps in ops::steps(80),
        chunk in 2..20usize,
    ) {
        let log = model::walk(&config, &steps);
        let one_by_one = replay(&MemoryEngine::new(), &log, 1, false, false);
        for (chunk, restart, fill) in [(log.len(), false, false), (chunk, true, false), (chunk, false, true), (chunk, true, true)] {
            prop_assert_eq!(&replay(&MemoryEngine::new(), &log, chunk, restart, fill), &one_by_one);
        }
    }
}

#[test]
fn engines_hold_the_same_bytes() {
    let mut runner = TestRunner::deterministic();
    for chunk in [1, 7, 50] {
        let config = ops::rules().new_tree(&mut runner).unwrap().current();
        let steps = ops::steps(400).new_tree(&mut runner).unwrap().current();
        let log = model::walk(&config, &steps);
        let directory = tempfile::tempdir().unwrap();
        let rocks = RocksEngine::open(directory.path().join("db"), Default::default()).unwrap();
        assert_eq!(
            replay(&rocks, &log, chunk, false, true),
            replay(&MemoryEngine::new(), &log, 1, false, true),
            "in chunks of {chunk}"
        );
    }
}

//! The memory engine against a model of what one write-ahead log may lose, and its injected faults.

use std::{collections::BTreeMap, ops::ControlFlow, path::PathBuf};

use dolomedes_storage::{
    Error,
    engine::{Batch, Change, Durability, Engine, Family, Reader},
    memory::{Fault, MemoryEngine},
};
use proptest::{collection::vec, prelude::*};

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Change>, bool),
    Sync,
    /// Keeps this share, in 1/8, of the unsynced writes.
    Crash(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let key = || vec(0..4u8, 0..3);
    let family = || (0..Family::ALL.len()).prop_map(|at| Family::ALL[at]);
    prop_oneof![
        4 => (family(), key(), vec(any::<u8>(), 0..3)).prop_map(|(f, k, v)| Change::Put(f, k, v)),
        1 => (family(), key()).prop_map(|(f, k)| Change::Delete(f, k)),
        1 => (family(), key(), key()).prop_map(|(f, a, b)| Change::DeleteRange(f, a, b)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (vec(change(), 0..4), prop::bool::weighted(0.1)).prop_map(|(it, synced)| Step::Write(it, synced)),
        1 => Just(Step::Sync),
        1 => (0..=8usize).prop_map(Step::Crash),
    ]
}

fn batch(changes: &[Change]) -> Batch {
    let mut batch = Batch::new();
    for change in changes.iter().cloned() {
        match change {
            Change::Put(family, key, value) => batch.put(family, key, value),
            Change::Delete(family, key) => batch.delete(family, key),
            Change::DeleteRange(family, from, to) => batch.delete_range(family, from, to),
        }
    }
    batch
}

type Rows = BTreeMap<(Family, Vec<u8>), Vec<u8>>;

/// What a history of writes amounts to, change by change.
fn replay(history: &[Vec<Change>]) -> Rows {
    let mut rows = Rows::new();
    for change in history.iter().flatten().cloned() {
        match change {
            Change::Put(family, key, value) => {
                rows.insert((family, key), value);
            }
            Change::Delete(family, key) => {
                rows.remove(&(family, key));
            }
            Change::DeleteRange(family, from, to) => {
                rows.retain(|(of, key), _| *of != family || *key < from || *key >= to);
            }
        }
    }
    rows
}

fn rows(reader: &dyn Reader) -> Rows {
    let mut rows = Rows::new();
    for family in Family::ALL {
        reader
            .scan(family, b"", &[0xff], &mut |key, value| {
                rows.insert((family, key.to_vec()), value.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn crashes_lose_a_suffix_of_the_unsynced_writes(steps in vec(step(), 0..40)) {
        let mut engine = MemoryEngine::new();
        let mut history: Vec<Vec<Change>> = Vec::new();
        let mut synced = 0;
        for step in steps {
            match step {
                Step::Write(changes, sync) => {
                    let durability = if sync { Durability::Synced } else { Durability::Buffered };
                    engine.write(batch(&changes), durability).unwrap();
                    history.push(changes);
                    synced = if sync { history.len() } else { synced };
                }
                Step::Sync => {
                    engine.sync().unwrap();
                    synced = history.len();
                }
                Step::Crash(share) => {
                    let images: Vec<Rows> = engine.crash_images().map(|image| rows(&image)).collect();
                    let possible: Vec<Rows> =
                        (synced..=history.len()).map(|end| replay(&history[..end])).collect();
                    prop_assert_eq!(images, possible);
                    let mut kept = 0;
                    let dead = engine.clone();
                    engine = engine.crash(|unsynced| {
                        kept = unsynced * share / 8;
                        kept
                    });
                    prop_assert!(dead.write(Batch::new(), Durability::Buffered).is_err());
                    history.truncate(synced + kept);
                    synced = history.len();
                }
            }
            prop_assert_eq!(engine.unsynced(), history.len() - synced);
            prop_assert_eq!(rows(&engine), replay(&history));
        }
    }
}

fn put(key: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put(Family::State, key, "value");
    batch
}

fn broken() -> Error {
    Error::Engine("injected".into())
}

#[test]
fn a_failed_write_may_have_reached_the_disk() {
    let engine = MemoryEngine::new();
    engine.inject(Fault::Write { after: 1, error: broken() });
    engine.write(put("a"), Durability::Buffered).unwrap();
    assert!(engine.write(put("b"), Durability::Buffered).is_err());
    assert!(engine.sync().is_err(), "after a failure nothing is reported as durable");
    assert_eq!(engine.get(Family::State, b"b").unwrap(), None);
    let counts: Vec<usize> = engine.crash_images().map(|image| rows(&image).len()).collect();
    assert_eq!(counts, [0, 1, 2]);
}

#[test]
fn a_failed_sync_fails_for_good() {
    let engine = MemoryEngine::new();
    engine.inject(Fault::Sync { after: 1, error: broken() });
    engine.write(put("a"), Durability::Synced).unwrap();
    engine.write(put("b"), Durability::Buffered).unwrap();
    assert!(engine.sync().is_err());
    assert!(engine.sync().is_err());
    assert!(engine.write(put("c"), Durability::Buffered).is_err());
    let next = engine.crash(|unsynced| unsynced);
    next.write(put("c"), Durability::Synced).unwrap();
    assert_eq!(rows(&next).len(), 3);
}

#[test]
fn a_full_device_says_so() {
    let engine = MemoryEngine::new();
    engine.inject(Fault::Capacity { bytes: 10 });
    engine.write(put("a"), Durability::Buffered).unwrap();
    match engine.write(put("b"), Durability::Buffered).unwrap_err() {
        Error::Full { path } => assert_eq!(path, PathBuf::from("memory")),
        other => panic!("{other}"),
    }
}

#[test]
fn neighbours_open_each_others_checkpoints() {
    let one = MemoryEngine::new();
    let other = one.neighbour();
    one.write(put("a"), Durability::Buffered).unwrap();
    let dir = PathBuf::from("shared");
    one.checkpoint(&dir).unwrap();
    assert_eq!(rows(&*other.open_checkpoint(&dir).unwrap()).len(), 1);
    assert_eq!(rows(&other).len(), 0);
    assert!(other.checkpoint(&dir).is_err(), "the directory is taken");
    let next = one.crash(|_| 0);
    assert_eq!(rows(&*next.open_checkpoint(&dir).unwrap()).len(), 1, "checkpoints are synced");
}

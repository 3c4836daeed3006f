//! The floor survives torn writes and tells when a store has fallen below it.

use std::fs;

use dolomedes_storage::{
    Error,
    floor::{Floor, MAX_GROUPS, Position},
};

fn at(term: u64, log_end: u64) -> Position {
    Position { term, log_end }
}

#[test]
fn a_store_below_its_floor_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("FLOOR");
    Floor::create(&path, 7).unwrap();
    let mut floor = Floor::open(&path, 7).unwrap();
    assert_eq!(floor.epoch(), 1);
    floor.check(1, at(0, 0)).unwrap();
    floor.record([(1, at(3, 100)), (2, at(1, 5))]).unwrap();
    drop(floor);
    let floor = Floor::open(&path, 7).unwrap();
    assert_eq!(floor.epoch(), 2);
    assert_eq!(floor.get(2), Some(at(1, 5)));
    for (store, sound) in [(at(3, 100), true), (at(4, 200), true), (at(2, 100), false), (at(3, 99), false)] {
        assert_eq!(floor.check(1, store).is_ok(), sound, "{store:?}");
    }
    floor.check(9, at(0, 0)).unwrap();
}

#[test]
fn a_torn_record_leaves_the_one_before() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("FLOOR");
    Floor::create(&path, 7).unwrap();
    let mut floor = Floor::open(&path, 7).unwrap();
    floor.record([(1, at(1, 10))]).unwrap();
    let before = fs::read(&path).unwrap();
    floor.record([(1, at(1, 20))]).unwrap();
    let after = fs::read(&path).unwrap();
    drop(floor);
    let changed: Vec<usize> = (0..after.len()).filter(|&at| before[at] != after[at]).collect();
    let (first, last) = (changed[0], changed[changed.len() - 1]);
    for cut in first..=last + 1 {
        fs::write(&path, [&after[..cut], &before[cut..]].concat()).unwrap();
        let log_end = Floor::open(&path, 7).unwrap().get(1).unwrap().log_end;
        let expected = if cut > last { 20 } else { 10 };
        assert_eq!(log_end, expected, "torn at {cut} of {first}..={last}");
    }
}

#[test]
fn damaged_floors_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("FLOOR");
    let refused = |why: &str| {
        let error = Floor::open(&path, 7).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{why}: {error}");
    };
    refused("missing");
    for garbage in [&b""[..], b"garbage", &[0xff; 20_000], &[0; 20_000]] {
        fs::write(&path, garbage).unwrap();
        refused("garbage");
    }
    Floor::create(&path, 8).unwrap();
    refused("another node's");
}

#[test]
fn the_floor_is_bounded() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("FLOOR");
    Floor::create(&path, 7).unwrap();
    let mut floor = Floor::open(&path, 7).unwrap();
    let all = MAX_GROUPS as u32;
    floor.record((0..all).map(|group| (group, at(u64::MAX, u64::MAX)))).unwrap();
    assert!(floor.record([(all, at(1, 1))]).is_err());
    drop(floor);
    assert_eq!(Floor::open(&path, 7).unwrap().get(all - 1), Some(at(u64::MAX, u64::MAX)));
}

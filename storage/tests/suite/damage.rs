//! What RocksDB is made to say about damaged files, and the one case that only the floor finds.

use std::{
    fs,
    ops::ControlFlow,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dolomedes_storage::{
    Error, Result,
    engine::{Batch, Durability, Engine, Family, Reader},
    floor::{Floor, Position},
    log::{LogOptions, LogStore, LogSync},
};

use crate::{files, flip, open};

const ROWS: usize = 200;

fn row(number: usize) -> Batch {
    let mut batch = Batch::new();
    for family in [Family::Log, Family::State] {
        batch.put(family, format!("{number:08}"), [number as u8; 100]);
    }
    batch
}

/// A closed database whose rows are all in its write-ahead log, a record each.
fn closed(dir: &Path) {
    let engine = open(dir).unwrap();
    for number in 0..ROWS {
        engine.write(row(number), Durability::Buffered).unwrap();
    }
    engine.sync().unwrap();
}

/// Like [`closed`], with the rows in table files: opening writes what is recovered into tables.
fn closed_in_tables(dir: &Path) {
    closed(dir);
    drop(open(dir).unwrap());
    assert!(!files(dir, "sst").is_empty());
}

fn count(engine: &dyn Reader, family: Family) -> Result<usize> {
    let mut count = 0;
    engine.scan(family, b"", b"~", &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

fn write_ahead_log(dir: &Path) -> std::path::PathBuf {
    files(dir, "log").into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. })
}

#[test]
fn a_flipped_byte_in_the_middle_of_the_write_ahead_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    let wal = write_ahead_log(dir.path());
    flip(&wal, fs::metadata(&wal).unwrap().len() as usize / 2);
    let error = open(dir.path()).err().unwrap();
    assert!(is_damage(&error), "{error}");
}

#[test]
fn a_torn_end_of_the_write_ahead_log_costs_only_the_last_write() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    let wal = write_ahead_log(dir.path());
    let length = fs::metadata(&wal).unwrap().len();
    fs::OpenOptions::new().write(true).open(&wal).unwrap().set_len(length - 30).unwrap();
    let engine = open(dir.path()).unwrap();
    for family in [Family::Log, Family::State] {
        assert_eq!(count(&engine, family).unwrap(), ROWS - 1);
    }
}

#[test]
fn a_flipped_byte_in_a_table_is_found_when_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    closed_in_tables(dir.path());
    for table in files(dir.path(), "sst") {
        flip(&table, 100);
    }
    let outcome = open(dir.path()).and_then(|engine| {
        assert!(engine.get(Family::State, b"00000001").is_err());
        assert!(engine.get_many(Family::State, &[b"00000001"]).is_err());
        count(&engine, Family::State)
    });
    let error = outcome.unwrap_err();
    assert!(is_damage(&error), "{error}");
}

#[test]
fn a_missing_table_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    closed_in_tables(dir.path());
    fs::remove_file(&files(dir.path(), "sst")[0]).unwrap();
    let error = open(dir.path()).err().unwrap();
    assert!(is_damage(&error), "{error}");
}

#[test]
fn a_missing_closed_write_ahead_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    let mut batch = Batch::new();
    // Stays in its memtable, so that the first log file stays needed.
    batch.put(Family::Meta, "vote", "for me");
    engine.write(batch, Durability::Synced).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut number = 0u64;
    while files(dir.path(), "sst").is_empty() || files(dir.path(), "log").len() < 2 {
        assert!(Instant::now() < deadline, "no memtable was flushed");
        let mut batch = Batch::new();
        batch.put(Family::Log, number.to_be_bytes(), vec![0; 16 << 10]);
        engine.write(batch, Durability::Buffered).unwrap();
        number += 1;
    }
    engine.sync().unwrap();
    drop(engine);
    fs::remove_file(&files(dir.path(), "log")[0]).unwrap();
    let error = open(dir.path()).err().unwrap();
    assert!(is_damage(&error), "{error}");
}

#[test]
fn a_missing_open_write_ahead_log_is_found_by_the_floor() {
    let root = tempfile::tempdir().unwrap();
    let (db, path) = (root.path().join("db"), root.path().join("FLOOR"));
    let log = |dir: &Path| {
        let sync = LogSync::start(Arc::new(open(dir).unwrap())).unwrap();
        LogStore::open(&sync, 1, LogOptions::default()).unwrap()
    };
    Floor::create(&path, 7).unwrap();
    let mut floor = Floor::open(&path, 7).unwrap();
    let store = log(&db);
    store.append((0..10).map(|index| (index, Bytes::from_static(b"entry"))), Box::new(|_| {})).unwrap();
    store.save_vote(b"term 3").unwrap();
    floor.record([(1, Position { term: 3, log_end: store.last_index().unwrap() + 1 })]).unwrap();
    drop((store, floor));

    // RocksDB keeps no account of the log file in use: it opens the rest without a word.
    for wal in files(&db, "log") {
        fs::remove_file(wal).unwrap();
    }
    let store = log(&db);
    let found = Position { term: 0, log_end: store.last_index().map_or(0, |it| it + 1) };
    let error = Floor::open(&path, 7).unwrap().check(1, found).unwrap_err();
    assert!(is_damage(&error), "{error}");
}

#[test]
fn a_second_opener_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _first = open(dir.path()).unwrap();
    let error = open(dir.path()).err().unwrap();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
}

#[test]
fn a_place_that_is_no_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    let error = open(&path).err().unwrap();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

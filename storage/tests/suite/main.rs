//! Tests of the storage crate through its public doors. One binary, to be linked once.

#![allow(clippy::unwrap_used, reason = "clippy.toml allows it in tests, but not in the helpers beside them")]

mod codec;
mod conformance;
mod damage;
mod directory;
mod floor;
mod kill;
mod log;
mod memory;

use std::{fs, path::Path};

use dolomedes_storage::rocks::{RocksEngine, RocksOptions};

/// Bounds so small that flushes and compactions happen in a test.
fn small() -> RocksOptions {
    RocksOptions {
        cache_bytes: 1 << 20,
        memtable_bytes: 1 << 20,
        wal_bytes: 2 << 20,
        ..RocksOptions::default()
    }
}

fn open(dir: &Path) -> dolomedes_storage::Result<RocksEngine> {
    RocksEngine::open(dir, small())
}

/// The files in `dir` with the given extension, by name.
fn files(dir: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect();
    files.sort();
    files
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

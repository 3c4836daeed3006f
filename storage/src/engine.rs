//! The ordered key-value engine that everything durable stands on: what it promises, not how it keeps it.
//!
//! Two implementations: [`crate::rocks::RocksEngine`] for disks and [`crate::memory::MemoryEngine`], which models the
//! difference between *written* and *synced* and can lose any unsynced suffix on a simulated crash. Both pass
//! [`crate::conformance`]. The traits are object-safe; scans take a visitor so that no row is copied unless wanted.

use std::{ops::ControlFlow, path::Path};

use crate::error::Result;

/// A column family: rows with one access pattern and one tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Raft log entries: appended at the end, read once or twice, purged by range.
    Log,
    /// Small, rarely written facts: votes, purge marks, applied positions, identity of groups.
    Meta,
    /// Rows of the replicated state machine: scanned by prefix.
    State,
    /// Fingerprints of known messages: point look-ups only, most of them for keys that are absent.
    Seen,
}

impl Family {
    /// All families, in a fixed order.
    pub const ALL: [Family; 4] = [Family::Log, Family::Meta, Family::State, Family::Seen];

    /// The name it has on disk.
    pub fn name(self) -> &'static str {
        match self {
            Family::Log => "log",
            Family::Meta => "meta",
            Family::State => "state",
            Family::Seen => "seen",
        }
    }
}

/// One change of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets `key` to `value`.
    Put(Family, Vec<u8>, Vec<u8>),
    /// Removes `key`; removing an absent key is no error.
    Delete(Family, Vec<u8>),
    /// Removes every key in `[from, to)`.
    DeleteRange(Family, Vec<u8>, Vec<u8>),
}

/// Changes that become visible, and survive a crash, together or not at all. They act in the order they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<Change>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, family: Family, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.changes.push(Change::Put(family, key.into(), value.into()));
    }

    /// Removes `key`.
    pub fn delete(&mut self, family: Family, key: impl Into<Vec<u8>>) {
        self.changes.push(Change::Delete(family, key.into()));
    }

    /// Removes every key in `[from, to)`.
    pub fn delete_range(&mut self, family: Family, from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) {
        self.changes.push(Change::DeleteRange(family, from.into(), to.into()));
    }

    /// Adds all changes of `other` behind the own ones.
    pub fn extend(&mut self, other: Batch) {
        self.changes.extend(other.changes);
    }

    /// The changes in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The changes in order, taken out.
    pub fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// Whether it would change nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// When a write has to be on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Readable at once; on stable storage after the next [`Engine::sync`]. A crash may lose it, but then also loses
    /// everything that was written after it: writes reach the disk in their order, over all families.
    Buffered,
    /// On stable storage when the call returns, together with everything written before it.
    Synced,
}

/// Called for each row of a scan; `Break` ends the scan early.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Read access to one consistent state. On an [`Engine`] each call sees the newest state; on a snapshot, the state
/// at its creation.
pub trait Reader: Send + Sync {
    /// The value of `key`.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The values of `keys`, in their order.
    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>>;

    /// Visits the rows of `[from, to)` in ascending byte order of their keys.
    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()>;

    /// Visits the rows of `[from, to)` in descending order.
    fn scan_back(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()>;
}

/// An ordered, crash-safe store. All methods may block on the disk.
///
/// After an error from [`write`](Engine::write) or [`sync`](Engine::sync) the state on disk is unknown; the caller
/// ends the process and never retries (the kernel may have dropped the dirty pages: the "fsyncgate" reports of 2018).
pub trait Engine: Reader + 'static {
    /// Applies `batch` atomically.
    fn write(&self, batch: Batch, durability: Durability) -> Result<()>;

    /// Returns when everything written before the call is on stable storage.
    fn sync(&self) -> Result<()>;

    /// A read view of the present state, unmoved by later writes.
    fn snapshot(&self) -> Box<dyn Reader + '_>;

    /// Writes a consistent, synced copy of the present state into the new directory `dir`, sharing files with the
    /// live store where it can: cheap in time and space, whatever the size.
    fn checkpoint(&self, dir: &Path) -> Result<()>;

    /// Opens a copy made by [`checkpoint`](Engine::checkpoint) for reading.
    fn open_checkpoint(&self, dir: &Path) -> Result<Box<dyn Reader>>;

    /// Adds rows in bulk, bypassing the write-ahead log. `rows` ascends strictly by key, and no key in its range may
    /// exist. Durable on return.
    fn ingest(&self, family: Family, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()>;

    /// An estimate of the bytes that live rows of `[from, to)` take on disk.
    fn approximate_size(&self, family: Family, from: &[u8], to: &[u8]) -> Result<u64>;
}

//! Groups over engines in memory and on disk, and an engine whose syncs can be held up.

use std::{
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use dolomedes_raft::{
    command::{Command, Reply},
    group::{Clock, Group, GroupOptions, GroupStart, SubmitError},
};
use dolomedes_storage::{
    Result,
    engine::{Batch, Durability, Engine, Family, Reader, Visit},
    log::LogSync,
    memory::MemoryEngine,
};

pub(crate) const GROUP: u32 = 7;

/// A clock that ticks with every entry.
pub(crate) fn clock() -> Clock {
    let now = AtomicU64::new(1_000);
    Arc::new(move || now.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn open(engine: Arc<dyn Engine>, snapshots: &Path, options: GroupOptions) -> Group {
    let start = GroupStart {
        group: GROUP,
        node: 1,
        sync: LogSync::start(engine.clone()).unwrap(),
        engine,
        snapshots: snapshots.to_owned(),
        floor: None,
        clock: clock(),
        transport: None,
        bootstrap: true,
        options,
    };
    Group::open(start).await.unwrap()
}

/// A command whose reply counts how often it was applied for `name`.
pub(crate) fn count(name: impl Into<String>, bytes: usize) -> Command {
    Command::SetCheckpoint {
        name: name.into(),
        expect: None,
        value: Some(Bytes::from(vec![7; bytes])),
        keep: 1,
        guard: None,
    }
}

pub(crate) fn version(reply: Reply) -> u64 {
    match reply {
        Reply::Checkpoint { version, .. } => version,
        other => panic!("not the reply of a checkpoint: {other:?}"),
    }
}

/// How often `name` was counted.
pub(crate) async fn counted(group: &Group, name: impl Into<String>) -> u64 {
    let question = Command::SetCheckpoint {
        name: name.into(),
        expect: Some(u64::MAX),
        value: None,
        keep: 1,
        guard: None,
    };
    version(group.submit(question).await.unwrap())
}

/// Counts `name`, or says why not.
pub(crate) async fn try_count(
    group: &Group,
    name: impl Into<String>,
) -> std::result::Result<u64, SubmitError> {
    group.submit(count(name, 100)).await.map(version)
}

/// An engine in memory whose syncs wait while they are held up.
pub(crate) struct SlowDisk {
    pub(crate) inner: MemoryEngine,
    held: Mutex<bool>,
    released: Condvar,
}

impl SlowDisk {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { inner: MemoryEngine::new(), held: Mutex::new(false), released: Condvar::new() })
    }

    pub(crate) fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.released.notify_all();
    }
}

impl Reader for SlowDisk {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.inner.get_many(family, keys)
    }

    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.inner.scan(family, from, to, visit)
    }

    fn scan_back(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.inner.scan_back(family, from, to, visit)
    }
}

impl Engine for SlowDisk {
    fn write(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.inner.write(batch, durability)
    }

    fn sync(&self) -> Result<()> {
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |held| *held).unwrap());
        self.inner.sync()
    }

    fn snapshot(&self) -> Box<dyn Reader + '_> {
        self.inner.snapshot()
    }

    fn checkpoint(&self, dir: &Path) -> Result<()> {
        self.inner.checkpoint(dir)
    }

    fn open_checkpoint(&self, dir: &Path) -> Result<Box<dyn Reader>> {
        self.inner.open_checkpoint(dir)
    }

    fn ingest(&self, family: Family, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        self.inner.ingest(family, rows)
    }

    fn approximate_size(&self, family: Family, from: &[u8], to: &[u8]) -> Result<u64> {
        self.inner.approximate_size(family, from, to)
    }
}

/// Waits until `condition` holds. What it looks at has no event to wait for, so it is asked again and again.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

//! openraft's own suite for stores, on both engines, also beside another group that writes all the time.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use dolomedes_raft::group::{log::GroupLog, snapshot::Snapshots, state::GroupState, types::Types};
use dolomedes_storage::{
    engine::Engine,
    log::{LogOptions, LogStore, LogSync},
    memory::MemoryEngine,
    rocks::RocksEngine,
};
use openraft::{
    StorageError,
    testing::log::{StoreBuilder, Suite},
};
use tempfile::TempDir;

use crate::group_harness::GROUP;

struct Builder {
    engine: fn(&TempDir) -> Arc<dyn Engine>,
    neighbours: bool,
}

/// Ends the neighbours before the directory goes.
struct Guard {
    stop: Arc<AtomicBool>,
    neighbour: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(neighbour) = self.neighbour.take() {
            neighbour.join().unwrap();
        }
    }
}

impl StoreBuilder<Types, GroupLog, GroupState, Guard> for Builder {
    async fn build(&self) -> Result<(Guard, GroupLog, GroupState), StorageError<Types>> {
        let dir = TempDir::new().unwrap();
        let engine = (self.engine)(&dir);
        let sync = LogSync::start(engine.clone()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let neighbour = self.neighbours.then(|| write_beside(&sync, stop.clone()));
        let log = LogStore::open(&sync, GROUP, LogOptions { tail_bytes: 200 }).unwrap();
        let snapshots = Snapshots::open(&dir.path().join("snapshots"), GROUP).unwrap();
        let state = GroupState::open(engine, GROUP, snapshots).unwrap();
        Ok((Guard { stop, neighbour, _dir: dir }, GroupLog::new(log), state))
    }
}

/// Appends, truncates and purges the logs of the groups before and behind.
fn write_beside(sync: &Arc<LogSync>, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    let logs =
        [GROUP - 1, GROUP + 1].map(|group| LogStore::open(sync, group, LogOptions::default()).unwrap());
    std::thread::spawn(move || {
        let mut next = 1u64;
        while !stop.load(Ordering::Relaxed) {
            for log in &logs {
                let entries = (next..next + 3).map(|index| (index, vec![9; 50].into()));
                log.append(entries, Box::new(|result| result.unwrap())).unwrap();
                log.truncate_after(Some(next + 1)).unwrap();
                log.save_vote(&next.to_be_bytes()).unwrap();
                if next > 20 {
                    log.purge(next - 20, b"mark").unwrap();
                }
            }
            next += 2;
            // Busy, but not with all of the machine.
            std::thread::park_timeout(Duration::from_micros(200));
        }
    })
}

fn memory(_dir: &TempDir) -> Arc<dyn Engine> {
    static FIRST: LazyLock<MemoryEngine> = LazyLock::new(MemoryEngine::new);
    Arc::new(FIRST.neighbour())
}

fn rocks(dir: &TempDir) -> Arc<dyn Engine> {
    Arc::new(RocksEngine::open(dir.path().join("db"), Default::default()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory() {
    Suite::test_all(Builder { engine: memory, neighbours: false }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory_beside_busy_groups() {
    Suite::test_all(Builder { engine: memory, neighbours: true }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_disk() {
    Suite::test_all(Builder { engine: rocks, neighbours: false }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_disk_beside_busy_groups() {
    Suite::test_all(Builder { engine: rocks, neighbours: true }).await.unwrap();
}

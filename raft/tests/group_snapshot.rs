//! Snapshots: made when the log has grown, the log purged behind them, restored any number of times.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use dolomedes_raft::{
    codec,
    command::Entry,
    group::{
        GroupOptions,
        snapshot::{MAX_KEPT, Snapshots},
        state::GroupState,
        types::{LeaderTerm, LogEntry, LogId, Proposal},
    },
};
use dolomedes_storage::{
    engine::{Batch, Durability, Engine, Family, Reader},
    memory::MemoryEngine,
    rocks::RocksEngine,
};
use futures_util::stream;
use openraft::{EntryPayload, RaftSnapshotBuilder, storage::RaftStateMachine};
use tempfile::TempDir;

use crate::group_harness::{GROUP, count, counted, eventually, open, try_count, version};

type Row = (Family, Vec<u8>, Vec<u8>);

/// All rows of the machine, without the part of their keys that names group and generation.
fn rows(engine: &dyn Reader) -> Vec<Row> {
    let mut rows = Vec::new();
    for family in [Family::State, Family::Seen] {
        engine
            .scan(family, &[], &[0xff; 32], &mut |key, value| {
                rows.push((family, key[12..].to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    rows
}

fn state(engine: &Arc<dyn Engine>, dir: &Path) -> GroupState {
    let snapshots = Snapshots::open(&dir.join("snapshots"), GROUP).unwrap();
    GroupState::open(engine.clone(), GROUP, snapshots).unwrap()
}

async fn apply(state: &mut GroupState, indexes: std::ops::Range<u64>) {
    let entries = indexes.map(|index| {
        let commands = vec![count(format!("n{}", index % 5), 500)];
        let bytes = codec::encode_entry(&Entry { stamp: index, commands });
        let log_id = LogId::new(LeaderTerm::new(1), index);
        Ok((LogEntry { log_id, payload: EntryPayload::Normal(Proposal(bytes.into())) }, None))
    });
    state.apply(stream::iter(entries)).await.unwrap();
}

async fn restore(from: Arc<dyn Engine>, to: Arc<dyn Engine>) {
    let (from_dir, to_dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut source = state(&from, from_dir.path());
    apply(&mut source, 0..200).await;
    let expected = rows(&*from);
    assert!(!expected.is_empty());
    let taken = source.get_snapshot_builder().await.build_snapshot().await.unwrap();
    // What comes later is not in it.
    apply(&mut source, 200..300).await;

    let mut target = state(&to, to_dir.path());
    apply(&mut target, 0..10).await;
    for _ in 0..2 {
        target.install_snapshot(&taken.meta, taken.snapshot.clone()).await.unwrap();
        assert!(rows(&*to) == expected, "the restored rows differ");
        assert_eq!(target.applied_state().await.unwrap().0, taken.meta.last_log_id);
        let own = target.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(own.meta, taken.meta);
        apply(&mut target, 200..210).await;
    }
    // Restoring and going on is the same as never having restored.
    apply(&mut target, 210..300).await;
    assert!(rows(&*to) == rows(&*from), "the rows differ after the same entries");
    drop(target);
    let mut reopened = state(&to, to_dir.path());
    assert_eq!(reopened.applied_state().await.unwrap().0.unwrap().index, 299);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_can_be_restored_any_number_of_times() {
    let first = MemoryEngine::new();
    restore(Arc::new(first.neighbour()), Arc::new(first)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_on_disk_can_be_restored_any_number_of_times() {
    let dir = TempDir::new().unwrap();
    let engine = |name| Arc::new(RocksEngine::open(dir.path().join(name), Default::default()).unwrap());
    restore(engine("a"), engine("b")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_interrupted_installation_left_is_removed() {
    let dir = TempDir::new().unwrap();
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    apply(&mut state(&engine, dir.path()), 0..20).await;
    let expected = rows(&*engine);
    let mut batch = Batch::new();
    for (group, generation) in [(GROUP, 1u64), (GROUP, 9), (GROUP + 1, 0), (GROUP - 1, 3)] {
        let key = [&group.to_be_bytes()[..], &generation.to_be_bytes()[..], b"left over"].concat();
        batch.put(Family::State, key.clone(), b"1");
        batch.put(Family::Seen, key, b"2");
    }
    engine.write(batch, Durability::Synced).unwrap();
    drop(state(&engine, dir.path()));
    let neighbours = rows(&*engine).into_iter().filter(|row| row.1 == b"left over").count();
    assert_eq!(neighbours, 4, "rows of other groups are not touched");
    let own: Vec<Row> = rows(&*engine).into_iter().filter(|row| row.1 != b"left over").collect();
    assert!(own == expected, "the valid rows are not touched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn superseded_snapshots_go_with_their_last_handle() {
    let dir = TempDir::new().unwrap();
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let mut state = state(&engine, dir.path());
    let mut held = Vec::new();
    for round in 0..MAX_KEPT as u64 {
        apply(&mut state, round * 10..round * 10 + 10).await;
        let mut builder = state.try_create_snapshot_builder(false).await.unwrap();
        held.push(builder.build_snapshot().await.unwrap());
    }
    let kept = || std::fs::read_dir(dir.path().join("snapshots")).unwrap().count();
    assert_eq!(kept(), MAX_KEPT);
    assert!(state.try_create_snapshot_builder(false).await.is_none(), "the number is bounded");
    // A snapshot at the same place is the same snapshot.
    let again = state.try_create_snapshot_builder(true).await.unwrap().build_snapshot().await.unwrap();
    assert_eq!(again.meta, held[MAX_KEPT - 1].meta);
    assert_eq!(kept(), MAX_KEPT);
    assert!(engine.open_checkpoint(&held[0].snapshot.rows()).is_ok());
    held.clear();
    assert_eq!(kept(), 1);
    assert!(state.try_create_snapshot_builder(false).await.is_some());

    // At the next start, what has no description is gone, and the newest is found.
    std::fs::create_dir_all(dir.path().join(format!("snapshots/g{GROUP}-900/rows"))).unwrap();
    let found = Snapshots::open(&dir.path().join("snapshots"), GROUP).unwrap().current().unwrap();
    assert_eq!((found.meta, kept()), (again.meta, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_description_is_reported() {
    let dir = TempDir::new().unwrap();
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let mut state = state(&engine, dir.path());
    apply(&mut state, 0..10).await;
    state.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let meta = dir.path().join(format!("snapshots/g{GROUP}-0/meta"));
    let mut bytes = std::fs::read(&meta).unwrap();
    bytes[6] ^= 1;
    std::fs::write(&meta, bytes).unwrap();
    let error = Snapshots::open(&dir.path().join("snapshots"), GROUP).err().unwrap();
    assert!(error.to_string().contains("checksum"), "{error}");
    assert!(meta.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_within_its_bounds() {
    let (dir, engine) = (TempDir::new().unwrap(), MemoryEngine::new());
    let options = GroupOptions { snapshot_log_bytes: 200_000, keep_log_bytes: 50_000, ..Default::default() };
    let group = open(Arc::new(engine.clone()), dir.path(), options.clone()).await;
    for round in 1..=3 {
        let snapshot = group.metrics().snapshot;
        for _ in 0..100 {
            group.submit(count("n", 4000)).await.unwrap();
        }
        eventually("there is a newer snapshot", || group.metrics().snapshot > snapshot).await;
        eventually("the log is purged", || group.metrics().log_bytes < 250_000).await;
        eventually("the purge is told of", || group.metrics().purged.is_some()).await;
        let metrics = group.metrics();
        assert!(metrics.purged <= metrics.snapshot, "{round}: {metrics:?}");
    }
    group.shutdown().await.unwrap();
    let group = open(Arc::new(engine), dir.path(), options).await;
    assert_eq!(counted(&group, "n").await, 300);
    assert_eq!(version(group.submit(count("n", 1)).await.unwrap()), 301);
    assert!(group.metrics().purged.is_some());
    assert_eq!(try_count(&group, "n").await, Ok(302));
}

//! From commands to entries: order, packing, bounds, endings.

use std::sync::Arc;

use dolomedes_raft::{
    command::Command,
    group::{GroupOptions, MAX_COMMAND_BYTES, SubmitError},
};
use dolomedes_storage::memory::{Fault, MemoryEngine};
use futures_util::future::join_all;
use tempfile::TempDir;

use crate::group_harness::{SlowDisk, count, counted, eventually, open, try_count, version};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_the_log_is_the_order_of_submission() {
    let dir = TempDir::new().unwrap();
    let group = open(Arc::new(MemoryEngine::new()), dir.path(), GroupOptions::default()).await;
    let submitted = (0..500).map(|_| group.submit(count("n", 2000)));
    let versions: Vec<u64> =
        join_all(submitted).await.into_iter().map(|reply| version(reply.unwrap())).collect();
    assert_eq!(versions, (1..=500).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_disk_is_slow_commands_gather_into_few_entries() {
    let (dir, disk) = (TempDir::new().unwrap(), SlowDisk::new());
    let options = GroupOptions { in_flight: 2, ..Default::default() };
    let group = open(disk.clone(), dir.path(), options).await;
    let before = group.metrics().last.unwrap();
    disk.hold(true);
    let first = group.try_submit(count("n", 10)).unwrap();
    eventually("the first command is on its way", || group.metrics().last > Some(before)).await;
    let others: Vec<_> = (0..300).map(|_| group.try_submit(count("n", 10)).unwrap()).collect();
    disk.hold(false);
    assert_eq!(version(first.await.unwrap()), 1);
    let versions: Vec<u64> =
        join_all(others).await.into_iter().map(|reply| version(reply.unwrap())).collect();
    assert_eq!(versions, (2..=301).collect::<Vec<_>>());
    let entries = group.metrics().last.unwrap() - before;
    assert!(entries <= 10, "301 commands took {entries} entries");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exceeds_the_bounds_is_refused() {
    let (dir, disk) = (TempDir::new().unwrap(), SlowDisk::new());
    let group = open(disk.clone(), dir.path(), GroupOptions::default()).await;
    let refused = group.submit(count("n", MAX_COMMAND_BYTES)).await.unwrap_err();
    assert!(matches!(refused, SubmitError::TooLarge { bytes } if bytes > MAX_COMMAND_BYTES));

    disk.hold(true);
    let mut taken = Vec::new();
    let refused = loop {
        match group.try_submit(count("n", 1 << 20)) {
            Ok(reply) => taken.push(reply),
            Err(error) => break error,
        }
        assert!(taken.len() <= 16, "the queue has no bound");
    };
    assert_eq!(refused, SubmitError::Overloaded);
    assert!(group.metrics().queued_bytes > 14 << 20);
    // One that can wait is served once there is room again.
    let waiting = tokio::spawn({
        let group = group.clone();
        async move { group.submit(count("n", 1 << 20)).await }
    });
    disk.hold(false);
    let last = taken.len() as u64 + 1;
    assert!(join_all(taken).await.into_iter().all(|reply| reply.is_ok()));
    assert_eq!(version(waiting.await.unwrap().unwrap()), last);
    assert_eq!(group.metrics().queued_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_answers_what_was_taken_and_takes_no_more() {
    let (dir, engine) = (TempDir::new().unwrap(), MemoryEngine::new());
    let group = open(Arc::new(engine.clone()), dir.path(), GroupOptions::default()).await;
    let taken: Vec<_> = (0..100).map(|_| group.try_submit(count("n", 10)).unwrap()).collect();
    group.shutdown().await.unwrap();
    assert!(join_all(taken).await.into_iter().all(|reply| reply.is_ok()));
    assert_eq!(try_count(&group, "n").await, Err(SubmitError::Closed));
    assert_eq!(group.linearizable().await, Err(SubmitError::Closed));
    assert_eq!(engine.unsynced(), 0);

    let again = open(Arc::new(engine), dir.path(), GroupOptions::default()).await;
    assert_eq!(counted(&again, "n").await, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_ends_the_group() {
    for fault in [Fault::Sync { after: 3, error: broken() }, Fault::Write { after: 5, error: broken() }] {
        let (dir, engine) = (TempDir::new().unwrap(), MemoryEngine::new());
        let group = open(Arc::new(engine.clone()), dir.path(), GroupOptions::default()).await;
        engine.inject(fault);
        let mut acknowledged = 0;
        let error = loop {
            match try_count(&group, "n").await {
                Ok(version) => acknowledged = version,
                Err(error) => break error,
            }
            assert!(acknowledged < 100);
        };
        assert!(matches!(error, SubmitError::Unknown | SubmitError::Closed), "{error}");
        assert!(group.failed().await.contains("the raft group has failed"));
        let later = group.submit(Command::Tick).await;
        assert!(matches!(later, Err(SubmitError::Unknown | SubmitError::Closed)), "{later:?}");

        let group = open(Arc::new(engine.crash(|_| 0)), dir.path(), GroupOptions::default()).await;
        assert!(counted(&group, "n").await >= acknowledged);
    }
}

fn broken() -> dolomedes_storage::Error {
    dolomedes_storage::Error::Engine("the disk is broken".into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_after_the_barrier_see_what_was_acknowledged() {
    let dir = TempDir::new().unwrap();
    let group = open(Arc::new(MemoryEngine::new()), dir.path(), GroupOptions::default()).await;
    let before = group.metrics().applied;
    try_count(&group, "n").await.unwrap();
    group.linearizable().await.unwrap();
    assert!(group.metrics().applied > before);
    assert_eq!(group.view(|_, generation| Ok(generation)).unwrap(), 0);
}

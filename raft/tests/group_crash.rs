//! Crashes that lose any suffix of what was not synced: whatever was acknowledged is still there.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use dolomedes_raft::{
    command::{Command, NewMessage, PutStatus, QueueConfig, Reply},
    group::{Group, GroupOptions},
    machine::read::State,
};
use dolomedes_storage::{
    engine::Engine,
    log::{LogOptions, LogStore, LogSync},
    memory::MemoryEngine,
};
use futures_util::future::join_all;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tempfile::TempDir;

use crate::group_harness::{GROUP, count, counted, open, version};

/// Small, so that snapshots and purges happen while it crashes.
fn options() -> GroupOptions {
    GroupOptions { in_flight: 3, snapshot_log_bytes: 20_000, keep_log_bytes: 5_000, ..Default::default() }
}

#[derive(Clone, Debug)]
struct Life {
    /// Counters that are counted, in this order.
    counts: Vec<u8>,
    /// How many of the counts are waited for; the rest may be anywhere.
    awaited: prop::sample::Index,
    /// How much of what is unsynced survives.
    kept: prop::sample::Index,
}

fn life() -> impl Strategy<Value = Life> {
    (vec(0u8..4, 1..80), any::<prop::sample::Index>(), any::<prop::sample::Index>())
        .prop_map(|(counts, awaited, kept)| Life { counts, awaited, kept })
}

#[derive(Default)]
struct Known {
    acknowledged: BTreeMap<u8, u64>,
    submitted: BTreeMap<u8, u64>,
}

impl Known {
    /// Every counter lies between what was acknowledged and what was submitted; from here on it is known.
    async fn check(&mut self, group: &Group) {
        for (counter, submitted) in &mut self.submitted {
            let found = counted(group, counter.to_string()).await;
            let least = self.acknowledged.entry(*counter).or_default();
            assert!((*least..=*submitted).contains(&found), "{counter}: {found}, but {least} to {submitted}");
            (*least, *submitted) = (found, found);
        }
    }
}

/// The log has no hole, and begins behind what was purged.
fn check_log(engine: &MemoryEngine) {
    let engine: Arc<dyn Engine> = Arc::new(engine.clone());
    let log = LogStore::open(&LogSync::start(engine).unwrap(), GROUP, LogOptions::default()).unwrap();
    let indexes: Vec<u64> = log.read(0..u64::MAX).unwrap().into_iter().map(|(index, _)| index).collect();
    let first = log.purged().map_or(0, |(upto, _)| upto + 1);
    assert!(indexes.iter().copied().eq(first..first + indexes.len() as u64), "{indexes:?}");
}

async fn live(lives: Vec<Life>) {
    let dir = TempDir::new().unwrap();
    let mut engine = MemoryEngine::new();
    let mut known = Known::default();
    for life in lives {
        let group = open(Arc::new(engine.clone()), dir.path(), options()).await;
        known.check(&group).await;
        let mut replies = Vec::new();
        for counter in &life.counts {
            *known.submitted.entry(*counter).or_default() += 1;
            replies.push(group.try_submit(count(counter.to_string(), 300)).unwrap());
        }
        replies.truncate(life.awaited.index(replies.len() + 1));
        for (counter, reply) in life.counts.iter().zip(join_all(replies).await) {
            let version = version(reply.unwrap());
            let known = known.acknowledged.entry(*counter).or_default();
            assert!(version > *known);
            *known = version;
        }
        engine = engine.crash(|unsynced| life.kept.index(unsynced + 1));
        // The next write is refused, and the group ends.
        assert!(group.submit(Command::Tick).await.is_err());
        assert!(group.failed().await.contains("failed"));
        check_log(&engine);
    }
    let group = open(Arc::new(engine), dir.path(), options()).await;
    known.check(&group).await;
}

#[test]
fn acknowledged_commands_survive_any_crash() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut runner = TestRunner::new(ProptestConfig {
        max_shrink_iters: 20,
        failure_persistence: None,
        ..ProptestConfig::with_cases(48)
    });
    runner
        .run(&vec(life(), 1..5), |lives| {
            runtime.block_on(live(lives));
            Ok(())
        })
        .unwrap();
}

/// At one moment, each state that a crash can leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_crash_image_holds_what_was_acknowledged() {
    let (dir, engine) = (TempDir::new().unwrap(), MemoryEngine::new());
    let group = open(Arc::new(engine.clone()), dir.path(), GroupOptions::default()).await;
    for expected in 1..=20 {
        assert_eq!(version(group.submit(count("n", 100)).await.unwrap()), expected);
    }
    let on_their_way: Vec<_> = (0..10).map(|_| group.try_submit(count("n", 100)).unwrap()).collect();
    let images: Vec<_> = engine.crash_images().collect();
    drop(on_their_way);
    for image in images {
        check_log(&image);
        let snapshots = TempDir::new().unwrap();
        let group = open(Arc::new(image), snapshots.path(), GroupOptions::default()).await;
        assert!((20..=30).contains(&counted(&group, "n").await));
    }
}

/// What was acknowledged but not yet applied when the process ended can be read as soon as the group is open again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_after_opening_see_what_was_acknowledged() {
    let (dir, engine) = (TempDir::new().unwrap(), MemoryEngine::new());
    let group = open(Arc::new(engine.clone()), dir.path(), GroupOptions::default()).await;
    for _ in 0..50 {
        group.submit(count("n", 100)).await.unwrap();
    }
    // Where the rows of the last commands were lost and their entries were not.
    for image in engine.crash_images() {
        let snapshots = TempDir::new().unwrap();
        let group = open(Arc::new(image), snapshots.path(), GroupOptions::default()).await;
        let found = group.view(|reader, generation| State::new(reader, GROUP, generation).checkpoint("n"));
        assert_eq!(found.unwrap().unwrap().version, 50);
    }
}

/// The filter of known fingerprints is made anew at each start; meanwhile and afterwards known messages are known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_fingerprints_are_known_after_a_restart() {
    let (dir, engine) = (TempDir::new().unwrap(), MemoryEngine::new());
    let put = |queue, from: u128| {
        let message = |fingerprint| NewMessage {
            key: Bytes::from_static(b"host"),
            priority: 5,
            delay_ms: 0,
            fingerprint: Some(fingerprint),
            payload: Bytes::new(),
        };
        Command::Put { queue, messages: (from..from + 10_000).map(message).collect() }
    };
    let mut group = open(Arc::new(engine.clone()), dir.path(), GroupOptions::default()).await;
    let config = QueueConfig {
        max_attempts: 1,
        max_lost: 1,
        capacity: 1 << 20,
        key_delay_ms: 0,
        retention_ms: 0,
        unit_budget: None,
        byte_budget: None,
        key_unit_budget: None,
        key_byte_budget: None,
        finishes: false,
    };
    let create = Command::CreateQueue { name: "q".into(), config, spec: Bytes::new() };
    let Reply::Queue { queue, .. } = group.submit(create).await.unwrap() else { panic!("no queue") };
    for expected in [PutStatus::Accepted, PutStatus::Duplicate, PutStatus::Duplicate] {
        let Reply::Put(statuses) = group.submit(put(queue, 1)).await.unwrap() else { panic!("not put") };
        assert!(statuses.iter().all(|status| *status == expected), "{expected:?} is not what was found");
        group.shutdown().await.unwrap();
        group = open(Arc::new(engine.clone()), dir.path(), GroupOptions::default()).await;
    }
    let Reply::Put(statuses) = group.submit(put(queue, 1 << 64)).await.unwrap() else { panic!("not put") };
    assert!(statuses.iter().all(|status| *status == PutStatus::Accepted));
}

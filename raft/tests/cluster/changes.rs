//! Members come and go, leadership is handed over, and who was away for long gets a snapshot.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use dolomedes_raft::group::{ChangeError, Group, GroupOptions, MembershipId, SubmitError};
use futures_util::future::join_all;

use super::nodes::Cluster;
use crate::group_harness::{GROUP, count, counted};

/// Small, so that a node that is away for a moment needs a snapshot.
fn short_log() -> GroupOptions {
    GroupOptions { snapshot_log_bytes: 100_000, keep_log_bytes: 20_000, ..Default::default() }
}

async fn fill(group: &Group, commands: usize, bytes: usize) {
    for part in 0..commands.div_ceil(50) {
        let names = (0..50).map(|number| format!("n{}", (part * 50 + number) % 97));
        let replies = join_all(names.map(|name| group.submit(count(name, bytes)))).await;
        assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_catches_up_by_log_and_votes() {
    let mut cluster = Cluster::new(3, GroupOptions::default()).await;
    let first = cluster.group(1);
    fill(&first, 200, 500).await;
    cluster.start(4, false).await;
    first.add_learner(4).await.unwrap();
    first.add_learner(4).await.unwrap();
    cluster.caught_up(GROUP, 1..=4).await;
    assert_eq!(cluster.metrics(4).learners, BTreeSet::from([4]));
    let seen = first.metrics().membership;
    let stale = seen.map(|id| MembershipId { index: id.index - 1, ..id });
    let error = first.change_voters((1..=4).collect(), stale).await.unwrap_err();
    assert!(matches!(error, ChangeError::Changed { .. }), "{error}");
    let error = first.change_voters(BTreeSet::from([1, 9]), seen).await.unwrap_err();
    assert!(matches!(error, ChangeError::Refused { .. }), "{error}");
    let error = cluster.group(2).change_voters((1..=4).collect(), seen).await.unwrap_err();
    assert_eq!(error, ChangeError::NotLeader { leader: Some(1) });
    first.change_voters(BTreeSet::from([1, 2, 4]), seen).await.unwrap();
    let metrics = first.metrics();
    assert_eq!((metrics.voters, metrics.learners), (BTreeSet::from([1, 2, 4]), BTreeSet::from([3])));
    assert!(!metrics.joint && metrics.membership_committed);

    first.remove(3).await.unwrap();
    first.remove(2).await.unwrap();
    assert_eq!(first.metrics().voters, BTreeSet::from([1, 4]));
    cluster.stop(2).await;
    cluster.stop(3).await;
    fill(&first, 50, 100).await;
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_from_hand_to_hand_and_nothing_is_lost() {
    let cluster = Arc::new(Cluster::new(3, GroupOptions::default()).await);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (cluster, stop) = (cluster.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut submitted, mut last) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let (more, count) = cluster.count_somehow(&format!("n{writer}"), &[1, 2, 3]).await;
                    submitted += more;
                    assert!(count > last && count <= submitted, "{last} {count} {submitted}");
                    last = count;
                }
                (submitted, last)
            })
        })
        .collect();
    for round in 0..6 {
        let leader = cluster.leader().await;
        let group = cluster.group(leader);
        let handed = if round % 2 == 0 {
            group.transfer_leadership(leader % 3 + 1).await
        } else {
            group.hand_over().await
        };
        assert!(handed.is_ok(), "{handed:?}");
        cluster.until("another leads", || (!cluster.metrics(leader).leads).then_some(())).await;
    }
    stop.store(true, Ordering::Relaxed);
    let leader = cluster.leader().await;
    for (writer, written) in writers.into_iter().enumerate() {
        let (submitted, last) = written.await.unwrap();
        assert!(last > 0);
        let found = counted(&cluster.group(leader), format!("n{writer}")).await;
        assert!((last..=submitted).contains(&found), "{last} {found} {submitted}");
    }
    cluster.agree().await;
}

/// Makes node 3 miss more than what is kept of the log.
async fn leave_behind(cluster: &Cluster) {
    let leader = cluster.group(1);
    cluster.caught_up(GROUP, cluster.ids()).await;
    let missed = cluster.metrics(3).last;
    cluster.net.isolate(3, 1..=3);
    loop {
        fill(&leader, 100, 3_000).await;
        if leader.metrics().purged > missed {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_for_long_gets_a_snapshot_that_goes_on_where_it_broke_off() {
    let mut cluster = Cluster::new(3, short_log()).await;
    let leader = cluster.group(1);
    // Rows of several pieces.
    for number in 0..24 {
        leader.submit(count(format!("big{number}"), 200_000)).await.unwrap();
    }
    leave_behind(&cluster).await;
    // The offer and two pieces; then the receiver is gone, too.
    cluster.net.allow_snapshot_calls(Some(3));
    cluster.net.heal();
    cluster.until("two pieces are sent", || (cluster.net.snapshot_bytes() > 2 << 20).then_some(())).await;
    let before = cluster.net.snapshot_bytes();
    let left = cluster.crash(3, |unsynced| unsynced);
    cluster.restart(3, left).await;
    cluster.net.allow_snapshot_calls(None);
    cluster.agree().await;
    let whole: usize = cluster.rows(1, GROUP).iter().map(|(_, key, value)| key.len() + value.len()).sum();
    let again = cluster.net.snapshot_bytes() - before;
    assert!(again < whole - (1 << 20), "{again} bytes were sent again of {whole}");
    assert!(cluster.metrics(3).snapshot.is_some());
}

/// openraft's issue 2116: entries that are to be applied while a snapshot is installed under a high rate of writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_can_be_installed_while_writes_go_on() {
    let cluster = Arc::new(Cluster::new(3, short_log()).await);
    let stop = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let (group, stop, written) = (cluster.group(1), stop.clone(), written.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    match group.submit(count(format!("n{writer}"), 1_000)).await {
                        Ok(_) => written.fetch_add(1, Ordering::Relaxed),
                        Err(SubmitError::NotLeader { .. }) => {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            0
                        }
                        Err(error) => panic!("{error}"),
                    };
                }
            })
        })
        .collect();
    let mut installed = 0;
    for round in 0..4 {
        let missed = cluster.metrics(3).last;
        cluster.net.isolate(3, 1..=3);
        cluster.until("the log is purged", || (cluster.metrics(1).purged > missed).then_some(())).await;
        let sent = cluster.net.snapshot_bytes();
        cluster.net.heal();
        let target = cluster.metrics(1).last;
        cluster.until("node 3 has caught up", || (cluster.metrics(3).applied >= target).then_some(())).await;
        installed += usize::from(cluster.net.snapshot_bytes() > sent);
        assert!(cluster.metrics(1).leads, "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    eprintln!("{installed} snapshots, {} commands", written.load(Ordering::Relaxed));
    assert!(installed > 0);
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_lost_or_late_do_no_harm() {
    let cluster = Cluster::new(3, GroupOptions::default()).await;
    cluster.net.lose(100);
    cluster.net.delay(Duration::from_millis(3));
    let (mut submitted, mut last) = (0, 0);
    for _ in 0..100 {
        let (more, count) = cluster.count_somehow("n", &[1, 2, 3]).await;
        submitted += more;
        assert!(count > last && count <= submitted, "{last} {count} {submitted}");
        last = count;
    }
    cluster.net.lose(0);
    cluster.agree().await;
}

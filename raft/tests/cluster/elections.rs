//! Leaders come and go; what was acknowledged stays.

use std::time::{Duration, Instant};

use dolomedes_raft::group::{GroupOptions, SubmitError};

use super::nodes::Cluster;
use crate::group_harness::{GROUP, count, counted, version};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_elect_and_replicate() {
    let cluster = Cluster::new(3, GroupOptions::default()).await;
    assert_eq!(cluster.leader().await, 1);
    for expected in 1..=200 {
        assert_eq!(version(cluster.group(1).submit(count("n", 500)).await.unwrap()), expected);
    }
    let error = cluster.group(2).submit(count("n", 1)).await.unwrap_err();
    assert_eq!(error, SubmitError::NotLeader { leader: Some(1) });
    cluster.group(1).linearizable().await.unwrap();
    assert_eq!(cluster.group(3).linearizable().await, Err(SubmitError::NotLeader { leader: Some(1) }));
    cluster.agree().await;
    let metrics = cluster.metrics(1);
    assert_eq!((metrics.voters, metrics.learners.len()), ((1..=3).collect(), 0));
    assert!(metrics.quorum_answered.is_some_and(|age| age < Duration::from_secs(10)));
    assert_eq!(metrics.followers.keys().copied().collect::<Vec<_>>(), [2, 3]);
    assert!(metrics.followers.values().all(|follower| follower.matched == metrics.last));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_replaced_and_its_command_is_not_lost_twice() {
    let cluster = Cluster::new(3, GroupOptions::default()).await;
    let old = cluster.group(1);
    assert_eq!(version(old.submit(count("n", 100)).await.unwrap()), 1);
    cluster.net.isolate(1, 1..=3);
    let pending = old.try_submit(count("n", 100)).unwrap();
    let leader = cluster.leader_among([2, 3]).await;
    let (submitted, counted_to) = cluster.count_somehow("n", &[leader]).await;
    assert_eq!((submitted, counted_to), (1, 2), "what was not acknowledged is not there");
    let answer = pending.await;
    assert!(matches!(answer, Err(SubmitError::Unknown | SubmitError::NotLeader { .. })), "{answer:?}");
    cluster.net.heal();
    let leader = cluster.leader().await;
    assert_eq!(counted(&cluster.group(leader), "n").await, 2);
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_of_any_node_lose_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::new(3, GroupOptions::default()).await;
    let (mut submitted, mut acknowledged) = (0, 0);
    for round in 0..6 {
        let leader = cluster.leader().await;
        let victim = if round % 2 == 0 { leader } else { leader % 3 + 1 };
        for _ in 0..20 {
            let (more, count) = cluster.count_somehow("n", &cluster.ids()).await;
            submitted += more;
            assert!(count > acknowledged && count <= submitted, "{acknowledged} {count} {submitted}");
            acknowledged = count;
        }
        let on_their_way: Vec<_> =
            (0..5).filter_map(|_| cluster.group(leader).try_submit(count("n", 100)).ok()).collect();
        submitted += on_their_way.len() as u64;
        let left = cluster.crash(victim, |unsynced| unsynced * round / 6);
        drop(on_their_way);
        let rest = cluster.ids();
        for _ in 0..20 {
            let (more, count) = cluster.count_somehow("n", &rest).await;
            submitted += more;
            assert!(count > acknowledged && count <= submitted, "{acknowledged} {count} {submitted}");
            acknowledged = count;
        }
        cluster.restart(victim, left).await;
    }
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_groups_over_one_transport_do_not_disturb_each_other() {
    let cluster = Cluster::of_groups(3, vec![GROUP, GROUP + 1], GroupOptions::default()).await;
    let (one, other) = (cluster.group_of(1, GROUP), cluster.group_of(1, GROUP + 1));
    other.transfer_leadership(2).await.unwrap();
    let other = cluster.group_of(2, GROUP + 1);
    other.linearizable().await.unwrap();
    for expected in 1..=100 {
        let (a, b) = tokio::join!(one.submit(count("n", 100)), other.submit(count("n", 700)));
        assert_eq!((version(a.unwrap()), version(b.unwrap())), (expected, expected));
    }
    cluster.agree().await;
    assert!(cluster.rows(1, GROUP) != cluster.rows(1, GROUP + 1));
    assert_eq!(cluster.group_of(3, GROUP).metrics().leader, Some(1));
    assert_eq!(cluster.group_of(3, GROUP + 1).metrics().leader, Some(2));
}

/// Prints how long it takes from the crash of a leader to the next acknowledged write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_leads_soon_after_a_leader_has_crashed() {
    let kills = std::env::var("KILLS").map_or(5, |kills| kills.parse().unwrap());
    let mut cluster = Cluster::new(3, GroupOptions::default()).await;
    let mut took = Vec::new();
    for _ in 0..kills {
        let leader = cluster.leader().await;
        cluster.count_somehow("n", &[leader]).await;
        cluster.caught_up(GROUP, cluster.ids()).await;
        let left = cluster.crash(leader, |_| 0);
        let start = Instant::now();
        cluster.count_somehow("n", &cluster.ids()).await;
        took.push(start.elapsed());
        cluster.restart(leader, left).await;
    }
    took.sort();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    eprintln!("{kills} kills: p50 {:?}, p90 {:?}, p99 {:?}, most {:?}", at(50), at(90), at(99), at(100));
    cluster.agree().await;
}

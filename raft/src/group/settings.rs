//! The settings of openraft, each where it departs from the default and why.

use std::{sync::Arc, time::Duration};

use openraft::{Config, SnapshotPolicy};

/// How long a group waits for what. The bound of fail-over follows from it: a follower campaigns once it has not heard
/// of its leader for `election_max` (the lease that every heartbeat grants) and then for a time of its own between
/// `election_min` and `election_max`; the one with the shortest wins. With the defaults that is 340 to 440 ms after the
/// last heartbeat, about 370 in the middle with two followers left, and a round of pre-votes and one of votes on top.
///
/// Seven heartbeats in a row have to be missed before anybody campaigns, and pre-votes keep a single node that missed them
/// from disturbing the others. Heartbeats have a lane and a client of their own, so neither entries nor snapshots delay
/// them. A leader whose followers have not answered for `election_max` takes no commands, so shorter times than these
/// would refuse commands whenever two busy cores have something else to do for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTimes {
    /// Between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// The least time that a follower waits, once the lease of its leader has ended.
    pub election_min: Duration,
    /// The greatest, and that lease.
    pub election_max: Duration,
}

impl Default for GroupTimes {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(50),
            election_min: Duration::from_millis(120),
            election_max: Duration::from_millis(220),
        }
    }
}

impl GroupTimes {
    /// For a node without peers: nothing depends on the times, and each of openraft's ticks wakes a thread.
    pub(super) fn alone() -> Self {
        Self {
            heartbeat: Duration::from_millis(250),
            election_min: Duration::from_secs(1),
            election_max: Duration::from_secs(2),
        }
    }
}

/// How long an installation of a snapshot may take, in milliseconds.
pub(super) const INSTALL_MS: u64 = 60_000;

/// Checked settings for a group.
///
/// # Errors
/// If they contradict each other.
pub(super) fn settings(group: u32, times: GroupTimes) -> Result<Arc<Config>, openraft::ConfigError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: format!("group-{group}"),
        heartbeat_interval: millis(times.heartbeat),
        election_timeout_min: millis(times.election_min),
        election_timeout_max: millis(times.election_max),
        // A follower that has just acknowledged entries needs no heartbeat.
        heartbeat_min_interval: Some(millis(times.heartbeat)),
        enable_pre_vote: Some(true),
        // Entries are acknowledged by others before they are durable here. A leader that came back in its old term
        // after losing such entries would give their ids to new ones. It must win a new term instead.
        enable_leader_restore: Some(false),
        // Never accept that a node's log went backwards: a lost disk is a new node.
        allow_log_reversion: Some(false),
        // A leader without a quorum falls silent after this, so that others can elect; the least that is allowed.
        quorum_loss_probe_interval: Some(millis(times.election_max) * 2),
        // A peer that was not there is tried again soon: it may be needed for the next quorum.
        backoff: "100ms".to_owned(),
        install_snapshot_timeout: INSTALL_MS,
        // Bounded by bytes in the log's reads.
        max_payload_entries: 512,
        // Few proposals are in flight at once; what waits, waits in the group's own bounded queue.
        api_channel_size: Some(1024),
        // Snapshots and purges are decided by bytes of log (see `retention`), not by counts of entries.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        purge_batch_size: 1000,
        ..Config::default()
    };
    config.validate().map(Arc::new)
}

//! The settings of openraft, each where it departs from the default and why.

use std::sync::Arc;

use openraft::{Config, SnapshotPolicy};

/// Checked settings for a group.
///
/// # Errors
/// If they contradict each other.
pub(super) fn settings(group: u32) -> Result<Arc<Config>, openraft::ConfigError> {
    let config = Config {
        cluster_name: format!("group-{group}"),
        // Two busy cores miss shorter intervals; term storms were seen elsewhere at 300 and 600 ms.
        heartbeat_interval: 250,
        election_timeout_min: 1000,
        election_timeout_max: 2000,
        // A follower that has just acknowledged entries needs no heartbeat.
        heartbeat_min_interval: Some(250),
        enable_pre_vote: Some(true),
        // Entries are acknowledged by others before they are durable here. A leader that came back in its old term
        // after losing such entries would give their ids to new ones. It must win a new term instead.
        enable_leader_restore: Some(false),
        // Never accept that a node's log went backwards: a lost disk is a new node.
        allow_log_reversion: Some(false),
        // A leader without a quorum falls silent after this, so that others can elect; the least that is allowed.
        quorum_loss_probe_interval: Some(4000),
        install_snapshot_timeout: 60_000,
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

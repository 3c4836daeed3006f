//! When to make a snapshot and how much log to keep: decided by bytes, not by counts of entries. Only the deciding; the
//! snapshot itself is [`super::snapshot`]'s, and the purge the log's.

use std::time::Duration;

use dolomedes_storage::log::LogStore;
use openraft::async_runtime::watch::WatchReceiver;

use super::{Consensus, GroupMetrics, GroupOptions, status};

/// How often the log is weighed.
const EVERY: Duration = Duration::from_millis(250);
/// A snapshot that takes longer than this is waited for again in the next round.
const PATIENCE: Duration = Duration::from_secs(60);

/// A follower that has not answered for so long is not waited for.
const GONE: Duration = Duration::from_secs(1);

/// How far the last of the followers is that answer. Who catches up by a snapshot needs the log behind that snapshot
/// next; purged meanwhile, it would need another snapshot, and another.
fn least_matched(metrics: &GroupMetrics) -> Option<u64> {
    let there = metrics.followers.values().filter(|f| f.answered.is_some_and(|answered| answered < GONE));
    there.map(|follower| follower.matched.unwrap_or(0)).min()
}

/// Keeps the log within its bounds until the group stops.
pub(super) async fn keep_bounded(raft: Consensus, log: LogStore, options: GroupOptions) {
    let limit = options.snapshot_log_bytes.saturating_add(options.keep_log_bytes);
    loop {
        tokio::time::sleep(EVERY).await;
        if log.held_bytes() <= limit {
            continue;
        }
        let (before, applied, matched, purged) = {
            let metrics = raft.metrics();
            let metrics = metrics.borrow_watched();
            let purged = metrics.purged.map_or(0, |purged| purged.index);
            (metrics.snapshot, metrics.last_applied, least_matched(&status::metrics(&metrics)), purged)
        };
        let Some(mut upto) = log.purgeable(options.keep_log_bytes) else { continue };
        if log.held_bytes() <= options.catch_up_log_bytes {
            upto = upto.min(matched.unwrap_or(upto));
        }
        if upto <= purged {
            continue;
        }
        if before < applied {
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
            let wait = raft.wait(Some(PATIENCE));
            if wait.metrics(|metrics| metrics.snapshot > before, "a newer snapshot").await.is_err() {
                tracing::warn!(bytes = log.held_bytes(), "no snapshot could be made; the log keeps growing");
                continue;
            }
        }
        if raft.trigger().purge_log(upto).await.is_err() {
            return;
        }
    }
}

//! When to make a snapshot and how much log to keep: decided by bytes, not by counts of entries. Only the deciding; the
//! snapshot itself is [`super::snapshot`]'s, and the purge the log's.

use std::time::Duration;

use dolomedes_storage::log::LogStore;
use openraft::async_runtime::watch::WatchReceiver;

use super::{Consensus, GroupOptions};

/// How often the log is weighed.
const EVERY: Duration = Duration::from_millis(250);
/// A snapshot that takes longer than this is waited for again in the next round.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps the log within its bounds until the group stops.
pub(super) async fn keep_bounded(raft: Consensus, log: LogStore, options: GroupOptions) {
    let limit = options.snapshot_log_bytes.saturating_add(options.keep_log_bytes);
    loop {
        tokio::time::sleep(EVERY).await;
        if log.held_bytes() <= limit {
            continue;
        }
        let (before, applied) = {
            let metrics = raft.metrics();
            let metrics = metrics.borrow_watched();
            (metrics.snapshot, metrics.last_applied)
        };
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
        if let Some(upto) = log.purgeable(options.keep_log_bytes)
            && raft.trigger().purge_log(upto).await.is_err()
        {
            return;
        }
    }
}

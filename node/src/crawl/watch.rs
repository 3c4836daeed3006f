//! What a running crawl shows to whoever looks: its counts, the job's counters, and a line per busy host.

use std::sync::{Mutex, OnceLock, PoisonError};

use dolomedes_raft::command::Counters;

use tokio::sync::Notify;

use super::stats::Stats;

/// Shared between the crawl, which writes, and its watchers.
#[derive(Debug, Default)]
pub struct Watch {
    /// Counts of this process.
    pub stats: Stats,
    counters: Mutex<Counters>,
    hosts: Mutex<Vec<String>>,
    resumed: OnceLock<Counters>,
    told: Notify,
}

impl Watch {
    /// The job's counters, at most about a second old.
    pub fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line per host, the busiest first, `most` at most.
    pub fn hosts(&self, most: usize) -> Vec<String> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).iter().take(most).cloned().collect()
    }

    /// The counters with which an earlier run of the job ended, once they are known; never, if there was none.
    pub async fn resumed(&self) -> Counters {
        loop {
            let told = self.told.notified();
            if let Some(counters) = self.resumed.get() {
                return *counters;
            }
            told.await;
        }
    }

    pub(super) fn set_resumed(&self, counters: Counters) {
        // Said once per run; a second time could only say the same.
        let _ = self.resumed.set(counters);
        self.told.notify_waiters();
    }

    pub(super) fn set_counters(&self, counters: Counters) {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    }

    pub(super) fn set_hosts(&self, hosts: Vec<String>) {
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }
}

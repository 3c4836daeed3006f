//! What a running crawl counts for its watchers: relaxed atomics, one writer side, any reader. Not the truth about the
//! job, which is in the state machine's counters and in the records.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Counts since the start of this process.
#[derive(Debug, Default)]
pub struct Stats {
    /// Pages recorded (responses that are not redirects).
    pub pages: AtomicU64,
    /// Of these with a 2xx status.
    pub ok: AtomicU64,
    /// URLs given up.
    pub failed: AtomicU64,
    /// Attempts that will be repeated.
    pub retries: AtomicU64,
    /// Bodies as received.
    pub bytes_wire: AtomicU64,
    /// Bodies decoded.
    pub bytes_decoded: AtomicU64,
    /// Requests running now.
    pub in_flight: AtomicU64,
    /// Hosts held now.
    pub hosts: AtomicU64,
    /// Failures by their short word; the words are a fixed vocabulary, so the map is bounded.
    errors: Mutex<BTreeMap<String, u64>>,
}

impl Stats {
    /// Counts a failure of a kind.
    pub fn error(&self, kind: &str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match errors.get_mut(kind) {
            Some(count) => *count += 1,
            None => {
                errors.insert(kind.to_owned(), 1);
            }
        }
    }

    /// Failures by kind, so far.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Relaxed);
    }

    /// Reads a counter.
    pub fn get(counter: &AtomicU64) -> u64 {
        counter.load(Relaxed)
    }
}

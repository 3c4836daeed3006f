//! A node-local cache of fingerprints that the frontier is known to have accepted, so that the great majority of links,
//! which are known, never travel to it. Exact: it stores whole fingerprints and forgets by overwriting, so it can
//! only answer "not known here", never wrongly "known". Not the authority; that is the seen set in the state machine.

use std::sync::{Mutex, PoisonError};

/// Entries per set: a fingerprint can stand in any place of its set, and the oldest one there gives way.
const WAYS: usize = 4;
/// Independently locked parts.
const SHARDS: usize = 64;

/// A fixed-size, set-associative table of fingerprints.
#[derive(Debug)]
pub(super) struct KnownCache {
    shards: Vec<Mutex<Box<[[u128; WAYS]]>>>,
    sets_per_shard: usize,
}

impl KnownCache {
    /// A cache of at most `bytes` bytes (rounded down to a power of two, at least 64 KiB).
    pub(super) fn with_bytes(bytes: usize) -> Self {
        let sets = (bytes.max(64 << 10) / (16 * WAYS)).next_power_of_two();
        let sets = if sets * 16 * WAYS > bytes.max(64 << 10) { sets / 2 } else { sets };
        let sets_per_shard = (sets / SHARDS).max(1);
        let shards =
            (0..SHARDS).map(|_| Mutex::new(vec![[0; WAYS]; sets_per_shard].into_boxed_slice())).collect();
        Self { shards, sets_per_shard }
    }

    fn place(&self, fingerprint: u128) -> (usize, usize) {
        let shard = (fingerprint as usize) % SHARDS;
        let set = ((fingerprint >> 64) as usize) % self.sets_per_shard;
        (shard, set)
    }

    /// Whether the fingerprint is surely known to the frontier.
    pub(super) fn contains(&self, fingerprint: u128) -> bool {
        let (shard, set) = self.place(fingerprint);
        // A thread that panicked while holding the lock can have left nothing half-written that matters here.
        let sets = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        fingerprint != 0 && sets[set].contains(&fingerprint)
    }

    /// Remembers a fingerprint that the frontier has accepted or called a duplicate.
    pub(super) fn insert(&self, fingerprint: u128) {
        let (shard, set) = self.place(fingerprint);
        let mut sets = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        let ways = &mut sets[set];
        if !ways.contains(&fingerprint) {
            ways.rotate_right(1);
            ways[0] = fingerprint;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_exactly_and_forgets_the_oldest() {
        let cache = KnownCache::with_bytes(64 << 10);
        assert!(!cache.contains(7));
        cache.insert(7);
        assert!(cache.contains(7));
        assert!(!cache.contains(7 + (1 << 127)));
        // Same shard, same set: the low and the high word agree modulo the table's size.
        let sets = (cache.sets_per_shard as u128) << 64;
        for n in 1..=WAYS as u128 {
            cache.insert(7 + n * sets);
        }
        assert!(!cache.contains(7));
        assert!(cache.contains(7 + sets));
    }

    #[test]
    fn zero_is_never_known() {
        let cache = KnownCache::with_bytes(0);
        assert!(!cache.contains(0));
    }
}

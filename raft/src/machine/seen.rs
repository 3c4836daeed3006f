//! A Bloom filter in front of the exact set of fingerprints ([`Family::Seen`]): it answers "surely new" without a read,
//! and never decides that something is known. Derived and in memory only; [`SeenFilter::rebuild`] fills it again in
//! small steps after a start, and until that is through it says "maybe" to everything.

use std::{
    ops::ControlFlow,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use dolomedes_storage::{
    Result,
    engine::{Family, Reader},
};
use fastbloom::AtomicBloomFilter;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::tables::Tables;
use crate::command::QueueId;

/// Fingerprints that the first part of the filter is made for; each further part is made for four times as many.
const FIRST_CAPACITY: u64 = 1 << 20;

/// Parts of the filter: 1, 4, 16, 64 Mi fingerprints in about 102 MiB. Beyond these the last one gets fuller and saves
/// fewer reads.
const PARTS: usize = 4;

/// The share of false "maybe" of each part at its capacity.
const FALSE_POSITIVES: f64 = 0.01;

/// Fixed, so that a measurement can be repeated; what is stored never depends on it.
const SEED: u128 = 0x646f_6c6f_6d65_6465_7320_7365_656e_0001;

/// Answers whether a fingerprint may be known. Shared between the machine, which adds what it accepts, and whoever runs
/// [`rebuild`](Self::rebuild).
pub struct SeenFilter {
    tables: Tables,
    parts: [OnceLock<Part>; PARTS],
    /// Whether every row of the exact set is in the filter.
    complete: AtomicBool,
}

struct Part {
    bits: AtomicBloomFilter,
    held: AtomicU64,
}

impl SeenFilter {
    pub(super) fn new(tables: Tables) -> Self {
        Self { tables, parts: Default::default(), complete: AtomicBool::new(false) }
    }

    /// Whether the filter knows all rows. Until then it answers "maybe".
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Adds up to `rows` rows of the exact set, behind `cursor` (an empty one: from the start). Returns the next cursor;
    /// `None` when the filter is complete. `reader` may be the live engine: what the machine writes meanwhile it adds
    /// itself. Meant for a background thread that starts after the machine was made; without it everything is correct,
    /// only slower.
    pub fn rebuild(&self, reader: &dyn Reader, cursor: &[u8], rows: usize) -> Result<Option<Vec<u8>>> {
        let (first, to) = self.tables.all_seen();
        let from = if cursor.is_empty() { &first[..] } else { cursor };
        let (mut left, mut last, mut damage) = (rows.max(1), None, None);
        reader.scan(Family::Seen, from, &to, &mut |key, _| {
            match Tables::read_seen(key) {
                Ok((queue, fingerprint)) => self.insert(queue, fingerprint),
                Err(error) => {
                    damage = Some(error);
                    return ControlFlow::Break(());
                }
            }
            left -= 1;
            if left > 0 {
                return ControlFlow::Continue(());
            }
            last = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        if let Some(error) = damage {
            return Err(error.into());
        }
        Ok(match last {
            Some(mut key) => {
                key.push(0);
                Some(key)
            }
            None => {
                self.complete.store(true, Ordering::Release);
                None
            }
        })
    }

    pub(super) fn may_contain(&self, queue: QueueId, fingerprint: u128) -> bool {
        let hash = hash(queue, fingerprint);
        !self.is_complete()
            || self.parts.iter().map_while(OnceLock::get).any(|part| part.bits.contains_hash(hash))
    }

    pub(super) fn insert(&self, queue: QueueId, fingerprint: u128) {
        let hash = hash(queue, fingerprint);
        let mut capacity = FIRST_CAPACITY;
        for (at, part) in self.parts.iter().enumerate() {
            let part = part.get_or_init(|| Part::new(capacity));
            if at + 1 == PARTS || part.held.load(Ordering::Relaxed) < capacity {
                if !part.bits.insert_hash(hash) {
                    part.held.fetch_add(1, Ordering::Relaxed);
                }
                return;
            }
            capacity = capacity.saturating_mul(4);
        }
    }
}

impl Part {
    fn new(capacity: u64) -> Self {
        let items = usize::try_from(capacity).unwrap_or(usize::MAX);
        let bits = AtomicBloomFilter::with_false_pos(FALSE_POSITIVES).seed(&SEED).expected_items(items);
        Self { bits, held: AtomicU64::new(0) }
    }
}

fn hash(queue: QueueId, fingerprint: u128) -> u64 {
    xxh3_64_with_seed(&fingerprint.to_le_bytes(), queue)
}

//! Which payloads were archived already, so that the same one again becomes a revisit record. Bounded: two halves; when the
//! newer is full the older is forgotten. In memory only: after a restart payloads are simply stored again.

use std::collections::HashMap;

/// SHA-1 of a payload.
pub(super) type Digest = [u8; 20];

/// The record that holds a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) record_id: [u8; 16],
    pub(super) url: Box<str>,
    pub(super) fetched_at_ms: u64,
}

pub(super) struct SeenPayloads {
    newer: HashMap<Digest, Original>,
    older: HashMap<Digest, Original>,
    bytes: usize,
    half: usize,
}

/// What an entry costs beside its URL: its struct, its digest and the free places of the table.
const ENTRY: usize = 112;

impl SeenPayloads {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { newer: HashMap::new(), older: HashMap::new(), bytes: 0, half: most_bytes / 2 }
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<&Original> {
        self.newer.get(digest).or_else(|| self.older.get(digest))
    }

    pub(super) fn insert(&mut self, digest: Digest, original: Original) {
        let size = ENTRY + original.url.len();
        if self.bytes + size > self.half {
            self.older = std::mem::take(&mut self.newer);
            self.bytes = 0;
        }
        if size <= self.half {
            self.bytes += size;
            self.newer.insert(digest, original);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_half_and_stays_in_bounds() {
        let mut seen = SeenPayloads::new(20 * (ENTRY + 1));
        for number in 0..100u8 {
            let original = Original { record_id: [number; 16], url: "u".into(), fetched_at_ms: 0 };
            seen.insert([number; 20], original);
            assert!(seen.newer.len() <= 10 && seen.older.len() <= 10);
            assert_eq!(seen.get(&[number; 20]).unwrap().record_id, [number; 16]);
        }
        assert!(seen.get(&[0; 20]).is_none());
        assert!(seen.get(&[90; 20]).is_some());
    }
}

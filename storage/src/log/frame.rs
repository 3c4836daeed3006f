//! Keys and frames of the log's rows. Not their meaning: payloads are opaque here.
//!
//! Frame: crc32 over key, format byte and payload (4 bytes, little endian) · format (1 byte) · payload. The key is part
//! of the checksum, so that a sound row in a wrong place is noticed as well.

use bytes::Bytes;

use crate::{
    engine::Family,
    error::{Error, Result},
};

/// The first byte of all rows that the log keeps in [`Family::Meta`]; nobody else's rows there begin with it.
pub const META_TAG: u8 = b'L';

const FORMAT: u8 = 1;
const HEAD: usize = 5;

/// The small facts that are kept once per group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Vote = 1,
    Purged = 2,
    Committed = 3,
}

impl Fact {
    pub(super) fn key(self, group: u32) -> [u8; 6] {
        let [a, b, c, d] = group.to_be_bytes();
        [META_TAG, a, b, c, d, self as u8]
    }
}

/// The key of an entry: group, then index, big endian.
pub(super) fn entry_key(group: u32, index: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&group.to_be_bytes());
    key[4..].copy_from_slice(&index.to_be_bytes());
    key
}

/// The index in an entry's key.
pub(super) fn entry_index(key: &[u8]) -> Result<u64> {
    match key.get(4..).map(<[u8; 8]>::try_from) {
        Some(Ok(index)) => Ok(u64::from_be_bytes(index)),
        _ => Err(damaged(Family::Log, key, "the key of an entry is not 12 bytes long")),
    }
}

/// The bytes that a frame adds to its payload and key, for accounts of space.
pub(super) const OVERHEAD: usize = HEAD + 12;

/// Frames `payload` for the row `key`.
pub(super) fn seal(key: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend_from_slice(&checksum(key, FORMAT, payload).to_le_bytes());
    frame.push(FORMAT);
    frame.extend_from_slice(payload);
    frame
}

/// Checks the frame of the row `key` and returns its payload.
pub(super) fn open(family: Family, key: &[u8], frame: Vec<u8>) -> Result<Bytes> {
    let Some((head, payload)) = frame.split_at_checked(HEAD) else {
        return Err(damaged(family, key, "the row is shorter than its frame"));
    };
    let stored = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let format = head[4];
    if stored != checksum(key, format, payload) {
        return Err(damaged(family, key, "the checksum does not match"));
    }
    if format != FORMAT {
        return Err(Error::UnknownFormat {
            place: place(family, key),
            found: format.into(),
            known: FORMAT.into(),
        });
    }
    Ok(Bytes::from(frame).slice(HEAD..))
}

fn checksum(key: &[u8], format: u8, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(&[format]);
    hasher.update(payload);
    hasher.finalize()
}

fn place(family: Family, key: &[u8]) -> String {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("family `{}`, key {hex}", family.name())
}

fn damaged(family: Family, key: &[u8], detail: &str) -> Error {
    Error::corrupt(place(family, key), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_frame_is_noticed() {
        let key = entry_key(7, 42);
        let frame = seal(&key, b"payload");
        assert_eq!(open(Family::Log, &key, frame.clone()).unwrap(), "payload");
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(open(Family::Log, &key, bad), Err(Error::Corrupt { .. })), "bit {bit}");
        }
        for cut in 0..frame.len() {
            assert!(open(Family::Log, &key, frame[..cut].to_vec()).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_frame_in_a_wrong_place_is_noticed() {
        let frame = seal(&entry_key(7, 42), b"payload");
        assert!(matches!(open(Family::Log, &entry_key(7, 43), frame), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn a_newer_format_is_named() {
        let key = entry_key(1, 1);
        let mut frame = checksum(&key, 9, b"x").to_le_bytes().to_vec();
        frame.extend_from_slice(b"\x09x");
        let error = open(Family::Log, &key, frame).unwrap_err();
        assert!(matches!(error, Error::UnknownFormat { found: 9, known: 1, .. }), "{error}");
    }
}

//! The bytes of a spool segment: its header and its records. Pure; files are opened and written in the parent module.
//!
//! Header: magic, format (u32), salt (u32), sequence number of the first record (u64), CRC-32 of all that. Record: length
//! of the body (u32), CRC-32 (u32), sequence number (u64), the sequence number up to which everything was on stable
//! storage when the record was appended (u64), body. Integers are little endian. The CRC covers everything else of the
//! record and starts from the salt, so that bytes of a web page cannot pose as a record.

use std::path::Path;

use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"DLMSPOOL";
const FORMAT: u32 = 1;

/// Bytes of a segment's header.
pub(super) const HEADER: usize = 28;
/// Bytes in front of a record's body.
pub(super) const RECORD_HEADER: usize = 24;
/// The longest body. Longer claims are damage.
pub(super) const MAX_BODY: usize = 512 << 20;

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Sequence number of its first record.
    pub(super) first: u64,
    /// Where the CRC of its records starts from.
    pub(super) salt: u32,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of the segment at `path`.
    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        let damaged = |detail: &str| Error::corrupt(format!("spool segment `{}`", path.display()), detail);
        if bytes.len() < HEADER || bytes[..8] != MAGIC {
            return Err(damaged("it does not begin with a segment header"));
        }
        let format = u32_at(bytes, 8);
        if format > FORMAT {
            return Err(Error::UnknownFormat {
                place: format!("spool segment `{}`", path.display()),
                found: format,
                known: FORMAT,
            });
        }
        if crc32fast::hash(&bytes[..24]) != u32_at(bytes, 24) {
            return Err(damaged("the checksum of its header is wrong"));
        }
        Ok(Self { salt: u32_at(bytes, 12), first: u64_at(bytes, 16) })
    }
}

/// Appends a record to `out`.
pub(super) fn push_record(out: &mut Vec<u8>, salt: u32, seq: u64, synced: u64, body: &[u8]) {
    let start = out.len();
    out.reserve(RECORD_HEADER + body.len());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&synced.to_le_bytes());
    out.extend_from_slice(body);
    let crc = checksum(salt, &out[start..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// The length, header included, of the whole and undamaged record `seq` at the start of `bytes`; the error says what is
/// wrong with it.
pub(super) fn parse_record(bytes: &[u8], salt: u32, seq: u64) -> Result<usize, &'static str> {
    let size = record_size(bytes)?;
    if u64_at(bytes, 8) != seq {
        return Err("a record has the wrong sequence number");
    }
    let record = bytes.get(..size).ok_or("a record ends early")?;
    if checksum(salt, record) != u32_at(record, 4) {
        return Err("the checksum of a record is wrong");
    }
    Ok(size)
}

/// How long the record at the start of `bytes` claims to be, header included.
pub(super) fn record_size(bytes: &[u8]) -> Result<usize, &'static str> {
    if bytes.len() < RECORD_HEADER {
        return Err("a record ends early");
    }
    let body = u32_at(bytes, 0) as usize;
    if body > MAX_BODY { Err("a record claims to be too long") } else { Ok(RECORD_HEADER + body) }
}

/// Whether some record behind a bad record `seq` shows that the bad one had been on stable storage, so that a torn last
/// write cannot explain it. `bytes` begin at the bad record.
pub(super) fn proves_damage(bytes: &[u8], salt: u32, seq: u64) -> bool {
    let furthest = seq + (bytes.len() / RECORD_HEADER) as u64;
    (1..bytes.len().saturating_sub(RECORD_HEADER - 1)).any(|at| {
        let candidate = &bytes[at..];
        let found = u64_at(candidate, 8);
        // Numbers first: they rule out nearly every place before a checksum is made.
        found > seq
            && found <= furthest
            && u64_at(candidate, 16) >= seq
            && u64_at(candidate, 16) < found
            && parse_record(candidate, salt, found).is_ok()
    })
}

fn checksum(salt: u32, record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(&record[..4]);
    hasher.update(&record[8..]);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

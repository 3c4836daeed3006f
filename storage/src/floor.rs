//! The floor: a small file beside the engine that says how far durable state had come. A store that is found below its
//! floor has lost state that others were told is safe (a deleted or restored write-ahead log opens without any error),
//! and its node must not vote, lead or answer. Not here: when to raise it; the caller weighs a sync against the window.
//!
//! Two slots are written in turn, so that a torn write leaves the other one: the floor never stands higher than what
//! was given, and at worst one record lower.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{
    codec::{DecodeError, Decoder, Encoder},
    error::{Error, Result},
    file,
};

const FORMAT: u32 = 1;
/// Room of a slot. The two lie in different blocks of any common file system.
const SLOT_BYTES: usize = 8192;
/// Checksum and length before a slot's body.
const HEAD: usize = 8;
/// How many groups a floor can hold: 25 bytes each at most, in one slot.
pub const MAX_GROUPS: usize = 256;

/// How far one group's durable state has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The term of the vote.
    pub term: u64,
    /// One more than the index of the last entry, so 0 for a log that never held one. Purged entries count as held.
    pub log_end: u64,
}

/// The floor file of a node.
#[derive(Debug)]
pub struct Floor {
    file: File,
    path: PathBuf,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Body {
    /// Counts the records; the greater one of two sound slots is the newer.
    sequence: u64,
    node_id: u64,
    epoch: u64,
    groups: BTreeMap<u32, Position>,
}

impl Floor {
    /// Creates the file for a new node, before its identity is written: from then on a missing floor is damage.
    pub fn create(path: impl Into<PathBuf>, node_id: u64) -> Result<()> {
        let body = Body { sequence: 0, node_id, epoch: 0, groups: BTreeMap::new() };
        let mut bytes = body.encode();
        bytes.resize(2 * SLOT_BYTES, 0);
        file::replace(&path.into(), &bytes)
    }

    /// Opens the floor of `node_id` and begins its next boot epoch, durably.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file is missing, no slot is sound, or it is another node's.
    pub fn open(path: impl Into<PathBuf>, node_id: u64) -> Result<Self> {
        let path = path.into();
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                damaged(&path, "it is missing beside the node's data")
            } else {
                Error::io("open", &path, error)
            }
        })?;
        let mut bytes = Vec::with_capacity(2 * SLOT_BYTES);
        (&file)
            .take(2 * SLOT_BYTES as u64)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::io("read", &path, error))?;
        let mut newest: Option<Body> = None;
        for slot in bytes.chunks(SLOT_BYTES) {
            if let Some(body) = Body::decode(&path, slot)?
                && newest.as_ref().is_none_or(|other| other.sequence < body.sequence)
            {
                newest = Some(body);
            }
        }
        let body = newest.ok_or_else(|| damaged(&path, "neither of its slots is sound"))?;
        if body.node_id != node_id {
            return Err(damaged(&path, &format!("it is of node {}, not of node {node_id}", body.node_id)));
        }
        let mut floor = Self { file, path, body };
        floor.body.epoch += 1;
        floor.write()?;
        Ok(floor)
    }

    /// How often the node has been started, this time included.
    pub fn epoch(&self) -> u64 {
        self.body.epoch
    }

    /// What was recorded for `group`.
    pub fn get(&self, group: u32) -> Option<Position> {
        self.body.groups.get(&group).copied()
    }

    /// Compares what the engine holds of `group` with what was recorded.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if durable state was lost.
    pub fn check(&self, group: u32, store: Position) -> Result<()> {
        let floor = self.get(group).unwrap_or_default();
        if floor.term <= store.term && floor.log_end <= store.log_end {
            return Ok(());
        }
        Err(Error::corrupt(
            format!("the store of group {group}"),
            format!(
                "durable state was lost: it ends at term {}, log end {}, where term {}, log end {} had been synced",
                store.term, store.log_end, floor.term, floor.log_end
            ),
        ))
    }

    /// Records positions that the engine has synced. Durable on return. Before a log is truncated below its floor the
    /// lower position has to be recorded. After an I/O error the process has to end, as with an engine.
    pub fn record(&mut self, positions: impl IntoIterator<Item = (u32, Position)>) -> Result<()> {
        let mut groups = self.body.groups.clone();
        groups.extend(positions);
        if groups.len() > MAX_GROUPS {
            return Err(Error::Engine(format!("the floor holds at most {MAX_GROUPS} groups")));
        }
        self.body.groups = groups;
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        self.body.sequence += 1;
        let offset = (self.body.sequence % 2) * SLOT_BYTES as u64;
        let bytes = self.body.encode();
        self.file
            .write_all_at(&bytes, offset)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| Error::io("write", &self.path, error))
    }
}

impl Body {
    fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::with_capacity(SLOT_BYTES);
        encoder.raw(&[0; HEAD]).uint(FORMAT.into()).uint(self.sequence).uint(self.node_id).uint(self.epoch);
        encoder.uint(self.groups.len() as u64);
        for (group, position) in &self.groups {
            encoder.uint(u64::from(*group)).uint(position.term).uint(position.log_end);
        }
        let mut bytes = encoder.finish();
        let length = (bytes.len() - HEAD) as u32;
        bytes[4..HEAD].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` for a slot that was never written, or not to its end.
    fn decode(path: &Path, slot: &[u8]) -> Result<Option<Self>> {
        let Some(&[a, b, c, d, e, f, g, h]) = slot.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([e, f, g, h]) as usize;
        let Some(bytes) = slot.get(4..HEAD.saturating_add(length)) else {
            return Ok(None);
        };
        if length == 0 || crc32fast::hash(bytes) != u32::from_le_bytes([a, b, c, d]) {
            return Ok(None);
        }
        let mut decoder = Decoder::new("FLOOR", &bytes[4..]);
        let found = decoder.uint32()?;
        if found > FORMAT {
            return Err(Error::UnknownFormat {
                place: format!("`{}`", path.display()),
                found,
                known: FORMAT,
            });
        }
        Ok(Some(Self::decode_fields(decoder)?))
    }

    fn decode_fields(mut decoder: Decoder<'_>) -> Result<Self, DecodeError> {
        let body = Self {
            sequence: decoder.uint()?,
            node_id: decoder.uint()?,
            epoch: decoder.uint()?,
            groups: decoder
                .list(|it| Ok((it.uint32()?, Position { term: it.uint()?, log_end: it.uint()? })))?
                .into_iter()
                .collect(),
        };
        decoder.finish()?;
        Ok(body)
    }
}

fn damaged(path: &Path, detail: &str) -> Error {
    Error::corrupt(format!("`{}`", path.display()), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_floor_fits_its_slot() {
        let groups = (0..MAX_GROUPS as u32)
            .map(|group| (u32::MAX - group, Position { term: u64::MAX, log_end: u64::MAX }))
            .collect();
        let body = Body { sequence: u64::MAX, node_id: u64::MAX, epoch: u64::MAX, groups };
        let bytes = body.encode();
        assert!(bytes.len() <= SLOT_BYTES, "{}", bytes.len());
        assert_eq!(Body::decode(Path::new("x"), &bytes).unwrap(), Some(body));
    }
}

//! The replicated log of a group with one voter: commands are gathered into entries, entries are written and synced in
//! order, and only then applied by the real machine. A model of the glue around openraft (`dolomedes_raft::group`), of
//! which only the promises to the machine are kept: order, durability before applying, and applying again after a restart.

use std::{collections::VecDeque, ops::ControlFlow};

use bytes::Bytes;
use dolomedes_raft::{
    codec::{decode_entry, encode_entry},
    command::{Command, Entry, Reply},
    machine::{Machine, Overlay, read::State},
};
use dolomedes_storage::engine::{Batch, Family, Reader};

use super::{Stop, broken, disk::Disk};

const GROUP: u32 = 1;
const GENERATION: u64 = 0;
/// The row that says up to where entries were applied.
const POSITION: &[u8] = b"P";
/// Entries that are written and not yet synced at most.
const IN_FLIGHT: usize = 3;
/// Rows that the filter of known fingerprints is filled with in one step.
const FILTER_ROWS: usize = 4_096;

/// An entry that was applied.
pub(super) struct Applied<W> {
    pub(super) index: u64,
    pub(super) entry: Entry,
    pub(super) replies: Vec<Reply>,
    /// Who waits for the replies; nobody after a restart.
    pub(super) waiting: Vec<W>,
}

/// See the module. `W` is who waits for a reply.
pub(super) struct Log<W> {
    machine: Machine,
    applied: u64,
    last: u64,
    gathering: Vec<(Command, W)>,
    in_flight: VecDeque<Vec<W>>,
}

impl<W> Log<W> {
    /// Opens what a disk holds. Entries behind the applied position are to be applied with [`Log::replay`].
    pub(super) fn open(disk: &Disk) -> Result<Self, Stop> {
        let applied = match disk.engine.get(Family::Meta, POSITION)? {
            Some(bytes) => number(&bytes)?,
            None => 0,
        };
        let mut last = None;
        disk.engine.scan_back(Family::Log, &[], &[0xff; 9], &mut |row, _| {
            last = Some(row.to_vec());
            ControlFlow::Break(())
        })?;
        let last = last.map_or(Ok(0), |row| number(&row))?;
        if last < applied {
            return Err(broken(
                "1: acknowledged",
                format!("applied up to {applied}, but the log ends at {last}"),
            ));
        }
        let machine = Machine::new(GROUP, GENERATION);
        let mut cursor = Vec::new();
        while let Some(next) = machine.seen_filter().rebuild(&disk.engine, &cursor, FILTER_ROWS)? {
            cursor = next;
        }
        Ok(Self { machine, applied, last, gathering: Vec::new(), in_flight: VecDeque::new() })
    }

    /// Applies the next entry that an earlier run had not, if there is one.
    pub(super) fn replay(&mut self, disk: &mut Disk) -> Result<Option<Applied<W>>, Stop> {
        if self.applied == self.last {
            return Ok(None);
        }
        self.apply(disk, Vec::new()).map(Some)
    }

    /// Takes a command in.
    pub(super) fn submit(&mut self, command: Command, waiting: W) {
        self.gathering.push((command, waiting));
    }

    /// Writes the gathered commands as one entry, if there are any and there is room for it.
    pub(super) fn propose(&mut self, disk: &mut Disk, stamp: u64) -> Result<bool, Stop> {
        if self.gathering.is_empty() || self.in_flight.len() >= IN_FLIGHT {
            return Ok(false);
        }
        let (commands, waiting) = std::mem::take(&mut self.gathering).into_iter().unzip();
        let mut batch = Batch::new();
        let index = self.last + 1;
        batch.put(Family::Log, index.to_be_bytes(), encode_entry(&Entry { stamp, commands }));
        disk.write(batch)?;
        self.last = index;
        self.in_flight.push_back(waiting);
        Ok(true)
    }

    /// Syncs the log and applies the oldest entry in flight.
    pub(super) fn flush(&mut self, disk: &mut Disk) -> Result<Option<Applied<W>>, Stop> {
        disk.sync()?;
        match self.in_flight.pop_front() {
            Some(waiting) => self.apply(disk, waiting).map(Some),
            None => Ok(None),
        }
    }

    fn apply(&mut self, disk: &mut Disk, waiting: Vec<W>) -> Result<Applied<W>, Stop> {
        let index = self.applied + 1;
        let Some(bytes) = disk.engine.get(Family::Log, &index.to_be_bytes())? else {
            return Err(broken("1: acknowledged", format!("entry {index} is not in the log")));
        };
        let entry = decode_entry(Bytes::from(bytes)).map_err(dolomedes_storage::Error::from)?;
        let mut overlay = Overlay::new(&disk.engine);
        let replies = self.machine.apply(&mut overlay, index, &entry)?;
        let mut batch = overlay.into_batch();
        batch.put(Family::Meta, POSITION, index.to_be_bytes());
        disk.write(batch)?;
        self.applied = index;
        Ok(Applied { index, entry, replies, waiting })
    }
}

/// The machine's state on a disk.
pub(super) fn state(disk: &Disk) -> State<'_> {
    State::new(&disk.engine, GROUP, GENERATION)
}

fn number(bytes: &[u8]) -> Result<u64, Stop> {
    let bytes = bytes.try_into().map_err(|_| broken("11: damage", "a row is not a number".to_owned()))?;
    Ok(u64::from_be_bytes(bytes))
}

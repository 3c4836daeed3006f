//! The simulated disk of one node: the engine in memory, the spool, and the sink's file with its mark. Each durable step goes
//! through the power supply, which may end between any two. What no sync covered is lost on a cut, as any suffix.
//!
//! Spool and sink are models of `dolomedes_storage::spool` and `dolomedes::sink`: files of theirs cannot be cut in memory.

use bytes::Bytes;
use dolomedes_storage::{
    engine::{Batch, Durability, Engine},
    memory::MemoryEngine,
};
use fastrand::Rng;

use super::Stop;

/// A record in the sink's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    /// Its number in the spool.
    pub(super) sequence: u64,
    /// The spool record.
    pub(super) body: Bytes,
}

/// What a power cut took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Writes of the engine.
    pub writes: u64,
    /// Records of the spool.
    pub spooled: u64,
    /// Records of the sink.
    pub delivered: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) engine: MemoryEngine,
    spool: Vec<Bytes>,
    spool_synced: usize,
    sink: Vec<Delivered>,
    sink_synced: usize,
    /// Records up to this one were delivered or refused; moved together with the sync of the sink.
    mark: u64,
    /// Durable steps until the power is cut.
    pub(super) power: Option<u64>,
}

impl Disk {
    fn step(&mut self) -> Result<(), Stop> {
        match &mut self.power {
            Some(0) => Err(Stop::Cut),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Writes rows, unsynced.
    pub(super) fn write(&mut self, batch: Batch) -> Result<(), Stop> {
        self.step()?;
        Ok(self.engine.write(batch, Durability::Buffered)?)
    }

    /// Syncs the engine.
    pub(super) fn sync(&mut self) -> Result<(), Stop> {
        self.step()?;
        Ok(self.engine.sync()?)
    }

    /// Appends a record to the spool, unsynced, and returns its number.
    pub(super) fn append(&mut self, record: Vec<u8>) -> Result<u64, Stop> {
        self.step()?;
        self.spool.push(record.into());
        Ok(self.last_sequence())
    }

    /// Syncs the spool.
    pub(super) fn sync_spool(&mut self) -> Result<(), Stop> {
        self.step()?;
        self.spool_synced = self.spool.len();
        Ok(())
    }

    /// The number of the spool's last record; 0: there is none.
    pub(super) fn last_sequence(&self) -> u64 {
        self.spool.len() as u64
    }

    /// A record of the spool.
    pub(super) fn spooled(&self, sequence: u64) -> Option<Bytes> {
        self.spool.get(usize::try_from(sequence.checked_sub(1)?).ok()?).cloned()
    }

    /// Writes a record into the sink, unsynced.
    pub(super) fn deliver(&mut self, sequence: u64, body: Bytes) -> Result<(), Stop> {
        self.step()?;
        self.sink.push(Delivered { sequence, body });
        Ok(())
    }

    /// Syncs the sink, then moves its mark.
    pub(super) fn sync_sink(&mut self, upto: u64) -> Result<(), Stop> {
        self.step()?;
        // A sync without its mark is worth nothing: the file is cut back to the mark.
        self.step()?;
        (self.sink_synced, self.mark) = (self.sink.len(), upto);
        Ok(())
    }

    /// Every record up to this one needs no delivery any more.
    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    /// The records that are in the sink for good.
    pub(super) fn delivered(&self) -> &[Delivered] {
        &self.sink[..self.sink_synced]
    }

    /// Cuts the power: each file keeps what was synced and some of what was written behind it.
    pub(super) fn crash(&mut self, rng: &mut Rng) -> Lost {
        let mut writes = 0;
        self.engine = self.engine.crash(|unsynced| {
            let kept = rng.usize(..=unsynced);
            writes = (unsynced - kept) as u64;
            kept
        });
        let kept = rng.usize(self.spool_synced..=self.spool.len());
        let lost = Lost {
            writes,
            spooled: (self.spool.len() - kept) as u64,
            delivered: (self.sink.len() - self.sink_synced) as u64,
        };
        self.spool.truncate(kept);
        self.spool_synced = kept;
        self.sink.truncate(self.sink_synced);
        lost
    }
}

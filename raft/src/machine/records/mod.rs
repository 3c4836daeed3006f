//! Values of rows: the records and their bytes. Each starts with a version byte, and its fields are frozen with it.

mod cluster;
mod coordination;

use bytes::Bytes;
use dolomedes_storage::{
    Error, Result,
    codec::{Decoder, Encoder},
};

use crate::{
    codec::{decode_config, decode_state, encode_config, encode_state},
    command::{Consumer, Counters, Fence, LogTime, MessageId, QueueConfig, QueueId, QueueState},
};

pub(super) use self::{
    cluster::{Cluster, Node, RemovedNode, Token, VotersRow},
    coordination::{
        Checkpoint, Client, Facts, Holder, Item, Lock, NumberRow, PastCheckpoint, RegistryKey, Session,
        decode_event, encode_event,
    },
};

/// The first version of every kind of record, and for most the only one.
const VERSION: u8 = 1;

/// Of records of queues and keys: with counts of what was thrown away, and when a lease was last used. Of messages that
/// ended: with the worker that said so.
const VERSION_2: u8 = 2;

/// A value with bytes of its own.
pub(super) trait Record: Sized {
    fn encode(&self) -> Vec<u8>;
    fn decode(bytes: &[u8]) -> Result<Self>;
}

/// Starts reading a record of the kind `what`.
fn open<'a>(what: &'static str, bytes: &'a [u8]) -> Result<Decoder<'a>> {
    let mut from = Decoder::new(what, bytes);
    match from.u8()? {
        VERSION => Ok(from),
        found => Err(Error::UnknownFormat { place: what.into(), found: found.into(), known: VERSION.into() }),
    }
}

/// Starts reading a record of the kind `what`, which has two versions.
fn open_either<'a>(what: &'static str, bytes: &'a [u8]) -> Result<(u8, Decoder<'a>)> {
    let mut from = Decoder::new(what, bytes);
    match from.u8()? {
        version @ (VERSION | VERSION_2) => Ok((version, from)),
        found => {
            Err(Error::UnknownFormat { place: what.into(), found: found.into(), known: VERSION_2.into() })
        }
    }
}

/// Facts of the whole group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// Log time of the newest entry.
    pub(super) now: LogTime,
    /// How many queues there are.
    pub(super) queues: u64,
    /// The newest queue's id.
    pub(super) last_queue: u64,
    /// The highest version that a removed checkpoint had. New ones start above it, so that no version comes twice.
    pub(super) checkpoint_floor: u64,
}

impl Record for Clock {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.uint(self.now).uint(self.queues).uint(self.last_queue).uint(self.checkpoint_floor);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("clock record", bytes)?;
        let clock = Self {
            now: from.uint()?,
            queues: from.uint()?,
            last_queue: from.uint()?,
            checkpoint_floor: from.uint()?,
        };
        from.finish()?;
        Ok(clock)
    }
}

/// The queue that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedQueue(pub(super) QueueId);

impl Record for NamedQueue {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.uint(self.0);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("name of a queue", bytes)?;
        let queue = from.uint()?;
        from.finish()?;
        Ok(Self(queue))
    }
}

/// Rows of a table sorted by time: how many there are, and a time before which there are none. The bound lets scans step
/// over what was removed, which the engine may not have cleaned up yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) count: u64,
    pub(super) from: LogTime,
}

impl Timeline {
    pub(super) fn added(&mut self, at: LogTime) {
        self.from = if self.count == 0 { at } else { self.from.min(at) };
        self.count = self.count.saturating_add(1);
    }

    pub(super) fn removed(&mut self) -> Result<()> {
        take(&mut self.count, 1, "rows by time")
    }

    fn encode(self, to: &mut Encoder) {
        to.uint(self.count).uint(self.from);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self { count: from.uint()?, from: from.uint()? })
    }
}

/// Takes `by` off a count. A count that would fall below zero shows damaged rows.
pub(super) fn take(count: &mut u64, by: u64, what: &'static str) -> Result<()> {
    *count = count.checked_sub(by).ok_or_else(|| Error::corrupt(what, "there are fewer than are removed"))?;
    Ok(())
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) config: QueueConfig,
    pub(super) state: QueueState,
    pub(super) counters: Counters,
    pub(super) schedule: Timeline,
    pub(super) delayed: Timeline,
    /// Leases by their end.
    pub(super) expiry: Timeline,
    /// A time before which no message was worked off that is kept; `None`: none is kept.
    pub(super) done_from: Option<LogTime>,
    /// How many keys are at their budget.
    pub(super) exhausted: u64,
    /// After a change of the budgets of keys: the last exhausted key that was looked at again (empty: none was).
    pub(super) review: Option<Bytes>,
}

impl Queue {
    pub(super) fn new(name: String, config: QueueConfig) -> Self {
        Self {
            name,
            config,
            state: QueueState::Running,
            counters: Counters::default(),
            schedule: Timeline::default(),
            delayed: Timeline::default(),
            expiry: Timeline::default(),
            done_from: None,
            exhausted: 0,
            review: None,
        }
    }

    /// Messages that are still to be worked off.
    pub(super) fn live(&self) -> u64 {
        self.counters.ready.saturating_add(self.counters.delayed).saturating_add(self.counters.leased)
    }
}

impl Record for Queue {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION_2);
        to.str(&self.name);
        encode_config(&mut to, &self.config);
        to.u8(encode_state(self.state));
        let c = &self.counters;
        for count in [
            c.accepted,
            c.duplicates,
            c.ready,
            c.delayed,
            c.leased,
            c.done,
            c.dead,
            c.retries,
            c.lost,
            c.units,
            c.bytes,
            c.keys,
        ] {
            to.uint(count);
        }
        for timeline in [self.schedule, self.delayed, self.expiry] {
            timeline.encode(&mut to);
        }
        to.option(self.done_from, |to, at| _ = to.uint(at)).uint(self.exhausted);
        to.option(self.review.as_ref(), |to, key| _ = to.bytes(key));
        to.uint(c.purged);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let (version, mut from) = open_either("queue record", bytes)?;
        let mut queue = Self {
            name: from.str()?.to_owned(),
            config: decode_config(&mut from)?,
            state: decode_state(&mut from)?,
            counters: Counters {
                accepted: from.uint()?,
                duplicates: from.uint()?,
                ready: from.uint()?,
                delayed: from.uint()?,
                leased: from.uint()?,
                done: from.uint()?,
                dead: from.uint()?,
                retries: from.uint()?,
                lost: from.uint()?,
                units: from.uint()?,
                bytes: from.uint()?,
                keys: from.uint()?,
                purged: 0,
            },
            schedule: Timeline::decode(&mut from)?,
            delayed: Timeline::decode(&mut from)?,
            expiry: Timeline::decode(&mut from)?,
            done_from: from.option(Decoder::uint)?,
            exhausted: from.uint()?,
            review: from.option(|from| Ok(Bytes::copy_from_slice(from.bytes()?)))?,
        };
        if version >= VERSION_2 {
            queue.counters.purged = from.uint()?;
        }
        from.finish()?;
        Ok(queue)
    }
}

/// Who works on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) consumer: Consumer,
    pub(super) fence: Fence,
    pub(super) expires_at: LogTime,
    /// When its owner was last heard of: granted, got more, or renewed.
    pub(super) used_at: LogTime,
    /// Its owner wants to give the key back with the last result.
    pub(super) release: bool,
}

/// A key of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Rows in [`Table::Ready`](super::tables::Table::Ready).
    pub(super) ready: u64,
    /// Rows in [`Table::Delayed`](super::tables::Table::Delayed).
    pub(super) delayed: u64,
    /// Rows in [`Table::Leased`](super::tables::Table::Leased).
    pub(super) leased: u64,
    /// A bound below the ready rows (9 − priority, id), to step over those removed.
    pub(super) ready_from: (u8, MessageId),
    /// No lease to anybody before.
    pub(super) hold_until: LogTime,
    pub(super) delay_ms: u64,
    /// Where it stands in the schedule: exactly if it is not leased, not exhausted and has ready messages.
    pub(super) due: Option<LogTime>,
    pub(super) lease: Option<Lease>,
    /// The newest fence, so that none comes twice.
    pub(super) last_fence: Fence,
    pub(super) units: u64,
    pub(super) bytes: u64,
    /// It is at its budget: its ready messages count as dead.
    pub(super) exhausted: bool,
    /// Whether there is a note.
    pub(super) noted: bool,
}

impl Key {
    /// A key that nobody has used yet.
    pub(super) fn new(delay_ms: u64) -> Self {
        Self {
            ready: 0,
            delayed: 0,
            leased: 0,
            ready_from: (0, MessageId { index: 0, ordinal: 0 }),
            hold_until: 0,
            delay_ms,
            due: None,
            lease: None,
            last_fence: 0,
            units: 0,
            bytes: 0,
            exhausted: false,
            noted: false,
        }
    }
}

impl Record for Key {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::with_capacity(64);
        to.u8(VERSION_2).uint(self.ready).uint(self.delayed).uint(self.leased);
        to.u8(self.ready_from.0).uint(self.ready_from.1.index).uint(self.ready_from.1.ordinal.into());
        to.uint(self.hold_until).uint(self.delay_ms);
        to.option(self.due, |to, due| _ = to.uint(due));
        to.option(self.lease, |to, lease| {
            to.uint(lease.consumer.node).uint(lease.consumer.epoch).uint(lease.fence);
            to.uint(lease.expires_at).bool(lease.release).uint(lease.used_at);
        });
        to.uint(self.last_fence).uint(self.units).uint(self.bytes).bool(self.exhausted).bool(self.noted);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let (version, mut from) = open_either("key record", bytes)?;
        let key = Self {
            ready: from.uint()?,
            delayed: from.uint()?,
            leased: from.uint()?,
            ready_from: (from.u8()?, MessageId { index: from.uint()?, ordinal: from.uint32()? }),
            hold_until: from.uint()?,
            delay_ms: from.uint()?,
            due: from.option(Decoder::uint)?,
            lease: from.option(|from| {
                Ok(Lease {
                    consumer: Consumer { node: from.uint()?, epoch: from.uint()? },
                    fence: from.uint()?,
                    expires_at: from.uint()?,
                    release: from.bool()?,
                    used_at: if version >= VERSION_2 { from.uint()? } else { 0 },
                })
            })?,
            last_fence: from.uint()?,
            units: from.uint()?,
            bytes: from.uint()?,
            exhausted: from.bool()?,
            noted: from.bool()?,
        };
        from.finish()?;
        Ok(key)
    }
}

/// A worker: its incarnation and the receipts kept for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Receipts {
    pub(super) epoch: u64,
    /// Every result with a sequence number up to this one was judged.
    pub(super) judged_upto: u64,
    /// Receipts up to this one are forgotten.
    pub(super) released_upto: u64,
    /// Refused results above `released_upto`, ascending.
    pub(super) refused: Vec<u64>,
}

impl Record for Receipts {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.uint(self.epoch).uint(self.judged_upto).uint(self.released_upto);
        let mut before = 0;
        to.list(&self.refused, |to, &sequence| {
            to.uint(sequence.saturating_sub(before));
            before = sequence;
        });
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("consumer record", bytes)?;
        let (epoch, judged_upto, released_upto) = (from.uint()?, from.uint()?, from.uint()?);
        let mut before = 0u64;
        let refused = from.list(|from| {
            before = before.checked_add(from.uint()?).ok_or_else(|| from.error("a sequence is too great"))?;
            Ok(before)
        })?;
        from.finish()?;
        Ok(Self { epoch, judged_upto, released_upto, refused })
    }
}

/// A message, in whichever table it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) priority: u8,
    /// Deliveries.
    pub(super) attempts: u32,
    /// Deliveries that ended with a lost lease.
    pub(super) lost: u32,
    /// Deliveries that were given back without having been tried.
    pub(super) free: u32,
    pub(super) payload: Bytes,
}

impl Stored {
    /// Attempts that failed, the last one being over.
    pub(super) fn failures(&self) -> u32 {
        self.attempts.saturating_sub(self.lost).saturating_sub(self.free)
    }

    fn write(&self, to: &mut Encoder) {
        to.u8(self.priority).uint(self.attempts.into()).uint(self.lost.into()).uint(self.free.into());
        to.raw(&self.payload);
    }

    /// Reads it from the rest of `row`, at which `from` stands.
    fn read(row: &Bytes, from: &mut Decoder<'_>) -> Result<Self> {
        let (priority, attempts, lost, free) = (from.u8()?, from.uint32()?, from.uint32()?, from.uint32()?);
        let payload = row.slice(row.len() - from.remaining()..);
        Ok(Self { priority, attempts, lost, free, payload })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::with_capacity(self.payload.len() + 20);
        to.u8(VERSION);
        self.write(&mut to);
        to.finish()
    }

    pub(super) fn decode(row: Vec<u8>) -> Result<Self> {
        let row = Bytes::from(row);
        Self::read(&row, &mut open("message record", &row)?)
    }
}

/// How a message ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// Who said so; 0 in rows of version 1, and where the machine gave the message up.
    pub(super) worker: u64,
    /// Units charged.
    pub(super) units: u32,
    /// Bytes charged.
    pub(super) bytes: u64,
}

/// A message that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dead {
    pub(super) key: Bytes,
    pub(super) reason: String,
    pub(super) at: LogTime,
    pub(super) settled: Settled,
    pub(super) message: Stored,
}

impl Dead {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION_2);
        to.bytes(&self.key).str(&self.reason).uint(self.at);
        to.uint(self.settled.worker).uint(self.settled.units.into()).uint(self.settled.bytes);
        self.message.write(&mut to);
        to.finish()
    }

    pub(super) fn decode(row: Vec<u8>) -> Result<Self> {
        let row = Bytes::from(row);
        let (version, mut from) = open_either("dead letter", &row)?;
        let key = row.slice_ref(from.bytes()?);
        let (reason, at) = (from.str()?.to_owned(), from.uint()?);
        let settled = match version {
            VERSION => Settled::default(),
            _ => Settled { worker: from.uint()?, units: from.uint32()?, bytes: from.uint()? },
        };
        Ok(Self { key, reason, at, settled, message: Stored::read(&row, &mut from)? })
    }
}

/// A message that was worked off and is kept for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) key: Bytes,
    pub(super) settled: Settled,
    pub(super) message: Stored,
}

impl Done {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION_2);
        to.bytes(&self.key)
            .uint(self.settled.units.into())
            .uint(self.settled.bytes)
            .uint(self.settled.worker);
        self.message.write(&mut to);
        to.finish()
    }

    pub(super) fn decode(row: Vec<u8>) -> Result<Self> {
        let row = Bytes::from(row);
        let (version, mut from) = open_either("message worked off", &row)?;
        let key = row.slice_ref(from.bytes()?);
        let (units, bytes) = (from.uint32()?, from.uint()?);
        let worker = if version == VERSION { 0 } else { from.uint()? };
        let settled = Settled { worker, units, bytes };
        Ok(Self { key, settled, message: Stored::read(&row, &mut from)? })
    }
}

//! Records of sessions, locks, the registry, checkpoints, the feed, and what clients were answered.

use bytes::Bytes;
use dolomedes_storage::{
    Result,
    codec::{Decoder, Encoder},
};

use super::{Record, Timeline, VERSION, VERSION_2, open, open_either};
use crate::{
    command::{Change, Event, Fence, LogTime, Retention, Revision, SessionId},
    machine::limits,
};

/// Counts and marks that many rows share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) struct Facts {
    /// The newest change's.
    pub(in crate::machine) revision: Revision,
    /// The oldest event that is kept; one above `revision` if none is.
    pub(in crate::machine) oldest: Revision,
    /// Bytes of the events that are kept.
    pub(in crate::machine) feed_bytes: u64,
    pub(in crate::machine) retention: Retention,
    /// The newest grant of a lock.
    pub(in crate::machine) last_fence: Fence,
    pub(in crate::machine) last_session: SessionId,
    /// Sessions by their end.
    pub(in crate::machine) sessions: Timeline,
    /// Keys of the registry, and the bytes of them and their values.
    pub(in crate::machine) keys: u64,
    pub(in crate::machine) key_bytes: u64,
    /// Clients by when they are looked at again.
    pub(in crate::machine) clients: Timeline,
    /// Tokens, and a time before which none ends.
    pub(in crate::machine) tokens: Timeline,
    pub(in crate::machine) nodes: u64,
    pub(in crate::machine) nodes_ever: u64,
    pub(in crate::machine) last_node: u64,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            revision: 0,
            oldest: 1,
            feed_bytes: 0,
            retention: Retention { events: limits::FEED_EVENTS_KEPT, bytes: limits::FEED_BYTES_KEPT },
            last_fence: 0,
            last_session: 0,
            sessions: Timeline::default(),
            keys: 0,
            key_bytes: 0,
            clients: Timeline::default(),
            tokens: Timeline::default(),
            nodes: 0,
            nodes_ever: 0,
            last_node: 0,
        }
    }
}

impl Record for Facts {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.uint(self.revision).uint(self.oldest).uint(self.feed_bytes);
        to.uint(self.retention.events).uint(self.retention.bytes);
        to.uint(self.last_fence).uint(self.last_session).uint(self.keys).uint(self.key_bytes);
        for timeline in [self.sessions, self.clients, self.tokens] {
            timeline.encode(&mut to);
        }
        to.uint(self.nodes).uint(self.nodes_ever).uint(self.last_node);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("record of counts", bytes)?;
        let facts = Self {
            revision: from.uint()?,
            oldest: from.uint()?,
            feed_bytes: from.uint()?,
            retention: Retention { events: from.uint()?, bytes: from.uint()? },
            last_fence: from.uint()?,
            last_session: from.uint()?,
            keys: from.uint()?,
            key_bytes: from.uint()?,
            sessions: Timeline::decode(&mut from)?,
            clients: Timeline::decode(&mut from)?,
            tokens: Timeline::decode(&mut from)?,
            nodes: from.uint()?,
            nodes_ever: from.uint()?,
            last_node: from.uint()?,
        };
        from.finish()?;
        Ok(facts)
    }
}

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) struct Session {
    pub(in crate::machine) ttl_ms: u64,
    pub(in crate::machine) expires_at: LogTime,
    /// Its rows in [`Table::SessionItem`](crate::machine::tables::Table::SessionItem).
    pub(in crate::machine) items: u64,
}

impl Record for Session {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.uint(self.ttl_ms).uint(self.expires_at).uint(self.items);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("session record", bytes)?;
        let session = Self { ttl_ms: from.uint()?, expires_at: from.uint()?, items: from.uint()? };
        from.finish()?;
        Ok(session)
    }
}

/// The kinds of what ends with a session: the second part of its row's key. Frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::machine) enum Item {
    /// A place in line. Its row holds the ticket.
    Waits = 1,
    /// A lock.
    Holds = 2,
    /// A key of the registry.
    Key = 3,
}

/// A row that holds a number: a session in line, a ticket, a node.
pub(in crate::machine) struct NumberRow(pub(in crate::machine) u64);

impl Record for NumberRow {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.uint(self.0);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("number", bytes)?;
        let number = from.uint()?;
        from.finish()?;
        Ok(Self(number))
    }
}

/// Who has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) struct Holder {
    pub(in crate::machine) session: SessionId,
    pub(in crate::machine) fence: Fence,
    pub(in crate::machine) since: LogTime,
}

/// A lock that somebody has; a free one has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) struct Lock {
    pub(in crate::machine) holder: Holder,
    pub(in crate::machine) waiters: u64,
    /// No ticket in line is lower: the search for the next in line starts here.
    pub(in crate::machine) head: u64,
    /// The next ticket.
    pub(in crate::machine) next: u64,
}

impl Record for Lock {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.uint(self.holder.session).uint(self.holder.fence).uint(self.holder.since);
        to.uint(self.waiters).uint(self.head).uint(self.next);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("lock record", bytes)?;
        let lock = Self {
            holder: Holder { session: from.uint()?, fence: from.uint()?, since: from.uint()? },
            waiters: from.uint()?,
            head: from.uint()?,
            next: from.uint()?,
        };
        from.finish()?;
        Ok(lock)
    }
}

/// A key of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) struct RegistryKey {
    pub(in crate::machine) created: Revision,
    pub(in crate::machine) revision: Revision,
    pub(in crate::machine) session: Option<SessionId>,
    pub(in crate::machine) value: Bytes,
}

impl RegistryKey {
    pub(in crate::machine) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::with_capacity(self.value.len() + 32);
        to.u8(VERSION).uint(self.created).uint(self.revision);
        to.option(self.session, |to, session| _ = to.uint(session)).raw(&self.value);
        to.finish()
    }

    pub(in crate::machine) fn decode(row: Vec<u8>) -> Result<Self> {
        let row = Bytes::from(row);
        let mut from = open("registry record", &row)?;
        let (created, revision) = (from.uint()?, from.uint()?);
        let session = from.option(Decoder::uint)?;
        Ok(Self { created, revision, session, value: row.slice(row.len() - from.remaining()..) })
    }
}

/// The value of an event's row; its key has the revision.
pub(in crate::machine) fn encode_event(event: &Event) -> Vec<u8> {
    let mut to = Encoder::with_capacity(64);
    to.u8(VERSION).uint(event.index).uint(event.at);
    match &event.change {
        Change::Set { key, value, session } => {
            to.u8(1).bytes(key).option(*session, |to, session| _ = to.uint(session)).bytes(value);
        }
        Change::Deleted { key, session } => {
            to.u8(2).bytes(key).option(*session, |to, session| _ = to.uint(session));
        }
        Change::Granted { lock, session, fence } => {
            to.u8(3).str(lock).uint(*session).uint(*fence);
        }
        Change::Released { lock, session, fence } => {
            to.u8(4).str(lock).uint(*session).uint(*fence);
        }
        Change::Checkpoint { name, version, removed } => {
            to.u8(5).str(name).uint(*version).bool(*removed);
        }
    }
    to.finish()
}

/// Reads what [`encode_event`] wrote.
pub(in crate::machine) fn decode_event(revision: Revision, row: Vec<u8>) -> Result<Event> {
    let row = Bytes::from(row);
    let mut from = open("event", &row)?;
    let (index, at) = (from.uint()?, from.uint()?);
    let change = match from.u8()? {
        1 => {
            let key = row.slice_ref(from.bytes()?);
            let session = from.option(Decoder::uint)?;
            Change::Set { key, value: row.slice_ref(from.bytes()?), session }
        }
        2 => Change::Deleted { key: row.slice_ref(from.bytes()?), session: from.option(Decoder::uint)? },
        3 => Change::Granted { lock: from.str()?.into(), session: from.uint()?, fence: from.uint()? },
        4 => Change::Released { lock: from.str()?.into(), session: from.uint()?, fence: from.uint()? },
        5 => Change::Checkpoint { name: from.str()?.into(), version: from.uint()?, removed: from.bool()? },
        _ => return Err(from.error("this kind of event is not known").into()),
    };
    from.finish()?;
    Ok(Event { revision, index, at, change })
}

/// The newest version of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) struct Checkpoint {
    pub(in crate::machine) version: u64,
    /// The oldest version that is kept; the earlier ones are in
    /// [`Table::History`](crate::machine::tables::Table::History).
    pub(in crate::machine) oldest: u64,
    pub(in crate::machine) at: LogTime,
    pub(in crate::machine) value: Bytes,
}

impl Checkpoint {
    pub(in crate::machine) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::with_capacity(self.value.len() + 24);
        to.u8(VERSION_2).uint(self.version).uint(self.oldest).uint(self.at).raw(&self.value);
        to.finish()
    }

    pub(in crate::machine) fn decode(row: Vec<u8>) -> Result<Self> {
        let row = Bytes::from(row);
        let (format, mut from) = open_either("checkpoint record", &row)?;
        let version = from.uint()?;
        let (oldest, at) = if format >= VERSION_2 { (from.uint()?, from.uint()?) } else { (version, 0) };
        Ok(Self { version, oldest, at, value: row.slice(row.len() - from.remaining()..) })
    }
}

/// An earlier version of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) struct PastCheckpoint {
    pub(in crate::machine) at: LogTime,
    pub(in crate::machine) value: Bytes,
}

impl PastCheckpoint {
    pub(in crate::machine) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::with_capacity(self.value.len() + 12);
        to.u8(VERSION).uint(self.at).raw(&self.value);
        to.finish()
    }

    pub(in crate::machine) fn decode(row: Vec<u8>) -> Result<Self> {
        let row = Bytes::from(row);
        let mut from = open("earlier version of a checkpoint", &row)?;
        let at = from.uint()?;
        Ok(Self { at, value: row.slice(row.len() - from.remaining()..) })
    }
}

/// A client whose replies are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::machine) struct Client {
    /// Replies up to here are forgotten.
    pub(in crate::machine) floor: u64,
    /// The highest sequence number that it sent.
    pub(in crate::machine) high: u64,
    /// Bytes of the replies that are remembered.
    pub(in crate::machine) bytes: u64,
    pub(in crate::machine) used_at: LogTime,
}

impl Record for Client {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.uint(self.floor).uint(self.high).uint(self.bytes).uint(self.used_at);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("client record", bytes)?;
        let client =
            Self { floor: from.uint()?, high: from.uint()?, bytes: from.uint()?, used_at: from.uint()? };
        from.finish()?;
        Ok(client)
    }
}

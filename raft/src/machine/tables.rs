//! Keys of all rows: which tables there are and how their rows sort. Values are in [`super::records`].
//!
//! Every key of [`Family::State`] starts with group (u32), generation (u64) and the table's tag (u8); every key of
//! [`Family::Seen`] with group, generation, queue (u64). Tags are frozen; integers are big endian, byte strings escaped
//! ([`dolomedes_storage::codec::key`]).
//!
//! [`Family::State`]: dolomedes_storage::engine::Family::State
//! [`Family::Seen`]: dolomedes_storage::engine::Family::Seen

use dolomedes_storage::codec::{
    DecodeError,
    key::{KeyBuilder, KeyReader, successor},
};

use crate::command::{LogTime, MessageId, QueueId};

/// A table of the machine. Those that belong to a queue have the queue's id next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Table {
    /// () → log time and other facts of the whole group.
    Clock = 1,
    /// queue → rules, state, counters.
    Queue = 2,
    /// queue → its user's description.
    Spec = 3,
    /// name → queue.
    Name = 4,
    /// queue, key → the key's record.
    Key = 5,
    /// queue, key → what its last owner left.
    Note = 6,
    /// queue, due, key: keys that can be leased, by the time from which on.
    Schedule = 7,
    /// queue, key, 9 − priority, message → message.
    Ready = 8,
    /// queue, due, key, message → message.
    Delayed = 9,
    /// queue, key, message → message.
    Leased = 10,
    /// queue, message → dead letter.
    Dead = 11,
    /// queue, time, message → message worked off, kept for a while.
    Done = 12,
    /// queue, end of the lease, key.
    Expiry = 13,
    /// queue, key: keys at their budget.
    Exhausted = 14,
    /// node → incarnation and receipts.
    Consumer = 15,
    /// queue, node, key: leases by their owner.
    Held = 16,
    /// name → version and value.
    Checkpoint = 17,
    /// session → its term.
    Session = 18,
    /// end, session.
    SessionEnd = 19,
    /// session, kind, name → what ends with it.
    SessionItem = 20,
    /// name → who has it, and the line.
    Lock = 21,
    /// lock, ticket → session.
    Waiter = 22,
    /// key of the registry → revision and value.
    Registry = 23,
    /// revision → what happened.
    Event = 24,
    /// name, version → what an earlier version of a checkpoint was.
    History = 25,
    /// client → what is remembered of it.
    Client = 26,
    /// when to look at it again, client.
    ClientEnd = 27,
    /// client, sequence → reply.
    Remembered = 28,
    /// () → counts of what stands in the tables from 18 on.
    Facts = 29,
    /// () → the cluster's id and map.
    Cluster = 30,
    /// node → a node.
    Node = 31,
    /// uuid → node.
    NodeUuid = 32,
    /// node → what was removed.
    RemovedNode = 33,
    /// hash → a token.
    Token = 34,
    /// group → the nodes that shall vote.
    Voters = 35,
}

impl Table {
    /// The tables whose rows belong to one queue, all that [`Command::DropQueue`](crate::command::Command::DropQueue)
    /// removes.
    pub(super) const OF_QUEUE: [Table; 13] = [
        Table::Queue,
        Table::Spec,
        Table::Key,
        Table::Note,
        Table::Schedule,
        Table::Ready,
        Table::Delayed,
        Table::Leased,
        Table::Dead,
        Table::Done,
        Table::Expiry,
        Table::Exhausted,
        Table::Held,
    ];
}

/// A range of keys, `[from, to)`.
pub(super) type Range = (Vec<u8>, Vec<u8>);

/// Builds the keys of one generation of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tables {
    group: u32,
    generation: u64,
}

/// Bytes before a table's own parts of a key.
const PREFIX: usize = 4 + 8 + 1;

/// Reads the parts behind the prefix of a key of [`Family::State`](dolomedes_storage::engine::Family::State).
pub(super) fn parts(key: &[u8]) -> KeyReader<'_> {
    KeyReader::new(key.get(PREFIX..).unwrap_or_default())
}

/// Reads a message's identity.
pub(super) fn read_id(parts: &mut KeyReader<'_>) -> Result<MessageId, DecodeError> {
    Ok(MessageId { index: parts.u64()?, ordinal: parts.u32()? })
}

/// Everything that starts with `prefix`.
pub(super) fn under(prefix: Vec<u8>) -> Range {
    // A prefix starts with a group's number, so that it is never all 0xff in practice; were it, no key is above it.
    let to = successor(&prefix).unwrap_or_else(|| vec![0xff; prefix.len() + 1]);
    (prefix, to)
}

impl Tables {
    pub(super) fn new(group: u32, generation: u64) -> Self {
        Self { group, generation }
    }

    fn start(&self, table: Table) -> KeyBuilder {
        KeyBuilder::new().u32(self.group).u64(self.generation).u8(table as u8)
    }

    pub(super) fn clock(&self) -> Vec<u8> {
        self.start(Table::Clock).build()
    }

    /// The row of a table with one row per queue.
    pub(super) fn of_queue(&self, table: Table, queue: QueueId) -> Vec<u8> {
        self.start(table).u64(queue).build()
    }

    /// All rows of `table`.
    pub(super) fn all(&self, table: Table) -> Range {
        under(self.start(table).build())
    }

    /// All rows of `table` that belong to `queue`.
    pub(super) fn all_of_queue(&self, table: Table, queue: QueueId) -> Range {
        under(self.of_queue(table, queue))
    }

    /// The row of a table with one row per name.
    pub(super) fn named(&self, table: Table, name: &str) -> Vec<u8> {
        self.start(table).bytes(name.as_bytes()).build()
    }

    /// The row of a table with one row per key of a queue.
    pub(super) fn of_key(&self, table: Table, queue: QueueId, key: &[u8]) -> Vec<u8> {
        self.start(table).u64(queue).bytes(key).build()
    }

    /// A row of [`Table::Schedule`] or [`Table::Expiry`].
    pub(super) fn timed_key(&self, table: Table, queue: QueueId, at: LogTime, key: &[u8]) -> Vec<u8> {
        self.start(table).u64(queue).u64(at).bytes(key).build()
    }

    /// The rows of a table of times from `from` up to and including `upto`.
    pub(super) fn times(&self, table: Table, queue: QueueId, from: LogTime, upto: LogTime) -> Range {
        let to = match upto.checked_add(1) {
            Some(end) => self.start(table).u64(queue).u64(end).build(),
            None => self.all_of_queue(table, queue).1,
        };
        (self.start(table).u64(queue).u64(from).build(), to)
    }

    pub(super) fn ready(&self, queue: QueueId, key: &[u8], priority: u8, id: MessageId) -> Vec<u8> {
        let key = self.start(Table::Ready).u64(queue).bytes(key);
        key.u8(9u8.saturating_sub(priority)).u64(id.index).u32(id.ordinal).build()
    }

    pub(super) fn delayed(&self, queue: QueueId, due: LogTime, key: &[u8], id: MessageId) -> Vec<u8> {
        self.start(Table::Delayed).u64(queue).u64(due).bytes(key).u64(id.index).u32(id.ordinal).build()
    }

    pub(super) fn leased(&self, queue: QueueId, key: &[u8], id: MessageId) -> Vec<u8> {
        self.start(Table::Leased).u64(queue).bytes(key).u64(id.index).u32(id.ordinal).build()
    }

    pub(super) fn dead(&self, queue: QueueId, id: MessageId) -> Vec<u8> {
        self.start(Table::Dead).u64(queue).u64(id.index).u32(id.ordinal).build()
    }

    pub(super) fn done(&self, queue: QueueId, at: LogTime, id: MessageId) -> Vec<u8> {
        self.start(Table::Done).u64(queue).u64(at).u64(id.index).u32(id.ordinal).build()
    }

    pub(super) fn consumer(&self, node: u64) -> Vec<u8> {
        self.start(Table::Consumer).u64(node).build()
    }

    pub(super) fn held(&self, queue: QueueId, node: u64, key: &[u8]) -> Vec<u8> {
        self.start(Table::Held).u64(queue).u64(node).bytes(key).build()
    }

    pub(super) fn held_by(&self, queue: QueueId, node: u64) -> Range {
        under(self.start(Table::Held).u64(queue).u64(node).build())
    }

    /// The row of a table with one row.
    pub(super) fn single(&self, table: Table) -> Vec<u8> {
        self.start(table).build()
    }

    /// The row of a table by number.
    pub(super) fn numbered(&self, table: Table, number: u64) -> Vec<u8> {
        self.start(table).u64(number).build()
    }

    /// The row of a table by time and number.
    pub(super) fn timed(&self, table: Table, at: LogTime, number: u64) -> Vec<u8> {
        self.start(table).u64(at).u64(number).build()
    }

    /// The row of a table by byte string.
    pub(super) fn keyed(&self, table: Table, key: &[u8]) -> Vec<u8> {
        self.start(table).bytes(key).build()
    }

    /// The rows of a table whose byte string begins with `prefix`.
    pub(super) fn keyed_under(&self, table: Table, prefix: &[u8]) -> Range {
        let mut from = self.start(table).bytes(prefix).build();
        // Without the terminator.
        from.truncate(from.len() - 2);
        under(from)
    }

    /// The row of a table by name and number.
    pub(super) fn named_at(&self, table: Table, name: &str, number: u64) -> Vec<u8> {
        self.start(table).bytes(name.as_bytes()).u64(number).build()
    }

    /// All rows of a name of such a table.
    pub(super) fn all_named(&self, table: Table, name: &str) -> Range {
        under(self.named(table, name))
    }

    pub(super) fn item(&self, session: u64, kind: u8, name: &[u8]) -> Vec<u8> {
        self.start(Table::SessionItem).u64(session).u8(kind).bytes(name).build()
    }

    pub(super) fn items(&self, session: u64) -> Range {
        under(self.numbered(Table::SessionItem, session))
    }

    pub(super) fn client(&self, client: u128) -> Vec<u8> {
        self.start(Table::Client).u128(client).build()
    }

    pub(super) fn client_end(&self, at: LogTime, client: u128) -> Vec<u8> {
        self.start(Table::ClientEnd).u64(at).u128(client).build()
    }

    pub(super) fn remembered(&self, client: u128, sequence: u64) -> Vec<u8> {
        self.start(Table::Remembered).u128(client).u64(sequence).build()
    }

    pub(super) fn all_remembered(&self, client: u128) -> Range {
        under(self.start(Table::Remembered).u128(client).build())
    }

    pub(super) fn node_uuid(&self, uuid: u128) -> Vec<u8> {
        self.start(Table::NodeUuid).u128(uuid).build()
    }

    pub(super) fn seen(&self, queue: QueueId, fingerprint: u128) -> Vec<u8> {
        KeyBuilder::new().u32(self.group).u64(self.generation).u64(queue).u128(fingerprint).build()
    }

    pub(super) fn seen_of_queue(&self, queue: QueueId) -> Range {
        under(KeyBuilder::new().u32(self.group).u64(self.generation).u64(queue).build())
    }

    pub(super) fn all_seen(&self) -> Range {
        under(KeyBuilder::new().u32(self.group).u64(self.generation).build())
    }

    /// Queue and fingerprint of a key made by [`Tables::seen`].
    pub(super) fn read_seen(key: &[u8]) -> Result<(QueueId, u128), DecodeError> {
        let mut parts = KeyReader::new(key.get(PREFIX - 1..).unwrap_or_default());
        let found = (parts.u64()?, parts.u128()?);
        parts.finish()?;
        Ok(found)
    }
}

/// The message that a key of any table of messages ends with.
pub(super) fn tail_id(key: &[u8]) -> Result<MessageId, DecodeError> {
    read_id(&mut KeyReader::new(&key[key.len().saturating_sub(12)..]))
}

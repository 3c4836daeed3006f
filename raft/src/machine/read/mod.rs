//! Looking at the machine's state, for tools and reports: one group's rows as they are in a [`Reader`]. Read-only, and not
//! linearizable by itself; that is up to where the reader comes from.

mod cluster;
mod locks;
mod registry;

use std::ops::ControlFlow;

use bytes::Bytes;
use dolomedes_storage::{
    Result,
    codec::key::KeyReader,
    engine::{Family, Reader},
};

pub use self::{
    cluster::{ClusterInfo, NodeInfo, RemovedInfo, TokenInfo},
    locks::{LockInfo, SessionInfo},
    registry::{Events, Feed, KeyEntry, PastVersion, RegistryPage},
};
use super::{
    records::{
        Checkpoint, Clock, Dead, Done, Key, Lease, NamedQueue, Queue, Receipts, Record, Settled, Stored,
    },
    tables::{Range, Table, Tables, parts, read_id},
};
use crate::command::{Consumer, Counters, Fence, LogTime, MessageId, QueueConfig, QueueId, QueueState};

/// The state of one group.
pub struct State<'a> {
    reader: &'a dyn Reader,
    tables: Tables,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its number.
    pub id: QueueId,
    /// Its name.
    pub name: String,
    /// Its rules.
    pub config: QueueConfig,
    /// What it is doing.
    pub state: QueueState,
    /// Its numbers.
    pub counters: Counters,
    /// Keys that are not leased and have messages to work off, due or not.
    pub waiting_keys: u64,
    /// Keys that are leased.
    pub leased_keys: u64,
    /// Keys at their budget.
    pub exhausted_keys: u64,
}

/// A key of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// The key.
    pub key: Bytes,
    /// Its ready messages; those of an exhausted key count as dead in the queue's numbers.
    pub ready: u64,
    /// Its delayed messages.
    pub delayed: u64,
    /// Its leased messages.
    pub leased: u64,
    /// Until it may be leased again, from log time.
    pub hold_ms: u64,
    /// The least time between two uses of it.
    pub delay_ms: u64,
    /// Who works on it.
    pub lease: Option<LeaseInfo>,
    /// Units charged to it.
    pub units: u64,
    /// Bytes charged to it.
    pub bytes: u64,
    /// Whether it is at its budget.
    pub exhausted: bool,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The leased key.
    pub key: Bytes,
    /// Its owner.
    pub consumer: Consumer,
    /// The grant.
    pub fence: Fence,
    /// Log time of its end.
    pub expires_at: LogTime,
    /// Messages under it.
    pub leased: u64,
}

/// A message that was given up. Those that wait for a greater budget of their key are not among these: see
/// [`KeyInfo::exhausted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its identity.
    pub id: MessageId,
    /// Its key.
    pub key: Bytes,
    /// Why it was given up; `lost` if its leases were lost too often.
    pub reason: String,
    /// Log time at which it was given up.
    pub at: LogTime,
    /// Deliveries.
    pub attempts: u32,
    /// 0 to 9.
    pub priority: u8,
    /// As it was put.
    pub payload: Bytes,
}

/// A message that was worked off and is kept for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneMessage {
    /// Its identity.
    pub id: MessageId,
    /// Its key.
    pub key: Bytes,
    /// Log time at which it was worked off.
    pub at: LogTime,
    /// Units charged.
    pub units: u32,
    /// Bytes charged.
    pub bytes: u64,
    /// Deliveries.
    pub attempts: u32,
    /// 0 to 9.
    pub priority: u8,
    /// As it was put.
    pub payload: Bytes,
}

/// A message in somebody's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingMessage {
    /// Its identity.
    pub id: MessageId,
    /// Its key.
    pub key: Bytes,
    /// Who works on it.
    pub consumer: Consumer,
    /// The grant of its key.
    pub fence: Fence,
    /// Since its owner was last heard of for this key: granted it, got more of it, or renewed it.
    pub idle_ms: u64,
    /// Until the lease ends; 0: it is over, and nobody has noticed yet.
    pub left_ms: u64,
    /// Deliveries, this one among them.
    pub attempts: u32,
    /// 0 to 9.
    pub priority: u8,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// Rises by one with each write.
    pub version: u64,
    /// The oldest version that is kept.
    pub oldest: u64,
    /// Log time of the write.
    pub at: LogTime,
    /// Its value.
    pub value: Bytes,
}

/// A worker and its receipts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its newest incarnation.
    pub consumer: Consumer,
    /// Every result with a sequence number up to this one was judged.
    pub judged_upto: u64,
    /// Receipts up to this one are forgotten.
    pub released_upto: u64,
    /// Results above it that were refused, ascending.
    pub refused: Vec<u64>,
}

impl<'a> State<'a> {
    /// The state of `generation` of `group` in `reader`.
    pub fn new(reader: &'a dyn Reader, group: u32, generation: u64) -> Self {
        Self { reader, tables: Tables::new(group, generation) }
    }

    fn record<R: Record>(&self, row: &[u8]) -> Result<Option<R>> {
        self.reader.get(Family::State, row)?.map(|bytes| R::decode(&bytes)).transpose()
    }

    fn list<T>(
        &self,
        (from, to): Range,
        limit: usize,
        mut read: impl FnMut(KeyReader<'_>, Vec<u8>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let (mut items, mut damage) = (Vec::new(), None);
        if limit == 0 {
            return Ok(items);
        }
        self.reader.scan(Family::State, &from, &to, &mut |row, value| {
            match read(parts(row), value.to_vec()) {
                Ok(item) => items.push(item),
                Err(error) => damage = Some(error),
            }
            if damage.is_some() || items.len() == limit {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        damage.map_or(Ok(items), Err)
    }

    /// Log time of the newest entry that was applied.
    pub fn log_time(&self) -> Result<LogTime> {
        Ok(self.record::<Clock>(&self.tables.clock())?.unwrap_or_default().now)
    }

    /// The queue that has this name.
    pub fn queue_by_name(&self, name: &str) -> Result<Option<QueueId>> {
        let found = self.record::<NamedQueue>(&self.tables.named(Table::Name, name))?;
        Ok(found.map(|NamedQueue(id)| id))
    }

    /// A queue.
    pub fn queue(&self, id: QueueId) -> Result<Option<QueueInfo>> {
        let found = self.record::<Queue>(&self.tables.of_queue(Table::Queue, id))?;
        Ok(found.map(|queue| queue_info(id, queue)))
    }

    /// What a queue's user keeps with it.
    pub fn spec(&self, id: QueueId) -> Result<Option<Bytes>> {
        let found = self.reader.get(Family::State, &self.tables.of_queue(Table::Spec, id))?;
        Ok(found.map(Bytes::from))
    }

    /// All queues, the oldest first.
    pub fn queues(&self) -> Result<Vec<QueueInfo>> {
        self.list(self.tables.all(Table::Queue), usize::MAX, |mut parts, value| {
            Ok(queue_info(parts.u64()?, Queue::decode(&value)?))
        })
    }

    /// The queues whose names begin with `prefix`, by name, at most so many.
    pub fn queues_named(&self, prefix: &str, limit: usize) -> Result<Vec<QueueInfo>> {
        let range = self.tables.keyed_under(Table::Name, prefix.as_bytes());
        let found = self.list(range, limit, |_, value| NamedQueue::decode(&value))?;
        let mut queues = Vec::with_capacity(found.len());
        for NamedQueue(id) in found {
            queues.extend(self.queue(id)?);
        }
        Ok(queues)
    }

    /// A key of a queue.
    pub fn key(&self, queue: QueueId, key: &[u8]) -> Result<Option<KeyInfo>> {
        let now = self.log_time()?;
        let found = self.record::<Key>(&self.tables.of_key(Table::Key, queue, key))?;
        Ok(found.map(|record| key_info(Bytes::copy_from_slice(key), record, now)))
    }

    /// The keys of a queue that come behind `after`, by their bytes, at most `limit`.
    pub fn keys(&self, queue: QueueId, after: Option<&[u8]>, limit: usize) -> Result<Vec<KeyInfo>> {
        let now = self.log_time()?;
        let mut range = self.tables.all_of_queue(Table::Key, queue);
        if let Some(after) = after {
            range.0 = behind(self.tables.of_key(Table::Key, queue, after));
        }
        self.list(range, limit, |mut parts, value| {
            parts.u64()?;
            Ok(key_info(parts.bytes()?.into(), Key::decode(&value)?, now))
        })
    }

    /// What a key's last owner left for the next.
    pub fn note(&self, queue: QueueId, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.reader.get(Family::State, &self.tables.of_key(Table::Note, queue, key))?;
        Ok(found.map(Bytes::from))
    }

    /// The leases of a queue that come behind `after` (their end, their key), those that end first first, at most `limit`.
    pub fn leases(
        &self,
        queue: QueueId,
        after: Option<(LogTime, &[u8])>,
        limit: usize,
    ) -> Result<Vec<LeaseInfo>> {
        let mut range = self.tables.all_of_queue(Table::Expiry, queue);
        if let Some((at, key)) = after {
            range.0 = behind(self.tables.timed_key(Table::Expiry, queue, at, key));
        }
        let keys = self.list(range, limit, |mut parts, _| {
            parts.u64()?;
            parts.u64()?;
            Ok(Bytes::from(parts.bytes()?))
        })?;
        let found = keys.into_iter().map(|key| {
            let record = self.record::<Key>(&self.tables.of_key(Table::Key, queue, &key))?;
            Ok(record.and_then(|record| lease_info(&key, &record)))
        });
        found.filter_map(Result::transpose).collect()
    }

    /// The dead letters of a queue that come behind `after`, the oldest messages first, at most `limit`.
    pub fn dead_letters(
        &self,
        queue: QueueId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        let mut range = self.tables.all_of_queue(Table::Dead, queue);
        if let Some(after) = after {
            range.0 = behind(self.tables.dead(queue, after));
        }
        self.list(range, limit, |mut parts, value| {
            parts.u64()?;
            let id = read_id(&mut parts)?;
            let Dead { key, reason, at, message, .. } = Dead::decode(value)?;
            let (attempts, priority, payload) = (message.attempts, message.priority, message.payload);
            Ok(DeadLetter { id, key, reason, at, attempts, priority, payload })
        })
    }

    /// The messages worked off that are kept and come behind `after` (time, message), those done first first, at most
    /// `limit`.
    pub fn done_messages(
        &self,
        queue: QueueId,
        after: Option<(LogTime, MessageId)>,
        limit: usize,
    ) -> Result<Vec<DoneMessage>> {
        let mut range = self.tables.all_of_queue(Table::Done, queue);
        if let Some((at, id)) = after {
            range.0 = behind(self.tables.done(queue, at, id));
        }
        self.list(range, limit, |mut parts, value| {
            parts.u64()?;
            let (at, id) = (parts.u64()?, read_id(&mut parts)?);
            let Done { key, settled: Settled { units, bytes, .. }, message } = Done::decode(value)?;
            let (attempts, priority, payload) = (message.attempts, message.priority, message.payload);
            Ok(DoneMessage { id, key, at, units, bytes, attempts, priority, payload })
        })
    }

    /// The messages of a queue that are leased and come behind `after` (key, message), by these, at most `limit`.
    pub fn pending(
        &self,
        queue: QueueId,
        after: Option<(&[u8], MessageId)>,
        limit: usize,
    ) -> Result<Vec<PendingMessage>> {
        let now = self.log_time()?;
        let mut range = self.tables.all_of_queue(Table::Leased, queue);
        if let Some((key, id)) = after {
            range.0 = behind(self.tables.leased(queue, key, id));
        }
        let messages = self.list(range, limit, |mut parts, value| {
            parts.u64()?;
            Ok((Bytes::from(parts.bytes()?), read_id(&mut parts)?, Stored::decode(value)?))
        })?;
        let mut pending = Vec::with_capacity(messages.len());
        let mut lease: Option<(Bytes, Option<Lease>)> = None;
        for (key, id, message) in messages {
            if lease.as_ref().is_none_or(|(of, _)| *of != key) {
                let found = self.record::<Key>(&self.tables.of_key(Table::Key, queue, &key))?;
                lease = Some((key.clone(), found.and_then(|found| found.lease)));
            }
            let Some((_, Some(lease))) = &lease else { continue };
            pending.push(PendingMessage {
                id,
                key,
                consumer: lease.consumer,
                fence: lease.fence,
                idle_ms: now.saturating_sub(lease.used_at),
                left_ms: lease.expires_at.saturating_sub(now),
                attempts: message.attempts,
                priority: message.priority,
            });
        }
        Ok(pending)
    }

    /// A checkpoint.
    pub fn checkpoint(&self, name: &str) -> Result<Option<CheckpointInfo>> {
        let found = self.reader.get(Family::State, &self.tables.named(Table::Checkpoint, name))?;
        let found = found.map(Checkpoint::decode).transpose()?;
        Ok(found.map(checkpoint_info))
    }

    /// A worker that has ever attached.
    pub fn consumer(&self, node: u64) -> Result<Option<ConsumerInfo>> {
        let found = self.record::<Receipts>(&self.tables.consumer(node))?;
        Ok(found.map(|Receipts { epoch, judged_upto, released_upto, refused }| ConsumerInfo {
            consumer: Consumer { node, epoch },
            judged_upto,
            released_upto,
            refused,
        }))
    }
}

/// The first key behind `row`.
fn behind(mut row: Vec<u8>) -> Vec<u8> {
    row.push(0);
    row
}

fn checkpoint_info(checkpoint: Checkpoint) -> CheckpointInfo {
    let Checkpoint { version, oldest, at, value } = checkpoint;
    CheckpointInfo { version, oldest, at, value }
}

fn queue_info(id: QueueId, queue: Queue) -> QueueInfo {
    QueueInfo {
        id,
        name: queue.name,
        config: queue.config,
        state: queue.state,
        counters: queue.counters,
        waiting_keys: queue.schedule.count,
        leased_keys: queue.expiry.count,
        exhausted_keys: queue.exhausted,
    }
}

fn lease_info(key: &Bytes, record: &Key) -> Option<LeaseInfo> {
    let lease = record.lease?;
    Some(LeaseInfo {
        key: key.clone(),
        consumer: lease.consumer,
        fence: lease.fence,
        expires_at: lease.expires_at,
        leased: record.leased,
    })
}

fn key_info(key: Bytes, record: Key, now: LogTime) -> KeyInfo {
    KeyInfo {
        lease: lease_info(&key, &record),
        key,
        ready: record.ready,
        delayed: record.delayed,
        leased: record.leased,
        hold_ms: record.hold_until.saturating_sub(now),
        delay_ms: record.delay_ms,
        units: record.units,
        bytes: record.bytes,
        exhausted: record.exhausted,
    }
}

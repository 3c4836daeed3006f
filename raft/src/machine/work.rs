//! The application of one entry: its time, the records it touches, and what all commands share: catching up with log
//! time, a queue's state, what is due next.

use bytes::Bytes;
use dolomedes_storage::{Error, Result, engine::Family};

use super::{
    limits,
    overlay::Overlay,
    place::Place,
    records::{Clock, Queue, Stored},
    seen::SeenFilter,
    tables::{Table, Tables, parts, read_id},
};
use crate::command::{Command, Consumer, LogTime, QueueId, QueueState, Refusal, Reply};

/// How many rows one scan of catching up brings into memory.
const PAGE: usize = 256;

/// One entry being applied.
pub(super) struct Work<'w, 'a> {
    pub(super) store: &'w mut Overlay<'a>,
    pub(super) tables: Tables,
    pub(super) seen: &'w SeenFilter,
    /// The entry's log position.
    pub(super) index: u64,
    /// Log time.
    pub(super) now: LogTime,
    /// The next message's place in the entry.
    pub(super) ordinal: u32,
}

impl<'w, 'a> Work<'w, 'a> {
    pub(super) fn begin(
        store: &'w mut Overlay<'a>,
        tables: Tables,
        seen: &'w SeenFilter,
        index: u64,
        stamp: u64,
    ) -> Result<Self> {
        let mut work = Self { store, tables, seen, index, now: 0, ordinal: 0 };
        let clock = work.clock()?;
        clock.now = clock.now.max(stamp);
        work.now = clock.now;
        Ok(work)
    }

    pub(super) fn run(&mut self, command: &Command) -> Result<Reply> {
        match command {
            Command::CreateQueue { name, config, spec } => self.create_queue(name, config, spec),
            Command::ConfigureQueue { queue, config, spec } => {
                self.configure_queue(*queue, config, spec.as_ref())
            }
            Command::SetQueueState { queue, state } => self.set_queue_state(*queue, *state),
            Command::DropQueue { queue } => self.drop_queue(*queue),
            Command::Put { queue, messages } => self.put(*queue, messages),
            Command::Claim { queue, consumer, keys, per_key, more, ttl_ms } => {
                self.claim(*queue, *consumer, (*keys, *per_key), more, *ttl_ms)
            }
            Command::Renew { queue, consumer, leases, ttl_ms } => {
                self.renew(*queue, *consumer, leases, *ttl_ms)
            }
            Command::Complete { queue, consumer, completions, released_upto } => {
                self.complete(*queue, *consumer, completions, *released_upto)
            }
            Command::Attach { node } => self.attach(*node),
            Command::Redrive { queue, key, reason, limit } => {
                self.redrive(*queue, key.as_ref(), reason.as_deref(), *limit)
            }
            Command::SetCheckpoint { name, expect, value, keep, guard } => {
                self.set_checkpoint(name, *expect, value.as_ref(), *keep, guard.as_ref())
            }
            Command::Tick => self.tick(),
            Command::Replay { queue, key, from, within_ms, limit } => {
                self.replay(*queue, key.as_ref(), *from, *within_ms, *limit)
            }
            Command::Purge { queue, from, key, limit } => self.purge(*queue, *from, key.as_ref(), *limit),
            Command::Recall { queue, worker, from, limit } => self.recall(*queue, *worker, *from, *limit),
            Command::OpenSession { ttl_ms } => self.open_session(*ttl_ms),
            Command::KeepAlive { sessions } => self.keep_alive(sessions),
            Command::CloseSession { session } => self.close_session(*session),
            Command::Acquire { lock, session, wait } => self.acquire(lock, *session, *wait),
            Command::Release { lock, session, fence } => self.release(lock, *session, *fence),
            Command::Txn { compare, ops } => self.txn(compare, ops),
            Command::ConfigureFeed { retention } => self.configure_feed(*retention),
            Command::OpenClient { client } => self.open_client(*client),
            Command::Once { client, sequence, command } => self.once(*client, *sequence, command),
            Command::Bootstrap { cluster, groups, first, access } => {
                self.bootstrap(*cluster, *groups, first, access.as_ref())
            }
            Command::EnrolNode { uuid, address, version, token } => {
                self.enrol_node(*uuid, address, version, token.as_ref())
            }
            Command::SetNode { node, address, version, wish } => {
                self.set_node(*node, address.as_deref(), version.as_deref(), *wish)
            }
            Command::RemoveNode { node } => self.remove_node(*node),
            Command::MakeToken { hash, kind, label, ttl_ms, uses } => {
                self.make_token(hash, *kind, label, *ttl_ms, *uses)
            }
            Command::RevokeToken { hash } => self.revoke_token(hash),
            Command::SetVoters { group, nodes } => self.set_voters(*group, nodes),
        }
    }

    pub(super) fn clock(&mut self) -> Result<&mut Clock> {
        let tables = self.tables;
        self.store.clock.get_or(&self.store.rows, (), |()| tables.clock(), Clock::default)
    }

    pub(super) fn queue(&mut self, id: QueueId) -> Result<Option<&mut Queue>> {
        let tables = self.tables;
        self.store.queues.get(&self.store.rows, id, |&id| tables.of_queue(Table::Queue, id))
    }

    /// A queue that is known to exist.
    pub(super) fn existing(&mut self, id: QueueId) -> Result<&mut Queue> {
        self.queue(id)?.ok_or_else(|| Error::corrupt("queue record", "rows name a queue that is not there"))
    }

    /// The key `name` of a queue; `None` where either does not exist.
    pub(super) fn place<'p>(&'p mut self, id: QueueId, name: &'p Bytes) -> Result<Option<Place<'p, 'a>>> {
        if name.len() > limits::KEY_BYTES {
            return Ok(None);
        }
        let (tables, now) = (self.tables, self.now);
        let Overlay { rows, queues, keys, .. } = &mut *self.store;
        let queue = queues.get(rows, id, |&id| tables.of_queue(Table::Queue, id))?;
        let key = keys.get(rows, (id, name.clone()), |(id, name)| tables.of_key(Table::Key, *id, name))?;
        Ok(queue.zip(key).map(|(queue, key)| Place { rows, tables, now, id, queue, name, key }))
    }

    /// A key that rows name.
    pub(super) fn existing_place<'p>(&'p mut self, id: QueueId, name: &'p Bytes) -> Result<Place<'p, 'a>> {
        self.place(id, name)?.ok_or_else(|| Error::corrupt("key record", "rows name a key that is not there"))
    }

    /// Refuses a consumer that is not the newest incarnation of its node.
    pub(super) fn check_consumer(&mut self, consumer: Consumer) -> Result<Result<(), Reply>> {
        let tables = self.tables;
        let Overlay { rows, receipts, .. } = &mut *self.store;
        let known = receipts.look(rows, consumer.node, |&node| tables.consumer(node))?;
        let Consumer { node, epoch } = consumer;
        Ok(match known {
            Some(known) if known.epoch == epoch => Ok(()),
            _ => Err(Reply::Refused(Refusal::StaleConsumer { node, epoch })),
        })
    }

    /// All queues, ascending.
    pub(super) fn queue_ids(&self) -> Result<Vec<QueueId>> {
        let (from, to) = self.tables.all(Table::Queue);
        let limit = usize::try_from(limits::QUEUES).unwrap_or(usize::MAX);
        let rows = self.store.rows.first(Family::State, (&from, &to), limit)?;
        rows.iter().map(|(row, _)| Ok(parts(row).u64()?)).collect()
    }

    /// Promotes delayed messages whose time has come, and looks at exhausted keys again after a change of their budget.
    /// Each takes a step; without steps left, the rest waits for a later command.
    pub(super) fn promote(&mut self, id: QueueId, steps: &mut usize) -> Result<()> {
        self.review(id, steps)?;
        loop {
            let (tables, now) = (self.tables, self.now);
            let queue = self.existing(id)?;
            let limit = PAGE.min(*steps);
            if limit == 0 || queue.delayed.count == 0 || queue.delayed.from > now {
                return Ok(());
            }
            let (from, to) = tables.times(Table::Delayed, id, queue.delayed.from, now);
            let found = self.store.rows.first(Family::State, (&from, &to), limit)?;
            let through = found.len() < limit;
            let mut last = now;
            for (row, value) in found {
                let mut parts = parts(&row);
                parts.u64()?;
                let (due, name, message) = (parts.u64()?, Bytes::from(parts.bytes()?), read_id(&mut parts)?);
                let mut place = self.existing_place(id, &name)?;
                place.take_delayed(row)?;
                place.add_ready(message, &Stored::decode(value)?, due);
                last = due;
                *steps -= 1;
            }
            self.existing(id)?.delayed.from = if through { now.saturating_add(1) } else { last };
        }
    }

    fn review(&mut self, id: QueueId, steps: &mut usize) -> Result<()> {
        while *steps > 0 {
            let Some(after) = self.existing(id)?.review.clone() else { return Ok(()) };
            let (mut from, to) = self.tables.all_of_queue(Table::Exhausted, id);
            if !after.is_empty() {
                from = self.tables.of_key(Table::Exhausted, id, &after);
                from.push(0);
            }
            let limit = PAGE.min(*steps);
            let found = self.store.rows.first(Family::State, (&from, &to), limit)?;
            let mut next = None;
            for (row, _) in &found {
                let mut parts = parts(row);
                parts.u64()?;
                let name = Bytes::from(parts.bytes()?);
                self.existing_place(id, &name)?.judge_budget()?;
                *steps -= 1;
                next = Some(name);
            }
            self.existing(id)?.review = next.filter(|_| found.len() == limit);
        }
        Ok(())
    }

    /// Ends leases that have run out. Each takes a step, and each of its messages another.
    pub(super) fn expire(&mut self, id: QueueId, steps: &mut usize) -> Result<()> {
        loop {
            let (tables, now) = (self.tables, self.now);
            let queue = self.existing(id)?;
            let limit = PAGE.min(*steps);
            if limit == 0 || queue.expiry.count == 0 || queue.expiry.from > now {
                return Ok(());
            }
            let (from, to) = tables.times(Table::Expiry, id, queue.expiry.from, now);
            let found = self.store.rows.first(Family::State, (&from, &to), limit)?;
            let mut through = found.len() < limit;
            let mut last = now;
            for (row, _) in found {
                if *steps == 0 {
                    through = false;
                    break;
                }
                let mut parts = parts(&row);
                parts.u64()?;
                let (at, name) = (parts.u64()?, Bytes::from(parts.bytes()?));
                let moved = self.existing_place(id, &name)?.lose_lease()?;
                *steps = steps.saturating_sub(moved.saturating_add(1));
                last = at;
            }
            self.existing(id)?.expiry.from = if through { now.saturating_add(1) } else { last };
        }
    }

    /// Brings a queue's state in line with its numbers. To be called after every change of them.
    pub(super) fn settle(&mut self, id: QueueId) -> Result<()> {
        let queue = self.existing(id)?;
        if matches!(queue.state, QueueState::Paused | QueueState::Cancelled) {
            return Ok(());
        }
        let (config, counters) = (&queue.config, &queue.counters);
        let spent = config.unit_budget.is_some_and(|budget| counters.units >= budget)
            || config.byte_budget.is_some_and(|budget| counters.bytes >= budget);
        queue.state = if queue.review.is_some() {
            QueueState::Running
        } else if config.finishes && counters.accepted > 0 && queue.live() == 0 {
            QueueState::Finished
        } else if spent && counters.leased == 0 {
            QueueState::BudgetReached
        } else {
            QueueState::Running
        };
        Ok(())
    }

    /// The earliest time in a table sorted by time.
    pub(super) fn earliest(&mut self, id: QueueId, table: Table) -> Result<Option<LogTime>> {
        let tables = self.tables;
        let timeline = self.timeline(id, table)?;
        if timeline.count == 0 {
            return Ok(None);
        }
        let (from, to) = tables.times(table, id, timeline.from, LogTime::MAX);
        let found = self.store.rows.first(Family::State, (&from, &to), 1)?;
        let (row, _) =
            found.first().ok_or_else(|| Error::corrupt("rows by time", "there are fewer than counted"))?;
        let mut parts = parts(row);
        parts.u64()?;
        let at = parts.u64()?;
        self.timeline(id, table)?.from = at;
        Ok(Some(at))
    }

    fn timeline(&mut self, id: QueueId, table: Table) -> Result<&mut super::records::Timeline> {
        let queue = self.existing(id)?;
        Ok(match table {
            Table::Schedule => &mut queue.schedule,
            Table::Delayed => &mut queue.delayed,
            _ => &mut queue.expiry,
        })
    }
}

//! One key of one queue, and how messages move in and out of its tables: the only code that changes counters, the
//! schedule, and the rows of messages and leases. So the invariants live here:
//!
//! - `accepted = ready + delayed + leased + done + dead + purged` in every queue; an exhausted key's ready rows count as dead.
//! - A key is in the schedule exactly if it is not leased, not exhausted and has ready messages.

use bytes::Bytes;
use dolomedes_storage::{Error, Result, engine::Family};

use super::{
    limits,
    records::{Dead, Done, Key, Lease, Queue, Settled, Stored, take},
    rows::Rows,
    tables::{Table, Tables, tail_id, under},
};
use crate::command::{Consumer, LogTime, Message, MessageId, QueueId};

/// Why a message is dead that was lost with its lease too often.
pub(super) const LOST: &str = "lost";

/// A key's record, its queue's, and the rows below them.
pub(super) struct Place<'p, 'a> {
    pub(super) rows: &'p mut Rows<'a>,
    pub(super) tables: Tables,
    pub(super) now: LogTime,
    pub(super) id: QueueId,
    pub(super) queue: &'p mut Queue,
    pub(super) name: &'p Bytes,
    pub(super) key: &'p mut Key,
}

impl Place<'_, '_> {
    /// Makes a message ready that is in no table and in no count. `since` is when it could have been leased first: keys
    /// are served in that order.
    pub(super) fn add_ready(&mut self, id: MessageId, message: &Stored, since: LogTime) {
        let row = self.tables.ready(self.id, self.name, message.priority, id);
        self.rows.put(Family::State, row, message.encode());
        let position = (limits::TOP_PRIORITY.saturating_sub(message.priority), id);
        if self.key.ready == 0 || position < self.key.ready_from {
            self.key.ready_from = position;
        }
        self.key.ready += 1;
        if self.key.exhausted {
            self.queue.counters.dead += 1;
        } else {
            self.queue.counters.ready += 1;
            self.schedule(since);
        }
    }

    /// Delays a message that is in no table and in no count.
    pub(super) fn add_delayed(&mut self, id: MessageId, message: &Stored, due: LogTime) {
        self.rows.put(Family::State, self.tables.delayed(self.id, due, self.name, id), message.encode());
        self.key.delayed += 1;
        self.queue.counters.delayed += 1;
        self.queue.delayed.added(due);
    }

    /// Makes a dead letter of a message that is in no table and in no count.
    pub(super) fn bury(&mut self, id: MessageId, message: Stored, reason: &str, (units, bytes): (u32, u64)) {
        let dead = Dead {
            key: self.name.clone(),
            reason: reason.to_owned(),
            at: self.now,
            settled: self.settled(units, bytes),
            message,
        };
        self.rows.put(Family::State, self.tables.dead(self.id, id), dead.encode());
        self.queue.counters.dead += 1;
    }

    /// Ends a message that is in no table and in no count as worked off.
    pub(super) fn finish(&mut self, id: MessageId, message: Stored, units: u32, bytes: u64) {
        self.queue.counters.done += 1;
        if self.queue.config.retention_ms > 0 {
            let done = Done { key: self.name.clone(), settled: self.settled(units, bytes), message };
            self.rows.put(Family::State, self.tables.done(self.id, self.now, id), done.encode());
            self.queue.done_from.get_or_insert(self.now);
        }
    }

    /// What is kept of how a message ended: its worker is who holds the key.
    fn settled(&self, units: u32, bytes: u64) -> Settled {
        Settled { worker: self.key.lease.map_or(0, |lease| lease.consumer.node), units, bytes }
    }

    /// Takes a delayed message out of its table and its counts.
    pub(super) fn take_delayed(&mut self, row: Vec<u8>) -> Result<()> {
        self.rows.delete(Family::State, row);
        take(&mut self.key.delayed, 1, "delayed messages of a key")?;
        take(&mut self.queue.counters.delayed, 1, "delayed messages")?;
        self.queue.delayed.removed()
    }

    /// Throws a ready message away.
    pub(super) fn purge_ready(&mut self, row: Vec<u8>) -> Result<()> {
        self.rows.delete(Family::State, row);
        take(&mut self.key.ready, 1, "ready messages of a key")?;
        let counters = &mut self.queue.counters;
        counters.purged += 1;
        if self.key.exhausted {
            return take(&mut counters.dead, 1, "dead letters of exhausted keys");
        }
        take(&mut counters.ready, 1, "ready messages")?;
        if self.key.ready == 0 { self.unschedule() } else { Ok(()) }
    }

    /// Takes a leased message out of its table and its counts.
    pub(super) fn take_leased(&mut self, id: MessageId) -> Result<()> {
        self.rows.delete(Family::State, self.tables.leased(self.id, self.name, id));
        take(&mut self.key.leased, 1, "leased messages of a key")?;
        take(&mut self.queue.counters.leased, 1, "leased messages")
    }

    /// Leases up to `limit` ready messages, the oldest of the highest priority first. The caller saw to the key's lease.
    pub(super) fn grant(&mut self, limit: u64) -> Result<Vec<Message>> {
        let limit = limit.min(self.key.ready);
        let (priority, id) = self.key.ready_from;
        let from = self.tables.ready(self.id, self.name, limits::TOP_PRIORITY.saturating_sub(priority), id);
        let (_, to) = under(self.tables.of_key(Table::Ready, self.id, self.name));
        let found =
            self.rows.first(Family::State, (&from, &to), usize::try_from(limit).unwrap_or(usize::MAX))?;
        if found.len() as u64 != limit {
            return Err(Error::corrupt("ready messages", "a key has fewer than it counts"));
        }
        let mut messages = Vec::with_capacity(found.len());
        for (row, value) in found {
            let id = tail_id(&row)?;
            let mut message = Stored::decode(value)?;
            message.attempts = message.attempts.saturating_add(1);
            self.rows.put(Family::State, self.tables.leased(self.id, self.name, id), message.encode());
            self.rows.delete(Family::State, row);
            self.key.ready_from = (limits::TOP_PRIORITY.saturating_sub(message.priority), id);
            let failures = message.failures().saturating_sub(1);
            let Stored { attempts: attempt, lost, priority, payload, .. } = message;
            messages.push(Message { id, attempt, failures, lost, priority, payload });
        }
        take(&mut self.key.ready, limit, "ready messages of a key")?;
        take(&mut self.queue.counters.ready, limit, "ready messages")?;
        self.key.leased += limit;
        self.queue.counters.leased += limit;
        Ok(messages)
    }

    /// How many more messages the budgets and bounds of the key and its queue let be leased.
    pub(super) fn room(&self) -> u64 {
        let config = &self.queue.config;
        if config.key_byte_budget.is_some_and(|budget| self.key.bytes >= budget) {
            return 0;
        }
        let units = config
            .key_unit_budget
            .map_or(u64::MAX, |budget| budget.saturating_sub(self.key.units).saturating_sub(self.key.leased));
        let leased = limits::LEASED_PER_KEY.saturating_sub(self.key.leased);
        units.min(leased).min(room_in(self.queue))
    }

    /// Charges units and bytes.
    pub(super) fn charge(&mut self, units: u32, bytes: u64) {
        for (count, by) in [
            (&mut self.key.units, u64::from(units)),
            (&mut self.queue.counters.units, u64::from(units)),
            (&mut self.key.bytes, bytes),
            (&mut self.queue.counters.bytes, bytes),
        ] {
            *count = count.saturating_add(by);
        }
    }

    /// Takes back what a message was charged.
    pub(super) fn take_back(&mut self, units: u32, bytes: u64) -> Result<()> {
        let units = u64::from(units);
        take(&mut self.key.units, units, "units charged to a key")?;
        take(&mut self.queue.counters.units, units, "units charged")?;
        take(&mut self.key.bytes, bytes, "bytes charged to a key")?;
        take(&mut self.queue.counters.bytes, bytes, "bytes charged")
    }

    /// Compares what the key was charged with its budget as it is now: exhausts or revives it.
    pub(super) fn judge_budget(&mut self) -> Result<()> {
        let config = &self.queue.config;
        let over = config.key_unit_budget.is_some_and(|budget| self.key.units >= budget)
            || config.key_byte_budget.is_some_and(|budget| self.key.bytes >= budget);
        if over == self.key.exhausted {
            return Ok(());
        }
        self.key.exhausted = over;
        let row = self.tables.of_key(Table::Exhausted, self.id, self.name);
        let counters = &mut self.queue.counters;
        if over {
            take(&mut counters.ready, self.key.ready, "ready messages")?;
            counters.dead += self.key.ready;
            self.queue.exhausted += 1;
            self.rows.put(Family::State, row, Vec::new());
            self.unschedule()
        } else {
            take(&mut counters.dead, self.key.ready, "dead letters of exhausted keys")?;
            counters.ready += self.key.ready;
            take(&mut self.queue.exhausted, 1, "exhausted keys")?;
            self.rows.delete(Family::State, row);
            self.schedule(self.now);
            Ok(())
        }
    }

    fn schedule(&mut self, since: LogTime) {
        if self.key.due.is_some() || self.key.lease.is_some() || self.key.exhausted || self.key.ready == 0 {
            return;
        }
        let due = since.max(self.key.hold_until);
        self.key.due = Some(due);
        self.queue.schedule.added(due);
        self.rows.put(
            Family::State,
            self.tables.timed_key(Table::Schedule, self.id, due, self.name),
            Vec::new(),
        );
    }

    fn unschedule(&mut self) -> Result<()> {
        let Some(due) = self.key.due.take() else { return Ok(()) };
        self.rows.delete(Family::State, self.tables.timed_key(Table::Schedule, self.id, due, self.name));
        self.queue.schedule.removed()
    }

    /// Leases the key, which is in the schedule, under a new fence.
    pub(super) fn begin_lease(&mut self, consumer: Consumer, index: u64, expires_at: LogTime) -> Result<()> {
        self.unschedule()?;
        let fence = index.max(self.key.last_fence.saturating_add(1));
        self.key.last_fence = fence;
        self.key.lease = Some(Lease { consumer, fence, expires_at, used_at: self.now, release: false });
        self.queue.expiry.added(expires_at);
        self.rows.put(
            Family::State,
            self.tables.timed_key(Table::Expiry, self.id, expires_at, self.name),
            Vec::new(),
        );
        self.rows.put(Family::State, self.tables.held(self.id, consumer.node, self.name), Vec::new());
        Ok(())
    }

    /// Moves the end of the key's lease out to `expires_at`; never in.
    pub(super) fn prolong(&mut self, expires_at: LogTime) -> Result<()> {
        if let Some(lease) = self.key.lease.as_mut() {
            lease.used_at = self.now;
        }
        let Some(lease) = self.key.lease.as_mut().filter(|lease| lease.expires_at < expires_at) else {
            return Ok(());
        };
        let before = std::mem::replace(&mut lease.expires_at, expires_at);
        self.queue.expiry.removed()?;
        self.queue.expiry.added(expires_at);
        let row = |at| self.tables.timed_key(Table::Expiry, self.id, at, self.name);
        self.rows.delete(Family::State, row(before));
        self.rows.put(Family::State, row(expires_at), Vec::new());
        Ok(())
    }

    /// Whether `consumer` holds the key under `fence`.
    pub(super) fn is_held(&self, consumer: Consumer, fence: u64) -> bool {
        self.key.lease.is_some_and(|lease| lease.consumer == consumer && lease.fence == fence)
    }

    /// Gives the key back: nothing of it is leased any more.
    pub(super) fn end_lease(&mut self) -> Result<()> {
        let Some(lease) = self.key.lease.take() else { return Ok(()) };
        self.queue.expiry.removed()?;
        self.rows.delete(
            Family::State,
            self.tables.timed_key(Table::Expiry, self.id, lease.expires_at, self.name),
        );
        self.rows.delete(Family::State, self.tables.held(self.id, lease.consumer.node, self.name));
        self.schedule(self.now);
        Ok(())
    }

    /// Ends the key's lease against its owner: its messages are ready again at their old place, or dead after too many
    /// losses, and the key is held for its delay. Returns how many messages were moved.
    pub(super) fn lose_lease(&mut self) -> Result<usize> {
        let (from, to) = under(self.tables.of_key(Table::Leased, self.id, self.name));
        let limit = usize::try_from(self.key.leased).unwrap_or(usize::MAX);
        let found = self.rows.first(Family::State, (&from, &to), limit)?;
        if found.len() != limit {
            return Err(Error::corrupt("leased messages", "a key has fewer than it counts"));
        }
        self.key.hold_until = self.key.hold_until.max(self.now.saturating_add(self.key.delay_ms));
        self.end_lease()?;
        for (row, value) in found {
            let id = tail_id(&row)?;
            let mut message = Stored::decode(value)?;
            message.lost = message.lost.saturating_add(1);
            self.take_leased(id)?;
            if message.lost >= self.queue.config.max_lost {
                self.bury(id, message, LOST, (0, 0));
            } else {
                self.add_ready(id, &message, self.now);
            }
        }
        self.queue.counters.lost += 1;
        Ok(limit)
    }

    /// Messages of the key that can be leased.
    pub(super) fn ready_left(&self) -> u64 {
        if self.key.exhausted { 0 } else { self.key.ready }
    }
}

/// How many more messages the budgets and bounds of `queue` let be leased.
pub(super) fn room_in(queue: &Queue) -> u64 {
    let (config, counters) = (&queue.config, &queue.counters);
    if config.byte_budget.is_some_and(|budget| counters.bytes >= budget) {
        return 0;
    }
    let units = config
        .unit_budget
        .map_or(u64::MAX, |budget| budget.saturating_sub(counters.units).saturating_sub(counters.leased));
    units.min(limits::LEASED_PER_QUEUE.saturating_sub(counters.leased))
}

//! Leasing keys and their messages.

use bytes::Bytes;
use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    place::room_in,
    tables::{Table, parts},
    work::Work,
};
use crate::command::{
    Claimed, Consumer, Grant, LeaseRef, LogTime, MoreOf, QueueId, QueueState, Refusal, Reply,
};

/// How many rows of the schedule one scan brings into memory.
const PAGE: usize = 256;

/// Exhausted keys that one claim may step over when a budget was lowered; the rest waits for the next claim.
const STALE_KEYS: usize = 1_024;

/// One claim being carried out.
struct Claim {
    queue: QueueId,
    consumer: Consumer,
    /// When its leases end.
    expires_at: LogTime,
    /// Messages that it may still be granted.
    left: u64,
}

/// What is wrong with a lease's term.
pub(super) fn bad_ttl(ttl_ms: u64) -> Option<Reply> {
    (ttl_ms == 0 || ttl_ms > limits::TTL_MS).then(|| {
        Reply::Refused(Refusal::Invalid(format!(
            "a lease of {ttl_ms} ms; 1 to {} are allowed",
            limits::TTL_MS
        )))
    })
}

/// What is wrong with the number of leases that a command names.
pub(super) fn too_many_leases(count: usize) -> Option<Reply> {
    (count > limits::LEASES_PER_COMMAND).then(|| {
        let most = limits::LEASES_PER_COMMAND;
        Reply::Refused(Refusal::Invalid(format!("{count} leases at once, at most {most} are allowed")))
    })
}

impl Work<'_, '_> {
    /// In this order: delayed messages whose time has come become ready; leases named in `more` are renewed and get
    /// more; leases that have run out end; new leases are granted. So an owner that comes late for its own lease, but
    /// before anyone noticed, keeps it.
    pub(super) fn claim(
        &mut self,
        id: QueueId,
        consumer: Consumer,
        (keys, per_key): (u32, u32),
        more: &[MoreOf],
        ttl_ms: u64,
    ) -> Result<Reply> {
        if let Some(refused) = bad_ttl(ttl_ms).or_else(|| too_many_leases(more.len())) {
            return Ok(refused);
        }
        if self.queue(id)?.is_none() {
            return Ok(Reply::Refused(Refusal::NoQueue(id)));
        }
        if let Err(refused) = self.check_consumer(consumer)? {
            return Ok(refused);
        }
        let mut claim = Claim {
            queue: id,
            consumer,
            expires_at: self.now.saturating_add(ttl_ms),
            left: limits::CLAIM_MESSAGES,
        };
        let mut steps = limits::CATCH_UP_STEPS;
        self.promote(id, &mut steps)?;
        self.settle(id)?;
        let running = self.existing(id)?.state == QueueState::Running;
        let mut got_more = Vec::new();
        for more in more {
            let limit = if running { u64::from(more.messages) } else { 0 };
            got_more.extend(self.grant_more(&mut claim, more, limit)?);
        }
        self.expire(id, &mut steps)?;
        self.settle(id)?;
        let mut grants = Vec::new();
        if self.existing(id)?.state == QueueState::Running {
            self.grant_keys(&mut claim, keys as usize, per_key.into(), &mut grants)?;
            self.settle(id)?;
        }
        grants.append(&mut got_more);
        let state = self.existing(id)?.state;
        Ok(Reply::Claimed(Claimed { grants, state, next_due_ms: self.next_due(id)? }))
    }

    fn grant_more(&mut self, claim: &mut Claim, more: &MoreOf, limit: u64) -> Result<Option<Grant>> {
        let now = self.now;
        let LeaseRef { key: name, fence } = &more.lease;
        let Some(mut place) = self.place(claim.queue, name)? else { return Ok(None) };
        if !place.is_held(claim.consumer, *fence) {
            return Ok(None);
        }
        place.prolong(claim.expires_at)?;
        let limit = if place.key.exhausted { 0 } else { limit.min(claim.left).min(place.room()) };
        let messages = place.grant(limit)?;
        if messages.is_empty() {
            return Ok(None);
        }
        claim.left -= messages.len() as u64;
        if let Some(lease) = place.key.lease.as_mut() {
            lease.release = false;
        }
        Ok(Some(Grant {
            lease: more.lease.clone(),
            ttl_ms: place.key.lease.map_or(0, |lease| lease.expires_at.saturating_sub(now)),
            hold_ms: place.key.hold_until.saturating_sub(now),
            delay_ms: place.key.delay_ms,
            note: None,
            messages,
            ready_left: place.ready_left(),
        }))
    }

    /// Leases up to `keys` keys from the front of the schedule.
    fn grant_keys(
        &mut self,
        claim: &mut Claim,
        keys: usize,
        per_key: u64,
        grants: &mut Vec<Grant>,
    ) -> Result<()> {
        let (id, tables, now) = (claim.queue, self.tables, self.now);
        let keys = keys.min(limits::LEASES_PER_COMMAND);
        let mut stale = 0;
        while grants.len() < keys && per_key > 0 && stale < STALE_KEYS {
            let queue = self.existing(id)?;
            if queue.schedule.count == 0 || queue.schedule.from > now {
                return Ok(());
            }
            let limit = PAGE.min(keys - grants.len());
            let (from, to) = tables.times(Table::Schedule, id, queue.schedule.from, now);
            let due = self.store.rows.first(Family::State, (&from, &to), limit)?;
            let through = due.len() < limit;
            for (row, _) in due {
                let queue = self.existing(id)?;
                if claim.left == 0 || room_in(queue) == 0 || queue.expiry.count >= limits::LEASES_PER_QUEUE {
                    return Ok(());
                }
                let mut parts = parts(&row);
                parts.u64()?;
                let (at, name) = (parts.u64()?, Bytes::from(parts.bytes()?));
                queue.schedule.from = at;
                match self.grant_key(claim, name, per_key)? {
                    Some(grant) => grants.push(grant),
                    None => stale += 1,
                }
            }
            if through {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Leases one key of the schedule; `None` if it turns out to be at its budget.
    fn grant_key(&mut self, claim: &mut Claim, name: Bytes, per_key: u64) -> Result<Option<Grant>> {
        let (id, index, now) = (claim.queue, self.index, self.now);
        let mut place = self.existing_place(id, &name)?;
        place.judge_budget()?;
        if place.key.exhausted {
            return Ok(None);
        }
        place.begin_lease(claim.consumer, index, claim.expires_at)?;
        let messages = place.grant(per_key.min(claim.left).min(place.room()))?;
        claim.left -= messages.len() as u64;
        let (fence, delay_ms) = (place.key.last_fence, place.key.delay_ms);
        let (ready_left, noted) = (place.ready_left(), place.key.noted);
        let note = if noted {
            let row = self.tables.of_key(Table::Note, id, &name);
            self.store.rows.get(Family::State, &row)?.map(Bytes::from)
        } else {
            None
        };
        Ok(Some(Grant {
            lease: LeaseRef { key: name, fence },
            ttl_ms: claim.expires_at.saturating_sub(now),
            hold_ms: 0,
            delay_ms,
            note,
            messages,
            ready_left,
        }))
    }

    /// Until a claim may get something: until the next key of the schedule, delayed message or end of a lease. Keys and
    /// delayed messages do not count while a budget or bound keeps them back; nothing counts in a queue that grants no
    /// claims.
    fn next_due(&mut self, id: QueueId) -> Result<Option<u64>> {
        let queue = self.existing(id)?;
        if queue.state != QueueState::Running {
            return Ok(None);
        }
        if queue.review.is_some() {
            return Ok(Some(0));
        }
        let open = room_in(queue) > 0 && queue.expiry.count < limits::LEASES_PER_QUEUE;
        let mut due = self.earliest(id, Table::Expiry)?;
        if open {
            for table in [Table::Schedule, Table::Delayed] {
                due = due.into_iter().chain(self.earliest(id, table)?).min();
            }
        }
        Ok(due.map(|at| at.saturating_sub(self.now)))
    }
}

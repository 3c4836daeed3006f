//! Locks: one holder, a line of waiters, and a fence that rises with every grant. A free lock has no rows.

use dolomedes_storage::{Error, Result, engine::Family};

use super::{
    limits,
    records::{Holder, Item, Lock, NumberRow, Record, take},
    tables::{Table, parts},
    work::Work,
};
use crate::command::{Acquired, Change, Fence, Guard, Refusal, Reply, SessionId};

impl Work<'_, '_> {
    pub(super) fn acquire(&mut self, name: &str, id: SessionId, wait: bool) -> Result<Reply> {
        if !(1..=limits::NAME_BYTES).contains(&name.len()) {
            return Ok(Reply::Refused(Refusal::Invalid(format!(
                "the name of a lock has {} bytes, 1 to {} are allowed",
                name.len(),
                limits::NAME_BYTES
            ))));
        }
        self.end_sessions(&mut { limits::CATCH_UP_STEPS })?;
        let Some(session) = self.session(id)? else { return Ok(Reply::Refused(Refusal::NoSession(id))) };
        let Some(mut lock) = self.lock(name)? else {
            if let Some(full) = Self::no_room_in(id, &session) {
                return Ok(full);
            }
            self.tie(id, Item::Holds, name.as_bytes(), 0)?;
            let holder = self.grant_lock(name, id)?;
            self.store_lock(name, Lock { holder, waiters: 0, head: 0, next: 0 });
            return Ok(Reply::Acquired(Acquired::Granted { fence: holder.fence }));
        };
        let Holder { session: holder, fence, .. } = lock.holder;
        if holder == id {
            return Ok(Reply::Acquired(Acquired::Granted { fence }));
        }
        if let Some(ticket) = self.ticket(id, name)? {
            return Ok(Reply::Acquired(Acquired::Queued { ticket }));
        }
        if !wait {
            return Ok(Reply::Acquired(Acquired::Taken { session: holder, fence }));
        }
        if lock.waiters >= limits::LOCK_WAITERS {
            return Ok(Reply::Refused(Refusal::Full(format!(
                "{} sessions wait for this lock, which is the most; try again later",
                limits::LOCK_WAITERS
            ))));
        }
        if let Some(full) = Self::no_room_in(id, &session) {
            return Ok(full);
        }
        let ticket = lock.next;
        lock.next = ticket.saturating_add(1);
        lock.waiters += 1;
        self.tie(id, Item::Waits, name.as_bytes(), ticket)?;
        let row = self.tables.named_at(Table::Waiter, name, ticket);
        self.store.rows.put(Family::State, row, NumberRow(id).encode());
        self.store_lock(name, lock);
        Ok(Reply::Acquired(Acquired::Queued { ticket }))
    }

    pub(super) fn release(&mut self, name: &str, id: SessionId, fence: Option<Fence>) -> Result<Reply> {
        let Some(lock) = self.lock(name)? else { return Ok(Reply::Released(false)) };
        if lock.holder.session == id {
            if fence.is_some_and(|fence| fence != lock.holder.fence) {
                return Ok(Reply::Released(false));
            }
            self.untie(id, Item::Holds, name.as_bytes())?;
            self.let_go(name, id)?;
            return Ok(Reply::Released(true));
        }
        if fence.is_some() || self.ticket(id, name)?.is_none() {
            return Ok(Reply::Released(false));
        }
        self.leave(name, id)?;
        self.untie(id, Item::Waits, name.as_bytes())?;
        Ok(Reply::Released(true))
    }

    /// Whether the lock is held so; if not, the fence of its present grant, or 0.
    pub(super) fn check_guard(&self, guard: &Guard) -> Result<std::result::Result<(), Fence>> {
        if guard.lock.len() > limits::NAME_BYTES {
            return Ok(Err(0));
        }
        let fence = self.lock(&guard.lock)?.map_or(0, |lock| lock.holder.fence);
        Ok(if fence == guard.fence && fence > 0 { Ok(()) } else { Err(fence) })
    }

    /// Takes the lock from its holder, who is untied by the caller, and gives it to the next in line: the first row at or
    /// behind the head of the line, so that neither its length nor what left it costs anything.
    pub(super) fn let_go(&mut self, name: &str, id: SessionId) -> Result<()> {
        let mut lock = self.standing(name)?;
        if lock.holder.session != id {
            return Err(Error::corrupt("lock record", "another session has it than is tied to it"));
        }
        let fence = lock.holder.fence;
        self.emit(Change::Released { lock: name.to_owned(), session: id, fence })?;
        if lock.waiters == 0 {
            self.store.rows.delete(Family::State, self.tables.named(Table::Lock, name));
            return Ok(());
        }
        let from = self.tables.named_at(Table::Waiter, name, lock.head);
        let (_, to) = self.tables.all_named(Table::Waiter, name);
        let next = self.store.rows.first(Family::State, (&from, &to), 1)?.into_iter().next();
        let (row, value) =
            next.ok_or_else(|| Error::corrupt("waiters for a lock", "there are fewer than are counted"))?;
        let mut parts = parts(&row);
        parts.bytes()?;
        let (ticket, NumberRow(next)) = (parts.u64()?, NumberRow::decode(&value)?);
        self.store.rows.delete(Family::State, row);
        take(&mut lock.waiters, 1, "waiters for a lock")?;
        lock.head = ticket.saturating_add(1);
        self.promote_item(next, name);
        lock.holder = self.grant_lock(name, next)?;
        self.store_lock(name, lock);
        Ok(())
    }

    /// Takes the session, which is untied by the caller, out of the line.
    pub(super) fn leave(&mut self, name: &str, id: SessionId) -> Result<()> {
        let ticket = self.ticket(id, name)?;
        let ticket =
            ticket.ok_or_else(|| Error::corrupt("items of a session", "a place in line has no ticket"))?;
        let mut lock = self.standing(name)?;
        take(&mut lock.waiters, 1, "waiters for a lock")?;
        if lock.head == ticket {
            lock.head = ticket.saturating_add(1);
        }
        self.store.rows.delete(Family::State, self.tables.named_at(Table::Waiter, name, ticket));
        self.store_lock(name, lock);
        Ok(())
    }

    /// A new grant: its fence is the log index, or the next free number above.
    fn grant_lock(&mut self, name: &str, session: SessionId) -> Result<Holder> {
        let (index, since) = (self.index, self.now);
        let facts = self.facts()?;
        let fence = index.max(facts.last_fence.saturating_add(1));
        facts.last_fence = fence;
        self.emit(Change::Granted { lock: name.to_owned(), session, fence })?;
        Ok(Holder { session, fence, since })
    }

    fn lock(&self, name: &str) -> Result<Option<Lock>> {
        let found = self.store.rows.get(Family::State, &self.tables.named(Table::Lock, name))?;
        found.map(|bytes| Lock::decode(&bytes)).transpose()
    }

    /// A lock that is known to be held.
    fn standing(&self, name: &str) -> Result<Lock> {
        self.lock(name)?
            .ok_or_else(|| Error::corrupt("lock record", "a session is tied to a lock that is not there"))
    }

    fn store_lock(&mut self, name: &str, lock: Lock) {
        self.store.rows.put(Family::State, self.tables.named(Table::Lock, name), lock.encode());
    }
}

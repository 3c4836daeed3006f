//! Looking at sessions and locks.

use dolomedes_storage::Result;

use super::{State, behind};
use crate::{
    command::{Fence, LogTime, SessionId},
    machine::{
        records::{Lock, NumberRow, Record, Session},
        tables::Table,
    },
};

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number.
    pub id: SessionId,
    /// Its full term.
    pub ttl_ms: u64,
    /// Log time of its end.
    pub expires_at: LogTime,
    /// Locks, places in line and keys that go with it.
    pub items: u64,
}

/// A lock that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Its name.
    pub name: String,
    /// Who has it.
    pub session: SessionId,
    /// The grant.
    pub fence: Fence,
    /// Log time of the grant.
    pub since: LogTime,
    /// How many stand in line.
    pub waiters: u64,
}

impl State<'_> {
    /// A session.
    pub fn session(&self, id: SessionId) -> Result<Option<SessionInfo>> {
        let found = self.record::<Session>(&self.tables.numbered(Table::Session, id))?;
        Ok(found.map(|session| session_info(id, session)))
    }

    /// The sessions behind `after`, the oldest first, at most `limit`.
    pub fn sessions(&self, after: Option<SessionId>, limit: usize) -> Result<Vec<SessionInfo>> {
        let mut range = self.tables.all(Table::Session);
        if let Some(after) = after {
            range.0 = behind(self.tables.numbered(Table::Session, after));
        }
        self.list(range, limit, |mut parts, value| Ok(session_info(parts.u64()?, Session::decode(&value)?)))
    }

    /// A lock; `None`: it is free.
    pub fn lock(&self, name: &str) -> Result<Option<LockInfo>> {
        let found = self.record::<Lock>(&self.tables.named(Table::Lock, name))?;
        Ok(found.map(|lock| lock_info(name.to_owned(), lock)))
    }

    /// The locks that are held, whose names begin with `prefix` and come behind `after`, at most `limit`.
    pub fn locks(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<LockInfo>> {
        let mut range = self.tables.keyed_under(Table::Lock, prefix.as_bytes());
        if let Some(after) = after {
            range.0 = range.0.max(behind(self.tables.named(Table::Lock, after)));
        }
        self.list(range, limit, |mut parts, value| {
            let name = String::from_utf8_lossy(&parts.bytes()?).into_owned();
            Ok(lock_info(name, Lock::decode(&value)?))
        })
    }

    /// The first `limit` sessions in line for a lock with their tickets.
    pub fn waiters(&self, lock: &str, limit: usize) -> Result<Vec<(u64, SessionId)>> {
        let mut range = self.tables.all_named(Table::Waiter, lock);
        // The rows before the head are gone; the engine may not have cleaned up behind them yet.
        let found = self.record::<Lock>(&self.tables.named(Table::Lock, lock))?;
        if let Some(lock_record) = found {
            range.0 = self.tables.named_at(Table::Waiter, lock, lock_record.head);
        }
        self.list(range, limit, |mut parts, value| {
            parts.bytes()?;
            let NumberRow(session) = NumberRow::decode(&value)?;
            Ok((parts.u64()?, session))
        })
    }
}

fn session_info(id: SessionId, session: Session) -> SessionInfo {
    let Session { ttl_ms, expires_at, items } = session;
    SessionInfo { id, ttl_ms, expires_at, items }
}

fn lock_info(name: String, lock: Lock) -> LockInfo {
    let holder = lock.holder;
    LockInfo {
        name,
        session: holder.session,
        fence: holder.fence,
        since: holder.since,
        waiters: lock.waiters,
    }
}

//! Sessions: their terms, and what ends with them. A lease on being alive: it stands until a command finds it over.

use dolomedes_storage::{Error, Result, engine::Family};

use super::{
    limits,
    records::{Facts, Item, NumberRow, Record, Session, take},
    tables::{Table, parts},
    work::Work,
};
use crate::command::{LogTime, Refusal, Reply, SessionId};

/// How many ends of sessions one scan brings into memory.
const PAGE: usize = 256;

impl Work<'_, '_> {
    pub(super) fn open_session(&mut self, ttl_ms: u64) -> Result<Reply> {
        if ttl_ms == 0 || ttl_ms > limits::TTL_MS {
            return Ok(Reply::Refused(Refusal::Invalid(format!(
                "a session of {ttl_ms} ms; 1 to {} are allowed",
                limits::TTL_MS
            ))));
        }
        self.end_sessions(&mut { limits::CATCH_UP_STEPS })?;
        let index = self.index;
        let expires_at = self.now.saturating_add(ttl_ms);
        let facts = self.facts()?;
        if facts.sessions.count >= limits::SESSIONS {
            return Ok(Reply::Refused(Refusal::Full(format!(
                "there are {} sessions, which is the most; close some or let them end",
                limits::SESSIONS
            ))));
        }
        let id = index.max(facts.last_session.saturating_add(1));
        facts.last_session = id;
        facts.sessions.added(expires_at);
        self.store_session(id, Session { ttl_ms, expires_at, items: 0 });
        self.store.rows.put(Family::State, self.tables.timed(Table::SessionEnd, expires_at, id), Vec::new());
        Ok(Reply::Session(id))
    }

    /// Looks at no other session: one that is late for its own end, but before anyone noticed, lives on.
    pub(super) fn keep_alive(&mut self, sessions: &[SessionId]) -> Result<Reply> {
        if sessions.len() > limits::SESSIONS_PER_COMMAND {
            return Ok(Reply::Refused(Refusal::Invalid(format!(
                "{} sessions are kept alive at once, at most {} are allowed",
                sessions.len(),
                limits::SESSIONS_PER_COMMAND
            ))));
        }
        let mut kept = Vec::with_capacity(sessions.len());
        for &id in sessions {
            let Some(session) = self.session(id)? else {
                kept.push(false);
                continue;
            };
            let expires_at = self.now.saturating_add(session.ttl_ms);
            if expires_at > session.expires_at {
                self.drop_end(id, session.expires_at)?;
                self.facts()?.sessions.added(expires_at);
                let row = self.tables.timed(Table::SessionEnd, expires_at, id);
                self.store.rows.put(Family::State, row, Vec::new());
                self.store_session(id, Session { expires_at, ..session });
            }
            kept.push(true);
        }
        Ok(Reply::Kept(kept))
    }

    pub(super) fn close_session(&mut self, id: SessionId) -> Result<Reply> {
        if let Some(session) = self.session(id)? {
            self.end_session(id, session)?;
        }
        Ok(Reply::Done)
    }

    /// Ends sessions whose term is over. Each takes a step, and each of its items another.
    pub(super) fn end_sessions(&mut self, steps: &mut usize) -> Result<()> {
        loop {
            let (sessions, now) = (self.known_facts()?.sessions, self.now);
            let limit = PAGE.min(*steps);
            if limit == 0 || sessions.count == 0 || sessions.from > now {
                return Ok(());
            }
            let from = self.tables.timed(Table::SessionEnd, sessions.from, 0);
            let to = self.tables.timed(Table::SessionEnd, now.saturating_add(1), 0);
            let found = self.store.rows.first(Family::State, (&from, &to), limit)?;
            let mut through = found.len() < limit;
            let mut last = now;
            for (row, _) in found {
                if *steps == 0 {
                    through = false;
                    break;
                }
                let mut parts = parts(&row);
                let (at, id) = (parts.u64()?, parts.u64()?);
                let session = self.session(id)?.ok_or_else(gone)?;
                let items = usize::try_from(session.items).unwrap_or(usize::MAX);
                self.end_session(id, session)?;
                *steps = steps.saturating_sub(items.saturating_add(1));
                last = at;
            }
            self.facts()?.sessions.from = if through { now.saturating_add(1) } else { last };
        }
    }

    /// When the first session ends.
    pub(super) fn first_session_end(&mut self) -> Result<Option<LogTime>> {
        let Facts { sessions, .. } = self.known_facts()?;
        if sessions.count == 0 {
            return Ok(None);
        }
        let from = self.tables.timed(Table::SessionEnd, sessions.from, 0);
        let (_, to) = self.tables.all(Table::SessionEnd);
        let found = self.store.rows.first(Family::State, (&from, &to), 1)?;
        let (row, _) = found.first().ok_or_else(gone)?;
        Ok(Some(parts(row).u64()?))
    }

    pub(super) fn session(&self, id: SessionId) -> Result<Option<Session>> {
        let found = self.store.rows.get(Family::State, &self.tables.numbered(Table::Session, id))?;
        found.map(|bytes| Session::decode(&bytes)).transpose()
    }

    /// What is wrong with giving the session one more item, which must not be its already.
    pub(super) fn no_room_in(id: SessionId, session: &Session) -> Option<Reply> {
        (session.items >= limits::SESSION_ITEMS).then(|| {
            Reply::Refused(Refusal::Full(format!(
                "session {id} has {} locks, places in line and keys, which is the most; open another one",
                limits::SESSION_ITEMS
            )))
        })
    }

    /// Ties something to a session that has room for it; what it is tied with is kept.
    pub(super) fn tie(&mut self, id: SessionId, item: Item, name: &[u8], with: u64) -> Result<()> {
        let mut session = self.session(id)?.ok_or_else(gone)?;
        session.items = session.items.saturating_add(1);
        self.store_session(id, session);
        let row = self.tables.item(id, item as u8, name);
        self.store.rows.put(Family::State, row, NumberRow(with).encode());
        Ok(())
    }

    /// Unties something from its session.
    pub(super) fn untie(&mut self, id: SessionId, item: Item, name: &[u8]) -> Result<()> {
        let mut session = self.session(id)?.ok_or_else(gone)?;
        take(&mut session.items, 1, "items of a session")?;
        self.store_session(id, session);
        self.store.rows.delete(Family::State, self.tables.item(id, item as u8, name));
        Ok(())
    }

    /// The session has the lock now for which it stood in line.
    pub(super) fn promote_item(&mut self, id: SessionId, lock: &str) {
        let (waits, holds) = (Item::Waits as u8, Item::Holds as u8);
        self.store.rows.delete(Family::State, self.tables.item(id, waits, lock.as_bytes()));
        let row = self.tables.item(id, holds, lock.as_bytes());
        self.store.rows.put(Family::State, row, NumberRow(0).encode());
    }

    /// The ticket of the session's place in line.
    pub(super) fn ticket(&self, id: SessionId, lock: &str) -> Result<Option<u64>> {
        let row = self.tables.item(id, Item::Waits as u8, lock.as_bytes());
        let found = self.store.rows.get(Family::State, &row)?;
        Ok(found.map(|bytes| NumberRow::decode(&bytes)).transpose()?.map(|NumberRow(ticket)| ticket))
    }

    fn store_session(&mut self, id: SessionId, session: Session) {
        let row = self.tables.numbered(Table::Session, id);
        self.store.rows.put(Family::State, row, session.encode());
    }

    fn drop_end(&mut self, id: SessionId, at: LogTime) -> Result<()> {
        self.store.rows.delete(Family::State, self.tables.timed(Table::SessionEnd, at, id));
        self.facts()?.sessions.removed()
    }

    /// Ends a session with all that is tied to it; how much that is, is bounded where it is tied.
    fn end_session(&mut self, id: SessionId, session: Session) -> Result<()> {
        let (from, to) = self.tables.items(id);
        let limit = usize::try_from(session.items.saturating_add(1)).unwrap_or(usize::MAX);
        let items = self.store.rows.first(Family::State, (&from, &to), limit)?;
        if items.len() as u64 != session.items {
            return Err(Error::corrupt("items of a session", "there are not as many as are counted"));
        }
        for (row, _) in items {
            let mut parts = parts(&row);
            parts.u64()?;
            let (kind, name) = (parts.u8()?, parts.bytes()?);
            if kind == Item::Key as u8 {
                self.remove_key(&name, true)?;
            } else {
                let name = String::from_utf8(name)
                    .map_err(|_| Error::corrupt("items of a session", "the name of a lock is no text"))?;
                if kind == Item::Waits as u8 { self.leave(&name, id)? } else { self.let_go(&name, id)? }
            }
            self.store.rows.delete(Family::State, row);
        }
        self.drop_end(id, session.expires_at)?;
        self.store.rows.delete(Family::State, self.tables.numbered(Table::Session, id));
        Ok(())
    }
}

fn gone() -> Error {
    Error::corrupt("session record", "rows name a session that is not there")
}

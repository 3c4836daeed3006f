//! The feed of changes, by revision, and how much of it is kept; and the record of counts that the tables beside the
//! queues share.

use dolomedes_storage::{Error, Result, engine::Family};

use super::{
    limits,
    records::{Facts, encode_event, take},
    tables::Table,
    work::Work,
};
use crate::command::{Change, Event, Refusal, Reply, Retention, Revision};

impl Work<'_, '_> {
    /// The shared counts, for changing.
    pub(super) fn facts(&mut self) -> Result<&mut Facts> {
        let tables = self.tables;
        self.store.facts.get_or(&self.store.rows, (), |()| tables.single(Table::Facts), Facts::default)
    }

    /// The shared counts, for reading: a group that never used them has no row of them.
    pub(super) fn known_facts(&mut self) -> Result<Facts> {
        let tables = self.tables;
        let found = self.store.facts.look(&self.store.rows, (), |()| tables.single(Table::Facts))?;
        Ok(found.cloned().unwrap_or_default())
    }

    /// The revision that the next event will have.
    pub(super) fn next_revision(&mut self) -> Result<Revision> {
        Ok(self.known_facts()?.revision.saturating_add(1))
    }

    /// Adds a change to the feed.
    pub(super) fn emit(&mut self, change: Change) -> Result<Revision> {
        let revision = self.next_revision()?;
        let event = encode_event(&Event { revision, index: self.index, at: self.now, change });
        let facts = self.facts()?;
        facts.revision = revision;
        facts.feed_bytes = facts.feed_bytes.saturating_add(event.len() as u64);
        self.store.rows.put(Family::State, self.tables.numbered(Table::Event, revision), event);
        self.trim_feed()?;
        Ok(revision)
    }

    pub(super) fn configure_feed(&mut self, retention: Retention) -> Result<Reply> {
        if retention.events > limits::FEED_EVENTS || retention.bytes > limits::FEED_BYTES {
            return Ok(Reply::Refused(Refusal::Invalid(format!(
                "{} events of {} bytes are to be kept; at most {} of {} can be",
                retention.events,
                retention.bytes,
                limits::FEED_EVENTS,
                limits::FEED_BYTES
            ))));
        }
        self.facts()?.retention = retention;
        self.trim_feed()?;
        Ok(Reply::Done)
    }

    /// Removes the oldest events beyond what is to be kept, a bounded number at once.
    pub(super) fn trim_feed(&mut self) -> Result<()> {
        for _ in 0..limits::FEED_TRIM_STEPS {
            let Facts { revision, oldest, feed_bytes, retention, .. } = self.known_facts()?;
            let kept = revision.saturating_add(1).saturating_sub(oldest);
            if kept == 0 || (kept <= retention.events && feed_bytes <= retention.bytes) {
                return Ok(());
            }
            let row = self.tables.numbered(Table::Event, oldest);
            let event = self.store.rows.get(Family::State, &row)?;
            let event =
                event.ok_or_else(|| Error::corrupt("feed of changes", "an event is gone that is kept"))?;
            self.store.rows.delete(Family::State, row);
            let facts = self.facts()?;
            facts.oldest = oldest.saturating_add(1);
            take(&mut facts.feed_bytes, event.len() as u64, "bytes of events")?;
        }
        Ok(())
    }
}

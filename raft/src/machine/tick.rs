//! Letting log time pass.

use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    tables::{Table, parts},
    work::Work,
};
use crate::command::{QueueId, Reply};

/// Messages worked off are removed at the latest this share of their retention after it, so that many go at once.
const PURGE_SLACK: u64 = 8;

/// But at least this many milliseconds after it.
const PURGE_SLACK_MS: u64 = 1_000;

impl Work<'_, '_> {
    pub(super) fn tick(&mut self) -> Result<Reply> {
        let mut steps = limits::CATCH_UP_STEPS;
        let mut next: Option<u64> = None;
        for id in self.queue_ids()? {
            self.promote(id, &mut steps)?;
            self.expire(id, &mut steps)?;
            self.end_retention(id)?;
            self.settle(id)?;
            let review = self.existing(id)?.review.is_some().then_some(self.now);
            let due = [review, self.earliest(id, Table::Delayed)?, self.earliest(id, Table::Expiry)?];
            next = due.into_iter().flatten().chain(next).min();
        }
        self.end_sessions(&mut steps)?;
        self.end_tokens()?;
        self.forget_clients()?;
        self.trim_feed()?;
        let due = [self.first_session_end()?, self.first_token_end()?];
        next = due.into_iter().flatten().chain(next).min();
        let now = self.now;
        Ok(Reply::Ticked { next_due_ms: next.map(|at| at.saturating_sub(now)) })
    }

    /// Removes messages worked off that were kept for long enough.
    fn end_retention(&mut self, id: QueueId) -> Result<()> {
        let (tables, now) = (self.tables, self.now);
        let queue = self.existing(id)?;
        let Some(from) = queue.done_from else { return Ok(()) };
        let retention = queue.config.retention_ms;
        let slack = (retention / PURGE_SLACK).max(PURGE_SLACK_MS);
        if from.saturating_add(retention).saturating_add(slack) > now {
            return Ok(());
        }
        let gone = tables.times(Table::Done, id, from, now.saturating_sub(retention));
        let (_, end) = tables.all_of_queue(Table::Done, id);
        let first = self.store.rows.first(Family::State, (&gone.1, &end), 1)?;
        self.store.rows.delete_range(Family::State, gone);
        let left = first.first().map(|(row, _)| {
            let mut parts = parts(row);
            parts.u64()?;
            parts.u64()
        });
        self.existing(id)?.done_from = left.transpose()?;
        Ok(())
    }
}

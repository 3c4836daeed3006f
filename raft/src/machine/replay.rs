//! Making messages that were worked off ready again, and throwing messages away.

use bytes::Bytes;
use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    records::{Dead, Done, Stored, take},
    tables::{Range, Table, parts, tail_id, under},
    work::Work,
};
use crate::command::{LogTime, MessageId, PurgeFrom, QueueId, Refusal, Reply};

/// How many messages one scan brings into memory.
const PAGE: usize = 256;

impl Work<'_, '_> {
    pub(super) fn replay(
        &mut self,
        id: QueueId,
        key: Option<&Bytes>,
        oldest: MessageId,
        within_ms: Option<u64>,
        limit: u32,
    ) -> Result<Reply> {
        let now = self.now;
        let Some(queue) = self.queue(id)? else { return Ok(Reply::Refused(Refusal::NoQueue(id))) };
        let space = queue.config.capacity.saturating_sub(queue.live());
        let limit = space.min(limit.min(limits::REPLAY_MESSAGES).into());
        let Some(kept) = queue.done_from else { return Ok(Reply::Replayed(0)) };
        let since = within_ms.map_or(0, |within| now.saturating_sub(within)).max(kept);
        let (mut from, to) = self.tables.times(Table::Done, id, since, LogTime::MAX);
        let (mut moved, mut visits) = (0, 0);
        'pages: while visits < limits::REPLAY_VISITS {
            let found = self.store.rows.first(Family::State, (&from, &to), PAGE)?;
            let through = found.len() < PAGE;
            for (row, value) in found {
                if moved == limit {
                    break 'pages;
                }
                visits += 1;
                let done = Done::decode(value)?;
                from = row.clone();
                from.push(0);
                let wanted = tail_id(&row)? >= oldest && key.is_none_or(|key| *key == done.key);
                if wanted && self.put_back(id, row, done)? {
                    moved += 1;
                }
            }
            if through {
                break;
            }
        }
        self.settle(id)?;
        Ok(Reply::Replayed(moved))
    }

    /// Makes a message ready that was worked off; not if its key is at its budget, as it would be dead at once.
    fn put_back(&mut self, id: QueueId, row: Vec<u8>, done: Done) -> Result<bool> {
        let now = self.now;
        let mut place = self.existing_place(id, &done.key)?;
        place.judge_budget()?;
        if place.key.exhausted {
            return Ok(false);
        }
        let message = tail_id(&row)?;
        place.rows.delete(Family::State, row);
        take(&mut place.queue.counters.done, 1, "messages worked off")?;
        place.add_ready(message, &Stored { attempts: 0, lost: 0, free: 0, ..done.message }, now);
        Ok(true)
    }

    pub(super) fn purge(
        &mut self,
        id: QueueId,
        what: PurgeFrom,
        key: Option<&Bytes>,
        limit: u32,
    ) -> Result<Reply> {
        let Some(queue) = self.queue(id)? else { return Ok(Reply::Refused(Refusal::NoQueue(id))) };
        let (delayed_from, done_from) = (queue.delayed.from, queue.done_from.unwrap_or(0));
        if key.is_some_and(|key| key.len() > limits::KEY_BYTES) {
            return Ok(Reply::Purged(0));
        }
        let limit = u64::from(limit.min(limits::REPLAY_MESSAGES));
        let (mut from, to): Range = match what {
            PurgeFrom::Ready => match key {
                Some(key) => under(self.tables.of_key(Table::Ready, id, key)),
                None => self.tables.all_of_queue(Table::Ready, id),
            },
            PurgeFrom::Delayed => self.tables.times(Table::Delayed, id, delayed_from, LogTime::MAX),
            PurgeFrom::Dead => self.tables.all_of_queue(Table::Dead, id),
            PurgeFrom::Done => self.tables.times(Table::Done, id, done_from, LogTime::MAX),
        };
        let (mut purged, mut visits) = (0, 0);
        'pages: while visits < limits::REPLAY_VISITS {
            let found = self.store.rows.first(Family::State, (&from, &to), PAGE)?;
            let through = found.len() < PAGE;
            for (row, value) in found {
                if purged == limit {
                    break 'pages;
                }
                visits += 1;
                from = row.clone();
                from.push(0);
                purged += u64::from(self.purge_one(id, what, key, row, value)?);
            }
            if through {
                break;
            }
        }
        self.settle(id)?;
        Ok(Reply::Purged(purged))
    }

    fn purge_one(
        &mut self,
        id: QueueId,
        what: PurgeFrom,
        key: Option<&Bytes>,
        row: Vec<u8>,
        value: Vec<u8>,
    ) -> Result<bool> {
        let name = match what {
            PurgeFrom::Ready => {
                let mut parts = parts(&row);
                parts.u64()?;
                Bytes::from(parts.bytes()?)
            }
            PurgeFrom::Delayed => {
                let mut parts = parts(&row);
                parts.u64()?;
                parts.u64()?;
                Bytes::from(parts.bytes()?)
            }
            PurgeFrom::Dead => Dead::decode(value)?.key,
            PurgeFrom::Done => Done::decode(value)?.key,
        };
        if key.is_some_and(|key| *key != name) {
            return Ok(false);
        }
        let mut place = self.existing_place(id, &name)?;
        match what {
            PurgeFrom::Ready => place.purge_ready(row)?,
            PurgeFrom::Delayed => {
                place.take_delayed(row)?;
                place.queue.counters.purged += 1;
            }
            PurgeFrom::Dead => {
                place.rows.delete(Family::State, row);
                take(&mut place.queue.counters.dead, 1, "dead letters")?;
                place.queue.counters.purged += 1;
            }
            PurgeFrom::Done => place.rows.delete(Family::State, row),
        }
        Ok(true)
    }
}

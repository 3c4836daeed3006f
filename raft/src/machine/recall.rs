//! Making messages ready again that a worker settled, because what it made of them is lost.

use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    records::{Dead, Done, Settled, Stored, take},
    tables::{Range, Table, parts, tail_id},
    work::Work,
};
use crate::command::{MessageId, QueueId, RecallFrom, Refusal, Reply};

/// How many messages one scan brings into memory.
const PAGE: usize = 256;

impl Work<'_, '_> {
    pub(super) fn recall(&mut self, id: QueueId, worker: u64, from: RecallFrom, limit: u32) -> Result<Reply> {
        if self.queue(id)?.is_none() {
            return Ok(Reply::Refused(Refusal::NoQueue(id)));
        }
        let limit = u64::from(limit.min(limits::RECALL_MESSAGES));
        let (mut moved, mut visits) = (0, 0);
        let mut place = Some(from);
        while let Some(at) = place {
            let (start, end): Range = match at {
                RecallFrom::Done { at, id: message } => {
                    (self.tables.done(id, at, message), self.tables.all_of_queue(Table::Done, id).1)
                }
                RecallFrom::Dead { id: message } => {
                    (self.tables.dead(id, message), self.tables.all_of_queue(Table::Dead, id).1)
                }
            };
            let found = self.store.rows.first(Family::State, (&start, &end), PAGE)?;
            let through = found.len() < PAGE;
            for (row, value) in found {
                if moved == limit || visits == limits::RECALL_VISITS {
                    let next = Some(place_of(at, &row)?);
                    self.settle(id)?;
                    return Ok(Reply::Recalled { moved, next });
                }
                visits += 1;
                moved += u64::from(self.recall_one(id, worker, at, row.clone(), value)?);
                place = Some(after(place_of(at, &row)?));
            }
            if through {
                place = match at {
                    RecallFrom::Done { .. } => {
                        Some(RecallFrom::Dead { id: MessageId { index: 0, ordinal: 0 } })
                    }
                    RecallFrom::Dead { .. } => None,
                };
            }
        }
        self.settle(id)?;
        Ok(Reply::Recalled { moved, next: None })
    }

    fn recall_one(
        &mut self,
        id: QueueId,
        worker: u64,
        table: RecallFrom,
        row: Vec<u8>,
        value: Vec<u8>,
    ) -> Result<bool> {
        let now = self.now;
        let (key, settled, message) = match table {
            RecallFrom::Done { .. } => {
                let done = Done::decode(value)?;
                (done.key, done.settled, done.message)
            }
            RecallFrom::Dead { .. } => {
                let dead = Dead::decode(value)?;
                (dead.key, dead.settled, dead.message)
            }
        };
        let Settled { worker: by, units, bytes } = settled;
        if by != worker {
            return Ok(false);
        }
        let mut place = self.existing_place(id, &key)?;
        match table {
            RecallFrom::Done { .. } => {
                take(&mut place.queue.counters.done, 1, "messages worked off")?;
            }
            RecallFrom::Dead { .. } => take(&mut place.queue.counters.dead, 1, "dead letters")?,
        }
        let message_id = tail_id(&row)?;
        place.rows.delete(Family::State, row);
        place.take_back(units, bytes)?;
        place.judge_budget()?;
        place.add_ready(message_id, &Stored { attempts: 0, lost: 0, free: 0, ..message }, now);
        Ok(true)
    }
}

/// Where a row of the table that `table` names stands.
fn place_of(table: RecallFrom, row: &[u8]) -> Result<RecallFrom> {
    let id = tail_id(row)?;
    Ok(match table {
        RecallFrom::Done { .. } => {
            let mut parts = parts(row);
            parts.u64()?;
            RecallFrom::Done { at: parts.u64()?, id }
        }
        RecallFrom::Dead { .. } => RecallFrom::Dead { id },
    })
}

/// The place behind another one.
fn after(place: RecallFrom) -> RecallFrom {
    let next = |id: MessageId| match id.ordinal.checked_add(1) {
        Some(ordinal) => MessageId { ordinal, ..id },
        None => MessageId { index: id.index.saturating_add(1), ordinal: 0 },
    };
    match place {
        RecallFrom::Done { at, id } => RecallFrom::Done { at, id: next(id) },
        RecallFrom::Dead { id } => RecallFrom::Dead { id: next(id) },
    }
}

//! Making dead letters ready again.

use bytes::Bytes;
use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    records::{Dead, Stored, take},
    tables::{Table, tail_id},
    work::Work,
};
use crate::command::{QueueId, Refusal, Reply};

/// How many dead letters one scan brings into memory.
const PAGE: usize = 256;

impl Work<'_, '_> {
    pub(super) fn redrive(
        &mut self,
        id: QueueId,
        key: Option<&Bytes>,
        reason: Option<&str>,
        limit: u32,
    ) -> Result<Reply> {
        let Some(queue) = self.queue(id)? else { return Ok(Reply::Refused(Refusal::NoQueue(id))) };
        let space = queue.config.capacity.saturating_sub(queue.live());
        let limit = space.min(limit.min(limits::REDRIVE_MESSAGES).into());
        let (mut from, to) = self.tables.all_of_queue(Table::Dead, id);
        let (mut moved, mut visits) = (0, 0);
        'pages: while visits < limits::REDRIVE_VISITS {
            let found = self.store.rows.first(Family::State, (&from, &to), PAGE)?;
            let through = found.len() < PAGE;
            for (row, value) in found {
                if moved == limit {
                    break 'pages;
                }
                visits += 1;
                let letter = Dead::decode(value)?;
                let wanted = key.is_none_or(|key| *key == letter.key)
                    && reason.is_none_or(|reason| reason == letter.reason);
                if wanted && self.revive(id, row.clone(), letter)? {
                    moved += 1;
                }
                from = row;
                from.push(0);
            }
            if through {
                break;
            }
        }
        self.settle(id)?;
        Ok(Reply::Redriven(moved))
    }

    /// Makes one dead letter ready; not if its key is at its budget, as it would be dead again at once.
    fn revive(&mut self, id: QueueId, row: Vec<u8>, letter: Dead) -> Result<bool> {
        let now = self.now;
        let mut place = self.existing_place(id, &letter.key)?;
        place.judge_budget()?;
        if place.key.exhausted {
            return Ok(false);
        }
        let message = tail_id(&row)?;
        place.rows.delete(Family::State, row);
        take(&mut place.queue.counters.dead, 1, "dead letters")?;
        place.add_ready(message, &Stored { attempts: 0, lost: 0, free: 0, ..letter.message }, now);
        Ok(true)
    }
}

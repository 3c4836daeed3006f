//! Adding messages, each at most once by its fingerprint.

use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    place::Place,
    records::{Key, Stored},
    tables::Table,
    work::Work,
};
use crate::{
    command::{MessageId, NewMessage, PutStatus, QueueId, Refusal, Reply},
    machine::overlay::Overlay,
};

/// A fingerprint of a message, and whether the rows below know it.
#[derive(Clone)]
struct Print {
    row: Vec<u8>,
    known: bool,
}

impl Work<'_, '_> {
    pub(super) fn put(&mut self, id: QueueId, messages: &[NewMessage]) -> Result<Reply> {
        let first = self.ordinal;
        self.ordinal = first.saturating_add(u32::try_from(messages.len()).unwrap_or(u32::MAX));
        if messages.len() > limits::PUT_MESSAGES {
            return Ok(Reply::Refused(Refusal::Invalid(format!(
                "{} messages are put at once, at most {} are allowed",
                messages.len(),
                limits::PUT_MESSAGES
            ))));
        }
        if self.queue(id)?.is_none() {
            return Ok(Reply::Refused(Refusal::NoQueue(id)));
        }
        let prints = self.look_up(id, messages)?;
        let mut statuses = Vec::with_capacity(messages.len());
        for ((message, print), ordinal) in messages.iter().zip(prints).zip(first..) {
            let id_of = MessageId { index: self.index, ordinal };
            statuses.push(self.put_one(id, id_of, message, print)?);
        }
        self.settle(id)?;
        Ok(Reply::Put(statuses))
    }

    /// Reads at once which fingerprints are known; the filter saves reading those that are surely new.
    fn look_up(&self, id: QueueId, messages: &[NewMessage]) -> Result<Vec<Option<Print>>> {
        let mut prints = vec![None; messages.len()];
        let mut rows = Vec::new();
        let mut asked = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let Some(fingerprint) = message.fingerprint else { continue };
            let row = self.tables.seen(id, fingerprint);
            if self.seen.may_contain(id, fingerprint) {
                rows.push(row.clone());
                asked.push(at);
            }
            prints[at] = Some(Print { row, known: false });
        }
        let found = self.store.rows.get_many(Family::Seen, &rows)?;
        for (at, value) in asked.into_iter().zip(found) {
            if let Some(print) = &mut prints[at] {
                print.known = value.is_some();
            }
        }
        Ok(prints)
    }

    fn put_one(
        &mut self,
        id: QueueId,
        message_id: MessageId,
        message: &NewMessage,
        print: Option<Print>,
    ) -> Result<PutStatus> {
        let valid = (1..=limits::KEY_BYTES).contains(&message.key.len())
            && message.priority <= limits::TOP_PRIORITY
            && message.payload.len() <= limits::PAYLOAD_BYTES;
        if !valid {
            return Ok(PutStatus::Invalid);
        }
        let (tables, now) = (self.tables, self.now);
        let Overlay { rows, queues, keys, .. } = &mut *self.store;
        let Some(queue) = queues.get(rows, id, |&id| tables.of_queue(Table::Queue, id))? else {
            return Ok(PutStatus::Invalid);
        };
        // Known below, or put a moment ago by this very chunk of entries.
        if print.as_ref().is_some_and(|print| print.known || rows.wrote(Family::Seen, &print.row)) {
            queue.counters.duplicates = queue.counters.duplicates.saturating_add(1);
            return Ok(PutStatus::Duplicate);
        }
        if queue.live() >= queue.config.capacity {
            return Ok(PutStatus::Full);
        }
        let (delay_ms, known_keys) = (queue.config.key_delay_ms, &mut queue.counters.keys);
        let key = keys.get_or(
            rows,
            (id, message.key.clone()),
            |(id, name)| tables.of_key(Table::Key, *id, name),
            || {
                *known_keys += 1;
                Key::new(delay_ms)
            },
        )?;
        if let (Some(print), Some(fingerprint)) = (print, message.fingerprint) {
            rows.put(Family::Seen, print.row, Vec::new());
            self.seen.insert(id, fingerprint);
        }
        let mut place = Place { rows, tables, now, id, queue, name: &message.key, key };
        place.judge_budget()?;
        place.queue.counters.accepted += 1;
        let stored = Stored {
            priority: message.priority,
            attempts: 0,
            lost: 0,
            free: 0,
            payload: message.payload.clone(),
        };
        if message.delay_ms == 0 {
            place.add_ready(message_id, &stored, now);
        } else {
            place.add_delayed(message_id, &stored, now.saturating_add(message.delay_ms));
        }
        Ok(PutStatus::Accepted)
    }
}

//! Making, changing and removing queues.

use bytes::Bytes;
use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    records::{NamedQueue, Queue, Record, take},
    tables::Table,
    work::Work,
};
use crate::command::{QueueConfig, QueueId, QueueState, Refusal, Reply};

fn refuse(why: String) -> Result<Reply> {
    Ok(Reply::Refused(Refusal::Invalid(why)))
}

/// What is wrong with rules or spec of a queue.
fn fault(config: &QueueConfig, spec: Option<&Bytes>) -> Option<String> {
    if config.max_attempts == 0 || config.max_lost == 0 {
        return Some("max_attempts and max_lost of a queue are at least 1".to_owned());
    }
    let length = spec.map_or(0, Bytes::len);
    (length > limits::SPEC_BYTES).then(|| {
        format!("the spec of a queue has {length} bytes, at most {} are allowed", limits::SPEC_BYTES)
    })
}

impl Work<'_, '_> {
    pub(super) fn create_queue(&mut self, name: &str, config: &QueueConfig, spec: &Bytes) -> Result<Reply> {
        if name.is_empty() || name.len() > limits::NAME_BYTES {
            return refuse(format!(
                "the name of a queue has {} bytes, 1 to {} are allowed",
                name.len(),
                limits::NAME_BYTES
            ));
        }
        let named = self.tables.named(Table::Name, name);
        if let Some(value) = self.store.rows.get(Family::State, &named)? {
            return Ok(Reply::Queue { queue: NamedQueue::decode(&value)?.0, created: false });
        }
        if let Some(fault) = fault(config, Some(spec)) {
            return refuse(fault);
        }
        let index = self.index;
        let clock = self.clock()?;
        if clock.queues >= limits::QUEUES {
            return refuse(format!("there are {} queues, which is the most; drop one first", limits::QUEUES));
        }
        clock.queues += 1;
        clock.last_queue = index.max(clock.last_queue.saturating_add(1));
        let id = clock.last_queue;
        let tables = self.tables;
        let row = tables.of_queue(Table::Queue, id);
        let rows = &mut self.store.rows;
        rows.put(Family::State, named, NamedQueue(id).encode());
        rows.put(Family::State, tables.of_queue(Table::Spec, id), spec.to_vec());
        let queue = Queue::new(name.to_owned(), config.clone());
        // Also as a row at once: the list of queues is a scan.
        rows.put(Family::State, row.clone(), queue.encode());
        self.store.queues.get_or(&self.store.rows, id, |_| row, || queue)?;
        self.settle(id)?;
        Ok(Reply::Queue { queue: id, created: true })
    }

    pub(super) fn configure_queue(
        &mut self,
        id: QueueId,
        config: &QueueConfig,
        spec: Option<&Bytes>,
    ) -> Result<Reply> {
        if let Some(fault) = fault(config, spec) {
            return refuse(fault);
        }
        let Some(queue) = self.queue(id)? else { return Ok(Reply::Refused(Refusal::NoQueue(id))) };
        let before = std::mem::replace(&mut queue.config, config.clone());
        let budgets = |config: &QueueConfig| (config.key_unit_budget, config.key_byte_budget);
        if budgets(&before) != budgets(config) && queue.exhausted > 0 {
            queue.review = Some(Bytes::new());
        }
        if let Some(spec) = spec {
            self.store.rows.put(Family::State, self.tables.of_queue(Table::Spec, id), spec.to_vec());
        }
        let mut steps = limits::CATCH_UP_STEPS;
        self.promote(id, &mut steps)?;
        self.settle(id)?;
        Ok(Reply::Done)
    }

    pub(super) fn set_queue_state(&mut self, id: QueueId, state: QueueState) -> Result<Reply> {
        let Some(queue) = self.queue(id)? else { return Ok(Reply::Refused(Refusal::NoQueue(id))) };
        match (queue.state, state) {
            (_, QueueState::Finished | QueueState::BudgetReached) => {
                return refuse("a queue can be set running, paused or cancelled only".to_owned());
            }
            (QueueState::Cancelled, QueueState::Running | QueueState::Paused) => {
                return refuse("the queue is cancelled, which is final".to_owned());
            }
            _ => queue.state = state,
        }
        self.settle(id)?;
        Ok(Reply::Done)
    }

    pub(super) fn drop_queue(&mut self, id: QueueId) -> Result<Reply> {
        let Some(queue) = self.queue(id)? else { return Ok(Reply::Refused(Refusal::NoQueue(id))) };
        let name = queue.name.clone();
        let tables = self.tables;
        let named = tables.named(Table::Name, &name);
        self.store.queues.forget(|&queue| queue == id);
        self.store.keys.forget(|(queue, _)| *queue == id);
        let rows = &mut self.store.rows;
        rows.delete(Family::State, named);
        for table in Table::OF_QUEUE {
            rows.delete_range(Family::State, tables.all_of_queue(table, id));
        }
        rows.delete_range(Family::Seen, tables.seen_of_queue(id));
        take(&mut self.clock()?.queues, 1, "queues")?;
        Ok(Reply::Done)
    }
}

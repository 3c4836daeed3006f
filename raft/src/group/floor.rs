//! Keeps the node's floor file ([`dolomedes_storage::floor`]) up to what is durable of a group's log, so that a store
//! which has lost acknowledged state is refused at the next start.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dolomedes_storage::{
    Result,
    floor::{Floor, Position},
    log::LogStore,
};

use super::format;

/// How often the floor is raised while entries come: a sync of a small file each time. A loss of less than this is not
/// noticed.
const EVERY: Duration = Duration::from_secs(10);

/// One group's part of the floor.
#[derive(Clone)]
pub(super) struct FloorMark {
    floor: Option<Arc<Mutex<Floor>>>,
    log: LogStore,
    group: u32,
}

impl FloorMark {
    /// Compares the log with what was recorded of it.
    ///
    /// # Errors
    /// If the log has lost what had been durable.
    pub(super) fn open(floor: Option<Arc<Mutex<Floor>>>, log: LogStore, group: u32) -> Result<Self> {
        let mark = Self { floor, log, group };
        if let Some(floor) = &mark.floor {
            floor.lock().unwrap_or_else(PoisonError::into_inner).check(group, mark.position()?)?;
        }
        Ok(mark)
    }

    fn position(&self) -> Result<Position> {
        let vote = self.log.read_vote()?.map(|vote| format::decode_vote(&vote)).transpose()?;
        let last = self.log.last_index().or(self.log.purged().map(|(upto, _)| upto));
        Ok(Position {
            term: vote.map_or(0, |vote| vote.leader_id.term),
            log_end: last.map_or(0, |last| last + 1),
        })
    }

    /// Records what the log holds now, once it is durable. Blocks.
    pub(super) fn raise(&self) -> Result<()> {
        let Some(floor) = &self.floor else { return Ok(()) };
        let position = self.position()?;
        self.log.sync().wait()?;
        let mut floor = floor.lock().unwrap_or_else(PoisonError::into_inner);
        if floor.get(self.group) == Some(position) { Ok(()) } else { floor.record([(self.group, position)]) }
    }

    /// Raises the floor from time to time, for ever.
    pub(super) async fn keep_raised(self) {
        loop {
            let mark = self.clone();
            match tokio::task::spawn_blocking(move || mark.raise()).await {
                Ok(Ok(())) => {}
                // Not fatal for the group: the floor only stays lower than it could be.
                Ok(Err(error)) => tracing::warn!(%error, "cannot raise the floor"),
                Err(_) => return,
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

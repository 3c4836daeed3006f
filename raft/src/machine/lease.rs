//! Prolonging leases, and ending those of a worker's earlier incarnations.

use bytes::Bytes;
use dolomedes_storage::{Result, engine::Family};

use super::{
    claim::{bad_ttl, too_many_leases},
    tables::parts,
    work::Work,
};
use crate::command::{Attached, Consumer, LeaseRef, QueueId, Refusal, Reply};

/// How many leases of a worker one scan brings into memory.
const PAGE: usize = 256;

impl Work<'_, '_> {
    pub(super) fn renew(
        &mut self,
        id: QueueId,
        consumer: Consumer,
        leases: &[LeaseRef],
        ttl_ms: u64,
    ) -> Result<Reply> {
        if let Some(refused) = bad_ttl(ttl_ms).or_else(|| too_many_leases(leases.len())) {
            return Ok(refused);
        }
        if self.queue(id)?.is_none() {
            return Ok(Reply::Refused(Refusal::NoQueue(id)));
        }
        if let Err(refused) = self.check_consumer(consumer)? {
            return Ok(refused);
        }
        let expires_at = self.now.saturating_add(ttl_ms);
        let mut stand = Vec::with_capacity(leases.len());
        for lease in leases {
            let place = self.place(id, &lease.key)?;
            stand.push(match place.filter(|place| place.is_held(consumer, lease.fence)) {
                Some(mut place) => {
                    place.prolong(expires_at)?;
                    true
                }
                None => false,
            });
        }
        Ok(Reply::Renewed(stand))
    }

    /// All leases of the worker's earlier epochs end here and now; how many there can be is bounded where they are granted.
    pub(super) fn attach(&mut self, node: u64) -> Result<Reply> {
        let mut leases_ended = 0;
        for id in self.queue_ids()? {
            if self.existing(id)?.expiry.count == 0 {
                continue;
            }
            let (from, to) = self.tables.held_by(id, node);
            loop {
                let held = self.store.rows.first(Family::State, (&from, &to), PAGE)?;
                for (row, _) in &held {
                    let mut parts = parts(row);
                    parts.u64()?;
                    parts.u64()?;
                    let name = Bytes::from(parts.bytes()?);
                    self.existing_place(id, &name)?.lose_lease()?;
                    leases_ended += 1;
                }
                if held.len() < PAGE {
                    break;
                }
            }
            self.settle(id)?;
        }
        let receipts = self.receipts(node)?;
        receipts.epoch = receipts.epoch.saturating_add(1);
        Ok(Reply::Attached(Attached {
            consumer: Consumer { node, epoch: receipts.epoch },
            judged_upto: receipts.judged_upto,
            refused: receipts.refused.clone(),
            leases_ended,
        }))
    }
}

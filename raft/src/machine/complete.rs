//! Judging results, and the receipts of what was judged.

use std::collections::BTreeSet;

use dolomedes_storage::{Error, Result, engine::Family};

use super::{
    claim::too_many_leases,
    limits,
    place::Place,
    records::{Receipts, Stored},
    tables::Table,
    work::Work,
};
use crate::command::{Completion, CompletionVerdict, Consumer, MessageId, Outcome, QueueId, Refusal, Reply};

/// What becomes of the receipts while a Complete is judged.
struct Judge {
    /// Results up to here were judged before this command: their verdict is repeated.
    before: u64,
    /// Those of them that were refused.
    refused: Vec<u64>,
    /// Newly refused.
    newly_refused: Vec<u64>,
}

impl Judge {
    /// The verdict on a result that was judged before.
    fn earlier(&self, sequence: u64) -> Option<bool> {
        (sequence > 0 && sequence <= self.before).then(|| self.refused.binary_search(&sequence).is_err())
    }

    fn record(&mut self, sequence: u64, accepted: bool) {
        if sequence > 0 && !accepted {
            self.newly_refused.push(sequence);
        }
    }
}

impl Work<'_, '_> {
    pub(super) fn complete(
        &mut self,
        id: QueueId,
        consumer: Consumer,
        completions: &[Completion],
        released_upto: u64,
    ) -> Result<Reply> {
        if let Some(refused) = too_many_leases(completions.len()).or_else(|| fault(completions)) {
            return Ok(refused);
        }
        if let Err(refused) = self.check_consumer(consumer)? {
            return Ok(refused);
        }
        let receipts = self.receipts(consumer.node)?;
        let released = receipts.released_upto.max(released_upto.min(receipts.judged_upto));
        let kept = receipts.refused.partition_point(|&sequence| sequence <= released);
        let before = receipts.judged_upto;
        let sequences = completions.iter().flat_map(|completion| &completion.results).map(|r| r.sequence);
        let mut judged_upto = before;
        for sequence in sequences.filter(|&sequence| sequence > before) {
            if sequence != judged_upto.saturating_add(1) {
                return Ok(Reply::Refused(Refusal::SequenceGap { judged_upto, sequence }));
            }
            judged_upto = sequence;
        }
        let could_be_kept = (receipts.refused.len() - kept) as u64 + (judged_upto - before);
        if could_be_kept > limits::REFUSED_KEPT as u64 {
            return Ok(Reply::Refused(Refusal::Invalid(format!(
                "up to {could_be_kept} refused results would have to be kept for worker {}, at most {} are; raise \
                 released_upto",
                consumer.node,
                limits::REFUSED_KEPT
            ))));
        }
        let mut refused = std::mem::take(&mut receipts.refused);
        refused.drain(..kept);
        let mut judge = Judge { before, refused, newly_refused: Vec::new() };
        let mut verdicts = Vec::with_capacity(completions.len());
        for completion in completions {
            verdicts.push(self.complete_one(id, consumer, completion, &mut judge)?);
        }
        let Judge { mut refused, mut newly_refused, .. } = judge;
        refused.append(&mut newly_refused);
        let receipts = self.receipts(consumer.node)?;
        receipts.refused = refused;
        receipts.judged_upto = judged_upto;
        receipts.released_upto = released;
        if self.queue(id)?.is_some() {
            self.settle(id)?;
        }
        Ok(Reply::Completed(verdicts))
    }

    pub(super) fn receipts(&mut self, node: u64) -> Result<&mut Receipts> {
        let tables = self.tables;
        self.store.receipts.get_or(&self.store.rows, node, |&node| tables.consumer(node), Receipts::default)
    }

    fn complete_one(
        &mut self,
        id: QueueId,
        consumer: Consumer,
        completion: &Completion,
        judge: &mut Judge,
    ) -> Result<CompletionVerdict> {
        let tables = self.tables;
        let (mut accepted, mut dead) = (Vec::new(), Vec::new());
        let (mut released, mut ready_left) = (false, 0);
        if let Some(mut place) = self.place(id, &completion.lease.key)? {
            let held = place.is_held(consumer, completion.lease.fence);
            let stored = if held { leased(&place, completion, judge)? } else { Vec::new() };
            let mut stored = stored.into_iter();
            let mut taken = BTreeSet::new();
            for result in &completion.results {
                if let Some(verdict) = judge.earlier(result.sequence) {
                    let row = tables.dead(id, result.id);
                    accepted.push(verdict);
                    dead.push(verdict && place.rows.get(Family::State, &row)?.is_some());
                    continue;
                }
                let message = stored.next().flatten().filter(|_| taken.insert(result.id));
                judge.record(result.sequence, message.is_some());
                accepted.push(message.is_some());
                dead.push(match message {
                    Some(message) => apply(&mut place, result.id, message, &result.outcome)?,
                    None => false,
                });
            }
            if held {
                released = conclude(&mut place, completion)?;
            }
            ready_left = place.ready_left();
        } else {
            for result in &completion.results {
                let earlier = judge.earlier(result.sequence);
                if earlier.is_none() {
                    judge.record(result.sequence, false);
                }
                accepted.push(earlier.unwrap_or(false));
                dead.push(false);
            }
        }
        Ok(CompletionVerdict { accepted, dead, released, ready_left })
    }
}

/// The leased messages of those results that are judged now, in their order; `None`: it is not leased.
fn leased(place: &Place<'_, '_>, completion: &Completion, judge: &Judge) -> Result<Vec<Option<Stored>>> {
    let now = completion.results.iter().filter(|result| judge.earlier(result.sequence).is_none());
    let rows: Vec<_> = now.map(|result| place.tables.leased(place.id, place.name, result.id)).collect();
    let found = place.rows.get_many(Family::State, &rows)?;
    found.into_iter().map(|value| value.map(Stored::decode).transpose()).collect()
}

/// Carries out an outcome; tells whether the message is a dead letter now.
fn apply(place: &mut Place<'_, '_>, id: MessageId, mut message: Stored, outcome: &Outcome) -> Result<bool> {
    place.take_leased(id)?;
    match outcome {
        Outcome::Done { units, bytes } => {
            place.charge(*units, *bytes);
            place.finish(id, message, *units, *bytes);
            Ok(false)
        }
        Outcome::Dead { reason, units, bytes } => {
            place.charge(*units, *bytes);
            place.bury(id, message, reason, (*units, *bytes));
            Ok(true)
        }
        Outcome::Retry { after_ms, reason, free } => {
            if *free {
                message.free = message.free.saturating_add(1);
            } else if message.failures() >= place.queue.config.max_attempts {
                place.bury(id, message, reason, (0, 0));
                return Ok(true);
            } else {
                place.queue.counters.retries += 1;
            }
            if *after_ms == 0 {
                place.add_ready(id, &message, place.now);
            } else {
                place.add_delayed(id, &message, place.now.saturating_add(*after_ms));
            }
            Ok(false)
        }
    }
}

/// Takes over what was learnt about the key, and gives it back if wanted and possible. Tells whether it was given back.
fn conclude(place: &mut Place<'_, '_>, completion: &Completion) -> Result<bool> {
    if let Some(pace) = &completion.pace {
        place.key.hold_until = place.key.hold_until.max(place.now.saturating_add(pace.hold_ms));
        place.key.delay_ms = pace.delay_ms;
        if let Some(note) = &pace.note {
            place.key.noted = true;
            let row = place.tables.of_key(Table::Note, place.id, place.name);
            place.rows.put(Family::State, row, note.to_vec());
        }
    }
    place.judge_budget()?;
    let lease =
        place.key.lease.as_mut().ok_or_else(|| Error::corrupt("key record", "a lease is gone that stood"))?;
    lease.release |= completion.release;
    let released = lease.release && place.key.leased == 0;
    if released {
        place.end_lease()?;
    }
    Ok(released)
}

/// What is wrong with completions as a whole.
fn fault(completions: &[Completion]) -> Option<Reply> {
    let results = || completions.iter().flat_map(|completion| &completion.results);
    let reason = |outcome: &Outcome| match outcome {
        Outcome::Retry { reason, .. } | Outcome::Dead { reason, .. } => reason.len(),
        Outcome::Done { .. } => 0,
    };
    let note = |c: &Completion| c.pace.as_ref().and_then(|p| p.note.as_ref()).map_or(0, |note| note.len());
    let checks = [
        ("results at once", results().count(), limits::COMPLETE_RESULTS),
        ("bytes in a reason", results().map(|r| reason(&r.outcome)).max().unwrap_or(0), limits::REASON_BYTES),
        ("bytes in a key's note", completions.iter().map(note).max().unwrap_or(0), limits::NOTE_BYTES),
    ];
    let (what, found, most) = checks.into_iter().find(|(_, found, most)| found > most)?;
    Some(Reply::Refused(Refusal::Invalid(format!("{found} {what}, at most {most} are allowed"))))
}

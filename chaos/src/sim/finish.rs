//! Finishing pages in the simulated node, in the order of `dolomedes::crawl::finish`: outlinks are put, the record is durable
//! in the spool, the completion goes in under its fence, the record is delivered. Three stages and the delivery, each of
//! which takes what has gathered while it was busy; here they are states that wait for events.

use std::collections::{BTreeMap, HashSet, VecDeque};

use bytes::Bytes;
use dolomedes::{record::Envelope, totals::Class};
use dolomedes_raft::command::{
    Command, Completion, CompletionVerdict, Consumer, LeaseRef, MessageId, MessageResult, NewMessage,
    Outcome, Pace, QueueId,
};

use super::{
    Stop,
    node::{Event, Events, Waiter},
    plan::Sabotage,
    world::World,
};

/// The longest time between the first delivered record that is not synced, and the sync.
const SYNC_SINK_MS: u64 = 1_000;
/// The longest time that a sync of the spool takes.
const SYNC_SPOOL_MS: u64 = 8;

/// The result of one message.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) lease: LeaseRef,
    /// `None`: only gives the lease back.
    pub(super) id: Option<MessageId>,
    pub(super) attempt: u32,
    pub(super) outcome: Outcome,
    pub(super) outlinks: Vec<NewMessage>,
    pub(super) record: Option<(Class, String)>,
    pub(super) pace: Option<Pace>,
    pub(super) release: bool,
}

/// Results that passed a stage together.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) results: Vec<(Finished, u64)>,
    pub(super) grew: bool,
}

/// See the module.
pub(super) struct Finisher {
    queue: QueueId,
    consumer: Consumer,
    results: Vec<Finished>,
    putting: bool,
    put: VecDeque<Batch>,
    spooling: bool,
    spooled: VecDeque<Batch>,
    completing: bool,
    verdicts: BTreeMap<u64, bool>,
    /// The first record without a verdict that was acted on.
    next: u64,
    delivering: bool,
}

impl Finisher {
    /// A finisher for an incarnation. `mark`: what is delivered for good; `verdicts`: what is known of the records behind.
    pub(super) fn new(queue: QueueId, consumer: Consumer, mark: u64, verdicts: BTreeMap<u64, bool>) -> Self {
        Self {
            queue,
            consumer,
            results: Vec::new(),
            putting: false,
            put: VecDeque::new(),
            spooling: false,
            spooled: VecDeque::new(),
            completing: false,
            verdicts,
            next: mark + 1,
            delivering: false,
        }
    }

    /// Takes a result in.
    pub(super) fn finish(&mut self, result: Finished) {
        self.results.push(result);
    }

    /// Lets every idle stage take what waits for it. Commands to submit come out.
    pub(super) fn advance(
        &mut self,
        world: &mut World,
        events: &mut Events,
    ) -> Result<Vec<(Command, Waiter)>, Stop> {
        let mut commands = Vec::new();
        if !self.putting && !self.results.is_empty() {
            commands.extend(self.put_outlinks());
        }
        while let Some(batch) = self.put.pop_front_if(|_| !self.spooling) {
            self.spool(world, events, batch)?;
        }
        if let Some(batch) = self.spooled.pop_front_if(|_| !self.completing) {
            self.completing = true;
            let completions =
                batch.results.iter().map(|(finished, sequence)| completion(finished, *sequence));
            let complete = Command::Complete {
                queue: self.queue,
                consumer: self.consumer,
                completions: completions.collect(),
                released_upto: world.disk.mark(),
            };
            commands.push((complete, Waiter::Completed(batch)));
        }
        let judged = self.verdicts.contains_key(&self.next);
        if judged && !self.delivering {
            self.delivering = true;
            events.push(world.now + world.rng.u64(1..=SYNC_SINK_MS), Event::Deliver);
        }
        Ok(commands)
    }

    fn put_outlinks(&mut self) -> Option<(Command, Waiter)> {
        let mut results = std::mem::take(&mut self.results);
        let mut seen = HashSet::new();
        let outlinks = results.iter_mut().flat_map(|result| std::mem::take(&mut result.outlinks));
        let messages: Vec<NewMessage> =
            outlinks.filter(|link| link.fingerprint.is_none_or(|identity| seen.insert(identity))).collect();
        let results = results.into_iter().map(|result| (result, 0)).collect();
        let batch = Batch { results, grew: false };
        if messages.is_empty() {
            self.put.push_back(batch);
            return None;
        }
        self.putting = true;
        Some((Command::Put { queue: self.queue, messages }, Waiter::Put(batch)))
    }

    /// The outlinks of a batch are in the frontier.
    pub(super) fn outlinks_put(&mut self, batch: Batch) {
        self.putting = false;
        self.put.push_back(batch);
    }

    fn spool(&mut self, world: &mut World, events: &mut Events, mut batch: Batch) -> Result<(), Stop> {
        let mut wrote = false;
        for (finished, sequence) in &mut batch.results {
            if let (Some(id), Some((class, line))) = (finished.id, finished.record.take()) {
                let envelope = Envelope {
                    queue: self.queue,
                    consumer: self.consumer,
                    lease: finished.lease.clone(),
                    message: id,
                    attempt: finished.attempt,
                    class,
                    outcome: finished.outcome.clone(),
                    pace: finished.pace.as_ref().map(|pace| Pace { note: None, ..*pace }),
                    line: Bytes::from(line),
                    exchange: None,
                };
                *sequence = world.disk.append(envelope.encode())?;
                wrote = true;
            }
        }
        if !wrote {
            self.spooled.push_back(batch);
            return Ok(());
        }
        self.spooling = true;
        let mut at = world.now + world.rng.u64(1..=SYNC_SPOOL_MS);
        let mut waiting = Some(batch);
        if world.sabotage == Sabotage::CompleteBeforeSync {
            self.spooled.extend(waiting.take());
            at += 100;
        }
        events.push(at, Event::SpoolSynced(waiting));
        Ok(())
    }

    /// The sync of the spool is done.
    pub(super) fn spool_synced(&mut self, world: &mut World, batch: Option<Batch>) -> Result<(), Stop> {
        world.disk.sync_spool()?;
        self.spooling = false;
        if world.sabotage == Sabotage::DeliverBeforeCompletion {
            let sequences = batch.iter().flat_map(|batch| &batch.results).map(|(_, sequence)| *sequence);
            self.verdicts.extend(sequences.filter(|&sequence| sequence > 0).map(|sequence| (sequence, true)));
        }
        self.spooled.extend(batch);
        Ok(())
    }

    /// The completions of a batch were judged.
    pub(super) fn completed(&mut self, world: &mut World, batch: &Batch, verdicts: &[CompletionVerdict]) {
        self.completing = false;
        for ((finished, sequence), verdict) in batch.results.iter().zip(verdicts) {
            let accepted = verdict.accepted.first().copied().unwrap_or(true);
            if !accepted {
                world.coverage.refused += 1;
                world.tell(&format!("refused: {finished:?}"));
            }
            if *sequence >= self.next {
                self.verdicts.entry(*sequence).or_insert(accepted);
            }
        }
    }

    /// Brings records that have their verdict to the sink, and syncs it.
    pub(super) fn deliver(&mut self, world: &mut World) -> Result<(), Stop> {
        self.delivering = false;
        while let Some(accepted) = self.verdicts.remove(&self.next) {
            if accepted {
                let Some(body) = world.disk.spooled(self.next) else {
                    let text = format!("record {} was judged, but the spool does not have it", self.next);
                    return Err(world.damaged(text));
                };
                world.disk.deliver(self.next, body)?;
            }
            self.next += 1;
        }
        world.disk.sync_sink(self.next - 1)?;
        world.check_records()
    }
}

fn completion(finished: &Finished, sequence: u64) -> Completion {
    let outcome = finished.outcome.clone();
    Completion {
        lease: finished.lease.clone(),
        results: finished.id.map(|id| MessageResult { id, outcome, sequence }).into_iter().collect(),
        pace: finished.pace.clone(),
        release: finished.release,
    }
}

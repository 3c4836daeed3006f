//! Finishing pages, in the order that makes a crash harmless: outlinks are put first, then the record is durable in the
//! spool, then the completion goes in under its fence, and only then is the record delivered. Three stages, each with
//! its own task, batching whatever has gathered while the disk was busy.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use dolomedes_raft::command::{
    Command, Completion, Consumer, LeaseRef, MessageId, MessageResult, NewMessage, Outcome, Pace, PutStatus,
    QueueId, Reply,
};
use dolomedes_storage::spool::Spool;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::{frontier::Frontier, harvest::message_bytes, rules::Rules};
use crate::{record::Envelope, sink::DeliveryHandle, totals::Class};

/// Results that one batch takes at most.
const BATCH: usize = 512;
/// How long results gather before they are finished together.
const GATHER: Duration = Duration::from_millis(5);
/// Outlinks that one `Put` carries at most.
const PUT_MESSAGES: usize = 4_096;
/// Bytes of payload that one `Put` carries at most, well below what a command may have.
const PUT_BYTES: usize = 512 << 10;
/// Bytes that one `Complete` carries, about.
const COMPLETE_BYTES: usize = 1 << 20;
/// Batches between two stages at most.
const STAGE_DEPTH: usize = 2;
/// How long to wait before a full frontier, or a full spool, is tried again.
const FULL_WAIT: Duration = Duration::from_millis(250);

/// The result of one message, on its way to be finished.
#[derive(Debug)]
pub(super) struct Finished {
    pub lease: LeaseRef,
    /// The message; `None` only gives the lease back.
    pub id: Option<MessageId>,
    pub attempt: u32,
    pub outcome: Outcome,
    pub outlinks: Vec<NewMessage>,
    pub record: Option<Recorded>,
    pub pace: Option<Pace>,
    pub release: bool,
    /// What it takes in memory, about; see [`Finished::weigh`].
    pub bytes: usize,
}

impl Finished {
    /// Notes what it takes in memory, once it is complete.
    pub(super) fn weigh(&mut self) {
        let outlinks: usize = self.outlinks.iter().map(message_bytes).sum();
        let record = self.record.as_ref().map_or(0, |record| {
            record.line.len() + record.exchange.as_ref().map_or(0, |exchange| exchange.body.len())
        });
        self.bytes = outlinks + record;
    }

    /// A message given up without a record.
    pub(super) fn dead(lease: LeaseRef, id: Option<MessageId>, reason: &str) -> Self {
        Self {
            lease,
            id,
            attempt: 0,
            outcome: Outcome::Dead { reason: reason.to_owned(), units: 0, bytes: 0 },
            outlinks: Vec::new(),
            record: None,
            pace: None,
            release: false,
            bytes: 0,
        }
    }
}

/// What is written down about it.
#[derive(Debug)]
pub(super) struct Recorded {
    pub class: Class,
    pub line: bytes::Bytes,
    pub exchange: Option<crate::record::Exchange>,
    /// The place in memory of a large body, and so of what was found in it, until it is in the spool.
    pub _room: Option<Arc<tokio::sync::OwnedSemaphorePermit>>,
}

/// What a finished batch tells the crawl.
#[derive(Debug)]
pub(super) struct Settled {
    /// Results in the batch.
    pub results: usize,
    /// What they took in memory.
    pub bytes: usize,
    /// Whether any outlink was new.
    pub grew: bool,
    /// Per lease: whether it stands, and what is left ready behind it.
    pub leases: Vec<(LeaseRef, bool, u64)>,
}

/// What the stages share.
pub(super) struct Finisher {
    pub frontier: Frontier,
    pub queue: QueueId,
    pub consumer: Consumer,
    pub rules: Arc<Rules>,
    pub delivery: Arc<DeliveryHandle>,
}

struct Sequenced {
    results: Vec<(Finished, u64)>,
    grew: bool,
}

impl Finisher {
    /// Starts the stages. Results go into the returned sender, of the given depth; what became of them comes out of
    /// the receiver, which ends with an error if a stage fails and after the last batch once the sender is dropped.
    pub(super) fn start(
        self,
        spool: Spool,
        depth: usize,
    ) -> (mpsc::Sender<Finished>, mpsc::UnboundedReceiver<anyhow::Result<Settled>>) {
        let this = Arc::new(self);
        let (results_in, results) = mpsc::channel(depth);
        let (linked_in, linked) = mpsc::channel(STAGE_DEPTH);
        let (spooled_in, spooled) = mpsc::channel(STAGE_DEPTH);
        // One message per batch; batches in flight are bounded by the stages' depths.
        let (settled_in, settled) = mpsc::unbounded_channel();
        tokio::spawn(report(settled_in.clone(), this.clone().put_outlinks(results, linked_in)));
        let spooling = this.clone();
        let reported = settled_in.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = spooling.spool_records(spool, linked, &spooled_in) {
                let _ = reported.send(Err(error));
            }
        });
        tokio::spawn(report(settled_in.clone(), this.complete(spooled, settled_in)));
        (results_in, settled)
    }

    async fn put_outlinks(
        self: Arc<Self>,
        mut results: mpsc::Receiver<Finished>,
        next: mpsc::Sender<(Vec<Finished>, bool)>,
    ) -> anyhow::Result<()> {
        let mut batch = Vec::new();
        while results.recv_many(&mut batch, BATCH).await > 0 {
            // An entry of the log costs about as much as four pages, whatever is in it.
            tokio::time::sleep(GATHER).await;
            while batch.len() < BATCH
                && let Ok(result) = results.try_recv()
            {
                batch.push(result);
            }
            let mut finished = std::mem::take(&mut batch);
            let mut seen = HashSet::new();
            let outlinks: Vec<NewMessage> = finished
                .iter_mut()
                .flat_map(|result| std::mem::take(&mut result.outlinks))
                .filter(|message| message.fingerprint.is_none_or(|identity| seen.insert(identity)))
                .collect();
            let grew = self.put(outlinks).await?;
            if next.send((finished, grew)).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Puts messages and remembers what the frontier knows then. Returns whether any was new.
    pub(super) async fn put(&self, messages: Vec<NewMessage>) -> anyhow::Result<bool> {
        let mut messages = VecDeque::from(messages);
        let mut grew = false;
        while !messages.is_empty() {
            let mut bytes = 0;
            let fits = messages.iter().take(PUT_MESSAGES).take_while(|message| {
                bytes += message.payload.len() + message.key.len();
                bytes <= PUT_BYTES
            });
            let fits = fits.count().max(1);
            let sent: Vec<NewMessage> = messages.drain(..fits).collect();
            let identities: Vec<Option<u128>> = sent.iter().map(|message| message.fingerprint).collect();
            let retained = sent.clone();
            let put = Command::Put { queue: self.queue, messages: sent };
            let span = tracing::debug_span!("scheduler.enqueue", messages = identities.len());
            let statuses =
                match self.frontier.submit(put).instrument(span).await.context("cannot queue links")? {
                    Reply::Put(statuses) => statuses,
                    Reply::Refused(refusal) => bail!("cannot queue links: {refusal}"),
                    other => bail!("cannot queue links: unexpected answer {other:?}"),
                };
            let mut again = VecDeque::new();
            for ((status, identity), message) in statuses.into_iter().zip(identities).zip(retained) {
                match status {
                    PutStatus::Accepted | PutStatus::Duplicate => {
                        grew |= status == PutStatus::Accepted;
                        identity.iter().for_each(|&identity| self.rules.known.insert(identity));
                    }
                    PutStatus::Full => again.push_back(message),
                    PutStatus::Invalid => {
                        tracing::warn!(key = ?message.key, "a link exceeds the frontier's bounds and is left out");
                    }
                }
            }
            if !again.is_empty() {
                // Back-pressure: completions make room.
                tokio::time::sleep(FULL_WAIT).await;
                again.append(&mut messages);
                messages = again;
            }
        }
        Ok(grew)
    }

    fn spool_records(
        &self,
        mut spool: Spool,
        mut batches: mpsc::Receiver<(Vec<Finished>, bool)>,
        next: &mpsc::Sender<Sequenced>,
    ) -> anyhow::Result<()> {
        while let Some((finished, grew)) = batches.blocking_recv() {
            while spool.is_full() {
                // The sinks are behind; if they have failed, waiting is in vain.
                if let Some(failure) = self.delivery.failure() {
                    return Err(anyhow!(failure).context("records cannot be delivered"));
                }
                std::thread::sleep(FULL_WAIT);
            }
            let _span = tracing::debug_span!("storage.write", records = finished.len()).entered();
            let mut results = Vec::with_capacity(finished.len());
            let mut wrote = false;
            for mut result in finished {
                let sequence = match (result.id, result.record.take()) {
                    (Some(id), Some(record)) => {
                        wrote = true;
                        let envelope = self.envelope(&result, id, record);
                        spool.append(&envelope.encode()).context("cannot keep a record")?
                    }
                    _ => 0,
                };
                results.push((result, sequence));
            }
            if wrote {
                spool.sync().context("cannot keep records")?;
            }
            if next.blocking_send(Sequenced { results, grew }).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn envelope(&self, result: &Finished, id: MessageId, record: Recorded) -> Envelope {
        Envelope {
            queue: self.queue,
            consumer: self.consumer,
            lease: result.lease.clone(),
            message: id,
            attempt: result.attempt,
            class: record.class,
            outcome: result.outcome.clone(),
            pace: result.pace.as_ref().map(|pace| Pace { note: None, ..*pace }),
            line: record.line,
            exchange: record.exchange,
        }
    }

    async fn complete(
        self: Arc<Self>,
        mut batches: mpsc::Receiver<Sequenced>,
        settled: mpsc::UnboundedSender<anyhow::Result<Settled>>,
    ) -> anyhow::Result<()> {
        while let Some(Sequenced { results, grew }) = batches.recv().await {
            let count = results.len();
            let bytes = results.iter().map(|(result, _)| result.bytes).sum();
            let mut settlement = Settled { results: count, bytes, grew, leases: Vec::new() };
            for completions in commands(completions(results)) {
                settlement.leases.extend(self.hand_in(completions).await?);
            }
            if settled.send(Ok(settlement)).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Submits completions and passes the verdicts on their records on. Returns what became of the leases.
    async fn hand_in(&self, completions: Vec<Completion>) -> anyhow::Result<Vec<(LeaseRef, bool, u64)>> {
        let sequences: Vec<Vec<u64>> = completions
            .iter()
            .map(|completion| completion.results.iter().map(|result| result.sequence).collect())
            .collect();
        let leases: Vec<LeaseRef> = completions.iter().map(|completion| completion.lease.clone()).collect();
        let command = Command::Complete {
            queue: self.queue,
            consumer: self.consumer,
            completions,
            released_upto: self.delivery.released(),
        };
        let verdicts = match self.frontier.submit(command).await.context("cannot hand results in")? {
            Reply::Completed(verdicts) => verdicts,
            Reply::Refused(refusal) => bail!("cannot hand results in: {refusal}"),
            other => bail!("cannot hand results in: unexpected answer {other:?}"),
        };
        let mut records = Vec::with_capacity(leases.len());
        let mut after = Vec::with_capacity(leases.len());
        for ((lease, verdict), sequences) in leases.into_iter().zip(verdicts).zip(sequences) {
            let judged = sequences.into_iter().zip(&verdict.accepted);
            records
                .extend(judged.filter(|(sequence, _)| *sequence > 0).map(|(sequence, &ok)| (sequence, ok)));
            let stands =
                !verdict.released && (verdict.accepted.is_empty() || verdict.accepted.contains(&true));
            after.push((lease, stands, verdict.ready_left));
        }
        self.delivery
            .judge(records)
            .map_err(|failure| anyhow!(failure).context("records cannot be delivered"))?;
        Ok(after)
    }
}

/// Cuts completions into commands that stay well below what one may have: notes are up to 64 KiB each.
fn commands(completions: Vec<Completion>) -> Vec<Vec<Completion>> {
    /// Bytes of a result, about.
    const RESULT: usize = 300;
    let mut commands: Vec<Vec<Completion>> = Vec::new();
    let mut bytes = COMPLETE_BYTES;
    for completion in completions {
        let note = completion.pace.as_ref().and_then(|pace| pace.note.as_ref()).map_or(0, bytes::Bytes::len);
        let size = completion.lease.key.len() + note + RESULT * (completion.results.len() + 1);
        match commands.last_mut().filter(|_| bytes + size <= COMPLETE_BYTES) {
            Some(command) => {
                bytes += size;
                command.push(completion);
            }
            None => {
                bytes = size;
                commands.push(vec![completion]);
            }
        }
    }
    commands
}

/// Groups results by lease. Sequence numbers must rise from completion to completion, so a lease that comes again after
/// another with records begins a new completion.
fn completions(results: Vec<(Finished, u64)>) -> Vec<Completion> {
    let mut completions: Vec<Completion> = Vec::new();
    for (finished, sequence) in results {
        let outcome = finished.outcome;
        let result = finished.id.map(|id| MessageResult { id, outcome, sequence });
        match completions.last_mut().filter(|last| last.lease == finished.lease) {
            Some(last) => {
                last.results.extend(result);
                last.release |= finished.release;
                if let Some(mut pace) = finished.pace {
                    // Of several, the newest; but a note that only an earlier one carried still counts.
                    pace.note = pace.note.or_else(|| last.pace.as_mut().and_then(|pace| pace.note.take()));
                    last.pace = Some(pace);
                }
            }
            None => completions.push(Completion {
                lease: finished.lease,
                results: result.into_iter().collect(),
                pace: finished.pace,
                release: finished.release,
            }),
        }
    }
    completions
}

async fn report(
    settled: mpsc::UnboundedSender<anyhow::Result<Settled>>,
    stage: impl Future<Output = anyhow::Result<()>>,
) {
    if let Err(error) = stage.await {
        // Nobody to tell only if the crawl has ended already.
        let _ = settled.send(Err(error));
    }
}

//! From single commands to log entries: a bounded queue in front, and one task that packs what is waiting into entries,
//! keeps a few of them in flight, and hands each command its reply. What commands mean is not known here.
//!
//! An idle group proposes a command at once. While entries are in flight, commands gather until they fill an entry, the
//! pipeline runs dry, or a millisecond has passed: the busier the group and the slower the disk, the larger the entries.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesOrdered};
use openraft::{errors::ClientWriteError, impls::ProgressResponder, raft::ClientWriteResult};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use super::{
    Clock, Consensus, GroupStatus,
    types::{Proposal, Types},
};
use crate::{
    codec,
    command::{Command, Compare, Entry, NewMessage, Outcome, RegistryOp, Reply},
};

/// Commands that wait or are in flight at most.
const QUEUED_COMMANDS: usize = 8192;
/// Bytes of them at most.
const QUEUED_BYTES: usize = 16 << 20;
/// A command of more bytes is refused: one entry delays everything behind it, and cannot be split.
pub const MAX_COMMAND_BYTES: usize = 2 << 20;
/// An entry ends with the command that reaches so many bytes.
const ENTRY_BYTES: usize = 256 << 10;
/// … or with so many commands.
const ENTRY_COMMANDS: usize = 1024;
/// While others are in flight, an entry is worth proposing from so many bytes on.
const WORTHWHILE_BYTES: usize = 64 << 10;
/// … or once its first command has waited so long.
const LINGER: Duration = Duration::from_millis(1);

/// Why a command has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The group is closed or has failed; the command was not applied and never will be.
    #[error("the group is closed")]
    Closed,
    /// This node does not lead the group, or cannot reach enough others; the command was not applied and never will be.
    #[error("this node does not lead the group; the leader is {leader:?}")]
    NotLeader {
        /// Who leads, where that is known.
        leader: Option<u64>,
    },
    /// The group was closed, failed or lost its leader while the command was on its way: it may be applied or not.
    #[error("the outcome is unknown: the group stopped while the command was on its way")]
    Unknown,
    /// The queue is full; the command was not taken.
    #[error("the group's queue is full; try again later")]
    Overloaded,
    /// The command has too many bytes; it was not taken.
    #[error("a command of about {bytes} bytes exceeds the bound of {MAX_COMMAND_BYTES}; split it")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

type Answer = Result<Reply, SubmitError>;

struct Queued {
    command: Command,
    bytes: usize,
    reply: oneshot::Sender<Answer>,
    /// Room in the queue, given back with the reply.
    _room: OwnedSemaphorePermit,
}

/// Where callers put their commands.
pub(super) struct Queue {
    /// Passed one by one in the order of asking, so that the order of the log is the order of submission.
    gate: Mutex<()>,
    room: Arc<Semaphore>,
    sender: mpsc::Sender<Queued>,
}

impl Queue {
    /// Submits `command`; waits while the queue is full. Once the future was polled and is dropped, the command may be
    /// applied or not.
    pub(super) async fn submit(&self, command: Command) -> Answer {
        let bytes = weight(&command)?;
        let receiver = {
            let _turn = self.gate.lock().await;
            let room = self.room.clone().acquire_many_owned(bytes as u32).await;
            let _room = room.map_err(|_| SubmitError::Closed)?;
            let (reply, receiver) = oneshot::channel();
            let queued = Queued { command, bytes, reply, _room };
            self.sender.send(queued).await.map_err(|_| SubmitError::Closed)?;
            receiver
        };
        receiver.await.unwrap_or(Err(SubmitError::Unknown))
    }

    /// Submits `command` at once, or not at all; the future that is returned gives the reply.
    pub(super) fn try_submit(
        &self,
        command: Command,
    ) -> Result<impl Future<Output = Answer> + use<>, SubmitError> {
        let bytes = weight(&command)?;
        let receiver = {
            let _turn = self.gate.try_lock().map_err(|_| SubmitError::Overloaded)?;
            let room = self.room.clone().try_acquire_many_owned(bytes as u32);
            let _room = room.map_err(|_| SubmitError::Overloaded)?;
            let (reply, receiver) = oneshot::channel();
            self.sender.try_send(Queued { command, bytes, reply, _room }).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => SubmitError::Overloaded,
                mpsc::error::TrySendError::Closed(_) => SubmitError::Closed,
            })?;
            receiver
        };
        Ok(async { receiver.await.unwrap_or(Err(SubmitError::Unknown)) })
    }

    /// Bytes of commands that wait or are in flight.
    pub(super) fn queued_bytes(&self) -> usize {
        QUEUED_BYTES - self.room.available_permits()
    }
}

/// The queue's other end, for [`Proposer::run`].
pub(super) struct Proposer {
    receiver: mpsc::Receiver<Queued>,
    raft: Consensus,
    clock: Clock,
    status: watch::Receiver<GroupStatus>,
    in_flight: usize,
}

/// A queue, and the proposer that empties it into `raft` with at most `in_flight` entries on their way.
pub(super) fn queue(
    raft: Consensus,
    clock: Clock,
    status: watch::Receiver<GroupStatus>,
    in_flight: usize,
) -> (Queue, Proposer) {
    let (sender, receiver) = mpsc::channel(QUEUED_COMMANDS);
    let room = Arc::new(Semaphore::new(QUEUED_BYTES));
    (
        Queue { gate: Mutex::new(()), room, sender },
        Proposer { receiver, raft, clock, status, in_flight: in_flight.max(1) },
    )
}

/// An entry that is being gathered.
struct Gathering {
    commands: Vec<Command>,
    replies: Vec<(oneshot::Sender<Answer>, OwnedSemaphorePermit)>,
    bytes: usize,
    since: Instant,
}

impl Gathering {
    fn new() -> Self {
        Self { commands: Vec::new(), replies: Vec::new(), bytes: 0, since: Instant::now() }
    }

    fn push(&mut self, queued: Queued) {
        if self.commands.is_empty() {
            self.since = Instant::now();
        }
        self.bytes += queued.bytes;
        self.commands.push(queued.command);
        self.replies.push((queued.reply, queued._room));
    }

    fn is_full(&self) -> bool {
        self.bytes >= ENTRY_BYTES || self.commands.len() >= ENTRY_COMMANDS
    }
}

impl Proposer {
    /// Runs until `stop` is done or all handles are gone; then takes nothing more, and ends when everything that was
    /// taken has its answer.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut stopping = false;
        let mut open = true;
        let mut flights = FuturesOrdered::new();
        let mut gathering = Gathering::new();
        loop {
            while !gathering.is_full()
                && let Ok(queued) = self.receiver.try_recv()
            {
                gathering.push(queued);
            }
            let waiting = !gathering.commands.is_empty();
            let worthwhile = flights.is_empty()
                || gathering.bytes >= WORTHWHILE_BYTES
                || gathering.is_full()
                || gathering.since.elapsed() >= LINGER;
            if waiting && worthwhile && flights.len() < self.in_flight {
                let gathered = std::mem::replace(&mut gathering, Gathering::new());
                flights.push_back(self.propose(gathered).await);
                continue;
            }
            if !open && !waiting && flights.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = &mut stop, if !stopping => {
                    stopping = true;
                    self.receiver.close();
                }
                Some(()) = flights.next(), if !flights.is_empty() => {}
                queued = self.receiver.recv(), if open && !gathering.is_full() => match queued {
                    Some(queued) => gathering.push(queued),
                    None => open = false,
                },
                () = sleep_until(gathering.since + LINGER), if waiting && flights.len() < self.in_flight => {}
            }
        }
    }

    /// Proposes an entry; the future that is returned is done when its replies are distributed.
    async fn propose(&self, gathered: Gathering) -> impl Future<Output = ()> + use<> {
        let entry = Entry { stamp: (self.clock)(), commands: gathered.commands };
        let proposal = Proposal(codec::encode_entry(&entry).into());
        let (responder, receiver) = ProgressResponder::<Types, ClientWriteResult<Types>>::complete_only();
        let taken = self.raft.client_write_ff(proposal, Some(responder)).await;
        let replies = gathered.replies;
        let mut status = self.status.clone();
        async move {
            if taken.is_err() {
                return refuse(replies, SubmitError::Closed);
            }
            // A leader that is cut off from the others would keep its callers waiting until it is not.
            let cut_off = async {
                if status.wait_for(|status| status.leads && !status.heard).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let answer = tokio::select! {
                biased;
                answer = receiver => answer.ok(),
                () = cut_off => None,
            };
            match answer {
                Some(Ok(applied)) => {
                    let mut answers = applied.data.0.into_iter();
                    for (reply, _room) in replies {
                        let _ = reply.send(answers.next().ok_or(SubmitError::Unknown));
                    }
                }
                Some(Err(ClientWriteError::ForwardToLeader(forward))) => {
                    refuse(replies, SubmitError::NotLeader { leader: forward.leader_id });
                }
                Some(Err(_)) | None => refuse(replies, SubmitError::Unknown),
            }
        }
    }
}

fn refuse(replies: Vec<(oneshot::Sender<Answer>, OwnedSemaphorePermit)>, why: SubmitError) {
    for (reply, _room) in replies {
        let _ = reply.send(Err(why));
    }
}

/// About the bytes that the command takes in an entry.
fn weight(command: &Command) -> Result<usize, SubmitError> {
    let bytes = command_weight(command);
    if bytes > MAX_COMMAND_BYTES { Err(SubmitError::TooLarge { bytes }) } else { Ok(bytes) }
}

fn command_weight(command: &Command) -> usize {
    64 + match command {
        Command::CreateQueue { name, spec, .. } => name.len() + spec.len(),
        Command::ConfigureQueue { spec, .. } => spec.as_ref().map_or(0, |spec| spec.len()),
        Command::Put { messages, .. } => messages.iter().map(message_weight).sum(),
        Command::Claim { more, .. } => more.iter().map(|more| 16 + more.lease.key.len()).sum(),
        Command::Renew { leases, .. } => leases.iter().map(|lease| 16 + lease.key.len()).sum(),
        Command::Complete { completions, .. } => completions
            .iter()
            .map(|completion| {
                let results = completion.results.iter().map(|result| match &result.outcome {
                    Outcome::Done { .. } => 32,
                    Outcome::Retry { reason, .. } | Outcome::Dead { reason, .. } => 32 + reason.len(),
                });
                let note = completion.pace.as_ref().and_then(|pace| pace.note.as_ref());
                32 + completion.lease.key.len() + note.map_or(0, |note| note.len()) + results.sum::<usize>()
            })
            .sum(),
        Command::Redrive { key, reason, .. } => {
            key.as_ref().map_or(0, |key| key.len()) + reason.as_ref().map_or(0, String::len)
        }
        Command::SetCheckpoint { name, value, .. } => {
            name.len() + value.as_ref().map_or(0, |value| value.len())
        }
        Command::Replay { key, .. } | Command::Purge { key, .. } => key.as_ref().map_or(0, |key| key.len()),
        Command::KeepAlive { sessions } => sessions.len() * 8,
        Command::Acquire { lock, .. } | Command::Release { lock, .. } => lock.len(),
        Command::Txn { compare, ops } => {
            let compared = compare.iter().map(|compare| match compare {
                Compare::Revision { key, .. } => 16 + key.len(),
                Compare::Value { key, value } => 16 + key.len() + value.len(),
                Compare::Held(guard) => 16 + guard.lock.len(),
            });
            let written = ops.iter().map(|op| match op {
                RegistryOp::Set { key, value, .. } => 32 + key.len() + value.len(),
                RegistryOp::Delete { key, .. } => 16 + key.len(),
            });
            compared.chain(written).sum()
        }
        // One within another is not carried out, so its depth is not followed.
        Command::Once { command, .. } => match &**command {
            Command::Once { .. } => 0,
            command => command_weight(command),
        },
        Command::Bootstrap { first, .. } => first.address.len() + first.version.len(),
        Command::EnrolNode { address, version, .. } => address.len() + version.len(),
        Command::SetNode { address, version, .. } => {
            address.as_ref().map_or(0, String::len) + version.as_ref().map_or(0, String::len)
        }
        Command::SetVoters { nodes, .. } => nodes.len() * 8,
        Command::MakeToken { label, .. } => label.len(),
        Command::SetQueueState { .. }
        | Command::DropQueue { .. }
        | Command::Attach { .. }
        | Command::Tick
        | Command::Recall { .. }
        | Command::OpenSession { .. }
        | Command::CloseSession { .. }
        | Command::ConfigureFeed { .. }
        | Command::OpenClient { .. }
        | Command::RemoveNode { .. }
        | Command::RevokeToken { .. } => 0,
    }
}

fn message_weight(message: &NewMessage) -> usize {
    32 + message.key.len() + message.payload.len()
}

//! The vocabulary of the replicated state machine: what can be asked of it and what it answers. Plain data; the bytes
//! are made in [`crate::codec`], the meaning is carried out in [`crate::machine`].
//!
//! Commands are set-shaped (put many, claim many, complete many) and never fail as a whole for the sake of one item:
//! user errors are part of the reply. Times are durations in milliseconds, counted from the log time of the entry that
//! carries the command; there are no dates.

use bytes::Bytes;

/// A queue's number: the log index of the entry that created it, or the next free number above it for a further queue of
/// the same entry. Never reused.
pub type QueueId = u64;

/// Log time: milliseconds stamped by the leader into each entry, never going back.
pub type LogTime = u64;

/// The log index of the grant of a lease (or the next free number above it, where one entry grants a key twice): it rises
/// with each grant of a key. Every later write under the lease carries it; any other is refused.
pub type Fence = u64;

/// A message's identity and age: log index of the entry that accepted it, then its place in that entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Log index of the entry.
    pub index: u64,
    /// Place among all messages of the entry, from 0.
    pub ordinal: u32,
}

/// A worker and its incarnation. A worker that restarts takes a greater epoch with [`Command::Attach`], which ends all
/// leases of its earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Consumer {
    /// The worker's number.
    pub node: u64,
    /// Its incarnation, given by the reply to [`Command::Attach`].
    pub epoch: u64,
}

/// One entry of the log: commands that are applied together, at one log time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The leader's clock in milliseconds when it proposed the entry. Log time is the greatest stamp so far.
    pub stamp: u64,
    /// Applied in order.
    pub commands: Vec<Command>,
}

/// What is asked of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Creates the queue `name`. If it exists, nothing changes and its id is returned with `created: false`.
    /// → [`Reply::Queue`]
    CreateQueue {
        /// 1 to 255 bytes, unique.
        name: String,
        /// Its rules.
        config: QueueConfig,
        /// What its user wants to keep with it (a job's description); not looked at. At most 1 MiB.
        spec: Bytes,
    },
    /// Replaces rules and spec of a queue. Raising a budget reopens what was finished or held back for that budget; keys
    /// that are over a lowered one are noticed when they are used next.
    /// → [`Reply::Done`]
    ConfigureQueue {
        /// The queue.
        queue: QueueId,
        /// Its new rules.
        config: QueueConfig,
        /// Its new spec; `None` keeps the old one.
        spec: Option<Bytes>,
    },
    /// Pauses, resumes or cancels a queue. A paused or cancelled queue grants no claims and still takes messages,
    /// renewals and completions. Cancelling is final.
    /// → [`Reply::Done`]
    SetQueueState {
        /// The queue.
        queue: QueueId,
        /// `Running`, `Paused` or `Cancelled`; the machine alone sets `Finished`.
        state: QueueState,
    },
    /// Removes a queue with all that it holds. Bounded work: big queues are removed by range. → [`Reply::Done`]
    DropQueue {
        /// The queue.
        queue: QueueId,
    },
    /// Adds messages. A message whose fingerprint the queue has ever accepted is a duplicate and changes nothing:
    /// marking it known and queueing it are one step. A finished queue runs again. → [`Reply::Put`]
    Put {
        /// The queue.
        queue: QueueId,
        /// In this order.
        messages: Vec<NewMessage>,
    },
    /// Leases keys that are due, and takes ready messages of each, oldest of the highest priority first. A lease that has
    /// run out ends with the next Claim or Tick that finds it so, and stands until then; `more` comes first, so an owner
    /// that is late for its own lease before anyone noticed keeps it. → [`Reply::Claimed`]
    Claim {
        /// The queue.
        queue: QueueId,
        /// Who works on them. A consumer whose epoch is not the newest of its node is refused.
        consumer: Consumer,
        /// How many further keys to lease, those due longest first.
        keys: u32,
        /// How many messages of each newly leased key.
        per_key: u32,
        /// More messages for keys that the consumer holds already, under the same lease.
        more: Vec<MoreOf>,
        /// How long the leases last, from log time. Also renews the leases named in `more`.
        ttl_ms: u64,
    },
    /// Prolongs leases. → [`Reply::Renewed`]
    Renew {
        /// The queue.
        queue: QueueId,
        /// The owner.
        consumer: Consumer,
        /// The leases.
        leases: Vec<LeaseRef>,
        /// The new term, from log time. A lease is never shortened by a renewal.
        ttl_ms: u64,
    },
    /// Hands results in. Each lease is judged for itself: with a wrong fence nothing of it is applied. A result whose
    /// sequence number was judged before is not applied again; its verdict is repeated. Of a queue that does not exist
    /// (any more) every result is refused. Refused as a whole if sequence numbers leave a gap, or if more refused
    /// results would have to be remembered than [`REFUSED_KEPT`](crate::machine::limits::REFUSED_KEPT).
    /// → [`Reply::Completed`]
    Complete {
        /// The queue.
        queue: QueueId,
        /// The owner.
        consumer: Consumer,
        /// Results by lease.
        completions: Vec<Completion>,
        /// All receipts up to and including this sequence number may be forgotten: their records were delivered.
        released_upto: u64,
    },
    /// Begins a new incarnation of a worker: ends the leases of its earlier epochs at once (their messages are ready
    /// again, their keys are held for the key's delay), and reports the receipts that are kept for it.
    /// → [`Reply::Attached`]
    Attach {
        /// The worker.
        node: u64,
    },
    /// Makes dead letters ready again, the oldest messages first, with their attempts counted from zero, as far as the
    /// queue's capacity goes. Not those of keys at their budget: raise that first. → [`Reply::Redriven`]
    Redrive {
        /// The queue.
        queue: QueueId,
        /// Only this key's.
        key: Option<Bytes>,
        /// Only those with this reason.
        reason: Option<String>,
        /// At most so many (bounds the entry's work).
        limit: u32,
    },
    /// Sets a checkpoint if its version is the expected one. Each write is one version on; after a removal, versions go on
    /// above the highest that was removed, so that none comes twice. → [`Reply::Checkpoint`]
    SetCheckpoint {
        /// 1 to 255 bytes.
        name: String,
        /// The version it must have; 0: it must not exist; `None`: any.
        expect: Option<u64>,
        /// The new value, at most 1 MiB; `None` removes it.
        value: Option<Bytes>,
    },
    /// Lets log time pass: promotes what is due and ends what has run out, a bounded number at once.
    /// → [`Reply::Ticked`]
    Tick,
}

/// A queue's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// After this many failed attempts (retries asked for and leases run out) a message is a dead letter. At least 1.
    pub max_attempts: u32,
    /// After losing so many leases to crashed or silent consumers a message is a dead letter too: it may be what
    /// crashes them. Lost leases do not count as failed attempts. At least 1.
    pub max_lost: u32,
    /// Messages ready, delayed or leased at most; further ones are answered with [`PutStatus::Full`].
    pub capacity: u64,
    /// Hold of a key after a lease of it was lost, and the start value of each key's delay.
    pub key_delay_ms: u64,
    /// How long completed messages are kept for inspection, at least; 0: not at all.
    pub retention_ms: u64,
    /// Units that the whole queue may charge ([`Outcome::Done`]); once charged, nothing more is granted.
    pub unit_budget: Option<u64>,
    /// Bytes that the whole queue may charge. No grant once reached; what is leased then may still exceed it.
    pub byte_budget: Option<u64>,
    /// Units that one key may charge. A key at its budget is exhausted: its ready messages count as dead with reason
    /// `budget` until the budget is raised.
    pub key_unit_budget: Option<u64>,
    /// Bytes that one key may charge, likewise.
    pub key_byte_budget: Option<u64>,
    /// The queue is finished when nothing is ready, delayed or leased any more (a crawl; not a standing queue).
    pub finishes: bool,
}

/// What a queue is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueState {
    /// Grants claims.
    Running,
    /// Grants none until resumed.
    Paused,
    /// Grants none any more.
    Cancelled,
    /// Nothing is ready, delayed or leased.
    Finished,
    /// A budget of the queue is used up and nothing is leased; messages may remain.
    BudgetReached,
}

/// A message to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// The unit of exclusion and pacing (a host key), 1 to 512 bytes.
    pub key: Bytes,
    /// 0 to 9; 9 is served first.
    pub priority: u8,
    /// Not before this long after log time.
    pub delay_ms: u64,
    /// Identity for deduplication, kept for the life of the queue.
    pub fingerprint: Option<u128>,
    /// At most 64 KiB; not looked at.
    pub payload: Bytes,
}

/// What became of a message to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutStatus {
    /// Ready or delayed now.
    Accepted,
    /// Its fingerprint was accepted before.
    Duplicate,
    /// The queue is at its capacity; the message is not known to it.
    Full,
    /// Key, priority or payload are out of bounds.
    Invalid,
}

/// Asks for more messages of a key that is held already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoreOf {
    /// The lease.
    pub lease: LeaseRef,
    /// At most so many messages.
    pub messages: u32,
}

/// Names a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The leased key.
    pub key: Bytes,
    /// The grant.
    pub fence: Fence,
}

/// Results under one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The lease.
    pub lease: LeaseRef,
    /// One result per message.
    pub results: Vec<MessageResult>,
    /// What was learnt about the key.
    pub pace: Option<Pace>,
    /// Give the key back when its last leased message has its result, in this completion or a later one, unless more
    /// messages are taken before.
    pub release: bool,
}

/// The result of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageResult {
    /// The message, leased under this completion's fence.
    pub id: MessageId,
    /// What became of it.
    pub outcome: Outcome,
    /// The consumer's own number for the record of this result, rising without gaps from completion to completion; 0:
    /// there is no record. The machine keeps, per consumer, up to where it has judged and which it refused: the receipt.
    pub sequence: u64,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Worked off, charging budgets.
    Done {
        /// Units (pages).
        units: u32,
        /// Bytes.
        bytes: u64,
    },
    /// Try again. Counts as a failed attempt unless `free`; after the last one the message is dead with `reason`.
    Retry {
        /// Not before this long after log time.
        after_ms: u64,
        /// Why, a short stable word.
        reason: String,
        /// Given back without having been tried (shutdown, a hold on the host): the attempt does not count.
        free: bool,
    },
    /// Given up.
    Dead {
        /// Why, a short stable word.
        reason: String,
        /// Units to charge all the same.
        units: u32,
        /// Bytes to charge all the same.
        bytes: u64,
    },
}

/// What a key's owner says about its pacing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// No lease of the key to another owner before this long after log time. Does not shorten an earlier hold.
    pub hold_ms: u64,
    /// The least time between two uses of the key: the hold when a lease of it is lost.
    pub delay_ms: u64,
    /// What the next owner should know (robots verdict, breaker); `None` keeps the old. At most 64 KiB.
    pub note: Option<Bytes>,
}

/// What the state machine answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Carried out.
    Done,
    /// The queue's id, and whether it is new.
    Queue {
        /// The queue.
        queue: QueueId,
        /// Whether the command made it.
        created: bool,
    },
    /// One status per message.
    Put(Vec<PutStatus>),
    /// What was granted.
    Claimed(Claimed),
    /// For each lease of the command, whether it still stands (and is prolonged).
    Renewed(Vec<bool>),
    /// One verdict per completion, and per result within it.
    Completed(Vec<CompletionVerdict>),
    /// A new incarnation has begun.
    Attached(Attached),
    /// How many dead letters are ready again.
    Redriven(u64),
    /// Outcome of a conditional write.
    Checkpoint {
        /// Whether it was written.
        written: bool,
        /// The version that the checkpoint has now; 0: it does not exist.
        version: u64,
    },
    /// Time has passed.
    Ticked {
        /// Until a delayed message becomes ready or a lease runs out next, in any queue: when the next tick is of use;
        /// `None`: nothing will.
        next_due_ms: Option<u64>,
    },
    /// The command cannot be carried out; nothing has changed.
    Refused(Refusal),
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such queue.
    #[error("there is no queue {0}")]
    NoQueue(QueueId),
    /// The consumer has been superseded by a newer incarnation of its node, or never attached.
    #[error("worker {node} is not attached with epoch {epoch}")]
    StaleConsumer {
        /// The worker.
        node: u64,
        /// The epoch that it claims.
        epoch: u64,
    },
    /// A result's sequence number does not follow the one before. Results that are judged out of order would leave
    /// receipts that lie; hand in again everything from `judged_upto + 1` on.
    #[error("result {sequence} does not follow result {judged_upto}, the last one that was judged")]
    SequenceGap {
        /// The last result that was judged, or stands before this one in the command.
        judged_upto: u64,
        /// The one that does not follow.
        sequence: u64,
    },
    /// A value is out of its bounds ([`crate::machine::limits`]).
    #[error("{0}")]
    Invalid(String),
}

/// The grant of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// New leases, then those that got more messages. Leases without any message are left out.
    pub grants: Vec<Grant>,
    /// The queue's state, to tell an empty moment from the end.
    pub state: QueueState,
    /// Until a key comes due, a delayed message becomes ready or a lease of somebody runs out; 0 if more is due now. Keys and
    /// messages that a budget keeps back do not count; `None`: nothing will, or the queue grants no claims.
    pub next_due_ms: Option<u64>,
}

/// Messages of one key under one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The lease.
    pub lease: LeaseRef,
    /// When the lease ends, as a duration from this entry's log time.
    pub ttl_ms: u64,
    /// Until the key may be used, from this entry's log time: 0 for keys that were due.
    pub hold_ms: u64,
    /// The key's delay.
    pub delay_ms: u64,
    /// What the last owner left; only with a new lease.
    pub note: Option<Bytes>,
    /// The messages, in the order to work on them.
    pub messages: Vec<Message>,
    /// Messages of the key that stay ready behind these.
    pub ready_left: u64,
}

/// A leased message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its identity.
    pub id: MessageId,
    /// 1 for the first delivery, then 2, 3 …
    pub attempt: u32,
    /// How many of the earlier deliveries failed; after [`QueueConfig::max_attempts`] of them it is a dead letter.
    pub failures: u32,
    /// How many of the earlier deliveries ended with a lost lease; see [`QueueConfig::max_lost`].
    pub lost: u32,
    /// 0 to 9.
    pub priority: u8,
    /// As it was put.
    pub payload: Bytes,
}

/// Judgement of a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionVerdict {
    /// Per result: whether it was accepted. All false if the lease no longer stands, but for verdicts that are repeated.
    pub accepted: Vec<bool>,
    /// Per result: whether the message is a dead letter now (given up, or its last attempt failed).
    pub dead: Vec<bool>,
    /// Whether the key was given back.
    pub released: bool,
    /// Messages of the key that are ready.
    pub ready_left: u64,
}

/// Answer to [`Command::Attach`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The new incarnation.
    pub consumer: Consumer,
    /// Every result with a sequence number up to this one was judged.
    pub judged_upto: u64,
    /// Those of them (above the released mark) that were refused, ascending.
    pub refused: Vec<u64>,
    /// Leases that were ended.
    pub leases_ended: u64,
}

/// A queue's numbers. At every log index `accepted = ready + delayed + leased + done + dead`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages ever accepted.
    pub accepted: u64,
    /// Puts that were duplicates.
    pub duplicates: u64,
    /// Ready now.
    pub ready: u64,
    /// Waiting for their time.
    pub delayed: u64,
    /// In somebody's hands.
    pub leased: u64,
    /// Worked off.
    pub done: u64,
    /// Given up.
    pub dead: u64,
    /// Retries granted after a failed attempt.
    pub retries: u64,
    /// Leases that were lost.
    pub lost: u64,
    /// Units charged.
    pub units: u64,
    /// Bytes charged.
    pub bytes: u64,
    /// Keys known.
    pub keys: u64,
}

//! What a queue's commands carry and get: rules, messages, leases, results, grants, numbers.

use bytes::Bytes;

use super::{Consumer, Fence, LogTime, MessageId};

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

/// Which of its messages a queue throws away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PurgeFrom {
    /// Those that are ready.
    Ready,
    /// Those that wait for their time.
    Delayed,
    /// Dead letters.
    Dead,
    /// Those worked off that are kept: only what is kept of them goes, they still count as done.
    Done,
}

/// Where a [`Command::Recall`](super::Command::Recall) begins: it goes through messages done in the order of their time,
/// then through dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecallFrom {
    /// At this message among those done.
    Done {
        /// Log time at which it was done.
        at: LogTime,
        /// The message.
        id: MessageId,
    },
    /// At this dead letter.
    Dead {
        /// The message.
        id: MessageId,
    },
}

impl Default for RecallFrom {
    fn default() -> Self {
        Self::Done { at: 0, id: MessageId { index: 0, ordinal: 0 } }
    }
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

/// A queue's numbers. At every log index `accepted = ready + delayed + leased + done + dead + purged`.
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
    /// Thrown away by [`Command::Purge`](super::Command::Purge).
    pub purged: u64,
}

//! The vocabulary of the replicated state machine: what can be asked of it and what it answers. Plain data; the bytes
//! are made in [`crate::codec`], the meaning is carried out in [`crate::machine`].
//!
//! Commands are set-shaped (put many, claim many, complete many) and never fail as a whole for the sake of one item:
//! user errors are part of the reply. Times are durations in milliseconds, counted from the log time of the entry that
//! carries the command; there are no dates.

mod cluster;
mod coordination;
mod queue;

use bytes::Bytes;

pub use self::{
    cluster::{Bootstrapped, Enrolled, FirstNode, MAX_VOTERS, NodeId, NodeWish, SLOTS, TokenHash, TokenKind},
    coordination::{
        Acquired, Change, ClientId, Compare, Event, Guard, RegistryOp, Retention, Revision, SessionId,
        TxnReply,
    },
    queue::{
        Attached, Claimed, Completion, CompletionVerdict, Counters, Grant, LeaseRef, Message, MessageResult,
        MoreOf, NewMessage, Outcome, Pace, PurgeFrom, PutStatus, QueueConfig, QueueState, RecallFrom,
    },
};

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
        /// The new value, at most 1 MiB; `None` removes it, with its history.
        value: Option<Bytes>,
        /// How many versions are kept from now on, this one among them, at most
        /// [`CHECKPOINT_VERSIONS`](crate::machine::limits::CHECKPOINT_VERSIONS); 0 is the same as 1.
        keep: u32,
        /// Refused unless this lock is held under this very fence.
        guard: Option<Guard>,
    },
    /// Lets log time pass: promotes what is due and ends what has run out, a bounded number at once.
    /// → [`Reply::Ticked`]
    Tick,
    /// Makes messages that were worked off and are kept ready again, those done first first, with their attempts counted
    /// from zero, as far as the queue's capacity goes. What they were charged stays charged. Not those of keys at their
    /// budget. → [`Reply::Replayed`]
    Replay {
        /// The queue.
        queue: QueueId,
        /// Only this key's.
        key: Option<Bytes>,
        /// Only this message and younger ones.
        from: MessageId,
        /// Only those done within so many milliseconds before log time.
        within_ms: Option<u64>,
        /// At most so many (bounds the entry's work).
        limit: u32,
    },
    /// Throws messages away. Their fingerprints stay known. → [`Reply::Purged`]
    Purge {
        /// The queue.
        queue: QueueId,
        /// Which.
        from: PurgeFrom,
        /// Only this key's.
        key: Option<Bytes>,
        /// At most so many (bounds the entry's work).
        limit: u32,
    },
    /// Makes the messages ready again that a worker settled and that are kept, whatever the capacity, as if they had not
    /// been settled: attempts count from zero, and what was charged for them is charged no more. For a worker whose
    /// records are lost. Of messages done that is only what the queue's retention kept. Fence the worker out first, with
    /// [`Command::Attach`]. → [`Reply::Recalled`]
    Recall {
        /// The queue.
        queue: QueueId,
        /// The worker.
        worker: u64,
        /// Where to begin: at the default, or where the last reply says.
        from: RecallFrom,
        /// At most so many messages (bounds the entry's work).
        limit: u32,
    },
    /// Begins a session. It ends with [`Command::CloseSession`], or with a command that finds its term over; with it go
    /// its locks, its places in line and its ephemeral keys. → [`Reply::Session`]
    OpenSession {
        /// How long it lasts, from log time, without being kept alive: 1 ms to a day.
        ttl_ms: u64,
    },
    /// Gives each session its full term again, from log time. One that is late, before any command found it over, lives
    /// on. → [`Reply::Kept`]
    KeepAlive {
        /// The sessions.
        sessions: Vec<SessionId>,
    },
    /// Ends a session. → [`Reply::Done`], also if there is none
    CloseSession {
        /// The session.
        session: SessionId,
    },
    /// Takes a lock, or a place in line for it. Who has it or waits for it already is told so again.
    /// → [`Reply::Acquired`]
    Acquire {
        /// 1 to 255 bytes. Locks need not be made before.
        lock: String,
        /// Who wants it.
        session: SessionId,
        /// Whether to wait in line. The grant is announced by an event ([`Change::Granted`]).
        wait: bool,
    },
    /// Lets go of a lock, or of a place in line. The next in line has the lock within the same entry.
    /// → [`Reply::Released`]
    Release {
        /// The lock.
        lock: String,
        /// Who lets go.
        session: SessionId,
        /// Only this grant, so that a late repetition does not let go of a later one; `None`: whatever the session has.
        fence: Option<Fence>,
    },
    /// Changes keys of the registry, all or none. → [`Reply::Txn`]
    Txn {
        /// What must hold.
        compare: Vec<Compare>,
        /// Carried out in order; no key may occur twice.
        ops: Vec<RegistryOp>,
    },
    /// Sets how many events are kept. → [`Reply::Done`]
    ConfigureFeed {
        /// The bounds.
        retention: Retention,
    },
    /// Makes a client known, so that it can use [`Command::Once`]. Known already: nothing changes. A client that sent
    /// nothing for an hour is forgotten; it must then take a new id, since nobody knows any more what it did.
    /// → [`Reply::Done`]
    OpenClient {
        /// Chosen at random by the client.
        client: ClientId,
    },
    /// Carries `command` out unless it was before: then its reply is repeated. Replies are kept by
    /// [`ONCE_WINDOW`](crate::machine::limits::ONCE_WINDOW). Not for commands that bring anything big or are harmless to
    /// repeat: Claim, Attach, KeepAlive, Tick, OpenClient, Once. → the reply of `command`
    Once {
        /// Who sends it; see [`Command::OpenClient`].
        client: ClientId,
        /// The client's own number for it, from 1. Need not arrive in order.
        sequence: u64,
        /// What to do.
        command: Box<Command>,
    },
    /// Makes the cluster known to itself: its id, how many groups it has, and its first node. Repeated for the same
    /// cluster, nothing changes. → [`Reply::Bootstrapped`]
    Bootstrap {
        /// The cluster's id.
        cluster: u128,
        /// Groups beside group 0: 1 to 256.
        groups: u32,
        /// The node that begins.
        first: FirstNode,
        /// The first access token, which has no end; `None` where the API asks for none.
        access: Option<TokenHash>,
    },
    /// Gives a node its number: that of the entry, or the next free one. A uuid that is known gets its number again, and
    /// nothing changes; that of a removed node is refused for ever. → [`Reply::Enrolled`]
    EnrolNode {
        /// The node's own id, made with its data directory.
        uuid: u128,
        /// Where others reach it.
        address: String,
        /// Its release.
        version: String,
        /// The join token that it showed; one use of it is taken. `None`: the caller answers for it.
        token: Option<TokenHash>,
    },
    /// Changes what is known of a node; `None` leaves it. → [`Reply::Done`]
    SetNode {
        /// The node.
        node: NodeId,
        /// Where others reach it.
        address: Option<String>,
        /// Its release.
        version: Option<String>,
        /// What it is wanted for.
        wish: Option<NodeWish>,
    },
    /// Removes a node for ever. Removed already: nothing changes. Takes it off no list of voters: that is the
    /// controller's. → [`Reply::Done`]
    RemoveNode {
        /// The node.
        node: NodeId,
    },
    /// Makes a token, or sets all about it anew. → [`Reply::Done`]
    MakeToken {
        /// Its hash; the token itself is never in the log.
        hash: TokenHash,
        /// What it is good for.
        kind: TokenKind,
        /// For people: 0 to 255 bytes.
        label: String,
        /// How long it is good for, from log time: 1 ms to a year. `None`: until it is revoked, which is for access only.
        ttl_ms: Option<u64>,
        /// How many nodes may enrol with it; `None`: any number, as always for access.
        uses: Option<u32>,
    },
    /// Removes a token. → [`Reply::Done`], also if there is none
    RevokeToken {
        /// Its hash.
        hash: TokenHash,
    },
    /// Which nodes shall vote in a group: the controller's plan. → [`Reply::Done`]
    SetVoters {
        /// 0 to the number of groups.
        group: u32,
        /// At most [`MAX_VOTERS`], none twice, all enrolled.
        nodes: Vec<NodeId>,
    },
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
    /// How many messages that were worked off are ready again.
    Replayed(u64),
    /// How many messages were thrown away.
    Purged(u64),
    /// How many messages are ready again, and where to go on; `None`: that was all.
    Recalled {
        /// Messages.
        moved: u64,
        /// Where to go on.
        next: Option<RecallFrom>,
    },
    /// Outcome of a conditional write.
    Checkpoint {
        /// Whether it was written.
        written: bool,
        /// The version that the checkpoint has now; 0: it does not exist.
        version: u64,
    },
    /// Time has passed.
    Ticked {
        /// Until a delayed message becomes ready, or a lease, session or token runs out next: when the next tick is
        /// of use; `None`: nothing will.
        next_due_ms: Option<u64>,
    },
    /// A session has begun.
    Session(SessionId),
    /// For each session of the command, whether it lives.
    Kept(Vec<bool>),
    /// How it stands with a lock now.
    Acquired(Acquired),
    /// Whether there was something to let go of.
    Released(bool),
    /// What became of a transaction.
    Txn(TxnReply),
    /// The cluster as it is.
    Bootstrapped(Bootstrapped),
    /// The node's number.
    Enrolled(Enrolled),
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
    /// The session has ended, or never was.
    #[error("there is no session {0}; open a new one")]
    NoSession(SessionId),
    /// There are as many as may be.
    #[error("{0}")]
    Full(String),
    /// The lock is not held under this fence (any more).
    #[error("the lock {:?} is not held under fence {} (any more)", .0.lock, .0.fence)]
    StaleFence(Guard),
    /// The client is not known (any more): what it sent before may have been carried out or not.
    #[error("client {0:#034x} is not known (any more); take a new id")]
    NoClient(ClientId),
    /// The reply to this command is not kept any more: it may have been carried out or not.
    #[error(
        "what client {client:#034x} sent up to {upto} is not remembered any more, and {sequence} is among it"
    )]
    Forgotten {
        /// The client.
        client: ClientId,
        /// The command's number.
        sequence: u64,
        /// The newest number that is not remembered.
        upto: u64,
    },
    /// The cluster has another id.
    #[error("this is cluster {0:#034x}, not the one that was named")]
    OtherCluster(u128),
    /// There is no cluster yet.
    #[error("there is no cluster yet; bootstrap it first")]
    NoCluster,
    /// The node was removed; its identity is refused for ever.
    #[error("node {0} was removed from the cluster; to join again, begin with an empty data directory")]
    NodeRemoved(NodeId),
    /// No such node.
    #[error("there is no node {0}")]
    NoNode(NodeId),
    /// No such join token, or none that is still good.
    #[error("the join token is not known: it was revoked, has expired or is used up; make a new one")]
    BadToken,
}

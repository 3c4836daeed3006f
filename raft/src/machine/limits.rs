//! Bounds of what a command may carry and of the work that one may cause. Beyond the first, a command is refused or a
//! message invalid; beyond the second, work is left for the next command. All are part of the replicated behaviour: nodes
//! with different bounds would diverge, so a change needs a new version of the log entry.

/// Bytes of a queue's or checkpoint's name.
pub const NAME_BYTES: usize = 255;
/// Bytes of a message's key.
pub const KEY_BYTES: usize = 512;
/// Bytes of a message's payload.
pub const PAYLOAD_BYTES: usize = 64 << 10;
/// Bytes of a key's note.
pub const NOTE_BYTES: usize = 64 << 10;
/// Bytes of a queue's spec.
pub const SPEC_BYTES: usize = 1 << 20;
/// Bytes of a checkpoint's value.
pub const CHECKPOINT_BYTES: usize = 1 << 20;
/// Bytes of a reason of a retry or a dead letter.
pub const REASON_BYTES: usize = 255;
/// The highest priority.
pub const TOP_PRIORITY: u8 = 9;

/// Queues of one group.
pub const QUEUES: u64 = 4_096;
/// Messages of one Put.
pub const PUT_MESSAGES: usize = 16_384;
/// Leases named in one Claim, Renew or Complete, and new leases of one Claim.
pub const LEASES_PER_COMMAND: usize = 16_384;
/// Messages granted by one Claim; it grants no more beyond.
pub const CLAIM_MESSAGES: u64 = 16_384;
/// Results of one Complete.
pub const COMPLETE_RESULTS: usize = 16_384;
/// Dead letters made ready by one Redrive.
pub const REDRIVE_MESSAGES: u32 = 16_384;
/// Dead letters looked at by one Redrive; those behind are reached once the ones before are gone.
pub const REDRIVE_VISITS: usize = 1 << 20;
/// The longest term of a lease in milliseconds: a day.
pub const TTL_MS: u64 = 24 * 60 * 60 * 1_000;

/// Messages of one key that are leased at once.
pub const LEASED_PER_KEY: u64 = 4_096;
/// Messages of one queue that are leased at once; bounds the work of [`Attach`](crate::command::Command::Attach).
pub const LEASED_PER_QUEUE: u64 = 262_144;
/// Leases of one queue that stand at once, likewise.
pub const LEASES_PER_QUEUE: u64 = 65_536;

/// Refused results that are kept for one consumer. A Complete that could exceed it is refused until
/// `released_upto` is raised.
pub const REFUSED_KEPT: usize = 65_536;

/// Steps of catching up with log time in one Claim or Tick: a promoted message, an ended lease, each message of such a
/// lease, a key whose budget is looked at again.
pub const CATCH_UP_STEPS: usize = 1_024;

/// Messages that were worked off and are looked at by one Replay; likewise by one Purge that names a key.
pub const REPLAY_VISITS: usize = 65_536;
/// Messages made ready by one Replay, or thrown away by one Purge.
pub const REPLAY_MESSAGES: u32 = 16_384;

/// Messages that were settled and are looked at by one Recall.
pub const RECALL_VISITS: usize = 16_384;
/// Messages made ready by one Recall.
pub const RECALL_MESSAGES: u32 = 4_096;

/// Sessions of one group.
pub const SESSIONS: u64 = 262_144;
/// Sessions named in one KeepAlive.
pub const SESSIONS_PER_COMMAND: usize = 16_384;
/// Locks held, places in line and ephemeral keys of one session: the work of its end.
pub const SESSION_ITEMS: u64 = 1_024;
/// Sessions in line for one lock.
pub const LOCK_WAITERS: u64 = 65_536;

/// Bytes of a key of the registry.
pub const REGISTRY_KEY_BYTES: usize = 512;
/// Bytes of its value.
pub const REGISTRY_VALUE_BYTES: usize = 64 << 10;
/// Keys of the registry.
pub const REGISTRY_KEYS: u64 = 1 << 20;
/// Bytes of all of them with their values.
pub const REGISTRY_BYTES: u64 = 1 << 30;
/// Comparisons of one transaction, and changes of one.
pub const TXN_OPS: usize = 64;

/// Events that can be kept.
pub const FEED_EVENTS: u64 = 1 << 20;
/// Bytes of them that can be kept.
pub const FEED_BYTES: u64 = 1 << 30;
/// Events that are kept if nothing else was said.
pub const FEED_EVENTS_KEPT: u64 = 1 << 17;
/// Bytes of them that are kept if nothing else was said.
pub const FEED_BYTES_KEPT: u64 = 64 << 20;
/// Old events removed at once, beside each new one and by each Tick.
pub const FEED_TRIM_STEPS: usize = 1_024;

/// Versions of a checkpoint that can be kept.
pub const CHECKPOINT_VERSIONS: u32 = 256;

/// Clients whose replies are remembered.
pub const CLIENTS: u64 = 16_384;
/// Forgotten after so many milliseconds in which they sent nothing: an hour.
pub const CLIENT_IDLE_MS: u64 = 60 * 60 * 1_000;
/// The newest sequence numbers of a client whose replies are remembered, at least, if their bytes allow it.
pub const ONCE_WINDOW: u64 = 1_024;
/// Bytes of the replies that are remembered of one client.
pub const ONCE_BYTES: u64 = 512 << 10;

/// Groups beside group 0.
pub const GROUPS: u32 = 256;
/// Nodes that are not removed.
pub const NODES: u64 = 1_024;
/// Nodes ever enrolled: each leaves a row for ever.
pub const NODES_EVER: u64 = 1 << 20;
/// Tokens.
pub const TOKENS: u64 = 1_024;
/// The longest term of a token in milliseconds: a year.
pub const TOKEN_TTL_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

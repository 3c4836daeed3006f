//! What sessions, locks, the registry, checkpoints and the feed of their changes carry.

use bytes::Bytes;

use super::{Fence, LogTime};

/// A session's number: the log index of the entry that opened it, or the next free number above. Never reused.
pub type SessionId = u64;

/// The number of a change in the feed: each is one above the one before. A key's revision is that of its last change.
pub type Revision = u64;

/// Who sends commands that are to be carried out once: a random number.
pub type ClientId = u128;

/// A lock that must be held for a write to be allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The lock.
    pub lock: String,
    /// The grant under which it must be held, now.
    pub fence: Fence,
}

/// How it stands with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The session has it.
    Granted {
        /// Greater than that of any earlier grant of any lock of the group.
        fence: Fence,
    },
    /// The session stands in line.
    Queued {
        /// Its place: lower ones come first.
        ticket: u64,
    },
    /// Another session has it.
    Taken {
        /// Who.
        session: SessionId,
        /// Its grant.
        fence: Fence,
    },
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key has this revision.
    Revision {
        /// The key.
        key: Bytes,
        /// 0: it must not exist.
        revision: Revision,
    },
    /// The key exists with this value.
    Value {
        /// The key.
        key: Bytes,
        /// Its value.
        value: Bytes,
    },
    /// The lock is held so.
    Held(Guard),
}

/// A change of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryOp {
    /// Sets a key.
    Set {
        /// 1 to 512 bytes.
        key: Bytes,
        /// At most 64 KiB.
        value: Bytes,
        /// The revision that it must have; 0: it must not exist; `None`: any.
        expect: Option<Revision>,
        /// The key goes with this session; `None`: it stays. Replaces what was said before.
        session: Option<SessionId>,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: Bytes,
        /// The revision that it must have; `None`: any, or none at all.
        expect: Option<Revision>,
    },
}

impl RegistryOp {
    /// The key that it changes.
    pub fn key(&self) -> &Bytes {
        match self {
            RegistryOp::Set { key, .. } | RegistryOp::Delete { key, .. } => key,
        }
    }
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnReply {
    /// All was written: for each change its revision; 0: there was nothing to delete.
    Written(Vec<Revision>),
    /// A condition does not hold, and nothing was written.
    Failed {
        /// Which: counted through the comparisons, then through the changes.
        at: u32,
        /// The revision that its key has; 0: it does not exist. For a lock: the fence of its present grant; 0: it is free.
        found: u64,
    },
}

/// How many events are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// At most so many.
    pub events: u64,
    /// And so many bytes of them.
    pub bytes: u64,
}

/// An entry of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub revision: Revision,
    /// The log index of the entry that made it: events of one entry happened together.
    pub index: u64,
    /// Log time.
    pub at: LogTime,
    /// What happened.
    pub change: Change,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A key of the registry was set.
    Set {
        /// The key.
        key: Bytes,
        /// Its value.
        value: Bytes,
        /// The session that it goes with.
        session: Option<SessionId>,
    },
    /// A key of the registry was removed.
    Deleted {
        /// The key.
        key: Bytes,
        /// The session whose end removed it.
        session: Option<SessionId>,
    },
    /// A session got a lock.
    Granted {
        /// The lock.
        lock: String,
        /// Who has it.
        session: SessionId,
        /// The grant.
        fence: Fence,
    },
    /// A session has a lock no more.
    Released {
        /// The lock.
        lock: String,
        /// Who had it.
        session: SessionId,
        /// The grant that is over.
        fence: Fence,
    },
    /// A checkpoint was written or removed.
    Checkpoint {
        /// Its name.
        name: String,
        /// Its version; of one that was removed, the last it had.
        version: u64,
        /// Whether it was removed.
        removed: bool,
    },
}

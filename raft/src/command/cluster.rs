//! What the commands about nodes, groups and tokens carry. They are for group 0.

/// A node's number: the log index of the entry that enrolled it, or the next free number above. Never reused.
pub type NodeId = u64;

/// The hash of a token; which hash is the callers' matter.
pub type TokenHash = [u8; 32];

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// To enrol nodes.
    Join,
    /// To use the API.
    Access,
}

/// Slots of the map from keys to groups.
pub const SLOTS: usize = 256;

/// Voters of a group at most.
pub const MAX_VOTERS: usize = 5;

/// The node that begins a cluster; it has its number before there is a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstNode {
    /// Its number.
    pub node: NodeId,
    /// Its own id, made with its data directory.
    pub uuid: u128,
    /// Where others reach it: 1 to 255 bytes.
    pub address: String,
    /// Its release: 1 to 255 bytes.
    pub version: String,
}

/// What a node is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeWish {
    /// Whatever the controller finds best.
    Any,
    /// To vote, as far as voters are wanted.
    Voter,
    /// To work only.
    Worker,
    /// To give up leadership, votes and leases, because it is going to stop.
    Drain,
}

/// The cluster, as [`Command::Bootstrap`](super::Command::Bootstrap) found or made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bootstrapped {
    /// How many groups there are beside group 0.
    pub groups: u32,
    /// Whether the command made it.
    pub created: bool,
}

/// A node's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enrolled {
    /// The number.
    pub node: NodeId,
    /// Whether it is new.
    pub created: bool,
}

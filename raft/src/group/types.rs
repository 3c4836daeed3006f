//! The types that openraft is instantiated with. None of them has a serde format; their bytes are made in
//! [`super::format`].

// openraft's own macro names its runtime by a path that it has deprecated; the type is the same.
#![allow(deprecated)]

use std::fmt;

use bytes::Bytes;
use openraft::{EmptyNode, EntryPayload, impls::leader_id_std};

use crate::command::Reply;

openraft::declare_raft_types!(
    /// One leader per term (`leader_id_std`), so that a log id is a term and an index, as in the Raft paper. Nodes are
    /// bare numbers: their addresses are kept elsewhere, because changing one through membership can split a cluster.
    pub Types:
        D = Proposal,
        R = Replies,
        NodeId = u64,
        Node = EmptyNode,
        Term = u64,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
);

/// What a log id says of the leader: its term.
pub type LeaderTerm = <leader_id_std::LeaderId<u64, u64> as openraft::vote::RaftLeaderId>::Committed;
/// Term and index of an entry.
pub type LogId = openraft::LogId<LeaderTerm>;
/// A node's vote.
pub type Vote = openraft::Vote<leader_id_std::LeaderId<u64, u64>>;
/// The voters and learners of a group.
pub type Membership = openraft::Membership<u64, EmptyNode>;
/// A membership and the log id that brought it.
pub type StoredMembership = openraft::StoredMembership<LeaderTerm, u64, EmptyNode>;
/// A log entry.
pub type LogEntry = openraft::Entry<LeaderTerm, EntryPayload<Proposal, u64, EmptyNode>>;
/// What a snapshot covers.
pub type SnapshotMeta = openraft::SnapshotMeta<LeaderTerm, u64, EmptyNode>;
/// A snapshot: what it covers, and where it is.
pub type Snapshot = openraft::Snapshot<LeaderTerm, u64, EmptyNode, super::snapshot::SnapshotData>;

/// A proposed entry of the machine: the bytes of one [`crate::command::Entry`]. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Proposal(pub Bytes);

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One reply per command of the entry; none for entries of Raft's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replies(pub Vec<Reply>);

//! The network of a group that has none: its only voter is the node itself, so nothing is ever sent. Should a
//! membership name another node all the same, that node is answered for as unreachable, never as agreeing: pre-votes
//! included, which openraft would otherwise grant by default.

use std::future::Future;

use openraft::{
    EmptyNode, RaftNetworkFactory, RaftNetworkV2,
    errors::{RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::RPCOption,
    raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse},
};

use super::{
    snapshot::SnapshotData,
    types::{Snapshot, Types, Vote},
};

/// Makes [`NoPeer`]s.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NoPeers;

/// A node that cannot be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoPeer {
    node: u64,
}

impl NoPeer {
    fn unreachable(self) -> Unreachable<Types> {
        Unreachable::from_string(format!(
            "node {} cannot be reached: an embedded group has no peers",
            self.node
        ))
    }
}

impl RaftNetworkFactory<Types> for NoPeers {
    type Network = NoPeer;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> NoPeer {
        NoPeer { node: target }
    }
}

impl RaftNetworkV2<Types> for NoPeer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn pre_vote(
        &mut self,
        _request: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(self.unreachable().into())
    }
}

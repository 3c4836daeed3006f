//! openraft's view of the other nodes of a group. What is said is [`super::wire`]'s; how it gets there, the transport's.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use dolomedes_netproto::peer::{Lane, PeerError, Transport};
use dolomedes_storage::{codec::DecodeError, engine::Engine};
use futures_util::Stream;
use openraft::{
    EmptyNode, RaftNetworkFactory, RaftNetworkV2,
    base::{BoxFuture, BoxStream},
    errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::{RPCOption, stream_append_sequential},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
        TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
    },
};

use super::{
    super::{
        snapshot::SnapshotData,
        types::{Snapshot, Types, Vote},
    },
    appends::Appends,
    send::Sending,
    wire::{self, Request},
};

/// Makes a [`Peer`] per node and purpose.
#[derive(Clone)]
pub(in crate::group) struct Peers {
    pub(in crate::group) group: u32,
    pub(in crate::group) transport: Arc<dyn Transport>,
    /// Opens the checkpoints that snapshots are read from.
    pub(in crate::group) engine: Arc<dyn Engine>,
}

impl Peers {
    fn peer(&self, target: u64, heartbeats: bool) -> Peer {
        let appends = Appends::new(self.group, target, self.transport.clone());
        Peer { appends, engine: self.engine.clone(), heartbeats }
    }
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> Peer {
        self.peer(target, false)
    }

    async fn new_heartbeat_client(&mut self, target: u64, _node: &EmptyNode) -> Peer {
        self.peer(target, true)
    }
}

/// Another node of the group.
pub(in crate::group) struct Peer {
    appends: Appends,
    engine: Arc<dyn Engine>,
    /// Whether it is for heartbeats only: these must not wait behind entries.
    heartbeats: bool,
}

impl Peer {
    async fn ask<T>(
        &self,
        request: &Request,
        deadline: Duration,
        read: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<T, RPCError<Types>> {
        let Appends { group, target, transport, .. } = &self.appends;
        let request = wire::encode_request(*group, request);
        let answer: Bytes =
            transport.call(*target, Lane::Control, request, deadline).await.map_err(failed)?;
        read(&answer).map_err(|error| NetworkError::from_string(format!("node {target}: {error}")).into())
    }
}

/// What to make of a peer that gave no answer: one that is not there is tried again after a while, one that was lost at
/// once.
pub(super) fn failed(error: PeerError) -> RPCError<Types> {
    match error {
        PeerError::Unreachable { .. } | PeerError::Refused { .. } => {
            Unreachable::from_string(error.to_string()).into()
        }
        PeerError::Lost { .. } => NetworkError::from_string(error.to_string()).into(),
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let beginning = request.prev_log_id.is_none();
        let request = Request::Append(request);
        let answer = self.ask(&request, option.hard_ttl(), wire::decode_appended).await?;
        let answer = AppendEntriesResponse::from(answer);
        if beginning && answer.is_conflict() {
            // Nothing can conflict with the beginning of the log, and openraft relies on it.
            return Err(NetworkError::from_string("a node disagrees with an empty log").into());
        }
        Ok(answer)
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        if self.heartbeats { stream_append_sequential(self, input, option) } else { self.appends.run(input) }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask(&Request::Vote(request), option.hard_ttl(), wire::decode_voted).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask(&Request::PreVote(request), option.hard_ttl(), wire::decode_voted).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        self.ask(&Request::Transfer(request), option.hard_ttl(), wire::decode_transferred).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let Appends { group, target, transport, .. } = &self.appends;
        let sending = Sending { group: *group, target: *target, transport, engine: &self.engine, vote };
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = sending.run(snapshot) => sent.map_err(StreamingError::from),
        }
    }
}

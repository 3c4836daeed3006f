//! Answers the other nodes for all groups of this one. Several groups share one transport; each request names its group.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use dolomedes_netproto::peer::{Handler, Lane, NodeNumber, PeerStream, Pending};
use futures_util::{StreamExt, stream};
use openraft::raft::StreamAppendResult;
use tokio::{
    runtime::Handle,
    sync::{OwnedRwLockReadGuard, RwLock, mpsc},
    task::AbortHandle,
};

use super::{
    super::{Consensus, Group, types::Types, types::Vote},
    wire::{self, Request},
};

/// Requests of one stream that may be with openraft at once; more than it takes itself.
const PIPELINED: usize = 128;

/// The groups of a node, for its transport.
#[derive(Default)]
pub struct GroupHandler {
    groups: Mutex<BTreeMap<u32, Arc<Endpoint>>>,
}

impl GroupHandler {
    /// A handler without groups.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers for `group` from now on.
    pub fn add(&self, group: &Group) {
        self.lock().insert(group.number(), group.endpoint());
    }

    /// Answers for the group no more; its streams end.
    pub fn remove(&self, group: u32) {
        if let Some(endpoint) = self.lock().remove(&group) {
            endpoint.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Endpoint>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, group: u32) -> Result<Arc<Endpoint>, String> {
        self.lock().get(&group).cloned().ok_or_else(|| format!("group {group} is not on this node"))
    }
}

impl Handler for GroupHandler {
    fn call(&self, from: NodeNumber, _lane: Lane, request: Bytes) -> Pending<Result<Bytes, String>> {
        let found = wire::decode_request(&request)
            .map_err(|error| error.to_string())
            .and_then(|(group, request)| Ok((self.find(group)?, request)));
        Box::pin(async move {
            let (endpoint, request) = found?;
            // On consensus' own threads, whoever's threads the transport runs on.
            let runtime = endpoint.runtime.clone();
            let answering = runtime.spawn(async move { endpoint.answer(from, request).await });
            answering.await.unwrap_or_else(|error| Err(format!("answering failed: {error}")))
        })
    }

    fn accept(&self, from: NodeNumber, opening: Bytes, stream: PeerStream) -> Result<(), String> {
        let group = wire::decode_opening(&opening).map_err(|error| error.to_string())?;
        self.find(group)?.accept(from, stream);
        Ok(())
    }
}

/// Where one group is asked.
pub(in crate::group) struct Endpoint {
    raft: Consensus,
    runtime: Handle,
    /// Held for reading by every request with entries until it is answered.
    gate: Arc<RwLock<()>>,
    /// One stream per peer: a new one replaces the one before.
    streams: Mutex<BTreeMap<NodeNumber, AbortHandle>>,
}

impl Endpoint {
    pub(in crate::group) fn new(raft: Consensus) -> Self {
        Self {
            raft,
            runtime: Handle::current(),
            gate: Arc::new(RwLock::new(())),
            streams: Mutex::new(BTreeMap::new()),
        }
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<NodeNumber, AbortHandle>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::group) fn close(&self) {
        for (_, stream) in std::mem::take(&mut *self.streams()) {
            stream.abort();
        }
    }

    async fn answer(&self, from: NodeNumber, request: Request) -> Result<Bytes, String> {
        let sender = match &request {
            Request::Append(request) => &request.vote,
            Request::Vote(request) | Request::PreVote(request) => &request.vote,
            Request::Transfer(request) => request.from_leader(),
            Request::Offer(offer) => &offer.vote,
            Request::Piece(piece) => &piece.vote,
            Request::Install(install) => &install.vote,
        };
        own(from, sender)?;
        match request {
            Request::Append(request) => {
                let last = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
                let prev = request.prev_log_id;
                let _pass = if request.entries.is_empty() { None } else { Some(self.gate.read().await) };
                let response = self.raft.append_entries(request).await.map_err(|error| error.to_string())?;
                Ok(wire::encode_appended(&response.into_stream_result(prev, last)))
            }
            Request::Vote(request) => {
                self.raft.vote(request).await.map(|voted| wire::encode_voted(&voted)).map_err(stopped)
            }
            Request::PreVote(request) => {
                self.raft.pre_vote(request).await.map(|voted| wire::encode_voted(&voted)).map_err(stopped)
            }
            Request::Transfer(request) => {
                let response = self.raft.handle_transfer_leader(request).await;
                response.map(|response| wire::encode_transferred(&response)).map_err(stopped)
            }
            Request::Offer(_) | Request::Piece(_) | Request::Install(_) => {
                Err("snapshots are not taken".to_owned())
            }
        }
    }

    fn accept(&self, from: NodeNumber, stream: PeerStream) {
        let (raft, gate) = (self.raft.clone(), self.gate.clone());
        let serving = self.runtime.spawn(take_appends(raft, gate, from, stream));
        if let Some(before) = self.streams().insert(from, serving.abort_handle()) {
            before.abort();
        }
    }
}

fn stopped(error: impl ToString) -> String {
    error.to_string()
}

/// A vote is spoken for by the node that it names, and by nobody else.
fn own(from: NodeNumber, vote: &Vote) -> Result<(), String> {
    if vote.leader_id.voted_for == from {
        Ok(())
    } else {
        Err(format!("node {from} speaks for node {}", vote.leader_id.voted_for))
    }
}

type Passed = Option<OwnedRwLockReadGuard<()>>;

/// Feeds one stream into openraft and sends the answers back, both without waiting for the other.
async fn take_appends(raft: Consensus, gate: Arc<RwLock<()>>, from: NodeNumber, stream: PeerStream) {
    let PeerStream { sender, frames } = stream;
    let (passing, mut passed) = mpsc::channel::<Passed>(PIPELINED);
    let requests = stream::unfold((frames, gate, passing), move |(mut frames, gate, passing)| async move {
        let request = match frames.recv().await? {
            Ok(frame) => wire::decode_append(&frame).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let request = request.and_then(|request| own(from, &request.vote).map(|()| request));
        let request = match request {
            Ok(request) => request,
            Err(reason) => {
                tracing::warn!(from, reason, "a stream of appends has ended");
                return None;
            }
        };
        // Without entries it cannot bring anything that an installation would have to fear.
        let pass = if request.entries.is_empty() { None } else { Some(gate.clone().read_owned().await) };
        passing.send(pass).await.ok()?;
        Some((request, (frames, gate, passing)))
    });
    let mut answers = std::pin::pin!(raft.stream_append(requests));
    while let Some(Ok(answer)) = answers.next().await {
        let pass = passed.recv().await;
        let answer: StreamAppendResult<Types> = answer;
        let sent = sender.send(wire::encode_appended(&answer)).await;
        drop(pass);
        if sent.is_err() || answer.is_err() {
            return;
        }
    }
}

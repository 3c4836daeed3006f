//! Answers the other nodes for all groups of this one. Several groups share one transport; each request names its group.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use dolomedes_netproto::peer::{Handler, Lane, NodeNumber, PeerStream, Pending};
use futures_util::{StreamExt, stream};
use openraft::raft::StreamAppendResult;
use tokio::{
    runtime::Handle,
    sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, mpsc},
    task::AbortHandle,
};

use super::{
    super::{
        Consensus, Group,
        types::{Snapshot, SnapshotMeta, Types, Vote},
    },
    receive::Transfer,
    wire::{self, Install, Piece, Received, Request},
};

/// Requests of one stream that may be with openraft at once; more than it takes itself.
const PIPELINED: usize = 128;

/// How long entries may take to be applied before a snapshot is installed; then the sender tries again.
const QUIET_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked for.
const QUIET_CHECK: Duration = Duration::from_millis(2);
const UNKNOWN: &str = "this snapshot was not offered";

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

enum Step {
    Offer(SnapshotMeta),
    Piece(Piece),
    Install(Install),
}

fn progress(vote: Vote, transfer: Option<&Transfer>) -> Bytes {
    wire::encode_received(&Received {
        vote,
        next: transfer.map_or(0, |transfer| transfer.next),
        after: transfer.and_then(|transfer| transfer.after.clone()),
        done: false,
    })
}

fn finished(vote: Vote) -> Bytes {
    wire::encode_received(&Received { vote, next: 0, after: None, done: true })
}

/// Where one group is asked.
pub(in crate::group) struct Endpoint {
    group: u32,
    raft: Consensus,
    /// Where snapshots are received.
    snapshots: PathBuf,
    /// The snapshot that is being received; held while it is worked on.
    incoming: tokio::sync::Mutex<Option<Transfer>>,
    runtime: Handle,
    /// Held for reading by every request with entries until it is answered.
    gate: Arc<RwLock<()>>,
    /// One stream per peer: a new one replaces the one before.
    streams: Mutex<BTreeMap<NodeNumber, AbortHandle>>,
}

impl Endpoint {
    pub(in crate::group) fn new(group: u32, raft: Consensus, snapshots: PathBuf) -> Self {
        Self {
            group,
            raft,
            snapshots,
            incoming: tokio::sync::Mutex::new(None),
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
            Request::Offer(offer) => self.receive(offer.vote, Step::Offer(offer.meta)).await,
            Request::Piece(piece) => self.receive(piece.vote, Step::Piece(piece)).await,
            Request::Install(install) => self.receive(install.vote, Step::Install(install)).await,
        }
    }

    /// One step of receiving a snapshot.
    async fn receive(&self, vote: Vote, step: Step) -> Result<Bytes, String> {
        let mut incoming = self.incoming.lock().await;
        let own = self.raft.with_raft_state(|state| *state.vote_ref()).await.map_err(stopped)?;
        if own > vote {
            return Ok(progress(own, None));
        }
        match step {
            Step::Offer(meta) => {
                if self.raft.watch_apply_progress().get() >= meta.last_log_id {
                    *incoming = None;
                    return Ok(finished(own));
                }
                if incoming.as_ref().is_none_or(|transfer| transfer.meta != meta) {
                    *incoming = None;
                    let (root, group) = (self.snapshots.clone(), self.group);
                    let begun = tokio::task::spawn_blocking(move || Transfer::begin(&root, group, meta));
                    *incoming = Some(begun.await.map_err(stopped)?.map_err(stopped)?);
                }
            }
            Step::Piece(piece) => {
                let transfer = incoming.take().filter(|transfer| transfer.covers(piece.last));
                let Some(mut transfer) = transfer else { return Err(UNKNOWN.to_owned()) };
                let taken = tokio::task::spawn_blocking(move || {
                    let taken = transfer.take(&piece);
                    (transfer, taken)
                });
                let (transfer, taken) = taken.await.map_err(stopped)?;
                *incoming = Some(transfer);
                taken?;
            }
            Step::Install(install) => {
                let whole = |transfer: &Transfer| transfer.covers(install.last);
                let Some(transfer) = incoming.take_if(|transfer| whole(transfer)) else {
                    return Err(UNKNOWN.to_owned());
                };
                if transfer.next != install.pieces {
                    *incoming = Some(transfer);
                    return Ok(progress(own, incoming.as_ref()));
                }
                let (_closed, transfer) = match self.quiet().await {
                    Ok(closed) => (closed, transfer),
                    Err(reason) => {
                        *incoming = Some(transfer);
                        return Err(reason);
                    }
                };
                let (meta, snapshot) = transfer.finished();
                let snapshot = Snapshot { meta, snapshot };
                let installed = self.raft.install_full_snapshot(vote, snapshot).await.map_err(stopped)?;
                return Ok(finished(installed.vote));
            }
        }
        Ok(progress(own, incoming.as_ref()))
    }

    /// Lets no entries in, and waits until all that are there are applied; that is how it stays while the guard lives.
    ///
    /// openraft panics (its issue 2116) if entries that came before a snapshot, or come while it is installed, are to be
    /// applied after the snapshot has taken their place in the log. Entries of this leader that are not known to be committed
    /// are so when the next heartbeat says how far the group has got: farther than the snapshot.
    async fn quiet(&self) -> Result<OwnedRwLockWriteGuard<()>, String> {
        let closed = self.gate.clone().write_owned().await;
        let applied = async {
            loop {
                let written = self.raft.watch_log_progress().get();
                let own = self.raft.with_raft_state(|state| *state.vote_ref()).await.map_err(stopped)?;
                // What another leader left is not applied before this one has confirmed it.
                let waiting = written.filter(|written| written.vote == own).and_then(|at| at.last_log_id);
                if self.raft.watch_apply_progress().get() >= waiting {
                    return Ok(());
                }
                tokio::time::sleep(QUIET_CHECK).await;
            }
        };
        match tokio::time::timeout(QUIET_PATIENCE, applied).await {
            Ok(quiet) => quiet.map(|()| closed),
            Err(_) => Err("entries are still being applied".to_owned()),
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

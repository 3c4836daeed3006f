//! A Raft group: the machine of [`crate::machine`], its log, and openraft between them. Callers submit commands and get
//! replies; which entries these became, and what a vote is, stays in here. A group of one voter and one of many are the
//! same but for the transport: a node without peers has one that reaches nobody.
//!
//! Any error of the storage, and any panic in here, ends the group for good: [`Group::failed`] tells, and the process
//! has to end. Nothing of it may be used afterwards, since what is on disk is known only after the next start.

mod floor;
pub mod format;
mod generation;
pub mod log;
mod members;
mod network;
pub mod pieces;
mod queue;
mod retention;
pub mod rpc;
mod settings;
pub mod snapshot;
pub mod state;
mod status;
pub mod types;

use std::{
    collections::BTreeMap,
    future::Future,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dolomedes_netproto::peer::Transport;
use dolomedes_storage::{
    engine::{Engine, Reader},
    floor::Floor,
    log::{LogOptions, LogStore, LogSync},
};
use openraft::{
    EmptyNode, ReadPolicy, ServerState,
    async_runtime::watch::WatchReceiver,
    errors::{InitializeError, RaftError},
};
use tokio::{runtime::Handle, sync::watch, task::JoinHandle};

use self::{
    floor::FloorMark,
    queue::Queue,
    rpc::{Endpoint, Peers},
    snapshot::Snapshots,
    state::{GroupState, Shared},
    status::{Begun, Follow, Stamper},
    types::Types,
};
pub use self::{
    members::ChangeError,
    queue::{MAX_COMMAND_BYTES, SubmitError},
    rpc::GroupHandler,
    settings::GroupTimes,
    status::{FollowerMetrics, GroupMetrics, GroupStatus, MembershipId},
};
use crate::{
    command::{Command, LogTime, Reply},
    machine::read::State,
};

/// Gives the present time in milliseconds. Entries are stamped with it; the machine makes log time of the stamps, so it
/// may go back.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

pub(crate) type Consensus = openraft::Raft<Types, GroupState>;

/// How long an election may take at start before opening is given up.
const ELECTION_PATIENCE: Duration = Duration::from_secs(30);

/// A leader that nobody has answered for so many leases leaves its callers waiting no longer.
const QUORUM_PATIENCE: u32 = 4;

/// Bounds of a group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Entries on their way at once. More of them hide a slow disk better, fewer make larger entries.
    pub in_flight: usize,
    /// A snapshot is made once the log holds so many bytes beyond what is kept anyway.
    pub snapshot_log_bytes: u64,
    /// Bytes of log that are kept although a snapshot covers them, for followers that lag.
    pub keep_log_bytes: u64,
    /// Bytes of log that are kept for followers that are catching up.
    pub catch_up_log_bytes: u64,
    /// Heartbeats and elections, where there are peers.
    pub times: GroupTimes,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            in_flight: 4,
            snapshot_log_bytes: 64 << 20,
            keep_log_bytes: 16 << 20,
            catch_up_log_bytes: 1 << 30,
            times: GroupTimes::default(),
        }
    }
}

/// What a group stands on.
pub struct GroupStart {
    /// The group's number.
    pub group: u32,
    /// The node's number, given once and for ever.
    pub node: u64,
    /// Where everything is kept.
    pub engine: Arc<dyn Engine>,
    /// The sync thread of that engine.
    pub sync: Arc<LogSync>,
    /// A directory for snapshots, on the same filesystem as the engine.
    pub snapshots: PathBuf,
    /// What was recorded of the node's groups, apart from the engine; `None` for an engine without a disk.
    pub floor: Option<Arc<Mutex<Floor>>>,
    /// The clock that stamps entries.
    pub clock: Clock,
    /// The way to other nodes; `None` for a node that has none.
    pub transport: Option<Arc<dyn Transport>>,
    /// Whether this node creates the group, as its only voter, where there is none. Exactly one node may; the others
    /// start empty and wait to be added. Of no meaning once the group exists.
    pub bootstrap: bool,
    /// Bounds.
    pub options: GroupOptions,
}

/// Why a group could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The storage.
    #[error(transparent)]
    Storage(#[from] dolomedes_storage::Error),
    /// Consensus.
    #[error("the raft group {group} cannot start: {detail}")]
    Consensus {
        /// The group.
        group: u32,
        /// openraft's reason.
        detail: String,
    },
}

/// A handle to a group. Cheap to clone.
#[derive(Clone)]
pub struct Group {
    inner: Arc<Inner>,
}

struct Inner {
    raft: Consensus,
    shared: Arc<Shared>,
    log: LogStore,
    queue: Queue,
    stopping: watch::Sender<bool>,
    failure: watch::Receiver<Option<String>>,
    proposer: Mutex<Option<JoinHandle<()>>>,
    background: [JoinHandle<()>; 3],
    status: watch::Receiver<GroupStatus>,
    endpoint: Arc<Endpoint>,
    mark: FloorMark,
    /// The runtime that consensus runs on; callers may be on another.
    runtime: Handle,
}

impl Group {
    /// Opens the group where it stands. If this node is its only voter, returns once the node leads it and everything that
    /// was ever acknowledged can be read; otherwise at once, and whoever has the handler for the transport has to
    /// [add](GroupHandler::add) the group, so that it can be reached. Runs on the present tokio runtime from then on.
    ///
    /// # Errors
    /// If the storage fails or is damaged, if the log and the rows contradict each other, or if others vote in the group and
    /// there is no transport.
    pub async fn open(start: GroupStart) -> Result<Self, GroupError> {
        let GroupStart { group, node, engine, sync, snapshots, floor, clock, transport, bootstrap, options } =
            start;
        let refused = |detail: String| GroupError::Consensus { group, detail };
        let times = if transport.is_some() { options.times } else { GroupTimes::alone() };
        let config = settings::settings(group, times).map_err(|error| refused(error.to_string()))?;
        let log = LogStore::open(&sync, group, LogOptions::default())?;
        let mark = FloorMark::open(floor, log.clone(), group)?;
        let state = GroupState::open(engine.clone(), group, Snapshots::open(&snapshots, group)?)?;
        let shared = state.shared();
        let log_view = self::log::GroupLog::new(log.clone());
        let reaches_others = transport.is_some();
        let transport = transport.unwrap_or_else(|| Arc::new(network::NoPeers));
        let peers = Peers { group, transport, engine };
        let raft = Consensus::new(node, config, peers, log_view, state)
            .await
            .map_err(|error| refused(error.to_string()))?;

        let stamper = Arc::new(Stamper::new(clock));
        let begun = match begin(&raft, node, bootstrap, reaches_others).await {
            Ok(Some(term)) => stamper
                .begin(&shared, false)
                .map(|()| Some(Begun { term, settled: true }))
                .map_err(GroupError::from),
            Ok(None) => Ok(None),
            Err(detail) => Err(refused(detail)),
        };
        let begun = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let _ = raft.shutdown().await;
                return Err(error);
            }
        };

        let (stopping, stopped) = watch::channel(false);
        let (failed, failure) = watch::channel(None);
        let (telling, status) = watch::channel(GroupStatus::default());
        tokio::spawn(watch_over(raft.clone(), stopped.clone(), failed));
        let following = Follow {
            raft: raft.clone(),
            shared: shared.clone(),
            stamper: stamper.clone(),
            status: telling,
            patience: times.election_max * QUORUM_PATIENCE,
            begun,
        };
        let following = tokio::spawn(following.run());
        let retention = tokio::spawn(retention::keep_bounded(raft.clone(), log.clone(), options.clone()));
        let raising = tokio::spawn(mark.clone().keep_raised());
        let clock: Clock = Arc::new(move || stamper.stamp());
        let (queue, proposer) = queue::queue(raft.clone(), clock, status.clone(), options.in_flight);
        let proposer = tokio::spawn(proposer.run(async move {
            let mut stopped = stopped;
            let _ = stopped.wait_for(|stopping| *stopping).await;
        }));
        let inner = Inner {
            endpoint: Arc::new(Endpoint::new(group, raft.clone(), snapshots)),
            raft,
            shared,
            log,
            queue,
            stopping,
            failure,
            proposer: Mutex::new(Some(proposer)),
            background: [retention, raising, following],
            status,
            mark,
            runtime: Handle::current(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Puts `command` into the log and returns the machine's reply: then it is durable and applied. Commands enter the
    /// log in the order in which they are submitted. Waits while the queue is full.
    ///
    /// Dropping the future does not take the command back.
    ///
    /// # Errors
    /// See [`SubmitError`]; after [`SubmitError::Unknown`] the command may be applied or not.
    pub async fn submit(&self, command: Command) -> Result<Reply, SubmitError> {
        self.inner.queue.submit(command).await
    }

    /// Like [`submit`](Self::submit), but never waits for room. The command is on its way when this returns; the future
    /// gives its reply.
    ///
    /// # Errors
    /// [`SubmitError::Overloaded`] if there is no room, or another submission is under way.
    pub fn try_submit(
        &self,
        command: Command,
    ) -> Result<impl Future<Output = Result<Reply, SubmitError>> + use<>, SubmitError> {
        self.inner.queue.try_submit(command)
    }

    /// Returns when everything that was committed before the call, by whomever, can be read here (ReadIndex, section
    /// 6.4 of the Raft thesis).
    ///
    /// # Errors
    /// If this node does not lead, or the group has stopped.
    pub async fn linearizable(&self) -> Result<(), SubmitError> {
        let raft = self.inner.raft.clone();
        let barrier =
            self.on_runtime(async move { raft.ensure_linearizable(ReadPolicy::ReadIndex).await }).await;
        match barrier {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error @ RaftError::APIError(_))) => {
                let leader = error.forward_to_leader().and_then(|forward| forward.leader_id);
                Err(SubmitError::NotLeader { leader })
            }
            Ok(Err(RaftError::Fatal(_))) | Err(_) => Err(SubmitError::Closed),
        }
    }

    /// Runs `work` where consensus runs.
    async fn on_runtime<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ChangeError> {
        self.inner.runtime.spawn(work).await.map_err(|_| ChangeError::Closed)
    }

    /// Reads one consistent state of the group's rows: `read` gets a view and the generation that is valid in it. It may
    /// be older than what others have been told; see [`linearizable`](Self::linearizable). Blocks on the disk.
    ///
    /// # Errors
    /// Those of the storage and of `read`.
    pub fn view<T>(
        &self,
        read: impl FnOnce(&dyn Reader, u64) -> dolomedes_storage::Result<T>,
    ) -> dolomedes_storage::Result<T> {
        let view = self.inner.shared.engine.snapshot();
        let position = snapshot::read_position(&*view, self.inner.shared.group)?;
        read(&*view, position.generation)
    }

    /// The group's number.
    pub fn number(&self) -> u32 {
        self.inner.shared.group
    }

    /// The engine that holds the group.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.inner.shared.engine
    }

    /// What the group is doing.
    pub fn metrics(&self) -> GroupMetrics {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        GroupMetrics {
            log_bytes: self.inner.log.held_bytes(),
            queued_bytes: self.inner.queue.queued_bytes(),
            ..status::metrics(&metrics)
        }
    }

    /// Tells of every change of the leader and of what can be read.
    pub fn watch(&self) -> watch::Receiver<GroupStatus> {
        self.inner.status.clone()
    }

    fn endpoint(&self) -> Arc<Endpoint> {
        self.inner.endpoint.clone()
    }

    /// Returns, with the reason, once the group has failed; never if it is shut down in good order. The process has to
    /// end then.
    pub fn failed(&self) -> impl Future<Output = String> + Send + use<> {
        let mut failure = self.inner.failure.clone();
        async move {
            if let Ok(reason) = failure.wait_for(Option::is_some).await
                && let Some(reason) = reason.clone()
            {
                return reason;
            }
            std::future::pending().await
        }
    }

    /// Takes no more commands, answers those that were taken, stops, and makes everything durable.
    ///
    /// # Errors
    /// If the last sync fails; what was acknowledged is durable all the same.
    pub async fn shutdown(&self) -> dolomedes_storage::Result<()> {
        self.inner.stopping.send_replace(true);
        let proposer = self.inner.proposer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(proposer) = proposer {
            let _ = proposer.await;
        }
        self.inner.background.iter().for_each(JoinHandle::abort);
        self.inner.endpoint.close();
        let raft = self.inner.raft.clone();
        let _ = self.inner.runtime.spawn(async move { raft.shutdown().await }).await;
        let (engine, mark) = (self.inner.shared.engine.clone(), self.inner.mark.clone());
        let last = self.inner.runtime.spawn_blocking(move || {
            engine.sync()?;
            mark.raise()
        });
        match last.await {
            Ok(synced) => synced,
            Err(_) => Err(dolomedes_storage::Error::Engine("the runtime has been shut down".into())),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without a shutdown, what is on its way may or may not be applied, as after a crash.
        self.stopping.send_replace(true);
        self.background.iter().for_each(JoinHandle::abort);
        self.endpoint.close();
        let raft = self.raft.clone();
        self.runtime.spawn(async move { raft.shutdown().await });
    }
}

/// Where log time is, once everything that was committed is applied.
fn log_time(shared: &Shared) -> dolomedes_storage::Result<LogTime> {
    let view = shared.engine.snapshot();
    let position = snapshot::read_position(&*view, shared.group)?;
    State::new(&*view, shared.group, position.generation).log_time()
}

/// Creates the group if that is wanted. Where nobody else votes, makes this node its leader and returns the term, when all
/// of the log is applied, so that from here on reads see whatever was acknowledged before the start.
async fn begin(
    raft: &Consensus,
    node: u64,
    bootstrap: bool,
    reaches_others: bool,
) -> Result<Option<u64>, String> {
    if bootstrap {
        match raft.initialize(BTreeMap::from([(node, EmptyNode::new())])).await {
            // It exists already.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let voters = raft
        .with_raft_state(|state| state.membership_state.effective().voter_ids().collect::<Vec<u64>>())
        .await
        .map_err(|error| error.to_string())?;
    match voters.iter().find(|voter| **voter != node) {
        Some(other) if !reaches_others => {
            return Err(format!("node {other} votes in it too, and this node runs alone"));
        }
        None if !voters.is_empty() => {}
        Some(_) | None => return Ok(None),
    }
    // A lone voter need not wait for an election timeout: nobody else can lead.
    raft.trigger().elect(false).await.map_err(|error| error.to_string())?;
    let wait = raft.wait(Some(ELECTION_PATIENCE));
    let leads = wait.metrics(
        |metrics| metrics.state == ServerState::Leader || metrics.running_state.is_err(),
        "this node leads",
    );
    let led = leads.await.map_err(|error| error.to_string())?;
    led.running_state.map_err(|error| error.to_string())?;
    raft.ensure_linearizable(ReadPolicy::ReadIndex).await.map_err(|error| error.to_string())?;
    Ok(Some(led.current_term))
}

/// Reports the end of consensus unless it was asked for.
async fn watch_over(raft: Consensus, stopping: watch::Receiver<bool>, failed: watch::Sender<Option<String>>) {
    let mut metrics = raft.metrics();
    drop(raft);
    let reason = loop {
        let state = metrics.borrow_watched().running_state.clone();
        if let Err(fatal) = state {
            break fatal.to_string();
        }
        if metrics.changed().await.is_err() {
            break "its task has ended".to_owned();
        }
    };
    if !*stopping.borrow() {
        tracing::error!(reason, "the raft group has failed");
        failed.send_replace(Some(format!("the raft group has failed: {reason}")));
    }
}

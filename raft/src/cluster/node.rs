//! Opens what a node of a cluster consists of, holds it together, and closes it again.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use dolomedes_netproto::peer::{
    Handler, Lane, Member, Membership, NodeNumber, PeerClient, PeerService, PeerStream, Pending,
    SNAPSHOT_RATE, Security, service,
};
use dolomedes_storage::{
    Error, Result,
    directory::{DataDir, Identity},
    engine::Engine,
    floor::Floor,
    log::LogSync,
    rocks::{RocksEngine, RocksOptions},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
    task::JoinHandle,
};

use super::{
    controller,
    plan::{GroupState, PlanRules},
    presence::{self, Heard},
    seat::Seat,
    secret::{self, SecretKeeper},
    ticker, wire,
};
use crate::{
    command::{Bootstrapped, Command, FirstNode, Reply, TokenHash},
    group::{Clock, Group, GroupError, GroupHandler, GroupOptions, GroupStart, SubmitError},
    machine::read::{NodeInfo, State},
};

/// The group that keeps the cluster itself.
pub const META: u32 = 0;
/// The number of the node that begins a cluster; later ones are log indexes, which are greater.
pub const FIRST_NODE: u64 = 1;
/// Threads of consensus.
const THREADS: usize = 2;
/// Threads for what blocks beside: checkpoints, installations, the floor.
const BLOCKING_THREADS: usize = 8;
/// How long closing waits for the runtime's threads.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a node that stops waits for others to take its leaderships over.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(3);
/// Removed nodes that are refused by name; others are refused because nobody knows them.
const REMOVED_KNOWN: usize = 10_000;
/// How often somebody who waits for a leader looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a cluster node needs to know beside its directory.
#[derive(Clone)]
pub struct ClusterOptions {
    /// The clock that stamps entries.
    pub clock: Clock,
    /// Bounds of each group.
    pub group: GroupOptions,
    /// Bounds of the engine.
    pub engine: RocksOptions,
    /// How nodes know each other.
    pub security: Security,
    /// How many voters, and how patient with silent ones.
    pub plan: PlanRules,
    /// This release, for others to see.
    pub version: String,
    /// Keeps the secret that the members of group 0 share; `None` where there is none.
    pub secret: Option<Arc<dyn SecretKeeper>>,
    /// The access token that a new cluster begins with.
    pub first_access: Option<TokenHash>,
}

/// Where a node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterStart {
    /// It begins a new cluster, whose id is drawn by the caller.
    Bootstrap {
        /// The cluster's id.
        cluster: u128,
    },
    /// It was enrolled in a cluster.
    Enrolled {
        /// The cluster's id.
        cluster: u128,
        /// Its number there.
        node: u64,
    },
    /// It has been there before.
    Again,
}

/// Why a cluster node cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The storage.
    #[error(transparent)]
    Storage(#[from] Error),
    /// A group.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The directory is not what the start says.
    #[error("{0}")]
    Start(String),
}

/// A running node of a cluster.
pub struct ClusterNode {
    shared: Arc<Shared>,
    dir: Arc<DataDir>,
    background: Vec<JoinHandle<()>>,
    /// Taken by `close`.
    runtime: Mutex<Option<Runtime>>,
}

pub(super) struct Shared {
    pub(super) number: u64,
    pub(super) cluster: u128,
    pub(super) groups: BTreeMap<u32, Group>,
    pub(super) peers: PeerClient,
    pub(super) options: ClusterOptions,
    pub(super) heard: Heard,
    /// What is known of the members: this node's rows of group 0, or what their leader says.
    directory: Mutex<BTreeMap<u64, String>>,
    /// Nodes that were removed, as far as this node knows.
    removed: Mutex<Vec<u64>>,
    /// What the controller saw last, while this node runs it.
    pub(super) picture: Mutex<BTreeMap<u32, GroupState>>,
    /// Who leads each group, as far as was heard from others.
    pub(super) leaders: Mutex<BTreeMap<u32, u64>>,
    /// Why this node has to stop.
    pub(super) dismissed: watch::Sender<Option<String>>,
    seat: Mutex<Seat>,
    path: std::path::PathBuf,
}

impl ClusterNode {
    /// Opens the node of `dir`, which listens and is reached as `seat` says, and returns once its storage is sound and its
    /// groups run; whether they have leaders is another matter.
    ///
    /// # Errors
    /// If the storage fails or is damaged, or the directory is another node's.
    pub async fn open(
        dir: DataDir,
        seat: Seat,
        start: ClusterStart,
        options: ClusterOptions,
    ) -> std::result::Result<Self, ClusterError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("raft")
            .enable_all()
            .build()
            .map_err(|error| Error::Engine(format!("cannot start the threads of consensus: {error}")))?;
        let opening = runtime.spawn(open(dir, seat, start, options));
        let opened = opening
            .await
            .unwrap_or_else(|error| Err(ClusterError::Start(format!("opening the node failed: {error}"))));
        match opened {
            Ok((shared, dir, background)) => {
                Ok(Self { shared, dir, background, runtime: Mutex::new(Some(runtime)) })
            }
            Err(error) => {
                stop(runtime).await;
                Err(error)
            }
        }
    }

    /// The node's number.
    pub fn number(&self) -> u64 {
        self.shared.number
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The cluster's id.
    pub fn cluster(&self) -> u128 {
        self.shared.cluster
    }

    /// The data directory.
    pub fn dir(&self) -> &Arc<DataDir> {
        &self.dir
    }

    /// A group of this node.
    pub fn group(&self, group: u32) -> Option<Group> {
        self.shared.groups.get(&group).cloned()
    }

    /// The groups that keep queues.
    pub fn queue_groups(&self) -> impl Iterator<Item = u32> + use<> {
        let groups: Vec<u32> = self.shared.groups.keys().copied().filter(|group| *group != META).collect();
        groups.into_iter()
    }

    /// The group that keeps the queue of this name: by its slot among 256, so that more groups would take whole slots over.
    pub fn group_of(&self, queue: &str) -> u32 {
        let slot = xxhash_rust::xxh3::xxh3_64(queue.as_bytes()) % crate::command::SLOTS as u64;
        let groups = (self.shared.groups.len() as u64).saturating_sub(1).max(1);
        1 + u32::try_from(slot % groups).unwrap_or(0)
    }

    /// Returns once a leader of `group` is known, here or by hearsay.
    pub async fn known_leader(&self, group: u32) -> u64 {
        loop {
            if let Some(leader) = self.shared.leader(group) {
                return leader;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Where a node is reached, as far as is known here.
    pub fn address(&self, node: u64) -> Option<String> {
        self.shared.directory().get(&node).cloned()
    }

    /// All members that are known here, and where they are reached.
    pub fn members(&self) -> BTreeMap<u64, String> {
        self.shared.directory().clone()
    }

    /// What the controller saw last of the groups; empty unless this node leads group 0.
    pub fn picture(&self) -> BTreeMap<u32, GroupState> {
        self.shared.picture.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long nothing was heard of a node, while this node leads group 0.
    pub fn silent(&self, node: u64) -> Duration {
        self.shared.silent(node)
    }

    /// Now, by the clock that stamps entries, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        (self.shared.options.clock)()
    }

    /// Whether a node may take part, as far as is known here.
    ///
    /// # Errors
    /// Why not.
    pub fn admits(&self, node: u64) -> std::result::Result<(), String> {
        self.shared.admits(node)
    }

    /// The service that answers other nodes, to be served where the seat says.
    pub fn peer_service(&self) -> PeerService {
        let shared = self.shared.clone();
        let admits = move |node: u64| shared.admits(node);
        let local = Member { cluster: self.shared.cluster, node: self.shared.number };
        let handler = Arc::new(Answering { shared: self.shared.clone(), groups: self.shared.handler() });
        service(local, &self.shared.options.security, Arc::new(admits) as Arc<dyn Membership>, handler)
    }

    /// Asks the controller's leader to let another voter lead a group.
    ///
    /// # Errors
    /// What stands against it.
    pub async fn move_leader(&self, group: u32, to: u64) -> std::result::Result<(), String> {
        controller::carry(&self.shared, super::plan::Step::MoveLeader { group, to }).await
    }

    /// Returns, with the reason, once the node has to stop: a group has failed, or the node was removed from the cluster.
    pub fn failed(&self) -> impl Future<Output = String> + Send + use<> {
        let failures: Vec<_> = self.shared.groups.values().map(|group| Box::pin(group.failed())).collect();
        let mut dismissed = self.shared.dismissed.subscribe();
        async move {
            let dismissed = async {
                if let Ok(reason) = dismissed.wait_for(Option::is_some).await
                    && let Some(reason) = reason.clone()
                {
                    return reason;
                }
                std::future::pending().await
            };
            tokio::select! {
                (reason, ..) = futures_util::future::select_all(failures) => reason,
                reason = dismissed => reason,
            }
        }
    }

    /// Hands leaderships over, answers what was taken, makes everything durable and lets go of the directory.
    ///
    /// # Errors
    /// If the last sync fails; what was acknowledged is durable all the same.
    pub async fn close(&self) -> Result<()> {
        for task in &self.background {
            task.abort();
        }
        let handing: Vec<_> = self.shared.groups.values().map(|group| group.hand_over()).collect();
        // Who is alone, or has nobody close enough, just stops: the others elect.
        let _ = tokio::time::timeout(HAND_OVER_PATIENCE, futures_util::future::join_all(handing)).await;
        let mut closed = Ok(());
        for group in self.shared.groups.values() {
            closed = closed.and(group.shutdown().await);
        }
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            stop(runtime).await;
        }
        closed
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // A runtime must not be waited for where it may be dropped on another one.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    pub(super) fn meta(&self) -> Option<&Group> {
        self.groups.get(&META)
    }

    pub(super) fn directory(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where others reach this node.
    pub(super) fn advertise(&self) -> String {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner).advertise.clone()
    }

    fn handler(&self) -> GroupHandler {
        let handler = GroupHandler::new();
        self.groups.values().for_each(|group| handler.add(group));
        handler
    }

    fn admits(&self, node: u64) -> std::result::Result<(), String> {
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        if removed.contains(&node) {
            return Err(format!("{}{node}", presence::REMOVED));
        }
        Ok(())
    }

    /// Who leads a group: known for sure where this node is a member, else by hearsay.
    pub(super) fn leader(&self, group: u32) -> Option<u64> {
        let status = *self.groups.get(&group)?.watch().borrow();
        if status.leads {
            return Some(self.number);
        }
        if let Some(leader) = status.leader {
            return Some(leader);
        }
        let member = self.groups.get(&group).is_some_and(|group| {
            let metrics = group.metrics();
            metrics.voters.contains(&self.number)
        });
        // A voter that knows of no leader will hear of the next one itself.
        if member {
            return None;
        }
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner).get(&group).copied()
    }

    pub(super) fn silent(&self, node: u64) -> Duration {
        if node == self.number { Duration::ZERO } else { self.heard.silent(node) }
    }

    /// Takes over what group 0 says of the nodes, as far as this node has applied it.
    pub(super) fn refresh_from_rows(&self) -> Result<Vec<NodeInfo>> {
        let Some(meta) = self.meta() else { return Ok(Vec::new()) };
        let (nodes, removed) = meta.view(|reader, generation| {
            let state = State::new(reader, META, generation);
            Ok((state.nodes()?, state.removed_nodes(REMOVED_KNOWN)?))
        })?;
        let present: BTreeMap<u64, String> =
            nodes.iter().map(|node| (node.node, node.address.clone())).collect();
        if !present.is_empty() {
            let removed = removed.iter().map(|node| node.node).collect();
            *self.removed.lock().unwrap_or_else(PoisonError::into_inner) = removed;
            self.set_directory(present);
        }
        Ok(nodes)
    }

    /// Makes these the known members: their addresses are used from now on and kept for the next start.
    pub(super) fn set_directory(&self, members: BTreeMap<u64, String>) {
        let mut directory = self.directory();
        if *directory == members {
            return;
        }
        for gone in directory.keys().filter(|node| !members.contains_key(node)) {
            self.peers.forget(*gone);
        }
        for (node, address) in members.iter().filter(|(node, _)| **node != self.number) {
            self.peers.set_address(*node, address.clone());
        }
        directory.clone_from(&members);
        drop(directory);
        let mut seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        seat.members = members;
        if let Err(error) = seat.save(&self.path) {
            // The next start only has fewer members to ask.
            tracing::warn!(%error, "the members cannot be noted for the next start");
        }
    }
}

/// Answers peers: consensus, and what nodes ask beside it.
struct Answering {
    shared: Arc<Shared>,
    groups: GroupHandler,
}

impl Handler for Answering {
    fn call(
        &self,
        from: NodeNumber,
        lane: Lane,
        request: Bytes,
    ) -> Pending<std::result::Result<Bytes, String>> {
        if request.first() != Some(&wire::TAG) {
            return self.groups.call(from, lane, request);
        }
        let shared = self.shared.clone();
        Box::pin(async move {
            let ask = wire::decode_ask(&request).map_err(|error| error.to_string())?;
            presence::answer(&shared, from, ask).await.map(|answer| wire::encode_answer(&answer))
        })
    }

    fn accept(
        &self,
        from: NodeNumber,
        opening: Bytes,
        stream: PeerStream,
    ) -> std::result::Result<(), String> {
        self.groups.accept(from, opening, stream)
    }
}

type Opened = (Arc<Shared>, Arc<DataDir>, Vec<JoinHandle<()>>);

async fn open(
    mut dir: DataDir,
    seat: Seat,
    start: ClusterStart,
    options: ClusterOptions,
) -> std::result::Result<Opened, ClusterError> {
    let identity = identity(&mut dir, &seat, start)?;
    let bounds = options.engine;
    let (floor_path, db) = (dir.floor(), dir.db());
    let storage = tokio::task::spawn_blocking(move || {
        let floor = Floor::open(floor_path, identity.node_id)?;
        let engine: Arc<dyn Engine> = Arc::new(RocksEngine::open(db, bounds)?);
        Ok::<_, Error>((floor, engine))
    });
    let (floor, engine) = storage
        .await
        .map_err(|error| Error::Engine(format!("opening the data directory failed: {error}")))??;
    let floor = Arc::new(Mutex::new(floor));
    let sync = LogSync::start(engine.clone())?;
    let local = Member { cluster: identity.cluster, node: identity.node_id };
    let peers = PeerClient::new(local, options.security.clone(), Handle::current(), SNAPSHOT_RATE);
    for (node, address) in seat.members.iter().filter(|(node, _)| **node != identity.node_id) {
        peers.set_address(*node, address.clone());
    }
    let mut groups = BTreeMap::new();
    for group in META..=seat.groups {
        let start = GroupStart {
            group,
            node: identity.node_id,
            engine: engine.clone(),
            sync: sync.clone(),
            snapshots: dir.snapshots(),
            floor: Some(floor.clone()),
            clock: options.clock.clone(),
            transport: Some(Arc::new(peers.clone())),
            bootstrap: identity.node_id == FIRST_NODE,
            options: options.group.clone(),
        };
        groups.insert(group, Group::open(start).await?);
    }
    let (dismissed, _) = watch::channel(None);
    let shared = Arc::new(Shared {
        number: identity.node_id,
        cluster: identity.cluster,
        groups,
        peers,
        options,
        heard: Heard::default(),
        directory: Mutex::new(seat.members.clone()),
        removed: Mutex::default(),
        picture: Mutex::default(),
        leaders: Mutex::default(),
        dismissed,
        path: dir.path().to_owned(),
        seat: Mutex::new(seat),
    });
    if identity.node_id == FIRST_NODE {
        found(&shared).await?;
    }
    shared.refresh_from_rows()?;
    let background = vec![
        tokio::spawn(presence::tell(shared.clone())),
        tokio::spawn(controller::run(shared.clone())),
        tokio::spawn(ticker::run(shared.clone())),
        tokio::spawn(secret::fetch(shared.clone())),
    ];
    Ok((shared, Arc::new(dir), background))
}

/// The directory's identity, made if it is new.
fn identity(
    dir: &mut DataDir,
    seat: &Seat,
    start: ClusterStart,
) -> std::result::Result<Identity, ClusterError> {
    let wanted = match (dir.identity(), start) {
        (Some(identity), ClusterStart::Again) => return Ok(identity),
        (None, ClusterStart::Again) => {
            return Err(ClusterError::Start(format!("`{}` holds no node yet", dir.path().display())));
        }
        (_, ClusterStart::Bootstrap { cluster }) => Identity::new(cluster, seat.uuid, FIRST_NODE),
        (_, ClusterStart::Enrolled { cluster, node }) => Identity::new(cluster, seat.uuid, node),
    };
    seat.save(dir.path())?;
    if dir.identity().is_none() {
        Floor::create(dir.floor(), wanted.node_id)?;
    }
    dir.set_identity(wanted)?;
    Ok(wanted)
}

/// Makes the cluster known to itself, if it is not. Only the first node does, while it leads alone.
async fn found(shared: &Arc<Shared>) -> std::result::Result<(), ClusterError> {
    let Some(meta) = shared.meta() else { return Ok(()) };
    let alone = meta.metrics().voters.len() == 1 && meta.watch().borrow().leads;
    if !alone {
        return Ok(());
    }
    let (advertise, groups, uuid) = {
        let seat = shared.seat.lock().unwrap_or_else(PoisonError::into_inner);
        (seat.advertise.clone(), seat.groups, seat.uuid)
    };
    let first =
        FirstNode { node: shared.number, uuid, address: advertise, version: shared.options.version.clone() };
    let access = shared.options.first_access;
    let bootstrap = Command::Bootstrap { cluster: shared.cluster, groups, first, access };
    match meta.submit(bootstrap).await {
        Ok(Reply::Bootstrapped(Bootstrapped { .. })) => Ok(()),
        Ok(other) => Err(ClusterError::Start(format!("the cluster cannot be founded: {other:?}"))),
        Err(error @ SubmitError::NotLeader { .. }) => {
            tracing::debug!(%error, "somebody else leads");
            Ok(())
        }
        Err(error) => Err(ClusterError::Start(format!("the cluster cannot be founded: {error}"))),
    }
}

/// Waits for the runtime's threads, so that nothing of it holds the engine any more.
async fn stop(runtime: Runtime) {
    let _ = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(CLOSE_PATIENCE)).await;
}

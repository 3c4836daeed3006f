//! A network in memory: each direction between two nodes can be cut, delayed, or lose requests; nodes can be taken off.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use dolomedes_netproto::peer::{
    Handler, Lane, NodeNumber, PeerError, PeerStream, Pending, STREAM_DEPTH, Transport,
};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

#[derive(Default)]
struct State {
    nodes: BTreeMap<u64, Arc<dyn Handler>>,
    /// Directions in which nothing passes.
    cut: BTreeSet<(u64, u64)>,
    delay: Duration,
    /// Requests out of a thousand that are lost on their way, or whose answer is.
    lost: u32,
    /// Calls on the lane of snapshots that still pass; all without a bound.
    snapshot_calls: Option<usize>,
    snapshot_bytes: usize,
}

/// The network. Clones are handles to the same one.
#[derive(Clone)]
pub(crate) struct Net {
    state: Arc<Mutex<State>>,
    dice: Arc<Mutex<fastrand::Rng>>,
    /// Counts the changes of what is cut and who is there.
    changes: Arc<watch::Sender<u64>>,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: Arc::default(),
            dice: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            changes: Arc::new(watch::channel(0).0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changes.send_modify(|count| *count += 1);
        changed
    }

    pub(crate) fn join(&self, node: u64, handler: Arc<dyn Handler>) {
        self.change(|state| state.nodes.insert(node, handler));
    }

    pub(crate) fn leave(&self, node: u64) {
        self.change(|state| state.nodes.remove(&node));
    }

    /// Nothing passes from `from` to `to` any more.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.change(|state| state.cut.insert((from, to)));
    }

    /// Nothing passes from or to `node`.
    pub(crate) fn isolate(&self, node: u64, others: impl IntoIterator<Item = u64>) {
        for other in others.into_iter().filter(|other| *other != node) {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    pub(crate) fn heal(&self) {
        self.change(|state| state.cut.clear());
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    pub(crate) fn lose(&self, of_a_thousand: u32) {
        self.lock().lost = of_a_thousand;
    }

    /// Lets so many calls on the lane of snapshots pass, and no more.
    pub(crate) fn allow_snapshot_calls(&self, calls: Option<usize>) {
        self.lock().snapshot_calls = calls;
    }

    /// Bytes that have passed on the lane of snapshots.
    pub(crate) fn snapshot_bytes(&self) -> usize {
        self.lock().snapshot_bytes
    }

    pub(crate) fn transport(&self, node: u64) -> Arc<dyn Transport> {
        Arc::new(Side { net: self.clone(), node })
    }

    fn passes(&self, from: u64, to: u64) -> bool {
        let state = self.lock();
        let lost = state.lost > 0 && self.dice.lock().unwrap().u32(0..1000) < state.lost;
        !lost && !state.cut.contains(&(from, to))
    }

    fn there(&self, node: u64) -> Result<Arc<dyn Handler>, PeerError> {
        let unreachable = || PeerError::Unreachable { node, detail: "nobody listens".to_owned() };
        self.lock().nodes.get(&node).cloned().ok_or_else(unreachable)
    }

    /// Carries frames one way, until the way is cut, a node has left, or an end is closed.
    async fn carry(self, from: u64, to: u64, mut sent: mpsc::Receiver<Bytes>, out: Frames) {
        let mut changes = self.changes.subscribe();
        loop {
            let delay = {
                let state = self.lock();
                if !state.nodes.contains_key(&to) || !state.nodes.contains_key(&from) {
                    return;
                }
                state.delay
            };
            let broken = self.lock().cut.contains(&(from, to));
            if broken {
                // As with a connection that nobody closes: silence, and an end only after it has healed.
                changes.changed().await.unwrap();
                if !self.lock().cut.contains(&(from, to)) {
                    let lost = PeerError::Lost { node: to, detail: "the way was cut".to_owned() };
                    let _ = out.send(Err(lost)).await;
                    return;
                }
                continue;
            }
            tokio::select! {
                frame = sent.recv() => {
                    let Some(frame) = frame else { return };
                    sleep(delay).await;
                    if !self.lock().cut.contains(&(from, to)) && out.send(Ok(frame)).await.is_err() {
                        return;
                    }
                }
                _ = changes.changed() => {}
                () = out.closed() => return,
            }
        }
    }
}

type Frames = mpsc::Sender<Result<Bytes, PeerError>>;

/// The network as one node sees it.
struct Side {
    net: Net,
    node: u64,
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the network of node {}", self.node)
    }
}

impl Transport for Side {
    fn call(
        &self,
        to: NodeNumber,
        lane: Lane,
        request: Bytes,
        deadline: Duration,
    ) -> Pending<Result<Bytes, PeerError>> {
        let (net, node) = (self.net.clone(), self.node);
        Box::pin(async move {
            let lost = || PeerError::Lost { node: to, detail: "no answer in time".to_owned() };
            let exchange = async {
                let handler = net.there(to)?;
                net.there(node)?;
                if lane == Lane::Snapshot {
                    let mut state = net.lock();
                    match &mut state.snapshot_calls {
                        Some(0) => return Err(lost()),
                        Some(left) => *left -= 1,
                        None => {}
                    }
                    state.snapshot_bytes += request.len();
                }
                let delay = net.lock().delay;
                sleep(delay).await;
                if !net.passes(node, to) {
                    std::future::pending::<()>().await;
                }
                let answer = handler.call(node, lane, request).await;
                sleep(delay).await;
                if !net.passes(to, node) {
                    std::future::pending::<()>().await;
                }
                answer.map_err(|detail| PeerError::Refused { node: to, detail })
            };
            timeout(deadline, exchange).await.unwrap_or_else(|_| Err(lost()))
        })
    }

    fn open(&self, to: NodeNumber, opening: Bytes) -> Pending<Result<PeerStream, PeerError>> {
        let (net, node) = (self.net.clone(), self.node);
        Box::pin(async move {
            let handler = net.there(to)?;
            net.there(node)?;
            if net.lock().cut.contains(&(node, to)) || net.lock().cut.contains(&(to, node)) {
                std::future::pending::<()>().await;
            }
            let pipe = || mpsc::channel::<Bytes>(STREAM_DEPTH);
            let out = || mpsc::channel::<Result<Bytes, PeerError>>(1);
            let ((near, sent), (far, back)) = (pipe(), pipe());
            let ((there, at_there), (here, at_here)) = (out(), out());
            handler
                .accept(node, opening, PeerStream { sender: far, frames: at_there })
                .map_err(|detail| PeerError::Refused { node: to, detail })?;
            tokio::spawn(net.clone().carry(node, to, sent, there));
            tokio::spawn(net.carry(to, node, back, here));
            Ok(PeerStream { sender: near, frames: at_here })
        })
    }
}

//! Nodes of one or more groups that can crash, come back and be compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};

use dolomedes_raft::group::{
    Clock, Group, GroupHandler, GroupMetrics, GroupOptions, GroupStart, SubmitError,
};
use dolomedes_storage::{
    engine::{Engine, Family},
    log::LogSync,
    memory::MemoryEngine,
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::net::Net;
use crate::group_harness::{GROUP, clock, count, version};

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Node {
    pub(crate) engine: MemoryEngine,
    pub(crate) dir: Arc<TempDir>,
    groups: BTreeMap<u32, Group>,
}

pub(crate) struct Cluster {
    pub(crate) net: Net,
    pub(crate) options: GroupOptions,
    numbers: Vec<u32>,
    nodes: BTreeMap<u64, Node>,
}

pub(crate) type Row = (Family, Vec<u8>, Vec<u8>);

impl Cluster {
    /// One group, whose voters are the nodes 1 to `voters`.
    pub(crate) async fn new(voters: u64, options: GroupOptions) -> Self {
        Self::of_groups(voters, vec![GROUP], options).await
    }

    pub(crate) async fn of_groups(voters: u64, numbers: Vec<u32>, options: GroupOptions) -> Self {
        let mut cluster = Self { net: Net::new(voters), options, numbers, nodes: BTreeMap::new() };
        for node in 1..=voters {
            cluster.start(node, node == 1).await;
        }
        for number in cluster.numbers.clone() {
            let first = cluster.group_of(1, number);
            for node in 2..=voters {
                first.add_learner(node).await.unwrap();
            }
            cluster.caught_up(number, 1..=voters).await;
            first.change_voters((1..=voters).collect(), first.metrics().membership).await.unwrap();
        }
        cluster
    }

    /// Starts `node` with an empty disk.
    pub(crate) async fn start(&mut self, node: u64, bootstrap: bool) {
        let dir = Arc::new(TempDir::new().unwrap());
        self.open(node, MemoryEngine::new(), dir, bootstrap, clock()).await;
    }

    pub(crate) async fn open(
        &mut self,
        node: u64,
        engine: MemoryEngine,
        dir: Arc<TempDir>,
        bootstrap: bool,
        clock: Clock,
    ) {
        let shared: Arc<dyn Engine> = Arc::new(engine.clone());
        let sync = LogSync::start(shared.clone()).unwrap();
        let handler = Arc::new(GroupHandler::new());
        let mut groups = BTreeMap::new();
        for number in &self.numbers {
            let start = GroupStart {
                group: *number,
                node,
                engine: shared.clone(),
                sync: sync.clone(),
                snapshots: dir.path().join("snapshots"),
                floor: None,
                clock: clock.clone(),
                transport: Some(self.net.transport(node)),
                bootstrap,
                options: self.options.clone(),
            };
            let group = Group::open(start).await.unwrap();
            handler.add(&group);
            groups.insert(*number, group);
        }
        self.net.join(node, handler);
        self.nodes.insert(node, Node { engine, dir, groups });
    }

    /// Crashes `node` with all but `keep` of its unsynced writes lost; returns what its next life finds.
    pub(crate) fn crash(&mut self, node: u64, keep: impl FnOnce(usize) -> usize) -> Node {
        self.net.leave(node);
        let Node { engine, dir, groups } = self.nodes.remove(&node).unwrap();
        let engine = engine.crash(keep);
        drop(groups);
        Node { engine, dir, groups: BTreeMap::new() }
    }

    /// Starts `node` again with what [`crash`](Self::crash) returned.
    pub(crate) async fn restart(&mut self, node: u64, left: Node) {
        self.open(node, left.engine, left.dir, false, clock()).await;
    }

    /// Shuts `node` down in good order.
    pub(crate) async fn stop(&mut self, node: u64) {
        for group in self.nodes[&node].groups.values() {
            group.shutdown().await.unwrap();
        }
        self.net.leave(node);
        self.nodes.remove(&node);
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    pub(crate) fn group(&self, node: u64) -> Group {
        self.group_of(node, self.numbers[0])
    }

    pub(crate) fn group_of(&self, node: u64, number: u32) -> Group {
        self.nodes[&node].groups[&number].clone()
    }

    pub(crate) fn metrics(&self, node: u64) -> GroupMetrics {
        self.group(node).metrics()
    }

    /// The node that leads, once there is one among `of` that all of them follow.
    pub(crate) async fn leader_among(&self, of: impl IntoIterator<Item = u64>) -> u64 {
        let of: BTreeSet<u64> = of.into_iter().collect();
        self.until(&format!("{of:?} agree on a leader"), || {
            let seen: BTreeSet<_> =
                of.iter().map(|node| self.metrics(*node)).map(|m| (m.leader, m.term)).collect();
            let one = (seen.len() == 1).then(|| seen.first().unwrap().0)??;
            (of.contains(&one) && self.metrics(one).leads).then_some(one)
        })
        .await
    }

    pub(crate) async fn leader(&self) -> u64 {
        self.leader_among(self.ids()).await
    }

    /// Waits until `found` finds something, or fails with what the nodes were doing at the end.
    pub(crate) async fn until<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(found) = found() {
                return found;
            }
            if Instant::now() > deadline {
                let metrics: Vec<_> = self.ids().iter().map(|node| (*node, self.metrics(*node))).collect();
                panic!("waited in vain until {what}: {metrics:#?}");
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until all of `nodes` have applied what the farthest of them has in its log now.
    pub(crate) async fn caught_up(&self, number: u32, nodes: impl IntoIterator<Item = u64>) {
        let nodes: Vec<u64> = nodes.into_iter().collect();
        self.until(&format!("{nodes:?} have caught up"), || {
            let metrics: Vec<_> = nodes.iter().map(|node| self.group_of(*node, number).metrics()).collect();
            let last = metrics.iter().map(|metrics| metrics.last).max()?;
            metrics.iter().all(|metrics| metrics.applied == last).then_some(())
        })
        .await;
    }

    /// Counts `name` at whichever node leads, until it is acknowledged. Returns how often it was submitted without being
    /// refused, and the count.
    pub(crate) async fn count_somehow(&self, name: &str, among: &[u64]) -> (u64, u64) {
        let deadline = Instant::now() + DEADLINE;
        let mut submitted = 0;
        let mut at = among[0];
        loop {
            match self.group(at).submit(count(name, 100)).await {
                Ok(reply) => return (submitted + 1, version(reply)),
                Err(SubmitError::Unknown) => submitted += 1,
                Err(SubmitError::NotLeader { leader }) => {
                    at = leader.filter(|leader| among.contains(leader)).unwrap_or(at);
                }
                Err(error) => panic!("{error}"),
            }
            if self.metrics(at).leader.is_none_or(|leader| !among.contains(&leader)) {
                at = among[(among.iter().position(|node| *node == at).unwrap() + 1) % among.len()];
            }
            assert!(Instant::now() < deadline, "nobody took a command: {:#?}", self.metrics(at));
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// All rows of a group's machine on `node`, without the part of their keys that names the generation.
    pub(crate) fn rows(&self, node: u64, number: u32) -> Vec<Row> {
        let mut rows = Vec::new();
        let (from, to) = (number.to_be_bytes(), (number + 1).to_be_bytes());
        for family in [Family::State, Family::Seen] {
            let engine: Box<dyn dolomedes_storage::engine::Reader> =
                Box::new(self.nodes[&node].engine.clone());
            engine
                .scan(family, &from, &to, &mut |key, value| {
                    rows.push((family, key[12..].to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        rows
    }

    /// All nodes come to hold the same rows.
    pub(crate) async fn agree(&self) {
        for number in &self.numbers {
            self.caught_up(*number, self.ids()).await;
            let first = self.rows(self.ids()[0], *number);
            assert!(!first.is_empty());
            for node in self.ids() {
                assert!(self.rows(node, *number) == first, "the rows of node {node} differ");
            }
        }
    }
}

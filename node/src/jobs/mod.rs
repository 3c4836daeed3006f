//! Jobs of a cluster, as one node works on them: which there are is looked up again and again, and for each that runs there
//! is a crawl here. What a job is and how it stands is kept by the group of its queue; here are only a node's own part of
//! it, its spool and its records, in `jobs/NAME.GROUP.QUEUE` of the data directory.

pub(crate) mod files;
mod log;
mod recall;
mod runner;
pub(crate) mod spec;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dolomedes_raft::{
    cluster::ClusterNode,
    command::{QueueId, QueueState},
    machine::read::QueueInfo,
};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

pub(crate) use self::{log::JobLog, recall::recall, spec::Spec};
use crate::{
    clock::Clock,
    crawl::{Frontier, Shared, Stats, Watch},
};

/// How often jobs are looked up.
const EVERY: Duration = Duration::from_millis(500);
/// Jobs that a node works on at once; further ones wait for one of them to end.
const MOST_AT_ONCE: usize = 64;
/// Jobs of which a node remembers what it said.
const MOST_REMEMBERED: usize = 1_024;
/// How long a job rests here after trouble.
const REST: Duration = Duration::from_secs(5);
/// How long closing waits for crawls to give back what they hold.
const CLOSE_PATIENCE: Duration = Duration::from_secs(8);

/// A job, by the group of its queue and the queue. Neither is ever given to another one.
pub(crate) type JobId = (u32, QueueId);

/// The jobs on this node.
pub(crate) struct Jobs {
    node: Arc<ClusterNode>,
    clock: Clock,
    /// Where the jobs' files are.
    dir: PathBuf,
    table: Mutex<BTreeMap<JobId, Entry>>,
    /// Nothing is begun any more.
    stopping: CancellationToken,
    /// Nobody is waited for any more.
    closing: CancellationToken,
}

/// What this node knows of a job.
struct Entry {
    name: String,
    log: Arc<JobLog>,
    watch: Arc<Watch>,
    working: Option<Working>,
    /// After an end without trouble: there is nothing to do here unless the job runs.
    rested: bool,
    trouble: String,
    not_before: Instant,
}

struct Working {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

/// How a job stands on this node.
#[derive(Debug, Default)]
pub(crate) struct OnNode {
    pub working: bool,
    pub in_flight: u64,
    pub hosts: u64,
    pub pages: u64,
    pub trouble: String,
    pub log: Vec<(u64, String)>,
}

impl Jobs {
    pub(crate) fn new(node: Arc<ClusterNode>, clock: Clock) -> Arc<Self> {
        let dir = node.dir().path().join("jobs");
        Arc::new(Self {
            node,
            clock,
            dir,
            table: Mutex::default(),
            stopping: CancellationToken::new(),
            closing: CancellationToken::new(),
        })
    }

    /// Looks jobs up and works on them until [`stop`](Self::stop).
    pub(crate) async fn run(self: Arc<Self>) {
        let mut every = tokio::time::interval(EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.stopping.cancelled() => return,
            }
            for group in self.node.queue_groups() {
                // Whoever cannot be asked now is asked again soon.
                if let Ok(found) = self.node.queues(group, spec::PREFIX).await {
                    for info in found {
                        self.attend(group, &info);
                    }
                }
            }
        }
    }

    /// Sees to a job: begins to work on it, or stops.
    fn attend(self: &Arc<Self>, group: u32, info: &QueueInfo) {
        let Some(name) = info.name.strip_prefix(spec::PREFIX) else { return };
        let id = (group, info.id);
        let mut table = self.table();
        let at_work = table.values().filter(|entry| entry.working.is_some()).count();
        if !table.contains_key(&id) && table.len() >= MOST_REMEMBERED {
            table.retain(|_, entry| entry.working.is_some() || !entry.rested);
        }
        let entry = table.entry(id).or_insert_with(|| Entry {
            name: name.to_owned(),
            log: Arc::default(),
            watch: Arc::default(),
            working: None,
            rested: !self.place(name, id).exists(),
            trouble: String::new(),
            not_before: Instant::now(),
        });
        if let Some(working) = entry.working.take_if(|working| working.task.is_finished()) {
            self.conclude(entry, working);
        }
        if let Some(working) = &entry.working {
            if matches!(info.state, QueueState::Paused | QueueState::Cancelled) {
                working.stop.cancel();
            }
            return;
        }
        let wanted = info.state == QueueState::Running || !entry.rested;
        let may = at_work < MOST_AT_ONCE && !self.stopping.is_cancelled();
        if !wanted || !may || Instant::now() < entry.not_before {
            return;
        }
        let watch = Arc::new(Watch::default());
        entry.watch = watch.clone();
        let (log, stop) = (entry.log.clone(), self.stopping.child_token());
        let run = runner::Run {
            frontier: self.frontier(group, info.name.clone()),
            job: name.to_owned(),
            worker: worker(self.node.number(), id),
            node: self.node.number(),
            dir: self.place(name, id),
            clock: self.clock,
            watch,
            log,
            stop: stop.clone(),
        };
        entry.working = Some(Working { stop, task: tokio::spawn(run.work(info.id)) });
    }

    /// Takes in how the work on a job ended.
    fn conclude(&self, entry: &mut Entry, working: Working) {
        use futures_util::FutureExt as _;
        let ended = match working.task.now_or_never() {
            Some(Ok(ended)) => ended,
            Some(Err(panicked)) => Err(anyhow::anyhow!("the crawl broke off: {panicked}")),
            None => return,
        };
        match ended {
            Ok(()) => {
                entry.rested = true;
                entry.trouble.clear();
            }
            Err(error) => {
                let text = format!("{error:#}");
                tracing::warn!(job = entry.name, error = text, "cannot work on the job; trying again");
                entry.log.say(self.clock.now_ms(), format!("trouble: {text}"));
                entry.trouble = text;
                entry.rested = false;
                entry.not_before = Instant::now() + REST;
            }
        }
    }

    /// How a job stands here.
    pub(crate) fn on_node(&self, name: &str, lines: usize) -> OnNode {
        let table = self.table();
        // Of several jobs that had this name, the newest.
        let Some(entry) = table.values().rfind(|entry| entry.name == name) else { return OnNode::default() };
        let working = entry.working.as_ref().is_some_and(|working| !working.task.is_finished());
        let stats = &entry.watch.stats;
        OnNode {
            working,
            in_flight: if working { Stats::get(&stats.in_flight) } else { 0 },
            hosts: if working { Stats::get(&stats.hosts) } else { 0 },
            pages: Stats::get(&stats.pages),
            trouble: entry.trouble.clone(),
            log: entry.log.newest(lines),
        }
    }

    /// Lets all crawls give back what they hold, and waits for that a while.
    pub(crate) async fn stop(&self) {
        self.stopping.cancel();
        let working: Vec<Working> =
            self.table().values_mut().filter_map(|entry| entry.working.take()).collect();
        let mut ending = futures_util::future::join_all(working.into_iter().map(|working| working.task));
        if tokio::time::timeout(CLOSE_PATIENCE, &mut ending).await.is_err() {
            tracing::info!("crawls are broken off: what they hold is free once their leases run out");
        }
        self.closing.cancel();
    }

    /// The way to a job's queue.
    pub(crate) fn frontier(&self, group: u32, queue: String) -> Frontier {
        Frontier::Cluster(Shared {
            node: self.node.clone(),
            group,
            name: queue,
            closing: self.closing.clone(),
        })
    }

    /// Where a job's files are on this node.
    pub(crate) fn place(&self, name: &str, (group, queue): JobId) -> PathBuf {
        self.dir.join(format!("{name}.{group}.{queue}"))
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<JobId, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node as a worker on a job. Workers that are users' own choose small numbers or random ones, so this is out of their way.
pub(crate) fn worker(node: u64, (group, queue): JobId) -> u64 {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&node.to_be_bytes());
    bytes[8..12].copy_from_slice(&group.to_be_bytes());
    bytes[12..].copy_from_slice(&queue.to_be_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes) | 1 << 63
}

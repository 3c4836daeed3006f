//! A node of its own in one process: a data directory, its engine, and one group whose only voter is this node. The same
//! parts as in a cluster; only the network between nodes is missing.

use std::{
    fs::File,
    future::Future,
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use dolomedes_storage::{
    Error, Result,
    directory::{DataDir, Identity},
    engine::Engine,
    floor::Floor,
    log::LogSync,
    rocks::{RocksEngine, RocksOptions},
};
use tokio::runtime::{Builder, Runtime};

use crate::group::{Clock, Group, GroupError, GroupOptions, GroupStart};

/// The group of an embedded node; group 0 is a cluster's own.
const GROUP: u32 = 1;
/// The node's number when it creates its own cluster.
const NODE: u64 = 1;
/// Threads of consensus: the core of Raft, and the machine beside it.
const THREADS: usize = 2;
/// Threads for what blocks beside: a checkpoint, an installation, the filling of a filter, the floor.
const BLOCKING_THREADS: usize = 4;
/// How long closing waits for the runtime's threads.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// What an embedded node needs to know.
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// The clock that stamps entries.
    pub clock: Clock,
    /// Bounds of the group.
    pub group: GroupOptions,
    /// Bounds of the engine.
    pub engine: RocksOptions,
}

/// A running embedded node.
pub struct Embedded {
    group: Group,
    dir: Arc<DataDir>,
    /// Taken by `close`. Consensus has threads of its own, so that no amount of crawling can starve it.
    runtime: Option<Runtime>,
}

impl Embedded {
    /// Takes the data directory, creating it where there is none, and returns once commands are accepted.
    ///
    /// # Errors
    /// If the directory is in use, of a newer release, damaged, or has lost acknowledged state; see [`GroupError`].
    pub async fn open(dir: impl Into<PathBuf>, options: EmbeddedOptions) -> Result<Self, GroupError> {
        let dir = dir.into();
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("raft")
            .enable_time()
            .build()
            .map_err(|error| Error::Engine(format!("cannot start the threads of consensus: {error}")))?;
        let opening = runtime.spawn(async move {
            let EmbeddedOptions { clock, group: options, engine: bounds } = options;
            let (dir, floor, engine) = tokio::task::spawn_blocking(move || open_storage(dir, bounds))
                .await
                .map_err(|error| Error::Engine(format!("opening the data directory failed: {error}")))??;
            let start = GroupStart {
                group: GROUP,
                node: dir.identity().map_or(NODE, |identity| identity.node_id),
                sync: LogSync::start(engine.clone())?,
                engine,
                snapshots: dir.snapshots(),
                floor: Some(Arc::new(Mutex::new(floor))),
                clock,
                transport: None,
                bootstrap: true,
                options,
            };
            Ok::<_, GroupError>((dir, Group::open(start).await?))
        });
        let opened = opening.await.unwrap_or_else(|error| {
            Err(GroupError::Consensus { group: GROUP, detail: format!("its start failed: {error}") })
        });
        match opened {
            Ok((dir, group)) => Ok(Self { group, dir: Arc::new(dir), runtime: Some(runtime) }),
            Err(error) => {
                stop(runtime).await;
                Err(error)
            }
        }
    }

    /// The group.
    pub fn group(&self) -> Group {
        self.group.clone()
    }

    /// The data directory: for those who keep other things in it, like the spool.
    pub fn dir(&self) -> &Arc<DataDir> {
        &self.dir
    }

    /// Returns, with the reason, once the node has failed. The process has to end then, at once.
    pub fn failed(&self) -> impl Future<Output = String> + Send + use<> {
        self.group.failed()
    }

    /// Answers the commands that were taken, takes no more, makes everything durable and lets go of the directory; the
    /// engine is closed once no handle to the group is left.
    ///
    /// # Errors
    /// If the last sync fails; what was acknowledged is durable all the same.
    pub async fn close(mut self) -> Result<()> {
        let closed = self.group.shutdown().await;
        if let Some(runtime) = self.runtime.take() {
            stop(runtime).await;
        }
        closed
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime must not be waited for where it may be dropped on another one.
            runtime.shutdown_background();
        }
    }
}

/// Waits for the runtime's threads, so that nothing of it holds the engine any more.
async fn stop(runtime: Runtime) {
    let _ = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(CLOSE_PATIENCE)).await;
}

fn open_storage(path: PathBuf, bounds: RocksOptions) -> Result<(DataDir, Floor, Arc<dyn Engine>)> {
    let mut dir = DataDir::open(path)?;
    let identity = match dir.identity() {
        Some(identity) => identity,
        None => {
            let identity = Identity::new(random()?, random()?, NODE);
            Floor::create(dir.floor(), identity.node_id)?;
            dir.set_identity(identity)?;
            identity
        }
    };
    let floor = Floor::open(dir.floor(), identity.node_id)?;
    let engine = Arc::new(RocksEngine::open(dir.db(), bounds)?);
    Ok((dir, floor, engine))
}

fn random() -> Result<u128> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::io("read", path, error))?;
    Ok(u128::from_be_bytes(bytes))
}

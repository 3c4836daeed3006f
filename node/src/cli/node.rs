//! `dolomedes node`: one member of a cluster, from its data directory to its last word. Who it is and how it comes to be
//! a member is in `seat`.

mod seat;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Args;
use dolomedes_netproto::peer;
use dolomedes_raft::{
    cluster::{ClusterNode, ClusterOptions, SecretKeeper, plan::PlanRules},
    group::GroupOptions,
};
use dolomedes_storage::{directory::DataDir, rocks::RocksOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::seat::{Taken, is_address, random, take_seat};
use super::{Ending, Usage};
use crate::{api, clock::Clock, jobs::Jobs};

/// Most groups beside group 0: each costs timers and threads' time on every node.
const MOST_GROUPS: u32 = 64;

#[derive(Args)]
pub(super) struct NodeArgs {
    /// Where the node keeps its state; a new directory begins a cluster, or joins one
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Where to listen; kept for the next start
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where others reach this node, if not at --listen; kept for the next start
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Join the cluster of this member; only with a new directory
    #[arg(long, value_name = "HOST:PORT")]
    join: Vec<String>,
    /// The token to join with, which `dolomedes cluster token create --join` makes; by it the cluster is also recognised
    #[arg(long, value_name = "TOKEN", env = "DOLOMEDES_JOIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Speak without TLS and ask for no tokens, on loopback addresses only
    #[arg(long)]
    insecure: bool,
    /// Groups among which a new cluster spreads its queues [default: 4]
    #[arg(long, value_name = "N")]
    groups: Option<u32>,
    /// Voters wanted, an odd number up to 5
    #[arg(long, value_name = "N", default_value_t = 3)]
    voters: usize,
}

/// Runs the command.
pub(super) fn run(args: NodeArgs) -> anyhow::Result<Ending> {
    if !matches!(args.voters, 1 | 3 | 5) {
        return Err(Usage(anyhow::anyhow!("--voters {}: expected 1, 3 or 5", args.voters)).into());
    }
    if let Some(groups) = args.groups.filter(|groups| !(1..=MOST_GROUPS).contains(groups)) {
        return Err(Usage(anyhow::anyhow!("--groups {groups}: expected 1 to {MOST_GROUPS}")).into());
    }
    for (flag, address) in [("--listen", &args.listen), ("--advertise", &args.advertise)] {
        if let Some(address) = address.as_ref().filter(|address| !is_address(address)) {
            return Err(Usage(anyhow::anyhow!("{flag} `{address}`: expected HOST:PORT")).into());
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("node")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ending = runtime.block_on(serve(args));
    runtime.shutdown_timeout(Duration::from_secs(2));
    ending
}

async fn serve(args: NodeArgs) -> anyhow::Result<Ending> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let dir = DataDir::open(&args.data_dir)?;
    let Taken { seat, listener, start, security, authority, first_access } = take_seat(&args, &dir).await?;
    let clock = Clock::start();
    let options = ClusterOptions {
        clock: Arc::new(move || clock.now_ms()),
        group: GroupOptions::default(),
        engine: RocksOptions::default(),
        security: security.clone(),
        secret: authority.clone().map(|authority| authority as Arc<dyn SecretKeeper>),
        first_access,
        plan: PlanRules { voters: args.voters, ..PlanRules::default() },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let advertise = seat.advertise.clone();
    let node = Arc::new(ClusterNode::open(dir, seat, start, options).await?);
    let jobs = Jobs::new(node.clone(), clock);
    let routes = api::services(node.clone(), jobs.clone(), random()?, security.clone(), authority).await?;
    let stopping = CancellationToken::new();
    let stopped = stopping.clone().cancelled_owned();
    let serving = tokio::spawn(peer::serve(listener, routes, security, stopped));
    eprintln!("node {} of cluster {:032x} is up, reached at {advertise}", node.number(), node.cluster());
    let working = tokio::spawn(jobs.clone().run());
    let ending = tokio::select! {
        _ = interrupt.recv() => Ok(Ending::Stopped(libc::SIGINT)),
        _ = terminate.recv() => Ok(Ending::Stopped(libc::SIGTERM)),
        reason = node.failed() => Err(anyhow::anyhow!(reason)),
    };
    if let Ok(Ending::Stopped(_)) = ending {
        eprintln!("stopping: finishing pages and handing leaderships over; once more to stop at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            std::process::exit(1);
        });
    }
    // What the crawls hold is given back first: that takes leaders.
    if ending.is_ok() {
        jobs.stop().await;
    }
    working.abort();
    // Others must be reached while leaderships are handed over, so the server goes last.
    let closed = node.close().await;
    stopping.cancel();
    let _ = serving.await;
    ending.and_then(|ending| closed.map(|()| ending).context("the data directory was not closed in order"))
}

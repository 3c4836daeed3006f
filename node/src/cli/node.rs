//! `dolomedes node`: one member of a cluster, from its data directory to its last word.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use dolomedes_netproto::{
    peer::{self, Security},
    wire::{Client, ClientOptions, v1},
};
use dolomedes_raft::{
    cluster::{ClusterNode, ClusterOptions, ClusterStart, Seat, plan::PlanRules},
    group::GroupOptions,
};
use dolomedes_storage::{directory::DataDir, rocks::RocksOptions};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{Ending, Usage};
use crate::{api, clock::Clock, jobs::Jobs};

/// How long a node that joins keeps asking.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
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
    /// Where others reach this node, if not at --listen
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Join the cluster of this member; only with a new directory
    #[arg(long, value_name = "HOST:PORT")]
    join: Vec<String>,
    /// Speak without TLS, on loopback addresses only
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
    if !args.insecure {
        return Err(Usage(anyhow::anyhow!(
            "nodes do not speak TLS yet: pass --insecure, which is for loopback addresses"
        ))
        .into());
    }
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

fn is_address(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

async fn serve(args: NodeArgs) -> anyhow::Result<Ending> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let dir = DataDir::open(&args.data_dir)?;
    let (seat, listener, start) = take_seat(&args, &dir).await?;
    let clock = Clock::start();
    let options = ClusterOptions {
        clock: Arc::new(move || clock.now_ms()),
        group: GroupOptions::default(),
        engine: RocksOptions::default(),
        security: Security::Insecure,
        plan: PlanRules { voters: args.voters, ..PlanRules::default() },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let advertise = seat.advertise.clone();
    let node = Arc::new(ClusterNode::open(dir, seat, start, options).await?);
    let jobs = Jobs::new(node.clone(), clock);
    let routes = api::services(node.clone(), jobs.clone(), random()?).await?.add_service(node.peer_service());
    let stopping = CancellationToken::new();
    let stopped = stopping.clone().cancelled_owned();
    let serving = tokio::spawn(peer::serve(listener, routes, Security::Insecure, stopped));
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

/// Finds out who this node is and where it listens; enrols it if it is to join.
async fn take_seat(args: &NodeArgs, dir: &DataDir) -> anyhow::Result<(Seat, TcpListener, ClusterStart)> {
    let kept = Seat::load(dir.path())?;
    if dir.identity().is_some() && kept.is_none() {
        bail!(
            "`{}` belongs to a crawl, not to a cluster's node; use another --data-dir",
            args.data_dir.display()
        );
    }
    let listen = args.listen.clone().or_else(|| kept.as_ref().map(|seat| seat.listen.clone()));
    let listen = listen.ok_or_else(|| Usage(anyhow::anyhow!("--listen is needed for a new --data-dir")))?;
    let listener = TcpListener::bind(&listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let bound: SocketAddr = listener.local_addr().context("cannot tell the address that is listened on")?;
    ensure!(
        bound.ip().is_loopback(),
        Usage(anyhow::anyhow!("--insecure is for loopback addresses, and {bound} is not one"))
    );
    let advertise = args.advertise.clone().or_else(|| {
        let kept =
            kept.as_ref().filter(|seat| args.listen.as_ref().is_none_or(|listen| *listen == seat.listen));
        kept.map(|seat| seat.advertise.clone())
    });
    let advertise = advertise.unwrap_or_else(|| bound.to_string());
    // A port that the system chose stays the node's.
    let listen = if listen.ends_with(":0") { bound.to_string() } else { listen };
    if dir.identity().is_some() {
        if !args.join.is_empty() {
            tracing::info!("--join is for new directories; this one belongs to a cluster already");
        }
        let mut seat = kept.context("the seat has vanished")?;
        (seat.listen, seat.advertise) = (listen, advertise);
        seat.save(dir.path())?;
        return Ok((seat, listener, ClusterStart::Again));
    }
    let mut seat = Seat {
        uuid: match &kept {
            Some(seat) => seat.uuid,
            None => random()?,
        },
        listen,
        advertise,
        groups: 0,
        members: kept.map(|seat| seat.members).unwrap_or_default(),
    };
    let start = match &args.join[..] {
        [] if seat.members.is_empty() => {
            seat.groups = args.groups.unwrap_or(4);
            ClusterStart::Bootstrap { cluster: random()? }
        }
        [] => enrol(&mut seat, dir, &[]).await?,
        join => {
            ensure!(
                args.groups.is_none(),
                Usage(anyhow::anyhow!("--groups is for the node that begins a cluster"))
            );
            enrol(&mut seat, dir, join).await?
        }
    };
    Ok((seat, listener, start))
}

async fn enrol(seat: &mut Seat, dir: &DataDir, join: &[String]) -> anyhow::Result<ClusterStart> {
    for address in join {
        if !is_address(address) {
            return Err(Usage(anyhow::anyhow!("--join `{address}`: expected HOST:PORT")).into());
        }
        if *address == seat.advertise {
            return Err(Usage(anyhow::anyhow!(
                "--join names this node itself; name a member of the cluster"
            ))
            .into());
        }
    }
    // Before the cluster gives a number away: asking again must not be asking for a second one.
    seat.save(dir.path())?;
    let asked: Vec<String> =
        if join.is_empty() { seat.members.values().cloned().collect() } else { join.to_vec() };
    let client = Client::new(&asked, ClientOptions { deadline: JOIN_PATIENCE, ..ClientOptions::default() })?;
    let request = v1::EnrolRequest {
        uuid: seat.uuid.to_be_bytes().to_vec().into(),
        address: seat.advertise.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    eprintln!("joining through {}", asked.join(", "));
    let reply = client.enrol(request).await.context("cannot join the cluster")?;
    let cluster = <[u8; 16]>::try_from(reply.cluster.as_ref())
        .map(u128::from_be_bytes)
        .ok()
        .context("the cluster's answer makes no sense: its id has not 16 bytes")?;
    seat.groups = reply.groups;
    seat.members = reply.members.into_iter().map(|member| (member.id, member.address)).collect();
    Ok(ClusterStart::Enrolled { cluster, node: reply.node })
}

fn random() -> anyhow::Result<u128> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .context("cannot draw a random number from /dev/urandom")?;
    Ok(u128::from_be_bytes(bytes))
}

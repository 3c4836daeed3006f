//! `dolomedes-failover`: kills the leader of a queue's group again and again and measures how long no write is acknowledged.
#![allow(clippy::print_stdout, reason = "its output is its result")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use dolomedes_netproto::wire::{Access, Client, ClientOptions, v1};
use dolomedes_tests::cluster::Cluster;
use serde_json::json;

const QUEUE: &str = "failover";

/// Starts three nodes, and kills the node that leads a queue's group with SIGKILL, as often as asked. After each death it
/// puts messages until one is acknowledged; then the node is started again, and the next follows once all are close.
#[derive(Parser, Debug)]
#[command(name = "dolomedes-failover")]
struct Options {
    /// How often to kill the leader
    #[arg(long, default_value_t = 50)]
    kills: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut cluster = Cluster::start(3);
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("dolomedes-failover: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut gaps: Vec<Duration> = Vec::new();
    let mut put = 0_u64;
    let members: Vec<String> = cluster.nodes.iter().map(|node| node.address.clone()).collect();
    let connect = || -> anyhow::Result<Client> {
        let access = match cluster.token() {
            Some(token) => Access::Token(token.parse()?),
            None => Access::Insecure,
        };
        let deadline = Duration::from_secs(60);
        Ok(Client::new(&members, ClientOptions { access, deadline, ..ClientOptions::default() })?)
    };
    let client = match runtime.block_on(async { connect() }) {
        Ok(client) => client,
        Err(error) => {
            eprintln!("dolomedes-failover: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let created = runtime.block_on(client.create_queue(QUEUE, v1::QueueRules::default()));
    let group =
        created.map_err(anyhow::Error::from).and_then(|_| group_of_queue(&runtime, &client, &cluster));
    let group = match group {
        Ok(group) => group,
        Err(error) => {
            eprintln!("dolomedes-failover: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    for kill in 0..options.kills {
        let victim = cluster.leader(group);
        for _ in 0..20 {
            put += runtime.block_on(put_one(&client, put));
        }
        cluster.kill(victim);
        let died = Instant::now();
        put += runtime.block_on(put_one(&client, put));
        gaps.push(died.elapsed());
        eprintln!("kill {}: {} ms", kill + 1, gaps[gaps.len() - 1].as_millis());
        cluster.restart(victim);
        cluster.wait_for_voters(3);
    }
    let counts = runtime.block_on(client.describe_queue(QUEUE)).ok().and_then(|found| found.counts);
    let accepted = counts.map_or(0, |counts| counts.accepted);
    gaps.sort();
    let at = |share: f64| -> u128 {
        let place = ((gaps.len() as f64 * share).ceil() as usize).clamp(1, gaps.len().max(1)) - 1;
        gaps.get(place).map_or(0, Duration::as_millis)
    };
    let (p50, p99, worst) = (at(0.5), at(0.99), at(1.0));
    let lost = put.saturating_sub(accepted);
    if options.json {
        let report = json!({
            "kills": options.kills, "p50_ms": p50, "p99_ms": p99, "worst_ms": worst, "put": put, "accepted": accepted,
        });
        println!("{report}");
    } else {
        println!(
            "{} kills of the leader: next acknowledged write after p50 {p50} ms, p99 {p99} ms, worst {worst} ms; \
             {put} messages acknowledged, {accepted} there",
            options.kills
        );
    }
    if lost == 0 && accepted == put { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Puts a message and waits for its acknowledgement; returns how many were acknowledged.
async fn put_one(client: &Client, number: u64) -> u64 {
    let message = v1::NewMessage { payload: number.to_string().into(), ..v1::NewMessage::default() };
    match client.put(QUEUE, vec![message]).await {
        Ok(statuses) => statuses.iter().filter(|status| **status == v1::PutStatus::Accepted).count() as u64,
        Err(error) => {
            eprintln!("dolomedes-failover: {error}");
            0
        }
    }
}

/// The group in which the queue is: the one whose log grows with it.
fn group_of_queue(
    runtime: &tokio::runtime::Runtime,
    client: &Client,
    cluster: &Cluster,
) -> anyhow::Result<u64> {
    let ends = || -> anyhow::Result<Vec<(u64, u64)>> {
        let status = cluster.status().map_err(anyhow::Error::msg)?;
        let groups = status["groups"].as_array().cloned().unwrap_or_default();
        let end = |group: &serde_json::Value| Some((group["group"].as_u64()?, group["last_index"].as_u64()?));
        Ok(groups.iter().filter_map(end).collect())
    };
    let before = ends()?;
    runtime.block_on(async {
        let message = v1::NewMessage { delay_ms: 86_400_000, ..v1::NewMessage::default() };
        for _ in 0..200 {
            client.put(QUEUE, vec![message.clone()]).await?;
        }
        client.drop_queue(QUEUE).await?;
        client.create_queue(QUEUE, v1::QueueRules::default()).await
    })?;
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let grown = ends()?.into_iter().zip(&before).find(|(now, before)| now.1 >= before.1 + 200);
        if let Some(((group, _), _)) = grown {
            return Ok(group);
        }
        anyhow::ensure!(Instant::now() < deadline, "the queue's group cannot be told");
        std::thread::sleep(Duration::from_millis(50));
    }
}

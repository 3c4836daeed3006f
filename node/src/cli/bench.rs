//! `dolomedes bench`: how fast a cluster is, measured from outside through its public API, as `redis-benchmark` and
//! `etcdctl check perf` do for theirs.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use dolomedes_netproto::wire::{Client, Producer, ProducerOptions, v1};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Ending, to::To};

/// Latencies are kept up to this, in microseconds.
const LONGEST_US: u64 = 60_000_000;
/// Messages that one consumer claims at once.
const CLAIM_KEYS: u32 = 64;
const CLAIM_PER_KEY: u32 = 64;

#[derive(Args)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Publishes messages, and with --consumers works them off as well
    Queue(QueueBench),
}

#[derive(Args)]
struct QueueBench {
    #[command(flatten)]
    to: To,
    /// Tasks that publish
    #[arg(long, value_name = "N", default_value_t = 64)]
    producers: u32,
    /// Tasks that claim and complete
    #[arg(long, value_name = "N", default_value_t = 0)]
    consumers: u32,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    size: usize,
    /// Keys that the messages fall to
    #[arg(long, value_name = "N", default_value_t = 64)]
    keys: u64,
    /// Messages of one producer that may be unanswered
    #[arg(long, value_name = "N", default_value_t = 24)]
    window: u32,
    /// Queues that the producers are spread over, and so groups
    #[arg(long, value_name = "N", default_value_t = 4)]
    queues: u32,
    /// How long to publish
    #[arg(long, value_name = "S", default_value_t = 10)]
    seconds: u64,
    /// One request per message, instead of many messages packed into one
    #[arg(long)]
    no_batching: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: BenchArgs) -> anyhow::Result<Ending> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("bench")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let BenchCommand::Queue(bench) = args.command;
    let ending = runtime.block_on(bench_queue(bench));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ending
}

/// What one task saw.
struct Seen {
    latencies: Histogram<u32>,
    count: u64,
}

impl Seen {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { latencies: Histogram::new_with_bounds(1, LONGEST_US, 3)?, count: 0 })
    }

    fn note(&mut self, since: Instant) {
        let us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX).clamp(1, LONGEST_US);
        self.latencies.saturating_record(us);
        self.count += 1;
    }

    fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.latencies.add(&other.latencies)?;
        self.count += other.count;
        Ok(())
    }

    fn ms(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1_000.0
    }
}

async fn bench_queue(bench: QueueBench) -> anyhow::Result<Ending> {
    let bench = Arc::new(bench);
    let client = bench.to.client()?;
    let run = std::process::id();
    let names: Vec<String> = (0..bench.queues.max(1)).map(|n| format!("bench-{run}-{n}")).collect();
    for name in &names {
        client.create_queue(name, v1::QueueRules::default()).await.context("cannot create the queue")?;
    }
    let begun = Instant::now();
    let end = begun + Duration::from_secs(bench.seconds);
    let stop = Arc::new(AtomicBool::new(false));
    let published = Arc::new(AtomicU64::new(0));
    let mut producing = JoinSet::new();
    for name in &names {
        let producer = Producer::start(client.clone(), name.as_str(), ProducerOptions::default());
        let mine = (0..bench.producers).filter(|n| n % bench.queues.max(1) == index_of(&names, name));
        for number in mine {
            let (bench, producer, client) = (bench.clone(), producer.clone(), client.clone());
            let (queue, published) = (name.clone(), published.clone());
            producing.spawn(async move {
                produce(&bench, &producer, &client, &queue, number, end, &published).await
            });
        }
    }
    let mut consuming = JoinSet::new();
    for number in 0..bench.consumers {
        let queue = names[number as usize % names.len()].clone();
        let (client, stop) = (client.clone(), stop.clone());
        consuming.spawn(async move {
            consume(&client, &queue, u64::from(run) << 20 | u64::from(number), &stop).await
        });
    }
    let telling = tokio::spawn(tell(published.clone(), begun));
    let mut puts = Seen::new()?;
    while let Some(seen) = producing.join_next().await {
        puts.add(&seen.context("a producer failed")??)?;
    }
    let publishing = begun.elapsed().as_secs_f64();
    let mut done = Seen::new()?;
    if bench.consumers > 0 {
        drain(&client, &names).await?;
    }
    let cycling = begun.elapsed().as_secs_f64();
    stop.store(true, Relaxed);
    while let Some(seen) = consuming.join_next().await {
        done.add(&seen.context("a consumer failed")??)?;
    }
    telling.abort();
    for name in &names {
        client.drop_queue(name).await.context("cannot drop the queue")?;
    }
    let result = result(&bench, &puts, publishing, &done, cycling);
    let text = if bench.json { result.to_string() } else { told(&result) };
    writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")?;
    Ok(Ending::Done)
}

fn index_of(names: &[String], name: &str) -> u32 {
    names.iter().position(|other| other == name).and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
}

async fn tell(published: Arc<AtomicU64>, begun: Instant) {
    let mut every = tokio::time::interval(Duration::from_secs(2));
    every.tick().await;
    let mut before = 0;
    loop {
        every.tick().await;
        let now = published.load(Relaxed);
        eprintln!("{:>4.0} s: {} messages, {}/s", begun.elapsed().as_secs_f64(), now, (now - before) / 2);
        before = now;
    }
}

async fn produce(
    bench: &QueueBench,
    producer: &Producer,
    client: &Client,
    queue: &str,
    number: u32,
    end: Instant,
    published: &Arc<AtomicU64>,
) -> anyhow::Result<Seen> {
    let mut seen = Seen::new()?;
    let mut flights = JoinSet::new();
    let payload = bytes::Bytes::from(vec![b'x'; bench.size]);
    let mut sent = u64::from(number);
    loop {
        while flights.len() < bench.window.max(1) as usize && Instant::now() < end {
            let key = format!("key-{}", sent % bench.keys.max(1));
            sent = sent.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(7);
            let message =
                v1::NewMessage { key: key.into(), payload: payload.clone(), ..v1::NewMessage::default() };
            let (producer, client) = (producer.clone(), client.clone());
            let (queue, direct) = (queue.to_owned(), bench.no_batching);
            flights.spawn(async move {
                let since = Instant::now();
                let status = match direct {
                    true => client.put(&queue, vec![message]).await.map_err(|error| error.to_string()),
                    false => producer.put(message).await.map(|status| vec![status]),
                };
                (since, status)
            });
        }
        let Some(landed) = flights.join_next().await else { return Ok(seen) };
        let (since, status) = landed.context("a put failed")?;
        match status {
            Ok(statuses) if statuses == [v1::PutStatus::Accepted] => {}
            Ok(statuses) => bail!("a message was not accepted: {statuses:?}"),
            Err(error) => bail!("a put failed: {error}"),
        }
        seen.note(since);
        published.fetch_add(1, Relaxed);
    }
}

async fn consume(client: &Client, queue: &str, number: u64, stop: &AtomicBool) -> anyhow::Result<Seen> {
    let mut seen = Seen::new()?;
    let consumer = client.attach(queue, number).await.context("cannot attach")?;
    while !stop.load(Relaxed) {
        let claim = v1::ClaimRequest {
            queue: queue.to_owned(),
            consumer: Some(consumer),
            keys: CLAIM_KEYS,
            per_key: CLAIM_PER_KEY,
            wait_ms: 200,
            ..v1::ClaimRequest::default()
        };
        let since = Instant::now();
        let claimed = client.claim(claim).await.context("cannot claim")?;
        let completions: Vec<v1::Completion> = claimed
            .grants
            .into_iter()
            .map(|grant| v1::Completion {
                lease: grant.lease,
                results: grant
                    .messages
                    .into_iter()
                    .map(|message| v1::Result {
                        id: message.id,
                        attempt: message.attempt,
                        outcome: Some(v1::result::Outcome::Done(v1::Done {})),
                    })
                    .collect(),
                release: true,
                hold_ms: None,
            })
            .collect();
        if completions.is_empty() {
            continue;
        }
        let count: usize = completions.iter().map(|completion| completion.results.len()).sum();
        client.complete(queue, consumer, completions).await.context("cannot complete")?;
        for _ in 0..count {
            seen.note(since);
        }
    }
    Ok(seen)
}

/// Waits until everything is worked off.
async fn drain(client: &Client, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        loop {
            let counts = client.describe_queue(name).await?.counts.unwrap_or_default();
            if counts.done + counts.dead == counts.accepted {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

fn result(bench: &QueueBench, puts: &Seen, publishing: f64, done: &Seen, cycling: f64) -> Value {
    let mut result = json!({
        "messages": puts.count,
        "seconds": publishing,
        "rate": puts.count as f64 / publishing.max(1e-9),
        "p50_ms": puts.ms(0.5),
        "p99_ms": puts.ms(0.99),
        "p999_ms": puts.ms(0.999),
        "producers": bench.producers,
        "consumers": bench.consumers,
        "size": bench.size,
        "keys": bench.keys,
        "queues": bench.queues,
        "batching": !bench.no_batching,
    });
    if bench.consumers > 0 {
        result["completed"] = done.count.into();
        result["cycle_rate"] = (done.count as f64 / cycling.max(1e-9)).into();
        result["cycle_seconds"] = cycling.into();
    }
    result
}

fn told(result: &Value) -> String {
    let number = |key: &str| result[key].as_f64().unwrap_or(0.0);
    let mut text = format!(
        "{:.0} messages/s published ({} in {:.1} s); p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms",
        number("rate"),
        result["messages"],
        number("seconds"),
        number("p50_ms"),
        number("p99_ms"),
        number("p999_ms"),
    );
    if result["cycle_rate"].is_number() {
        text.push_str(&format!(
            "\n{:.0} messages/s put, claimed and completed ({} in {:.1} s)",
            number("cycle_rate"),
            result["completed"],
            number("cycle_seconds"),
        ));
    }
    text
}

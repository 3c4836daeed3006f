//! A crawl of one job on one node: opens the node and the job, takes up what an earlier run left, drives it to its end.
//! The walk of a URL through these files is in ARCHITECTURE.md.

mod driver;
mod finish;
mod frontier;
mod harvest;
mod host;
mod judge;
mod known;
mod note;
mod open;
mod request;
mod rules;
mod stats;
mod summary;
mod task;
#[cfg(test)]
mod tests;
mod visit;
mod watch;
mod window;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use dolomedes_raft::embedded::Embedded;
use tokio_util::sync::CancellationToken;

use self::{driver::Driver, finish::Finisher, visit::Visitor};
pub(crate) use self::{
    frontier::{Frontier, Shared},
    judge::{Meaning, meaning},
    open::{Place, Taken, queue_rules, random_seed},
    request::Requester,
};
pub use self::{
    stats::Stats,
    summary::{End, Summary},
    task::{Task, TaskKind},
    watch::Watch,
    window::{AfterResult, ClaimPlan, HostId, LEASE_TTL_MS, Returned, Start, Window, WindowLimits, Work},
};
use crate::{clock::Clock, config::CrawlConfig, politeness::PaceRules, sink::WarcOptions, totals::Totals};

/// Failed probes of a host, after the failures that opened its breaker, until it is given up.
const PROBES: u32 = 3;
/// Crashes at which a URL may be leased before it is given up as what may cause them. A crash ends the leases of a hundred
/// innocent URLs as well, so it takes many.
const MAX_LOST: u32 = 100;
/// Results that wait for the stages that finish them, per request at once.
const RESULTS_PER_REQUEST: usize = 4;

/// Crawls until the job ends or `stop` is cancelled. What it does can be watched in `watch`.
///
/// # Errors
/// If the state or the output cannot be opened or written. Nothing acknowledged is lost then, and the same call goes on
/// once the cause is gone.
pub async fn run(config: CrawlConfig, watch: Arc<Watch>, stop: CancellationToken) -> anyhow::Result<Summary> {
    let started = Instant::now();
    let clock = Clock::start();
    // Mistakes in the options are reported before anything is touched, above all before --fresh.
    let requester = Requester::new(&config.network, config.job.warc, config.run.retry_delay_ms, clock)
        .map_err(crate::cli::Usage)?;
    let node = open::embedded(&config, clock).await?;
    let failed = node.failed();
    let frontier = Frontier::Embedded(node.group());
    let place = Place {
        job: open::JOB.to_owned(),
        worker: open::WORKER,
        spool: node.dir().spool(),
        sinks: node.dir().sinks(),
        warc_name: WarcOptions::default().name,
    };
    let run = async {
        let taken = open::take_job(&node.group(), &config).await?;
        let queue = taken.queue;
        let limits = limits(&config);
        let worked =
            work(&frontier, &place, taken, &config, limits, requester, watch.clone(), clock, stop).await?;
        let ended = Ended { worked, started };
        open::summarize(&frontier, queue, &config, &watch, ended).await
    };
    let summary = tokio::select! {
        summary = run => summary,
        reason = failed => Err(anyhow!(reason)),
    };
    drop(frontier);
    match summary {
        Ok(summary) => {
            node.close().await.context("cannot close the data directory")?;
            Ok(summary)
        }
        Err(error) => {
            close_after_failure(node).await;
            Err(error)
        }
    }
}

/// Checks what a job's options mean beyond themselves: patterns, start URLs, the network's options.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn check(config: &CrawlConfig) -> anyhow::Result<()> {
    let clock = Clock::start();
    Requester::new(&config.network, config.job.warc, config.run.retry_delay_ms, clock)?;
    open::check(config, clock)
}

/// Works on a job until it ends or `stop` is cancelled, and brings every record that was judged to the sinks. When this
/// returns, nothing of it uses the files of `place` any more.
#[expect(clippy::too_many_arguments, reason = "each is another part of the job's surroundings")]
pub(crate) async fn work(
    frontier: &Frontier,
    place: &Place,
    taken: Taken,
    config: &CrawlConfig,
    limits: WindowLimits,
    requester: Requester,
    watch: Arc<Watch>,
    clock: Clock,
    stop: CancellationToken,
) -> anyhow::Result<Worked> {
    let queue = taken.queue;
    let open::Job { consumer, spool, delivery, rules, already_finished } =
        open::open(frontier, place, taken, config, &watch, clock).await?;
    let delivery = Arc::new(delivery);
    let end = if already_finished {
        Ok(End::Finished)
    } else {
        let visitor = Visitor {
            requester,
            rules: rules.clone(),
            watch: watch.clone(),
            clock,
            job: place.job.clone(),
            max_attempts: config.run.max_attempts,
            retry_delay_ms: config.run.retry_delay_ms,
            traps: Mutex::new(HashMap::new()),
        };
        let frontier = frontier.clone();
        let finisher =
            Finisher { frontier: frontier.clone(), queue, consumer, rules, delivery: delivery.clone() };
        let depth = RESULTS_PER_REQUEST * config.run.concurrency as usize;
        let (finisher, settled) = finisher.start(spool, depth);
        let window = Window::new(limits);
        let visitor = Arc::new(visitor);
        let driver =
            Driver { window, visitor, frontier, queue, consumer, finisher, settled, watch, clock, stop };
        driver.run().await
    };
    // Also after a failure: what was judged before is delivered, and the files are let go.
    let delivered = deliver_rest(&delivery, matches!(end, Ok(End::Finished))).await;
    match end {
        Ok(end) => {
            delivered?;
            Ok(Worked { end, already_finished, totals: delivery.totals() })
        }
        // The sinks' own failure explains more than that the crawl could not go on without them.
        Err(error) => Err(match delivery.failure() {
            Some(failure) => anyhow!(failure).context("records cannot be delivered"),
            None => error,
        }),
    }
}

/// Brings what was judged to the sinks, and ends delivering. `finished`: the job is, so that the sinks complete theirs.
async fn deliver_rest(delivery: &Arc<crate::sink::DeliveryHandle>, finished: bool) -> anyhow::Result<()> {
    let closing = delivery.clone();
    let closed = tokio::task::spawn_blocking(move || closing.close(finished).map(drop));
    closed
        .await
        .context("delivering the last records failed")?
        .map_err(|failure| anyhow!(failure).context("the last records cannot be delivered"))
}

/// What working on a job came to.
pub(crate) struct Worked {
    /// Why it ended.
    pub end: End,
    /// Whether the job was finished before.
    pub already_finished: bool,
    /// What the records of this node count up to.
    pub totals: Totals,
}

/// How a run ended.
struct Ended {
    worked: Worked,
    started: Instant,
}

/// Closes a node that is of no more use. RocksDB has threads of its own, which must have ended before the process does;
/// after a failure of the storage that may not come about, so there is an end to waiting.
async fn close_after_failure(node: Embedded) {
    /// Longest wait.
    const PATIENCE: Duration = Duration::from_secs(5);
    match tokio::time::timeout(PATIENCE, node.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the data directory was not closed in order"),
        Err(_) => tracing::warn!("the data directory could not be closed in time"),
    }
}

pub(crate) fn limits(config: &CrawlConfig) -> WindowLimits {
    let run = &config.run;
    let breaker_failures = run.max_attempts;
    WindowLimits {
        concurrency: run.concurrency as usize,
        robots: !config.job.ignore_robots,
        max_crawl_delay_ms: run.max_crawl_delay_ms,
        pace: PaceRules {
            delay_ms: run.delay_ms,
            per_host: run.per_host,
            breaker_failures,
            breaker_min_ms: run.retry_delay_ms.saturating_mul(5).max(1),
            ..PaceRules::default()
        },
        give_up_probes: PROBES,
        give_up_robots: run.max_attempts,
        max_lost: MAX_LOST,
        lease_ms: LEASE_TTL_MS,
        poll_ms: None,
    }
}

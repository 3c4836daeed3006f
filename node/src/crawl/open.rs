//! Opening a job: the spool and the sinks; and taking up what an earlier run left unfinished, so that no record is repeated
//! or lost. For an embedded node, the queue with its description, too.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, anyhow, bail, ensure};
use bytes::Bytes;
use dolomedes_raft::{
    command::{Attached, Command, Consumer, Counters, QueueConfig, QueueId, QueueState, Reply},
    embedded::{Embedded, EmbeddedOptions},
    group::{Group, GroupOptions},
    machine::read::State,
};
use dolomedes_storage::{
    directory::DataDir,
    rocks::RocksOptions,
    spool::{Spool, SpoolOptions, SpoolReader},
};

use super::{Ended, Stats, Summary, Watch, Worked, finish::Finisher, frontier::Frontier, rules::Rules};
use crate::{
    clock::Clock,
    config::{CrawlConfig, JobSpec},
    record::Envelope,
    sink::{Delivery, DeliveryHandle, DeliveryOptions, JsonLines, Marks, Sink, Warc, WarcOptions},
    totals::Class,
};

/// The name of the one job of an embedded crawl.
pub(super) const JOB: &str = "crawl";
/// The worker number of the one node.
pub(super) const WORKER: u64 = 1;
/// URLs waiting at most: far above any crawl on one disk.
const CAPACITY: u64 = 1 << 40;
/// Records handed in again by one command: they carry no notes, so it stays well below its bound.
const TAKE_UP_RECORDS: usize = 512;
/// Bytes of the spool that are read at once when it is taken up.
const TAKE_UP_BYTES: usize = 4 << 20;

/// Where a node works on a job.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The job's name.
    pub job: String,
    /// The node as a worker on the job.
    pub worker: u64,
    /// Directory of the spool.
    pub spool: PathBuf,
    /// Directory of the sinks' marks.
    pub sinks: PathBuf,
    /// What the names of WARC files begin with.
    pub warc_name: String,
}

/// A job as the state machine has it.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// Its queue.
    pub queue: QueueId,
    /// Its description, with all seeds that it ever had and the key of its fingerprints.
    pub spec: JobSpec,
    /// The state in which it was found; `None` for a new one.
    pub before: Option<QueueState>,
}

/// An opened job.
pub(super) struct Job {
    pub consumer: Consumer,
    pub spool: Spool,
    pub delivery: DeliveryHandle,
    pub rules: Arc<Rules>,
    pub already_finished: bool,
}

/// Checks patterns and start URLs.
pub(super) fn check(config: &CrawlConfig, clock: Clock) -> anyhow::Result<()> {
    let rules = Rules::new(config, 0, year(clock))?;
    config.job.seeds.iter().try_for_each(|seed| rules.seed(seed).map(drop))?;
    Ok(())
}

/// Opens the embedded node of `config`.
pub(super) async fn embedded(config: &CrawlConfig, clock: Clock) -> anyhow::Result<Embedded> {
    // Mistakes in patterns and seeds are reported before anything is touched.
    check(config, clock).map_err(crate::cli::Usage)?;
    if config.fresh {
        DataDir::clear(&config.data_dir, |sinks| {
            Marks::discard(sinks, &config.job.out)
                .map_err(|error| dolomedes_storage::Error::Engine(error.to_string()))
        })?;
    }
    let options = EmbeddedOptions {
        clock: Arc::new(move || clock.now_ms()),
        group: GroupOptions::default(),
        engine: RocksOptions::default(),
    };
    Ok(Embedded::open(&config.data_dir, options).await?)
}

/// Opens the job `taken` at `place`, where `config` says how to work on it.
pub(super) async fn open(
    frontier: &Frontier,
    place: &Place,
    taken: Taken,
    config: &CrawlConfig,
    watch: &Watch,
    clock: Clock,
) -> anyhow::Result<Job> {
    let Taken { queue, spec, before } = taken;
    // The scope is that of all seeds that the job ever had.
    let whole =
        CrawlConfig { job: JobSpec { seeds: spec.seeds.clone(), ..config.job.clone() }, ..config.clone() };
    let rules = Arc::new(Rules::new(&whole, spec.hash_seed, year(clock))?);

    let marks = Marks::open(&place.sinks)?;
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(JsonLines::open(&config.job.out, &marks)?)];
    if config.job.warc {
        let warc = WarcOptions {
            name: place.warc_name.clone(),
            rotate_bytes: config.run.warc_size,
            ..WarcOptions::default()
        };
        sinks.push(Box::new(Warc::open(&config.job.out, &marks, warc)?));
    }
    let (spool, recovered) = Spool::open(&place.spool, SpoolOptions::default())?;
    if recovered.cut_bytes > 0 {
        tracing::info!(bytes = recovered.cut_bytes, "cut an unfinished write off the spool");
    }
    let delivery = Delivery::new(spool.reader(), sinks, &marks, DeliveryOptions::default())?;
    let first = delivery.next_seq();
    let delivery = DeliveryHandle::spawn(delivery)?;
    hand_in_again(frontier, place, spool.reader(), spool.last_seq()).await?;
    if before.is_some() {
        watch.set_resumed(frontier.info(queue).await?.counters);
    }
    let consumer = attach(frontier, place, spool.last_seq(), first, &delivery).await?;

    let finisher = Finisher {
        frontier: frontier.clone(),
        queue,
        consumer,
        rules: rules.clone(),
        delivery: Arc::new(delivery),
    };
    let mut seeds = Vec::new();
    for seed in &config.job.seeds {
        seeds.push(rules.seed(seed).map_err(|error| crate::cli::Usage(error.into()))?);
    }
    finisher.put(seeds).await?;
    let delivery = Arc::into_inner(finisher.delivery).context("the delivery is in use")?;

    let state = frontier.info(queue).await?.state;
    let already_finished = before == Some(QueueState::Finished) && state == QueueState::Finished;
    if state == QueueState::Finished && !already_finished {
        tracing::debug!("nothing is left to do");
    }
    Ok(Job { consumer, spool, delivery, rules, already_finished })
}

fn year(clock: Clock) -> u16 {
    let date = crate::record::rfc3339_ms(clock.now_ms());
    date.get(..4).and_then(|year| year.parse().ok()).unwrap_or(2_026)
}

/// The rules of a crawl's queue. `retention_ms`: how long what was done is remembered.
pub(crate) fn queue_rules(config: &CrawlConfig, retention_ms: u64) -> QueueConfig {
    let run = &config.run;
    QueueConfig {
        max_attempts: run.max_attempts,
        // Settled by the crawl itself, so that there is a record of it.
        max_lost: u32::MAX,
        capacity: CAPACITY,
        key_delay_ms: run.delay_ms,
        retention_ms,
        unit_budget: run.max_pages,
        byte_budget: run.max_bytes,
        key_unit_budget: run.max_pages_per_host,
        key_byte_budget: run.max_bytes_per_host,
        finishes: true,
    }
}

/// Creates the job, or checks that the stored one can go on under `config` and gives it the new limits.
pub(super) async fn take_job(group: &Group, config: &CrawlConfig) -> anyhow::Result<Taken> {
    let rules = queue_rules(config, 0);
    let number = group.number();
    let stored = group.view(|reader, generation| {
        let state = State::new(reader, number, generation);
        let Some(queue) = state.queue_by_name(JOB)? else { return Ok(None) };
        Ok(state.spec(queue)?.zip(state.queue(queue)?).map(|(spec, info)| (queue, spec, info)))
    })?;
    let Some((queue, spec, info)) = stored else {
        let spec = JobSpec { hash_seed: random_seed()?, ..config.job.clone() };
        let create = Command::CreateQueue {
            name: JOB.to_owned(),
            config: rules,
            spec: Bytes::from(serde_json::to_vec(&spec)?),
        };
        let reply = group.submit(create).await.context("cannot create the job")?;
        let Reply::Queue { queue, .. } = reply else { bail!("cannot create the job: {reply:?}") };
        return Ok(Taken { queue, spec, before: None });
    };
    let mut spec: JobSpec = serde_json::from_slice(&spec)
        .context("the data directory's job has a description that this release cannot read")?;
    spec.check_resumable(&config.job)?;
    let known: std::collections::HashSet<String> = spec.seeds.iter().cloned().collect();
    spec.seeds.extend(config.job.seeds.iter().filter(|seed| !known.contains(*seed)).cloned());
    let configure =
        Command::ConfigureQueue { queue, config: rules, spec: Some(Bytes::from(serde_json::to_vec(&spec)?)) };
    let reply = group.submit(configure).await.context("cannot go on with the job")?;
    ensure!(reply == Reply::Done, "cannot go on with the job: {reply:?}");
    Ok(Taken { queue, spec, before: Some(info.state) })
}

/// An unpredictable key for the hash of URLs.
pub(crate) fn random_seed() -> anyhow::Result<u64> {
    use std::io::Read as _;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot draw a random number from /dev/urandom")?;
    Ok(u64::from_le_bytes(bytes))
}

/// Hands in the completions that an earlier run had spooled and that were never judged, under their own fences.
async fn hand_in_again(
    frontier: &Frontier,
    place: &Place,
    mut reader: SpoolReader,
    last_seq: u64,
) -> anyhow::Result<()> {
    let judged_upto = frontier.judged_upto(place.worker).await?;
    ensure!(
        judged_upto <= last_seq,
        "the data directory is damaged: records up to {judged_upto} were acknowledged, but the spool ends at {}; start \
         over with --fresh",
        last_seq
    );
    let mut next = judged_upto + 1;
    while next <= last_seq {
        let entries = reader.read(next, last_seq, TAKE_UP_BYTES)?;
        let Some(last) = entries.last() else { break };
        next = last.seq + 1;
        let mut envelopes = Vec::with_capacity(entries.len());
        for entry in entries {
            envelopes.push((entry.seq, Envelope::decode(&entry.body)?));
        }
        // Those of one worker go in together: one sync each would be felt at every start after a crash.
        let alike =
            |a: &(u64, Envelope), b: &(u64, Envelope)| (a.1.queue, a.1.consumer) == (b.1.queue, b.1.consumer);
        for together in envelopes.chunk_by(alike).flat_map(|run| run.chunks(TAKE_UP_RECORDS)) {
            let Some((_, first)) = together.first() else { continue };
            let command = Command::Complete {
                queue: first.queue,
                consumer: first.consumer,
                completions: together.iter().map(|(seq, envelope)| envelope.completion(*seq)).collect(),
                released_upto: 0,
            };
            // Refused as a whole under an epoch that was superseded: the receipt does not cover the records then, and
            // they are not real.
            frontier.submit(command).await.context("cannot hand in what an earlier run had finished")?;
        }
    }
    Ok(())
}

/// Begins a new incarnation, whose receipt says which records of the spool, from `first` on, are real.
async fn attach(
    frontier: &Frontier,
    place: &Place,
    last_seq: u64,
    first: u64,
    delivery: &DeliveryHandle,
) -> anyhow::Result<Consumer> {
    let attach = Command::Attach { node: place.worker };
    let reply = frontier.submit(attach).await.context("cannot attach to the job")?;
    let Reply::Attached(Attached { consumer, judged_upto, refused, leases_ended }) = reply else {
        bail!("cannot attach to the job: {reply:?}");
    };
    tracing::info!(epoch = consumer.epoch, leases_ended, "attached");
    let refused: std::collections::HashSet<u64> = refused.into_iter().collect();
    let verdicts = (first..=last_seq).map(|seq| (seq, seq <= judged_upto && !refused.contains(&seq)));
    delivery.judge(verdicts).map_err(|failure| anyhow!(failure))?;
    Ok(consumer)
}

/// The numbers of the job at its end.
pub(super) async fn summarize(
    frontier: &Frontier,
    queue: QueueId,
    config: &CrawlConfig,
    watch: &Watch,
    ended: Ended,
) -> anyhow::Result<Summary> {
    let counters: Counters = frontier.info(queue).await?.counters;
    let stats = &watch.stats;
    let pages_now = Stats::get(&stats.pages);
    let Ended { worked: Worked { end, already_finished, totals }, started } = ended;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Summary {
        end,
        pages: counters.units,
        ok: totals.of(Class::Ok),
        failed: totals.of(Class::ErrorStatus) + totals.of(Class::Failed) + totals.of(Class::Refused),
        redirects: totals.of(Class::Redirect),
        bytes: counters.bytes,
        seconds,
        pages_per_second: if seconds > 0.0 { pages_now as f64 / seconds } else { 0.0 },
        urls: counters.accepted,
        queued: counters.ready + counters.delayed + counters.leased,
        dead: counters.dead,
        errors: stats.errors(),
        already_finished,
        out: config.job.out.clone(),
    })
}

//! Opening the simulated node: the machine catches up with its log, the job is created once, and what an earlier run had
//! spooled is taken up, in the order of `dolomedes::crawl::open`. One durable step after another, each of which a power
//! cut may prevent.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dolomedes::{
    crawl::{LEASE_TTL_MS, Window, WindowLimits},
    politeness::PaceRules,
    record::Envelope,
};
use dolomedes_raft::command::{Command, Consumer, QueueConfig, QueueId, QueueState, Reply};

use super::{
    Stop, broken,
    finish::Finisher,
    log::{self, Log},
    node::{MAX_ATTEMPTS, Node, Waiter, message},
    plan::{Plan, Sabotage},
    world::World,
};

/// The name of the job.
const JOB: &str = "crawl";
/// The worker number of the one node.
const WORKER: u64 = 1;
/// What the crawl loop has, too: far more than the cuts of one simulation.
const MAX_LOST: u32 = 64;
/// Failed probes of a host until it is given up.
const PROBES: u32 = 3;

impl Node {
    /// Opens what is on the disk.
    pub(super) fn open(world: &mut World) -> Result<Self, Stop> {
        let mut log = Log::open(&world.disk)?;
        while let Some(applied) = log.replay(&mut world.disk)? {
            world.applied(applied.index, &applied.entry, &applied.replies)?;
        }
        world.begin_stamps()?;
        let (queue, before) = take_job(world, &mut log)?;
        let (consumer, verdicts) = take_up(world, &mut log)?;
        let seed = message(&world.web.seed(), 0);
        ask(world, &mut log, Command::Put { queue, messages: vec![seed] })?;
        let state = log::state(&world.disk).queue(queue)?.map(|queue| queue.state);
        let finished = QueueState::Finished;
        let already_finished = before == Some(finished) && state == Some(finished);
        world.opening = false;
        let finisher = Finisher::new(queue, consumer, world.disk.mark(), verdicts);
        Ok(Self::new(log, queue, consumer, Window::new(limits(world)), finisher, already_finished))
    }
}

/// Submits a command and waits for its reply.
fn ask(world: &mut World, log: &mut Log<Waiter>, command: Command) -> Result<Reply, Stop> {
    log.submit(command, Waiter::Nobody);
    let stamp = world.stamp();
    log.propose(&mut world.disk, stamp)?;
    world.now += world.rng.u64(1..=5);
    let Some(mut applied) = log.flush(&mut world.disk)? else {
        return Err(broken("1: acknowledged", "an entry has vanished".into()));
    };
    world.applied(applied.index, &applied.entry, &applied.replies)?;
    match applied.replies.pop() {
        Some(reply) => Ok(reply),
        None => Err(broken("1: acknowledged", "a command has no reply".into())),
    }
}

fn take_job(world: &mut World, log: &mut Log<Waiter>) -> Result<(QueueId, Option<QueueState>), Stop> {
    let config = QueueConfig {
        max_attempts: MAX_ATTEMPTS,
        max_lost: u32::MAX,
        capacity: 1 << 40,
        key_delay_ms: world.plan.delay_ms,
        retention_ms: 0,
        unit_budget: None,
        byte_budget: None,
        key_unit_budget: None,
        key_byte_budget: None,
        finishes: true,
    };
    let stored = log::state(&world.disk).queue_by_name(JOB)?;
    let Some(queue) = stored else {
        let create = Command::CreateQueue { name: JOB.into(), config, spec: Bytes::new() };
        return match ask(world, log, create)? {
            Reply::Queue { queue, .. } => Ok((queue, None)),
            other => Err(broken("2: jobs", format!("cannot create the job: {other:?}"))),
        };
    };
    let before = log::state(&world.disk).queue(queue)?.map(|queue| queue.state);
    match ask(world, log, Command::ConfigureQueue { queue, config, spec: None })? {
        Reply::Done => Ok((queue, before)),
        other => Err(broken("2: jobs", format!("cannot go on with the job: {other:?}"))),
    }
}

/// Hands in again what was spooled and never judged, then begins a new incarnation. Returns the verdicts on the records
/// that are not delivered for good.
fn take_up(world: &mut World, log: &mut Log<Waiter>) -> Result<(Consumer, BTreeMap<u64, bool>), Stop> {
    let judged_upto = log::state(&world.disk).consumer(WORKER)?.map_or(0, |consumer| consumer.judged_upto);
    let last = world.disk.last_sequence();
    if judged_upto > last {
        let text = format!("records up to {judged_upto} were acknowledged, but the spool ends at {last}");
        return Err(world.damaged(text));
    }
    for sequence in judged_upto + 1..=last {
        if world.sabotage == Sabotage::NoTakeUp {
            break;
        }
        let Some(body) = world.disk.spooled(sequence) else { continue };
        let envelope = Envelope::decode(&body)?;
        let completions = vec![envelope.completion(sequence)];
        let (queue, consumer) = (envelope.queue, envelope.consumer);
        let reply = ask(world, log, Command::Complete { queue, consumer, completions, released_upto: 0 })?;
        world.coverage.taken_up += 1;
        world.tell(&format!("took up record {sequence}: {reply:?}"));
    }
    let Reply::Attached(attached) = ask(world, log, Command::Attach { node: WORKER })? else {
        return Err(broken("5: incarnations", "cannot attach".into()));
    };
    world.tell(&format!("attached: {attached:?}"));
    let refused: BTreeSet<u64> = attached.refused.into_iter().collect();
    let judge = |sequence: u64| sequence <= attached.judged_upto && !refused.contains(&sequence);
    let verdicts = (world.disk.mark() + 1..=last).map(|sequence| (sequence, judge(sequence)));
    Ok((attached.consumer, verdicts.collect()))
}

fn limits(world: &World) -> WindowLimits {
    let Plan { delay_ms, per_host, concurrency, .. } = world.plan;
    WindowLimits {
        concurrency,
        robots: true,
        max_crawl_delay_ms: 60_000,
        pace: PaceRules {
            delay_ms,
            per_host,
            breaker_failures: MAX_ATTEMPTS,
            breaker_min_ms: 10_000,
            ..PaceRules::default()
        },
        give_up_probes: PROBES,
        give_up_robots: MAX_ATTEMPTS,
        max_lost: MAX_LOST,
        lease_ms: LEASE_TTL_MS,
        poll_ms: None,
    }
}

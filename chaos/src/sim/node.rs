//! One run of the simulated crawler: the real window, driven by events on simulated time as `dolomedes::crawl::driver`
//! drives it, and visits of the simulated web.

use std::collections::BTreeMap;

use bytes::Bytes;
use dolomedes::{
    crawl::{HostId, LEASE_TTL_MS, Start, Task, Window, Work},
    politeness::FetchResult,
    robots::{RobotsAnswer, RobotsPolicy, RobotsVerdict},
    totals::Class,
    url::fingerprint,
};
use dolomedes_raft::command::{
    Command, Consumer, LeaseRef, NewMessage, Outcome, Pace, PutStatus, QueueId, QueueState, Reply,
};

use super::{
    Stop, broken,
    finish::{Batch, Finished, Finisher},
    log::Log,
    plan::Sabotage,
    web::{Answer, host_of},
    world::World,
};

/// Attempts at a URL.
pub(super) const MAX_ATTEMPTS: u32 = 3;
/// The wait before the second attempt; the next is three times as long.
const RETRY_DELAY_MS: u64 = 2_000;
/// How often leases are looked through for renewal.
const HOUSEKEEPING_MS: u64 = 500;
/// The longest time that a sync of the log takes, unless the disk hangs.
const SYNC_LOG_MS: u64 = 10;
/// Simulated time in which every crawl must be over.
const PATIENCE_MS: u64 = 24 * 3_600_000;
/// Events of one run at most.
const MAX_EVENTS: u64 = 2_000_000;

/// Who waits for a reply of the machine.
#[derive(Debug)]
pub(super) enum Waiter {
    /// The caller itself, or nobody.
    Nobody,
    Claimed {
        asked_at: u64,
    },
    Renewed {
        leases: Vec<LeaseRef>,
        asked_at: u64,
    },
    Put(Batch),
    Completed(Batch),
}

/// What happens next.
#[derive(Debug)]
pub(super) enum Event {
    /// The power is cut.
    Cut,
    /// The oldest sync of the log is done.
    LogSynced,
    /// A sync of the spool is done.
    SpoolSynced(Option<Batch>),
    /// The sink is to be synced.
    Deliver,
    /// Leases are to be looked through.
    Housekeeping,
    /// The window wants to be looked at.
    Wake,
    Robots {
        host: HostId,
        key: Bytes,
        previous: Option<std::sync::Arc<RobotsVerdict>>,
        answer: Answer,
    },
    Fetched {
        host: HostId,
        lease: LeaseRef,
        work: Work,
        answer: Answer,
    },
    Settled {
        host: HostId,
        lease: LeaseRef,
        work: Work,
        reason: &'static str,
    },
}

/// Events by their time; those of one moment in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: BTreeMap<(u64, u64), Event>,
    added: u64,
}

impl Events {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.added += 1;
        self.queue.insert((at, self.added), event);
    }
}

/// See the module.
pub(super) struct Node {
    log: Log<Waiter>,
    queue: QueueId,
    consumer: Consumer,
    window: Window,
    finisher: Finisher,
    events: Events,
    /// Results handed to the finisher and not settled yet.
    outstanding: usize,
    asking: usize,
    renewing: bool,
    /// When the last of the log's syncs under way will be done.
    log_busy_until: u64,
    state: Option<QueueState>,
    already_finished: bool,
}

impl Node {
    pub(super) fn new(
        log: Log<Waiter>,
        queue: QueueId,
        consumer: Consumer,
        window: Window,
        finisher: Finisher,
        already_finished: bool,
    ) -> Self {
        Self {
            log,
            queue,
            consumer,
            window,
            finisher,
            events: Events::default(),
            outstanding: 0,
            asking: 0,
            renewing: false,
            log_busy_until: 0,
            state: None,
            already_finished,
        }
    }

    /// Has the power cut at a moment.
    pub(super) fn cut_after(&mut self, world: &World, ms: u64) {
        self.events.push(world.now + ms, Event::Cut);
    }

    /// Crawls until the job ends, and delivers what is left.
    pub(super) fn run(&mut self, world: &mut World) -> Result<(), Stop> {
        self.events.push(world.now, Event::Housekeeping);
        while !self.already_finished {
            self.advance(world)?;
            if self.has_ended() {
                break;
            }
            let wake = self.window.next_timeout().map(|at| world.true_time(at).max(world.now + 1));
            if let Some(at) = wake
                && self.events.queue.first_key_value().is_none_or(|(&(next, _), _)| at < next)
            {
                self.events.push(at, Event::Wake);
            }
            let Some(((at, _), event)) = self.events.queue.pop_first() else { break };
            world.now = world.now.max(at);
            if world.now > PATIENCE_MS || self.events.added > MAX_EVENTS {
                return Err(broken("14: the end", format!("the crawl goes on and on: {:?}", self.state)));
            }
            self.handle(world, event)?;
        }
        world.tell("the crawl is over");
        self.finisher.deliver(world)
    }

    fn has_ended(&self) -> bool {
        let idle = self.outstanding == 0 && self.asking == 0 && self.window.is_empty();
        idle && self.state == Some(QueueState::Finished)
    }

    /// Does everything that can be done now.
    fn advance(&mut self, world: &mut World) -> Result<(), Stop> {
        let now = world.clock();
        while let Some(returned) = self.window.poll_return(now) {
            let ids = returned.messages.iter().copied().map(Some).chain(std::iter::once(None));
            for id in ids {
                self.finish(Finished {
                    lease: returned.lease.clone(),
                    id,
                    attempt: 0,
                    outcome: Outcome::Retry { after_ms: 0, reason: "given_back".into(), free: true },
                    outlinks: Vec::new(),
                    record: None,
                    pace: id.is_none().then(|| returned.pace.clone()),
                    release: id.is_none(),
                });
            }
        }
        while let Some(start) = self.window.poll_start(now) {
            self.start(world, start)?;
        }
        if let Some(plan) = self.window.claim_plan(now) {
            let claim = Command::Claim {
                queue: self.queue,
                consumer: self.consumer,
                keys: plan.keys,
                per_key: plan.per_key,
                more: plan.more,
                ttl_ms: LEASE_TTL_MS,
            };
            self.asking += 1;
            self.log.submit(claim, Waiter::Claimed { asked_at: now });
        }
        for (command, waiter) in self.finisher.advance(world, &mut self.events)? {
            self.log.submit(command, waiter);
        }
        let stamp = world.stamp();
        while self.log.propose(&mut world.disk, stamp)? {
            let hangs = world.plan.stalls && world.rng.u16(..) < 200;
            let mut took_ms = world.rng.u64(1..=SYNC_LOG_MS);
            if hangs {
                took_ms += world.rng.u64(LEASE_TTL_MS..=2 * LEASE_TTL_MS);
                world.coverage.stalls += 1;
                world.tell(&format!("the disk hangs for {took_ms} ms"));
            }
            self.log_busy_until = self.log_busy_until.max(world.now) + took_ms;
            self.events.push(self.log_busy_until, Event::LogSynced);
        }
        Ok(())
    }

    fn start(&mut self, world: &mut World, start: Start) -> Result<(), Stop> {
        let moment = world.moment();
        match start {
            Start::Robots { host, key, previous, .. } => {
                let name = String::from_utf8_lossy(&key).into_owned();
                world.checks.pace.start(&name, None, moment)?;
                let (answer, took_ms) = world.web.robots(&name);
                world.tell(&format!("asks for {name}/robots.txt"));
                self.events.push(world.now + took_ms, Event::Robots { host, key, previous, answer });
            }
            Start::Fetch { host, lease, work } => {
                let url = work.task.url.clone();
                world.checks.pace.start(host_of(&url), Some(lease.fence), moment)?;
                let (answer, took_ms) = world.web.get(&url);
                world.tell(&format!("asks for {url}, attempt {}, fence {}", work.attempt, lease.fence));
                self.events.push(world.now + took_ms, Event::Fetched { host, lease, work, answer });
            }
            Start::Settle { host, lease, work, reason } => {
                self.events.push(world.now, Event::Settled { host, lease, work, reason });
            }
        }
        Ok(())
    }

    fn handle(&mut self, world: &mut World, event: Event) -> Result<(), Stop> {
        let now = world.clock();
        match event {
            Event::Cut => return Err(Stop::Cut),
            Event::Wake => {}
            Event::Housekeeping => {
                self.events.push(world.now + HOUSEKEEPING_MS, Event::Housekeeping);
                self.renew(now);
            }
            Event::Deliver => self.finisher.deliver(world)?,
            Event::SpoolSynced(batch) => self.finisher.spool_synced(world, batch)?,
            Event::LogSynced => {
                let Some(applied) = self.log.flush(&mut world.disk)? else { return Ok(()) };
                world.applied(applied.index, &applied.entry, &applied.replies)?;
                for (reply, waiter) in applied.replies.into_iter().zip(applied.waiting) {
                    self.answered(world, reply, waiter)?;
                }
            }
            Event::Robots { host, key, previous, answer } => {
                let name = String::from_utf8_lossy(&key).into_owned();
                world.checks.pace.end(&name);
                let (robots, result) = match &answer {
                    Answer::Silence => (RobotsAnswer::Unreachable, FetchResult::Failed),
                    Answer::Response { status, retry_after_ms, body, .. } => (
                        RobotsAnswer::Response { status: *status, body: body.as_bytes(), truncated: false },
                        FetchResult::Response { status: *status, retry_after_ms: *retry_after_ms },
                    ),
                };
                let policy = RobotsPolicy {
                    token: "dolomedes".into(),
                    forbidden_disallows: false,
                    retry_min_ms: RETRY_DELAY_MS,
                };
                let verdict = RobotsVerdict::judge(robots, &policy, previous.as_deref(), now);
                if verdict.crawl_delay().is_some() {
                    world.checks.pace.crawl_delay(&name, world.web.crawl_delay_ms(&name), world.run);
                }
                world.tell(&format!("robots.txt of {name} is {:?}", verdict.kind()));
                self.window.handle_robots(host, verdict, result, false, now);
            }
            Event::Fetched { host, lease, work, answer } => {
                world.checks.pace.end(host_of(&work.task.url));
                self.visited(world, host, lease, work, answer);
            }
            Event::Settled { host, lease, work, reason } => {
                let after = self.window.handle_result(host, None, now);
                let url = work.task.url.clone();
                let (class, outcome) = match reason {
                    "robots" => (Class::Refused, Outcome::Done { units: 0, bytes: 0 }),
                    _ => (Class::Failed, dead(reason)),
                };
                self.finish(Finished {
                    lease,
                    id: Some(work.id),
                    attempt: work.attempt,
                    outcome,
                    outlinks: Vec::new(),
                    record: Some((class, url)),
                    pace: Some(after.pace),
                    release: after.release,
                });
            }
        }
        Ok(())
    }

    fn visited(&mut self, world: &mut World, host: HostId, lease: LeaseRef, work: Work, answer: Answer) {
        let url = &work.task.url;
        let (result, status) = match &answer {
            Answer::Silence => (FetchResult::Failed, None),
            Answer::Response { status, retry_after_ms, .. } => {
                (FetchResult::Response { status: *status, retry_after_ms: *retry_after_ms }, Some(*status))
            }
        };
        let mut after = self.window.handle_result(host, Some(result), world.clock());
        if let Answer::Response { retry_after_ms: Some(wait_ms), .. } = answer {
            let moment = world.moment();
            world.checks.pace.retry_after(host_of(url), work.id, lease.fence, wait_ms, moment);
        }
        if world.sabotage == Sabotage::HoldNotReplicated {
            after.pace = Pace { hold_ms: 0, delay_ms: 0, note: None };
        }
        let mut finished = Finished {
            lease,
            id: Some(work.id),
            attempt: work.attempt,
            outcome: Outcome::Done { units: 0, bytes: 0 },
            outlinks: Vec::new(),
            record: None,
            pace: Some(after.pace),
            release: after.release,
        };
        match answer {
            Answer::Response { status: status @ (200 | 404), bytes, links, .. } => {
                finished.outcome = Outcome::Done { units: 1, bytes };
                finished.outlinks = links.iter().map(|link| message(link, work.task.depth + 1)).collect();
                let class = if status == 200 { Class::Ok } else { Class::ErrorStatus };
                finished.record = Some((class, url.clone()));
            }
            _ if work.failures + 1 >= MAX_ATTEMPTS => {
                finished.outcome = dead("failed");
                finished.record = Some((Class::Failed, url.clone()));
            }
            _ => {
                let after_ms = RETRY_DELAY_MS * 3u64.pow(work.failures);
                finished.outcome = Outcome::Retry { after_ms, reason: "failed".into(), free: false };
            }
        }
        world.tell(&format!("got {status:?} for {url}: {:?}", finished.outcome));
        self.finish(finished);
    }

    fn finish(&mut self, result: Finished) {
        self.outstanding += 1;
        self.finisher.finish(result);
    }

    fn renew(&mut self, now: u64) {
        let leases = if self.renewing { Vec::new() } else { self.window.renew_plan(now) };
        if leases.is_empty() {
            return;
        }
        (self.renewing, self.asking) = (true, self.asking + 1);
        let renew = Command::Renew {
            queue: self.queue,
            consumer: self.consumer,
            leases: leases.clone(),
            ttl_ms: LEASE_TTL_MS,
        };
        self.log.submit(renew, Waiter::Renewed { leases, asked_at: now });
    }

    fn answered(&mut self, world: &mut World, reply: Reply, waiter: Waiter) -> Result<(), Stop> {
        let now = world.clock();
        match (waiter, reply) {
            (Waiter::Nobody, _) => {}
            (Waiter::Claimed { asked_at }, Reply::Claimed(claimed)) => {
                self.asking -= 1;
                self.state = Some(claimed.state);
                let got = !claimed.grants.is_empty();
                for grant in claimed.grants {
                    let unreadable = self.window.handle_grant(grant, asked_at, now);
                    if !unreadable.is_empty() {
                        return Err(broken("2: URLs", format!("{unreadable:?} cannot be read")));
                    }
                }
                self.window.handle_claimed(got, claimed.next_due_ms, now);
            }
            (Waiter::Renewed { leases, asked_at }, Reply::Renewed(stand)) => {
                (self.renewing, self.asking) = (false, self.asking - 1);
                for (lease, stands) in leases.iter().zip(stand) {
                    self.window.handle_renewed(lease, stands, asked_at, now);
                }
            }
            (Waiter::Put(mut batch), Reply::Put(statuses)) => {
                if statuses.iter().any(|status| matches!(status, PutStatus::Full | PutStatus::Invalid)) {
                    return Err(broken("2: URLs", format!("links were not taken: {statuses:?}")));
                }
                batch.grew = statuses.contains(&PutStatus::Accepted);
                self.finisher.outlinks_put(batch);
            }
            (Waiter::Completed(batch), Reply::Completed(verdicts)) => {
                self.finisher.completed(world, &batch, &verdicts);
                self.outstanding -= batch.results.len();
                let mut freed = false;
                for ((finished, _), verdict) in batch.results.iter().zip(&verdicts) {
                    let accepted = verdict.accepted.is_empty() || verdict.accepted.contains(&true);
                    let stands = !verdict.released && accepted;
                    self.window.handle_verdict(&finished.lease, stands, verdict.ready_left, now);
                    freed |= !stands && verdict.ready_left > 0;
                }
                if batch.grew || freed || self.outstanding == 0 {
                    self.window.want_claim(now);
                }
            }
            (waiter, reply) => {
                return Err(broken("2: answers", format!("{waiter:?} was answered with {reply:?}")));
            }
        }
        Ok(())
    }
}

fn dead(reason: &str) -> Outcome {
    Outcome::Dead { reason: reason.into(), units: 0, bytes: 0 }
}

/// The message of a URL in the frontier.
pub(super) fn message(url: &str, depth: u32) -> NewMessage {
    let task = Task::page(url.to_owned(), depth);
    NewMessage {
        key: Bytes::from(host_of(url).to_owned()),
        priority: task.priority(),
        delay_ms: 0,
        fingerprint: Some(fingerprint(url, 0)),
        payload: Bytes::from(task.encode()),
    }
}

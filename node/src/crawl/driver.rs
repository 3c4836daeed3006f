//! The crawl loop: the shell around [`super::window`]. One task owns the window and does nothing that takes long; claims,
//! renewals and visits run beside it and report back through one bounded channel.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use dolomedes_raft::{
    command::{Command, Consumer, LeaseRef, NewMessage, Outcome, QueueId, QueueState, Reply},
    group::SubmitError,
    machine::read::QueueInfo,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    finish::{Finished, Settled},
    frontier::Frontier,
    request::RobotsFetched,
    summary::End,
    visit::{Visited, Visitor},
    watch::Watch,
    window::{HostId, Returned, Start, Window},
};
use crate::clock::Clock;

/// How long running requests may go on after a stop was asked for.
const STOP_PATIENCE_MS: u64 = 3_000;
/// How often counters are read for watchers, and leases looked through for renewal.
const HOUSEKEEPING: Duration = Duration::from_millis(500);
/// Bytes of results that are not finished, from which on nothing more is started.
const UNFINISHED_BYTES: usize = 32 << 20;
/// Hosts described for watchers.
const HOSTS_DESCRIBED: usize = 64;

enum Event {
    Looked { info: Option<QueueInfo> },
    Claimed { answer: Result<Reply, SubmitError>, asked_at: u64 },
    Renewed { answer: Result<Reply, SubmitError>, leases: Vec<LeaseRef>, asked_at: u64 },
    Robots { host: HostId, key: Bytes, fetched: RobotsFetched },
    Visited { host: HostId, lease: LeaseRef, work: WorkRef, visited: Box<Visited> },
}

/// What is left of a [`Work`] once it has been visited.
struct WorkRef {
    id: dolomedes_raft::command::MessageId,
    attempt: u32,
}

/// Drives one job until it ends or is stopped.
pub(super) struct Driver {
    pub window: Window,
    pub visitor: Arc<Visitor>,
    pub frontier: Frontier,
    pub queue: QueueId,
    pub consumer: Consumer,
    pub finisher: mpsc::Sender<Finished>,
    pub settled: mpsc::UnboundedReceiver<anyhow::Result<Settled>>,
    pub watch: Arc<Watch>,
    pub clock: Clock,
    pub stop: CancellationToken,
}

struct Run {
    driver: Driver,
    events_in: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    /// Results that the finisher has no room for yet; bounded by what runs, since nothing starts meanwhile.
    backlog: VecDeque<Finished>,
    /// Results handed to the finisher and not settled yet.
    outstanding: usize,
    /// What they take in memory, about.
    outstanding_bytes: usize,
    /// Sitemaps that a host's robots.txt named. They travel with the host's next result, before the note in which the
    /// verdict is kept: so a crash between the two only makes robots.txt be fetched again.
    sitemaps: HashMap<Bytes, Vec<NewMessage>>,
    /// Claims and renewals under way.
    asking: usize,
    renewing: bool,
    /// The queue's numbers are on their way.
    looking: bool,
    stopping_since: Option<u64>,
    /// Cancels the visits that are still running when patience ends.
    visits: CancellationToken,
    state: Option<QueueState>,
}

impl Driver {
    /// Runs to the end. Afterwards everything that was claimed is completed or given back.
    pub(super) async fn run(self) -> anyhow::Result<End> {
        let (events_in, events) = mpsc::channel(1_024);
        let run = Run {
            driver: self,
            events_in,
            events,
            backlog: VecDeque::new(),
            outstanding: 0,
            outstanding_bytes: 0,
            sitemaps: HashMap::new(),
            asking: 0,
            renewing: false,
            looking: false,
            stopping_since: None,
            visits: CancellationToken::new(),
            state: None,
        };
        let visits = run.visits.clone();
        let (ended, mut settled) = run.run().await;
        visits.cancel();
        // The stages hold the spool until what they were given is through, or has failed.
        while settled.recv().await.is_some() {}
        ended
    }
}

impl Run {
    /// Runs to the end and lets go of everything but what the stages still have to say.
    async fn run(mut self) -> (anyhow::Result<End>, mpsc::UnboundedReceiver<anyhow::Result<Settled>>) {
        let ended = self.until_end().await;
        (ended, self.driver.settled)
    }

    async fn until_end(&mut self) -> anyhow::Result<End> {
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.advance()?;
            if let Some(end) = self.end() {
                return Ok(end);
            }
            let wake = self.wake_at();
            let stopping = self.stopping_since.is_some();
            tokio::select! {
                Some(event) = self.events.recv() => {
                    self.handle(event)?;
                    while let Ok(event) = self.events.try_recv() {
                        self.handle(event)?;
                    }
                }
                settled = self.driver.settled.recv() => match settled {
                    Some(settled) => self.settle(settled?),
                    None => bail!("the stages that finish pages have ended"),
                },
                _ = sleep_until(wake) => {}
                _ = housekeeping.tick() => self.keep_house(),
                () = self.driver.stop.cancelled(), if !stopping => self.begin_stop(),
            }
        }
    }

    fn begin_stop(&mut self) {
        self.stopping_since = Some(self.driver.clock.now_ms());
        self.driver.window.stop();
    }

    /// Does everything that can be done now without waiting.
    fn advance(&mut self) -> anyhow::Result<()> {
        let now = self.driver.clock.now_ms();
        while let Some(result) = self.backlog.pop_front() {
            if let Err(error) = self.driver.finisher.try_send(result) {
                match error {
                    mpsc::error::TrySendError::Full(result) => self.backlog.push_front(result),
                    mpsc::error::TrySendError::Closed(_) => self.finisher_gone()?,
                }
                break;
            }
        }
        while let Some(returned) = self.driver.window.poll_return(now) {
            self.give_back(returned)?;
        }
        if self.may_start() {
            while let Some(start) = self.driver.window.poll_start(now) {
                self.start(start);
            }
            // A start may have found that a lease is running out.
            while let Some(returned) = self.driver.window.poll_return(now) {
                self.give_back(returned)?;
            }
        }
        if let Some(plan) = self.driver.window.claim_plan(now) {
            let command = Command::Claim {
                queue: self.driver.queue,
                consumer: self.driver.consumer,
                keys: plan.keys,
                per_key: plan.per_key,
                more: plan.more,
                ttl_ms: self.driver.window.lease_ms(),
            };
            self.ask(command, move |answer| Event::Claimed { answer, asked_at: now });
        }
        if self.stopping_since.is_some_and(|since| now >= since + STOP_PATIENCE_MS) {
            self.visits.cancel();
        }
        let stats = &self.driver.watch.stats;
        stats.in_flight.store(self.driver.window.in_flight() as u64, Relaxed);
        stats.hosts.store(self.driver.window.hosts() as u64, Relaxed);
        Ok(())
    }

    /// Whether the results that are not finished yet leave room for more.
    fn may_start(&self) -> bool {
        self.backlog.is_empty() && self.outstanding_bytes < UNFINISHED_BYTES
    }

    fn finisher_gone(&mut self) -> anyhow::Result<()> {
        // Its own error says why, and is on its way here.
        while let Ok(settled) = self.driver.settled.try_recv() {
            settled?;
        }
        bail!("the stages that finish pages have ended")
    }

    fn ask(
        &mut self,
        command: Command,
        event: impl FnOnce(Result<Reply, SubmitError>) -> Event + Send + 'static,
    ) {
        self.asking += 1;
        let (frontier, events) = (self.driver.frontier.clone(), self.events_in.clone());
        tokio::spawn(async move {
            let answer = frontier.submit(command).await;
            // The loop has ended if nobody listens.
            let _ = events.send(event(answer)).await;
        });
    }

    fn start(&mut self, start: Start) {
        let (visitor, events) = (self.driver.visitor.clone(), self.events_in.clone());
        let visits = self.visits.clone();
        match start {
            Start::Robots { host, key, previous, pause_ms } => {
                tokio::spawn(async move {
                    let name = String::from_utf8_lossy(&key).into_owned();
                    let pause = Duration::from_millis(pause_ms);
                    let fetched = tokio::select! {
                        fetched = visitor.requester.robots(&name, previous, pause) => fetched,
                        // Only when the crawl stops; the loop does not wait for it then.
                        () = visits.cancelled() => return,
                    };
                    let _ = events.send(Event::Robots { host, key, fetched }).await;
                });
            }
            Start::Settle { host, lease, work, reason } => {
                let left = WorkRef { id: work.id, attempt: work.attempt };
                tokio::spawn(async move {
                    let visited = visitor.settle_unvisited(work, reason);
                    let _ = events
                        .send(Event::Visited { host, lease, work: left, visited: Box::new(visited) })
                        .await;
                });
            }
            Start::Fetch { host, lease, work } => {
                let left = WorkRef { id: work.id, attempt: work.attempt };
                tokio::spawn(async move {
                    let visited = tokio::select! {
                        visited = visitor.visit(work) => visited,
                        () = visits.cancelled() => Visited::given_back(),
                    };
                    let _ = events
                        .send(Event::Visited { host, lease, work: left, visited: Box::new(visited) })
                        .await;
                });
            }
        }
    }

    fn handle(&mut self, event: Event) -> anyhow::Result<()> {
        let now = self.driver.clock.now_ms();
        match event {
            Event::Claimed { answer, asked_at } => {
                self.asking -= 1;
                if answer == Err(SubmitError::Unknown) {
                    // There may be leases now that nobody here knows of. Attaching anew ends them; what is in hand is
                    // finished first.
                    tracing::info!("the outcome of a claim is unknown; beginning anew");
                    self.driver.window.handle_claimed(false, None, now);
                    if self.stopping_since.is_none() {
                        self.begin_stop();
                    }
                    return Ok(());
                }
                let claimed = match answer.context("cannot claim work")? {
                    Reply::Claimed(claimed) => claimed,
                    Reply::Refused(refusal) => bail!("cannot claim work: {refusal}"),
                    other => bail!("cannot claim work: unexpected answer {other:?}"),
                };
                self.state = Some(claimed.state);
                let got = !claimed.grants.is_empty();
                for grant in claimed.grants {
                    let lease = grant.lease.clone();
                    let unreadable = self.driver.window.handle_grant(grant, asked_at, now);
                    for id in unreadable {
                        self.finish(Finished::dead(lease.clone(), Some(id), "unreadable"))?;
                    }
                }
                self.driver.window.handle_claimed(got, claimed.next_due_ms, now);
            }
            Event::Looked { info } => {
                self.looking = false;
                if let Some(info) = info {
                    self.driver.watch.set_counters(info.counters);
                    let hosts = info.waiting_keys + info.leased_keys;
                    self.driver.window.set_share(hosts, self.driver.frontier.crawlers());
                }
            }
            Event::Renewed { answer, leases, asked_at } => {
                self.asking -= 1;
                self.renewing = false;
                let stand = match answer.context("cannot renew leases")? {
                    Reply::Renewed(stand) => stand,
                    Reply::Refused(refusal) => bail!("cannot renew leases: {refusal}"),
                    other => bail!("cannot renew leases: unexpected answer {other:?}"),
                };
                for (lease, stands) in leases.iter().zip(stand) {
                    self.driver.window.handle_renewed(lease, stands, asked_at, now);
                }
            }
            Event::Robots { host, key, fetched: RobotsFetched { verdict, result, redirected } } => {
                let rules = &self.driver.visitor.rules;
                let messages: Vec<NewMessage> =
                    verdict.sitemaps().iter().filter_map(|sitemap| rules.sitemap(sitemap)).collect();
                // A host that only keeps a sitemap of ours has others of its own.
                if !messages.is_empty() && rules.is_own_host(&key) {
                    self.sitemaps.insert(key, messages);
                }
                self.driver.window.handle_robots(host, verdict, result, redirected, now);
            }
            Event::Visited { host, lease, work, visited } => {
                let after = self.driver.window.handle_result(host, visited.host, now);
                self.finish(Finished {
                    lease,
                    id: Some(work.id),
                    attempt: work.attempt,
                    outcome: visited.outcome,
                    outlinks: visited.outlinks,
                    record: visited.record,
                    pace: Some(after.pace),
                    release: after.release,
                    bytes: 0,
                })?;
            }
        }
        Ok(())
    }

    fn give_back(&mut self, returned: Returned) -> anyhow::Result<()> {
        let Returned { lease, messages, pace } = returned;
        // The last one, without a message, carries the pace and gives the lease back.
        let ids = messages.into_iter().map(Some).chain(std::iter::once(None));
        for id in ids {
            self.finish(Finished {
                outcome: Outcome::Retry { after_ms: 0, reason: "given_back".into(), free: true },
                pace: id.is_none().then(|| pace.clone()),
                release: id.is_none(),
                ..Finished::dead(lease.clone(), id, "")
            })?;
        }
        Ok(())
    }

    fn finish(&mut self, mut result: Finished) -> anyhow::Result<()> {
        self.outstanding += 1;
        if let Some(sitemaps) = self.sitemaps.remove(&result.lease.key) {
            result.outlinks.extend(sitemaps);
        }
        result.weigh();
        self.outstanding_bytes += result.bytes;
        if !self.backlog.is_empty() {
            self.backlog.push_back(result);
            return Ok(());
        }
        match self.driver.finisher.try_send(result) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(result)) => {
                self.backlog.push_back(result);
                Ok(())
            }
            Err(mpsc::error::TrySendError::Closed(_)) => self.finisher_gone(),
        }
    }

    fn settle(&mut self, settled: Settled) {
        let now = self.driver.clock.now_ms();
        self.outstanding -= settled.results;
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(settled.bytes);
        let mut freed = false;
        for (lease, stands, ready_left) in &settled.leases {
            self.driver.window.handle_verdict(lease, *stands, *ready_left, now);
            freed |= !stands && *ready_left > 0;
        }
        if settled.grew || freed || self.outstanding == 0 {
            self.driver.window.want_claim(now);
        }
    }

    fn keep_house(&mut self) {
        let now = self.driver.clock.now_ms();
        self.refresh_watch(now);
        if self.renewing || self.stopping_since.is_some() {
            return;
        }
        let leases = self.driver.window.renew_plan(now);
        if !leases.is_empty() {
            self.renewing = true;
            let command = Command::Renew {
                queue: self.driver.queue,
                consumer: self.driver.consumer,
                leases: leases.clone(),
                ttl_ms: self.driver.window.lease_ms(),
            };
            self.ask(command, move |answer| Event::Renewed { answer, leases, asked_at: now });
        }
    }

    fn refresh_watch(&mut self, now: u64) {
        let (frontier, queue, events) =
            (self.driver.frontier.clone(), self.driver.queue, self.events_in.clone());
        // One at a time: where the last one is still under way, its numbers come a little later.
        if !self.looking {
            self.looking = true;
            tokio::spawn(async move {
                // Only a refresh is missed if this fails; a group reports a broken engine itself.
                let info = frontier.info(queue).await.ok();
                let _ = events.send(Event::Looked { info }).await;
            });
        }
        self.driver.watch.set_hosts(self.driver.window.describe(now, HOSTS_DESCRIBED));
    }

    fn wake_at(&self) -> Instant {
        let now = self.driver.clock.now_ms();
        // Without any timer, housekeeping wakes the loop.
        let mut at = self.driver.window.next_timeout().unwrap_or(now + 60_000);
        if !self.may_start() {
            at = at.max(now + 1);
        }
        if let Some(since) = self.stopping_since {
            at = at.min(since + STOP_PATIENCE_MS).max(now + 1);
        }
        Instant::from_std(self.driver.clock.instant(at))
    }

    fn end(&self) -> Option<End> {
        let idle = self.outstanding == 0 && self.backlog.is_empty() && self.asking == 0;
        if !idle {
            return None;
        }
        if self.stopping_since.is_some() {
            // A robots.txt that is still being fetched is nobody's work.
            return self.driver.window.holds_nothing().then_some(End::Stopped);
        }
        if !self.driver.window.is_empty() {
            return None;
        }
        match self.state? {
            QueueState::Finished => Some(End::Finished),
            QueueState::BudgetReached => Some(End::BudgetReached),
            QueueState::Paused | QueueState::Cancelled => Some(End::Stopped),
            QueueState::Running => None,
        }
    }
}

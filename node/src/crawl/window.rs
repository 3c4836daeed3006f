//! The crawl's local window on the frontier: which leased host may start its next request now, when more work should be
//! claimed, what has to be renewed or given back. A core: `now` is handed in (milliseconds of a monotonic clock),
//! requests to make come out of `poll_start`. It knows hosts, leases and pace, not HTTP.
//!
//! Drain after each `handle_*`: [`Window::poll_return`], [`Window::poll_start`], then [`Window::claim_plan`] and
//! [`Window::next_timeout`].

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use dolomedes_raft::command::{Grant, LeaseRef, MessageId, MoreOf, Pace};

use url::Url;

use super::{
    host::{Host, LONGEST_LOCAL_HOLD_MS, Robots, target_queue},
    note::HostNote,
    task::{Task, TaskKind},
};
use crate::{
    politeness::{FetchResult, HostPace, PaceRules},
    robots::RobotsVerdict,
};

/// Leases last so long unless told otherwise; renewed at half.
pub const LEASE_TTL_MS: u64 = 60_000;
/// No request is started under a lease with less than this left.
const LEASE_MARGIN_MS: u64 = 5_000;
/// A host that could be used so soon is kept although its messages here are used up, while there are more.
const DRY_PATIENCE_MS: u64 = 100;
/// Hosts held at the same time, per slot of concurrency.
const HOSTS_PER_SLOT: usize = 16;
/// Hosts held that more is asked for in one claim, and leases renewed by one command, at most.
const MAX_MORE: usize = 4_096;
/// Hosts asked for in one claim at most.
const MAX_CLAIM_KEYS: usize = 256;

/// What bounds the window.
#[derive(Clone, Debug)]
pub struct WindowLimits {
    /// Requests at once.
    pub concurrency: usize,
    /// Whether robots.txt is to be fetched and obeyed.
    pub robots: bool,
    /// Longest crawl delay that is obeyed, in milliseconds.
    pub max_crawl_delay_ms: u64,
    /// How hosts are paced.
    pub pace: PaceRules,
    /// After so many failed probes a host is given up: its URLs are settled without requests while its breaker is open.
    pub give_up_probes: u32,
    /// After so many failed attempts in a row to reach its robots.txt, likewise.
    pub give_up_robots: u32,
    /// A URL that was leased at so many crashes is settled without a request: it may be what crashes the crawler.
    pub max_lost: u32,
    /// How long leases last, in milliseconds; renewed at half. So long a crashed crawler keeps others from its hosts.
    pub lease_ms: u64,
    /// Where others put and work, too: how often to look for work while there is none, in milliseconds.
    pub poll_ms: Option<u64>,
}

/// A host in the window. Numbers are never reused, so that late events cannot hit another host.
pub type HostId = u64;

/// A leased message, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Its identity in the frontier.
    pub id: MessageId,
    /// Which delivery this is, from 1.
    pub attempt: u32,
    /// How many attempts have failed before.
    pub failures: u32,
    /// How many ended with a crash of their crawler, whether the URL had a part in it or not.
    pub lost: u32,
    /// What to do.
    pub task: Task,
    /// The task's URL, parsed.
    pub url: Url,
}

/// A request to make now.
#[derive(Debug)]
pub enum Start {
    /// Fetch the host's robots.txt; answer with [`Window::handle_robots`].
    Robots {
        /// The host.
        host: HostId,
        /// Its key, scheme and authority.
        key: Bytes,
        /// What was known before.
        previous: Option<Arc<RobotsVerdict>>,
        /// How long to wait before following a redirect, in milliseconds.
        pause_ms: u64,
    },
    /// Fetch a URL that robots.txt allows; answer with [`Window::handle_result`].
    Fetch {
        /// The host.
        host: HostId,
        /// Its lease.
        lease: LeaseRef,
        /// The URL.
        work: Work,
    },
    /// Settle a URL without a request: robots.txt forbids it, or its host is dead. Answer with
    /// [`Window::handle_result`].
    Settle {
        /// The host.
        host: HostId,
        /// Its lease.
        lease: LeaseRef,
        /// The URL.
        work: Work,
        /// Why, a short word.
        reason: &'static str,
    },
}

/// What to send along with a result of a host.
#[derive(Debug, PartialEq, Eq)]
pub struct AfterResult {
    /// The host's pace for the frontier.
    pub pace: Pace,
    /// Whether this was the last of the lease here.
    pub release: bool,
}

/// Messages to give back unused.
#[derive(Debug, PartialEq, Eq)]
pub struct Returned {
    /// Their lease.
    pub lease: LeaseRef,
    /// The messages.
    pub messages: Vec<MessageId>,
    /// How to hold the key.
    pub pace: Pace,
}

/// What to claim.
#[derive(Debug, PartialEq, Eq)]
pub struct ClaimPlan {
    /// New hosts.
    pub keys: u32,
    /// Messages of each.
    pub per_key: u32,
    /// More messages of hosts here.
    pub more: Vec<MoreOf>,
}

/// See the module.
#[derive(Debug)]
pub struct Window {
    limits: WindowLimits,
    hosts: HashMap<HostId, Host>,
    by_key: HashMap<Bytes, HostId>,
    /// Hosts with work and a free slot, by the time of their next request; the middle number rotates equals.
    due: BTreeSet<(u64, u64, HostId)>,
    turns: HashMap<HostId, u64>,
    next_turn: u64,
    next_id: HostId,
    in_flight: usize,
    /// Hosts whose messages are to be given back.
    leaving: Vec<HostId>,
    /// The frontier may have something that is not here yet.
    claim_at: Option<u64>,
    claiming: bool,
    /// Leases that the running claim asks more for.
    asked_more: Vec<LeaseRef>,
    /// Whether the running claim asks for further hosts.
    asked_keys: bool,
    stopping: bool,
    /// Hosts that fall to this crawler, where others work, too.
    share: Option<usize>,
    /// When one host more than that may be asked for.
    beyond_share_at: u64,
}

impl Window {
    /// An empty window that wants to claim.
    pub fn new(limits: WindowLimits) -> Self {
        Self {
            hosts: HashMap::new(),
            by_key: HashMap::new(),
            due: BTreeSet::new(),
            turns: HashMap::new(),
            next_turn: 0,
            next_id: 1,
            in_flight: 0,
            leaving: Vec::new(),
            claim_at: Some(0),
            claiming: false,
            asked_more: Vec::new(),
            asked_keys: false,
            stopping: false,
            share: limits.poll_ms.map(|_| 1),
            beyond_share_at: 0,
            limits,
        }
    }

    /// How long the leases are that it asks for, in milliseconds.
    pub fn lease_ms(&self) -> u64 {
        self.limits.lease_ms
    }

    /// Requests running.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Hosts held.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Whether nothing is held and nothing runs.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.in_flight == 0
    }

    /// Whether no message is held, waiting or in work. A robots.txt may still be on its way.
    pub fn holds_nothing(&self) -> bool {
        self.hosts.values().all(|host| {
            let fetching = u32::from(matches!(host.robots, Robots::Fetching(_)));
            host.queue.is_empty() && host.in_flight <= fetching
        })
    }

    /// Takes a grant in. `asked_at` is when the claim was sent: the lease is counted from then, to be safe.
    pub fn handle_grant(&mut self, grant: Grant, asked_at: u64, now: u64) -> Vec<MessageId> {
        let mut unreadable = Vec::new();
        let until = asked_at + grant.ttl_ms;
        let id = match self.by_key.get(&grant.lease.key) {
            Some(&id) if self.hosts.get(&id).is_some_and(|host| host.lease.fence == grant.lease.fence) => id,
            old => {
                if let Some(&old) = old {
                    self.forget(old);
                }
                self.admit(&grant, until, now)
            }
        };
        let Some(host) = self.hosts.get_mut(&id) else { return unreadable };
        host.lease_until = host.lease_until.max(until);
        host.ready_left = grant.ready_left;
        host.more_asked = false;
        for message in grant.messages {
            let task = Task::decode(&message.payload).ok();
            match task.and_then(|task| Some((Url::parse(&task.url).ok()?, task))) {
                Some((url, task)) => host.queue.push_back(Work {
                    id: message.id,
                    attempt: message.attempt,
                    failures: message.failures,
                    lost: message.lost,
                    task,
                    url,
                }),
                None => unreadable.push(message.id),
            }
        }
        if host.is_done() {
            self.leaving.push(id);
        }
        self.reschedule(id, now);
        unreadable
    }

    fn admit(&mut self, grant: &Grant, until: u64, now: u64) -> HostId {
        let id = self.next_id;
        self.next_id += 1;
        let note = grant.note.as_deref().map(HostNote::decode).unwrap_or_default();
        let rules = || self.limits.pace.clone();
        let mut pace = note
            .pace
            .and_then(|note| HostPace::restore(rules(), note, now).ok())
            .unwrap_or_else(|| HostPace::new(rules()));
        pace.hold(now, grant.hold_ms);
        let robots = match note.robots.filter(|_| self.limits.robots) {
            Some(verdict) => {
                pace.set_crawl_delay(self.crawl_delay(&verdict));
                Robots::Known(Arc::new(verdict))
            }
            None => Robots::Unknown,
        };
        let host = Host {
            lease: grant.lease.clone(),
            lease_until: until,
            pace,
            robots,
            queue: VecDeque::new(),
            in_flight: 0,
            ready_left: grant.ready_left,
            note_changed: false,
            more_asked: false,
            due_at: None,
        };
        self.by_key.insert(grant.lease.key.clone(), id);
        self.hosts.insert(id, host);
        id
    }

    fn crawl_delay(&self, verdict: &RobotsVerdict) -> u64 {
        let asked =
            verdict.crawl_delay().map_or(0, |delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        asked.min(self.limits.max_crawl_delay_ms)
    }

    fn forget(&mut self, id: HostId) {
        if let Some(host) = self.hosts.remove(&id) {
            if let Some(at) = host.due_at {
                self.due.remove(&(at, self.turns.get(&id).copied().unwrap_or(0), id));
            }
            if self.by_key.get(&host.lease.key) == Some(&id) {
                self.by_key.remove(&host.lease.key);
            }
        }
        self.turns.remove(&id);
    }

    /// Puts a host where it belongs among those that are due, or off the list.
    fn reschedule(&mut self, id: HostId, now: u64) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if let Some(at) = host.due_at.take() {
            self.due.remove(&(at, self.turns.get(&id).copied().unwrap_or(0), id));
        }
        if host.queue.is_empty() {
            return;
        }
        if self.stopping {
            return self.leaving.push(id);
        }
        if matches!(host.robots, Robots::Fetching(_)) {
            return;
        }
        let at = if host.given_up(&self.limits, now).is_some() {
            now
        } else {
            match host.pace.next_at(now) {
                Some(at) => at.max(host.robots_retry_at(now)),
                None => return,
            }
        };
        if at > now + LONGEST_LOCAL_HOLD_MS {
            return self.leaving.push(id);
        }
        host.due_at = Some(at);
        let turn = self.next_turn;
        self.next_turn += 1;
        self.turns.insert(id, turn);
        self.due.insert((at, turn, id));
    }

    /// The next request to make, if one may be made now.
    pub fn poll_start(&mut self, now: u64) -> Option<Start> {
        loop {
            if self.in_flight >= self.limits.concurrency || self.stopping {
                return None;
            }
            let &(at, turn, id) = self.due.first()?;
            if at > now {
                return None;
            }
            self.due.remove(&(at, turn, id));
            let Some(host) = self.hosts.get_mut(&id) else { continue };
            host.due_at = None;
            if host.lease_until < now + LEASE_MARGIN_MS {
                self.leaving.push(id);
                continue;
            }
            let given_up = host.given_up(&self.limits, now);
            let verdict = match &host.robots {
                _ if !self.limits.robots || given_up.is_some() => None,
                Robots::Known(verdict) if verdict.is_fresh(now) => Some(verdict.clone()),
                Robots::Fetching(_) => continue,
                Robots::Known(_) | Robots::Unknown => {
                    // Others of this host may be in flight under the old verdict; that is what its lifetime allows.
                    let previous = match &host.robots {
                        Robots::Known(verdict) => Some(verdict.clone()),
                        Robots::Unknown | Robots::Fetching(_) => None,
                    };
                    host.robots = Robots::Fetching(previous.clone());
                    host.in_flight += 1;
                    self.in_flight += 1;
                    host.pace.on_start(now);
                    let pause_ms = host.pace.delay_ms();
                    return Some(Start::Robots { host: id, key: host.lease.key.clone(), previous, pause_ms });
                }
            };
            let Some(work) = host.queue.pop_front() else { continue };
            host.in_flight += 1;
            self.in_flight += 1;
            let lease = host.lease.clone();
            let forbidden = || {
                let verdict = verdict.as_ref().filter(|_| obeys_robots(work.task.kind))?;
                (!verdict.allows(&work.url)).then_some("robots")
            };
            let suspect = (work.lost >= self.limits.max_lost).then_some("crashes");
            let start = match given_up.or(suspect).or_else(forbidden) {
                Some(reason) => Start::Settle { host: id, lease, work, reason },
                None => {
                    host.pace.on_start(now);
                    Start::Fetch { host: id, lease, work }
                }
            };
            self.reschedule(id, now);
            return Some(start);
        }
    }

    /// Takes in what robots.txt of a host says. `redirected`: it took more than one request, the last of them just now.
    pub fn handle_robots(
        &mut self,
        id: HostId,
        verdict: RobotsVerdict,
        result: FetchResult,
        redirected: bool,
        now: u64,
    ) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let crawl_delay = self.crawl_delay(&verdict);
        let Some(host) = self.hosts.get_mut(&id) else { return };
        host.in_flight = host.in_flight.saturating_sub(1);
        host.note_changed = true;
        host.pace.on_result(now, result);
        host.pace.set_crawl_delay(crawl_delay);
        if redirected {
            host.pace.hold(now, host.pace.delay_ms());
        }
        host.robots = Robots::Known(Arc::new(verdict));
        self.reschedule(id, now);
    }

    /// Takes in how a request (or a settlement without one: `None`) of a host ended.
    pub fn handle_result(&mut self, id: HostId, result: Option<FetchResult>, now: u64) -> AfterResult {
        self.in_flight = self.in_flight.saturating_sub(1);
        let within_share = self.share.is_none_or(|share| self.hosts.len() <= share);
        let Some(host) = self.hosts.get_mut(&id) else {
            // Forgotten under a lost lease: the frontier will refuse the completion, whatever is said here.
            return AfterResult { pace: Pace { hold_ms: 0, delay_ms: 0, note: None }, release: false };
        };
        host.in_flight = host.in_flight.saturating_sub(1);
        if let Some(result) = result {
            let trouble = |pace: &HostPace| (pace.failures(), pace.blocked_until(now));
            let before = trouble(&host.pace);
            host.pace.on_result(now, result);
            host.note_changed |= trouble(&host.pace) != before;
        }
        // What is left of a host that was given up is settled here, not a few URLs at each of its probes.
        let settling = host.ready_left > 0 && host.given_up(&self.limits, now).is_some();
        // A host that only ran dry here stays: it would go to and fro between nodes that are all at its pace.
        let ran_dry = within_share
            && host.wants_more(&self.limits, now)
            && host.pace.next_at(now).is_some_and(|at| at <= now + DRY_PATIENCE_MS);
        let release = host.is_done() && !settling && !ran_dry;
        let pace = host.outgoing_pace(now, release);
        if release {
            self.forget(id);
            self.want_claim(now);
        } else {
            if host.wants_more(&self.limits, now) {
                self.want_claim(now);
            }
            self.reschedule(id, now);
        }
        AfterResult { pace, release }
    }

    /// Messages to give back: their host may not be used for long, its lease is running out, or the crawl stops.
    pub fn poll_return(&mut self, now: u64) -> Option<Returned> {
        while let Some(id) = self.leaving.pop() {
            let Some(host) = self.hosts.get_mut(&id) else { continue };
            if host.queue.is_empty() && !host.is_done() {
                continue;
            }
            let messages = host.queue.drain(..).map(|work| work.id).collect();
            let release = host.is_done();
            let returned =
                Returned { lease: host.lease.clone(), messages, pace: host.outgoing_pace(now, true) };
            if release {
                self.forget(id);
            }
            return Some(returned);
        }
        None
    }

    /// What to claim now, if anything. Only one claim runs at a time: answer with [`Window::handle_claimed`].
    pub fn claim_plan(&mut self, now: u64) -> Option<ClaimPlan> {
        if self.claiming || self.stopping || self.claim_at.is_none_or(|at| at > now) {
            return None;
        }
        let mut more = Vec::new();
        let mut startable = 0usize;
        for host in self.hosts.values_mut() {
            if host.due_at.is_some_and(|at| at <= now + 50) {
                let slots = self.limits.pace.per_host.saturating_sub(host.in_flight) as usize;
                startable += slots.min(host.queue.len());
            }
            if more.len() < MAX_MORE && host.wants_more(&self.limits, now) {
                let want = host.target(&self.limits, now).saturating_sub(host.queue.len() as u64);
                host.more_asked = true;
                more.push(MoreOf {
                    lease: host.lease.clone(),
                    messages: u32::try_from(want.min(host.ready_left)).unwrap_or(u32::MAX),
                });
            }
        }
        // Claims go out in a stable order, whatever the hash map's.
        more.sort_by(|a, b| a.lease.key.cmp(&b.lease.key));
        let free = self.limits.concurrency.saturating_sub(self.in_flight + startable);
        let room = (self.limits.concurrency * HOSTS_PER_SLOT).saturating_sub(self.hosts.len());
        // One at least, so that hosts that fill all slots do not keep others out; turns are taken among those held.
        let keys = self.shared(free.max(1).min(room).min(MAX_CLAIM_KEYS), now);
        self.claim_at = None;
        if keys == 0 && more.is_empty() {
            // With its share in hand, it looks again later; a full window claims when a host leaves.
            self.claim_at = self.share.filter(|_| room > 0).map(|_| self.beyond_share_at.max(now + 1));
            return None;
        }
        self.claiming = true;
        self.asked_keys = keys > 0;
        self.asked_more.extend(more.iter().map(|more| more.lease.clone()));
        let per_key = target_queue(self.limits.pace.delay_ms, self.limits.pace.per_host);
        Some(ClaimPlan { keys: keys as u32, per_key: per_key as u32, more })
    }

    /// Ends the running claim. `next_due_ms`: when the frontier has something next, if it said so; `got`: whether
    /// anything was granted.
    pub fn handle_claimed(&mut self, got: bool, next_due_ms: Option<u64>, now: u64) {
        self.claiming = false;
        for lease in std::mem::take(&mut self.asked_more) {
            let Some(&id) = self.by_key.get(&lease.key) else { continue };
            let Some(host) = self.hosts.get_mut(&id).filter(|host| host.lease.fence == lease.fence) else {
                continue;
            };
            // What was asked for and not granted is not to be had now; the next verdict says if that changes.
            if std::mem::take(&mut host.more_asked) {
                host.ready_left = 0;
            }
            if host.is_done() {
                self.leaving.push(id);
            }
        }
        if got {
            // Above its share it is not in a hurry.
            let at = if self.share.is_some_and(|share| self.hosts.len() >= share) {
                now.max(self.beyond_share_at)
            } else {
                now
            };
            self.want_claim(at);
        } else if let Some(after) = self.look_again(next_due_ms) {
            let at = now + after;
            self.claim_at = Some(self.claim_at.map_or(at, |other| other.min(at)));
        }
    }

    /// Tells how many hosts there are with something to do, here and elsewhere, and how many crawlers work on them.
    pub fn set_share(&mut self, hosts: u64, crawlers: usize) {
        if self.share.is_some() {
            let share = hosts.div_ceil(crawlers.max(1) as u64).max(1);
            self.share = Some(usize::try_from(share).unwrap_or(usize::MAX));
        }
    }

    /// How many of `keys` further hosts to ask for, so that all crawlers get theirs. Beyond its share one asks for one
    /// at a time and slowly: those of somebody who does not take them.
    fn shared(&mut self, keys: usize, now: u64) -> usize {
        let (Some(share), Some(poll)) = (self.share, self.limits.poll_ms) else { return keys };
        let left = share.saturating_sub(self.hosts.len());
        if left > 0 || now < self.beyond_share_at {
            return keys.min(left);
        }
        self.beyond_share_at = now + poll;
        keys.min(1)
    }

    /// How long to wait after a claim that got nothing.
    fn look_again(&self, next_due_ms: Option<u64>) -> Option<u64> {
        let due = next_due_ms.filter(|_| self.asked_keys).map(|after| after.max(1));
        // What somebody else puts, and when somebody else is done, is not said.
        due.into_iter().chain(self.limits.poll_ms).min()
    }

    /// The frontier has new work, or may have.
    pub fn want_claim(&mut self, now: u64) {
        self.claim_at = Some(self.claim_at.map_or(now, |at| at.min(now)));
    }

    /// Takes in what a completion said about a lease.
    pub fn handle_verdict(&mut self, lease: &LeaseRef, stands: bool, ready_left: u64, now: u64) {
        let Some(&id) = self.by_key.get(&lease.key) else { return };
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if host.lease.fence != lease.fence {
            return;
        }
        if !stands {
            self.forget(id);
            self.want_claim(now);
            return;
        }
        host.ready_left = ready_left;
        if host.wants_more(&self.limits, now) {
            self.want_claim(now);
        }
    }

    /// Leases to renew now.
    pub fn renew_plan(&mut self, now: u64) -> Vec<LeaseRef> {
        let mut due: Vec<&Host> =
            self.hosts.values().filter(|host| host.lease_until < now + self.limits.lease_ms / 2).collect();
        due.sort_by(|a, b| (a.lease_until, &a.lease.key).cmp(&(b.lease_until, &b.lease.key)));
        due.iter().take(MAX_MORE).map(|host| host.lease.clone()).collect()
    }

    /// Takes in the answer to a renewal sent at `asked_at`.
    pub fn handle_renewed(&mut self, lease: &LeaseRef, stands: bool, asked_at: u64, now: u64) {
        if !stands {
            return self.handle_verdict(lease, false, 0, now);
        }
        let host = self.by_key.get(&lease.key).and_then(|id| self.hosts.get_mut(id));
        if let Some(host) = host.filter(|host| host.lease.fence == lease.fence) {
            host.lease_until = host.lease_until.max(asked_at + self.limits.lease_ms);
        }
    }

    /// Starts nothing any more and gives everything back that has not been started.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.leaving.extend(self.hosts.keys().copied());
        self.leaving.sort_unstable();
    }

    /// When to look again without any event, if ever.
    pub fn next_timeout(&self) -> Option<u64> {
        if self.stopping {
            return None;
        }
        let start = (self.in_flight < self.limits.concurrency)
            .then(|| self.due.first().map(|&(at, ..)| at))
            .flatten();
        let claim = if self.claiming { None } else { self.claim_at };
        start.into_iter().chain(claim).min()
    }

    /// A line per host for people, the fullest first.
    pub fn describe(&self, now: u64, most: usize) -> Vec<String> {
        let mut hosts: Vec<&Host> = self.hosts.values().collect();
        hosts.sort_by(|a, b| {
            let load = |host: &Host| host.ready_left + host.queue.len() as u64 + u64::from(host.in_flight);
            load(b).cmp(&load(a)).then_with(|| a.lease.key.cmp(&b.lease.key))
        });
        hosts.iter().take(most).map(|host| host.describe(now)).collect()
    }
}

/// Whether robots.txt applies to a kind of task: a sitemap that robots.txt names was offered by it.
pub(super) fn obeys_robots(kind: TaskKind) -> bool {
    matches!(kind, TaskKind::Page)
}

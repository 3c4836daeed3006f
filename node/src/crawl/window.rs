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

use super::{
    note::HostNote,
    task::{Task, TaskKind},
};
use crate::{
    politeness::{HostPace, PaceLimits, PaceResult},
    robots::RobotsVerdict,
};

/// Leases last so long; renewed at half.
pub const LEASE_TTL_MS: u64 = 60_000;
/// No request is started under a lease with less than this left.
const LEASE_MARGIN_MS: u64 = 5_000;
/// A host that may not be used for longer than this is given back, so that its messages and its hold live in the
/// frontier instead of here.
const LONGEST_LOCAL_HOLD_MS: u64 = 20_000;
/// Messages of one host held here at most.
const MAX_HOST_QUEUE: u64 = 512;
/// Hosts held at the same time, per slot of concurrency.
const HOSTS_PER_SLOT: usize = 16;
/// Hosts asked for in one claim at most.
const MAX_CLAIM_KEYS: usize = 256;

/// What bounds the window.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// Requests at once.
    pub concurrency: usize,
    /// Requests to one host at once.
    pub per_host: u32,
    /// Whether robots.txt is to be fetched and obeyed.
    pub robots: bool,
    /// How hosts are paced.
    pub pace: PaceLimits,
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
    /// What to do.
    pub task: Task,
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
    },
    /// Fetch a URL that robots.txt allows; answer with [`Window::handle_result`].
    Fetch {
        /// The host.
        host: HostId,
        /// Its lease.
        lease: LeaseRef,
        /// The URL.
        work: Work,
        /// Its robots verdict; `None` if robots are ignored.
        robots: Option<Arc<RobotsVerdict>>,
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

#[derive(Debug)]
enum Robots {
    Unknown,
    Fetching,
    Known(Arc<RobotsVerdict>),
}

#[derive(Debug)]
struct Host {
    lease: LeaseRef,
    lease_until: u64,
    pace: HostPace,
    robots: Robots,
    queue: VecDeque<Work>,
    in_flight: u32,
    ready_left: u64,
    note_changed: bool,
    /// Its place in `due`, if it is there.
    due_at: Option<u64>,
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
    stopping: bool,
}

impl Window {
    /// An empty window that wants to claim.
    pub fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
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
            stopping: false,
        }
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
        for message in grant.messages {
            match Task::decode(&message.payload) {
                Ok(task) => host.queue.push_back(Work {
                    id: message.id,
                    attempt: message.attempt,
                    failures: message.failures,
                    task,
                }),
                Err(_) => unreadable.push(message.id),
            }
        }
        self.reschedule(id, now);
        unreadable
    }

    fn admit(&mut self, grant: &Grant, until: u64, now: u64) -> HostId {
        let id = self.next_id;
        self.next_id += 1;
        let note = grant.note.as_deref().map(HostNote::decode).unwrap_or_default();
        let mut pace = HostPace::new(self.limits.pace, note.pace.as_ref(), now);
        pace.hold_until(now + grant.hold_ms);
        let robots = match note.robots {
            Some(verdict) if self.limits.robots => {
                pace.set_crawl_delay(verdict.crawl_delay_ms());
                Robots::Known(Arc::new(verdict))
            }
            _ => Robots::Unknown,
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
            due_at: None,
        };
        self.by_key.insert(grant.lease.key.clone(), id);
        self.hosts.insert(id, host);
        id
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
        let busy = matches!(host.robots, Robots::Fetching) || host.in_flight >= self.limits.per_host;
        if host.queue.is_empty() || busy {
            return;
        }
        let at = host.pace.earliest(now);
        if at > now + LONGEST_LOCAL_HOLD_MS || self.stopping {
            self.leaving.push(id);
            return;
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
            let key = host.lease.key.clone();
            let verdict = match &host.robots {
                _ if !self.limits.robots => None,
                Robots::Known(verdict) if !verdict.expired(now) => Some(verdict.clone()),
                Robots::Fetching => continue,
                Robots::Known(_) | Robots::Unknown if host.pace.is_dead() => None,
                Robots::Known(_) | Robots::Unknown => {
                    // Others of this host may be in flight under the old verdict; that is what its lifetime allows.
                    host.robots = Robots::Fetching;
                    host.in_flight += 1;
                    self.in_flight += 1;
                    host.pace.on_start(now);
                    return Some(Start::Robots { host: id, key });
                }
            };
            let Some(work) = host.queue.pop_front() else { continue };
            host.in_flight += 1;
            self.in_flight += 1;
            let lease = host.lease.clone();
            let reason = if host.pace.is_dead() {
                Some("host_unreachable")
            } else {
                verdict.as_ref().and_then(|verdict| verdict.refusal(&work.task.url))
            };
            let start = match reason {
                Some(reason) => Start::Settle { host: id, lease, work, reason },
                None => {
                    host.pace.on_start(now);
                    Start::Fetch { host: id, lease, work, robots: verdict }
                }
            };
            self.reschedule(id, now);
            return Some(start);
        }
    }
}

/// Whether robots.txt applies to a kind of task: a sitemap that robots.txt names was offered by it.
pub fn obeys_robots(kind: TaskKind) -> bool {
    matches!(kind, TaskKind::Page)
}

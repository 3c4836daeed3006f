//! One leased host in the window: its messages here, its pace, its robots verdict, and what follows from them. A core;
//! which host's turn it is, is [`super::window`]'s business.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use dolomedes_raft::command::{LeaseRef, Pace};

use super::{
    note::HostNote,
    window::{WindowLimits, Work},
};
use crate::{
    politeness::{BreakerState, HostPace},
    robots::{RobotsVerdict, VerdictKind},
};

/// A host that may not be used for longer than this is given back, so that its messages and its hold live in the
/// frontier instead of here.
pub(super) const LONGEST_LOCAL_HOLD_MS: u64 = 20_000;
/// Messages of one host held here at most.
const MAX_HOST_QUEUE: u64 = 512;

/// What is known of a host's robots.txt.
#[derive(Debug)]
pub(super) enum Robots {
    Unknown,
    /// With what was known before.
    Fetching(Option<Arc<RobotsVerdict>>),
    Known(Arc<RobotsVerdict>),
}

/// A leased host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) lease: LeaseRef,
    pub(super) lease_until: u64,
    pub(super) pace: HostPace,
    pub(super) robots: Robots,
    pub(super) queue: VecDeque<Work>,
    pub(super) in_flight: u32,
    pub(super) ready_left: u64,
    pub(super) note_changed: bool,
    /// A claim for more of its messages is under way: until it is answered, the lease must not be given back.
    pub(super) more_asked: bool,
    /// Its place in `due`, if it is there.
    pub(super) due_at: Option<u64>,
}

impl Host {
    /// Whether nothing of it is waiting, in work or on its way here.
    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.in_flight == 0 && !self.more_asked
    }

    /// Messages to hold here.
    pub(super) fn target(&self, limits: &WindowLimits, now: u64) -> u64 {
        match self.given_up(limits, now) {
            Some(_) => MAX_HOST_QUEUE,
            None => target_queue(self.pace.delay_ms(), limits.pace.per_host),
        }
    }

    /// Whether more of its messages should be claimed.
    pub(super) fn wants_more(&self, limits: &WindowLimits, now: u64) -> bool {
        let usable = || self.pace.blocked_until(now).is_none_or(|until| until <= now + LONGEST_LOCAL_HOLD_MS);
        self.ready_left > 0
            && (self.queue.len() as u64) < self.target(limits, now).div_ceil(2)
            && (self.given_up(limits, now).is_some() || usable())
    }

    /// Why this host's URLs are settled without requests, if they are.
    pub(super) fn given_up(&self, limits: &WindowLimits, now: u64) -> Option<&'static str> {
        if self.pace.failed_probes() >= limits.give_up_probes && self.pace.breaker(now) == BreakerState::Open
        {
            return Some("host_unreachable");
        }
        let Robots::Known(verdict) = &self.robots else { return None };
        let unreachable = verdict.kind() == VerdictKind::Unreachable && verdict.is_fresh(now);
        (limits.robots && unreachable && verdict.failures() >= limits.give_up_robots)
            .then_some("robots_unreachable")
    }

    /// When a robots.txt that could not be reached may be asked for again (RFC 9309 2.3.1.4: until then, nothing).
    pub(super) fn robots_retry_at(&self, now: u64) -> u64 {
        match &self.robots {
            Robots::Known(verdict) if verdict.kind() == VerdictKind::Unreachable && verdict.is_fresh(now) => {
                verdict.expires_ms()
            }
            _ => now,
        }
    }

    /// What a completion tells the frontier of its pace; with the note if it has changed or this is the `last`.
    pub(super) fn outgoing_pace(&mut self, now: u64, last: bool) -> Pace {
        let note = (last || self.note_changed).then(|| {
            self.note_changed = false;
            let robots = match &self.robots {
                Robots::Known(verdict) | Robots::Fetching(Some(verdict)) => Some(verdict.as_ref()),
                Robots::Unknown | Robots::Fetching(None) => None,
            };
            Bytes::from(HostNote::encode(robots, &self.pace))
        });
        let mut pace = self.pace.pace(now, note);
        pace.hold_ms = pace.hold_ms.max(self.robots_retry_at(now).saturating_sub(now));
        pace
    }

    /// A line for people.
    pub(super) fn describe(&self, now: u64) -> String {
        let robots = match &self.robots {
            Robots::Unknown => "unknown",
            Robots::Fetching(_) => "being fetched",
            Robots::Known(verdict) if verdict.kind() == VerdictKind::Unreachable => "unreachable",
            Robots::Known(_) => "known",
        };
        let blocked = match self.pace.blocked_until(now) {
            Some(until) => format!(", blocked for {} ms", until - now),
            None => String::new(),
        };
        format!(
            "{}: {} in flight, {} here, {} queued, delay {} ms, robots {robots}{blocked}",
            String::from_utf8_lossy(&self.lease.key),
            self.in_flight,
            self.queue.len(),
            self.ready_left,
            self.pace.delay_ms(),
        )
    }
}

/// How many messages of a host to hold here: enough for about five seconds at its pace, or two rounds of its slots.
pub(super) fn target_queue(delay_ms: u64, per_host: u32) -> u64 {
    let rounds = 2 * u64::from(per_host);
    let paced = 5_000u64.checked_div(delay_ms).unwrap_or(MAX_HOST_QUEUE);
    rounds.max(4).min(paced.max(2)).min(MAX_HOST_QUEUE)
}

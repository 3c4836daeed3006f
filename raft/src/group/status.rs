//! What a group is doing, for those who ask and for those who watch; and what has to happen when this node begins to
//! lead: log time goes on from where the group's is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use openraft::{Instant as _, RaftMetrics, ServerState, async_runtime::watch::WatchReceiver};
use tokio::sync::watch;

use super::{Clock, Consensus, log_time, state::Shared, types::Types};
use crate::stamp::Stamps;

/// How far a new leader's clock is held back at most, so that no lease ends because nobody could renew it while there was
/// no leader, or because this leader's clock is ahead of the last one's.
const LEASE_GRACE_MS: u64 = 60_000;
/// How often a leader looks whether its followers still answer.
const EVERY: Duration = Duration::from_millis(50);

/// Names one membership: term and index of the entry that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MembershipId {
    /// The term.
    pub term: u64,
    /// The index.
    pub index: u64,
}

/// How a follower or learner keeps up, as its leader knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerMetrics {
    /// Index of the last entry that it surely has.
    pub matched: Option<u64>,
    /// How long ago it was sent the last of what it has answered.
    pub answered: Option<Duration>,
}

/// What a group is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMetrics {
    /// Index of the last entry whose effects can be read.
    pub applied: Option<u64>,
    /// Index of the last entry in the log.
    pub last: Option<u64>,
    /// Index of the last entry that the newest snapshot covers.
    pub snapshot: Option<u64>,
    /// Index of the last entry that was purged.
    pub purged: Option<u64>,
    /// The present term.
    pub term: u64,
    /// Who leads, as far as is known here.
    pub leader: Option<u64>,
    /// Whether this node leads.
    pub leads: bool,
    /// Who votes; in a joint configuration, everybody who votes in either.
    pub voters: BTreeSet<u64>,
    /// Who gets all entries and does not vote.
    pub learners: BTreeSet<u64>,
    /// Whether a change of voters is half done.
    pub joint: bool,
    /// The membership that is in force.
    pub membership: Option<MembershipId>,
    /// Whether the membership in force is committed.
    pub membership_committed: bool,
    /// How the others keep up; only on the leader.
    pub followers: BTreeMap<u64, FollowerMetrics>,
    /// How long ago a quorum was sent what it has answered; only on a leader.
    pub quorum_answered: Option<Duration>,
    /// Bytes of the log's entries, about.
    pub log_bytes: u64,
    /// Bytes of commands that wait or are on their way.
    pub queued_bytes: usize,
}

/// What is told to those who watch a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// The present term.
    pub term: u64,
    /// Who leads, as far as is known here.
    pub leader: Option<u64>,
    /// Whether this node leads.
    pub leads: bool,
    /// Whether it leads, and a quorum has answered not long ago.
    pub heard: bool,
    /// Index of the last entry whose effects can be read.
    pub applied: Option<u64>,
}

pub(super) fn metrics(metrics: &RaftMetrics<Types>) -> GroupMetrics {
    let membership = metrics.membership_config.membership();
    let answered = |id: &u64| {
        let at = metrics.heartbeat.as_ref()?.get(id)?.as_ref()?;
        Some(at.elapsed())
    };
    let followers = metrics.replication.iter().flatten().filter(|(id, _)| **id != metrics.id);
    GroupMetrics {
        applied: metrics.last_applied.map(|id| id.index),
        last: metrics.last_log_index,
        snapshot: metrics.snapshot.map(|id| id.index),
        purged: metrics.purged.map(|id| id.index),
        term: metrics.current_term,
        leader: metrics.current_leader,
        leads: metrics.state == ServerState::Leader,
        voters: membership.voter_ids().collect(),
        learners: membership.learner_ids().collect(),
        joint: membership.get_joint_config().len() > 1,
        membership: metrics
            .membership_config
            .log_id()
            .map(|id| MembershipId { term: id.leader_id.term, index: id.index }),
        membership_committed: metrics.membership_config.log_id()
            == metrics.committed_membership_config.log_id(),
        followers: followers
            .map(|(id, matched)| {
                let matched = matched.map(|matched| matched.index);
                (*id, FollowerMetrics { matched, answered: answered(id) })
            })
            .collect(),
        quorum_answered: metrics.last_quorum_acked.as_ref().map(|at| at.elapsed()),
        log_bytes: 0,
        queued_bytes: 0,
    }
}

/// Stamps entries.
pub(super) struct Stamper {
    clock: Clock,
    /// How to stamp, and the last stamp that was given.
    stamps: Mutex<(Stamps, u64)>,
}

impl Stamper {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, stamps: Mutex::new((Stamps::begin(0, 0), 0)) }
    }

    fn stamps(&self) -> MutexGuard<'_, (Stamps, u64)> {
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stamp of the next entry: never less than the one before.
    pub(super) fn stamp(&self) -> u64 {
        let clock_ms = (self.clock)();
        let (stamps, last) = &mut *self.stamps();
        *last = (*last).max(stamps.at(clock_ms));
        *last
    }

    /// Begins anew from where the group's log time is. Blocks on the disk.
    pub(super) fn begin(&self, shared: &Shared, others_vote: bool) -> dolomedes_storage::Result<()> {
        let log_time = log_time(shared)?;
        let clock_ms = (self.clock)();
        let grace_ms = if others_vote { LEASE_GRACE_MS } else { 0 };
        *self.stamps() = (Stamps::follow(log_time, clock_ms, grace_ms), log_time);
        Ok(())
    }
}

/// How far a leadership has been prepared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// Its term.
    pub(super) term: u64,
    /// Whether everything of earlier terms had been applied by then.
    pub(super) settled: bool,
}

/// Follows openraft until it stops.
pub(super) struct Follow {
    pub(super) raft: Consensus,
    pub(super) shared: Arc<Shared>,
    pub(super) stamper: Arc<Stamper>,
    pub(super) status: watch::Sender<GroupStatus>,
    /// After so long without an answer a leader has lost its followers.
    pub(super) patience: Duration,
    pub(super) begun: Option<Begun>,
}

impl Follow {
    pub(super) async fn run(mut self) {
        let mut watched = self.raft.metrics();
        loop {
            let (status, preparing) = {
                let seen = watched.borrow_watched();
                (self.status_of(&seen), self.preparing(&seen))
            };
            if let Some((begun, others)) = preparing {
                self.prepare(begun, others).await;
            }
            self.status.send_if_modified(|present| std::mem::replace(present, status) != status);
            let changed = if status.leads {
                tokio::select! {
                    changed = watched.changed() => changed,
                    () = tokio::time::sleep(EVERY) => Ok(()),
                }
            } else {
                watched.changed().await
            };
            if changed.is_err() {
                return;
            }
        }
    }

    fn status_of(&self, seen: &RaftMetrics<Types>) -> GroupStatus {
        let leads = seen.state == ServerState::Leader;
        let alone = seen.membership_config.membership().voter_ids().count() == 1;
        let recent = |age: Duration| age <= self.patience;
        let heard = leads && (alone || seen.last_quorum_acked.as_ref().is_none_or(|at| recent(at.elapsed())));
        GroupStatus {
            term: seen.current_term,
            leader: seen.current_leader,
            leads,
            heard,
            applied: seen.last_applied.map(|id| id.index),
        }
    }

    /// What has to be prepared, and whether others vote: something when this node begins to lead, and once more when it
    /// has applied all of what came before.
    fn preparing(&self, seen: &RaftMetrics<Types>) -> Option<(Begun, bool)> {
        if seen.state != ServerState::Leader {
            return None;
        }
        let term = seen.current_term;
        let settled = seen.last_applied.is_some_and(|applied| applied.leader_id.term == term);
        if self.begun.is_some_and(|begun| begun.term == term && (begun.settled || !settled)) {
            return None;
        }
        let others = seen.membership_config.membership().voter_ids().any(|voter| voter != seen.id);
        Some((Begun { term, settled }, others))
    }

    async fn prepare(&mut self, begun: Begun, others: bool) {
        let (stamper, shared) = (self.stamper.clone(), self.shared.clone());
        match tokio::task::spawn_blocking(move || stamper.begin(&shared, others)).await {
            Ok(Ok(())) => self.begun = Some(begun),
            Ok(Err(error)) => tracing::warn!(%error, "cannot read log time"),
            Err(_) => {}
        }
    }
}

//! Who is in a group: learners come, voters change, nodes go, leadership is handed over. One change at a time; the caller
//! says which membership it decided upon, so that two of them cannot undo each other's work.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use openraft::{
    ChangeMembers, EmptyNode, Precondition,
    errors::{ClientWriteError, RaftError},
};
use tokio::time::{Instant, timeout_at};

use super::{
    Group, GroupStatus, MembershipId,
    types::{LeaderTerm, LogId, Types},
};

/// A follower that is this many entries behind is not handed the leadership: writes would wait for it.
const CLOSE: u64 = 64;
/// How long a hand-over waits for a follower to come close, and then for it to lead.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(5);
/// A follower that has not answered for so long is not chosen to lead.
const ALIVE: Duration = Duration::from_millis(500);

/// Why a membership was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// This node does not lead the group; nothing was changed.
    #[error("this node does not lead the group; the leader is {leader:?}")]
    NotLeader {
        /// Who leads, where that is known.
        leader: Option<u64>,
    },
    /// The membership is another one than the caller expected, or is being changed; nothing was changed.
    #[error("the membership has changed meanwhile, look at it again: {detail}")]
    Changed {
        /// What was found.
        detail: String,
    },
    /// The change makes no sense; nothing was changed.
    #[error("the change is refused: {detail}")]
    Refused {
        /// Why.
        detail: String,
    },
    /// The leader changed meanwhile: the change may have been made, in part or not at all.
    #[error("the outcome is unknown: the leader changed meanwhile")]
    Unknown,
    /// Nobody took the leadership in time.
    #[error("node {to} did not take the leadership in time")]
    NotTaken {
        /// The node that was to lead.
        to: u64,
    },
    /// The group is closed or has failed.
    #[error("the group is closed")]
    Closed,
}

impl Group {
    /// Adds `node` as a learner: it gets all entries and does not vote. Returns once that is committed, without waiting
    /// for the node to catch up; adding what is a member already changes nothing.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn add_learner(&self, node: u64) -> Result<(), ChangeError> {
        if self.members().contains(&node) {
            return Ok(());
        }
        let nodes = BTreeMap::from([(node, EmptyNode::new())]);
        self.change(ChangeMembers::AddNodes(nodes), true, None).await
    }

    /// Makes `voters` the voters of the group, if its membership is still `expected`. New ones have to be learners already
    /// and should have caught up; old ones that are not among them become learners. Finishes first what a leader before
    /// left half done. Returns once it is committed.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn change_voters(
        &self,
        voters: BTreeSet<u64>,
        expected: Option<MembershipId>,
    ) -> Result<(), ChangeError> {
        let expected = self.finish_change(expected).await?;
        self.change(ChangeMembers::ReplaceAllVoters(voters), true, expected).await
    }

    /// Ends a joint configuration that a leader before this one has left. Changes nothing where there is none.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn finish_joint(&self) -> Result<(), ChangeError> {
        self.finish_change(None).await.map(|_| ())
    }

    /// Removes `node`, voter or learner. It is not told; see to it that it stops. A leader should hand over first.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn remove(&self, node: u64) -> Result<(), ChangeError> {
        self.finish_joint().await?;
        let metrics = self.metrics();
        if metrics.voters.contains(&node) {
            return self.change(ChangeMembers::RemoveVoters(BTreeSet::from([node])), false, None).await;
        }
        if metrics.learners.contains(&node) {
            return self.change(ChangeMembers::RemoveNodes(BTreeSet::from([node])), false, None).await;
        }
        Ok(())
    }

    /// Hands the leadership over to the voter `to`, once it is close behind, and returns when it leads. Commands that are
    /// submitted here meanwhile are answered with [`super::SubmitError::NotLeader`].
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn transfer_leadership(&self, to: u64) -> Result<(), ChangeError> {
        let metrics = self.metrics();
        if !metrics.leads {
            return Err(ChangeError::NotLeader { leader: metrics.leader });
        }
        if metrics.leader == Some(to) {
            return Ok(());
        }
        if !metrics.voters.contains(&to) {
            return Err(ChangeError::Refused { detail: format!("node {to} does not vote") });
        }
        let deadline = Instant::now() + HAND_OVER_PATIENCE;
        let mut status = self.watch();
        let close = || {
            let metrics = self.metrics();
            let matched = metrics.followers.get(&to).and_then(|follower| follower.matched);
            matched.map(|matched| matched + CLOSE) >= metrics.last
        };
        while !close() {
            if timeout_at(deadline, status.changed()).await.is_err() {
                return Err(ChangeError::NotTaken { to });
            }
            let GroupStatus { leads, leader, .. } = *status.borrow_and_update();
            if !leads {
                return Err(ChangeError::NotLeader { leader });
            }
        }
        let raft = self.inner.raft.clone();
        self.on_runtime(async move { raft.trigger().transfer_leader(to).await })
            .await?
            .map_err(|_| ChangeError::Closed)?;
        let taken = status.wait_for(|status| !status.leads && status.leader.is_some());
        match timeout_at(deadline, taken).await {
            Ok(Ok(status)) if status.leader == Some(to) => Ok(()),
            Ok(Err(_)) => Err(ChangeError::Closed),
            Ok(Ok(_)) | Err(_) => Err(ChangeError::NotTaken { to }),
        }
    }

    /// Hands the leadership over to whichever voter is best for it, for example before a shutdown. Does nothing where
    /// this node does not lead, or nobody else votes.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn hand_over(&self) -> Result<(), ChangeError> {
        let metrics = self.metrics();
        if !metrics.leads {
            return Ok(());
        }
        let alive = |age: Option<Duration>| age.is_some_and(|age| age <= ALIVE);
        let best = metrics
            .followers
            .iter()
            .filter(|(id, _)| metrics.voters.contains(id))
            .max_by_key(|(_, follower)| (alive(follower.answered), follower.matched));
        match best {
            Some((id, _)) => self.transfer_leadership(*id).await,
            None => Ok(()),
        }
    }

    fn members(&self) -> BTreeSet<u64> {
        let metrics = self.metrics();
        metrics.voters.union(&metrics.learners).copied().collect()
    }

    /// Ends a joint configuration; returns the membership that is to be expected then.
    async fn finish_change(
        &self,
        expected: Option<MembershipId>,
    ) -> Result<Option<MembershipId>, ChangeError> {
        if !self.metrics().joint {
            return Ok(expected);
        }
        self.change(ChangeMembers::AddVoterIds(BTreeSet::new()), true, expected).await?;
        Ok(expected.and_then(|_| self.metrics().membership))
    }

    async fn change(
        &self,
        changes: ChangeMembers<u64, EmptyNode>,
        retain: bool,
        expected: Option<MembershipId>,
    ) -> Result<(), ChangeError> {
        let precondition = expected.map(|id| Precondition::LastMembershipLogId {
            last_membership_log_id: Some(LogId::new(LeaderTerm::new(id.term), id.index)),
        });
        let raft = self.inner.raft.clone();
        let changed = self
            .on_runtime(async move { raft.change_membership_if(changes, retain, precondition).await })
            .await?;
        match changed {
            Ok(_) => Ok(()),
            Err(RaftError::Fatal(_)) => Err(ChangeError::Closed),
            Err(RaftError::APIError(error)) => Err(refusal(error)),
        }
    }
}

fn refusal(error: ClientWriteError<Types>) -> ChangeError {
    use openraft::errors::ChangeMembershipError::InProgress;
    match error {
        ClientWriteError::ForwardToLeader(forward) => ChangeError::NotLeader { leader: forward.leader_id },
        ClientWriteError::LogEntryDiscarded(_) => ChangeError::Unknown,
        ClientWriteError::PreconditionFailed(failed) => ChangeError::Changed { detail: failed.to_string() },
        ClientWriteError::ChangeMembershipError(error @ InProgress(_)) => {
            ChangeError::Changed { detail: error.to_string() }
        }
        ClientWriteError::ChangeMembershipError(error) => ChangeError::Refused { detail: error.to_string() },
    }
}

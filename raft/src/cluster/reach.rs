//! Reaching a group wherever it is led. Each call is one try; who repeats it has to know whether it may be.

use std::{sync::PoisonError, time::Duration};

use bytes::Bytes;
use dolomedes_netproto::peer::PeerError;

use super::{
    node::{ClusterNode, META},
    presence,
    question::{Question, Told},
    wire::{Answer, Ask},
};
use crate::{
    command::{Command, Reply, TokenHash},
    group::SubmitError,
    machine::read::{ConsumerInfo, QueueInfo, TokenInfo},
};

/// How long an answer of a leader elsewhere may take.
const PATIENCE: Duration = Duration::from_secs(10);

impl ClusterNode {
    /// Has `command` carried out by `group`, whoever leads it.
    ///
    /// # Errors
    /// See [`SubmitError`]: after [`SubmitError::Unknown`] it may have been carried out or not, after the others not.
    pub async fn submit(&self, group: u32, command: Command) -> Result<Reply, SubmitError> {
        match self.ask_leader(group, Question::Submit(Box::new(command))).await? {
            Told::Reply(reply) => Ok(*reply),
            _ => Err(SubmitError::Unknown),
        }
    }

    /// The queues of `group` whose names begin with `prefix`, some thousands at most.
    ///
    /// # Errors
    /// If the leader cannot be asked; likewise below.
    pub async fn queues(&self, group: u32, prefix: &str) -> Result<Vec<QueueInfo>, SubmitError> {
        match self.ask_leader(group, Question::Queues(prefix.to_owned())).await? {
            Told::Queues(queues) => Ok(queues),
            _ => Err(SubmitError::Unknown),
        }
    }

    /// A queue of `group`, and what it keeps for its user.
    pub async fn queue(&self, group: u32, name: &str) -> Result<Option<(QueueInfo, Bytes)>, SubmitError> {
        match self.ask_leader(group, Question::Queue(name.to_owned())).await? {
            Told::Queue(found) => Ok(found.map(|found| *found)),
            _ => Err(SubmitError::Unknown),
        }
    }

    /// What `group` has judged of a worker.
    pub async fn consumer(&self, group: u32, worker: u64) -> Result<Option<ConsumerInfo>, SubmitError> {
        match self.ask_leader(group, Question::Consumer(worker)).await? {
            Told::Consumer(found) => Ok(found),
            _ => Err(SubmitError::Unknown),
        }
    }

    /// The token with this hash; also if nobody has noticed its end yet.
    pub async fn token(&self, hash: TokenHash) -> Result<Option<TokenInfo>, SubmitError> {
        match self.ask_leader(META, Question::Token(hash)).await? {
            Told::Token(found) => Ok(found),
            _ => Err(SubmitError::Unknown),
        }
    }

    async fn ask_leader(&self, number: u32, question: Question) -> Result<Told, SubmitError> {
        let shared = self.shared();
        let leader = shared.leader(number).ok_or(SubmitError::NotLeader { leader: None })?;
        if leader == shared.number {
            let group = shared.groups.get(&number).ok_or(SubmitError::Closed)?;
            return question.answer(group).await;
        }
        let asked =
            presence::ask_within(shared, leader, Ask::Group { group: number, question }, PATIENCE).await;
        match asked {
            Ok(Answer::Group(told)) => {
                if let Err(SubmitError::NotLeader { leader }) = told {
                    // Hearsay that was wrong is corrected by who knows better.
                    let mut leaders = shared.leaders.lock().unwrap_or_else(PoisonError::into_inner);
                    match leader {
                        Some(leader) => leaders.insert(number, leader),
                        None => leaders.remove(&number),
                    };
                }
                // That its group is closed there says nothing about the group.
                told.map_err(|error| match error {
                    SubmitError::Closed => SubmitError::NotLeader { leader: None },
                    error => error,
                })
            }
            Ok(_) => Err(SubmitError::Unknown),
            Err(error @ PeerError::Lost { .. }) => {
                tracing::debug!(%error, group = number, "no answer of a leader");
                Err(SubmitError::Unknown)
            }
            Err(error) => {
                tracing::debug!(%error, group = number, "a leader cannot be asked");
                Err(SubmitError::NotLeader { leader: None })
            }
        }
    }
}

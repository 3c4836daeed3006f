//! The way from a crawl to its queue: the one group of an embedded node, or a group of a cluster, wherever it is led.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use dolomedes_raft::{
    cluster::ClusterNode,
    command::{Command, QueueId, Reply},
    group::{Group, SubmitError},
    machine::read::{QueueInfo, State},
};
use tokio_util::sync::CancellationToken;

/// First pause before a cluster is asked again, and the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Frontier {
    /// On this node alone.
    Embedded(Group),
    /// In a cluster.
    Cluster(Shared),
}

/// A job's queue in a cluster.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The node that this is.
    pub node: Arc<ClusterNode>,
    /// The group that keeps the queue.
    pub group: u32,
    /// The queue's name.
    pub name: String,
    /// Ends waiting for a leader: the node is closing.
    pub closing: CancellationToken,
}

impl Frontier {
    /// Has a command of the crawl carried out. In a cluster, it is repeated until its outcome is known, however long
    /// there is no leader, or until the node closes: puts are known by fingerprint, results by sequence number, and
    /// renewals and attaching may happen twice. Not so claims: what was granted twice would be lost once.
    ///
    /// # Errors
    /// [`SubmitError::Unknown`] only for claims.
    pub(crate) async fn submit(&self, command: Command) -> Result<Reply, SubmitError> {
        let shared = match self {
            Self::Embedded(group) => return group.submit(command).await,
            Self::Cluster(shared) => shared,
        };
        let repeatable = !matches!(command, Command::Claim { .. });
        shared.until_known(repeatable, || shared.node.submit(shared.group, command.clone())).await
    }

    /// How many crawlers work on the job, about.
    pub(crate) fn crawlers(&self) -> usize {
        match self {
            Self::Embedded(_) => 1,
            Self::Cluster(shared) => shared.node.members().len(),
        }
    }

    /// The numbers of the job's queue.
    pub(crate) async fn info(&self, queue: QueueId) -> anyhow::Result<QueueInfo> {
        Ok(self.described(queue).await?.0)
    }

    /// The numbers of the job's queue, and its description.
    pub(crate) async fn described(&self, queue: QueueId) -> anyhow::Result<(QueueInfo, Bytes)> {
        let found = match self {
            Self::Embedded(group) => {
                let number = group.number();
                group.view(|reader, generation| {
                    let state = State::new(reader, number, generation);
                    Ok(state.queue(queue)?.zip(state.spec(queue)?))
                })?
            }
            Self::Cluster(shared) => {
                shared.until_known(true, || shared.node.queue(shared.group, &shared.name)).await?
            }
        };
        found.filter(|(info, _)| info.id == queue).context("the job has vanished from the state machine")
    }

    /// Up to which of its records a worker's results have been judged.
    pub(crate) async fn judged_upto(&self, worker: u64) -> anyhow::Result<u64> {
        let found = match self {
            Self::Embedded(group) => {
                let number = group.number();
                group.view(|reader, generation| State::new(reader, number, generation).consumer(worker))?
            }
            Self::Cluster(shared) => {
                shared.until_known(true, || shared.node.consumer(shared.group, worker)).await?
            }
        };
        Ok(found.map_or(0, |consumer| consumer.judged_upto))
    }
}

impl Shared {
    async fn until_known<T, F: Future<Output = Result<T, SubmitError>>>(
        &self,
        repeatable: bool,
        ask: impl Fn() -> F,
    ) -> Result<T, SubmitError> {
        let mut pause = PAUSE;
        loop {
            let answer = tokio::select! {
                answer = ask() => answer,
                () = self.closing.cancelled() => return Err(SubmitError::Closed),
            };
            match answer {
                Err(SubmitError::NotLeader { .. } | SubmitError::Overloaded) => {}
                Err(SubmitError::Unknown) if repeatable => {}
                known => return known,
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.closing.cancelled() => return Err(SubmitError::Closed),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

//! Having pages fetched again whose records a removed node takes with it.

use anyhow::{Context as _, bail};
use dolomedes_raft::command::{Command, QueueId, RecallFrom, Reply};

use super::{Jobs, spec, worker};

/// Messages that one command recalls at most.
const AT_ONCE: u32 = 4_096;

/// Makes every page ready again that `node` completed, in all jobs; returns how many. May be repeated.
pub(crate) async fn recall(jobs: &Jobs, node: u64) -> anyhow::Result<u64> {
    let mut recalled = 0;
    for group in jobs.node.queue_groups() {
        let found = jobs.node.queues(group, spec::PREFIX).await;
        let found = found.with_context(|| format!("the jobs of group {group} cannot be listed"))?;
        for info in found {
            recalled += recall_job(jobs, group, &info.name, info.id, node).await?;
        }
    }
    Ok(recalled)
}

async fn recall_job(jobs: &Jobs, group: u32, name: &str, queue: QueueId, node: u64) -> anyhow::Result<u64> {
    let frontier = jobs.frontier(group, name.to_owned());
    let worker = worker(node, (group, queue));
    if frontier.judged_upto(worker).await? == 0 {
        return Ok(0);
    }
    // Whatever it may still hand in is refused from here on.
    let reply = frontier.submit(Command::Attach { node: worker }).await?;
    if !matches!(reply, Reply::Attached(_)) {
        bail!("`{name}` cannot be taken from node {node}: {reply:?}");
    }
    let (mut recalled, mut next) = (0, Some(RecallFrom::default()));
    while let Some(from) = next {
        match frontier.submit(Command::Recall { queue, worker, from, limit: AT_ONCE }).await? {
            Reply::Recalled { moved, next: on } => {
                recalled += moved;
                next = on;
            }
            other => bail!("`{name}` cannot be recalled from node {node}: {other:?}"),
        }
    }
    Ok(recalled)
}

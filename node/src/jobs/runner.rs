//! One node's work on one job, from opening its files to the last record.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context as _;
use dolomedes_raft::command::QueueId;
use tokio_util::sync::CancellationToken;

use super::{JobLog, Spec};
use crate::{
    clock::Clock,
    crawl::{self, End, Frontier, Place, Requester, Taken, Watch, WindowLimits, Worked},
};

/// So long a host that a dead node held is kept from the others.
const LEASE_MS: u64 = 15_000;
/// How often to look for work that others have put or given back.
const POLL_MS: u64 = 500;

pub(super) struct Run {
    pub frontier: Frontier,
    pub job: String,
    pub worker: u64,
    pub node: u64,
    pub dir: PathBuf,
    pub clock: Clock,
    pub watch: Arc<Watch>,
    pub log: Arc<JobLog>,
    pub stop: CancellationToken,
}

impl Run {
    /// Works on the job until it ends or the work is stopped.
    pub(super) async fn work(self, queue: QueueId) -> anyhow::Result<()> {
        let (info, spec) = self.frontier.described(queue).await?;
        let spec = Spec::read(&spec)?;
        let dir = self.dir.clone();
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create `{}`", dir.display()))?;
        let config = spec.config(&dir)?;
        let requester =
            Requester::new(&config.network, config.job.warc, config.run.retry_delay_ms, self.clock)?;
        let place = Place {
            job: self.job.clone(),
            worker: self.worker,
            spool: dir.join("spool"),
            sinks: dir.join("sinks"),
            warc_name: format!("{}-n{}", self.job, self.node),
        };
        let limits = WindowLimits { lease_ms: LEASE_MS, poll_ms: Some(POLL_MS), ..crawl::limits(&config) };
        let taken = Taken { queue, spec: config.job.clone(), before: Some(info.state) };
        self.say(format!("begins: {} URLs known, {} done", info.counters.accepted, info.counters.done));
        let (watch, stop) = (self.watch.clone(), self.stop.clone());
        let worked =
            crawl::work(&self.frontier, &place, taken, &config, limits, requester, watch, self.clock, stop);
        let Worked { end, totals, .. } = worked.await?;
        let why = match end {
            End::Finished => "the job is finished",
            End::BudgetReached => "a budget of the job is used up",
            End::Stopped => "stopped",
        };
        self.say(format!("ends: {why}; {} records are on this node", totals.all()));
        Ok(())
    }

    fn say(&self, text: String) {
        tracing::info!(job = self.job, "{text}");
        self.log.say(self.clock.now_ms(), text);
    }
}

//! The result of a crawl, for people and for scripts.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::Serialize;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Nothing is left to fetch.
    Finished,
    /// A budget of the job is used up.
    BudgetReached,
    /// It was told to stop; the same command goes on.
    Stopped,
}

/// The numbers of a job. `pages`, `failed` and what follows count the whole job, over all its runs, except where a
/// field says otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Why this run ended.
    pub end: End,
    /// Pages fetched (responses that are not redirects).
    pub pages: u64,
    /// Of these with a 2xx status.
    pub ok: u64,
    /// URLs that did not end with a 2xx status or a redirect: refused, error statuses, given up.
    pub failed: u64,
    /// Redirects.
    pub redirects: u64,
    /// Decoded bytes of bodies.
    pub bytes: u64,
    /// Duration of this run.
    pub seconds: f64,
    /// Pages of this run per second.
    pub pages_per_second: f64,
    /// URLs known.
    pub urls: u64,
    /// URLs still to fetch.
    pub queued: u64,
    /// URLs given up.
    pub dead: u64,
    /// Failures of this run by kind, retried ones included.
    pub errors: BTreeMap<String, u64>,
    /// Whether the job was finished before this run began.
    pub already_finished: bool,
    /// Where the records are.
    pub out: PathBuf,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = match (self.end, self.already_finished) {
            (_, true) => "this crawl is finished already; use --fresh to start over",
            (End::Finished, _) => "finished",
            (End::BudgetReached, _) => "budget reached; run again with a higher one to go on",
            (End::Stopped, _) => "stopped; run the same command to go on",
        };
        writeln!(f, "{head}")?;
        writeln!(
            f,
            "  {} pages ({} ok), {} failed, {} redirects, {} bytes",
            self.pages, self.ok, self.failed, self.redirects, self.bytes
        )?;
        writeln!(
            f,
            "  {} URLs known, {} queued, {} given up; {:.1} s, {:.1} pages/s",
            self.urls, self.queued, self.dead, self.seconds, self.pages_per_second
        )?;
        if !self.errors.is_empty() {
            let errors: Vec<String> =
                self.errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            writeln!(f, "  errors: {}", errors.join(", "))?;
        }
        write!(f, "  records: {}", self.out.join("pages.jsonl").display())
    }
}

//! What a node has to say about a job: its newest lines, kept in memory.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// Lines kept for each job.
const LINES: usize = 500;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct JobLog {
    lines: Mutex<VecDeque<(u64, String)>>,
}

impl JobLog {
    /// Adds a line.
    pub(crate) fn say(&self, at_ms: u64, text: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back((at_ms, text));
    }

    /// The newest lines, the oldest of them first.
    pub(crate) fn newest(&self, most: usize) -> Vec<(u64, String)> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().skip(lines.len().saturating_sub(most)).cloned().collect()
    }
}

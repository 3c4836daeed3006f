//! Promise 10, as far as one node can show it: replaying the log equals the first time. An entry that is applied again after
//! a crash is the same entry and has the same replies. This is also what lets the other invariants look at each entry
//! once.

use dolomedes_raft::command::{Entry, Reply};

use super::{Violation, violation};

/// See the module.
#[derive(Debug, Default)]
pub struct Replay {
    applied: Vec<(Entry, Vec<Reply>)>,
}

impl Replay {
    /// Whether the entry is applied for the first time.
    pub fn is_new(&mut self, index: u64, entry: &Entry, replies: &[Reply]) -> Result<bool, Violation> {
        let next = self.applied.len() as u64 + 1;
        if index > next {
            return Err(violation("10: replay", format!("entry {index} was applied before {next}")));
        }
        match self.applied.get((index - 1) as usize) {
            None => {
                self.applied.push((entry.clone(), replies.to_vec()));
                Ok(true)
            }
            Some((first, answers)) if first == entry && answers == replies => Ok(false),
            Some((first, answers)) => Err(violation(
                "10: replay",
                format!(
                    "entry {index} was {first:?} with {answers:?}, and came again as {entry:?} with {replies:?}"
                ),
            )),
        }
    }
}

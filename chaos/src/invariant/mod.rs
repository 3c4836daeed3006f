//! The promises, one file each, checked from outside: on what was asked and answered, requested and delivered, and never on
//! what the crawler says of itself. Numbers are those of the promises, which each file states.

pub mod attempts;
pub mod counters;
pub mod pace;
pub mod records;
pub mod repeats;
pub mod replay;

use dolomedes_raft::command::Entry;
use dolomedes_raft::{command::Reply, machine::read::QueueInfo};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one, by number and a word or two.
    pub promise: &'static str,
    /// What was seen.
    pub text: String,
}

pub(crate) fn violation(promise: &'static str, text: String) -> Violation {
    Violation { promise, text }
}

/// The invariants that watch the log being applied.
#[derive(Debug, Default)]
pub struct Checks {
    /// Counters add up.
    pub counters: counters::Counters,
    /// Attempts count up by one.
    pub attempts: attempts::Attempts,
    /// Requests are repeated only for what was in flight.
    pub repeats: repeats::Repeats,
    /// Replaying equals the first time.
    pub replay: replay::Replay,
    /// Hosts are left in peace.
    pub pace: pace::Pace,
}

impl Checks {
    /// Takes in that an entry was applied; again after each crash that lost it.
    pub fn applied(
        &mut self,
        index: u64,
        entry: &Entry,
        replies: &[Reply],
        queues: &[QueueInfo],
    ) -> Result<(), Violation> {
        for queue in queues {
            self.counters.at_entry(index, queue)?;
        }
        if !self.replay.is_new(index, entry, replies)? {
            return Ok(());
        }
        for (command, reply) in entry.commands.iter().zip(replies) {
            self.repeats.applied(command, reply)?;
            self.attempts.applied(command, reply)?;
            self.pace.applied(command, reply);
        }
        Ok(())
    }
}

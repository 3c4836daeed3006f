//! Promise 7: attempts count 1, 2, 3 …, whatever crashes between them, and the failed ones among them are those whose
//! retry was accepted.

use std::collections::BTreeMap;

use dolomedes_raft::command::{Command, MessageId, Outcome, Reply};

use super::{Violation, violation};

/// See the module.
#[derive(Debug, Default)]
pub struct Attempts {
    /// Deliveries and failed attempts of each message.
    messages: BTreeMap<MessageId, (u32, u32)>,
}

impl Attempts {
    /// Takes in a command and its reply, in the order of the log.
    pub fn applied(&mut self, command: &Command, reply: &Reply) -> Result<(), Violation> {
        match (command, reply) {
            (Command::Claim { .. }, Reply::Claimed(claimed)) => {
                for message in claimed.grants.iter().flat_map(|grant| &grant.messages) {
                    let (deliveries, failures) = self.messages.entry(message.id).or_default();
                    *deliveries += 1;
                    if (message.attempt, message.failures) != (*deliveries, *failures) {
                        return Err(violation(
                            "7: attempts",
                            format!(
                                "{:?} came as attempt {} after {} failures; it is the {deliveries}th, after {failures}",
                                message.id, message.attempt, message.failures
                            ),
                        ));
                    }
                }
            }
            (Command::Complete { completions, .. }, Reply::Completed(verdicts)) => {
                for (completion, verdict) in completions.iter().zip(verdicts) {
                    for (result, accepted) in completion.results.iter().zip(&verdict.accepted) {
                        if let (Outcome::Retry { free: false, .. }, true) = (&result.outcome, accepted) {
                            self.messages.entry(result.id).or_default().1 += 1;
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

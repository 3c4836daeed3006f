//! Promise 6, its cost: a crash can cost a repeated fetch, never more than the leases in flight. Each delivery of a message
//! is requested at most once, and a message is delivered again only after a retry that was accepted, after it was given
//! back, or after its lease was lost.

use std::collections::{BTreeMap, BTreeSet};

use dolomedes::crawl::Task;
use dolomedes_raft::command::{Command, Fence, MessageId, Outcome, Reply};

use super::{Violation, violation};

const PROMISE: &str = "6: repeated fetches";

/// See the module.
#[derive(Debug, Default)]
pub struct Repeats {
    urls: BTreeMap<MessageId, String>,
    /// Who is leased, under what.
    held: BTreeMap<MessageId, Fence>,
    /// Messages that may be delivered: never delivered yet, or open again.
    settled: BTreeSet<MessageId>,
    deliveries: BTreeMap<String, u32>,
    retries: BTreeMap<String, u32>,
    /// Leases of messages that were lost.
    lost: u64,
}

impl Repeats {
    /// Takes in a command and its reply, in the order of the log.
    pub fn applied(&mut self, command: &Command, reply: &Reply) -> Result<(), Violation> {
        match (command, reply) {
            (Command::Attach { .. }, Reply::Attached(_)) => {
                self.lost += self.held.len() as u64;
                self.held.clear();
            }
            (Command::Claim { .. }, Reply::Claimed(claimed)) => {
                for grant in &claimed.grants {
                    for message in &grant.messages {
                        let url = match Task::decode(&message.payload) {
                            Ok(task) => task.url,
                            Err(error) => return Err(violation(PROMISE, error.to_string())),
                        };
                        match self.held.insert(message.id, grant.lease.fence) {
                            Some(fence) if fence == grant.lease.fence => {
                                return Err(violation(PROMISE, format!("{url} was granted twice at once")));
                            }
                            Some(_) => self.lost += 1,
                            None => {}
                        }
                        if self.settled.contains(&message.id) {
                            return Err(violation(
                                PROMISE,
                                format!("{url} was granted after it was settled"),
                            ));
                        }
                        *self.deliveries.entry(url.clone()).or_default() += 1;
                        self.urls.insert(message.id, url);
                    }
                }
            }
            (Command::Complete { completions, .. }, Reply::Completed(verdicts)) => {
                for (completion, verdict) in completions.iter().zip(verdicts) {
                    for (result, accepted) in completion.results.iter().zip(&verdict.accepted) {
                        if *accepted {
                            self.accepted(result.id, &result.outcome);
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn accepted(&mut self, id: MessageId, outcome: &Outcome) {
        self.held.remove(&id);
        match outcome {
            Outcome::Retry { free: true, .. } => {}
            Outcome::Retry { .. } => {
                if let Some(url) = self.urls.get(&id) {
                    *self.retries.entry(url.clone()).or_default() += 1;
                }
            }
            Outcome::Done { .. } | Outcome::Dead { .. } => {
                self.settled.insert(id);
            }
        }
    }

    /// Judges the requests that the servers saw. Returns how many were repeated for a lost lease.
    pub fn at_end(&self, requests: &BTreeMap<String, u32>) -> Result<u64, Violation> {
        let mut repeated = 0;
        for (url, &sent) in requests {
            let deliveries = self.deliveries.get(url).copied().unwrap_or(0);
            if sent > deliveries {
                return Err(violation(
                    PROMISE,
                    format!("{url}: {sent} requests for {deliveries} deliveries"),
                ));
            }
            let wanted = 1 + self.retries.get(url).copied().unwrap_or(0);
            repeated += u64::from(sent.saturating_sub(wanted));
        }
        if repeated > self.lost {
            let text = format!("{repeated} requests were repeated, but only {} leases were lost", self.lost);
            return Err(violation(PROMISE, text));
        }
        Ok(repeated)
    }
}

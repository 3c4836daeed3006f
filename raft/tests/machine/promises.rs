//! The promises to users, checked on commands and replies alone, without knowing how the machine works: exclusive keys,
//! attempts that count up by one, nothing before its time, results that count once, budgets that are never exceeded by grants.

use std::collections::BTreeMap;

use bytes::Bytes;
use dolomedes_raft::command::{
    Claimed, Command, Consumer, LeaseRef, MessageId, Outcome, PutStatus, Reply,
};

struct Held {
    consumer: Consumer,
    fence: u64,
    /// The latest end that its owner was told.
    until: u64,
}

#[derive(Default)]
struct Known {
    attempts: u32,
    not_before: u64,
    done: bool,
}

/// What users have seen so far.
#[derive(Default)]
pub(super) struct Promises {
    entries: u64,
    held: BTreeMap<Bytes, Held>,
    holds: BTreeMap<Bytes, u64>,
    newest_fence: BTreeMap<Bytes, u64>,
    messages: BTreeMap<MessageId, Known>,
    /// The highest sequence number of each worker that was judged.
    judged: BTreeMap<u64, u64>,
}

impl Promises {
    /// Takes in the next entry, which holds one command.
    pub(super) fn observe(&mut self, now: u64, command: &Command, reply: &Reply) {
        // The entry that creates the queue comes before the first that is seen here.
        self.entries += 1;
        let index = self.entries + 1;
        match (command, reply) {
            (Command::Put { messages, .. }, Reply::Put(statuses)) => {
                for ((message, status), ordinal) in messages.iter().zip(statuses).zip(0..) {
                    if *status == PutStatus::Accepted {
                        let known = Known { not_before: now + message.delay_ms, ..Known::default() };
                        self.messages.insert(MessageId { index, ordinal }, known);
                    }
                }
            }
            (Command::Claim { consumer, more, ttl_ms, .. }, Reply::Claimed(claimed)) => {
                for more in more {
                    self.prolong(*consumer, &more.lease, now + ttl_ms);
                }
                self.claimed(now, *consumer, claimed);
            }
            (Command::Renew { consumer, leases, ttl_ms, .. }, Reply::Renewed(_)) => {
                for lease in leases {
                    self.prolong(*consumer, lease, now + ttl_ms);
                }
            }
            (Command::Complete { consumer, completions, .. }, Reply::Completed(verdicts)) => {
                let before = self.judged.get(&consumer.node).copied().unwrap_or(0);
                for (completion, verdict) in completions.iter().zip(verdicts) {
                    let judged = verdict.accepted.iter().zip(&verdict.dead);
                    for (result, (accepted, dead)) in completion.results.iter().zip(judged) {
                        let known = self.messages.get_mut(&result.id);
                        // The verdict on one that was judged before is only repeated.
                        let again = result.sequence > 0 && result.sequence <= before;
                        let judged = self.judged.entry(consumer.node).or_default();
                        *judged = (*judged).max(result.sequence);
                        let Some(known) = known.filter(|_| *accepted && !again) else { continue };
                        assert!(!known.done, "{:?} was done twice", result.id);
                        match result.outcome {
                            Outcome::Retry { after_ms, .. } if !dead => {
                                known.not_before = known.not_before.max(now + after_ms);
                            }
                            Outcome::Done { .. } => known.done = true,
                            _ => {}
                        }
                    }
                    let key = &completion.lease.key;
                    let stands = self.held.get(key).is_some_and(|held| held.fence == completion.lease.fence);
                    if let (Some(pace), true) = (&completion.pace, stands && verdict.released) {
                        let hold = self.holds.entry(key.clone()).or_default();
                        *hold = (*hold).max(now + pace.hold_ms);
                    }
                    if verdict.released {
                        self.held.remove(key);
                    }
                }
            }
            (Command::Attach { node }, Reply::Attached(_)) => {
                self.held.retain(|_, held| held.consumer.node != *node);
            }
            (Command::Redrive { .. }, Reply::Redriven(count)) if *count > 0 => {
                // Which ones is not said: any of them may count from one again.
                for known in self.messages.values_mut().filter(|known| !known.done) {
                    known.attempts |= REDRIVEN;
                }
            }
            (Command::DropQueue { .. }, _) => {
                let (entries, judged) = (self.entries, std::mem::take(&mut self.judged));
                *self = Self { entries, judged, ..Self::default() };
            }
            _ => {}
        }
    }

    fn prolong(&mut self, consumer: Consumer, lease: &LeaseRef, until: u64) {
        let held = self.held.get_mut(&lease.key);
        if let Some(held) = held.filter(|held| held.consumer == consumer && held.fence == lease.fence) {
            held.until = held.until.max(until);
        }
    }

    fn claimed(&mut self, now: u64, consumer: Consumer, claimed: &Claimed) {
        for grant in &claimed.grants {
            let LeaseRef { key, fence } = &grant.lease;
            match self.held.get(key) {
                Some(held) if held.fence == *fence => {
                    assert_eq!(held.consumer, consumer, "more of a lease went to somebody else");
                }
                held => {
                    if let Some(held) = held {
                        assert!(held.until <= now, "{key:?} was granted {} ms too early", held.until - now);
                    }
                    let newest = self.newest_fence.insert(key.clone(), *fence);
                    assert!(newest < Some(*fence), "a fence came twice");
                    let hold = self.holds.get(key).copied().unwrap_or(0);
                    assert!(hold <= now, "{key:?} was granted {} ms within its hold", hold - now);
                    let until = now + grant.ttl_ms;
                    self.held.insert(key.clone(), Held { consumer, fence: *fence, until });
                }
            }
            assert!(!grant.messages.is_empty());
            for message in &grant.messages {
                let known = self.messages.get_mut(&message.id).unwrap();
                assert!(!known.done, "{:?} was delivered after it was done", message.id);
                assert!(known.not_before <= now, "{:?} was delivered too early", message.id);
                let next = (known.attempts & !REDRIVEN) + 1;
                let again = known.attempts & REDRIVEN != 0 && message.attempt == 1;
                assert!(message.attempt == next || again, "{:?} jumped to {}", message.id, message.attempt);
                known.attempts = message.attempt | if again { 0 } else { known.attempts & REDRIVEN };
            }
        }
    }
}

/// Marks a message that may have been made ready again.
const REDRIVEN: u32 = 1 << 31;

//! Promise 2: no URL is ever lost. A queue's counters add up after every entry, what is settled stays settled, and at the
//! end of a crawl everything that was accepted is.

use std::collections::BTreeMap;

use dolomedes_raft::{command::QueueState, machine::read::QueueInfo};

use super::{Violation, violation};

const PROMISE: &str = "2: counters add up";

/// See the module.
#[derive(Debug, Default)]
pub struct Counters {
    /// The highest numbers of each queue: the entry, accepted, done, dead and units.
    highest: BTreeMap<u64, (u64, [u64; 4])>,
}

impl Counters {
    /// Looks at a queue after an entry was applied.
    pub fn at_entry(&mut self, index: u64, queue: &QueueInfo) -> Result<(), Violation> {
        let c = &queue.counters;
        let sum = c.ready + c.delayed + c.leased + c.done + c.dead;
        if c.accepted != sum {
            return Err(violation(PROMISE, format!("after entry {index}: {c:?}")));
        }
        let now = [c.accepted, c.done, c.dead, c.units];
        let (newest, before) = self.highest.entry(queue.id).or_default();
        if index > *newest {
            if now.iter().zip(before.iter()).any(|(now, before)| now < before) {
                return Err(violation(PROMISE, format!("after entry {index}: {before:?} fell to {now:?}")));
            }
            (*newest, *before) = (index, now);
        }
        Ok(())
    }

    /// Looks at the queue of a crawl that is over, which should have settled so many URLs and charged so many units and
    /// bytes.
    pub fn at_end(queue: &QueueInfo, urls: u64, units: u64, bytes: u64) -> Result<(), Violation> {
        let c = &queue.counters;
        if queue.state != QueueState::Finished {
            return Err(violation(PROMISE, format!("the crawl ended while its queue is {:?}", queue.state)));
        }
        if c.done + c.dead != c.accepted || (c.accepted, c.units, c.bytes) != (urls, units, bytes) {
            return Err(violation(
                PROMISE,
                format!("at the end, instead of {urls} URLs, {units} units and {bytes} bytes: {c:?}"),
            ));
        }
        Ok(())
    }
}

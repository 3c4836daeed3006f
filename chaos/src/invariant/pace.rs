//! Promise 4: no crash or restart makes two requests to a host come closer than its delay, and `Retry-After` is kept.
//!
//! What a server said counts as soon as the crawler knows it, and across a crash once the completion that tells it was
//! applied. A wait is over when either the true time or the crawler's clock says so: that a clock was set forward while the
//! power was out cannot be told from a longer outage.

use std::collections::BTreeMap;

use dolomedes_raft::command::{Command, Fence, MessageId, Reply};

use super::{Violation, violation};

const PROMISE: &str = "4: politeness";

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// True time in milliseconds.
    pub true_ms: u64,
    /// What the crawler's clock shows.
    pub clock_ms: u64,
    /// Which run of the crawler.
    pub run: u32,
}

impl Moment {
    fn since(self, earlier: Self) -> u64 {
        let by_clock = self.clock_ms.saturating_sub(earlier.clock_ms);
        (self.true_ms - earlier.true_ms).max(by_clock)
    }
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    from: Moment,
    wait_ms: u64,
    message: MessageId,
    fence: Fence,
    /// Whether its completion was applied.
    kept: bool,
}

#[derive(Debug, Default)]
struct Host {
    last: Option<Moment>,
    /// The crawl delay that robots.txt asks for, and the run that knows it.
    crawl_delay: Option<(u64, u32)>,
    /// The delay that the frontier knows.
    kept_delay_ms: u64,
    waits: Vec<Wait>,
    running: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Pace {
    delay_ms: u64,
    per_host: u32,
    hosts: BTreeMap<String, Host>,
}

impl Pace {
    /// The least time between two requests to a host, and how many of them may run at once.
    pub fn new(delay_ms: u64, per_host: u32) -> Self {
        Self { delay_ms, per_host, ..Self::default() }
    }

    /// A request to `host` is sent.
    pub fn start(&mut self, host: &str, fence: Option<Fence>, at: Moment) -> Result<(), Violation> {
        let floor_ms = self.delay_ms;
        let record = self.hosts.entry(host.to_owned()).or_default();
        if let Some(last) = record.last {
            // From the last request on, even if that was the one for the robots.txt that asks for it.
            let known = record.crawl_delay.filter(|(_, run)| *run == at.run).map_or(0, |(ms, _)| ms);
            let needed = known.max(record.kept_delay_ms).max(floor_ms);
            if at.since(last) < needed {
                let text = format!("{host}: requests at {last:?} and {at:?}, {needed} ms apart at least");
                return Err(violation(PROMISE, text));
            }
        }
        for wait in &record.waits {
            let known = wait.kept || (wait.from.run == at.run && fence == Some(wait.fence));
            if known && at.since(wait.from) < wait.wait_ms {
                let text = format!(
                    "{host}: Retry-After of {} ms at {:?}, request at {at:?}",
                    wait.wait_ms, wait.from
                );
                return Err(violation(PROMISE, text));
            }
        }
        record.running += 1;
        if record.running > self.per_host.max(1) {
            return Err(violation(PROMISE, format!("{host}: {} requests run at once", record.running)));
        }
        record.last = Some(at);
        Ok(())
    }

    /// A request to `host` has ended.
    pub fn end(&mut self, host: &str) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.running = host.running.saturating_sub(1);
        }
    }

    /// The power was cut: no request runs any more.
    pub fn cut(&mut self) {
        self.hosts.values_mut().for_each(|host| host.running = 0);
    }

    /// A run has learnt that `host` asks for a delay.
    pub fn crawl_delay(&mut self, host: &str, delay_ms: u64, run: u32) {
        self.hosts.entry(host.to_owned()).or_default().crawl_delay = Some((delay_ms, run));
    }

    /// The answer to the request for `message`, sent under `fence`, asks to wait.
    pub fn retry_after(&mut self, host: &str, message: MessageId, fence: Fence, wait_ms: u64, from: Moment) {
        let wait = Wait { from, wait_ms, message, fence, kept: false };
        self.hosts.entry(host.to_owned()).or_default().waits.push(wait);
    }

    /// Takes in a command and its reply, in the order of the log.
    pub fn applied(&mut self, command: &Command, reply: &Reply) {
        let (Command::Complete { completions, .. }, Reply::Completed(verdicts)) = (command, reply) else {
            return;
        };
        for (completion, verdict) in completions.iter().zip(verdicts) {
            let key = String::from_utf8_lossy(&completion.lease.key).into_owned();
            let host = self.hosts.entry(key).or_default();
            for (result, accepted) in completion.results.iter().zip(&verdict.accepted) {
                let told =
                    |wait: &&mut Wait| (wait.message, wait.fence) == (result.id, completion.lease.fence);
                for wait in host.waits.iter_mut().filter(told) {
                    wait.kept |= *accepted && completion.pace.is_some();
                }
            }
            if verdict.accepted.contains(&true) {
                let delay_ms = completion.pace.as_ref().map_or(0, |pace| pace.delay_ms);
                host.kept_delay_ms = host.kept_delay_ms.max(delay_ms);
            }
        }
    }
}

//! The pace of one host: its delay, how many requests at once, blocks that it asked for, and a breaker for hosts that do
//! not answer. Pure: `now` comes in as milliseconds since 1970, and may step back without harm.
//!
//! - Starts are at least the delay apart: the configured one or the site's crawl-delay, whichever is longer.
//! - 429 and 503 block the host: for the time in `Retry-After` (capped), else for a time that doubles with each block
//!   from [`PaceRules::backoff_min_ms`] to [`PaceRules::backoff_max_ms`]. Each answer of another kind takes one doubling
//!   back, so a host that goes on refusing every other request keeps its long blocks. A `Retry-After` with a redirect
//!   blocks as well.
//! - After [`PaceRules::breaker_failures`] failures to connect or answer in a row the breaker opens; then one request
//!   probes the host, and each failed probe doubles the time until the next. Any answer closes it.

use bytes::Bytes;
use dolomedes_raft::command::Pace;
use dolomedes_storage::codec::{DecodeError, Decoder, Encoder};

const FORMAT: u8 = 1;

/// Doublings remembered at most: further ones change nothing, since all waits are capped.
const MAX_DOUBLINGS: u32 = 16;

/// How polite to be. Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceRules {
    /// Least time between the starts of two requests.
    pub delay_ms: u64,
    /// Requests at once; at least 1.
    pub per_host: u32,
    /// First block by a 429 or 503 that names no time.
    pub backoff_min_ms: u64,
    /// Longest such block.
    pub backoff_max_ms: u64,
    /// Longest `Retry-After` that is obeyed; a longer one counts as this.
    pub retry_after_max_ms: u64,
    /// Failures in a row that open the breaker; at least 1.
    pub breaker_failures: u32,
    /// How long it is open first.
    pub breaker_min_ms: u64,
    /// How long it is open at most.
    pub breaker_max_ms: u64,
}

impl Default for PaceRules {
    fn default() -> Self {
        Self {
            delay_ms: 1000,
            per_host: 1,
            backoff_min_ms: 5_000,
            backoff_max_ms: 10 * 60_000,
            retry_after_max_ms: 60 * 60_000,
            breaker_failures: 5,
            breaker_min_ms: 30_000,
            breaker_max_ms: 30 * 60_000,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchResult {
    /// With a response.
    Response {
        /// Its status.
        status: u16,
        /// The wait that it asks for ([`super::retry_after`]).
        retry_after_ms: Option<u64>,
    },
    /// Without one: name, connection, TLS, deadline.
    Failed,
    /// It was never sent, or given up for reasons of our own.
    Abandoned,
}

/// Whether the host is believed to be alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Alive.
    Closed,
    /// Dead; nothing is sent.
    Open,
    /// Dead so far; one request may find out.
    HalfOpen,
}

/// The pace of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPace {
    rules: PaceRules,
    in_flight: u32,
    crawl_delay_ms: u64,
    /// No start before: last start and delay, or what the key's hold said.
    next_start_ms: u64,
    /// The last start of this owner; not handed over, since `next_start_ms` covers it.
    last_start_ms: Option<u64>,
    blocked_until_ms: u64,
    /// Doublings of the block that comes next.
    backoff: u32,
    /// Failures in a row.
    failures: u32,
    /// Present while the breaker is not closed.
    breaker: Option<Breaker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Breaker {
    open_until_ms: u64,
    /// Doublings that led to this opening.
    doublings: u32,
}

impl HostPace {
    /// A host of which nothing is known.
    pub fn new(rules: PaceRules) -> Self {
        Self {
            rules,
            in_flight: 0,
            crawl_delay_ms: 0,
            next_start_ms: 0,
            last_start_ms: None,
            blocked_until_ms: 0,
            backoff: 0,
            failures: 0,
            breaker: None,
        }
    }

    /// Takes over what the last owner of the key left with [`encode`](Self::encode). Waits that the rules cannot have
    /// made (a clock was wrong) are cut to the longest that they can.
    pub fn restore(rules: PaceRules, note: &[u8], now_ms: u64) -> Result<Self, DecodeError> {
        let mut input = Decoder::new("host pace", note);
        if input.u8()? != FORMAT {
            return Err(input.error("the format is not known to this version"));
        }
        let mut pace = Self::new(rules);
        pace.crawl_delay_ms = input.uint()?;
        pace.next_start_ms = input.uint()?;
        pace.blocked_until_ms = input.uint()?;
        pace.backoff = input.uint32()?.min(MAX_DOUBLINGS);
        pace.failures = input.uint32()?;
        pace.breaker = input.option(|input| {
            Ok(Breaker { open_until_ms: input.uint()?, doublings: input.uint32()?.min(MAX_DOUBLINGS) })
        })?;
        input.finish()?;

        let at_most = |until_ms: u64, wait_ms: u64| until_ms.min(now_ms.saturating_add(wait_ms));
        let rules = &pace.rules;
        pace.next_start_ms = at_most(pace.next_start_ms, rules.delay_ms.max(pace.crawl_delay_ms));
        pace.blocked_until_ms =
            at_most(pace.blocked_until_ms, rules.retry_after_max_ms.max(rules.backoff_max_ms));
        if let Some(breaker) = &mut pace.breaker {
            breaker.open_until_ms = at_most(breaker.open_until_ms, rules.breaker_max_ms);
        }
        Ok(pace)
    }

    /// What the next owner should know, in at most 64 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::versioned(FORMAT);
        out.uint(self.crawl_delay_ms).uint(self.next_start_ms).uint(self.blocked_until_ms);
        out.uint(u64::from(self.backoff)).uint(u64::from(self.failures));
        out.option(self.breaker, |out, breaker| {
            out.uint(breaker.open_until_ms).uint(u64::from(breaker.doublings));
        });
        out.finish()
    }

    /// Takes over the hold that came with the key's grant.
    pub fn hold(&mut self, now_ms: u64, hold_ms: u64) {
        self.next_start_ms = self.next_start_ms.max(now_ms.saturating_add(hold_ms));
    }

    /// Sets the delay that the site asks for; 0: none. It counts from the last start on: that one may have been the request
    /// for the robots.txt that asks for it.
    pub fn set_crawl_delay(&mut self, crawl_delay_ms: u64) {
        self.crawl_delay_ms = crawl_delay_ms;
        if let Some(last_start_ms) = self.last_start_ms {
            self.next_start_ms = self.next_start_ms.max(last_start_ms.saturating_add(self.delay_ms()));
        }
    }

    /// Least time between two starts now.
    pub fn delay_ms(&self) -> u64 {
        self.rules.delay_ms.max(self.crawl_delay_ms)
    }

    /// When the next request may start, `now_ms` or later; `None` until one that is in flight has ended.
    pub fn next_at(&self, now_ms: u64) -> Option<u64> {
        let limit = if self.breaker.is_some() { 1 } else { self.rules.per_host.max(1) };
        (self.in_flight < limit).then(|| self.free_at().max(now_ms))
    }

    /// Until when nothing may start, whatever is in flight.
    fn free_at(&self) -> u64 {
        let open_until_ms = self.breaker.map_or(0, |breaker| breaker.open_until_ms);
        self.next_start_ms.max(self.blocked_until_ms).max(open_until_ms)
    }

    /// A request starts.
    pub fn on_start(&mut self, now_ms: u64) {
        self.in_flight = self.in_flight.saturating_add(1);
        self.last_start_ms = Some(now_ms);
        self.next_start_ms = now_ms.saturating_add(self.delay_ms());
    }

    /// A request has ended.
    pub fn on_result(&mut self, now_ms: u64, result: FetchResult) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match result {
            FetchResult::Response { status, retry_after_ms } => {
                self.failures = 0;
                self.breaker = None;
                self.on_response(now_ms, status, retry_after_ms);
            }
            FetchResult::Failed => self.on_failure(now_ms),
            FetchResult::Abandoned => {}
        }
    }

    fn on_response(&mut self, now_ms: u64, status: u16, retry_after_ms: Option<u64>) {
        let is_refusal = matches!(status, 429 | 503);
        if !is_refusal {
            self.backoff = self.backoff.saturating_sub(1);
        }
        let wait_ms = match retry_after_ms {
            Some(wait_ms) if is_refusal || (300..400).contains(&status) => {
                wait_ms.min(self.rules.retry_after_max_ms)
            }
            _ if !is_refusal => return,
            // Answers to requests that were sent before the block began say nothing new.
            _ if now_ms < self.blocked_until_ms => return,
            _ => {
                let wait_ms = doubled(self.rules.backoff_min_ms, self.backoff, self.rules.backoff_max_ms);
                self.backoff = (self.backoff + 1).min(MAX_DOUBLINGS);
                wait_ms
            }
        };
        self.blocked_until_ms = self.blocked_until_ms.max(now_ms.saturating_add(wait_ms));
    }

    fn on_failure(&mut self, now_ms: u64) {
        // Requests that were in flight when it opened are no probes.
        if self.breaker.is_some_and(|breaker| now_ms < breaker.open_until_ms) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let doublings = match self.breaker {
            Some(breaker) => (breaker.doublings + 1).min(MAX_DOUBLINGS),
            None if self.failures < self.rules.breaker_failures => return,
            None => 0,
        };
        let open_ms = doubled(self.rules.breaker_min_ms, doublings, self.rules.breaker_max_ms);
        self.breaker = Some(Breaker { open_until_ms: now_ms.saturating_add(open_ms), doublings });
    }

    /// The breaker's state.
    pub fn breaker(&self, now_ms: u64) -> BreakerState {
        match self.breaker {
            None => BreakerState::Closed,
            Some(breaker) if now_ms < breaker.open_until_ms => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Probes that have failed since the breaker opened.
    pub fn failed_probes(&self) -> u32 {
        self.breaker.map_or(0, |breaker| breaker.doublings)
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Until when the host blocks us or is taken for dead; `None`: it does not, and is not.
    pub fn blocked_until(&self, now_ms: u64) -> Option<u64> {
        let until_ms = self.blocked_until_ms.max(self.breaker.map_or(0, |breaker| breaker.open_until_ms));
        (until_ms > now_ms).then_some(until_ms)
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// What is to be said about the key when work is handed in: the hold is what remains of delay, block and breaker.
    pub fn pace(&self, now_ms: u64, note: Option<Bytes>) -> Pace {
        Pace { hold_ms: self.free_at().saturating_sub(now_ms), delay_ms: self.delay_ms(), note }
    }
}

fn doubled(first_ms: u64, doublings: u32, max_ms: u64) -> u64 {
    first_ms.saturating_mul(1 << doublings.min(MAX_DOUBLINGS)).min(max_ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T: u64 = 1_800_000_000_000;

    fn response(status: u16, retry_after_ms: Option<u64>) -> FetchResult {
        FetchResult::Response { status, retry_after_ms }
    }

    /// Runs a history of (start, end, result), all in milliseconds from `T`, and returns when the next start may be.
    fn play(pace: &mut HostPace, history: &[(u64, u64, FetchResult)]) -> u64 {
        for &(start, end, result) in history {
            assert!(
                pace.next_at(T + start).is_some_and(|at| at <= T + start),
                "no start at {start} in {history:?}"
            );
            pace.on_start(T + start);
            pace.on_result(T + end, result);
        }
        pace.next_at(T).unwrap() - T
    }

    #[test]
    fn histories() {
        use FetchResult::{Abandoned, Failed};
        let ok = response(200, None);
        for (history, next) in [
            (&[][..], 0),
            (&[(0, 50, ok)], 1000),
            (&[(0, 5000, ok)], 1000),
            (&[(0, 50, ok), (1000, 1050, ok)], 2000),
            (&[(0, 50, Abandoned)], 1000),
            // Retry-After in seconds, capped, on a redirect, on a page that is no refusal.
            (&[(0, 50, response(429, Some(120_000)))], 120_050),
            (&[(0, 50, response(503, Some(0)))], 1000),
            (&[(0, 50, response(503, Some(u64::MAX)))], 3_600_050),
            (&[(0, 50, response(301, Some(7_000)))], 7_050),
            (&[(0, 50, response(200, Some(7_000)))], 1000),
            (&[(0, 50, response(500, None))], 1000),
            // Without the header the block doubles, and shrinks by one doubling per other answer.
            (&[(0, 50, response(429, None))], 5_050),
            (&[(0, 50, response(429, None)), (5_050, 5_100, response(503, None))], 15_100),
            (
                &[
                    (0, 0, response(429, None)),
                    (5_000, 5_000, response(429, None)),
                    (15_000, 15_000, response(429, None)),
                ],
                35_000,
            ),
            (
                &[
                    (0, 0, response(429, None)),
                    (5_000, 5_000, response(429, None)),
                    (15_000, 15_000, ok),
                    (16_000, 16_000, response(429, None)),
                ],
                26_000,
            ),
            // The breaker: five failures, a failed probe, a good one.
            (&[(0, 0, Failed), (1000, 1000, Failed), (2000, 2000, Failed), (3000, 3000, Failed)], 4000),
            (
                &[
                    (0, 0, Failed),
                    (1000, 1000, Failed),
                    (2000, 2000, Failed),
                    (3000, 3000, Failed),
                    (4000, 4000, Failed),
                ],
                34_000,
            ),
            (
                &[
                    (0, 0, Failed),
                    (1000, 1000, Failed),
                    (2000, 2000, Failed),
                    (3000, 3000, Failed),
                    (4000, 4000, Failed),
                    (34_000, 34_500, Failed),
                ],
                94_500,
            ),
            (
                &[
                    (0, 0, Failed),
                    (1000, 1000, Failed),
                    (2000, 2000, Failed),
                    (3000, 3000, Failed),
                    (4000, 4000, Failed),
                    (34_000, 34_500, response(500, None)),
                    (35_000, 35_000, Failed),
                ],
                36_000,
            ),
            // An answer in between starts the count again.
            (
                &[
                    (0, 0, Failed),
                    (1000, 1000, Failed),
                    (2000, 2000, Failed),
                    (3000, 3000, Failed),
                    (4000, 4000, response(404, None)),
                    (5000, 5000, Failed),
                ],
                6000,
            ),
        ] {
            let mut pace = HostPace::new(PaceRules::default());
            assert_eq!(play(&mut pace, history), next, "{history:?}");
            assert_eq!(pace.pace(T, None), Pace { hold_ms: next, delay_ms: 1000, note: None });
            let end = T + history.last().map_or(0, |(_, end, _)| *end);
            let restored = HostPace::restore(PaceRules::default(), &pace.encode(), end).unwrap();
            assert_eq!(restored, HostPace { last_start_ms: None, ..pace }, "{history:?}");
        }
    }

    #[test]
    fn blocks_have_a_ceiling() {
        let mut pace = HostPace::new(PaceRules::default());
        let mut now = T;
        let mut waits = Vec::new();
        for _ in 0..40 {
            pace.on_start(now);
            pace.on_result(now, response(429, None));
            let next = pace.next_at(now).unwrap();
            waits.push((next - now) / 1000);
            now = next;
        }
        assert_eq!(waits[..9], [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(waits[39], 600);

        let mut pace = HostPace::new(PaceRules { breaker_failures: 1, ..PaceRules::default() });
        let mut waits = Vec::new();
        for _ in 0..40 {
            pace.on_start(now);
            pace.on_result(now, FetchResult::Failed);
            let next = pace.next_at(now).unwrap();
            waits.push((next - now) / 1000);
            now = next;
        }
        assert_eq!(waits[..8], [30, 60, 120, 240, 480, 960, 1800, 1800]);
        assert_eq!(waits[39], 1800);
    }

    #[test]
    fn requests_at_once() {
        let mut pace = HostPace::new(PaceRules { delay_ms: 0, per_host: 2, ..PaceRules::default() });
        pace.on_start(T);
        assert_eq!(pace.next_at(T), Some(T));
        pace.on_start(T);
        assert_eq!(pace.next_at(T), None);
        // Two refusals at once are one block.
        pace.on_result(T + 10, response(429, None));
        pace.on_result(T + 20, response(429, None));
        assert_eq!(pace.next_at(T + 20), Some(T + 5_010));
        pace.on_start(T + 5_010);
        pace.on_result(T + 5_010, response(429, None));
        assert_eq!(pace.next_at(T), Some(T + 15_010));
    }

    #[test]
    fn the_breaker_lets_one_probe_through() {
        let rules = PaceRules { delay_ms: 0, per_host: 8, breaker_failures: 2, ..PaceRules::default() };
        let mut pace = HostPace::new(rules);
        for _ in 0..4 {
            pace.on_start(T);
        }
        for _ in 0..4 {
            pace.on_result(T + 5, FetchResult::Failed);
        }
        assert_eq!(pace.breaker(T + 5), BreakerState::Open);
        assert_eq!(pace.next_at(T + 5), Some(T + 30_005));
        assert_eq!(pace.blocked_until(T + 5), Some(T + 30_005));
        assert_eq!(pace.breaker(T + 30_005), BreakerState::HalfOpen);
        pace.on_start(T + 30_005);
        assert_eq!(pace.next_at(T + 30_005), None);
        pace.on_result(T + 30_100, FetchResult::Abandoned);
        assert_eq!(pace.next_at(T + 30_100), Some(T + 30_100));
        pace.on_start(T + 30_100);
        pace.on_result(T + 30_200, response(200, None));
        assert_eq!((pace.breaker(T + 30_200), pace.failures()), (BreakerState::Closed, 0));
        for _ in 0..8 {
            assert_eq!(pace.next_at(T + 30_200), Some(T + 30_200));
            pace.on_start(T + 30_200);
        }
        assert_eq!((pace.next_at(T + 30_200), pace.in_flight()), (None, 8));
    }

    #[test]
    fn the_longer_delay_counts() {
        let mut pace = HostPace::new(PaceRules::default());
        pace.set_crawl_delay(3000);
        pace.on_start(T);
        pace.on_result(T, response(200, None));
        assert_eq!(pace.next_at(T), Some(T + 3000));
        pace.set_crawl_delay(10);
        assert_eq!(pace.delay_ms(), 1000);
        pace.hold(T, 60_000);
        assert_eq!(pace.next_at(T), Some(T + 60_000));
    }

    /// A crash may lose the note but not the key's delay; robots.txt is fetched again then, and its delay must hold from
    /// that request on.
    #[test]
    fn a_crawl_delay_counts_from_the_request_that_told_it() {
        let mut pace = HostPace::new(PaceRules { delay_ms: 200, ..PaceRules::default() });
        pace.on_start(T);
        pace.on_result(T + 400, response(200, None));
        pace.set_crawl_delay(2_000);
        assert_eq!(pace.next_at(T + 400), Some(T + 2_000));
    }

    #[test]
    fn a_wrong_clock_does_not_block_for_ever() {
        let mut pace = HostPace::new(PaceRules { breaker_failures: 1, ..PaceRules::default() });
        let far = T * 2;
        pace.on_start(far);
        pace.on_result(far, response(429, Some(5000)));
        pace.on_start(far);
        pace.on_result(far, FetchResult::Failed);
        let restored = HostPace::restore(PaceRules::default(), &pace.encode(), T).unwrap();
        assert_eq!(restored.next_at(T), Some(T + 60 * 60_000));
        assert!(HostPace::restore(PaceRules::default(), &[7], T).is_err());
    }

    proptest! {
        /// Whatever happens, starts stay their delay apart and never exceed what may run at once; nothing overflows.
        #[test]
        fn any_history_is_polite(
            steps in prop::collection::vec((0_u64..200_000, 0_u8..6, any::<u64>()), 0..40),
            per_host in 0_u32..4,
            delay_ms in 0_u64..3000,
        ) {
            let mut pace = HostPace::new(PaceRules { per_host, delay_ms, ..PaceRules::default() });
            let (mut now, mut last) = (T, None::<u64>);
            for (step, action, value) in steps {
                now += step;
                match action {
                    0..=2 => if let Some(at) = pace.next_at(now) {
                        prop_assert!(at >= now);
                        prop_assert!(last.is_none_or(|last| at >= last + delay_ms));
                        pace.on_start(at);
                        (now, last) = (at, Some(at));
                        prop_assert!(pace.in_flight() <= per_host.max(1));
                    },
                    3 => pace.on_result(now, response(429, Some(value).filter(|value| value % 2 == 0))),
                    4 => pace.on_result(now, response(200, None)),
                    _ => pace.on_result(now, FetchResult::Failed),
                }
                prop_assert!(pace.pace(now, None).hold_ms <= 60 * 60_000);
                let note = pace.encode();
                prop_assert!(note.len() <= 64);
                let restored = HostPace::restore(pace.rules.clone(), &note, now).unwrap();
                prop_assert_eq!(restored.pace(now, None), pace.pace(now, None));
            }
        }
    }
}

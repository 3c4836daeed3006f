//! The token bucket of the snapshot lane. Pure: `now` is handed in, the time to wait comes out.

use std::time::Duration;

/// Lets `rate` bytes a second through, and up to a second's worth at once after a pause. A piece that is larger than
/// what is left goes into debt, which the next ones wait for: pieces of any size pass, and the mean holds.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Bytes per second; at least 1.
    rate: u64,
    /// Bytes that may go now; negative is debt.
    left: f64,
    /// When `left` was true.
    at: Duration,
}

impl Bucket {
    pub(super) fn new(rate: u64, now: Duration) -> Self {
        let rate = rate.max(1);
        Self { rate, left: rate as f64, at: now }
    }

    /// Takes `bytes`, and says how long to wait before they may be sent.
    pub(super) fn take(&mut self, now: Duration, bytes: usize) -> Duration {
        self.flow(now);
        // What is owed before these bytes is what they wait for.
        let wait = Duration::try_from_secs_f64((-self.left).max(0.0) / self.rate as f64);
        self.left -= bytes as f64;
        wait.unwrap_or(Duration::MAX)
    }

    /// Gives back what was taken and not sent.
    pub(super) fn refund(&mut self, now: Duration, bytes: usize) {
        self.flow(now);
        self.left = (self.left + bytes as f64).min(self.rate as f64);
    }

    fn flow(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * self.rate as f64).min(self.rate as f64);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At 1000 bytes a second: when (ms), bytes taken (negative: given back), wait (ms).
    #[test]
    fn pieces_wait_for_the_debt_before_them() {
        let mut bucket = Bucket::new(1000, Duration::ZERO);
        let table: [(u64, i64, u64); 11] = [
            (0, 400, 0),
            (0, 600, 0),
            (0, 500, 0),   // a second's worth is gone: this one goes into debt
            (0, 100, 500), // and the next waits for it
            (200, 100, 400),
            (700, 5000, 0), // the debt is paid to the last byte
            (700, 1, 5000),
            (1700, -5000, 0), // the large one was never sent
            (1700, 1, 0),
            (9000, 1000, 0), // a long pause saves up one second's worth, not eight
            (9000, 1, 0),
        ];
        for (line, (at, bytes, wait)) in table.into_iter().enumerate() {
            let now = Duration::from_millis(at);
            match usize::try_from(bytes) {
                Ok(bytes) => {
                    let waits = bucket.take(now, bytes);
                    assert_eq!(waits.as_secs_f64().mul_add(1000.0, 0.5) as u64, wait, "line {line}");
                }
                Err(_) => bucket.refund(now, bytes.unsigned_abs() as usize),
            }
        }
    }

    #[test]
    fn the_mean_holds_for_pieces_larger_than_a_second() {
        let mut bucket = Bucket::new(1 << 20, Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..10 {
            now += bucket.take(now, 8 << 20);
        }
        // Nine pieces of eight seconds, less the second that was saved up.
        assert_eq!(now.as_secs_f64().round(), 71.0);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let mut bucket = Bucket::new(1000, Duration::from_secs(10));
        bucket.take(Duration::from_secs(10), 2000);
        assert_eq!(bucket.take(Duration::from_secs(9), 1), Duration::from_secs(1));
        assert!(bucket.take(Duration::from_secs(10), 1) > Duration::from_secs(1));
    }
}

//! When to try again after a connection failed. Pure: `now` is handed in.

use std::time::Duration;

/// The wait after the first failure; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// The longest wait: a peer that has come back is found within it.
const LONGEST_WAIT: Duration = Duration::from_millis(800);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Duration,
}

impl Backoff {
    pub(super) fn allows(&self, now: Duration) -> bool {
        now >= self.until
    }

    pub(super) fn failed(&mut self, now: Duration) {
        let doubled = FIRST_WAIT.saturating_mul(1 << self.failures.min(16));
        self.until = now.saturating_add(doubled.min(LONGEST_WAIT));
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_end_with_success() {
        let mut backoff = Backoff::default();
        let mut now = Duration::from_secs(100);
        assert!(backoff.allows(now));
        for wait in [50, 100, 200, 400, 800, 800, 800] {
            backoff.failed(now);
            assert!(!backoff.allows(now + Duration::from_millis(wait - 1)), "{wait}");
            now += Duration::from_millis(wait);
            assert!(backoff.allows(now), "{wait}");
        }
        backoff.succeeded();
        backoff.failed(now);
        assert!(backoff.allows(now + FIRST_WAIT));
    }

    #[test]
    fn no_number_of_failures_overflows() {
        let mut backoff = Backoff { failures: u32::MAX, until: Duration::ZERO };
        backoff.failed(Duration::MAX);
        assert!(!backoff.allows(Duration::from_secs(1)));
    }
}

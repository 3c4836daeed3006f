//! What a leader stamps entries with: its clock, moved so that log time goes on from where it is. A core.

use crate::command::LogTime;

/// A clock that was set back, or a new leader's that is behind, must not make log time stand still until it has caught up:
/// neither holds nor delays nor leases would end meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    ahead_ms: u64,
    behind_ms: u64,
}

impl Stamps {
    /// Stamps from here on, where log time is `log_time` and the leader's clock shows `clock_ms`.
    pub fn begin(log_time: LogTime, clock_ms: u64) -> Self {
        Self::follow(log_time, clock_ms, 0)
    }

    /// Stamps of a leader that follows upon another. Nobody could renew a lease while there was none, and this one's clock
    /// may be ahead of the last one's: log time goes on as if no time had passed, up to `grace_ms`, and jumps by what is
    /// beyond that.
    pub fn follow(log_time: LogTime, clock_ms: u64, grace_ms: u64) -> Self {
        Self {
            ahead_ms: log_time.saturating_sub(clock_ms),
            behind_ms: clock_ms.saturating_sub(log_time).min(grace_ms),
        }
    }

    /// The stamp of an entry that is proposed when the clock shows `clock_ms`.
    pub fn at(self, clock_ms: u64) -> u64 {
        clock_ms.saturating_add(self.ahead_ms).saturating_sub(self.behind_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_time_goes_on_whatever_the_clock_was_set_to() {
        for (log_time, clock_ms, after) in [
            (0, 1_000, 1_001),
            (1_000, 1_000, 1_001),
            (1_000, 5_000, 5_001),
            (5_000, 1_000, 5_001),
            (u64::MAX, 1, u64::MAX),
        ] {
            assert_eq!(Stamps::begin(log_time, clock_ms).at(clock_ms + 1), after, "{log_time} {clock_ms}");
        }
    }

    #[test]
    fn time_without_a_leader_does_not_count_within_the_grace() {
        for (log_time, clock_ms, grace_ms, after) in [
            (1_000, 5_000, 4_000, 1_001),
            (1_000, 5_000, 60_000, 1_001),
            (1_000, 5_000, 1_000, 4_001),
            (5_000, 1_000, 60_000, 5_001),
            (1_000, 0, 60_000, 1_001),
        ] {
            let stamp = Stamps::follow(log_time, clock_ms, grace_ms).at(clock_ms + 1);
            assert_eq!(stamp, after, "{log_time} {clock_ms} {grace_ms}");
        }
    }
}

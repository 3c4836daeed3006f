//! The program's clock: milliseconds since 1970 that never go back within a process, whatever the system's clock does,
//! and that can be compared, with the system clock's accuracy, across restarts.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Reads the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_ms: u64,
}

impl Clock {
    /// Starts a clock at the system's time.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX / 2),
        }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.started_ms + u64::try_from(self.started.elapsed().as_millis()).unwrap_or(0)
    }

    /// The instant at which this clock shows `ms`.
    pub fn instant(&self, ms: u64) -> Instant {
        self.started + std::time::Duration::from_millis(ms.saturating_sub(self.started_ms))
    }
}

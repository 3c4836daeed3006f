//! Waiting for a condition with a deadline, instead of sleeping and hoping.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a condition is left alone between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks at something again and again until it is as wanted, and returns it.
///
/// `look` answers `Ok(wanted)` or `Err(state)`, where the state is what is there instead.
///
/// # Panics
/// After `deadline`, with `what` and the state that was seen last.
#[track_caller]
pub fn eventually<T, S: Debug>(what: &str, deadline: Duration, mut look: impl FnMut() -> Result<T, S>) -> T {
    let until = Instant::now() + deadline;
    loop {
        match look() {
            Ok(wanted) => return wanted,
            Err(state) if Instant::now() >= until => {
                panic!("{what}: not so after {deadline:?}; last seen: {state:?}")
            }
            Err(_) => sleep(LOOK_EVERY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_what_was_waited_for() {
        let mut looks = 0;
        let found = eventually("three looks", Duration::from_secs(10), || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(looks) }
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "the impossible: not so after 30ms; last seen: \"nothing\"")]
    fn says_what_was_seen_last() {
        eventually("the impossible", Duration::from_millis(30), || Err::<(), _>("nothing"));
    }
}

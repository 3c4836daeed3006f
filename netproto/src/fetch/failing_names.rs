//! Remembers names that could not be resolved because name servers failed, for longer each time. Pure: the time is an
//! argument. Answers ("there is no such name") are not kept here; the resolver's own cache has them with their TTL.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// For how long the first failure of a name is remembered.
const FIRST: Duration = Duration::from_secs(5);
/// For how long a failure is remembered at most.
const LONGEST: Duration = Duration::from_secs(5 * 60);
/// Names remembered; when there are more, the ones that run out first go.
const CAPACITY: usize = 8192;

/// Names that fail.
#[derive(Debug, Default)]
pub(super) struct FailingNames {
    names: HashMap<String, Failing>,
}

#[derive(Debug)]
struct Failing {
    until: Instant,
    term: Duration,
    message: String,
}

impl FailingNames {
    /// The message of the last failure if it is still remembered.
    pub(super) fn get(&self, name: &str, now: Instant) -> Option<&str> {
        self.names.get(name).filter(|failing| failing.until > now).map(|failing| failing.message.as_str())
    }

    /// Takes down a failure: twice as long as the one before.
    pub(super) fn failed(&mut self, name: &str, message: &str, now: Instant) {
        let term = match self.names.get(name) {
            Some(failing) => (failing.term * 2).min(LONGEST),
            None => FIRST,
        };
        if self.names.len() >= CAPACITY && !self.names.contains_key(name) {
            self.make_room(now);
        }
        let failing = Failing { until: now + term, term, message: message.to_owned() };
        self.names.insert(name.to_owned(), failing);
    }

    /// Forgets a name that has answered.
    pub(super) fn answered(&mut self, name: &str) {
        self.names.remove(name);
    }

    fn make_room(&mut self, now: Instant) {
        // A name that ran out keeps its term for one more LONGEST, so that doubling goes on at the next failure.
        self.names.retain(|_, failing| failing.until + LONGEST > now);
        if self.names.len() < CAPACITY {
            return;
        }
        let mut ends: Vec<Instant> = self.names.values().map(|failing| failing.until).collect();
        let (_, median, _) = ends.select_nth_unstable(CAPACITY / 2);
        let median = *median;
        self.names.retain(|_, failing| failing.until > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest_and_forgets_on_success() {
        let (mut names, mut now) = (FailingNames::default(), Instant::now());
        for seconds in [5, 10, 20, 40, 80, 160, 300, 300] {
            names.failed("a.test", "no", now);
            assert_eq!(names.get("a.test", now + Duration::from_millis(seconds * 1000 - 1)), Some("no"));
            now += Duration::from_secs(seconds);
            assert_eq!(names.get("a.test", now), None);
        }
        names.answered("a.test");
        names.failed("a.test", "no", now);
        assert_eq!(names.get("a.test", now + FIRST), None);
    }

    #[test]
    fn is_bounded() {
        let (mut names, now) = (FailingNames::default(), Instant::now());
        for i in 0..CAPACITY * 3 {
            names.failed(&format!("h{i}.test"), "no", now + Duration::from_millis(i as u64));
            assert!(names.names.len() <= CAPACITY);
        }
        let last = format!("h{}.test", CAPACITY * 3 - 1);
        assert_eq!(names.get(&last, now + Duration::from_secs(6)), Some("no"));
    }
}

//! The request log of a site: what arrived, when, and how close together. It is the judge of politeness, because what
//! counts is what a server sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::reply::Request;

/// One request that was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When its head had been read.
    pub at: Instant,
    /// Just before the last bytes of the answer were handed to the socket; `None` while it is being served. A client
    /// cannot know of the end earlier, so that intervals that overlap did overlap.
    pub until: Option<Instant>,
    /// Host name in lower case, without the port.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// Full URL as asked for.
    pub url: String,
    /// `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
    /// `User-Agent`, or empty.
    pub user_agent: String,
    /// Number of the connection.
    pub connection: u64,
}

impl Seen {
    /// Whether it asks for the rules of the host rather than for a page.
    pub fn is_robots(&self) -> bool {
        self.path == "/robots.txt"
    }
}

#[derive(Debug, Default)]
struct Entries {
    seen: Vec<Seen>,
    visits: BTreeMap<(String, String), u64>,
}

/// All requests of a site in the order of their arrival.
#[derive(Debug, Default)]
pub struct RequestLog {
    entries: Mutex<Entries>,
}

/// Number of an entry of the log, to note its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(usize);

impl RequestLog {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap()
    }

    /// Notes an arrival and counts the visit.
    pub(crate) fn arrived(&self, request: &mut Request) -> Ticket {
        let mut entries = self.lock();
        let visits = entries.visits.entry((request.host.clone(), request.path.clone())).or_insert(0);
        *visits += 1;
        request.visit = *visits;
        entries.seen.push(Seen {
            at: request.at,
            until: None,
            host: request.host.clone(),
            path: request.path.clone(),
            url: format!("{}{}", request.origin(), request.path),
            protocol: request.protocol,
            user_agent: request.header("user-agent").unwrap_or_default().to_owned(),
            connection: request.connection,
        });
        Ticket(entries.seen.len() - 1)
    }

    /// Notes the end of an answer. Only the first note counts.
    pub(crate) fn answered(&self, ticket: Ticket) {
        let mut entries = self.lock();
        if let Some(seen) = entries.seen.get_mut(ticket.0) {
            seen.until.get_or_insert_with(Instant::now);
        }
    }

    /// A copy of everything so far.
    pub fn all(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    /// How many requests there were.
    pub fn len(&self) -> usize {
        self.lock().seen.len()
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was seen of one host.
    pub fn of(&self, host: &str) -> Vec<Seen> {
        self.lock().seen.iter().filter(|seen| seen.host == host).cloned().collect()
    }

    /// How often a path of a host was asked for.
    pub fn hits(&self, host: &str, path: &str) -> usize {
        self.lock().seen.iter().filter(|seen| seen.host == host && seen.path == path).count()
    }

    /// Requests of a host, those for robots.txt left out.
    pub fn pages(&self, host: &str) -> usize {
        self.lock().seen.iter().filter(|seen| seen.host == host && !seen.is_robots()).count()
    }

    /// All paths of a host that were asked for, each once.
    pub fn paths(&self, host: &str) -> BTreeSet<String> {
        self.lock().seen.iter().filter(|seen| seen.host == host).map(|seen| seen.path.clone()).collect()
    }

    /// The least time between the arrivals of two requests of a host, robots.txt included; `None` with fewer than two.
    pub fn min_gap(&self, host: &str) -> Option<Duration> {
        let mut times: Vec<Instant> = self.of(host).iter().map(|seen| seen.at).collect();
        times.sort_unstable();
        times.windows(2).map(|pair| pair[1] - pair[0]).min()
    }

    /// The most requests of a host that were being served at one moment.
    pub fn max_in_flight(&self, host: &str) -> usize {
        let mut changes: Vec<(Instant, i32)> = Vec::new();
        for seen in self.of(host) {
            changes.push((seen.at, 1));
            if let Some(until) = seen.until {
                changes.push((until.max(seen.at), -1));
            }
        }
        // At one and the same moment an end comes before a start.
        changes.sort_unstable();
        let (mut now, mut most) = (0_i32, 0_i32);
        for (_, change) in changes {
            now += change;
            most = most.max(now);
        }
        usize::try_from(most).unwrap_or(0)
    }

    /// URLs that were asked for more than once and how often, robots.txt left out.
    pub fn repeats(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for seen in self.lock().seen.iter().filter(|seen| !seen.is_robots()) {
            *counts.entry(seen.url.clone()).or_insert(0) += 1;
        }
        counts.retain(|_, count| *count > 1);
        counts
    }

    /// How many connections were used for requests of a host.
    pub fn connections(&self, host: &str) -> usize {
        self.of(host).iter().map(|seen| seen.connection).collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &[(u64, u64)]) -> RequestLog {
        let start = Instant::now();
        let log = RequestLog::default();
        for (n, (from, to)) in entries.iter().enumerate() {
            log.lock().seen.push(Seen {
                at: start + Duration::from_millis(*from),
                until: Some(start + Duration::from_millis(*to)),
                host: "a.test".into(),
                path: format!("/{}", n % 3),
                url: format!("http://a.test/{}", n % 3),
                protocol: "HTTP/1.1",
                user_agent: String::new(),
                connection: n as u64 / 2,
            });
        }
        log
    }

    #[test]
    fn gaps_and_overlaps_are_those_of_the_intervals() {
        let log = log(&[(0, 10), (30, 90), (50, 60), (60, 95)]);
        assert_eq!(log.min_gap("a.test"), Some(Duration::from_millis(10)));
        assert_eq!(log.max_in_flight("a.test"), 2);
        assert_eq!(log.repeats().len(), 1);
        assert_eq!(log.connections("a.test"), 2);
        assert_eq!(log.min_gap("b.test"), None);
    }
}

//! The simulated web: a graph of links over a few hosts, with latencies and troubles, and what a crawl of it must come to.
//! Servers only; it knows nothing of the crawler.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;

/// What a page says in the end, once its troubles are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// 200, with links.
    Page,
    /// 404.
    Missing,
    /// 500, always.
    Broken,
    /// Forbidden by robots.txt.
    Private,
}

#[derive(Clone, Debug)]
struct Page {
    kind: Kind,
    links: Vec<String>,
    bytes: u64,
    /// What the first requests get instead.
    troubles: VecDeque<Answer>,
}

#[derive(Clone, Debug)]
struct Site {
    dead: bool,
    /// robots.txt, or none.
    robots: Option<String>,
    /// How often robots.txt fails first.
    robots_troubles: u32,
    crawl_delay_ms: u64,
    latency_ms: u64,
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing: the connection fails.
    Silence,
    /// A response.
    Response {
        /// Its status.
        status: u16,
        /// Its `Retry-After`, in milliseconds.
        retry_after_ms: Option<u64>,
        /// Its body, where it is robots.txt.
        body: String,
        /// The size of its body.
        bytes: u64,
        /// The links in it.
        links: Vec<String>,
    },
}

impl Answer {
    fn status(status: u16, retry_after_ms: Option<u64>) -> Self {
        Self::Response { status, retry_after_ms, body: String::new(), bytes: 0, links: Vec::new() }
    }
}

/// How a URL has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expected {
    /// With a page of so many bytes.
    Fetched(u64),
    /// Not requested, for robots.txt.
    Refused,
    /// Given up.
    Failed,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Web {
    sites: BTreeMap<String, Site>,
    pages: BTreeMap<String, Page>,
    /// Requests that were sent for each page.
    pub(super) requests: BTreeMap<String, u32>,
    rng: Rng,
}

impl Web {
    /// A web of its own for each seed. Every transient trouble of a page is over before `max_attempts` attempts are.
    pub(super) fn new(mut rng: Rng) -> Self {
        let (mut sites, mut pages) = (BTreeMap::new(), BTreeMap::<String, Page>::new());
        let hosts = rng.u64(2..=5);
        let mut urls = Vec::new();
        for host in 0..hosts {
            let name = format!("http://h{host}.test");
            let dead = host > 0 && rng.u8(..) < 50;
            let crawl_delay_ms = if rng.u8(..) < 60 { 2_000 } else { 0 };
            let mut robots = "User-agent: *\nDisallow: /private\n".to_owned();
            if crawl_delay_ms > 0 {
                robots.push_str("Crawl-delay: 2\n");
            }
            let site = Site {
                dead,
                robots: (crawl_delay_ms > 0 || rng.u8(..) < 200).then_some(robots),
                robots_troubles: u32::from(rng.u8(..) < 50),
                crawl_delay_ms,
                latency_ms: rng.u64(2..=400),
            };
            let mut silences = 2;
            for number in 0..rng.u64(2..=20) {
                let kind = match rng.u8(..) {
                    _ if number == 0 => Kind::Page,
                    0..18 => Kind::Missing,
                    18..26 => Kind::Broken,
                    26..44 if site.robots.is_some() => Kind::Private,
                    _ => Kind::Page,
                };
                let folder = if kind == Kind::Private { "private" } else { "p" };
                let url = format!("{name}/{folder}/{number}");
                let troubles = troubles(&mut rng, &mut silences);
                let bytes = if kind == Kind::Page { 1_000 + number } else { 100 };
                urls.push(url.clone());
                pages.insert(url, Page { kind, links: Vec::new(), bytes, troubles });
            }
            sites.insert(name, site);
        }
        // A tree reaches most pages; further links make it a graph.
        for (at, url) in urls.iter().enumerate().skip(1) {
            let from = urls[rng.usize(at.saturating_sub(6)..at)].clone();
            link(&mut pages, &from, url);
        }
        for _ in 0..urls.len() * 2 {
            let (from, to) = (&urls[rng.usize(..urls.len())], &urls[rng.usize(..urls.len())]);
            link(&mut pages, from, to);
        }
        Self { sites, pages, requests: BTreeMap::new(), rng }
    }

    /// Where a crawl starts.
    pub(super) fn seed(&self) -> String {
        "http://h0.test/p/0".to_owned()
    }

    /// The crawl delay that a host asks for.
    pub(super) fn crawl_delay_ms(&self, host: &str) -> u64 {
        self.sites.get(host).map_or(0, |site| site.crawl_delay_ms)
    }

    /// Answers the request for the robots.txt of a host, and says how long that takes.
    pub(super) fn robots(&mut self, host: &str) -> (Answer, u64) {
        let Some(site) = self.sites.get_mut(host) else { return (Answer::Silence, 1) };
        let took_ms = 1 + self.rng.u64(..=site.latency_ms);
        if site.dead {
            return (Answer::Silence, took_ms);
        }
        if site.robots_troubles > 0 {
            site.robots_troubles -= 1;
            return (Answer::status(503, None), took_ms);
        }
        let answer = match &site.robots {
            Some(body) => Answer::Response {
                status: 200,
                retry_after_ms: None,
                body: body.clone(),
                bytes: body.len() as u64,
                links: Vec::new(),
            },
            None => Answer::status(404, None),
        };
        (answer, took_ms)
    }

    /// Answers the request for a page.
    pub(super) fn get(&mut self, url: &str) -> (Answer, u64) {
        *self.requests.entry(url.to_owned()).or_default() += 1;
        let site = self.sites.iter().find(|(name, _)| host_of(url) == name.as_str());
        let Some((_, site)) = site else { return (Answer::Silence, 1) };
        let slow = if self.rng.u8(..) < 4 { 20_000 } else { 0 };
        let took_ms = 1 + slow + self.rng.u64(..=site.latency_ms);
        let Some(page) = self.pages.get_mut(url).filter(|_| !site.dead) else {
            return (Answer::Silence, took_ms);
        };
        if let Some(trouble) = page.troubles.pop_front() {
            return (trouble, took_ms);
        }
        let status = match page.kind {
            Kind::Page | Kind::Private => 200,
            Kind::Missing => 404,
            Kind::Broken => 500,
        };
        let links = if status == 200 { page.links.clone() } else { Vec::new() };
        let bytes = page.bytes;
        (Answer::Response { status, retry_after_ms: None, body: String::new(), bytes, links }, took_ms)
    }

    /// Every URL that can be reached from the seed, with how it has to end.
    pub(super) fn truth(&self) -> BTreeMap<String, Expected> {
        let mut truth = BTreeMap::new();
        let (mut open, mut known) = (vec![self.seed()], BTreeSet::from([self.seed()]));
        while let Some(url) = open.pop() {
            let (Some(page), Some(site)) = (self.pages.get(&url), self.sites.get(host_of(&url))) else {
                continue;
            };
            let expected = match page.kind {
                _ if site.dead => Expected::Failed,
                Kind::Broken => Expected::Failed,
                Kind::Private => Expected::Refused,
                Kind::Page | Kind::Missing => Expected::Fetched(page.bytes),
            };
            if matches!(expected, Expected::Fetched(_)) && page.kind == Kind::Page {
                open.extend(page.links.iter().filter(|link| known.insert((*link).clone())).cloned());
            }
            truth.insert(url, expected);
        }
        truth
    }
}

fn link(pages: &mut BTreeMap<String, Page>, from: &str, to: &str) {
    if let Some(page) = pages.get_mut(from) {
        page.links.push(to.to_owned());
    }
}

/// Scheme and authority of a URL of this web.
pub(super) fn host_of(url: &str) -> &str {
    let path = url.find("://").and_then(|at| url[at + 3..].find('/').map(|slash| at + 3 + slash));
    &url[..path.unwrap_or(url.len())]
}

/// At most two, so that the third attempt succeeds; connections fail seldom enough that no breaker opens.
fn troubles(rng: &mut Rng, silences: &mut u32) -> VecDeque<Answer> {
    let mut troubles = VecDeque::new();
    while troubles.len() < 2 && rng.u8(..) < 40 {
        troubles.push_back(match rng.u8(..4) {
            0 if *silences > 0 => {
                *silences -= 1;
                Answer::Silence
            }
            0 | 1 => Answer::status(503, Some(1_000 * rng.u64(1..=90))),
            2 => Answer::status(429, Some(1_000 * rng.u64(1..=30))),
            _ => Answer::status(503, None),
        });
    }
    troubles
}

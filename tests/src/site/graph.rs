//! A web generated from a seed: hosts, pages, links, and the truth about what a crawl of it has to find.
//!
//! The same seed and shape make the same web. Links are written in the many ways of real pages (relative, absolute,
//! with fragments, twice), so that a crawler has to resolve and deduplicate.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use super::reply::{Reply, Request};

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, the same everywhere. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next_u64() % bound.max(1) as u64).unwrap_or(0)
    }
}

/// How large a web is and how it hangs together.
#[derive(Clone, Debug)]
pub struct WebShape {
    /// Hosts. They are named `h0.web.test`, `h1.web.test` … and `h0.far.test` for every fourth.
    pub hosts: usize,
    /// Pages of each host, at least 1. The first is `/`; a third of the others lies under `/docs/`.
    pub pages_per_host: usize,
    /// Links to pages of the same host, beside the one that makes a page reachable.
    pub links: usize,
    /// Links to pages of other hosts, for every page.
    pub cross_links: usize,
    /// Text on every page, in bytes.
    pub text: usize,
    /// How long the server thinks about each page.
    pub delay: Duration,
}

impl Default for WebShape {
    fn default() -> Self {
        Self { hosts: 1, pages_per_host: 100, links: 4, cross_links: 0, text: 400, delay: Duration::ZERO }
    }
}

/// A page of a web.
#[derive(Clone, Debug)]
pub struct WebPage {
    /// Number of its host.
    pub host: usize,
    /// Its path.
    pub path: String,
    /// Numbers of the pages that it links to.
    pub links: Vec<usize>,
}

/// What a crawl is allowed to follow; the words of `--scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The host of the seed.
    Host,
    /// Hosts under the registrable domain of the seed.
    Domain,
    /// URLs of the seed's host under the folder of the seed.
    Prefix,
    /// Everything.
    Any,
}

/// A generated web.
#[derive(Clone, Debug)]
pub struct Web {
    names: Vec<String>,
    pages: Vec<WebPage>,
    by_place: BTreeMap<(usize, String), usize>,
    host_numbers: BTreeMap<String, usize>,
    text: usize,
    delay: Duration,
}

impl Web {
    /// Makes a web. Every page of a host is reachable from the host's `/`, and every host from the first one if
    /// `cross_links` is not 0.
    pub fn generate(seed: u64, shape: &WebShape) -> Self {
        let mut random = Random::new(seed);
        let names: Vec<String> = (0..shape.hosts)
            .map(|n| if n % 4 == 3 { format!("h{n}.far.test") } else { format!("h{n}.web.test") })
            .collect();
        let per_host = shape.pages_per_host.max(1);
        let mut pages: Vec<WebPage> = Vec::with_capacity(shape.hosts * per_host);
        for host in 0..shape.hosts {
            for n in 0..per_host {
                let path = match (n, n % 3) {
                    (0, _) => "/".to_owned(),
                    (_, 1) => format!("/docs/p{n}.html"),
                    _ => format!("/p{n}.html"),
                };
                pages.push(WebPage { host, path, links: Vec::new() });
            }
        }
        for host in 0..shape.hosts {
            let first = host * per_host;
            for n in 1..per_host {
                let parent = first + random.below(n);
                pages[parent].links.push(first + n);
            }
            for n in 0..per_host {
                for _ in 0..shape.links {
                    let target = first + random.below(per_host);
                    pages[first + n].links.push(target);
                }
                for _ in 0..if shape.hosts > 1 { shape.cross_links } else { 0 } {
                    let target = random.below(shape.hosts * per_host);
                    pages[first + n].links.push(target);
                }
            }
            if shape.cross_links > 0 && host > 0 {
                let from = random.below(host) * per_host;
                pages[from].links.push(first);
            }
        }
        let by_place =
            pages.iter().enumerate().map(|(n, page)| ((page.host, page.path.clone()), n)).collect();
        let host_numbers = names.iter().enumerate().map(|(n, name)| (name.clone(), n)).collect();
        Self { names, pages, by_place, host_numbers, text: shape.text, delay: shape.delay }
    }

    /// Names of the hosts.
    pub fn hosts(&self) -> &[String] {
        &self.names
    }

    /// All pages; those of one host lie together, its `/` first.
    pub fn pages(&self) -> &[WebPage] {
        &self.pages
    }

    /// The answer of one of its hosts.
    pub fn serve(&self, request: &Request) -> Reply {
        let Some(host) = self.host_numbers.get(&request.host) else { return Reply::not_found() };
        if request.path == "/robots.txt" {
            return Reply::text("User-agent: *\nAllow: /\n");
        }
        match self.by_place.get(&(*host, request.path_only().to_owned())) {
            Some(page) if request.query().is_empty() => {
                Reply::html(self.render(*page, request)).after(self.delay)
            }
            _ => Reply::not_found(),
        }
    }

    fn render(&self, number: usize, request: &Request) -> String {
        let page = &self.pages[number];
        let mut html = format!(
            "<!doctype html>\n<html><head><title>Page {number} of {}</title></head>\n<body>\n",
            self.names[page.host]
        );
        for (n, link) in page.links.iter().enumerate() {
            let target = &self.pages[*link];
            let origin = request.origin_of(&self.names[target.host]);
            let in_docs = page.path.starts_with("/docs/");
            let href = match n % 5 {
                _ if target.host != page.host => format!("{origin}{}", target.path),
                0 => target.path.clone(),
                1 => format!("{}{}", if in_docs { ".." } else { "." }, target.path),
                2 => format!("{origin}{}#part-{n}", target.path),
                3 => format!("//{}{}", origin.split_once("//").map_or("", |(_, rest)| rest), target.path),
                _ => format!("/x/..{}", target.path),
            };
            let _ = writeln!(html, "<p><a href=\"{href}\">Page {link}</a></p>");
        }
        let words = "the quick brown fox jumps over the lazy dog ";
        let _ = writeln!(html, "<p>{}</p>", &words.repeat(self.text / words.len() + 1)[..self.text]);
        html.push_str(
            "<p><a href=\"mailto:nobody@web.test\">mail</a> <a href=\"#top\">top</a></p>\n</body></html>\n",
        );
        html
    }

    /// What a crawl from one page finds: depth by URL, where `origin` gives scheme and authority of a host's name.
    pub fn truth(
        &self,
        start: usize,
        scope: Scope,
        max_depth: Option<u32>,
        origin: impl Fn(&str) -> String,
    ) -> BTreeMap<String, u32> {
        let seed = &self.pages[start];
        let domain = |host: usize| self.names[host].split_once('.').map_or("", |(_, domain)| domain);
        let folder = seed.path.rsplit_once('/').map_or("/", |(folder, _)| folder).to_owned() + "/";
        let allowed = |page: &WebPage| match scope {
            Scope::Host => page.host == seed.host,
            Scope::Domain => domain(page.host) == domain(seed.host),
            Scope::Prefix => page.host == seed.host && page.path.starts_with(&folder),
            Scope::Any => true,
        };
        let mut depths = BTreeMap::from([(start, 0_u32)]);
        let mut todo = VecDeque::from([start]);
        while let Some(number) = todo.pop_front() {
            let depth = depths[&number];
            if max_depth.is_some_and(|most| depth >= most) {
                continue;
            }
            for link in &self.pages[number].links {
                if allowed(&self.pages[*link]) && !depths.contains_key(link) {
                    depths.insert(*link, depth + 1);
                    todo.push_back(*link);
                }
            }
        }
        depths
            .into_iter()
            .map(|(number, depth)| {
                let page = &self.pages[number];
                (format!("{}{}", origin(&self.names[page.host]), page.path), depth)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn origin(host: &str) -> String {
        format!("http://{host}")
    }

    #[test]
    fn the_same_seed_makes_the_same_web() {
        let shape = WebShape { hosts: 8, cross_links: 2, ..WebShape::default() };
        let (one, two) = (Web::generate(7, &shape), Web::generate(7, &shape));
        assert_eq!(one.truth(0, Scope::Any, None, origin), two.truth(0, Scope::Any, None, origin));
        assert_ne!(one.pages()[5].links, Web::generate(8, &shape).pages()[5].links);
    }

    #[test]
    fn scopes_nest() {
        let shape = WebShape { hosts: 8, pages_per_host: 30, cross_links: 2, ..WebShape::default() };
        let web = Web::generate(1, &shape);
        let found = |scope| web.truth(0, scope, None, origin).len();
        assert_eq!(found(Scope::Host), 30);
        assert_eq!(found(Scope::Any), 240);
        assert!(found(Scope::Domain) > 30 && found(Scope::Domain) <= 180);
        let docs = web.truth(1, Scope::Prefix, None, origin);
        assert!(docs.keys().all(|url| url.starts_with("http://h0.web.test/docs/")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_page_is_reachable_and_depth_is_a_shortest_path(seed: u64, pages in 1_usize..60) {
            let web = Web::generate(seed, &WebShape { pages_per_host: pages, ..WebShape::default() });
            let truth = web.truth(0, Scope::Host, None, origin);
            prop_assert_eq!(truth.len(), pages);
            let deepest = truth.values().copied().max().unwrap();
            for depth in 0..deepest {
                let cut = web.truth(0, Scope::Host, Some(depth), origin);
                prop_assert!(cut.values().all(|found| *found <= depth));
                prop_assert_eq!(cut.len(), truth.values().filter(|found| **found <= depth).count());
            }
        }
    }
}

//! Hosts whose robots.txt is of every kind, and what a crawler that follows RFC 9309 does on each.
//!
//! The host `NAME.robots.test` has a front page that links to all paths that it names as reached or avoided.

use std::time::Duration;

use bytes::Bytes;

use super::encodings::gzip;
use crate::site::{Answer, Reply, Request, Script, Site};

/// A host with an odd robots.txt.
#[derive(Clone, Copy, Debug)]
pub struct RobotsHost {
    /// First label of its name.
    pub name: &'static str,
    /// Its robots.txt.
    pub answer: fn(&Request) -> Answer,
    /// Paths that a crawl from its `/` has to fetch.
    pub reached: &'static [&'static str],
    /// Paths that it must not fetch.
    pub avoided: &'static [&'static str],
}

impl RobotsHost {
    /// Its host name.
    pub fn host(&self) -> String {
        format!("{}.robots.test", self.name)
    }
}

const fn host(
    name: &'static str,
    answer: fn(&Request) -> Answer,
    reached: &'static [&'static str],
    avoided: &'static [&'static str],
) -> RobotsHost {
    RobotsHost { name, answer, reached, avoided }
}

/// No rule holds.
const ALL: &[&str] = &["/", "/open.html", "/private/x.html"];
/// What lies outside of `/private`.
const OPEN: &[&str] = &["/", "/open.html"];
/// What lies inside.
const PRIVATE: &[&str] = &["/private/x.html"];
const NONE: &[&str] = &[];
/// The usual rules.
const RULES: &str = "User-agent: *\nDisallow: /private\n";

fn text(rules: &str) -> Answer {
    Reply::text(rules).into()
}

fn status(code: u16) -> Answer {
    Reply::text(RULES).code(code).into()
}

/// A redirect over `hops` further hosts to the usual rules.
fn chain(request: &Request, hops: usize) -> Answer {
    Reply::redirect(302, format!("{}/chain/{}", request.origin_of("a.hops.test"), hops - 1)).into()
}

/// Rules of just over 600 KiB, whose byte 512,000 lies inside a line that would forbid `/open.html` if it were cut there.
fn long_rules() -> Bytes {
    const CUT: usize = 512_000;
    let mut rules = String::from(RULES);
    let line = "Disallow: /o";
    let filler = "# a comment that fills the file\n";
    while rules.len() + filler.len() + line.len() < CUT {
        rules.push_str(filler);
    }
    while rules.len() + line.len() < CUT - 1 {
        rules.push('#');
    }
    rules.push('\n');
    rules.push_str(line);
    rules.push_str("ther-and-longer\n");
    rules.push_str(&filler.repeat(600 * 1024 / filler.len() - 512_000 / filler.len()));
    rules.into()
}

/// Every kind.
pub const HOSTS: &[RobotsHost] = &[
    host("plain", |_| text(RULES), OPEN, PRIVATE),
    host("empty", |_| text(""), ALL, NONE),
    host("all", |_| text("User-agent: *\nDisallow: /\n"), NONE, ALL),
    host("status-404", |_| status(404), ALL, NONE),
    host("status-410", |_| status(410), ALL, NONE),
    host("status-401", |_| status(401), ALL, NONE),
    host("status-403", |_| status(403), ALL, NONE),
    host("status-429", |_| status(429), NONE, ALL),
    host("status-500", |_| status(500), NONE, ALL),
    host("status-503", |_| status(503), NONE, ALL),
    host("timeout", |_| Script::new().hang().into(), NONE, ALL),
    host("reset", |_| Script::new().reset().into(), NONE, ALL),
    host("chain-5", |request| chain(request, 5), OPEN, PRIVATE),
    // RFC 9309, section 2.3.1.2: at least five must be followed; beyond, either is right for what is private.
    host("chain-6", |request| chain(request, 6), OPEN, NONE),
    host(
        "loop",
        |request| Reply::redirect(302, format!("{}/robots.txt", request.origin())).into(),
        ALL,
        NONE,
    ),
    host("no-location", |_| Reply::status(302).into(), ALL, NONE),
    host("bom", |_| text("\u{feff}User-agent: *\nDisallow: /\n"), NONE, ALL),
    host("cr-only", |_| text("User-agent: *\rDisallow: /private\r"), OPEN, PRIVATE),
    host("crlf", |_| text("User-agent: *\r\nDisallow: /private\r\n"), OPEN, PRIVATE),
    host("html", |_| Reply::page("Not what you think", ["/"]).into(), ALL, NONE),
    host("soft-404", |_| Reply::page("Disallow: /", ["/"]).into(), ALL, NONE),
    host(
        "gzip",
        |_| Reply::with("text/plain", gzip(RULES.as_bytes())).header("Content-Encoding", "gzip").into(),
        OPEN,
        PRIVATE,
    ),
    host("long", |_| Reply::with("text/plain", long_rules()).into(), OPEN, PRIVATE),
    host(
        "endless",
        |_| {
            Reply::with("text/plain", RULES)
                .repeated("# and so on, and so on, and so on, and so on\n".repeat(100), 240_000)
                .into()
        },
        OPEN,
        PRIVATE,
    ),
    host("slow", |_| Reply::text(RULES).after(Duration::from_millis(300)).into(), OPEN, PRIVATE),
    host(
        "zeros",
        |_| {
            Reply::with(
                "text/plain",
                b"\0\0User-agent: *\nDis\0allow: /open\n\xff\xfe\nDisallow: /private\n".as_slice(),
            )
            .into()
        },
        &["/open.html"],
        NONE,
    ),
    host(
        "longest",
        |_| {
            text(
                "User-agent: *\nDisallow: /*.php$\nAllow: /a.php\nAllow: /ab.c.php\nDisallow: /a\nAllow: /$\nDisallow: /\nAllow: /b\nDisallow: /b\nAllow: /foo%2Abar\nAllow: /ツ\n",
            )
        },
        // `/*.php$` has seven octets, `/a.php` six.
        &["/", "/ab.c.php", "/b/1.html", "/foo%2Abar", "/%E3%83%84"],
        &["/a.php", "/a/1.html", "/x.php", "/c.html", "/fooXbar"],
    ),
    host(
        "groups",
        |_| {
            text(
                "User-agent: otherbot\nDisallow: /open.html\n\nUser-agent: *\nDisallow: /\n\nUser-agent: dolomedes\nDisallow: /private\n\nUser-agent: Dolomedes\nDisallow: /hidden\n",
            )
        },
        OPEN,
        &["/private/x.html", "/hidden/x.html"],
    ),
    host(
        "between",
        |_| {
            text(
                "User-agent: somebody\n\nSitemap: http://nowhere.invalid/s.xml\nUser-agent: *\nCrawl-delay: 0\n\nDisallow: /private\n",
            )
        },
        OPEN,
        PRIVATE,
    ),
    host("typos", |_| text("USERAGENT: *\nDissallow: /private\n"), OPEN, PRIVATE),
];

/// Serves all of them, and the hosts that redirects lead over.
pub fn install(site: &Site) {
    for kind in HOSTS {
        site.host(&kind.host(), move |request: &Request| match request.path.as_str() {
            "/robots.txt" => (kind.answer)(request),
            "/" => {
                let links = kind.reached.iter().chain(kind.avoided).filter(|path| **path != "/");
                Reply::page(kind.name, links).into()
            }
            _ => Reply::page(kind.name, [""; 0]).into(),
        });
    }
    site.host("a.hops.test", |request: &Request| {
        match request.path.strip_prefix("/chain/").and_then(|left| left.parse::<usize>().ok()) {
            Some(0) => Reply::text(RULES),
            Some(left) => {
                Reply::redirect(302, format!("{}/chain/{}", request.origin_of("a.hops.test"), left - 1))
            }
            None if request.path == "/robots.txt" => Reply::not_found(),
            None => Reply::page("A hop", ["/private/x.html"]),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_rules_have_their_cut_inside_a_rule() {
        let rules = long_rules();
        assert!(rules.len() > 600 * 1024 && rules.len() < 700 * 1024, "{}", rules.len());
        assert!(rules[..512_000].ends_with(b"\nDisallow: /o"));
    }
}

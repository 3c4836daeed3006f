//! The rules of a robots.txt file for one crawler: which URLs, how often, which sitemaps. What a missing or broken file
//! means is decided in [`super::verdict`].

use std::time::Duration;

use robotxt::Robots;
use url::Url;

use super::group::{is_token, select};

/// Bytes of a file that are read. RFC 9309 section 2.5 asks for 500 KiB at least; what follows, and the line that is
/// cut by the limit, are ignored.
pub const BYTE_LIMIT: usize = 500 * 1024;

/// The longest crawl-delay that is obeyed: a greater one is taken for this.
pub const MAX_CRAWL_DELAY: Duration = Duration::from_secs(60);

/// Sitemaps taken from one file at most.
pub const MAX_SITEMAPS: usize = 100;

/// Longest sitemap URL, in bytes.
const MAX_SITEMAP_BYTES: usize = 2048;

/// The product token of a `User-Agent` header: its beginning up to the first character that is neither letter, `-` nor
/// `_` (RFC 9309 section 2.2.1).
pub fn product_token(user_agent: &str) -> &str {
    let end = user_agent.bytes().position(|byte| !is_token(byte)).unwrap_or(user_agent.len());
    &user_agent[..end]
}

/// Rules for one crawler. Cheap to ask, immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsRules {
    robots: Robots,
    crawl_delay: Option<Duration>,
    sitemaps: Vec<Url>,
}

impl Default for RobotsRules {
    fn default() -> Self {
        Self::from_parts(&[], None, Vec::new())
    }
}

impl RobotsRules {
    /// Reads a file for the crawler with the product token `token`. `truncated` says that the file went on behind
    /// `file`, so that its last line may be cut. Never fails: what is no rule is no rule, and an HTML page has none.
    pub fn parse(file: &[u8], truncated: bool, token: &str) -> Self {
        let file = without_byte_order_mark(whole_lines(file, truncated));
        if is_html(file) {
            return Self::default();
        }
        let selection = select(file, token.as_bytes());
        let delay = selection.crawl_delay.map(|seconds| seconds.min(MAX_CRAWL_DELAY.as_secs_f64()));
        let sitemaps = selection.sitemaps.into_iter().filter(|text| text.len() <= MAX_SITEMAP_BYTES);
        let sitemaps = sitemaps.filter_map(|text| Url::parse(text).ok());
        let sitemaps =
            sitemaps.filter(|url| matches!(url.scheme(), "http" | "https")).take(MAX_SITEMAPS).collect();
        Self::from_parts(&selection.rules, delay.map(Duration::from_secs_f64), sitemaps)
    }

    /// Puts rules together from patterns, raw or normalised.
    pub(super) fn from_parts(
        rules: &[(bool, &[u8])],
        crawl_delay: Option<Duration>,
        sitemaps: Vec<Url>,
    ) -> Self {
        let mut text =
            Vec::with_capacity(16 + rules.iter().map(|(_, pattern)| pattern.len() + 11).sum::<usize>());
        text.extend_from_slice(b"user-agent:*\n");
        for (allow, pattern) in rules {
            text.extend_from_slice(if *allow { b"allow:" } else { b"disallow:" });
            text.extend_from_slice(pattern);
            text.push(b'\n');
        }
        Self { robots: Robots::parse(&text, robotxt::ANY_AGENT), crawl_delay, sitemaps }
    }

    /// Whether the URL may be fetched: the longest matching rule decides, `Allow` where two are as long (RFC 9309
    /// section 2.2.2). Only path and query are looked at. `/robots.txt` itself may always be fetched.
    pub fn allows(&self, url: &Url) -> bool {
        self.robots.is_url_allowed(url)
    }

    /// The least time between two requests that the site asks for, at most [`MAX_CRAWL_DELAY`].
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.crawl_delay
    }

    /// Sitemaps that the file names, at most [`MAX_SITEMAPS`]. They may be on other hosts.
    pub fn sitemaps(&self) -> &[Url] {
        &self.sitemaps
    }

    /// The normalised rules in order of precedence.
    pub(super) fn patterns(&self) -> impl ExactSizeIterator<Item = (bool, &str)> {
        self.robots.rules().iter().map(|rule| (rule.is_allow(), rule.pattern()))
    }
}

fn whole_lines(file: &[u8], truncated: bool) -> &[u8] {
    let kept = &file[..file.len().min(BYTE_LIMIT)];
    // A limit that falls on a line's end cuts nothing.
    let ends_line = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0);
    if !(truncated || file.len() > BYTE_LIMIT) || file.get(BYTE_LIMIT).is_some_and(ends_line) {
        return kept;
    }
    let end = kept.iter().rposition(ends_line).unwrap_or(0);
    &kept[..end]
}

/// Also takes a mark that lost its last bytes, as Google's parser does.
fn without_byte_order_mark(file: &[u8]) -> &[u8] {
    const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
    let shared = file.iter().zip(MARK).take_while(|(byte, mark)| **byte == *mark).count();
    &file[shared..]
}

fn is_html(file: &[u8]) -> bool {
    let start = file.trim_ascii_start();
    ["<!doctype html", "<html", "<head", "<body"]
        .iter()
        .any(|tag| start.get(..tag.len()).is_some_and(|bytes| bytes.eq_ignore_ascii_case(tag.as_bytes())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allows(file: &[u8], token: &str, path: &str) -> bool {
        let url = Url::parse(&format!("http://a.test{path}")).unwrap();
        RobotsRules::parse(file, false, token).allows(&url)
    }

    #[test]
    fn groups_and_lines() {
        for (file, path, expected) in [
            // Byte order mark: case 10 of the crawler cases.
            ("\u{feff}User-agent: *\nDisallow: /", "/x", false),
            // Precedence and encodings: case 14.
            ("User-agent: *\nDisallow: /*.php$\nAllow: /a.php\nDisallow: /a", "/a.php", false),
            ("User-agent: *\nDisallow: /*.p$\nAllow: /a.php\nDisallow: /a", "/a.php", true),
            ("User-agent: *\nDisallow: /*.php$", "/a.php?x", true),
            ("User-agent: *\nDisallow: /a\nAllow: /$", "/", true),
            ("User-agent: *\nDisallow: /\nAllow: /$", "/b", false),
            ("User-agent: *\nDisallow: /ab\nAllow: /ab", "/ab", true),
            ("User-agent: *\nDisallow: /foo%2Abar", "/fooxbar", true),
            ("User-agent: *\nDisallow: /ツ", "/%E3%83%84", false),
            ("User-agent: *\nDisallow: /%7ejoe", "/~joe", false),
            ("User-agent: *\nDisallow: /a%2fb", "/a/b", true),
            ("User-agent: *\nDisallow: /a%2fb", "/a%2Fb", false),
            // Groups: case 15.
            (
                "User-agent: bot\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: bot\nDisallow: /b",
                "/b",
                false,
            ),
            (
                "User-agent: bot\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: bot\nDisallow: /b",
                "/c",
                true,
            ),
            ("User-agent: bot\n\n\nUser-agent: x\n\nDisallow: /a", "/a", false),
            ("User-agent: bot\nSitemap: http://a.test/s\nUser-agent: x\nDisallow: /a", "/a", false),
            ("User-agent: bot\nCrawl-delay: 3\nUser-agent: x\nDisallow: /a", "/a", false),
            ("USERAGENT: bot\nDISALOW: /a", "/a", false),
            ("User-agent: x\rDisallow: /\rUser-agent: bot\rDisallow: /a\r", "/a", false),
            ("User-agent: x\rDisallow: /\rUser-agent: bot\rDisallow: /a\r", "/b", true),
            ("<!DOCTYPE HTML>\n<pre>\nUser-agent: *\nDisallow: /\n", "/a", true),
            ("  <html>User-agent: *\nDisallow: /\n", "/a", true),
            ("User-agent: Bot/2.1 (+http://bot.test)\nDisallow: /a", "/a", false),
            ("User-agent: bottle\nDisallow: /a", "/a", true),
            ("User-agent: *\nDisallow: /\nUser-agent: bot\nDisallow:", "/a", true),
            ("User-agent: *\nDisallow: /\nUser-agent: bot", "/a", true),
            ("User-agent: *\nDisallow: /", "/robots.txt", true),
            ("Disallow: /", "/a", true),
            ("", "/a", true),
        ] {
            assert_eq!(allows(file.as_bytes(), "bot", path), expected, "{file:?} {path}");
        }
    }

    #[test]
    fn crawl_delay_is_that_of_the_agents_above_it() {
        let delay = |file: &str| RobotsRules::parse(file.as_bytes(), false, "bot").crawl_delay();
        for (file, expected) in [
            ("User-agent: bot\nCrawl-delay: 2.5\nDisallow:", Some(2500)),
            ("User-agent: x\nCrawl-delay: 9\n\nUser-agent: *\nDisallow: /a", None),
            ("User-agent: *\nDisallow: /a\nCrawl-delay: 5", Some(5000)),
            ("User-agent: *\nCrawl-delay: 5\nUser-agent: bot\nDisallow: /a", None),
            ("User-agent: bot\nCrawl-delay: 9\nCrawl-delay: 4", Some(4000)),
            ("User-agent: bot\nCrawl-delay: 86400", Some(60_000)),
            ("User-agent: bot\nCrawl-delay: 1e300", Some(60_000)),
            ("User-agent: bot\nCrawl-delay: -1", None),
            ("User-agent: bot\nCrawl-delay: NaN", None),
            ("User-agent: bot\nCrawl-delay: soon", None),
        ] {
            assert_eq!(delay(file), expected.map(Duration::from_millis), "{file:?}");
        }
    }

    #[test]
    fn sitemaps_are_found_anywhere() {
        let file = "Sitemap: http://a.test/1.xml\nUser-agent: x\nSitemap:https://b.test/2.xml.gz # two\nDisallow: /\n\
                    sitemap: /relative.xml\nsitemap: ftp://a.test/3.xml\nSiteMap : http://a.test/4.txt";
        let rules = RobotsRules::parse(file.as_bytes(), false, "bot");
        let found: Vec<&str> = rules.sitemaps().iter().map(Url::as_str).collect();
        assert_eq!(found, ["http://a.test/1.xml", "https://b.test/2.xml.gz", "http://a.test/4.txt"]);
    }

    #[test]
    fn long_files_are_cut_at_a_line() {
        let mut file = b"User-agent: *\n".to_vec();
        while file.len() < BYTE_LIMIT - 20 {
            file.extend_from_slice(b"# padding\n");
        }
        file.resize(BYTE_LIMIT - 11, b'#');
        file.extend_from_slice(b"\nDisallow: /");
        let inside = file.len() - 2;
        assert_eq!(inside, BYTE_LIMIT - 1);
        // The rule `/` is cut to nothing at the limit: case 13.
        file.extend_from_slice(b"secret/page\nDisallow: /other\n");
        assert!(allows(&file, "bot", "/public"));
        assert!(allows(&file, "bot", "/other"));

        let cut = b"User-agent: *\nDisallow: /a\nDisallow: /";
        let url = Url::parse("http://a.test/b").unwrap();
        assert!(RobotsRules::parse(cut, true, "bot").allows(&url));
        assert!(!RobotsRules::parse(cut, false, "bot").allows(&url));
    }

    #[test]
    fn tokens() {
        assert_eq!(product_token("Dolomedes/0.1 (+https://example.com)"), "Dolomedes");
        assert_eq!(product_token("my_bot-x 2"), "my_bot-x");
        assert_eq!(product_token(""), "");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_file(bytes in prop::collection::vec(any::<u8>(), 0..256), truncated: bool) {
            let url = Url::parse("http://a.test/x?y").unwrap();
            let _ = RobotsRules::parse(&bytes, truncated, "bot").allows(&url);
        }

        #[test]
        fn rules_survive_being_put_together_again(
            lines in prop::collection::vec(("(allow|disallow|user-agent|x)", "[a-z*$/%#? ü.]{0,8}"), 0..12),
            path in "/[a-z/%.]{0,8}",
        ) {
            let body: String = lines.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
            let rules = RobotsRules::parse(format!("user-agent: bot\n{body}").as_bytes(), false, "bot");
            let parts: Vec<_> = rules.patterns().map(|(allow, pattern)| (allow, pattern.as_bytes())).collect();
            let again = RobotsRules::from_parts(&parts, None, Vec::new());
            let url = Url::parse(&format!("http://a.test{path}")).unwrap();
            prop_assert_eq!(again.allows(&url), rules.allows(&url));
            prop_assert_eq!(again.patterns().collect::<Vec<_>>(), rules.patterns().collect::<Vec<_>>());
        }
    }
}

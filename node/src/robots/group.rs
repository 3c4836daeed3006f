//! Finds, in a robots.txt file, the lines that concern one crawler. Matching is done by `robotxt`; the grouping is done
//! here, because it differs from that crate's in three points that real files need: `User-agent` values are cut to the
//! product token, `Crawl-delay` does not end a list of agents, and lines have a length limit.

/// Bytes of a line that are looked at, as in Google's parser.
const MAX_LINE: usize = 2083 * 8 - 1;

/// Sitemap lines at most.
const MAX_SITEMAPS: usize = 1000;

/// The lines of a file that concern one crawler.
#[derive(Debug, Default)]
pub(super) struct Selection<'a> {
    /// Rules: whether the rule allows, and its raw pattern.
    pub(super) rules: Vec<(bool, &'a [u8])>,
    /// The least crawl-delay in seconds.
    pub(super) crawl_delay: Option<f64>,
    /// Values of sitemap lines, wherever they are.
    pub(super) sitemaps: Vec<&'a str>,
}

/// What a line is about.
#[derive(Clone, Copy)]
enum Key {
    Agent,
    Allow,
    Disallow,
    CrawlDelay,
    Sitemap,
}

/// Spellings of keys, with those mistakes that are common enough for other crawlers to accept.
const KEYS: [(&[u8], Key); 18] = [
    (b"user-agent", Key::Agent),
    (b"user agent", Key::Agent),
    (b"useragent", Key::Agent),
    (b"allow", Key::Allow),
    (b"alow", Key::Allow),
    (b"allaw", Key::Allow),
    (b"disallow", Key::Disallow),
    (b"dissallow", Key::Disallow),
    (b"dissalow", Key::Disallow),
    (b"disalow", Key::Disallow),
    (b"diasllow", Key::Disallow),
    (b"disallaw", Key::Disallow),
    (b"crawl-delay", Key::CrawlDelay),
    (b"crawl delay", Key::CrawlDelay),
    (b"crawldelay", Key::CrawlDelay),
    (b"sitemap", Key::Sitemap),
    (b"site-map", Key::Sitemap),
    (b"site map", Key::Sitemap),
];

/// Selects what concerns the crawler with the product token `token`: its own groups merged, or those for `*` where it
/// has none (RFC 9309 section 2.2.1). Only a rule ends a list of agents; a crawl-delay counts for the agents above it.
pub(super) fn select<'a>(file: &'a [u8], token: &[u8]) -> Selection<'a> {
    let mut own = Selection::default();
    let mut any = Selection::default();
    let mut sitemaps = Vec::new();
    let (mut is_named, mut for_own, mut for_any, mut in_agents) = (false, false, false, false);
    for line in file.split(|byte| matches!(byte, b'\n' | b'\r' | 0)) {
        let Some((key, value)) = parse(&line[..line.len().min(MAX_LINE)]) else { continue };
        match key {
            Key::Agent => {
                if !in_agents {
                    (for_own, for_any, in_agents) = (false, false, true);
                }
                for_any |= is_star(value);
                for_own |= !token.is_empty() && cut(value).eq_ignore_ascii_case(token);
                is_named |= for_own;
            }
            Key::Allow | Key::Disallow => {
                let rule = (matches!(key, Key::Allow), value);
                in_agents = false;
                if for_own {
                    own.rules.push(rule);
                }
                if for_any {
                    any.rules.push(rule);
                }
            }
            Key::CrawlDelay => {
                let Some(seconds) = seconds(value) else { continue };
                for (applies, selection) in [(for_own, &mut own), (for_any, &mut any)] {
                    if applies {
                        selection.crawl_delay =
                            Some(selection.crawl_delay.map_or(seconds, |least| least.min(seconds)));
                    }
                }
            }
            Key::Sitemap if sitemaps.len() < MAX_SITEMAPS => {
                sitemaps.extend(std::str::from_utf8(value).ok().filter(|text| !text.is_empty()));
            }
            Key::Sitemap => {}
        }
    }
    Selection { sitemaps, ..if is_named { own } else { any } }
}

fn parse(line: &[u8]) -> Option<(Key, &[u8])> {
    let line = line.trim_ascii_start();
    let (spelling, key) = KEYS.iter().find(|(spelling, _)| {
        line.get(..spelling.len()).is_some_and(|start| start.eq_ignore_ascii_case(spelling))
    })?;
    let rest = &line[spelling.len()..];
    let value = rest.trim_ascii_start();
    let value = match value.strip_prefix(b":") {
        Some(value) => value,
        // The colon may be missing, but then there has to be space.
        None if value.len() < rest.len() => value,
        None => return None,
    };
    let end = memchr::memchr(b'#', value).unwrap_or(value.len());
    Some((*key, value[..end].trim_ascii()))
}

/// The value up to the first character that no product token has (RFC 9309 section 2.2.1).
fn cut(value: &[u8]) -> &[u8] {
    let end = value.iter().position(|byte| !is_token(*byte)).unwrap_or(value.len());
    &value[..end]
}

pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_')
}

fn is_star(value: &[u8]) -> bool {
    value.first() == Some(&b'*') && value.get(1).is_none_or(u8::is_ascii_whitespace)
}

fn seconds(value: &[u8]) -> Option<f64> {
    let seconds: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
}

//! The `Link` header (RFC 8288). Pure. Resolving targets and deciding what a relation means is the caller's.

use http::{HeaderMap, header};

/// Links taken from one response at most; the rest is ignored.
pub const MAX_LINKS: usize = 256;

/// One link of a `Link` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The target as written, to be resolved against the URL of the response.
    pub target: String,
    /// Relation types, in lower case, at least one.
    pub rels: Vec<String>,
    /// The context if it is not the response itself (`anchor`): such a link says something about another page.
    pub anchor: Option<String>,
    /// The media type hint.
    pub media_type: Option<String>,
    /// The language hint.
    pub hreflang: Option<String>,
}

impl Link {
    /// Whether the link has the relation `rel` (given in lower case).
    pub fn has_rel(&self, rel: &str) -> bool {
        self.rels.iter().any(|r| r == rel)
    }
}

/// The links of all `Link` headers, in order. Bytes outside of ASCII are taken as UTF-8. What cannot be parsed is skipped up
/// to the next comma that is neither in quotes nor in angle brackets. A link without `rel` is left out (RFC 8288 3.3 asks
/// for exactly one; of several the first counts).
pub fn links(headers: &HeaderMap) -> Vec<Link> {
    let mut found = Vec::new();
    for value in headers.get_all(header::LINK) {
        parse(&String::from_utf8_lossy(value.as_bytes()), &mut found);
        if found.len() >= MAX_LINKS {
            break;
        }
    }
    found
}

fn parse(value: &str, found: &mut Vec<Link>) {
    let mut rest = value;
    while found.len() < MAX_LINKS {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_ascii_whitespace());
        if rest.is_empty() {
            return;
        }
        let Some((target, after)) = rest.strip_prefix('<').and_then(|r| r.split_once('>')) else {
            rest = skip_element(rest);
            continue;
        };
        let (link, after) = parse_parameters(target.trim(), after);
        found.extend(link);
        rest = after;
    }
}

/// Parses `*( ";" param )` and returns what follows the element.
fn parse_parameters<'a>(target: &str, mut rest: &'a str) -> (Option<Link>, &'a str) {
    let (mut rel, mut anchor, mut media_type, mut hreflang) = (None, None, None, None);
    loop {
        rest = rest.trim_start();
        let Some(after) = rest.strip_prefix(';') else { break };
        let after = after.trim_start();
        let end = after.find(['=', ';', ',', ' ', '\t']).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => parse_value(after.trim_start()),
            None => (String::new(), after),
        };
        let slot = match () {
            () if name.eq_ignore_ascii_case("rel") => Some(&mut rel),
            () if name.eq_ignore_ascii_case("anchor") => Some(&mut anchor),
            () if name.eq_ignore_ascii_case("type") => Some(&mut media_type),
            () if name.eq_ignore_ascii_case("hreflang") => Some(&mut hreflang),
            () => None,
        };
        if let Some(slot) = slot {
            slot.get_or_insert(value);
        }
        rest = after;
    }
    let rels: Vec<String> =
        rel.unwrap_or_default().split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
    let link =
        (!rels.is_empty()).then(|| Link { target: target.to_owned(), rels, anchor, media_type, hreflang });
    (link, skip_element(rest))
}

/// A token or a quoted string, and what follows it.
fn parse_value(rest: &str) -> (String, &str) {
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([';', ',', ' ', '\t']).unwrap_or(rest.len());
        let (value, rest) = rest.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

/// What follows the next comma outside of quotes and angle brackets.
fn skip_element(rest: &str) -> &str {
    let (mut in_quotes, mut in_brackets, mut escaped) = (false, false, false);
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_quotes => escaped = true,
            '"' => in_quotes = !in_quotes,
            '<' if !in_quotes => in_brackets = true,
            '>' if !in_quotes => in_brackets = false,
            ',' if !in_quotes && !in_brackets => return &rest[at + 1..],
            _ => {}
        }
    }
    ""
}

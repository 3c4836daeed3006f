//! From references as written to absolute `http` and `https` URLs: the WHATWG serialization without the
//! fragment. It is not the crawler's canonical form, which has further rewrites.
//!
//! A page repeats itself and mostly points beside itself, so references are deduplicated as written before
//! anything is parsed, and plain ones are joined by copying. What the shortcut cannot prove plain goes
//! through the `url` crate.

use std::collections::HashMap;
use std::ops::Range;

use encoding_rs::{Encoding, UTF_8};
use url::{Position, Url};

use super::links::{Link, LinkKind, PageScan, Rel};

/// Bytes of a resolved URL; longer ones are dropped and counted.
pub const MAX_URL: usize = 8 * 1024;

/// What became of references that did not become URLs of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResolveCounts {
    /// Repeats of a reference on the same page.
    pub repeated: usize,
    /// References to the document itself (`#top`, empty).
    pub same_document: usize,
    /// Of a scheme that is not HTTP, such as `mailto:`.
    pub other_scheme: usize,
    /// Not parsable as a URL.
    pub invalid: usize,
    /// Longer than [`MAX_URL`].
    pub too_long: usize,
}

/// One resolved link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedLink<'r> {
    /// Absolute, `http` or `https`, serialized as WHATWG does, without fragment.
    pub url: &'r str,
    /// Of its first mention; a mention as a page wins over one as an asset.
    pub kind: LinkKind,
    /// What all its mentions agree on: one mention without `nofollow` is enough to follow.
    pub rel: Rel,
}

#[derive(Clone, Debug)]
struct Entry {
    url: Range<usize>,
    kind: LinkKind,
    rel: Rel,
}

/// The links of a page, in order of first mention. References that were written differently may still be
/// equal.
#[derive(Clone, Debug)]
pub struct ResolvedLinks {
    /// What references were resolved against.
    pub base: Url,
    /// What was left out.
    pub counts: ResolveCounts,
    text: String,
    entries: Vec<Entry>,
}

impl ResolvedLinks {
    /// The links.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ResolvedLink<'_>> {
        self.entries.iter().map(|entry| ResolvedLink {
            url: &self.text[entry.url.clone()],
            kind: entry.kind,
            rel: entry.rel,
        })
    }

    /// How many links.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The URL that a page's references resolve against: its first `base`, itself resolved against the URL that
/// the page was finally fetched from. A `base` that does not parse, or of a `data:` or `javascript:` URL, has
/// no effect.
pub fn base_of(page: &PageScan<'_>, document: &Url) -> Url {
    page.base
        .as_ref()
        .and_then(|base| document.join(base).ok())
        .filter(|base| !matches!(base.scheme(), "data" | "javascript"))
        .unwrap_or_else(|| document.clone())
}

/// Resolves one reference (a canonical link, a refresh) without shortcuts; `None` when it is no HTTP URL.
/// `encoding` is the document's: it decides how characters outside ASCII in a query are written.
pub fn resolve_one(href: &str, base: &Url, encoding: &'static Encoding) -> Option<Url> {
    let mut url = join(href, base, encoding).ok()?;
    url.set_fragment(None);
    matches!(url.scheme(), "http" | "https").then_some(url)
}

fn join(href: &str, base: &Url, encoding: &'static Encoding) -> Result<Url, url::ParseError> {
    let output = encoding.output_encoding();
    if output == UTF_8 {
        return base.join(href);
    }
    let encode = |text: &str| output.encode(text).0.into_owned().into();
    Url::options().base_url(Some(base)).encoding_override(Some(&|text| encode(text))).parse(href)
}

/// Resolves all links of `page`, which was fetched from `document` (after redirects) in `encoding`.
pub fn resolve(page: &PageScan<'_>, document: &Url, encoding: &'static Encoding) -> ResolvedLinks {
    let base = base_of(page, document);
    let plain = PlainBase::of(&base);
    let base_is_document = page.base.is_none();
    let mut counts = ResolveCounts::default();
    let mut text = String::with_capacity(page.links.len() * 48);
    let mut entries: Vec<Entry> = Vec::with_capacity(page.links.len());
    // By reference, without its fragment: the entry made of it, or none.
    let mut known: HashMap<&str, Option<usize>> = HashMap::with_capacity(page.links.len());

    for Link { href, kind, rel } in &page.links {
        // In every state of the URL parser the first `#` begins the fragment. The parser gets it to see, or
        // it would strip white space before it as the end of the reference.
        let (href, parsed) = match memchr::memchr(b'#', href.as_bytes()) {
            Some(at) => (&href[..at], &href[..=at]),
            None => (href.as_ref(), href.as_ref()),
        };
        if href.is_empty() && base_is_document {
            counts.same_document += 1;
            continue;
        }
        if has_other_scheme(href) {
            counts.other_scheme += 1;
            continue;
        }
        let slot = match known.entry(href) {
            std::collections::hash_map::Entry::Occupied(slot) => {
                counts.repeated += 1;
                if let Some(entry) = slot.get().and_then(|at| entries.get_mut(at)) {
                    merge(entry, *kind, *rel);
                }
                continue;
            }
            std::collections::hash_map::Entry::Vacant(slot) => slot.insert(None),
        };
        let start = text.len();
        if !plain.as_ref().is_some_and(|plain| plain.join(href, &mut text)) {
            match join(parsed, &base, encoding) {
                Ok(url) if matches!(url.scheme(), "http" | "https") => {
                    text.push_str(&url[..Position::AfterQuery])
                }
                Ok(_) => {
                    counts.other_scheme += 1;
                    continue;
                }
                Err(_) => {
                    counts.invalid += 1;
                    continue;
                }
            }
        }
        if text.len() - start > MAX_URL {
            text.truncate(start);
            counts.too_long += 1;
            continue;
        }
        *slot = Some(entries.len());
        entries.push(Entry { url: start..text.len(), kind: *kind, rel: *rel });
    }
    ResolvedLinks { base, counts, text, entries }
}

fn merge(entry: &mut Entry, kind: LinkKind, rel: Rel) {
    if entry.kind.is_asset() && !kind.is_asset() {
        entry.kind = kind;
    }
    entry.rel = Rel {
        nofollow: entry.rel.nofollow && rel.nofollow,
        ugc: entry.rel.ugc && rel.ugc,
        sponsored: entry.rel.sponsored && rel.sponsored,
    };
}

/// The schemes that pages are full of, known without parsing.
fn has_other_scheme(href: &str) -> bool {
    if !matches!(href.as_bytes().first(), Some(b'j' | b'J' | b'm' | b'M' | b'd' | b'D' | b't' | b'T')) {
        return false;
    }
    ["javascript:", "mailto:", "data:", "tel:"]
        .iter()
        .any(|scheme| href.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme)))
}

/// An HTTP base URL, cut up for joining by copy. Its path is normal already, as every parsed URL's is.
struct PlainBase<'b> {
    scheme: &'b str,
    /// Up to the path: `https://host:port`.
    origin: &'b str,
    path: &'b str,
    /// Up to and with the path's last slash.
    directory: &'b str,
    /// All but the fragment.
    whole: &'b str,
}

impl<'b> PlainBase<'b> {
    fn of(base: &'b Url) -> Option<PlainBase<'b>> {
        if !matches!(base.scheme(), "http" | "https") {
            return None;
        }
        let path = base.path();
        Some(PlainBase {
            scheme: base.scheme(),
            origin: &base[..Position::BeforePath],
            path,
            directory: &path[..path.rfind('/')? + 1],
            whole: &base[..Position::AfterQuery],
        })
    }

    /// Appends the URL that `href` (without fragment) stands for, or leaves `out` alone and returns false
    /// when that takes a parser.
    fn join(&self, href: &str, out: &mut String) -> bool {
        let bytes = href.as_bytes();
        match bytes {
            [] => out.push_str(self.whole),
            [b'/', b'/', authority @ ..] if is_plain_authority(authority) => {
                out.push_str(self.scheme);
                out.push(':');
                push_with_path(href, authority, out);
            }
            [b'/', b'/', ..] => return false,
            [b'/', path @ ..] if is_plain_path(path) => {
                out.push_str(self.origin);
                out.push_str(href);
            }
            [b'?', query @ ..] if is_plain_query(query) => {
                out.push_str(self.origin);
                out.push_str(self.path);
                out.push_str(href);
            }
            [b'h', b't', b't', b'p', b':', b'/', b'/', authority @ ..]
            | [b'h', b't', b't', b'p', b's', b':', b'/', b'/', authority @ ..] => {
                if !is_plain_authority(authority) {
                    return false;
                }
                push_with_path(href, authority, out);
            }
            [b'/' | b'?', ..] => return false,
            _ => return self.join_beside(href, out),
        }
        true
    }

    /// A reference relative to the base's directory, with any number of leading `./` and `../`.
    fn join_beside(&self, href: &str, out: &mut String) -> bool {
        let mut directory = self.directory;
        let mut rest = href;
        loop {
            if let Some(after) = rest.strip_prefix("../") {
                rest = after;
                // The root's parent is the root.
                let parent = directory[..directory.len() - 1].rfind('/').map_or(0, |at| at) + 1;
                directory = &directory[..parent];
            } else if let Some(after) = rest.strip_prefix("./") {
                rest = after;
            } else {
                break;
            }
        }
        // A colon in the first segment would make it a scheme.
        let first = rest.split(['/', '?']).next().unwrap_or_default();
        if first.contains(':') || !is_plain_path(rest.as_bytes()) {
            return false;
        }
        out.push_str(self.origin);
        out.push_str(directory);
        out.push_str(rest);
        true
    }
}

/// Appends an absolute URL whose part after `//` is `authority`, with the path that the serialization always
/// has.
fn push_with_path(href: &str, authority: &[u8], out: &mut String) {
    match authority.iter().position(|b| matches!(b, b'/' | b'?')) {
        Some(end) if authority[end] == b'/' => out.push_str(href),
        Some(end) => {
            let (head, query) = href.split_at(href.len() - authority.len() + end);
            out.push_str(head);
            out.push('/');
            out.push_str(query);
        }
        None => {
            out.push_str(href);
            out.push('/');
        }
    }
}

const PATH: u8 = 1;
const QUERY: u8 = 2;

/// Bytes that the URL parser copies as they are.
static PLAIN: [u8; 256] = {
    let mut plain = [0u8; 256];
    let mut i = 0;
    while i < 128 {
        let b = i as u8;
        if b.is_ascii_alphanumeric() {
            plain[i] = PATH | QUERY;
        }
        i += 1;
    }
    let both = b"-._~!$&()*+,;=:@%/";
    i = 0;
    while i < both.len() {
        plain[both[i] as usize] = PATH | QUERY;
        i += 1;
    }
    plain[b'?' as usize] = QUERY;
    plain
};

fn is_plain_query(query: &[u8]) -> bool {
    query.iter().all(|b| PLAIN[*b as usize] & QUERY != 0)
}

/// Whether a path (from the beginning of a segment on) and the query behind it are copied as they are: no
/// byte is encoded, and no segment begins like a dot segment, be it as `%2e`.
fn is_plain_path(path: &[u8]) -> bool {
    let mut before = b'/';
    for (at, b) in path.iter().enumerate() {
        if PLAIN[*b as usize] & PATH == 0 {
            return *b == b'?' && is_plain_query(&path[at + 1..]);
        }
        if before == b'/' && matches!(b, b'.' | b'%') {
            return false;
        }
        before = *b;
    }
    true
}

/// Whether what follows `//` is a lower-case DNS name that IDNA and the IPv4 parser leave alone, without
/// user, port or root dot, and then a plain path or query.
fn is_plain_authority(authority: &[u8]) -> bool {
    let end = authority.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(authority.len());
    let (host, rest) = authority.split_at(end);
    if host.len() > 253 {
        return false;
    }
    let mut last = b'.';
    let mut last_label_starts_alphabetic = false;
    for b in host {
        match b {
            b'a'..=b'z' | b'0'..=b'9' => {
                if last == b'.' {
                    last_label_starts_alphabetic = b.is_ascii_lowercase();
                }
            }
            b'-' if last != b'-' && last != b'.' => {}
            b'.' if last != b'.' && last != b'-' => {}
            _ => return false,
        }
        last = *b;
    }
    if !last_label_starts_alphabetic || matches!(last, b'.' | b'-') {
        return false;
    }
    match rest {
        [] => true,
        [b'/', path @ ..] => is_plain_path(path),
        [_, query @ ..] => is_plain_query(query),
    }
}

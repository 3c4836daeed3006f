//! What the fetches of one host show together: counters by URL shape in a table of fixed size, in memory only. After a
//! restart counting begins anew, which can only make it more lenient; the budgets stay exact.

use std::collections::HashMap;

use url::Url;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::{Suspicion, TrapKind, TrapRules};

/// Shapes counted per host.
const MAX_SHAPES: usize = 512;

/// Sets of parameters per host whose orders are watched.
const MAX_ORDERINGS: usize = 512;

/// Contents remembered per shape.
const CONTENTS: usize = 4;

/// Characters in a row that make a hex string: shorter ones are words or numbers.
const MIN_HEX: usize = 8;

/// Characters of a value that may be a session id.
const MIN_TOKEN: usize = 8;

/// Counters of one host.
#[derive(Clone, Debug, Default)]
pub struct HostTraps {
    shapes: Table<u32>,
    contents: Table<Contents>,
    orderings: Table<Vec<u64>>,
}

/// The last contents of a shape, and how many pages in a row had one of them.
#[derive(Clone, Debug, Default)]
struct Contents {
    last: [u64; CONTENTS],
    next: usize,
    repeats: u32,
}

impl HostTraps {
    /// No URL seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a canonical URL that is about to be fetched, and says if it should not be. To be called once per URL:
    /// counting one again would make a trap of a site.
    pub fn on_fetch(&mut self, url: &Url, rules: &TrapRules) -> Option<Suspicion> {
        let shape = Shape::of(url)?;
        if let Some(query) = url.query()
            && let Some(suspicion) = self.on_query(url, query, &shape, rules)
        {
            return Some(suspicion);
        }
        let (kind, limit) = match url.query() {
            Some(_) => (TrapKind::QueryVariants, rules.max_query_variants),
            None => (TrapKind::PathVariants, rules.max_path_variants),
        };
        if self.shapes.count(shape.key) > limit {
            return Some(Suspicion::new(kind, &shape.text));
        }
        let given_up = |contents: &&mut Contents| contents.repeats >= rules.max_same_content;
        self.contents
            .get(shape.key)
            .filter(given_up)
            .map(|_| Suspicion::new(TrapKind::SameContent, &shape.text))
    }

    /// Takes note of a page's content (any digest of it), to find shapes that yield nothing new.
    pub fn on_content(&mut self, url: &Url, digest: u64) {
        let Some(shape) = Shape::of(url) else { return };
        let contents = self.contents.entry(shape.key);
        // 0 marks free places; a digest of 0 only goes unnoticed.
        if contents.last.contains(&digest) {
            contents.repeats = contents.repeats.saturating_add(1);
        } else {
            contents.repeats = 0;
            contents.last[contents.next] = digest;
            contents.next = (contents.next + 1) % CONTENTS;
        }
    }

    fn on_query(&mut self, url: &Url, query: &str, shape: &Shape, rules: &TrapRules) -> Option<Suspicion> {
        let path = url.path();
        let mut parameters: Vec<&str> = query.split('&').filter(|parameter| !parameter.is_empty()).collect();
        let order = xxh3_64(query.as_bytes());
        if parameters.len() >= 3
            && self.shapes.count(hash_of(b"facets", [shape.path.as_str()])) > rules.max_facets
        {
            return Some(Suspicion::new(TrapKind::Facets, &format!("{}?…&…&…", shape.path)));
        }
        if let Some(name) = parameters.iter().find_map(|parameter| session_name(parameter)) {
            let rest = parameters.iter().filter(|parameter| session_name(parameter).is_none()).copied();
            let key = hash_of(b"session", std::iter::once(path).chain(rest));
            if self.shapes.count(key) > rules.max_sessions {
                return Some(Suspicion::new(TrapKind::SessionId, &format!("{path}?{name}=…")));
            }
        }
        if parameters.len() >= 2 {
            parameters.sort_unstable();
            let key = hash_of(b"order", std::iter::once(path).chain(parameters));
            let orders = self.orderings.entry(key);
            if !orders.contains(&order) {
                if orders.len() >= rules.max_orders as usize {
                    return Some(Suspicion::new(TrapKind::Permutation, &shape.text));
                }
                orders.push(order);
            }
        }
        None
    }
}

fn hash_of<'a>(what: &[u8], parts: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher.update(what);
    for part in parts {
        hasher.update(&[0]);
        hasher.update(part.as_bytes());
    }
    hasher.digest()
}

/// The name of a parameter that carries a session id by the look of both its name and its value.
fn session_name(parameter: &str) -> Option<&str> {
    let (name, value) = parameter.split_once('=')?;
    let lower = name.to_ascii_lowercase();
    let named = ["sid", "sess", "token", "nonce"].iter().any(|part| lower.contains(part));
    let token = value.len() >= MIN_TOKEN && value.bytes().any(|byte| byte.is_ascii_digit());
    (named && token).then_some(name)
}

/// A URL with its variable parts collapsed. URLs without such parts have none: each of them is its own.
struct Shape {
    key: u64,
    path: String,
    text: String,
}

impl Shape {
    fn of(url: &Url) -> Option<Self> {
        let (path, collapsed) = collapse(url.path());
        let text = match url.query() {
            Some(query) => {
                let mut names: Vec<&str> =
                    query.split('&').map(|parameter| parameter.split('=').next().unwrap_or("")).collect();
                names.sort_unstable();
                format!("{path}?{}=…", names.join("=…&"))
            }
            None if collapsed => path.clone(),
            None => return None,
        };
        Some(Self { key: xxh3_64(text.as_bytes()), path, text })
    }
}

/// Replaces runs of digits by `0` and hex strings by `f`; says whether there was any.
fn collapse(path: &str) -> (String, bool) {
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(path.len());
    let (mut at, mut plain, mut any) = (0, 0, false);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let hex = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let is_hex = hex >= MIN_HEX && hex > digits && rest[..hex].iter().any(u8::is_ascii_digit);
        let (run, mark) = if is_hex { (hex, 'f') } else { (digits, '0') };
        if run == 0 {
            // On to the digits of a word of hex letters, which are looked at for themselves.
            at += rest[..hex].iter().position(u8::is_ascii_digit).unwrap_or(hex.max(1));
            continue;
        }
        out.push_str(&path[plain..at]);
        out.push(mark);
        at += run;
        plain = at;
        any = true;
    }
    out.push_str(&path[plain..]);
    (out, any)
}

/// A table of fixed size. When it is full, what was used least goes.
#[derive(Clone, Debug)]
struct Table<V> {
    rows: HashMap<u64, (u32, V)>,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self { rows: HashMap::new() }
    }
}

trait Capacity {
    const ROWS: usize;
}

impl Capacity for u32 {
    const ROWS: usize = MAX_SHAPES;
}

impl Capacity for Contents {
    const ROWS: usize = MAX_SHAPES;
}

impl Capacity for Vec<u64> {
    const ROWS: usize = MAX_ORDERINGS;
}

impl<V: Default + Capacity> Table<V> {
    /// Counts a use of `key`. A heavy key is undercounted by at most one in [`Capacity::ROWS`] uses of the table, as in
    /// Misra and Gries, Finding repeated elements (1982).
    fn count(&mut self, key: u64) -> u32 {
        self.make_room(key);
        let row = self.rows.entry(key).or_default();
        row.0 = row.0.saturating_add(1);
        row.0
    }

    /// The row of `key`, made where there is none. Counts as a use.
    fn entry(&mut self, key: u64) -> &mut V {
        self.make_room(key);
        let row = self.rows.entry(key).or_default();
        row.0 = row.0.saturating_add(1);
        &mut row.1
    }

    fn get(&mut self, key: u64) -> Option<&mut V> {
        self.rows.get_mut(&key).map(|row| &mut row.1)
    }

    fn make_room(&mut self, key: u64) {
        while self.rows.len() >= V::ROWS && !self.rows.contains_key(&key) {
            self.rows.retain(|_, row| {
                row.0 = row.0.saturating_sub(1);
                row.0 > 0
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> TrapRules {
        TrapRules {
            max_path_variants: 50,
            max_query_variants: 20,
            max_facets: 30,
            max_same_content: 10,
            ..TrapRules::new(2026)
        }
    }

    /// How many of `urls` are let through, and the first suspicion.
    fn crawl(urls: impl IntoIterator<Item = String>) -> (usize, Option<Suspicion>) {
        let (rules, mut traps) = (small(), HostTraps::new());
        let mut passed = 0;
        let mut first = None;
        for url in urls {
            match traps.on_fetch(&Url::parse(&url).unwrap(), &rules) {
                None => passed += 1,
                Some(suspicion) => first = first.or(Some(suspicion)),
            }
        }
        (passed, first)
    }

    #[test]
    fn shapes() {
        for (path, expected) in [
            ("/a/b.html", "/a/b.html"),
            ("/post/12345", "/post/0"),
            ("/a1b22/c333", "/a0b0/c0"),
            ("/blob/deadbeef01/x", "/blob/f/x"),
            ("/blob/deadbeef/x", "/blob/deadbeef/x"),
            ("/face/cafe12", "/face/cafe0"),
            ("/0123456789", "/0"),
            ("/b12", "/b0"),
        ] {
            assert_eq!(collapse(path).0, expected);
        }
    }

    #[test]
    fn endless_urls_come_to_an_end() {
        for (urls, kind, at_most) in [
            (
                (0..500).map(|n| format!("http://a.test/next/{n}")).collect::<Vec<_>>(),
                TrapKind::PathVariants,
                50,
            ),
            ((0..500).map(|n| format!("http://a.test/cal?day={n}")).collect(), TrapKind::QueryVariants, 20),
            (
                (0..500).map(|n| format!("http://a.test/s?f{n}=1&g{n}=2&h{n}=3")).collect(),
                TrapKind::Facets,
                30,
            ),
            (
                (0..500).map(|n| format!("http://a.test/p?a=1&sessid=abc{n:09}")).collect(),
                TrapKind::SessionId,
                8,
            ),
            (
                ["a=1&b=2&c=3", "a=1&c=3&b=2", "b=2&a=1&c=3", "b=2&c=3&a=1", "c=3&a=1&b=2", "c=3&b=2&a=1"]
                    .map(|query| format!("http://a.test/p?{query}"))
                    .to_vec(),
                TrapKind::Permutation,
                3,
            ),
        ] {
            let (passed, suspicion) = crawl(urls);
            assert_eq!(suspicion.unwrap().kind, kind);
            assert!(passed <= at_most, "{kind}: {passed}");
        }
    }

    #[test]
    fn named_pages_are_never_counted() {
        let (passed, suspicion) = crawl((0..5000).map(|n| {
            let name: String =
                format!("{n:05}").bytes().map(|digit| char::from(digit - b'0' + b'k')).collect();
            format!("http://a.test/java.base/java/util/{name}.html")
        }));
        assert_eq!((passed, suspicion), (5000, None));
    }

    #[test]
    fn a_heavy_shape_is_found_among_many_light_ones() {
        let urls = (0..2000).map(|n| {
            let name: String =
                format!("{n:05}").bytes().map(|digit| char::from(digit - b'0' + b'k')).collect();
            if n % 2 == 0 { format!("http://a.test/{name}/1") } else { format!("http://a.test/trap/{n}") }
        });
        let (passed, suspicion) = crawl(urls);
        assert_eq!(suspicion.unwrap().to_string(), "trap suspected: path variants: /trap/0");
        assert!((1050..1200).contains(&passed), "{passed}");
    }

    #[test]
    fn a_farm_of_one_content_is_given_up() {
        let (rules, mut traps) = (small(), HostTraps::new());
        let url = |n: u64| Url::parse(&format!("http://a.test/soft/{n}")).unwrap();
        let mut passed = 0;
        for n in 0..40 {
            if traps.on_fetch(&url(n), &rules).is_none() {
                passed += 1;
                traps.on_content(&url(n), 7);
            }
        }
        assert_eq!(passed, 11);

        let mut fresh = HostTraps::new();
        for n in 0..40 {
            assert_eq!(fresh.on_fetch(&url(n), &rules), None);
            fresh.on_content(&url(n), if n % 8 == 0 { n + 1 } else { 7 });
        }
    }

    #[test]
    fn memory_is_bounded() {
        let (rules, mut traps) = (TrapRules::new(2026), HostTraps::new());
        for n in 0..5000_u64 {
            let url =
                Url::parse(&format!("http://a.test/x{}?p{n}=1&q{n}=2&r=3", "y".repeat((n % 50) as usize)))
                    .unwrap();
            traps.on_fetch(&url, &rules);
            traps.on_content(&url, n);
        }
        assert!(traps.shapes.rows.len() <= MAX_SHAPES);
        assert!(traps.contents.rows.len() <= MAX_SHAPES);
        assert!(traps.orderings.rows.len() <= MAX_ORDERINGS);
    }
}

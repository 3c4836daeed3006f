//! Whether a job wants a URL: by its place relative to the seeds, then by patterns. Seeds themselves are the user's
//! explicit wish and need not be asked about. Not here: depth, budgets, robots.txt.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use regex::{Regex, RegexSet, RegexSetBuilder};
use serde::{Deserialize, Serialize};
use url::{Position, Url};

use super::host_key::registrable_domain;

/// How far from the seeds a crawl may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ScopeKind {
    /// The seeds' hosts: same host name and port. `http` and `https` on their default ports are one host.
    #[default]
    Host,
    /// The seeds' registrable domains with all their subdomains, any port. For a host without one (an address,
    /// `localhost`) the host name itself.
    Domain,
    /// As `Host`, and the path begins with a seed's path up to its last `/`.
    Prefix,
    /// Anything.
    Any,
}

impl FromStr for ScopeKind {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        match text {
            "host" => Ok(Self::Host),
            "domain" => Ok(Self::Domain),
            "prefix" => Ok(Self::Prefix),
            "any" => Ok(Self::Any),
            _ => Err(ScopeError::Kind(text.to_owned())),
        }
    }
}

impl fmt::Display for ScopeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Domain => "domain",
            Self::Prefix => "prefix",
            Self::Any => "any",
        })
    }
}

/// Why a scope cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// Not a kind of scope.
    #[error("there is no scope `{0}`; use host, domain, prefix or any")]
    Kind(String),
    /// A pattern does not compile, or compiles to something too big.
    #[error("the {list} pattern `{pattern}` cannot be used: {why}")]
    Pattern {
        /// `include` or `exclude`.
        list: &'static str,
        /// The pattern's beginning.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// More patterns than [`MAX_PATTERNS`].
    #[error("{count} {list} patterns are too many: at most {MAX_PATTERNS} can be given")]
    TooMany {
        /// `include` or `exclude`.
        list: &'static str,
        /// How many there are.
        count: usize,
    },
}

/// Patterns in one list at most.
pub const MAX_PATTERNS: usize = 256;

/// Bytes of one pattern at most.
const MAX_PATTERN_BYTES: usize = 4096;

/// Memory that the compiled patterns of one list may take, in bytes.
const MAX_COMPILED_BYTES: usize = 8 << 20;

/// What a scope says about a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Wanted.
    In,
    /// Not wanted.
    Out(OutReason),
}

impl Verdict {
    /// Whether the URL is wanted.
    pub fn is_in(self) -> bool {
        self == Self::In
    }
}

/// Why a URL is out of scope. The text form is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutReason {
    /// Neither http nor https.
    Scheme,
    /// Another host.
    Host,
    /// Another registrable domain.
    Domain,
    /// A path outside those of the seeds.
    Prefix,
    /// No include pattern matches.
    NotIncluded,
    /// An exclude pattern matches.
    Excluded,
}

impl fmt::Display for OutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "scheme out of scope",
            Self::Host => "host out of scope",
            Self::Domain => "domain out of scope",
            Self::Prefix => "path out of scope",
            Self::NotIncluded => "matches no include pattern",
            Self::Excluded => "matches an exclude pattern",
        })
    }
}

/// The seeds' places, prepared for look-up.
#[derive(Clone, Debug)]
enum Places {
    Any,
    Hosts(HashSet<String>),
    Domains(HashSet<String>),
    /// Per host ascending path prefixes, none of which begins with another.
    Prefixes(HashMap<String, Vec<String>>),
}

/// A compiled scope.
#[derive(Clone, Debug)]
pub struct Scope {
    places: Places,
    include: Option<RegexSet>,
    exclude: Option<RegexSet>,
}

impl Scope {
    /// Prepares a scope around canonical `seeds`. Patterns are regular expressions (syntax of the `regex` crate) that
    /// are searched for anywhere in the canonical URL. With include patterns, one of them has to match; an exclude
    /// pattern that matches always wins.
    pub fn new(
        kind: ScopeKind,
        seeds: &[Url],
        include: &[String],
        exclude: &[String],
    ) -> Result<Self, ScopeError> {
        let places = match kind {
            ScopeKind::Any => Places::Any,
            ScopeKind::Host => Places::Hosts(seeds.iter().map(|seed| place_host(seed).to_owned()).collect()),
            ScopeKind::Domain => {
                Places::Domains(seeds.iter().map(|seed| place_domain(seed).to_owned()).collect())
            }
            ScopeKind::Prefix => Places::Prefixes(prefixes(seeds)),
        };
        Ok(Self { places, include: compile("include", include)?, exclude: compile("exclude", exclude)? })
    }

    /// Judges a canonical URL.
    pub fn judge(&self, url: &Url) -> Verdict {
        if !matches!(url.scheme(), "http" | "https") {
            return Verdict::Out(OutReason::Scheme);
        }
        let out = match &self.places {
            Places::Any => None,
            Places::Hosts(hosts) => (!hosts.contains(place_host(url))).then_some(OutReason::Host),
            Places::Domains(domains) => (!domains.contains(place_domain(url))).then_some(OutReason::Domain),
            Places::Prefixes(hosts) => match hosts.get(place_host(url)) {
                None => Some(OutReason::Host),
                Some(prefixes) => (!begins_with_one(url.path(), prefixes)).then_some(OutReason::Prefix),
            },
        };
        if let Some(reason) = out {
            return Verdict::Out(reason);
        }
        if self.include.as_ref().is_some_and(|patterns| !patterns.is_match(url.as_str())) {
            return Verdict::Out(OutReason::NotIncluded);
        }
        if self.exclude.as_ref().is_some_and(|patterns| patterns.is_match(url.as_str())) {
            return Verdict::Out(OutReason::Excluded);
        }
        Verdict::In
    }
}

/// Host and explicit port. The default ports have no text, which makes http and https one place.
fn place_host(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

fn place_domain(url: &Url) -> &str {
    registrable_domain(url).or(url.host_str()).unwrap_or("")
}

fn prefixes(seeds: &[Url]) -> HashMap<String, Vec<String>> {
    let mut hosts: HashMap<String, Vec<String>> = HashMap::new();
    for seed in seeds {
        let path = seed.path();
        let folder = &path[..path.rfind('/').map_or(0, |at| at + 1)];
        hosts.entry(place_host(seed).to_owned()).or_default().push(folder.to_owned());
    }
    for folders in hosts.values_mut() {
        folders.sort_unstable();
        // What begins with a kept prefix follows it directly in this order.
        folders.dedup_by(|next, kept| next.starts_with(kept.as_str()));
    }
    hosts
}

fn begins_with_one(path: &str, prefixes: &[String]) -> bool {
    let after = prefixes.partition_point(|prefix| prefix.as_str() <= path);
    after > 0 && path.starts_with(&prefixes[after - 1])
}

fn compile(list: &'static str, patterns: &[String]) -> Result<Option<RegexSet>, ScopeError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    if patterns.len() > MAX_PATTERNS {
        return Err(ScopeError::TooMany { list, count: patterns.len() });
    }
    let error = |pattern: &str, why: String| ScopeError::Pattern {
        list,
        pattern: pattern.chars().take(80).collect(),
        why,
    };
    for pattern in patterns {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(error(pattern, format!("it is longer than {MAX_PATTERN_BYTES} bytes")));
        }
        // The set's own error does not say which pattern is at fault.
        Regex::new(pattern).map_err(|why| error(pattern, why.to_string()))?;
    }
    RegexSetBuilder::new(patterns)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .build()
        .map(Some)
        .map_err(|why| error(&patterns.join(" | "), why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(texts: &[&str]) -> Vec<Url> {
        texts.iter().map(|text| Url::parse(text).unwrap()).collect()
    }

    fn scope(kind: ScopeKind, seeds: &[&str]) -> Scope {
        Scope::new(kind, &urls(seeds), &[], &[]).unwrap()
    }

    fn judge(scope: &Scope, url: &str) -> Verdict {
        scope.judge(&Url::parse(url).unwrap())
    }

    #[test]
    fn kinds() {
        use OutReason::{Domain, Host, Prefix, Scheme};
        use ScopeKind as Kind;
        use Verdict::{In, Out};
        let one = ["http://www.site.test/docs/a.html"];
        let two = ["http://a.test/x/", "http://a.test/x/y/z", "http://a.test/w", "http://127.0.0.1:8080/b/"];
        for (kind, seeds, url, expected) in [
            (Kind::Host, &one[..], "http://www.site.test/", In),
            (Kind::Host, &one, "https://www.site.test/b", In),
            (Kind::Host, &one, "http://www.site.test:8080/", Out(Host)),
            (Kind::Host, &one, "http://site.test/", Out(Host)),
            (Kind::Host, &one, "ftp://www.site.test/", Out(Scheme)),
            (Kind::Domain, &one, "https://other.site.test:99/", In),
            (Kind::Domain, &one, "http://site.test/", In),
            (Kind::Domain, &one, "http://notsite.test/", Out(Domain)),
            (Kind::Domain, &two, "http://127.0.0.1/", In),
            (Kind::Domain, &two, "http://127.0.0.2/", Out(Domain)),
            (Kind::Prefix, &one, "http://www.site.test/docs/", In),
            (Kind::Prefix, &one, "https://www.site.test/docs/b/c", In),
            (Kind::Prefix, &one, "http://www.site.test/docs", Out(Prefix)),
            (Kind::Prefix, &one, "http://www.site.test/", Out(Prefix)),
            (Kind::Prefix, &one, "http://site.test/docs/", Out(Host)),
            (Kind::Prefix, &two, "http://a.test/anything", In),
            (Kind::Prefix, &two[..2], "http://a.test/x/q", In),
            (Kind::Prefix, &two[..2], "http://a.test/x/y/zz", In),
            (Kind::Prefix, &two[..2], "http://a.test/xx", Out(Prefix)),
            (Kind::Prefix, &two, "http://127.0.0.1:8080/a", Out(Prefix)),
            (Kind::Any, &one, "https://elsewhere.test:1/", In),
            (Kind::Any, &one, "data:text/plain,x", Out(Scheme)),
        ] {
            assert_eq!(judge(&scope(kind, seeds), url), expected, "{kind} {seeds:?} {url}");
        }
    }

    #[test]
    fn patterns() {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let seeds = urls(&["http://a.test/"]);
        let scope =
            Scope::new(ScopeKind::Host, &seeds, &list(&["/docs/", r"\.html$"]), &list(&["print="])).unwrap();
        assert_eq!(judge(&scope, "http://a.test/docs/x"), Verdict::In);
        assert_eq!(judge(&scope, "http://a.test/b.html"), Verdict::In);
        assert_eq!(judge(&scope, "http://a.test/b.pdf"), Verdict::Out(OutReason::NotIncluded));
        assert_eq!(judge(&scope, "http://a.test/docs/x?print=1"), Verdict::Out(OutReason::Excluded));
        assert_eq!(judge(&scope, "http://b.test/docs/x"), Verdict::Out(OutReason::Host));

        let error = Scope::new(ScopeKind::Any, &seeds, &[], &list(&["ok", "(oops"])).unwrap_err().to_string();
        assert!(error.contains("exclude pattern `(oops`") && error.contains("unclosed group"), "{error}");
        let error = Scope::new(ScopeKind::Any, &seeds, &list(&[r"(\pL{1000}){1000}"]), &[]).unwrap_err();
        assert!(error.to_string().contains("size limit"), "{error}");
        let many = vec!["a".to_owned(); MAX_PATTERNS + 1];
        assert!(matches!(Scope::new(ScopeKind::Any, &seeds, &many, &[]), Err(ScopeError::TooMany { .. })));
    }

    #[test]
    fn kinds_have_names() {
        for kind in [ScopeKind::Host, ScopeKind::Domain, ScopeKind::Prefix, ScopeKind::Any] {
            assert_eq!(kind.to_string().parse::<ScopeKind>().unwrap(), kind);
        }
        assert!(
            "hosts".parse::<ScopeKind>().unwrap_err().to_string().contains("host, domain, prefix or any")
        );
    }
}

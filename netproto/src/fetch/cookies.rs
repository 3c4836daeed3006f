//! Cookies (RFC 6265 with the parts of 6265bis that protect sites from each other), kept per partition (a job) and site
//! (registrable domain), so that no job sees another's and no site can fill the memory. Matching and parsing are
//! cookie_store's; the public suffix rules, the bounds and the form on disk are here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use cookie_store::{CookieDomain, CookieExpiration, CookieStore, RawCookie};
use http::header::{self, HeaderMap, HeaderValue};
use url::{Host, Url};

/// Cookies of one site at most; beyond that, the one that ends first makes room.
pub const MAX_PER_SITE: usize = 50;
/// Size of a `Set-Cookie` header at most; larger ones are ignored.
pub const MAX_COOKIE_BYTES: usize = 4096;
/// `Set-Cookie` headers of one response that are looked at.
const MAX_PER_RESPONSE: usize = 50;
/// Sites are spread over so many locks.
const SHARDS: usize = 32;
/// The first line of the form on disk.
const MAGIC: &str = "dolomedes-cookies 1";

/// All cookies, shared by all fetches.
#[derive(Debug)]
pub struct CookieJar {
    shards: Vec<Mutex<HashMap<Key, Site>>>,
    /// Sites in one shard at most; the one not used for longest makes room.
    sites_per_shard: usize,
    clock: AtomicU64,
    sites: AtomicU64,
}

type Key = (u64, Box<str>);

#[derive(Debug)]
struct Site {
    store: CookieStore,
    used: u64,
}

/// A form on disk that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved cookies are not readable: line {line} {what}")]
pub struct BadCookies {
    line: usize,
    what: &'static str,
}

impl CookieJar {
    /// An empty jar for about `max_sites` sites (at least one for each of its 32 locks).
    pub fn new(max_sites: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let sites_per_shard = max_sites.div_ceil(SHARDS).max(1);
        Self { shards, sites_per_shard, clock: AtomicU64::new(0), sites: AtomicU64::new(0) }
    }

    /// The `Cookie` header for a request; `None` if there is nothing to send. Longer paths first (RFC 6265 5.4), then by name.
    pub fn header(&self, partition: u64, url: &Url) -> Option<HeaderValue> {
        // Most crawls see no cookie that is sent back; they should not pay for finding the site.
        if self.sites.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let key = (partition, site(url)?);
        let mut shard = self.shard(&key);
        let site = shard.get_mut(&key)?;
        site.used = self.tick();
        let mut cookies = site.store.matches(url);
        cookies.sort_by(|a, b| (b.path.len(), a.name()).cmp(&(a.path.len(), b.name())));
        let mut header = String::new();
        for cookie in cookies {
            let (name, value) = cookie.name_value();
            if !header.is_empty() {
                header.push_str("; ");
            }
            if !name.is_empty() {
                header.push_str(name);
                header.push('=');
            }
            header.push_str(value);
        }
        if header.is_empty() { None } else { HeaderValue::from_bytes(header.as_bytes()).ok() }
    }

    /// Takes the `Set-Cookie` headers of a response from `url`. Returns whether anything was stored or removed.
    pub fn store(&self, partition: u64, url: &Url, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::SET_COOKIE).iter().take(MAX_PER_RESPONSE).peekable();
        if values.peek().is_none() {
            return false;
        }
        let Some(site) = site(url) else { return false };
        let mut changed = false;
        for value in values {
            let Ok(text) = std::str::from_utf8(value.as_bytes()) else { continue };
            if text.len() <= MAX_COOKIE_BYTES
                && !text.bytes().any(|b| b.is_ascii_control() && b != b'\t')
                && let Some(cookie) = acceptable(text, url)
            {
                changed |= self.insert((partition, site.clone()), &cookie, url);
            }
        }
        changed
    }

    fn insert(&self, key: Key, cookie: &RawCookie<'static>, url: &Url) -> bool {
        let mut shard = self.shard(&key);
        if !shard.contains_key(&key) {
            if shard.len() >= self.sites_per_shard {
                let oldest = shard.iter().min_by_key(|(_, site)| site.used).map(|(key, _)| key.clone());
                if oldest.and_then(|key| shard.remove(&key)).is_some() {
                    self.sites.fetch_sub(1, Ordering::Relaxed);
                }
            }
            // Without a cookie of its own that can be stored, a site takes no place.
            let mut store = CookieStore::default();
            if store.insert_raw(cookie, url).is_err() {
                return false;
            }
            shard.insert(key, Site { store, used: self.tick() });
            self.sites.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let Some(site) = shard.get_mut(&key) else { return false };
        site.used = self.tick();
        if site.store.insert_raw(cookie, url).is_err() {
            return false;
        }
        bound(&mut site.store);
        true
    }

    /// Forgets a partition.
    pub fn clear(&self, partition: u64) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.len();
            shard.retain(|(of, _), _| *of != partition);
            self.sites.fetch_sub((before - shard.len()) as u64, Ordering::Relaxed);
        }
    }

    /// All unexpired cookies, session cookies included (a crawl that is resumed is the same session), in a form that
    /// [`CookieJar::load`] reads: one line each, tab separated.
    pub fn save(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for shard in &self.shards {
            for ((partition, _), site) in lock(shard).iter() {
                lines.extend(site.store.iter_unexpired().filter_map(|cookie| line(*partition, cookie)));
            }
        }
        lines.sort_unstable();
        lines.insert(0, MAGIC.to_owned());
        let mut text = lines.join("\n");
        text.push('\n');
        text.into_bytes()
    }

    /// Adds the cookies of a saved form. Cookies that have expired since are left out.
    ///
    /// # Errors
    /// Names the first line that is not understood; the lines before it have been added.
    pub fn load(&self, bytes: &[u8]) -> Result<(), BadCookies> {
        let bad = |line: usize, what| BadCookies { line: line + 1, what };
        let text = std::str::from_utf8(bytes).map_err(|_| bad(0, "is not UTF-8"))?;
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != MAGIC) {
            return Err(bad(0, "is not the header of this version"));
        }
        for (number, line) in lines {
            let (partition, cookie, url) = parse_line(line).ok_or(bad(number, "is not a cookie"))?;
            let site = site(&url).ok_or(bad(number, "has no host"))?;
            self.insert((partition, site), &cookie, &url);
        }
        Ok(())
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Site>> {
        // FNV-1a: the same shard on every machine, which SipHash with its random keys would not give.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ key.0;
        for byte in key.1.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let at = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        lock(&self.shards[at])
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

fn lock(shard: &Mutex<HashMap<Key, Site>>) -> MutexGuard<'_, HashMap<Key, Site>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The registrable domain of a URL's host; the host itself if it is an address, a public suffix or a name of one label.
fn site(url: &Url) -> Option<Box<str>> {
    match url.host()? {
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            Some(psl::domain_str(name).unwrap_or(name).into())
        }
        address => Some(address.to_string().into()),
    }
}

/// Parses a `Set-Cookie` value and applies the rules that need to know about suffixes and schemes.
fn acceptable(text: &str, url: &Url) -> Option<RawCookie<'static>> {
    let mut cookie = RawCookie::parse(text.to_owned()).ok()?;
    let secure = cookie.secure() == Some(true);
    // RFC 6265bis 5.7: a page without TLS cannot set secure cookies.
    if secure && url.scheme() != "https" {
        return None;
    }
    let (prefix_host, prefix_secure) =
        (cookie.name().starts_with("__Host-"), cookie.name().starts_with("__Secure-"));
    if (prefix_host || prefix_secure) && !secure {
        return None;
    }
    if prefix_host && (cookie.domain().is_some() || cookie.path() != Some("/")) {
        return None;
    }
    if let Some(domain) = cookie.domain() {
        let domain = domain.trim_start_matches('.').to_ascii_lowercase();
        let is_suffix = psl::suffix_str(&domain).is_some_and(|suffix| suffix.len() == domain.len());
        if is_suffix {
            // RFC 6265 5.3, step 5.
            if url.host_str() != Some(domain.as_str()) {
                return None;
            }
            cookie.unset_domain();
        }
    }
    Some(cookie)
}

/// Removes the cookies that end first until there are no more than allowed; session cookies end last.
fn bound(store: &mut CookieStore) {
    // Expired ones are only marked by the store.
    while store.iter_any().count() > MAX_PER_SITE {
        let first = store.iter_any().min_by_key(|cookie| match &cookie.expires {
            CookieExpiration::AtUtc(at) => (at.unix_timestamp(), cookie.name().to_owned()),
            CookieExpiration::SessionEnd => (i64::MAX, cookie.name().to_owned()),
        });
        let Some(first) = first else { return };
        let (domain, path, name) =
            (String::from(&first.domain), String::from(&first.path), first.name().to_owned());
        if store.remove(&domain, &path, &name).is_none() {
            return;
        }
    }
}

/// `partition, scheme, host, domain or -, path, expiry or -, flags, name, value`.
fn line(partition: u64, cookie: &cookie_store::Cookie<'_>) -> Option<String> {
    let (host, suffix) = match &cookie.domain {
        CookieDomain::HostOnly(host) => (host, false),
        CookieDomain::Suffix(domain) => (domain, true),
        CookieDomain::NotPresent | CookieDomain::Empty => return None,
    };
    let expires = match &cookie.expires {
        CookieExpiration::AtUtc(at) => at.unix_timestamp().to_string(),
        CookieExpiration::SessionEnd => "-".to_owned(),
    };
    let flag = |on: bool, letter: &'static str| if on { letter } else { "" };
    let flags = [
        flag(suffix, "d"),
        flag(cookie.secure() == Some(true), "s"),
        flag(cookie.http_only() == Some(true), "h"),
    ]
    .concat();
    let path: &str = &cookie.path;
    let (name, value) = cookie.name_value();
    let fields = [&partition.to_string(), host.as_str(), path, &expires, &format!("-{flags}"), name, value];
    if fields.iter().any(|field| field.contains(['\t', '\n', '\r'])) {
        return None;
    }
    Some(fields.join("\t"))
}

/// The cookie of a line, and a URL from which setting it means the same.
fn parse_line(line: &str) -> Option<(u64, RawCookie<'static>, Url)> {
    let mut fields = line.splitn(7, '\t');
    let mut next = || fields.next();
    let (partition, host, path, expires) = (next()?.parse().ok()?, next()?, next()?, next()?);
    let (flags, name, value) = (next()?, next()?, next()?);
    let secure = flags.contains('s');
    let scheme = if secure { "https" } else { "http" };
    // The directory of this URL is the path of the cookie, which so needs no attribute (it may contain a semicolon).
    let url = Url::parse(&format!("{scheme}://{host}{path}{}x", if path == "/" { "" } else { "/" })).ok()?;
    let mut text = format!("{name}={value}");
    if flags.contains('d') {
        text.push_str("; Domain=");
        text.push_str(host);
    }
    if expires != "-" {
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(expires.parse().ok()?))?;
        text.push_str("; Expires=");
        text.push_str(&httpdate::fmt_http_date(at.min(latest())));
    }
    if secure {
        text.push_str("; Secure");
    }
    if flags.contains('h') {
        text.push_str("; HttpOnly");
    }
    Some((partition, RawCookie::parse(text).ok()?, url))
}

/// HTTP dates have four digits for the year.
fn latest() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799)
}

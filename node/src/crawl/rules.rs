//! The rules of a job in the form in which each page needs them: canonical form, scope, traps, budgets of depth. A core.

use dolomedes_raft::command::NewMessage;
use url::Url;

use super::{
    known::KnownCache,
    task::{Task, TaskKind},
};
use crate::{
    config::CrawlConfig,
    trap::{self, Suspicion, TrapRules},
    url::{
        canonical::{self, CanonicalError, CanonicalRules},
        fingerprint::fingerprint,
        host_key::host_key,
        scope::{OutReason, Scope, ScopeError, Verdict},
    },
};

/// Memory of the cache of known URLs, in bytes: a million of them.
const KNOWN_BYTES: usize = 16 << 20;
/// Memory of the cache of URLs that were judged out of scope.
const FOREIGN_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Rules {
    /// How URLs are spelt.
    pub canonical: CanonicalRules,
    /// Which URLs are wanted.
    pub scope: Scope,
    /// What looks like a trap.
    pub traps: TrapRules,
    /// Links from a seed.
    pub max_depth: Option<u32>,
    /// Whether embedded resources are wanted.
    pub assets: bool,
    /// Whether robots.txt, meta robots and nofollow are disregarded.
    pub ignore_robots: bool,
    /// Whether sitemaps are read.
    pub sitemaps: bool,
    /// Product token looked for in robots rules.
    pub agent: String,
    /// Key of the fingerprint hash.
    pub hash_seed: u64,
    /// Fingerprints of canonical URLs that the frontier knows.
    pub known: KnownCache,
    /// Fingerprints of absolute URLs as written that were judged out of scope.
    foreign: KnownCache,
}

/// What becomes of a link.
#[derive(Debug)]
pub(super) enum LinkVerdict {
    /// The frontier knows it.
    Known,
    /// To be put.
    New(NewMessage),
    /// Out of scope.
    OutOfScope,
    /// Part of a trap by its looks.
    Trap(Suspicion),
    /// Not a URL that can be crawled.
    Unusable,
}

impl Rules {
    /// The rules of a job whose fingerprints are keyed with `hash_seed`. `year` is the present one.
    pub(super) fn new(config: &CrawlConfig, hash_seed: u64, year: u16) -> Result<Self, ScopeError> {
        let job = &config.job;
        let canonical = CanonicalRules {
            strip_session_ids: !job.keep_tracking,
            strip_tracking: !job.keep_tracking,
            sort_query: job.sort_query,
            ..CanonicalRules::default()
        };
        // Seeds that have no canonical form are reported where they are put; here they only widen nothing.
        let seeds: Vec<Url> = job
            .seeds
            .iter()
            .filter_map(|seed| canonical::parse(seed, &canonical).ok())
            .flat_map(|seed| [www_twin(&seed), Some(seed)])
            .flatten()
            .collect();
        Ok(Self {
            scope: Scope::new(job.scope, &seeds, &job.include, &job.exclude)?,
            canonical,
            traps: TrapRules::new(year),
            max_depth: job.max_depth,
            assets: job.assets,
            ignore_robots: job.ignore_robots,
            sitemaps: job.sitemaps,
            agent: crate::robots::product_token(&config.network.user_agent).to_owned(),
            hash_seed,
            known: KnownCache::with_bytes(KNOWN_BYTES),
            foreign: KnownCache::with_bytes(FOREIGN_BYTES),
        })
    }

    /// Identity of a canonical URL in this job.
    pub(super) fn fingerprint(&self, canonical: &str) -> u128 {
        fingerprint(canonical, self.hash_seed)
    }

    /// Judges the absolute URL `link`, found at `depth` on the page `referrer`.
    ///
    /// The common cases are settled by its spelling alone: most links are canonical as written and known.
    pub(super) fn judge_link(&self, link: &str, depth: u32, kind: TaskKind, referrer: &str) -> LinkVerdict {
        let as_written = self.fingerprint(link);
        if self.known.contains(as_written) {
            return LinkVerdict::Known;
        }
        let is_page = kind == TaskKind::Page;
        if is_page && self.foreign.contains(as_written) {
            return LinkVerdict::OutOfScope;
        }
        let Ok(url) = canonical::parse(link, &self.canonical) else { return LinkVerdict::Unusable };
        let wanted = match self.scope.judge(&url) {
            Verdict::In => true,
            // What a page needs to be shown may come from elsewhere, and a site may keep its sitemaps anywhere.
            Verdict::Out(OutReason::Host | OutReason::Domain | OutReason::Prefix) => !is_page,
            Verdict::Out(_) => false,
        };
        if !wanted {
            if is_page {
                self.foreign.insert(as_written);
            }
            return LinkVerdict::OutOfScope;
        }
        let identity = self.fingerprint(url.as_str());
        if self.known.contains(identity) {
            return LinkVerdict::Known;
        }
        if let Some(suspicion) = trap::suspect(&url, &self.traps) {
            return LinkVerdict::Trap(suspicion);
        }
        let task =
            Task { kind, referrer: Some(referrer.to_owned()), ..Task::page(url.as_str().to_owned(), depth) };
        LinkVerdict::New(message(&url, &task, Some(identity)))
    }

    /// Judges the target of a redirect from the task `from`.
    pub(super) fn judge_redirect(
        &self,
        target: Url,
        from: &Task,
    ) -> Result<(Url, LinkVerdict), CanonicalError> {
        let url = canonical::canonicalize(target, &self.canonical)?;
        // A seed is the user's wish, wherever its site has moved to within the same registrable domain.
        let follows_seed = from.referrer.is_none()
            && from.depth == 0
            && Url::parse(&from.url).is_ok_and(|seed| same_site(&seed, &url));
        if !follows_seed && !self.scope.judge(&url).is_in() && !matches!(from.kind, TaskKind::Sitemap { .. })
        {
            return Ok((url, LinkVerdict::OutOfScope));
        }
        let identity = self.fingerprint(url.as_str());
        let mut via = from.via.clone();
        via.push(self.fingerprint(&from.url));
        let task = Task { via, ..from.clone() };
        let task = Task { url: url.as_str().to_owned(), ..task };
        let message = message(&url, &task, Some(identity));
        Ok((url, LinkVerdict::New(message)))
    }

    /// Whether a host, given as its key, is one that the crawl is about, whatever the paths and patterns.
    pub(super) fn is_own_host(&self, host_key: &[u8]) -> bool {
        let url = std::str::from_utf8(host_key).ok().and_then(|key| Url::parse(key).ok());
        url.is_some_and(|url| {
            !matches!(self.scope.judge(&url), Verdict::Out(OutReason::Host | OutReason::Domain))
        })
    }

    /// The message of a sitemap that robots.txt names, unless sitemaps are not wanted or it has no canonical form.
    pub(super) fn sitemap(&self, sitemap: &Url) -> Option<NewMessage> {
        let url = canonical::canonicalize(sitemap.clone(), &self.canonical).ok().filter(|_| self.sitemaps)?;
        let kind = TaskKind::Sitemap { nesting: 0 };
        let task = Task { kind, ..Task::page(url.as_str().to_owned(), 0) };
        Some(message(&url, &task, Some(self.fingerprint(url.as_str()))))
    }

    /// The message of a seed.
    pub(super) fn seed(&self, seed: &str) -> Result<NewMessage, CanonicalError> {
        let url = canonical::parse(seed, &self.canonical)?;
        let task = Task::page(url.as_str().to_owned(), 0);
        Ok(message(&url, &task, Some(self.fingerprint(url.as_str()))))
    }
}

/// The same place with or without `www.`: what most sites redirect to, and mean as one.
fn www_twin(seed: &Url) -> Option<Url> {
    let host = seed.domain()?;
    let twin = match host.strip_prefix("www.") {
        Some(bare) => bare.to_owned(),
        None => format!("www.{host}"),
    };
    let mut url = seed.clone();
    url.set_host(Some(&twin)).ok()?;
    Some(url)
}

fn same_site(one: &Url, other: &Url) -> bool {
    use crate::url::host_key::registrable_domain;
    match (registrable_domain(one), registrable_domain(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.host_str() == other.host_str(),
    }
}

fn message(url: &Url, task: &Task, fingerprint: Option<u128>) -> NewMessage {
    NewMessage {
        key: bytes::Bytes::from(host_key(url).into_owned()),
        priority: task.priority(),
        delay_ms: 0,
        fingerprint,
        payload: bytes::Bytes::from(task.encode()),
    }
}

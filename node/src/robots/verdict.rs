//! What the fetch of a robots.txt file means, for how long, and how that is kept with the host's key. The caller
//! fetches and follows redirects; `now` comes in as milliseconds since 1970.

use std::time::Duration;

use dolomedes_storage::codec::{DecodeError, Decoder, Encoder};
use url::Url;

use super::rules::RobotsRules;

/// Redirects of a robots.txt to follow, to any host; RFC 9309 section 2.3.1.2 asks for five at least. A file behind
/// more of them is unavailable. The rules always count for the host that was asked first.
pub const MAX_REDIRECTS: usize = 5;

/// How long an answer counts (RFC 9309 section 2.4).
const LIFE_MS: u64 = 24 * 60 * 60 * 1000;

/// How long rules may be used after their last successful fetch while the file cannot be reached, and how long an
/// unreachable file forbids everything before it is taken for unavailable (RFC 9309 sections 2.4 and 2.3.1.4).
const STALE_MS: u64 = 30 * LIFE_MS;

/// Longest wait before an unreachable file is tried again.
const RETRY_MAX_MS: u64 = 60 * 60 * 1000;

/// Largest encoded verdict in bytes: leaves room beside it in a key's note of 64 KiB.
pub const MAX_ENCODED_BYTES: usize = 60 * 1024;

const FORMAT: u8 = 1;

/// How the fetch ended.
#[derive(Clone, Copy, Debug)]
pub enum RobotsAnswer<'a> {
    /// A response, redirects followed.
    Response {
        /// Its status.
        status: u16,
        /// Its decoded body.
        body: &'a [u8],
        /// Whether the body went on.
        truncated: bool,
    },
    /// More than [`MAX_REDIRECTS`], or a redirect that leads nowhere.
    RedirectsExceeded,
    /// No response: name, connection, TLS, deadline.
    Unreachable,
}

/// For whom the file is read, and how strictly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsPolicy {
    /// The crawler's product token ([`super::product_token`]).
    pub token: String,
    /// Whether 401 and 403 forbid everything. RFC 9309 section 2.3.1.3 lets a crawler proceed; some site owners mean
    /// the contrary.
    pub forbidden_disallows: bool,
    /// First wait before an unreachable file is tried again, in milliseconds; triples up to an hour, like the waits
    /// between two attempts at a page.
    pub retry_min_ms: u64,
}

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerdictKind {
    /// A file was read.
    Rules,
    /// There is no file: everything is allowed.
    Unavailable,
    /// The site forbids access to the file, and the policy takes that for a disallow.
    Forbidden,
    /// The file cannot be reached: everything is disallowed.
    Unreachable,
    /// The file cannot be reached, but an earlier copy is still good.
    Stale,
}

/// May this host be crawled, until when is that known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsVerdict {
    kind: VerdictKind,
    rules: RobotsRules,
    /// When the file was read last, or became unreachable first.
    since_ms: u64,
    expires_ms: u64,
    failures: u32,
}

impl RobotsVerdict {
    /// Judges an answer. `previous` is what was known before, however old.
    pub fn judge(
        answer: RobotsAnswer<'_>,
        policy: &RobotsPolicy,
        previous: Option<&Self>,
        now_ms: u64,
    ) -> Self {
        let settled = |kind, rules| Self {
            kind,
            rules,
            since_ms: now_ms,
            expires_ms: now_ms.saturating_add(LIFE_MS),
            failures: 0,
        };
        match answer {
            RobotsAnswer::Response { status: 200..=299, body, truncated } => {
                settled(VerdictKind::Rules, RobotsRules::parse(body, truncated, &policy.token))
            }
            RobotsAnswer::Response { status: 401 | 403, .. } if policy.forbidden_disallows => {
                settled(VerdictKind::Forbidden, RobotsRules::default())
            }
            RobotsAnswer::Response { status: 300..=428 | 430..=499, .. }
            | RobotsAnswer::RedirectsExceeded => settled(VerdictKind::Unavailable, RobotsRules::default()),
            RobotsAnswer::Response { .. } | RobotsAnswer::Unreachable => {
                Self::unreachable(policy, previous, now_ms)
            }
        }
    }

    fn unreachable(policy: &RobotsPolicy, previous: Option<&Self>, now_ms: u64) -> Self {
        let failures = previous.map_or(0, |verdict| verdict.failures).saturating_add(1);
        let wait = policy.retry_min_ms.saturating_mul(3u64.saturating_pow(failures - 1)).min(RETRY_MAX_MS);
        let verdict = |kind, rules, since_ms| Self {
            kind,
            rules,
            since_ms,
            expires_ms: now_ms.saturating_add(wait),
            failures,
        };
        let is_old = |since_ms: u64| now_ms.saturating_sub(since_ms) > STALE_MS;
        match previous {
            Some(Self { kind: VerdictKind::Rules | VerdictKind::Stale, rules, since_ms, .. })
                if !is_old(*since_ms) =>
            {
                verdict(VerdictKind::Stale, rules.clone(), *since_ms)
            }
            Some(Self { kind: VerdictKind::Unreachable, since_ms, .. }) if is_old(*since_ms) => {
                verdict(VerdictKind::Unavailable, RobotsRules::default(), *since_ms)
            }
            // Counted on as unreachable, so that it stays allowed without a new month of waiting.
            Some(Self { kind: VerdictKind::Unavailable, since_ms, failures: 1.., .. }) => {
                verdict(VerdictKind::Unavailable, RobotsRules::default(), *since_ms)
            }
            Some(Self { kind: VerdictKind::Unreachable, since_ms, .. }) => {
                verdict(VerdictKind::Unreachable, RobotsRules::default(), *since_ms)
            }
            _ => verdict(VerdictKind::Unreachable, RobotsRules::default(), now_ms),
        }
    }

    /// What the verdict rests on.
    pub fn kind(&self) -> VerdictKind {
        self.kind
    }

    /// Whether the URL, of the verdict's host, may be fetched.
    pub fn allows(&self, url: &Url) -> bool {
        match self.kind {
            VerdictKind::Rules | VerdictKind::Stale => self.rules.allows(url),
            VerdictKind::Unavailable => true,
            VerdictKind::Forbidden | VerdictKind::Unreachable => url.path() == "/robots.txt",
        }
    }

    /// When the file has to be fetched (again), in milliseconds since 1970.
    pub fn expires_ms(&self) -> u64 {
        self.expires_ms
    }

    /// Whether the verdict still counts.
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        // A clock that was set back must not make a verdict last for ever, nor a failure last for a day.
        let longest_ms = if self.failures > 0 { RETRY_MAX_MS } else { LIFE_MS };
        now_ms < self.expires_ms && self.expires_ms <= now_ms.saturating_add(longest_ms)
    }

    /// How many times in a row the file could not be reached.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The pause that the site asks for.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.rules.crawl_delay()
    }

    /// The sitemaps that the file names.
    pub fn sitemaps(&self) -> &[Url] {
        self.rules.sitemaps()
    }

    /// Bytes for the host key's note, at most [`MAX_ENCODED_BYTES`]. Where the rules do not fit (sitemaps are left out
    /// first), only a verdict that has run out is written, so that the next owner of the key fetches the file.
    pub fn encode(&self) -> Vec<u8> {
        let full = self.encode_with(self.rules.sitemaps(), self.expires_ms);
        if full.len() <= MAX_ENCODED_BYTES {
            return full;
        }
        let without_sitemaps = self.encode_with(&[], self.expires_ms);
        if without_sitemaps.len() <= MAX_ENCODED_BYTES {
            return without_sitemaps;
        }
        let expired = Self {
            kind: VerdictKind::Unreachable,
            rules: RobotsRules::default(),
            since_ms: self.since_ms,
            expires_ms: 0,
            failures: self.failures,
        };
        expired.encode_with(&[], 0)
    }

    fn encode_with(&self, sitemaps: &[Url], expires_ms: u64) -> Vec<u8> {
        let mut out = Encoder::versioned(FORMAT);
        out.u8(match self.kind {
            VerdictKind::Rules => 0,
            VerdictKind::Unavailable => 1,
            VerdictKind::Forbidden => 2,
            VerdictKind::Unreachable => 3,
            VerdictKind::Stale => 4,
        });
        out.uint(self.since_ms).uint(expires_ms).uint(u64::from(self.failures));
        out.option(self.crawl_delay(), |out, delay| {
            out.uint(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        });
        out.list(sitemaps, |out, url| {
            out.str(url.as_str());
        });
        let patterns: Vec<(bool, &str)> = self.rules.patterns().collect();
        out.list(&patterns, |out, (allow, pattern)| {
            out.bool(*allow).str(pattern);
        });
        out.finish()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new("robots verdict", bytes);
        if input.u8()? != FORMAT {
            return Err(input.error("the format is not known to this version"));
        }
        let kind = match input.u8()? {
            0 => VerdictKind::Rules,
            1 => VerdictKind::Unavailable,
            2 => VerdictKind::Forbidden,
            3 => VerdictKind::Unreachable,
            4 => VerdictKind::Stale,
            _ => return Err(input.error("there is no such kind")),
        };
        let (since_ms, expires_ms, failures) = (input.uint()?, input.uint()?, input.uint32()?);
        let crawl_delay = input.option(Decoder::uint)?.map(Duration::from_millis);
        let sitemaps = input.list(|input| {
            let text = input.str()?;
            Url::parse(text).map_err(|_| input.error("a sitemap is not a URL"))
        })?;
        let patterns = input.list(|input| Ok((input.bool()?, input.bytes()?)))?;
        input.finish()?;
        Ok(Self {
            kind,
            rules: RobotsRules::from_parts(&patterns, crawl_delay, sitemaps),
            since_ms,
            expires_ms,
            failures,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_800_000_000_000;
    const HOUR: u64 = 60 * 60 * 1000;

    fn policy() -> RobotsPolicy {
        RobotsPolicy { token: "dolomedes".to_owned(), forbidden_disallows: false, retry_min_ms: 30_000 }
    }

    fn response(status: u16, body: &str) -> RobotsAnswer<'_> {
        RobotsAnswer::Response { status, body: body.as_bytes(), truncated: false }
    }

    fn judge(answer: RobotsAnswer<'_>, previous: Option<&RobotsVerdict>, now: u64) -> RobotsVerdict {
        RobotsVerdict::judge(answer, &policy(), previous, now)
    }

    fn page() -> Url {
        Url::parse("http://a.test/private/x").unwrap()
    }

    /// Case 11 of the crawler cases.
    #[test]
    fn outcomes() {
        use VerdictKind::*;
        let body = "User-agent: *\nDisallow: /private\n";
        for (answer, kind, allowed, life) in [
            (response(200, body), Rules, false, 24 * HOUR),
            (response(200, ""), Rules, true, 24 * HOUR),
            (response(204, ""), Rules, true, 24 * HOUR),
            (response(302, body), Unavailable, true, 24 * HOUR),
            (RobotsAnswer::RedirectsExceeded, Unavailable, true, 24 * HOUR),
            (response(401, body), Unavailable, true, 24 * HOUR),
            (response(403, body), Unavailable, true, 24 * HOUR),
            (response(404, body), Unavailable, true, 24 * HOUR),
            (response(410, ""), Unavailable, true, 24 * HOUR),
            (response(429, ""), Unreachable, false, 30_000),
            (response(500, ""), Unreachable, false, 30_000),
            (response(503, body), Unreachable, false, 30_000),
            (response(999, ""), Unreachable, false, 30_000),
            (RobotsAnswer::Unreachable, Unreachable, false, 30_000),
        ] {
            let verdict = judge(answer, None, NOW);
            assert_eq!(verdict.kind(), kind, "{answer:?}");
            assert_eq!(verdict.allows(&page()), allowed, "{answer:?}");
            assert_eq!(verdict.expires_ms(), NOW + life, "{answer:?}");
            assert!(verdict.is_fresh(NOW) && !verdict.is_fresh(NOW + life));
            assert!(verdict.allows(&Url::parse("http://a.test/robots.txt").unwrap()));
        }
        let strict = RobotsPolicy { forbidden_disallows: true, ..policy() };
        let verdict = RobotsVerdict::judge(response(403, ""), &strict, None, NOW);
        assert_eq!((verdict.kind(), verdict.allows(&page())), (Forbidden, false));
    }

    #[test]
    fn an_old_copy_serves_while_the_file_is_unreachable() {
        let good = judge(response(200, "User-agent: *\nDisallow: /private"), None, NOW);
        let later = NOW + 25 * HOUR;
        let stale = judge(response(503, ""), Some(&good), later);
        assert_eq!(stale.kind(), VerdictKind::Stale);
        assert!(!stale.allows(&page()) && stale.allows(&Url::parse("http://a.test/").unwrap()));
        assert_eq!(stale.expires_ms(), later + 30_000);
        let again = judge(RobotsAnswer::Unreachable, Some(&stale), later + HOUR);
        assert_eq!((again.kind(), again.failures()), (VerdictKind::Stale, 2));
        let month = judge(RobotsAnswer::Unreachable, Some(&again), NOW + 31 * 24 * HOUR);
        assert_eq!((month.kind(), month.failures()), (VerdictKind::Unreachable, 3));
        // A missing file is no copy.
        let missing = judge(response(404, ""), None, NOW);
        assert_eq!(judge(response(500, ""), Some(&missing), later).kind(), VerdictKind::Unreachable);
        let back = judge(response(200, ""), Some(&month), NOW + 32 * 24 * HOUR);
        assert_eq!((back.kind(), back.failures()), (VerdictKind::Rules, 0));
    }

    #[test]
    fn waits_grow_and_end_after_a_month() {
        let (mut verdict, mut now, mut waits) = (None, NOW, Vec::new());
        while now < NOW + 30 * 24 * HOUR {
            let next = judge(RobotsAnswer::Unreachable, verdict.as_ref(), now);
            assert!(!next.allows(&page()));
            waits.push((next.expires_ms() - now) / 1000);
            now = next.expires_ms();
            verdict = Some(next);
        }
        assert_eq!(waits[..7], [30, 90, 270, 810, 2430, 3600, 3600]);
        let given_up = judge(RobotsAnswer::Unreachable, verdict.as_ref(), now + HOUR);
        assert_eq!((given_up.kind(), given_up.allows(&page())), (VerdictKind::Unavailable, true));
        let still = judge(RobotsAnswer::Unreachable, Some(&given_up), now + 2 * HOUR);
        assert_eq!(still.kind(), VerdictKind::Unavailable);
    }

    #[test]
    fn a_clock_set_back_ends_freshness() {
        assert!(!judge(response(404, ""), None, NOW).is_fresh(NOW - HOUR));
    }

    #[test]
    fn verdicts_survive_encoding() {
        let body =
            "User-agent: dolomedes\nCrawl-delay: 2\nDisallow: /a*b$\nAllow: /ü\nSitemap: http://a.test/s.xml";
        let good = judge(response(200, body), None, NOW);
        for verdict in [
            judge(response(404, ""), None, NOW),
            judge(response(500, ""), None, NOW),
            judge(response(500, ""), Some(&good), NOW + HOUR),
            good,
        ] {
            assert_eq!(RobotsVerdict::decode(&verdict.encode()).unwrap(), verdict);
        }
        assert!(RobotsVerdict::decode(&[9]).is_err());
        assert!(RobotsVerdict::decode(&[]).is_err());
    }

    #[test]
    fn rules_that_do_not_fit_are_fetched_again() {
        let lines: String = (0..9000).map(|n| format!("Disallow: /private/{n:06}\n")).collect();
        let verdict = judge(response(200, &format!("User-agent: *\n{lines}")), None, NOW);
        let bytes = verdict.encode();
        assert!(bytes.len() <= MAX_ENCODED_BYTES);
        let read = RobotsVerdict::decode(&bytes).unwrap();
        assert!(!read.is_fresh(NOW) && !read.is_fresh(0));
        assert!(!read.allows(&page()));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = RobotsVerdict::decode(&bytes);
            let mut bytes = bytes;
            bytes.insert(0, FORMAT);
            let _ = RobotsVerdict::decode(&bytes);
        }

        #[test]
        fn any_file_survives_encoding(body in "(user-agent: \\*\n)?((dis)?allow: [/a-z*$%#ü]{0,6}\n|[\\PC]{0,8}\n){0,8}") {
            let verdict = judge(response(200, &body), None, NOW);
            prop_assert_eq!(RobotsVerdict::decode(&verdict.encode()).unwrap(), verdict);
        }
    }
}

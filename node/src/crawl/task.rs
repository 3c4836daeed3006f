//! What a frontier message of a crawl says: the URL and how it was come by. Bytes ↔ values only.

use dolomedes_storage::codec::{DecodeError, Decoder, Encoder};

/// Redirects followed from one URL before giving up, as browsers' order of magnitude (Fetch standard: 20) halved.
pub(super) const MAX_HOPS: usize = 10;

/// What to expect behind a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A page or any other resource that a link led to.
    Page,
    /// A sitemap, `nesting` sitemap indexes deep.
    Sitemap {
        /// 0 for one named in robots.txt.
        nesting: u8,
    },
}

/// One URL to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Canonical URL.
    pub url: String,
    /// Links followed from a seed; redirects do not add to it.
    pub depth: u32,
    /// What is expected there.
    pub kind: TaskKind,
    /// Fingerprints of the URLs that redirected here, first to last; at most [`MAX_HOPS`].
    pub via: Vec<u128>,
    /// The page on which it was found first; `None` for seeds.
    pub referrer: Option<String>,
}

impl Task {
    /// A page `depth` links away from a seed.
    pub fn page(url: String, depth: u32) -> Self {
        Self { url, depth, kind: TaskKind::Page, via: Vec::new(), referrer: None }
    }

    /// A frontier priority that makes the crawl breadth-first: sitemaps and seeds first, then by depth.
    pub fn priority(&self) -> u8 {
        match self.kind {
            TaskKind::Sitemap { .. } => 9,
            TaskKind::Page => 9u8.saturating_sub(u8::try_from(self.depth).unwrap_or(u8::MAX)),
        }
    }

    /// The message payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::versioned(1);
        out.str(&self.url).uint(u64::from(self.depth));
        match self.kind {
            TaskKind::Page => out.u8(0),
            TaskKind::Sitemap { nesting } => out.u8(1).u8(nesting),
        };
        out.list(&self.via, |out, &fingerprint| {
            out.u128(fingerprint);
        });
        out.option(self.referrer.as_deref(), |out, referrer| {
            out.str(referrer);
        });
        out.finish()
    }

    /// Reads a message payload.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new("crawl task", payload);
        if input.u8()? != 1 {
            return Err(input.error("unknown format; a newer release wrote it"));
        }
        let url = input.str()?.to_owned();
        let depth = input.uint32()?;
        let kind = match input.u8()? {
            0 => TaskKind::Page,
            1 => TaskKind::Sitemap { nesting: input.u8()? },
            _ => return Err(input.error("unknown kind of task")),
        };
        let via = input.list(Decoder::u128)?;
        let referrer = input.option(|input| Ok(input.str()?.to_owned()))?;
        input.finish()?;
        Ok(Self { url, depth, kind, via, referrer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn survives_the_round_trip(url in ".{0,80}", depth: u32, nesting in proptest::option::of(any::<u8>()),
            via in proptest::collection::vec(any::<u128>(), 0..10),
            referrer in proptest::option::of(".{0,40}"))
        {
            let kind = nesting.map_or(TaskKind::Page, |nesting| TaskKind::Sitemap { nesting });
            let task = Task { url, depth, kind, via, referrer };
            prop_assert_eq!(Task::decode(&task.encode()).unwrap(), task);
        }

        #[test]
        fn garbage_is_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Task::decode(&bytes);
        }
    }

    #[test]
    fn nearer_pages_come_first() {
        let at = |depth| Task::page("http://a/".into(), depth).priority();
        assert_eq!([at(0), at(1), at(8), at(9), at(4_000)], [9, 8, 1, 0, 0]);
    }
}

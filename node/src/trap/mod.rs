//! Defence against spaces of URLs without end. Two parts: [`suspect`] looks at the shape of one URL and is for links
//! before they are queued; [`HostTraps`] counts, per host, what was fetched and is for URLs just before their fetch,
//! once per URL. Both are heuristics with generous limits: sites of tens of thousands of pages with descriptive names
//! never come near them. Not here: depth and page budgets, which end every crawl even where no trap is recognised.

mod host;
mod shape;

use std::fmt;

pub use host::HostTraps;
pub use shape::suspect;

/// Limits of what is still believed to be a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrapRules {
    /// The year that dates in URLs are compared with.
    pub year: u16,
    /// Dates further ahead than so many years are a calendar that never ends.
    pub years_ahead: u16,
    /// Dates further back than so many years likewise.
    pub years_back: u16,
    /// Non-empty path segments at most.
    pub max_segments: usize,
    /// One segment so many times in a row is a repetition. Groups of two or three segments are after one time less.
    pub max_repeats: usize,
    /// One segment at so many places of a path is a repetition, wherever they are.
    pub max_occurrences: usize,
    /// Bytes of a query at most.
    pub max_query_bytes: usize,
    /// Parameters of a query at most.
    pub max_parameters: usize,
    /// Parameters of one name in a query at most.
    pub max_same_parameter: usize,
    /// URLs of one host that differ only in numbers and hex strings of the path.
    pub max_path_variants: u32,
    /// URLs of one host with the same path shape and the same names of parameters.
    pub max_query_variants: u32,
    /// URLs of one host with the same path shape and three or more parameters, whatever their names.
    pub max_facets: u32,
    /// URLs of one path that differ only in what looks like a session id.
    pub max_sessions: u32,
    /// Orders in which one set of parameters may come.
    pub max_orders: u32,
    /// After so many pages of one shape in a row with content seen before, the shape is given up.
    pub max_same_content: u32,
}

impl TrapRules {
    /// The defaults, with dates compared to `year`.
    pub fn new(year: u16) -> Self {
        Self {
            year,
            years_ahead: 5,
            years_back: 500,
            max_segments: 32,
            max_repeats: 4,
            max_occurrences: 6,
            max_query_bytes: 2048,
            max_parameters: 32,
            max_same_parameter: 10,
            max_path_variants: 100_000,
            max_query_variants: 20_000,
            max_facets: 10_000,
            max_sessions: 8,
            max_orders: 3,
            max_same_content: 100,
        }
    }
}

/// A kind of trap. Its text form is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrapKind {
    /// A path that repeats itself: `/a/a/a/a`, `/a/b/a/b/a/b`.
    PathRepetition,
    /// A path of too many segments.
    PathDepth,
    /// A query that is too long or has too many parameters.
    Query,
    /// Dates far in the future or the past.
    Calendar,
    /// Numbers without end in a path.
    PathVariants,
    /// Values without end in a query.
    QueryVariants,
    /// Combinations of filters.
    Facets,
    /// The same parameters in ever other orders.
    Permutation,
    /// A new session id with each visit.
    SessionId,
    /// Ever new URLs with the same content.
    SameContent,
}

impl fmt::Display for TrapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PathRepetition => "path repetition",
            Self::PathDepth => "path depth",
            Self::Query => "query size",
            Self::Calendar => "calendar",
            Self::PathVariants => "path variants",
            Self::QueryVariants => "query variants",
            Self::Facets => "facets",
            Self::Permutation => "parameter order",
            Self::SessionId => "session id",
            Self::SameContent => "same content",
        })
    }
}

/// A URL that looks like part of a trap. Its text form is what the record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// What kind of trap.
    pub kind: TrapKind,
    /// The part or pattern of the URL that gives it away, at most 120 characters.
    pub pattern: String,
}

/// Characters of a pattern at most.
const PATTERN_CHARS: usize = 120;

impl Suspicion {
    fn new(kind: TrapKind, pattern: &str) -> Self {
        Self { kind, pattern: pattern.chars().take(PATTERN_CHARS).collect() }
    }
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trap suspected: {}: {}", self.kind, self.pattern)
    }
}

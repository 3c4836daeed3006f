//! What a site allows: robots.txt by RFC 9309 ([`rules`]), what follows from the way its fetch ended and for how long
//! ([`verdict`]), and the per-page wishes in headers and meta elements ([`meta`]). No fetching and no clock in here.

#[cfg(test)]
mod conformance;
mod group;
pub mod meta;
pub mod rules;
pub mod verdict;

pub use meta::MetaRobots;
pub use rules::{BYTE_LIMIT, RobotsRules, product_token};
pub use verdict::{RobotsAnswer, RobotsPolicy, RobotsVerdict, VerdictKind};

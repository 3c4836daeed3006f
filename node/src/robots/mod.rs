//! What a site allows: robots.txt by RFC 9309 ([`rules`]), and what follows from the way its fetch ended and for how
//! long ([`verdict`]). No fetching and no clock in here, and nothing of what a page says of itself (`crate::extract`).

#[cfg(test)]
mod conformance;
mod group;
pub mod rules;
pub mod verdict;

pub use rules::{BYTE_LIMIT, RobotsRules, product_token};
pub use verdict::{MAX_REDIRECTS, RobotsAnswer, RobotsPolicy, RobotsVerdict, VerdictKind};

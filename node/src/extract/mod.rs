//! What a fetched body says: its type, its text, its links and its page-level directives. All of it is pure
//! and one pass: the crawler's hot path. It does not follow, filter or canonicalise links, and it builds no
//! tree.
//!
//! The walk: [`content_type`] says what a body is, [`charset`] makes text of it, [`links`] scans the text
//! with the [`tokenizer`], [`resolve`] makes absolute URLs of what was found.

pub mod char_ref;
pub mod charset;
pub mod content_type;
pub mod element;
pub mod links;
mod prescan;
pub mod refresh;
pub mod resolve;
pub mod robots_meta;
pub mod srcset;
pub mod tokenizer;

#[cfg(test)]
mod tests;

pub use charset::{CharsetHints, CharsetSource, Decoded, decode};
pub use content_type::{ContentType, DocumentKind};
pub use links::{Link, LinkKind, PageScan, Rel, ScanOptions, scan};
pub use resolve::{ResolvedLink, ResolvedLinks, resolve, resolve_one};
pub use robots_meta::MetaRobots;
pub use tokenizer::Syntax;

//! What a URL is to the crawler: its one canonical spelling, its fingerprint, the host key that it is paced under, and
//! whether a job wants it. No fetching, no robots.txt, no queue.

pub mod canonical;
pub mod fingerprint;
pub mod host_key;
pub mod scope;

pub use canonical::{CanonicalError, CanonicalRules, canonicalize};
pub use fingerprint::fingerprint;
pub use host_key::{host_key, registrable_domain};
pub use scope::{OutReason, Scope, ScopeError, ScopeKind, Verdict};

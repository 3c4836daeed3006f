//! How fast one host may be asked: a pure state machine per host key ([`HostPace`]) and the `Retry-After` header
//! ([`retry_after`]). What it learns is kept with the replicated key, so that it outlives the node. No timers here.

mod pace;
mod retry_after;

pub use pace::{BreakerState, FetchResult, HostPace, PaceRules};
pub use retry_after::retry_after;

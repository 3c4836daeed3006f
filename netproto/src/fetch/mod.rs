//! One HTTP exchange with a stranger: [`Fetcher::fetch`] sends one request over HTTP/1.1 or HTTP/2 and returns the
//! response whole, in bounds of time and size, or says in which way it failed. And what belongs to it: the guard
//! against private addresses, name resolution, TLS, content codings, cookies, and the headers that a crawler lives by.
//!
//! Not here: following redirects ([`redirect::location`] only says where one leads), trying again, pacing, robots.txt.
//!
//! | file | idea |
//! |---|---|
//! | `fetcher`, `exchange` | the exchange; what goes in and comes out |
//! | `phase`, `timings` | which phase it is in, although the HTTP library connects on its own |
//! | `guard` | which addresses, ports, schemes are refused (pure) |
//! | `names`, `static_names`, `failing_names`, `dns` | from name to permitted addresses |
//! | `tls` | trust, protocols offered, what was agreed |
//! | `body`, `decode` | taking in a body under caps (no I/O) |
//! | `failure` | stable names for what went wrong |
//! | `redirect`, `retry_after`, `link_header` | reading those headers (pure) |
//! | `cookies` | the jar |

mod body;
mod config;
pub mod cookies;
mod decode;
mod dns;
mod exchange;
mod failing_names;
mod failure;
mod fetcher;
pub mod guard;
pub mod link_header;
mod names;
mod phase;
pub mod redirect;
pub mod retry_after;
mod static_names;
mod timings;
mod tls;

pub use body::{Cut, Limits, MAX_CODINGS};
pub use config::{ConfigError, Deadlines, FetcherConfig, HttpVersions, MinRate};
pub use decode::Coding;
pub use dns::DnsConfig;
pub use exchange::{Conditional, Fetched, Request};
pub use failure::{FailureKind, FetchFailure};
pub use fetcher::{Fetcher, LARGE_BODIES};
pub use names::{Resolve, ResolveError, ResolveErrorKind, Resolving};
pub use static_names::{BadStaticName, StaticNames};
pub use timings::Timings;
pub use tls::TlsInfo;

//! The fetch module through its public doors, against real servers on the loopback.

mod codings;
mod cookies;
mod deadlines;
mod framing;
mod guard;
mod headers;
mod protocols;
mod proxies;
mod support;

//! The fetch module through its public doors, against real servers on the loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod codings;
mod cookies;
mod deadlines;
mod framing;
mod guard;
mod headers;
mod protocols;
mod proxies;
mod support;

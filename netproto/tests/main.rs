//! The fetch module through its public doors, against real servers on the loopback.

// Helpers outside of test functions may unwrap as well.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod codings;
mod cookies;
mod deadlines;
mod framing;
mod guard;
mod headers;
mod protocols;
mod proxies;
mod support;

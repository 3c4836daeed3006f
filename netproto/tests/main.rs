//! The modules through their public doors, against real servers on the loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod codings;
mod cookies;
mod deadlines;
mod framing;
mod guard;
mod headers;
mod peer;
mod peer_support;
mod protocols;
mod proxies;
mod support;
mod trust;

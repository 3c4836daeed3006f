//! The end-to-end suites: the real binary against the sites of the testkit. One binary, a module for each theme.
//!
//! Every test has directories and servers of its own and may run beside any other. Deadlines are there to end a test
//! that hangs, not to measure: they are many times what is needed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod bad_input;
mod budgets;
mod cluster;
mod conformance;
mod content;
mod hosts;
mod http2;
mod jobs;
mod kit;
mod locks;
mod mini;
mod politeness;
mod python;
mod resume;
mod security;
mod smoke;
mod zoo;

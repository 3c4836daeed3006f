//! The testkit: local web sites with a known truth, a zoo of bad ones, the real `dolomedes` binary as a child process,
//! and readers of what it writes that share no code with it. The end-to-end suites are in `tests/suite`.
//!
//! Not here: anything that production code uses, and nothing that looks inside the binary. What the suites know of it
//! is its command line ([`process`]), its files ([`outcome`], [`warc`]) and what arrives at the servers ([`site`]).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed expectation of the testkit is a failed test"
)]

pub mod cluster;
pub mod kill_loop;
pub mod outcome;
pub mod process;
pub mod site;
pub mod wait;
pub mod warc;

//! What the crate promises, through its public doors.

// Helpers outside of test functions may unwrap as well.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod codec;
mod group_crash;
mod group_format;
mod group_harness;
mod group_node;
mod group_queue;
mod group_snapshot;
mod group_suite;
mod machine;

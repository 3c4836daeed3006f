//! What the nodes agree on: a deterministic state machine (queues, leases, seen set, checkpoints) and the openraft glue
//! that replicates it. Knows nothing of HTTP, HTML, sinks or the command line.

pub mod cluster;
pub mod codec;
pub mod command;
pub mod embedded;
pub mod group;
pub mod machine;
pub mod stamp;

//! Durable bytes for Dolomedes: ordered keys, atomic batches, the Raft log's bytes, snapshots and the spool.
//! Knows nothing of openraft, gRPC, URLs or wall clocks.

pub mod codec;
pub mod engine;
mod error;
pub mod spool;

pub use error::{Error, Result};

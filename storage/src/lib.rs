//! Durable bytes for Dolomedes: ordered keys, atomic batches, the Raft log's bytes, snapshots and the spool.
//! Knows nothing of openraft, gRPC, URLs or wall clocks.

pub mod codec;
pub mod conformance;
pub mod directory;
pub mod engine;
mod error;
pub mod file;
pub mod floor;
pub mod log;
pub mod memory;
pub mod rocks;
pub mod spool;

pub use error::{Error, Result};

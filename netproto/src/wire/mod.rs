//! The public API of a cluster, as gRPC: generated types and services in [`v1`] (documented in `netproto/proto`), and a
//! [`Client`] that finds its way around dead members and repeats what may be repeated.

mod client;
mod jobs;
mod producer;

pub use client::{Client, ClientError, ClientOptions};
pub use producer::{Producer, ProducerOptions};

/// `dolomedes.v1`, as generated from the proto files.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("dolomedes.v1");
}

/// All proto files of the API with what they import, for reflection.
pub const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("dolomedes_v1");

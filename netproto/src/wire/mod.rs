//! The public API of a cluster, as gRPC: generated types and services in [`v1`] (documented in `netproto/proto`), and a
//! [`Client`] that finds its way around dead members and repeats what may be repeated.

mod access;
mod client;
mod dial;
mod jobs;
mod producer;
mod registry;
mod session;
mod token;

pub use access::{Access, CALLING_NODE, Credentials, NodeAccess};
pub use client::{Client, ClientError, ClientOptions, Connection};
pub use dial::node_channel;
pub use producer::{Producer, ProducerOptions};
pub use registry::Watch;
pub use session::{Lock, Session};
pub use token::{Token, TokenError, TokenKind};

/// `dolomedes.v1`, as generated from the proto files.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("dolomedes.v1");
}

/// All proto files of the API with what they import, for reflection.
pub const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("dolomedes_v1");

//! How the nodes of a cluster reach each other: opaque requests and ordered streams of them, on lanes that do not wait
//! for each other. What the bytes mean is the business of whoever sends them.
//!
//! [`PeerClient`] sends, [`service`] answers behind [`serve`] or whatever else accepts connections, and [`identity`] makes the
//! certificates with which both know each other. The protocol is `proto/dolomedes/peer/v1/peer.proto`.

mod backoff;
mod bounds;
mod client;
mod frame;
mod gate;
mod hello;
pub mod identity;
mod line;
pub(crate) mod link;
pub(crate) mod pinned;
mod rate;
pub(crate) mod security;
mod server;
mod service;
mod stream;
mod verdict;

/// The messages and the service, as generated.
mod wire {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
    tonic::include_proto!("dolomedes.peer.v1");
}

pub use bounds::{MAX_FRAME, PROTOCOL_VERSION};
pub use client::{PeerClient, SNAPSHOT_RATE};
pub use gate::{Gate, Membership, PeerConnection};
pub use hello::Member;
pub use security::{MutualTls, Security, SecurityError};
pub use server::serve;
pub use service::{Answering, Answers, PeerService, service};

use std::{fmt, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc;

/// A node's number, given once and for ever.
pub type NodeNumber = u64;

/// A boxed future.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Requests of one lane never wait for those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Votes, heartbeats, transfers of leadership, forwarded operations: small and urgent.
    Control,
    /// Pieces of snapshots: large, limited in rate, never urgent.
    Snapshot,
}

/// Frames that wait at either end of a stream, each way, before the sender has to wait; between them goes what fits
/// a window of 512 KiB.
pub const STREAM_DEPTH: usize = 16;

/// An ordered two-way stream on the lane of appends. Frames arrive in order and whole; the end of `frames` is the end of
/// the stream, with or without an error before it.
///
/// Dropping `sender` ends this direction once all that was sent has gone out; the opener still gets what the other end
/// says until that ends, too, while an accepter's end is the end of both directions. Dropping `frames` ends both directions
/// at once. A frame over the transport's limit ends the stream with an error.
#[derive(Debug)]
pub struct PeerStream {
    /// Sends to the other end; waits while [`STREAM_DEPTH`] frames wait to go out.
    pub sender: mpsc::Sender<Bytes>,
    /// What the other end sends.
    pub frames: mpsc::Receiver<Result<Bytes, PeerError>>,
}

/// Why a peer gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The request was certainly not handled.
    #[error("node {node} cannot be reached: {detail}")]
    Unreachable {
        /// The peer.
        node: NodeNumber,
        /// What is wrong.
        detail: String,
    },
    /// The connection broke, or time ran out: the request may have been handled or not.
    #[error("node {node} did not answer: {detail}")]
    Lost {
        /// The peer.
        node: NodeNumber,
        /// What happened.
        detail: String,
    },
    /// It is not who it was meant to be, or will have nothing to do with this node.
    #[error("node {node} refuses: {detail}")]
    Refused {
        /// The peer.
        node: NodeNumber,
        /// Its reason.
        detail: String,
    },
}

/// Sends to peers. Tests and the simulator have their own.
pub trait Transport: Send + Sync + fmt::Debug + 'static {
    /// One request, one answer, within `deadline`.
    fn call(
        &self,
        to: NodeNumber,
        lane: Lane,
        request: Bytes,
        deadline: Duration,
    ) -> Pending<Result<Bytes, PeerError>>;

    /// Opens a stream; `opening` tells the other end what it is for.
    fn open(&self, to: NodeNumber, opening: Bytes) -> Pending<Result<PeerStream, PeerError>>;
}

/// Answers peers. What comes in was checked to be of a member of this cluster, whole and unaltered.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request; an error reaches the sender as [`PeerError::Refused`].
    fn call(&self, from: NodeNumber, lane: Lane, request: Bytes) -> Pending<Result<Bytes, String>>;

    /// Takes a stream that a peer has opened; must return at once.
    fn accept(&self, from: NodeNumber, opening: Bytes, stream: PeerStream) -> Result<(), String>;
}

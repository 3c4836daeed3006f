//! The transport of a node that has no peers. Should a membership name another node all the same, that node is answered
//! for as unreachable, never as agreeing.

use std::time::Duration;

use bytes::Bytes;
use dolomedes_netproto::peer::{Lane, NodeNumber, PeerError, PeerStream, Pending, Transport};

/// Reaches nobody.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NoPeers;

fn unreachable(node: NodeNumber) -> PeerError {
    PeerError::Unreachable { node, detail: "an embedded group has no peers".to_owned() }
}

impl Transport for NoPeers {
    fn call(
        &self,
        to: NodeNumber,
        _lane: Lane,
        _request: Bytes,
        _deadline: Duration,
    ) -> Pending<Result<Bytes, PeerError>> {
        Box::pin(async move { Err(unreachable(to)) })
    }

    fn open(&self, to: NodeNumber, _opening: Bytes) -> Pending<Result<PeerStream, PeerError>> {
        Box::pin(async move { Err(unreachable(to)) })
    }
}

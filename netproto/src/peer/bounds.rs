//! The bounds that both ends of a connection keep, in one place because they depend on each other.

use std::time::Duration;

/// Version of the protocol between nodes. A node answers this one only.
pub const PROTOCOL_VERSION: u32 = 1;

/// The largest payload of a frame, bytes: one batch of appends or one piece of a snapshot fits amply.
pub const MAX_FRAME: usize = 8 << 20;

/// What protobuf adds to a payload at most: two tags, a length, a checksum.
pub(super) const FRAME_OVERHEAD: usize = 32;

/// Streams that one client keeps open to one peer: one per group, of which there are at most 64.
pub(super) const STREAMS_PER_PEER: usize = 64;

/// Calls under way at once from one client to one peer on the control lane; further ones wait within their deadlines.
pub(super) const CONTROL_CALLS: usize = 128;

/// The same on the snapshot lane, where each may be a whole [`MAX_FRAME`].
pub(super) const SNAPSHOT_CALLS: usize = 4;

/// What a server takes of each of the three per peer, as a multiple: after a reconnect the requests of the old connection
/// may not have ended yet.
pub(super) const SERVER_SLACK: usize = 2;

/// Connections that a server takes from one peer: three lanes, and those that died without a word and were not yet
/// noticed.
pub(super) const CONNECTIONS_PER_PEER: usize = 16;

/// Bytes on their way on one stream that the receiver has not taken.
pub(super) const STREAM_WINDOW: u32 = 512 << 10;

/// Bytes on their way on one connection: enough for all streams, so that one that stands still holds up no other.
pub(super) const CONNECTION_WINDOW: u32 = 32 << 20;

/// HTTP/2 frames, bytes: large payloads go in few pieces, small ones of other streams get in between.
pub(super) const HTTP2_FRAME: u32 = 64 << 10;

/// Silence after which a ping is sent.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Time for the answer to a ping; after it the connection is given up. With the interval: a peer that was stopped or cut
/// off is noticed after four seconds at the latest.
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest text of a reason that is sent, bytes.
pub(super) const MAX_REASON: usize = 512;

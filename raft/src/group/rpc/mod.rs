//! What the nodes of a group say to each other, over whatever [`Transport`](dolomedes_netproto::peer::Transport) carries
//! it: votes, heartbeats and transfers as single requests on the urgent lane, entries pipelined over one stream per group
//! and peer, snapshots in pieces on a lane of their own.

mod appends;
mod handler;
mod peer;
mod receive;
mod send;
pub mod wire;

pub use self::handler::GroupHandler;
pub(super) use self::{handler::Endpoint, peer::Peers, receive::read_piece};

//! A node of a cluster: its groups, the way to other nodes, and the controller that decides who votes. What clients ask
//! of it over gRPC is not known here.

mod controller;
mod node;
pub mod plan;
mod presence;
mod question;
mod reach;
mod seat;
mod secret;
mod ticker;
mod wire;

pub use self::{
    node::{ClusterError, ClusterNode, ClusterOptions, ClusterStart, FIRST_NODE, META},
    seat::{Seat, SeatError},
    secret::SecretKeeper,
};

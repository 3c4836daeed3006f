//! Groups over several nodes, in one process: engines in memory and a network that can be cut.

mod changes;
mod elections;
mod net;
mod nodes;

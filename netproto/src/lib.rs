//! What speaks on a network. [`fetch`] makes one HTTP exchange with somebody else's server; [`peer`] carries what the
//! nodes of a cluster say to each other; [`wire`] is the cluster's public API. Nothing here knows of
//! queues, storage or crawling policy: which URL to fetch, how often and whether it may be fetched at all is decided
//! elsewhere.

pub mod fetch;
pub mod peer;
pub mod wire;

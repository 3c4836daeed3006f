//! How long the parts of an exchange took. Plain data, filled in by [`super::Fetcher`].

use std::time::Duration;

/// Where the time of an exchange went. Parts that did not take place are `None`: on a connection that was open already
/// there is no DNS, connect and TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Resolving the name.
    pub dns: Option<Duration>,
    /// Opening the TCP connection (to the proxy, if there is one).
    pub connect: Option<Duration>,
    /// The TLS handshake; with a proxy, from the first handshake to the end of the tunnel's.
    pub tls: Option<Duration>,
    /// From having a connection to having the response head.
    pub first_byte: Option<Duration>,
    /// From the call to the end of the body, or to the failure.
    pub total: Duration,
    /// Whether the connection had been used before (or was opened for another request).
    pub reused: bool,
}

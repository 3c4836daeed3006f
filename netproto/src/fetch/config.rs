//! What a [`super::Fetcher`] is built from, and the deadlines of a request. Plain data.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use ipnet::IpNet;
use url::Url;

use super::dns::DnsConfig;
use super::names::Resolve;
use super::static_names::StaticNames;

/// Which HTTP versions are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HttpVersions {
    /// HTTP/2 where TLS negotiates it (ALPN), HTTP/1.1 otherwise.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only, also without TLS ("prior knowledge", RFC 9113 3.3).
    Http2,
}

/// How a [`super::Fetcher`] behaves.
#[derive(Clone)]
pub struct FetcherConfig {
    /// The `User-Agent`.
    pub user_agent: String,
    /// Headers of every request that does not set them itself, beside `Accept` and `Accept-Encoding`.
    pub headers: HeaderMap,
    /// Certificates of further authorities to trust, PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// A proxy for everything: `http://`, `https://` or `socks5h://`, with user and password if needed. The guard still
    /// judges URLs (scheme, port, literal addresses), but host names are resolved by the proxy, so it is the proxy
    /// that must keep them from leading to private networks. The proxy itself may have any address.
    pub proxy: Option<Url>,
    /// Private or special networks that may be fetched from all the same.
    pub allow_nets: Vec<IpNet>,
    /// Names with addresses given by hand. The guard judges these addresses too.
    pub static_names: StaticNames,
    /// Resolves names instead of the system's configuration.
    pub resolver: Option<Arc<dyn Resolve>>,
    /// How the system's DNS is used.
    pub dns: DnsConfig,
    /// Which HTTP versions are spoken.
    pub http: HttpVersions,
    /// Idle connections kept per scheme, host and port. The HTTP library has no bound over all hosts: there are as many
    /// as were used within [`FetcherConfig::idle_timeout`].
    pub idle_per_host: usize,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// The end of connecting in any case, also for connections that nobody waits for any more (a request may be given
    /// another one that became free). Divided among the addresses of a name that are tried in turn.
    pub connect_bound: Duration,
}

impl Default for FetcherConfig {
    fn default() -> Self {
        Self {
            user_agent: concat!("dolomedes/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: HeaderMap::new(),
            ca_pem: None,
            proxy: None,
            allow_nets: Vec::new(),
            static_names: StaticNames::default(),
            resolver: None,
            dns: DnsConfig::default(),
            http: HttpVersions::Auto,
            idle_per_host: 32,
            idle_timeout: Duration::from_secs(15),
            connect_bound: Duration::from_secs(60),
        }
    }
}

/// Why a [`super::Fetcher`] cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The user agent cannot be sent.
    #[error("the user agent {0:?} has characters that a header cannot have")]
    UserAgent(String),
    /// The extra authorities cannot be read.
    #[error("the file of CA certificates is not usable: {0}")]
    CaPem(String),
    /// The proxy is not understood.
    #[error("{0:?} is not a proxy: http://, https:// or socks5h:// with a host is")]
    Proxy(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// The HTTP library refuses.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(String),
}

/// How long each phase of an exchange may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Resolving the name, waiting for a free resolver included.
    pub dns: Duration,
    /// Opening the TCP connection, all addresses together.
    pub connect: Duration,
    /// The TLS handshake (and a proxy's tunnel).
    pub tls: Duration,
    /// From the connection to the end of the response head.
    pub first_byte: Duration,
    /// Between two pieces of the body.
    pub idle: Duration,
    /// The whole exchange.
    pub total: Duration,
    /// The least rate of the body; `None`: any.
    pub min_rate: Option<MinRate>,
}

/// The least rate at which a body must arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinRate {
    /// Bytes as received, per window.
    pub bytes: u64,
    /// The window; the first begins with the body.
    pub window: Duration,
}

impl Default for Deadlines {
    /// DNS, connect and TLS 10 s each, first byte 30 s, idle 20 s, total 120 s, at least 1 KiB per 30 s.
    fn default() -> Self {
        Self {
            dns: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            tls: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(20),
            total: Duration::from_secs(120),
            min_rate: Some(MinRate { bytes: 1024, window: Duration::from_secs(30) }),
        }
    }
}

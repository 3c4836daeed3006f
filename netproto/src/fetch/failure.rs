//! Why an exchange did not happen, in words that stay the same: they end up in records, counters and retry rules. Not
//! here: what is wrong with a body that arrived in part, which is [`super::Cut`].

use std::error::Error as StdError;
use std::io;

use super::names::{ResolveError, ResolveErrorKind};
use super::phase::Phase;
use super::timings::Timings;

/// What kept an exchange from giving a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The URL cannot be fetched at all: wrong scheme, no host, not acceptable to HTTP.
    InvalidUrl,
    /// A header to send is not acceptable to HTTP.
    InvalidRequest,
    /// The port belongs to another protocol.
    RefusedPort,
    /// The address is private or special and was not allowed.
    RefusedAddress,
    /// The name does not exist or has no address.
    Dns,
    /// The name servers did not say whether the name has an address.
    DnsFailure,
    /// The name was not resolved in time.
    DnsTimeout,
    /// No connection: refused, unreachable.
    Connect,
    /// No connection in time.
    ConnectTimeout,
    /// The proxy would not or could not connect.
    Proxy,
    /// The TLS handshake failed, or the certificate is not valid for the host.
    Tls,
    /// The TLS handshake took too long.
    TlsTimeout,
    /// No response head in time.
    FirstByteTimeout,
    /// The body stopped arriving.
    IdleTimeout,
    /// The whole exchange took too long.
    TotalTimeout,
    /// The body kept arriving, but more slowly than the least rate.
    TooSlow,
    /// The connection was closed or reset before there was a response.
    Reset,
    /// What arrived is not HTTP.
    Protocol,
    /// The response head is larger than what is taken.
    HeaderTooLarge,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [FailureKind; 19] = [
        FailureKind::InvalidUrl,
        FailureKind::InvalidRequest,
        FailureKind::RefusedPort,
        FailureKind::RefusedAddress,
        FailureKind::Dns,
        FailureKind::DnsFailure,
        FailureKind::DnsTimeout,
        FailureKind::Connect,
        FailureKind::ConnectTimeout,
        FailureKind::Proxy,
        FailureKind::Tls,
        FailureKind::TlsTimeout,
        FailureKind::FirstByteTimeout,
        FailureKind::IdleTimeout,
        FailureKind::TotalTimeout,
        FailureKind::TooSlow,
        FailureKind::Reset,
        FailureKind::Protocol,
        FailureKind::HeaderTooLarge,
    ];

    /// A short stable name: snake case, never changed once released.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::InvalidUrl => "invalid_url",
            FailureKind::InvalidRequest => "invalid_request",
            FailureKind::RefusedPort => "refused_port",
            FailureKind::RefusedAddress => "refused_address",
            FailureKind::Dns => "dns",
            FailureKind::DnsFailure => "dns_failure",
            FailureKind::DnsTimeout => "dns_timeout",
            FailureKind::Connect => "connect",
            FailureKind::ConnectTimeout => "connect_timeout",
            FailureKind::Proxy => "proxy",
            FailureKind::Tls => "tls",
            FailureKind::TlsTimeout => "tls_timeout",
            FailureKind::FirstByteTimeout => "first_byte_timeout",
            FailureKind::IdleTimeout => "idle_timeout",
            FailureKind::TotalTimeout => "total_timeout",
            FailureKind::TooSlow => "too_slow",
            FailureKind::Reset => "reset",
            FailureKind::Protocol => "protocol",
            FailureKind::HeaderTooLarge => "header_too_large",
        }
    }

    /// Whether the same request may well succeed later.
    pub fn is_retryable(self) -> bool {
        !matches!(
            self,
            FailureKind::InvalidUrl
                | FailureKind::InvalidRequest
                | FailureKind::RefusedPort
                | FailureKind::RefusedAddress
                | FailureKind::HeaderTooLarge
        )
    }

    /// Whether the failure says something about the host's health, so that many in a row should make one leave the
    /// host alone. A proxy's failure and our own refusals do not.
    pub fn counts_against_host(self) -> bool {
        !matches!(
            self,
            FailureKind::InvalidUrl
                | FailureKind::InvalidRequest
                | FailureKind::RefusedPort
                | FailureKind::RefusedAddress
                | FailureKind::Proxy
                | FailureKind::HeaderTooLarge
                | FailureKind::TooSlow
        )
    }
}

/// An exchange without a (whole) response.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {message}", kind.as_str())]
pub struct FetchFailure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// For people: what happened, to what.
    pub message: String,
    /// How far it got.
    pub timings: Timings,
}

/// Judges an error of the HTTP library that came while waiting for the response head.
pub(super) fn classify(error: &reqwest::Error, phase: Phase, via_proxy: bool) -> (FailureKind, String) {
    let mut kind = None;
    let mut innermost = String::new();
    walk(error, &mut |error| {
        let found = kind_of(error, phase);
        kind = match (kind, found) {
            // The innermost cause knows best, except that an I/O error only says how a known cause showed.
            (Some(known), Some(FailureKind::Reset | FailureKind::Connect)) => Some(known),
            (_, Some(found)) => Some(found),
            (known, None) => known,
        };
        innermost = error.to_string();
    });
    let kind = kind.unwrap_or(match phase {
        Phase::Dns => FailureKind::DnsFailure,
        Phase::Connect => FailureKind::Connect,
        Phase::Tls => FailureKind::Tls,
        Phase::Waiting => FailureKind::Protocol,
    });
    let kind = match kind {
        // The only connection that is made is the one to the proxy.
        FailureKind::Connect | FailureKind::ConnectTimeout if via_proxy => FailureKind::Proxy,
        kind => kind,
    };
    (kind, innermost)
}

/// Visits an error and its causes, also those that an I/O error hides inside itself.
pub(super) fn walk(error: &(dyn StdError + 'static), visit: &mut dyn FnMut(&(dyn StdError + 'static))) {
    // Deeper chains than this are not made by any library in use; the bound is for loops.
    let mut left = 32;
    let mut next = Some(error);
    while let Some(error) = next {
        visit(error);
        left -= 1;
        if left == 0 {
            return;
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
}

fn kind_of(error: &(dyn StdError + 'static), phase: Phase) -> Option<FailureKind> {
    if let Some(error) = error.downcast_ref::<ResolveError>() {
        return Some(match error.kind {
            ResolveErrorKind::NoAddress => FailureKind::Dns,
            ResolveErrorKind::Failed => FailureKind::DnsFailure,
            ResolveErrorKind::Timeout => FailureKind::DnsTimeout,
            ResolveErrorKind::Refused => FailureKind::RefusedAddress,
        });
    }
    if error.downcast_ref::<rustls::Error>().is_some() {
        return Some(FailureKind::Tls);
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return if error.is_parse_too_large() {
            Some(FailureKind::HeaderTooLarge)
        } else if error.is_parse() || error.is_parse_status() {
            Some(FailureKind::Protocol)
        } else if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
            Some(FailureKind::Reset)
        } else if error.is_user() {
            Some(FailureKind::InvalidRequest)
        } else {
            None
        };
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return match error.reason() {
            Some(
                h2::Reason::PROTOCOL_ERROR | h2::Reason::COMPRESSION_ERROR | h2::Reason::FRAME_SIZE_ERROR,
            ) => Some(FailureKind::Protocol),
            Some(_) => Some(FailureKind::Reset),
            None if error.is_io() => Some(FailureKind::Reset),
            None => Some(FailureKind::Protocol),
        };
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return kind_of_io(error, phase);
    }
    // hyper-util's tunnel keeps its error types private; only its words tell them.
    let text = error.to_string();
    (text.starts_with("tunnel error") || text.starts_with("proxy")).then_some(FailureKind::Proxy)
}

fn kind_of_io(error: &io::Error, phase: Phase) -> Option<FailureKind> {
    use io::ErrorKind as K;
    match (error.kind(), phase) {
        (K::TimedOut, Phase::Waiting) => Some(FailureKind::Reset),
        (K::TimedOut, Phase::Tls) => Some(FailureKind::TlsTimeout),
        (K::TimedOut, _) => Some(FailureKind::ConnectTimeout),
        (_, Phase::Tls) => Some(FailureKind::Tls),
        (_, Phase::Connect) => Some(FailureKind::Connect),
        (
            K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe | K::UnexpectedEof | K::NotConnected,
            _,
        ) => Some(FailureKind::Reset),
        _ => None,
    }
}

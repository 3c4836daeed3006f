//! What is asked of a fetch and what comes back, and the heads as archives want them. Plain data and pure functions.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};
use tokio::sync::OwnedSemaphorePermit;
use url::Url;

use super::body::{Cut, Limits};
use super::config::Deadlines;
use super::decode::Coding;
use super::timings::Timings;
use super::tls::TlsInfo;

/// One exchange to make.
#[derive(Clone, Debug)]
pub struct Request {
    /// GET or HEAD; requests have no bodies here.
    pub method: Method,
    /// The URL. Its fragment, user name and password are not sent.
    pub url: Url,
    /// Headers beside and instead of the fetcher's own.
    pub headers: HeaderMap,
    /// Asks for the page only if it has changed.
    pub conditional: Option<Conditional>,
    /// How long the phases may take.
    pub deadlines: Deadlines,
    /// How much of the body is taken.
    pub limits: Limits,
    /// Keep the body as received and both heads, for an archive.
    pub keep_wire: bool,
}

impl Request {
    /// GET with everything at its default.
    pub fn get(url: Url) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            conditional: None,
            deadlines: Deadlines::default(),
            limits: Limits::default(),
            keep_wire: false,
        }
    }
}

/// What is known of a page from an earlier fetch (RFC 9110 13). The values are those of its response headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditional {
    /// `ETag`, sent as `If-None-Match`.
    pub etag: Option<HeaderValue>,
    /// `Last-Modified`, sent as `If-Modified-Since`.
    pub last_modified: Option<HeaderValue>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Its status, also if that is a redirect or an error.
    pub status: StatusCode,
    /// The protocol that it came over.
    pub version: Version,
    /// Its headers, as received: `Content-Encoding` and `Content-Length` are those of the body on the wire.
    pub headers: HeaderMap,
    /// The body with its content codings undone.
    pub body: Bytes,
    /// The body as received (without chunked framing), if it was to be kept.
    pub wire: Option<Bytes>,
    /// Size of the body as received.
    pub wire_bytes: u64,
    /// Size of [`Fetched::body`].
    pub decoded_bytes: u64,
    /// The content codings of the header, in the order in which they were applied.
    pub encodings: Vec<Coding>,
    /// Why the body is not whole; `None`: it is.
    pub truncated: Option<Cut>,
    /// Where the time went.
    pub timings: Timings,
    /// Who answered: the server, or the proxy.
    pub remote_addr: Option<SocketAddr>,
    /// What the handshake agreed on, if the connection was opened for this exchange and has TLS.
    pub tls: Option<TlsInfo>,
    /// The request head, if it was to be kept. Written anew in HTTP/1.1 form, whatever the protocol.
    pub request_head: Option<Bytes>,
    /// The response head, likewise. `Transfer-Encoding` is renamed to `X-Crawler-Transfer-Encoding`, because the body
    /// that belongs to it has no such framing any more.
    pub response_head: Option<Bytes>,
    /// For a large body: its place among the [`super::LARGE_BODIES`] that may be in memory at once. Whoever takes the
    /// body and keeps it keeps this as well.
    pub room: Option<Arc<OwnedSemaphorePermit>>,
}

impl Fetched {
    /// `http/1.0`, `http/1.1` or `h2`.
    pub fn protocol(&self) -> &'static str {
        match self.version {
            Version::HTTP_2 => "h2",
            Version::HTTP_10 => "http/1.0",
            _ => "http/1.1",
        }
    }
}

/// The fetcher's headers, those of the request over them, and the conditions.
pub(super) fn request_headers(
    defaults: &HeaderMap,
    own: HeaderMap,
    conditional: Option<&Conditional>,
) -> Result<HeaderMap, String> {
    let mut headers = defaults.clone();
    let mut last: Option<HeaderName> = None;
    for (name, value) in own {
        match (name, &last) {
            (Some(name), _) => {
                if matches!(name, header::CONTENT_LENGTH | header::TRANSFER_ENCODING | header::CONNECTION) {
                    return Err(format!("the header {name} is not the caller's to set"));
                }
                headers.insert(name.clone(), value);
                last = Some(name);
            }
            (None, Some(name)) => {
                headers.append(name.clone(), value);
            }
            (None, None) => {}
        }
    }
    if let Some(conditional) = conditional {
        if let Some(etag) = &conditional.etag {
            headers.insert(header::IF_NONE_MATCH, etag.clone());
        }
        if let Some(date) = &conditional.last_modified {
            headers.insert(header::IF_MODIFIED_SINCE, date.clone());
        }
    }
    Ok(headers)
}

/// The request head as it would be in HTTP/1.1.
pub(super) fn request_head(method: &Method, url: &Url, headers: &HeaderMap) -> Bytes {
    let mut head = BytesMut::with_capacity(512);
    let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    // Writing to memory cannot fail.
    let _ = write!(head, "{method} {target} HTTP/1.1\r\nhost: {host}\r\n");
    for (name, value) in headers {
        put_field(&mut head, name.as_str(), value.as_bytes());
    }
    head.put_slice(b"\r\n");
    head.freeze()
}

/// The response head in HTTP/1.1 form.
pub(super) fn response_head(response: &reqwest::Response) -> Bytes {
    let mut head = BytesMut::with_capacity(1024);
    let version = match response.version() {
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let status = response.status();
    let _ = write!(head, "{version} {} ", status.as_u16());
    match response.extensions().get::<hyper::ext::ReasonPhrase>() {
        Some(reason) => head.put_slice(reason.as_bytes()),
        None => head.put_slice(status.canonical_reason().unwrap_or_default().as_bytes()),
    }
    head.put_slice(b"\r\n");
    for (name, value) in response.headers() {
        let name = match name {
            &header::TRANSFER_ENCODING => "x-crawler-transfer-encoding",
            name => name.as_str(),
        };
        put_field(&mut head, name, value.as_bytes());
    }
    head.put_slice(b"\r\n");
    head.freeze()
}

fn put_field(head: &mut BytesMut, name: &str, value: &[u8]) {
    head.reserve(name.len() + value.len() + 4);
    head.put_slice(name.as_bytes());
    head.put_slice(b": ");
    head.put_slice(value);
    head.put_slice(b"\r\n");
}

/// A URL for messages: not longer than a line or two.
pub(super) fn shown(url: &Url) -> std::borrow::Cow<'_, str> {
    const LONGEST: usize = 200;
    match url.as_str().char_indices().nth(LONGEST) {
        None => url.as_str().into(),
        Some((at, _)) => format!("{}…", &url.as_str()[..at]).into(),
    }
}

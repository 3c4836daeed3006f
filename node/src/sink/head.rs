//! The heads of HTTP messages as an archive keeps them. Whatever version was spoken, they are written as HTTP/1: that is
//! what readers of WARC files parse; the version itself goes into WARC-Protocol.

use http::{HeaderMap, Method, Version, header};
use url::Url;

/// The request line and headers, with the empty line behind them. A missing `host` is taken from `url`.
pub fn request_head(method: &Method, url: &Url, version: Version, headers: &HeaderMap) -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    head.extend_from_slice(method.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(url.path().as_bytes());
    if let Some(query) = url.query() {
        head.push(b'?');
        head.extend_from_slice(query.as_bytes());
    }
    head.push(b' ');
    head.extend_from_slice(version_word(version));
    head.extend_from_slice(b"\r\n");
    if !headers.contains_key(header::HOST)
        && let Some(host) = url.host_str()
    {
        push_field(
            &mut head,
            b"host",
            url.port().map_or(host.to_owned(), |port| format!("{host}:{port}")).as_bytes(),
        );
    }
    push_fields(&mut head, headers);
    head
}

/// The status line and headers, with the empty line behind them. `reason` is the phrase as received; HTTP/2 has none.
///
/// The body is archived without its transfer coding, so `transfer-encoding` is renamed to
/// `x-archive-orig-transfer-encoding`, as other archiving tools do.
pub fn response_head(version: Version, status: u16, reason: Option<&[u8]>, headers: &HeaderMap) -> Vec<u8> {
    let mut head = Vec::with_capacity(512);
    head.extend_from_slice(version_word(version));
    head.extend_from_slice(format!(" {status:03} ").as_bytes());
    match reason {
        Some(reason) => head.extend(reason.iter().map(|&byte| if byte < b' ' { b' ' } else { byte })),
        None => {
            let canonical =
                http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
            head.extend_from_slice(canonical.unwrap_or("").as_bytes());
        }
    }
    head.extend_from_slice(b"\r\n");
    push_fields(&mut head, headers);
    head
}

fn version_word(version: Version) -> &'static [u8] {
    if version < Version::HTTP_11 { b"HTTP/1.0" } else { b"HTTP/1.1" }
}

fn push_fields(head: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        if name == header::TRANSFER_ENCODING {
            push_field(head, b"x-archive-orig-transfer-encoding", value.as_bytes());
        } else {
            push_field(head, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    head.extend_from_slice(b"\r\n");
}

fn push_field(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

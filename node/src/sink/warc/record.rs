//! The bytes of WARC records. Pure, and the same each time for the same envelope: a record that is written again after a
//! crash has the same id.

use std::fmt::Display;

use sha1::{Digest as _, Sha1};

use super::{
    cdxj::Entry,
    seen::{Digest, Original, SeenPayloads},
};
use crate::record::{Envelope, Exchange, rfc3339_ms};

const REVISIT: &str = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest";
const CONFORMS_TO: &str = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/";

/// A record ready to be compressed.
pub(super) struct Written<'a> {
    header: Vec<u8>,
    block: Block<'a>,
    /// What the index says of it; not every record is in the index.
    pub(super) entry: Option<Entry<'a>>,
}

enum Block<'a> {
    Own(Vec<u8>),
    Shared(&'a [u8], &'a [u8]),
}

impl Written<'_> {
    pub(super) fn parts(&self) -> [&[u8]; 4] {
        match &self.block {
            Block::Own(bytes) => [&self.header, bytes, &[], b"\r\n\r\n"],
            Block::Shared(head, body) => [&self.header, head, body, b"\r\n\r\n"],
        }
    }
}

/// The first record of a file, and its id. Its date is that of the first fetch: a sink knows no clock.
pub(super) fn warcinfo(
    file_name: &str,
    first: &Exchange,
    info: &[(String, String)],
) -> (String, Written<'static>) {
    let mut block = Vec::new();
    push(&mut block, "software", concat!("dolomedes/", env!("CARGO_PKG_VERSION")));
    push(&mut block, "format", "WARC File Format 1.1");
    push(&mut block, "conformsTo", CONFORMS_TO);
    for (name, value) in info {
        push(&mut block, &one_line(name), one_line(value));
    }
    let id = urn(&uuid(&[file_name.as_bytes(), first.url.as_bytes(), &first.fetched_at_ms.to_be_bytes()]));
    let mut header = begin("warcinfo", &id, first.fetched_at_ms);
    push(&mut header, "WARC-Filename", file_name);
    push(&mut header, "WARC-Block-Digest", sha1_text(&sha1(&[&block])));
    end(&mut header, "application/warc-fields", block.len());
    (id, Written { header, block: Block::Own(block), entry: None })
}

/// The records of one fetch: response or revisit, request, metadata.
pub(super) fn fetch<'a>(
    envelope: &Envelope,
    exchange: &'a Exchange,
    info_id: Option<&str>,
    seen: &mut SeenPayloads,
) -> [Written<'a>; 3] {
    let id_of = |kind: &str| {
        uuid(&[
            kind.as_bytes(),
            &envelope.queue.to_be_bytes(),
            &envelope.message.index.to_be_bytes(),
            &envelope.message.ordinal.to_be_bytes(),
            &envelope.attempt.to_be_bytes(),
            &exchange.fetched_at_ms.to_be_bytes(),
            exchange.url.as_bytes(),
        ])
    };
    let response_id = id_of("response");
    let about = About { exchange, url: one_word(&exchange.url), info_id, response: urn(&response_id) };
    let request_id = urn(&id_of("request"));
    let metadata_id = urn(&id_of("metadata"));
    let response = response(&about, response_id, &request_id, seen);
    [response, request(&about, &request_id), metadata(&about, &metadata_id)]
}

/// What the records of a fetch have in common.
struct About<'a, 'b> {
    exchange: &'a Exchange,
    url: String,
    info_id: Option<&'b str>,
    response: String,
}

impl About<'_, '_> {
    fn begin(&self, kind: &str, id: &str) -> Vec<u8> {
        let mut header = begin(kind, id, self.exchange.fetched_at_ms);
        push(&mut header, "WARC-Target-URI", &self.url);
        if let Some(ip) = self.exchange.remote_ip {
            push(&mut header, "WARC-IP-Address", ip);
        }
        if let Some(id) = self.info_id {
            push(&mut header, "WARC-Warcinfo-ID", id);
        }
        header
    }

    fn protocols(&self, header: &mut Vec<u8>) {
        for protocol in &self.exchange.protocols {
            push(header, "WARC-Protocol", one_line(protocol));
        }
    }
}

fn response<'a>(
    about: &About<'a, '_>,
    id: [u8; 16],
    request_id: &str,
    seen: &mut SeenPayloads,
) -> Written<'a> {
    let exchange = about.exchange;
    let payload = sha1(&[&exchange.body]);
    // A part of a payload is no evidence of the rest of it, and an empty one saves nothing.
    let comparable = exchange.truncated.is_none() && !exchange.body.is_empty();
    let original = if comparable { seen.get(&payload).cloned() } else { None };
    let mut header = about.begin(if original.is_some() { "revisit" } else { "response" }, &about.response);
    about.protocols(&mut header);
    push(&mut header, "WARC-Concurrent-To", request_id);
    push(&mut header, "WARC-Payload-Digest", sha1_text(&payload));
    let body: &[u8] = if original.is_some() { &[] } else { &exchange.body };
    push(&mut header, "WARC-Block-Digest", sha1_text(&sha1(&[&exchange.response_head, body])));
    match &original {
        Some(original) => {
            push(&mut header, "WARC-Profile", REVISIT);
            push(&mut header, "WARC-Refers-To", urn(&original.record_id));
            push(&mut header, "WARC-Refers-To-Target-URI", &original.url);
            push(&mut header, "WARC-Refers-To-Date", rfc3339_ms(original.fetched_at_ms));
        }
        None if comparable => {
            let url = about.url.as_str().into();
            let fetched_at_ms = exchange.fetched_at_ms;
            seen.insert(payload, Original { record_id: id, url, fetched_at_ms });
        }
        None => {}
    }
    if let Some(reason) = exchange.truncated {
        push(&mut header, "WARC-Truncated", reason.word());
    }
    end(&mut header, "application/http; msgtype=response", exchange.response_head.len() + body.len());
    let entry = Entry {
        url: about.url.clone(),
        fetched_at_ms: exchange.fetched_at_ms,
        response_head: &exchange.response_head,
        digest: sha1_text(&payload),
        revisit: original.is_some(),
    };
    Written { header, block: Block::Shared(&exchange.response_head, body), entry: Some(entry) }
}

fn request<'a>(about: &About<'a, '_>, id: &str) -> Written<'a> {
    let head: &'a [u8] = &about.exchange.request_head;
    let mut header = about.begin("request", id);
    about.protocols(&mut header);
    push(&mut header, "WARC-Concurrent-To", &about.response);
    push(&mut header, "WARC-Block-Digest", sha1_text(&sha1(&[head])));
    end(&mut header, "application/http; msgtype=request", head.len());
    Written { header, block: Block::Shared(head, &[]), entry: None }
}

fn metadata<'a>(about: &About<'a, '_>, id: &str) -> Written<'a> {
    let exchange = about.exchange;
    let mut block = Vec::new();
    if let Some(via) = &exchange.via {
        push(&mut block, "via", one_line(via));
    }
    push(&mut block, "depth", exchange.depth);
    push(&mut block, "fetchTimeMs", exchange.took_ms);
    if let Some(digest) = &exchange.decoded_digest {
        push(&mut block, "decodedDigest", one_line(digest));
    }
    let mut header = about.begin("metadata", id);
    push(&mut header, "WARC-Concurrent-To", &about.response);
    push(&mut header, "WARC-Block-Digest", sha1_text(&sha1(&[&block])));
    end(&mut header, "application/warc-fields", block.len());
    Written { header, block: Block::Own(block), entry: None }
}

fn begin(kind: &str, id: &str, unix_ms: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(768);
    header.extend_from_slice(b"WARC/1.1\r\n");
    push(&mut header, "WARC-Type", kind);
    push(&mut header, "WARC-Record-ID", id);
    push(&mut header, "WARC-Date", rfc3339_ms(unix_ms));
    header
}

fn end(header: &mut Vec<u8>, content_type: &str, length: usize) {
    push(header, "Content-Type", content_type);
    push(header, "Content-Length", length);
    header.extend_from_slice(b"\r\n");
}

fn push(out: &mut Vec<u8>, name: &str, value: impl Display) {
    use std::io::Write;
    // Writing to a vector does not fail.
    let _ = write!(out, "{name}: {value}\r\n");
}

/// Text that can stand in a field: no control characters, so no end of a line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A URL that can stand in a field and in a line of the index. Canonical URLs pass unchanged.
fn one_word(url: &str) -> String {
    let mut word = String::with_capacity(url.len());
    for c in url.chars() {
        match c {
            c if c.is_control() || c.is_whitespace() => {
                let mut utf8 = [0; 4];
                c.encode_utf8(&mut utf8).bytes().for_each(|byte| word.push_str(&format!("%{byte:02X}")));
            }
            c => word.push(c),
        }
    }
    word
}

fn sha1(parts: &[&[u8]]) -> Digest {
    let mut hasher = Sha1::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}

fn sha1_text(digest: &Digest) -> String {
    format!("sha1:{}", data_encoding::BASE32.encode(digest))
}

/// A UUID of version 8 (RFC 9562) made of the parts, each of which counts with its length.
fn uuid(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key("dolomedes 2026-12 WARC record ids");
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

fn urn(id: &[u8; 16]) -> String {
    let hex = data_encoding::HEXLOWER.encode(id);
    format!("<urn:uuid:{}-{}-{}-{}-{}>", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

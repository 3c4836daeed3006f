//! Bytes to text: which encoding a document is in, and its text in UTF-8, borrowed where the bytes are that
//! already. Content codings (gzip and the like) are removed before.
//!
//! The order: byte order mark, `charset` of the HTTP header, declaration in the document's first 1,024 bytes,
//! guess. A label that names no encoding counts as absent. Labels mean what the Encoding standard says:
//! `gb2312` is GBK, `iso-8859-1` is windows-1252.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8};

use super::prescan;

/// Bytes that a guess is made from.
pub const GUESS_BYTES: usize = 64 * 1024;

/// How the encoding was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CharsetSource {
    /// A byte order mark.
    Bom,
    /// The `charset` of the `Content-Type` field.
    Header,
    /// A `meta` element or an XML declaration.
    Document,
    /// The bytes.
    Guess,
}

/// A decoded document.
#[derive(Clone, Debug)]
pub struct Decoded<'a> {
    /// The text, without a byte order mark.
    pub text: Cow<'a, str>,
    /// What it was decoded from; `encoding.name()` is its label.
    pub encoding: &'static Encoding,
    /// How that was found.
    pub source: CharsetSource,
    /// Whether bytes that the encoding has no meaning for became U+FFFD.
    pub replaced: bool,
}

/// What is known about a document beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct CharsetHints<'h> {
    /// The `charset` parameter of the `Content-Type` field.
    pub header: Option<&'h str>,
    /// The host's last label, which tips the guess.
    pub tld: Option<&'h str>,
    /// XML: only the XML declaration counts, and UTF-8 is what is meant without one.
    pub is_xml: bool,
}

/// Decodes `body`.
pub fn decode<'a>(body: &'a [u8], hints: CharsetHints<'_>) -> Decoded<'a> {
    let (encoding, source, body) = match Encoding::for_bom(body) {
        Some((encoding, len)) => (encoding, CharsetSource::Bom, &body[len..]),
        None => {
            let (encoding, source) = find(body, hints);
            (encoding, source, body)
        }
    };
    let (text, replaced) = encoding.decode_without_bom_handling(body);
    Decoded { text, encoding, source, replaced }
}

fn find(body: &[u8], hints: CharsetHints<'_>) -> (&'static Encoding, CharsetSource) {
    if let Some(encoding) = hints.header.and_then(|label| Encoding::for_label(label.as_bytes())) {
        return (encoding, CharsetSource::Header);
    }
    if let Some(encoding) = prescan::declared(body, hints.is_xml) {
        return (encoding, CharsetSource::Document);
    }
    let encoding = if hints.is_xml { UTF_8 } else { guess(body, hints.tld) };
    (encoding, CharsetSource::Guess)
}

fn guess(body: &[u8], tld: Option<&str>) -> &'static Encoding {
    // Escape begins the shifts of ISO-2022-JP, which is all ASCII bytes.
    let valid = Encoding::utf8_valid_up_to(body);
    if valid == body.len() && memchr::memchr(0x1b, body).is_none() {
        return UTF_8;
    }
    // The guess is about bytes beyond ASCII, so it begins near the first of them.
    let start = Encoding::ascii_valid_up_to(body).saturating_sub(64);
    let start = if memchr::memchr(0x1b, &body[..start]).is_some() { 0 } else { start };
    let sample = &body[start..];
    let sample = &sample[..sample.len().min(GUESS_BYTES)];
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(sample, start + sample.len() == body.len());
    // The detector refuses, by panic, what is no lower-case label.
    let tld = tld
        .filter(|tld| !tld.is_empty() && tld.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')))
        .map(str::as_bytes);
    detector.guess(tld, Utf8Detection::Allow)
}

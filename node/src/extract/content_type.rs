//! What kind of document a body is, from its `Content-Type` and, where that says nothing, its first bytes.
//! Decoding is not done here.
//!
//! Source: WHATWG MIME Sniffing 4.4 (parsing) and 7.1 (unknown types, the part about text), bounded to
//! [`SNIFF_BYTES`].

use super::prescan::{starts_ignoring_case, trim_start_spaces};

/// Bytes of the body that are looked at.
pub const SNIFF_BYTES: usize = 1445;

/// A parsed `Content-Type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentType {
    /// `type/subtype`, lower case.
    pub essence: String,
    /// The first `charset` parameter as written; any junk is possible.
    pub charset: Option<String>,
}

/// What a crawler does with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// HTML: scan for links.
    Html,
    /// XHTML as XML: scan for links with [`super::Syntax::Xml`].
    Xhtml,
    /// An XML sitemap or sitemap index.
    Sitemap,
    /// RSS or Atom.
    Feed,
    /// Other XML.
    Xml,
    /// Text without markup.
    Text,
    /// Everything else.
    Other,
}

impl ContentType {
    /// Parses a field value; `None` when it names no type.
    pub fn parse(value: &str) -> Option<ContentType> {
        let value = value.trim_matches(is_http_space);
        let (essence, mut rest) = value.split_at(value.find(';').unwrap_or(value.len()));
        let essence = essence.trim_end_matches(is_http_space);
        let (kind, subtype) = essence.split_once('/')?;
        if !is_token(kind) || !is_token(subtype) {
            return None;
        }
        let mut charset = None;
        while let Some(parameter) = rest.strip_prefix(';') {
            let parameter = parameter.trim_start_matches(is_http_space);
            let name_end = parameter.find([';', '=']).unwrap_or(parameter.len());
            let (name, after) = parameter.split_at(name_end);
            let (text, after) = match after.strip_prefix('=') {
                Some(after) => parameter_value(after),
                None => (String::new(), after),
            };
            if charset.is_none() && name.eq_ignore_ascii_case("charset") && !text.is_empty() {
                charset = Some(text);
            }
            rest = after;
        }
        Some(ContentType { essence: essence.to_ascii_lowercase(), charset })
    }
}

impl DocumentKind {
    /// The kind of a body that begins with `head`. Bytes decide only where the type is missing or says
    /// nothing (`application/octet-stream` says binary), and which XML it is.
    pub fn of(content_type: Option<&ContentType>, head: &[u8]) -> DocumentKind {
        let head = &head[..head.len().min(SNIFF_BYTES)];
        let essence = content_type.map_or("", |parsed| parsed.essence.as_str());
        match essence {
            "text/html" => DocumentKind::Html,
            "application/xhtml+xml" => DocumentKind::Xhtml,
            "application/rss+xml" | "application/atom+xml" | "application/rdf+xml" => DocumentKind::Feed,
            "text/xml" | "application/xml" => sniff_xml(head),
            "image/svg+xml" => DocumentKind::Other,
            "" | "unknown/unknown" | "application/unknown" | "*/*" => sniff(head),
            _ if essence.ends_with("+xml") => sniff_xml(head),
            _ if essence.starts_with("text/") => DocumentKind::Text,
            _ => DocumentKind::Other,
        }
    }
}

fn is_http_space(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' ')
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// A parameter's value and what follows it, from the next `;` on.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(inner) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find(';').unwrap_or(text.len()));
        return (value.trim_end_matches(is_http_space).to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let after = &inner[at + 1..];
                return (value, after.find(';').map_or("", |semicolon| &after[semicolon..]));
            }
            '\\' => value.push(chars.next().map_or('\\', |(_, escaped)| escaped)),
            _ => value.push(c),
        }
    }
    (value, "")
}

/// A body of unknown type.
fn sniff(head: &[u8]) -> DocumentKind {
    const TAGS: [&[u8]; 16] = [
        b"<!DOCTYPE HTML",
        b"<HTML",
        b"<HEAD",
        b"<SCRIPT",
        b"<IFRAME",
        b"<H1",
        b"<DIV",
        b"<FONT",
        b"<TABLE",
        b"<A",
        b"<STYLE",
        b"<TITLE",
        b"<B",
        b"<BODY",
        b"<BR",
        b"<P",
    ];
    if let [0xef, 0xbb, 0xbf, text @ ..] = head {
        let kind = sniff(text);
        return if kind == DocumentKind::Other { DocumentKind::Text } else { kind };
    }
    if matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        return DocumentKind::Text;
    }
    let text = trim_start_spaces(head);
    let is_html = text.starts_with(b"<!--")
        || TAGS
            .iter()
            .any(|tag| starts_ignoring_case(text, tag) && matches!(text.get(tag.len()), Some(b' ' | b'>')));
    if is_html {
        DocumentKind::Html
    } else if text.starts_with(b"<?xml") {
        sniff_xml(head)
    } else if head.starts_with(b"%PDF-") || head.iter().any(|b| is_binary(*b)) {
        DocumentKind::Other
    } else {
        DocumentKind::Text
    }
}

/// A binary data byte of MIME Sniffing.
fn is_binary(b: u8) -> bool {
    matches!(b, 0x00..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f)
}

/// Which XML: by the root element, behind declarations, comments and the doctype.
fn sniff_xml(head: &[u8]) -> DocumentKind {
    let mut rest = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    loop {
        rest = trim_start_spaces(rest);
        let end: &[u8] = match rest {
            [b'<', b'!', b'-', b'-', ..] => b"-->",
            [b'<', b'?', ..] => b"?>",
            [b'<', b'!', ..] => b">",
            _ => break,
        };
        let Some(at) = memchr::memmem::find(rest, end) else { return DocumentKind::Xml };
        rest = &rest[at + end.len()..];
    }
    let Some(root) = rest.strip_prefix(b"<") else { return DocumentKind::Xml };
    let name_end =
        root.iter().position(|b| b.is_ascii_whitespace() || matches!(b, b'>' | b'/')).unwrap_or(root.len());
    let name = &root[..name_end];
    let local = name.iter().position(|b| *b == b':').map_or(name, |colon| &name[colon + 1..]);
    match local {
        b"urlset" | b"sitemapindex" => DocumentKind::Sitemap,
        b"rss" | b"feed" | b"RDF" => DocumentKind::Feed,
        b"html" => DocumentKind::Xhtml,
        _ => DocumentKind::Xml,
    }
}

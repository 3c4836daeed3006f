//! What the first bytes of a document say about its encoding: the `meta` prescan and the XML declaration. It
//! decodes nothing.
//!
//! Source: WHATWG HTML 13.2.3.2, "prescan a byte stream to determine its encoding" and "get an XML encoding".

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};
use memchr::memmem;

/// Bytes that a declaration must lie within.
pub(super) const PRESCAN_BYTES: usize = 1024;

pub(super) fn is_space(b: u8) -> bool {
    matches!(b, b'\t' | b'\n' | 0x0c | b'\r' | b' ')
}

pub(super) fn trim_start_spaces(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().position(|b| !is_space(*b)).unwrap_or(bytes.len())..]
}

pub(super) fn starts_ignoring_case(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

/// The encoding that the document declares in its first [`PRESCAN_BYTES`]: by a `meta` element, else by an
/// XML declaration; in XML only by the declaration.
pub(super) fn declared(body: &[u8], is_xml: bool) -> Option<&'static Encoding> {
    let head = &body[..body.len().min(PRESCAN_BYTES)];
    match head {
        [b'<', 0, b'?', 0, b'x', 0, ..] => return Some(UTF_16LE),
        [0, b'<', 0, b'?', 0, b'x', ..] => return Some(UTF_16BE),
        _ => {}
    }
    if is_xml { xml_declaration(head) } else { meta(head).or_else(|| xml_declaration(head)) }
}

/// What was just read as ASCII cannot be UTF-16, and what says `x-user-defined` in a `meta` means
/// windows-1252.
fn usable(encoding: &'static Encoding) -> &'static Encoding {
    if encoding == UTF_16BE || encoding == UTF_16LE {
        UTF_8
    } else if encoding == X_USER_DEFINED {
        WINDOWS_1252
    } else {
        encoding
    }
}

fn xml_declaration(head: &[u8]) -> Option<&'static Encoding> {
    let inner = head.strip_prefix(b"<?xml")?;
    let inner = &inner[..inner.iter().position(|b| *b == b'>')?];
    let rest = trim_xml(&inner[memmem::find(inner, b"encoding")? + 8..]);
    let rest = trim_xml(rest.strip_prefix(b"=")?);
    let quote = *rest.first().filter(|b| matches!(b, b'"' | b'\''))?;
    let rest = &rest[1..];
    let label = &rest[..rest.iter().position(|b| *b == quote)?];
    if label.iter().any(|b| *b <= b' ') {
        return None;
    }
    let encoding = Encoding::for_label(label)?;
    Some(if encoding == UTF_16BE || encoding == UTF_16LE { UTF_8 } else { encoding })
}

fn trim_xml(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().position(|b| *b > b' ').unwrap_or(bytes.len())..]
}

fn meta(head: &[u8]) -> Option<&'static Encoding> {
    let mut at = 0;
    while at < head.len() {
        let rest = &head[at..];
        if rest.starts_with(b"<!--") {
            // The two dashes may be those of the beginning.
            at += 2 + memmem::find(&rest[2..], b"-->")? + 3;
        } else if starts_ignoring_case(rest, b"<meta")
            && rest.get(5).is_some_and(|b| is_space(*b) || *b == b'/')
        {
            at += 5;
            if let Some(encoding) = meta_element(head, &mut at)? {
                return Some(encoding);
            }
        } else if let [b'<', b'/', letter, ..] | [b'<', letter, ..] = rest
            && letter.is_ascii_alphabetic()
        {
            at += rest.iter().position(|b| is_space(*b) || *b == b'>')?;
            while attribute(head, &mut at)?.is_some() {}
        } else if let [b'<', b'!' | b'/' | b'?', ..] = rest {
            at += rest.iter().position(|b| *b == b'>')? + 1;
        } else {
            at += 1 + head[at + 1..].iter().position(|b| *b == b'<')?;
        }
    }
    None
}

/// The attributes of one `meta`: its usable encoding, or none. The outer `None` is the end of the bytes.
fn meta_element(head: &[u8], at: &mut usize) -> Option<Option<&'static Encoding>> {
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut got_pragma = false;
    let mut need_pragma = None;
    let mut charset = None;
    while let Some((name, value)) = attribute(head, at)? {
        if seen.contains(&name) {
            continue;
        }
        match name.as_slice() {
            b"http-equiv" => got_pragma |= value == b"content-type",
            b"content" => {
                if charset.is_none()
                    && let Some(encoding) = charset_in_content(&value)
                {
                    charset = Some(encoding);
                    need_pragma = Some(true);
                }
            }
            b"charset" => {
                charset = Encoding::for_label(&value);
                need_pragma = Some(false);
            }
            _ => {}
        }
        seen.push(name);
    }
    let Some(need_pragma) = need_pragma else { return Some(None) };
    if need_pragma && !got_pragma {
        return Some(None);
    }
    Some(charset.map(usable))
}

/// A name and a value.
type Attribute = (Vec<u8>, Vec<u8>);

/// The spec's "get an attribute": name and value in lower case. The outer `None` is the end of the bytes, the
/// inner one the end of the tag.
fn attribute(head: &[u8], at: &mut usize) -> Option<Option<Attribute>> {
    while is_space(*head.get(*at)?) || head[*at] == b'/' {
        *at += 1;
    }
    if head[*at] == b'>' {
        return Some(None);
    }
    let mut name = Vec::new();
    loop {
        match *head.get(*at)? {
            b'=' if !name.is_empty() => break,
            b if is_space(b) => {
                while is_space(*head.get(*at)?) {
                    *at += 1;
                }
                if head[*at] != b'=' {
                    return Some(Some((name, Vec::new())));
                }
                break;
            }
            b'/' | b'>' => return Some(Some((name, Vec::new()))),
            b => name.push(b.to_ascii_lowercase()),
        }
        *at += 1;
    }
    *at += 1;
    while is_space(*head.get(*at)?) {
        *at += 1;
    }
    let mut value = Vec::new();
    match head[*at] {
        quote @ (b'"' | b'\'') => loop {
            *at += 1;
            match *head.get(*at)? {
                b if b == quote => {
                    *at += 1;
                    break;
                }
                b => value.push(b.to_ascii_lowercase()),
            }
        },
        b'>' => {}
        _ => loop {
            match *head.get(*at)? {
                b if is_space(b) || b == b'>' => break,
                b => value.push(b.to_ascii_lowercase()),
            }
            *at += 1;
        },
    }
    Some(Some((name, value)))
}

/// The spec's "extracting a character encoding from a meta element". `content` is in lower case.
fn charset_in_content(content: &[u8]) -> Option<&'static Encoding> {
    let mut rest = content;
    loop {
        rest = trim_start_spaces(&rest[memmem::find(rest, b"charset")? + 7..]);
        if let Some(after) = rest.strip_prefix(b"=") {
            rest = trim_start_spaces(after);
            break;
        }
    }
    let label = match *rest.first()? {
        quote @ (b'"' | b'\'') => {
            let rest = &rest[1..];
            &rest[..rest.iter().position(|b| *b == quote)?]
        }
        _ => &rest[..rest.iter().position(|b| is_space(*b) || *b == b';').unwrap_or(rest.len())],
    };
    Encoding::for_label(label)
}

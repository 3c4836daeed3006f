//! Character references (`&amp;`, `&#x41;`) in attribute values and RCDATA text, with the newline and NUL
//! rules that the tokenizer applies on the way. It is not a tokenizer: the value's ends are found before,
//! which is equivalent because no delimiter of a value can be part of a reference.
//!
//! Source: WHATWG HTML 13.2.5.72–80; the table of names is html5ever's.

use std::borrow::Cow;

use html5ever::data::{C1_REPLACEMENTS, NAMED_ENTITIES};
use memchr::memchr3;

/// Where a reference stands: in attribute values a name without its semicolon that is followed by `=` or an
/// alphanumeric is left alone, so that `?a=1&copy=2` survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The value of an attribute.
    Attribute,
    /// Text of an RCDATA element, such as a title.
    Text,
}

/// The longest name in the table is `CounterClockwiseContourIntegral;`. Bounds the look-ahead after one `&`.
const MAX_NAME: usize = 32;

/// Decodes `raw`: references are replaced, CR LF and CR become LF, NUL becomes U+FFFD. Borrows when nothing
/// changes.
pub fn decode(raw: &str, context: Context) -> Cow<'_, str> {
    let bytes = raw.as_bytes();
    let Some(first) = memchr3(b'&', b'\r', 0, bytes) else { return Cow::Borrowed(raw) };
    let mut out = String::with_capacity(raw.len());
    let mut done = 0;
    let mut next = Some(first);
    while let Some(at) = next {
        out.push_str(&raw[done..at]);
        done = at + 1;
        match bytes[at] {
            b'\r' => {
                if bytes.get(done) != Some(&b'\n') {
                    out.push('\n');
                }
            }
            0 => out.push(char::REPLACEMENT_CHARACTER),
            _ => match reference(&raw[done..], context) {
                Some((len, first, second)) => {
                    out.push(first);
                    out.extend(second);
                    done += len;
                }
                None => out.push('&'),
            },
        }
        next = memchr3(b'&', b'\r', 0, &bytes[done..]).map(|n| done + n);
    }
    out.push_str(&raw[done..]);
    Cow::Owned(out)
}

/// Reads one reference from the text after its `&`: the bytes it takes and what it stands for.
fn reference(rest: &str, context: Context) -> Option<(usize, char, Option<char>)> {
    let bytes = rest.as_bytes();
    match bytes.first()? {
        b'#' => numeric(bytes).map(|(len, c)| (len, c, None)),
        b if b.is_ascii_alphanumeric() => {
            // What most pages use, without walking the table's prefixes.
            if bytes.starts_with(b"amp;") { Some((4, '&', None)) } else { named(rest, context) }
        }
        _ => None,
    }
}

fn numeric(bytes: &[u8]) -> Option<(usize, char)> {
    let (radix, start) = if matches!(bytes.get(1), Some(b'x' | b'X')) { (16, 2) } else { (10, 1) };
    let mut value = 0u32;
    let mut at = start;
    while let Some(digit) = bytes.get(at).and_then(|b| char::from(*b).to_digit(radix)) {
        // Saturates above every code point, however many digits follow.
        value = value.saturating_mul(radix).saturating_add(digit);
        at += 1;
    }
    if at == start {
        return None;
    }
    if bytes.get(at) == Some(&b';') {
        at += 1;
    }
    let c = match value {
        0 => char::REPLACEMENT_CHARACTER,
        0x80..=0x9f => C1_REPLACEMENTS
            .get(value as usize - 0x80)
            .copied()
            .flatten()
            .or(char::from_u32(value))
            .unwrap_or(char::REPLACEMENT_CHARACTER),
        _ => char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    Some((at, c))
}

fn named(rest: &str, context: Context) -> Option<(usize, char, Option<char>)> {
    let bytes = rest.as_bytes();
    let mut found = None;
    for len in 1..=MAX_NAME {
        // The table holds every prefix of a name, as (0, 0), so a miss ends the search.
        let Some(entry) = rest.get(..len).and_then(|name| NAMED_ENTITIES.get(name)) else { break };
        if entry.0 != 0 {
            found = Some((len, *entry));
        }
    }
    let (len, (first, second)) = found?;
    if context == Context::Attribute
        && bytes[len - 1] != b';'
        && bytes.get(len).is_some_and(|b| *b == b'=' || b.is_ascii_alphanumeric())
    {
        return None;
    }
    Some((len, char::from_u32(first)?, if second == 0 { None } else { char::from_u32(second) }))
}

//! A start-tag scanner: finds in HTML exactly the start tags and attributes that a WHATWG tokenizer with
//! scripting off would emit, without building text, comment or doctype tokens. It is not a tree builder, so
//! the switches that need a tree are decided by tag name alone:
//!
//! * `title`, `textarea`, `style`, `xmp`, `iframe`, `noembed`, `noframes`, `script` and `plaintext` change
//!   the state wherever they stand, also inside `svg` and `math`, where a browser would read markup;
//! * `<![CDATA[` is a bogus comment (ends at the first `>`), as it is outside foreign content. With
//!   [`Syntax::Xml`] it is a section up to `]]>`, and self-closed `<script/>` has no content.
//!
//! Every byte is looked at a bounded number of times: what is unclosed ends the input, nothing is read again.
//!
//! Source: WHATWG HTML 13.2.5 (tokenization).

use std::borrow::Cow;

use memchr::{memchr, memchr2, memmem};

use super::char_ref::{self, Context};
use super::element::{Element, ElementSet};

/// Attributes of one tag that are looked at; later ones are skipped and flagged.
pub const MAX_ATTRIBUTES: usize = 512;

/// Whether the document is HTML or XHTML served as XML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syntax {
    /// `text/html`.
    #[default]
    Html,
    /// `application/xhtml+xml`: CDATA sections exist and `/>` closes.
    Xml,
}

/// A tag that was asked for. Its attributes are in [`Tokenizer::attributes`] until the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Which element.
    pub element: Element,
    /// An end tag; these carry no attributes here.
    pub is_end: bool,
    /// Written with `/>`.
    pub self_closing: bool,
    name: (usize, usize),
}

/// One attribute as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its name as written, not folded to lower case.
    pub raw_name: &'a str,
    /// Its value as written, between the quotes.
    pub raw_value: &'a str,
}

impl<'a> Attribute<'a> {
    /// The name as tokenized: lower case, NUL replaced.
    pub fn name(&self) -> String {
        tokenized_name(self.raw_name)
    }

    /// The value as tokenized: references decoded, newlines normalised.
    pub fn value(&self) -> Cow<'a, str> {
        char_ref::decode(self.raw_value, Context::Attribute)
    }

    /// Whether the value is longer than `limit` bytes as written.
    pub fn exceeds(&self, limit: usize) -> bool {
        self.raw_value.len() > limit
    }
}

fn tokenized_name(raw: &str) -> String {
    raw.chars()
        .map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c.to_ascii_lowercase() })
        .collect()
}

#[derive(Clone, Copy)]
struct Span {
    name: (usize, usize),
    value: (usize, usize),
}

/// The scanner over one decoded document.
#[derive(Clone)]
pub struct Tokenizer<'a> {
    text: &'a str,
    at: usize,
    syntax: Syntax,
    starts: ElementSet,
    ends: ElementSet,
    /// The element whose raw content begins at `at`.
    raw: Option<&'static [u8]>,
    attributes: Vec<Span>,
    attributes_capped: bool,
}

const SPACE: u8 = 1;
const TAG_NAME_END: u8 = 2;
const ATTRIBUTE_NAME_END: u8 = 4;
const UNQUOTED_END: u8 = 8;

static CLASS: [u8; 256] = {
    let mut class = [0u8; 256];
    let spaces = b"\t\n\x0c\r ";
    let mut i = 0;
    while i < spaces.len() {
        class[spaces[i] as usize] = SPACE | TAG_NAME_END | ATTRIBUTE_NAME_END | UNQUOTED_END;
        i += 1;
    }
    class[b'/' as usize] = TAG_NAME_END | ATTRIBUTE_NAME_END;
    class[b'=' as usize] = ATTRIBUTE_NAME_END;
    class[b'>' as usize] = TAG_NAME_END | ATTRIBUTE_NAME_END | UNQUOTED_END;
    class
};

/// The first position from `at` on whose byte is in `class`; `None` at the end of the input.
#[inline(always)]
fn find(bytes: &[u8], at: usize, class: u8) -> Option<usize> {
    let rest = bytes.get(at..)?;
    rest.iter().position(|b| CLASS[*b as usize] & class != 0).map(|n| at + n)
}

/// The first position of `byte` from `at` on. Most runs of text and most values are shorter than a call of
/// `memchr` is worth, so the first words are looked at in line.
#[inline(always)]
fn find_byte(bytes: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let pattern = ONES.wrapping_mul(u64::from(byte));
    for _ in 0..IN_LINE_WORDS {
        let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { break };
        let unequal = u64::from_le_bytes(*word) ^ pattern;
        // The lowest set bit is exact: borrows run upwards only.
        let zero = unequal.wrapping_sub(ONES) & !unequal & (ONES << 7);
        if zero != 0 {
            return Some(at + zero.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    memchr(byte, bytes.get(at..)?).map(|n| at + n)
}

/// Words of eight bytes that are looked at before `memchr` is called.
const IN_LINE_WORDS: usize = 2;

/// The first position from `at` on whose byte is not white space.
#[inline(always)]
fn skip_space(bytes: &[u8], mut at: usize) -> Option<usize> {
    while CLASS[*bytes.get(at)? as usize] & SPACE != 0 {
        at += 1;
    }
    Some(at)
}

impl<'a> Tokenizer<'a> {
    /// A scanner that reports the start tags of `starts` and the end tags of `ends`. End tags of raw content
    /// (such as `</script>`) are consumed with it and never reported.
    pub fn new(text: &'a str, syntax: Syntax, starts: ElementSet, ends: ElementSet) -> Tokenizer<'a> {
        Tokenizer {
            text,
            at: 0,
            syntax,
            starts,
            ends,
            raw: None,
            attributes: Vec::new(),
            attributes_capped: false,
        }
    }

    /// The attributes of the tag returned last, in order, duplicates included: the first of a name counts.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute<'a>> + '_ {
        let text = self.text;
        self.attributes.iter().map(move |span| Attribute {
            raw_name: &text[span.name.0..span.name.1],
            raw_value: &text[span.value.0..span.value.1],
        })
    }

    /// Whether some reported tag had more than [`MAX_ATTRIBUTES`].
    pub fn attributes_capped(&self) -> bool {
        self.attributes_capped
    }

    /// The name of `tag` as tokenized: lower case, NUL replaced.
    pub fn name(&self, tag: Tag) -> String {
        tokenized_name(&self.text[tag.name.0..tag.name.1])
    }

    /// The content of the raw element whose start tag was returned last, as written; the scanner goes on
    /// after its end tag. Empty for elements that hold markup.
    pub fn raw_text(&mut self) -> &'a str {
        let start = self.at;
        match self.raw.take() {
            Some(name) => {
                let end = self.skip_raw(name);
                &self.text[start..end]
            }
            None => "",
        }
    }

    /// The next tag that was asked for, or `None` at the end.
    pub fn next_tag(&mut self) -> Option<Tag> {
        if let Some(name) = self.raw.take() {
            self.skip_raw(name);
        }
        let bytes = self.text.as_bytes();
        loop {
            let Some(open) = find_byte(bytes, self.at, b'<') else {
                self.at = bytes.len();
                return None;
            };
            let at = open + 1;
            match bytes.get(at) {
                Some(b) if b.is_ascii_alphabetic() => {
                    if let Some(tag) = self.start_tag(bytes, at) {
                        return Some(tag);
                    }
                }
                Some(b'/') => match bytes.get(at + 1) {
                    Some(b) if b.is_ascii_alphabetic() => {
                        if let Some(tag) = self.end_tag(bytes, at + 1) {
                            return Some(tag);
                        }
                    }
                    _ => self.at = after(bytes, at + 1, b'>'),
                },
                Some(b'!') => self.at = self.after_declaration(bytes, at + 1),
                Some(b'?') => self.at = after(bytes, at, b'>'),
                _ => self.at = at,
            }
        }
    }

    /// From the first letter of a start tag's name; leaves `at` after the tag.
    #[inline(always)]
    fn start_tag(&mut self, bytes: &'a [u8], name: usize) -> Option<Tag> {
        let Some(name_end) = find(bytes, name, TAG_NAME_END) else {
            self.at = bytes.len();
            return None;
        };
        let element = Element::of(&bytes[name..name_end]);
        let wanted = self.starts.contains(element);
        let end = if wanted {
            self.rest_of_tag::<true>(bytes, name_end)
        } else {
            self.rest_of_tag::<false>(bytes, name_end)
        };
        let Some((after, self_closing)) = end else {
            // A tag that the input cuts off is never emitted.
            self.at = bytes.len();
            return None;
        };
        self.at = after;
        let raw = element.raw_name().filter(|_| !(self_closing && self.syntax == Syntax::Xml));
        if wanted {
            self.raw = raw;
            return Some(Tag { element, is_end: false, self_closing, name: (name, name_end) });
        }
        if let Some(raw) = raw {
            self.skip_raw(raw);
        }
        None
    }

    /// From the first letter of an end tag's name; leaves `at` after the tag.
    #[inline(always)]
    fn end_tag(&mut self, bytes: &'a [u8], name: usize) -> Option<Tag> {
        let end = find(bytes, name, TAG_NAME_END)
            .and_then(|name_end| Some((name_end, self.rest_of_tag::<false>(bytes, name_end)?)));
        let Some((name_end, (after, self_closing))) = end else {
            self.at = bytes.len();
            return None;
        };
        self.at = after;
        if self.ends == ElementSet::default() {
            return None;
        }
        let element = Element::of(&bytes[name..name_end]);
        if !self.ends.contains(element) {
            return None;
        }
        self.attributes.clear();
        Some(Tag { element, is_end: true, self_closing, name: (name, name_end) })
    }

    /// Reads attributes up to the `>` of the tag: the position after it and whether it was `/>`. `None` when
    /// the input ends first. `KEEP` records the attributes.
    #[inline(always)]
    fn rest_of_tag<const KEEP: bool>(&mut self, bytes: &[u8], mut at: usize) -> Option<(usize, bool)> {
        if KEEP {
            self.attributes.clear();
        }
        loop {
            // Before the attribute name. A solidus that does not close the tag is as good as a space.
            let mut solidus = false;
            loop {
                match *bytes.get(at)? {
                    b'>' => return Some((at + 1, solidus)),
                    b'/' => solidus = true,
                    b if CLASS[b as usize] & SPACE != 0 => solidus = false,
                    _ => break,
                }
                at += 1;
            }
            // An equals sign here begins a name.
            let name = at;
            at = find(bytes, at + 1, ATTRIBUTE_NAME_END)?;
            let name_end = at;
            if CLASS[bytes[at] as usize] & SPACE != 0 {
                at = skip_space(bytes, at)?;
            }
            let mut value = (at, at);
            if bytes[at] == b'=' {
                at = skip_space(bytes, at + 1)?;
                value = match bytes[at] {
                    quote @ (b'"' | b'\'') => {
                        let start = at + 1;
                        let end = find_byte(bytes, start, quote)?;
                        at = end + 1;
                        (start, end)
                    }
                    // The missing value; the `>` is read above.
                    b'>' => (at, at),
                    _ => {
                        let start = at;
                        at = find(bytes, at, UNQUOTED_END)?;
                        (start, at)
                    }
                };
            }
            if KEEP {
                if self.attributes.len() < MAX_ATTRIBUTES {
                    self.attributes.push(Span { name: (name, name_end), value });
                } else {
                    self.attributes_capped = true;
                }
            }
        }
    }

    /// From the byte after `<!`: the position after the comment, doctype or CDATA section.
    fn after_declaration(&self, bytes: &[u8], at: usize) -> usize {
        let rest = &bytes[at..];
        if rest.starts_with(b"--") {
            after_comment(bytes, at + 2)
        } else if self.syntax == Syntax::Xml && rest.starts_with(b"[CDATA[") {
            memmem::find(rest, b"]]>").map_or(bytes.len(), |n| at + n + 3)
        } else {
            // A doctype, too, ends at the first `>`, even inside its quoted identifiers.
            after(bytes, at, b'>')
        }
    }

    /// Skips the raw content that begins at `at` and its end tag; returns where the content ends.
    fn skip_raw(&mut self, name: &[u8]) -> usize {
        let bytes = self.text.as_bytes();
        let close = match name {
            b"plaintext" => None,
            b"script" => script_end(bytes, self.at),
            _ => raw_end(bytes, self.at, name),
        };
        match close {
            Some(close) => {
                let name_end = close + 2 + name.len();
                self.at = self.rest_of_tag::<false>(bytes, name_end).map_or(bytes.len(), |(after, _)| after);
                close
            }
            None => {
                self.at = bytes.len();
                bytes.len()
            }
        }
    }
}

/// The position after the first `byte` from `at` on, or the end.
fn after(bytes: &[u8], at: usize, byte: u8) -> usize {
    bytes.get(at..).and_then(|rest| memchr(byte, rest)).map_or(bytes.len(), |n| at + n + 1)
}

/// From the byte after `<!--`: the position after the comment. It ends at `-->`, `--!>`, or at once at `>`
/// and `->`.
fn after_comment(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(n) = bytes.get(at..).and_then(|rest| memchr(b'>', rest)) {
        let content = &bytes[start..at + n];
        if content.is_empty() || content == b"-" || content.ends_with(b"--") || content.ends_with(b"--!") {
            return at + n + 1;
        }
        at += n + 1;
    }
    bytes.len()
}

/// Whether the end tag `</name` stands at `at` (its `<`), followed by what may follow a tag name.
fn closes(bytes: &[u8], at: usize, name: &[u8]) -> bool {
    let Some(tag) = bytes.get(at..at + 3 + name.len()) else { return false };
    tag[1] == b'/'
        && tag[2..tag.len() - 1].eq_ignore_ascii_case(name)
        && CLASS[tag[tag.len() - 1] as usize] & TAG_NAME_END != 0
}

/// The `<` of the end tag of RCDATA or RAWTEXT content that begins at `at`.
fn raw_end(bytes: &[u8], mut at: usize, name: &[u8]) -> Option<usize> {
    loop {
        let open = at + memchr(b'<', bytes.get(at..)?)?;
        if closes(bytes, open, name) {
            return Some(open);
        }
        at = open + 1;
    }
}

/// How deep a script is in the legacy `<!--` … `<script>` escapes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    Single,
    Double,
}

/// The `<` of the `</script` that ends the script data beginning at `at`.
fn script_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    const SCRIPT: &[u8] = b"script";
    let mut escape = Escape::None;
    loop {
        let rest = bytes.get(at..)?;
        if escape == Escape::None {
            let open = at + memchr(b'<', rest)?;
            if closes(bytes, open, SCRIPT) {
                return Some(open);
            }
            at = open + 1;
            if bytes[at..].starts_with(b"!--") {
                escape = Escape::Single;
                at = open + 4;
            }
            continue;
        }
        let mark = at + memchr2(b'<', b'>', rest)?;
        at = mark + 1;
        if bytes[mark] == b'>' {
            // The dashes of the opening `<!--` count, too; nothing before them can be reached from here.
            if bytes[..mark].ends_with(b"--") {
                escape = Escape::None;
            }
            continue;
        }
        let word = match (escape, *bytes.get(at)?) {
            (Escape::Single, b'/') => {
                if closes(bytes, mark, SCRIPT) {
                    return Some(mark);
                }
                continue;
            }
            (Escape::Single, b) if b.is_ascii_alphabetic() => at,
            (Escape::Double, b'/') => at + 1,
            _ => continue,
        };
        let word_end = word + bytes[word..].iter().position(|b| !b.is_ascii_alphabetic())?;
        at = word_end;
        if CLASS[bytes[word_end] as usize] & TAG_NAME_END != 0 {
            at += 1;
            let is_script = bytes[word..word_end].eq_ignore_ascii_case(SCRIPT);
            escape = match escape {
                _ if !is_script => escape,
                Escape::Double => Escape::Single,
                _ => Escape::Double,
            };
        }
    }
}

//! Reads sitemaps: sitemaps.org `urlset` and `sitemapindex`, RSS, Atom and plain lists of URLs, gzipped or not. One pass
//! with bounded memory; entries are handed out as they come. Not here: fetching, resolving and judging the URLs found,
//! cycles (sitemaps are deduplicated like any URL).

mod decode;
mod text;
mod xml;

use std::io::{self, BufRead, BufReader, Read};

use decode::Decoded;
use flate2::bufread::MultiGzDecoder;

/// How deep indexes may lead to indexes: what an index at this depth names is not followed. The first is at depth 0.
pub const MAX_DEPTH: u8 = 3;

/// Faulty entries after which reading ends: the file is something else.
const MAX_ERRORS: u32 = 10_000;

/// Caps on one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitemapLimits {
    /// Decoded bytes that are read.
    pub max_bytes: u64,
    /// Entries that are handed out.
    pub max_entries: u32,
    /// Longest URL of an entry, in bytes; a longer one makes the entry faulty.
    pub max_loc_bytes: usize,
}

impl Default for SitemapLimits {
    /// Those of the protocol at sitemaps.org: 50 MiB, 50,000 entries; URLs twice as long as allowed there.
    fn default() -> Self {
        Self { max_bytes: 50 << 20, max_entries: 50_000, max_loc_bytes: 4096 }
    }
}

/// One entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SitemapEntry {
    /// The URL as it stands, entities resolved. May be relative in feeds; may be anything.
    pub loc: String,
    /// When it was modified, as it stands.
    pub lastmod: Option<String>,
    /// Its priority, 0 to 1.
    pub priority: Option<f32>,
}

/// What a file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SitemapFormat {
    /// Pages.
    UrlSet,
    /// Sitemaps.
    Index,
    /// A feed of RSS 0.9 to 2.0.
    Rss,
    /// A feed of Atom.
    Atom,
    /// A URL a line.
    Text,
    /// None of these.
    Unknown,
}

/// A cap that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SitemapCap {
    /// [`SitemapLimits::max_bytes`].
    Bytes,
    /// [`SitemapLimits::max_entries`].
    Entries,
    /// Too many faulty entries.
    Errors,
}

/// What reading a file came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SitemapReport {
    /// Its format.
    pub format: SitemapFormat,
    /// Entries handed out.
    pub entries: u32,
    /// Faulty entries and places.
    pub errors: u32,
    /// The cap that ended reading.
    pub cap: Option<SitemapCap>,
    /// The gzip stream broke off or did not match its checksum. What came before was handed out.
    pub broken: bool,
}

/// Reads a file and hands its entries to `on_entry`. Never fails: what cannot be read is counted.
pub fn read(file: &[u8], limits: &SitemapLimits, mut on_entry: impl FnMut(SitemapEntry)) -> SitemapReport {
    if file.starts_with(&[0x1f, 0x8b]) {
        read_decoded(BufReader::new(MultiGzDecoder::new(file)), limits, &mut on_entry)
    } else {
        read_decoded(file, limits, &mut on_entry)
    }
}

fn read_decoded<R: BufRead>(
    input: R,
    limits: &SitemapLimits,
    on_entry: &mut dyn FnMut(SitemapEntry),
) -> SitemapReport {
    let capped = Capped { inner: input, left: limits.max_bytes, is_capped: false, is_broken: false };
    let mut input = Decoded::new(capped);
    let output = Output { limits, on_entry, entries: 0, errors: 0, cap: None };
    let (format, mut output) = if starts_with_markup(&mut input) {
        xml::read(&mut input, output)
    } else {
        text::read(&mut input, output)
    };
    if input.inner.is_capped {
        output.cap = output.cap.or(Some(SitemapCap::Bytes));
    }
    SitemapReport {
        format,
        entries: output.entries,
        errors: output.errors,
        cap: output.cap,
        broken: input.inner.is_broken,
    }
}

/// Looks, behind white space, at the first character of the input.
fn starts_with_markup(input: &mut impl BufRead) -> bool {
    let start = input.fill_buf().unwrap_or(&[]);
    start.trim_ascii_start().first() == Some(&b'<')
}

/// Where entries and errors go, under the caps.
struct Output<'a> {
    limits: &'a SitemapLimits,
    on_entry: &'a mut dyn FnMut(SitemapEntry),
    entries: u32,
    errors: u32,
    cap: Option<SitemapCap>,
}

impl Output<'_> {
    fn entry(&mut self, mut entry: SitemapEntry) {
        entry.loc.truncate(entry.loc.trim_end().len());
        entry.loc.drain(..entry.loc.len() - entry.loc.trim_start().len());
        if entry.loc.is_empty()
            || entry.loc.len() > self.limits.max_loc_bytes
            || entry.loc.contains(char::REPLACEMENT_CHARACTER)
        {
            self.error();
        } else if self.entries == self.limits.max_entries {
            self.cap = Some(SitemapCap::Entries);
        } else {
            self.entries += 1;
            (self.on_entry)(entry);
        }
    }

    fn error(&mut self) {
        self.errors += 1;
        if self.errors >= MAX_ERRORS {
            self.cap = Some(SitemapCap::Errors);
        }
    }

    fn is_full(&self) -> bool {
        self.cap.is_some()
    }
}

/// Ends after so many bytes, and where its source breaks.
struct Capped<R> {
    inner: R,
    left: u64,
    is_capped: bool,
    is_broken: bool,
}

impl<R: BufRead> BufRead for Capped<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.is_broken || self.is_capped {
            return Ok(&[]);
        }
        match self.inner.fill_buf() {
            Ok(bytes) if self.left == 0 => {
                self.is_capped = !bytes.is_empty();
                Ok(&[])
            }
            Ok(bytes) => {
                let left = usize::try_from(self.left).unwrap_or(usize::MAX);
                Ok(&bytes[..bytes.len().min(left)])
            }
            Err(_) => {
                self.is_broken = true;
                Ok(&[])
            }
        }
    }

    fn consume(&mut self, amount: usize) {
        self.left = self.left.saturating_sub(amount as u64);
        self.inner.consume(amount);
    }
}

impl<R: BufRead> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let amount = bytes.len().min(buffer.len());
        buffer[..amount].copy_from_slice(&bytes[..amount]);
        self.consume(amount);
        Ok(amount)
    }
}

#[cfg(test)]
mod tests;

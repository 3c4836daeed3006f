//! The plain form: a URL a line.

use std::io::BufRead;

use super::decode::Decoded;
use super::{Capped, Output, SitemapEntry, SitemapFormat};

/// A file whose first lines are no URLs is no sitemap; so many are tried.
const TRIED_LINES: u32 = 100;

pub(super) fn read<'a, R: BufRead>(
    input: &mut Decoded<Capped<R>>,
    mut output: Output<'a>,
) -> (SitemapFormat, Output<'a>) {
    let mut lines = Vec::new();
    while !output.is_full() {
        lines.clear();
        if input.read_until(b'\n', &mut lines).is_err() || lines.is_empty() {
            break;
        }
        // A cap may have cut the last line, and what remains of it may still look like a URL.
        let is_cut = lines.last() != Some(&b'\n') && (input.inner.is_capped || input.inner.is_broken);
        if is_cut {
            break;
        }
        for line in lines.split(|byte| *byte == b'\r') {
            let line = line.trim_ascii();
            if line.is_empty() || output.is_full() {
                continue;
            }
            match std::str::from_utf8(line) {
                Ok(loc) if is_url(loc) => {
                    output.entry(SitemapEntry { loc: loc.to_owned(), ..SitemapEntry::default() });
                }
                _ => output.error(),
            }
        }
        if output.entries == 0 && output.errors >= TRIED_LINES {
            break;
        }
    }
    let format = if output.entries == 0 { SitemapFormat::Unknown } else { SitemapFormat::Text };
    (format, output)
}

fn is_url(line: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| line.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

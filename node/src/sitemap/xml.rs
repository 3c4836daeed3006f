//! The XML forms, leniently: names of end tags are not checked, a lone `&` is text, an entry that cannot be read costs
//! itself only. Entities of a document type are never expanded.

use std::io::BufRead;

use quick_xml::Reader;
use quick_xml::escape::{resolve_xml_entity, unescape};
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::QName;

use super::{Output, SitemapEntry, SitemapFormat};

/// Which part of an entry is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Loc,
    LastMod,
    Priority,
}

/// An entry in the making.
#[derive(Default)]
struct Draft {
    entry: SitemapEntry,
    is_bad: bool,
}

struct Scanner<'a> {
    output: Output<'a>,
    format: Option<SitemapFormat>,
    /// The namespace prefix of the format's own elements. Others (`image:loc`) belong to extensions.
    prefix: Option<String>,
    draft: Option<Draft>,
    field: Option<Field>,
    text: String,
}

pub(super) fn read<'a, R: BufRead>(input: &mut R, output: Output<'a>) -> (SitemapFormat, Output<'a>) {
    let mut reader = Reader::from_reader(input);
    let config = reader.config_mut();
    config.check_end_names = false;
    config.allow_unmatched_ends = true;
    config.allow_dangling_amp = true;
    let mut scanner =
        Scanner { output, format: None, prefix: None, draft: None, field: None, text: String::new() };
    let mut buffer = Vec::new();
    while !scanner.output.is_full() && scanner.format != Some(SitemapFormat::Unknown) {
        buffer.clear();
        let before = reader.buffer_position();
        match reader.read_event_into(&mut buffer) {
            Ok(Event::Eof) => break,
            Ok(event) => scanner.on_event(event),
            Err(_) => {
                scanner.on_error();
                if reader.buffer_position() == before {
                    break;
                }
            }
        }
    }
    if !scanner.output.is_full() {
        scanner.finish_entry();
    }
    (scanner.format.unwrap_or(SitemapFormat::Unknown), scanner.output)
}

impl Scanner<'_> {
    fn on_event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.on_start(&tag),
            Event::Empty(tag) => {
                self.on_start(&tag);
                self.on_end(tag.name());
            }
            Event::End(tag) => self.on_end(tag.name()),
            Event::Text(text) => self.push(&text.xml10_content()),
            Event::CData(text) => self.push(&text.xml10_content()),
            Event::GeneralRef(reference) if self.field.is_some() => match reference.resolve_char_ref() {
                Ok(Some(character)) => self.push(character.encode_utf8(&mut [0; 4])),
                Ok(None) => match resolve_xml_entity(&reference) {
                    Some(text) => self.push(text),
                    // As likely an ampersand that should have been escaped.
                    None => self.push(&format!("&{};", &*reference)),
                },
                Err(_) => self.on_error(),
            },
            _ => {}
        }
    }

    fn on_start(&mut self, tag: &BytesStart<'_>) {
        let name = tag.name();
        let local = local(name);
        let Some(format) = self.format else {
            self.on_root(name);
            return;
        };
        if !self.is_own(name) {
            return;
        }
        if local == entry_name(format) {
            // The end of the entry before may be missing.
            self.finish_entry();
            self.draft = Some(Draft::default());
            return;
        }
        let Some(draft) = &mut self.draft else { return };
        let field = match (format, local) {
            (SitemapFormat::UrlSet | SitemapFormat::Index, "loc") | (SitemapFormat::Rss, "link") => {
                Field::Loc
            }
            (SitemapFormat::UrlSet | SitemapFormat::Index, "lastmod")
            | (SitemapFormat::Rss, "pubDate")
            | (SitemapFormat::Atom, "updated") => Field::LastMod,
            (SitemapFormat::UrlSet, "priority") => Field::Priority,
            (SitemapFormat::Atom, "link") => {
                if draft.entry.loc.is_empty() {
                    draft.entry.loc = alternate(tag).unwrap_or_default();
                }
                return;
            }
            _ => return,
        };
        self.field = Some(field);
        self.text.clear();
    }

    fn on_root(&mut self, name: QName<'_>) {
        let format = match local(name) {
            "urlset" => SitemapFormat::UrlSet,
            "sitemapindex" => SitemapFormat::Index,
            "rss" | "RDF" => SitemapFormat::Rss,
            "feed" => SitemapFormat::Atom,
            _ => SitemapFormat::Unknown,
        };
        self.format = Some(format);
        if format != SitemapFormat::Rss {
            self.prefix = prefix(name).map(str::to_owned);
        }
    }

    fn on_end(&mut self, name: QName<'_>) {
        if let Some(field) = self.field.take()
            && let Some(draft) = &mut self.draft
        {
            let text = self.text.trim();
            match field {
                // The first one counts.
                Field::Loc if draft.entry.loc.is_empty() => draft.entry.loc.push_str(text),
                Field::LastMod if draft.entry.lastmod.is_none() => {
                    draft.entry.lastmod = Some(text.to_owned())
                }
                Field::Priority => {
                    draft.entry.priority =
                        text.parse().ok().filter(|priority| (0.0..=1.0).contains(priority));
                }
                _ => {}
            }
        }
        if self.is_own(name) && self.format.is_some_and(|format| local(name) == entry_name(format)) {
            self.finish_entry();
        }
    }

    fn push(&mut self, text: &str) {
        if self.field.is_none() {
            return;
        }
        // Room for white space around; what is longer is judged when the entry is finished.
        if self.text.len() + text.len() > self.output.limits.max_loc_bytes.saturating_mul(2) {
            self.on_error_in_entry();
        } else {
            self.text.push_str(text);
        }
    }

    fn on_error(&mut self) {
        if self.draft.is_some() {
            self.on_error_in_entry();
        } else {
            self.output.error();
        }
    }

    fn on_error_in_entry(&mut self) {
        if let Some(draft) = &mut self.draft {
            draft.is_bad = true;
        }
    }

    fn finish_entry(&mut self) {
        self.field = None;
        match self.draft.take() {
            Some(Draft { is_bad: true, .. }) => self.output.error(),
            Some(Draft { entry, .. }) => self.output.entry(entry),
            None => {}
        }
    }

    fn is_own(&self, name: QName<'_>) -> bool {
        prefix(name) == self.prefix.as_deref()
    }
}

fn local(name: QName<'_>) -> &str {
    name.0.rsplit_once(':').map_or(name.0, |(_, local)| local)
}

fn prefix(name: QName<'_>) -> Option<&str> {
    name.0.rsplit_once(':').map(|(prefix, _)| prefix)
}

fn entry_name(format: SitemapFormat) -> &'static str {
    match format {
        SitemapFormat::Index => "sitemap",
        SitemapFormat::Rss => "item",
        SitemapFormat::Atom => "entry",
        SitemapFormat::UrlSet | SitemapFormat::Text | SitemapFormat::Unknown => "url",
    }
}

/// The target of an Atom link that leads to the entry itself (RFC 4287 section 4.2.7.2).
fn alternate(tag: &BytesStart<'_>) -> Option<String> {
    let attribute = |name: &str| {
        let found =
            tag.attributes().with_checks(false).flatten().find(|attribute| attribute.key.0 == name)?;
        Some(unescape(&found.value).map_or_else(|_| found.value.to_string(), |value| value.into_owned()))
    };
    if attribute("rel").is_some_and(|rel| rel != "alternate") {
        return None;
    }
    attribute("href")
}

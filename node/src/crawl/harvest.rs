//! From a fetched body to a record and outlinks: charset, one pass for title, links and directives, sitemaps, and each
//! link's verdict. A pure core, and the hot path of a crawl.

use std::borrow::Cow;

use dolomedes_netproto::fetch::{Fetched, link_header};
use dolomedes_raft::command::NewMessage;
use http::{HeaderMap, header};
use url::Url;

use super::{
    rules::{LinkVerdict, Rules},
    task::{Task, TaskKind},
};
use crate::{
    extract::{self, CharsetHints, ContentType, DocumentKind, LinkKind, MetaRobots, ScanOptions, Syntax},
    record::{PageRecord, RobotsFlags, blake3_digest},
    sitemap::{self, SitemapFormat, SitemapLimits, SitemapReport},
};

/// Notes in one record at most.
const MAX_NOTES: usize = 8;
/// Bytes of links that are taken from one page, as they are put.
const OUTLINK_BYTES: usize = 8 << 20;

/// What a link on its way to the frontier takes, about.
pub(super) fn message_bytes(message: &NewMessage) -> usize {
    size_of::<NewMessage>() + message.key.len() + message.payload.len()
}

/// Reads what `response`, to the task at `url`, contains: fills the record's content fields and returns the messages to
/// put.
pub(super) fn harvest(
    rules: &Rules,
    url: &Url,
    task: &Task,
    response: &Fetched,
    record: &mut PageRecord,
) -> Vec<NewMessage> {
    let mut basket =
        Basket { rules, task, record, outlinks: Vec::new(), outlink_bytes: 0, nofollow_page: false };
    let content_type = header_text(&response.headers, &header::CONTENT_TYPE).and_then(ContentType::parse);
    basket.describe(response, content_type.as_ref());
    if let TaskKind::Sitemap { nesting } = task.kind {
        basket.sitemap(url, &response.body, nesting);
        return basket.outlinks;
    }
    let mut robots = MetaRobots::default();
    for value in response.headers.get_all("x-robots-tag") {
        robots.add_header(&String::from_utf8_lossy(value.as_bytes()), &rules.agent);
    }
    let kind = DocumentKind::of(content_type.as_ref(), &response.body);
    // An error page's links are the site's navigation, which is known, or nonsense.
    let readable = response.status.is_success();
    match kind {
        DocumentKind::Html | DocumentKind::Xhtml if readable => {
            basket.page(url, &response.body, content_type.as_ref(), kind, &response.headers, robots);
        }
        _ => {
            basket.directives(robots);
            if readable {
                basket.header_links(url, &response.headers);
                if content_type.as_ref().is_some_and(|parsed| parsed.essence.ends_with("xml")) {
                    basket.linked_sitemap(url, &response.body);
                }
            }
        }
    }
    basket.outlinks
}

fn header_text<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok()
}

struct Basket<'a> {
    rules: &'a Rules,
    task: &'a Task,
    record: &'a mut PageRecord,
    outlinks: Vec<NewMessage>,
    outlink_bytes: usize,
    nofollow_page: bool,
}

impl Basket<'_> {
    fn describe(&mut self, response: &Fetched, content_type: Option<&ContentType>) {
        let text = |name| header_text(&response.headers, &name).map(str::to_owned);
        self.record.content_type = content_type.map(|parsed| parsed.essence.clone());
        self.record.etag = text(header::ETAG);
        self.record.last_modified = text(header::LAST_MODIFIED);
        self.record.digest = Some(blake3_digest(&response.body));
    }

    fn note(&mut self, note: impl FnOnce() -> String) {
        if self.record.notes.len() < MAX_NOTES {
            let note = note();
            if !self.record.notes.contains(&note) {
                self.record.notes.push(note);
            }
        }
    }

    fn directives(&mut self, robots: MetaRobots) {
        self.record.robots =
            RobotsFlags { noindex: robots.noindex, nofollow: robots.nofollow, noarchive: robots.noarchive };
        self.nofollow_page = robots.nofollow && !self.rules.ignore_robots;
    }

    fn page(
        &mut self,
        url: &Url,
        body: &[u8],
        content_type: Option<&ContentType>,
        kind: DocumentKind,
        headers: &HeaderMap,
        robots: MetaRobots,
    ) {
        let is_xml = kind == DocumentKind::Xhtml;
        let hints = CharsetHints {
            header: content_type.and_then(|parsed| parsed.charset.as_deref()),
            tld: url.host_str().and_then(|host| host.rsplit('.').next()),
            is_xml,
        };
        let text = extract::decode(body, hints);
        self.record.charset = Some(text.encoding.name().to_ascii_lowercase());
        if text.replaced {
            self.note(|| "bytes that are not in the page's charset were replaced".into());
        }
        let options = ScanOptions {
            syntax: if is_xml { Syntax::Xml } else { Syntax::Html },
            assets: self.rules.assets,
            agent: &self.rules.agent,
            ..ScanOptions::default()
        };
        let page = extract::scan(&text.text, &options);
        self.record.title.clone_from(&page.title);
        self.record.lang = page.lang.as_deref().map(str::to_owned);
        let base = extract::resolve::base_of(&page, url);
        let absolute = |href: &str| extract::resolve_one(href, &base, text.encoding);
        self.record.canonical = page.canonical.as_deref().and_then(absolute).map(String::from);
        self.directives(robots.union(page.robots));
        for (hit, what) in [
            (page.capped.links, "the page has more links than are read"),
            (page.capped.attributes, "a tag has more attributes than are read"),
            (page.capped.values, "an attribute longer than 64 KiB was passed over"),
        ] {
            if hit {
                self.note(|| what.into());
            }
        }
        self.record.links.found = u32::try_from(page.links_seen).unwrap_or(u32::MAX);
        if let Some(refresh) = &page.refresh {
            self.refresh(absolute(&refresh.href));
        }
        if self.at_last_depth() {
            return;
        }
        let links = extract::resolve(&page, url, text.encoding);
        for link in links.iter() {
            if link.kind.is_asset() && !self.rules.assets {
                continue;
            }
            let shuns = link.rel.nofollow && !self.rules.ignore_robots && link.kind != LinkKind::Canonical;
            self.link(link.url, shuns);
        }
        self.header_links(url, headers);
    }

    fn at_last_depth(&self) -> bool {
        self.rules.max_depth.is_some_and(|most| self.task.depth >= most)
    }

    fn link(&mut self, link: &str, nofollow: bool) {
        if nofollow || self.nofollow_page {
            self.record.links.nofollow += 1;
            return;
        }
        let verdict = self.rules.judge_link(link, self.task.depth + 1, TaskKind::Page, &self.task.url);
        self.take(verdict);
    }

    fn take(&mut self, verdict: LinkVerdict) {
        match verdict {
            LinkVerdict::Known => self.record.links.followed += 1,
            LinkVerdict::New(message) => {
                let bytes = message_bytes(&message);
                // Short links on a page with a long base take far more than the page itself. A sitemap holds absolute
                // ones, and is bounded by its size.
                if self.task.kind == TaskKind::Page && self.outlink_bytes + bytes > OUTLINK_BYTES {
                    return self.note(|| "the page's links are longer than are kept of one page".into());
                }
                self.outlink_bytes += bytes;
                self.record.links.followed += 1;
                self.outlinks.push(message);
            }
            LinkVerdict::OutOfScope => self.record.links.out_of_scope += 1,
            LinkVerdict::Trap(suspicion) => {
                self.record.links.trap += 1;
                self.note(|| suspicion.to_string());
            }
            LinkVerdict::Unusable => {}
        }
    }

    /// A declared refresh is a redirect: its target takes this page's depth and one hop more.
    fn refresh(&mut self, target: Option<Url>) {
        let Some(target) = target else { return };
        if self.nofollow_page || self.task.via.len() >= super::task::MAX_HOPS {
            return;
        }
        match self.rules.judge_redirect(target, self.task) {
            Ok((url, verdict)) => {
                if url.as_str() != self.task.url {
                    self.record.redirect_to = Some(url.into());
                    self.take(verdict);
                }
            }
            Err(error) => self.note(|| error.to_string()),
        }
    }

    /// `Link` headers (RFC 8288) of the relations that lead to pages.
    fn header_links(&mut self, url: &Url, headers: &HeaderMap) {
        if !headers.contains_key(header::LINK) || self.at_last_depth() {
            return;
        }
        for link in link_header::links(headers) {
            // With an anchor it is about another resource.
            if link.anchor.is_some() {
                continue;
            }
            let Ok(mut target) = url.join(&link.target) else { continue };
            target.set_fragment(None);
            if link.has_rel("canonical") && self.record.canonical.is_none() {
                self.record.canonical = Some(target.as_str().to_owned());
            }
            let leads = ["canonical", "alternate", "next", "prev", "first", "last"];
            if leads.iter().any(|rel| link.has_rel(rel)) {
                self.record.links.found += 1;
                self.link(target.as_str(), link.has_rel("nofollow") && !self.rules.ignore_robots);
            }
        }
    }

    /// A sitemap that a page linked to before robots.txt or an index named it: it is fetched once only, so it is read as
    /// what it is.
    fn linked_sitemap(&mut self, url: &Url, body: &[u8]) {
        if !self.rules.sitemaps || self.nofollow_page || self.at_last_depth() {
            return;
        }
        let (entries, report) = sitemap_entries(body);
        if matches!(report.format, SitemapFormat::UrlSet | SitemapFormat::Index) {
            self.sitemap_links(url, entries, &report, 0);
        }
    }

    fn sitemap(&mut self, url: &Url, body: &[u8], nesting: u8) {
        let (entries, report) = sitemap_entries(body);
        self.sitemap_links(url, entries, &report, nesting);
    }

    fn sitemap_links(&mut self, url: &Url, entries: Vec<String>, report: &SitemapReport, nesting: u8) {
        let nested = report.format == SitemapFormat::Index;
        self.record.links.found = report.entries;
        if report.errors > 0 {
            self.note(|| format!("{} entries of the sitemap cannot be read", report.errors));
        }
        if report.cap.is_some() {
            self.note(|| "the sitemap is larger than what is read of one".into());
        }
        if report.broken {
            self.note(|| "the sitemap's gzip stream is broken; what came before was read".into());
        }
        let kind = match nested {
            true if nesting >= sitemap::MAX_DEPTH => {
                return self.note(|| "sitemap indexes are nested too deeply".into());
            }
            true => TaskKind::Sitemap { nesting: nesting + 1 },
            false => TaskKind::Page,
        };
        // A sitemap's pages count as linked from a seed.
        let depth = if nested { self.task.depth } else { 1 };
        if !nested && self.rules.max_depth == Some(0) {
            return;
        }
        for loc in entries {
            let link: Cow<'_, str> = match url.join(&loc) {
                Ok(absolute) => String::from(absolute).into(),
                Err(_) => loc.into(),
            };
            let verdict = self.rules.judge_link(&link, depth, kind, &self.task.url);
            self.take(verdict);
        }
    }
}

fn sitemap_entries(body: &[u8]) -> (Vec<String>, SitemapReport) {
    let mut entries = Vec::new();
    let report = sitemap::read(body, &SitemapLimits::default(), |entry| entries.push(entry.loc));
    (entries, report)
}

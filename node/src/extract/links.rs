//! One pass over a page: its links, and what it says about itself. Links are as written; [`super::resolve`]
//! makes them absolute. Whether a link may be followed is the caller's.

use std::borrow::Cow;

use super::char_ref::{self, Context};
use super::element::{Element, ElementSet, key};
use super::tokenizer::{Attribute, Syntax, Tag, Tokenizer};
use super::{MetaRobots, refresh, srcset};

/// Links kept of one page unless the options say otherwise.
pub const MAX_LINKS: usize = 20_000;
/// Bytes of an attribute value that is looked at: a longer one counts as absent and is flagged.
pub const MAX_VALUE: usize = 64 * 1024;
/// Bytes of a title as written that are read, and bytes of it that are kept.
pub const MAX_TITLE: usize = 1024;
const MAX_RAW_TITLE: usize = 8 * MAX_TITLE;

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions<'o> {
    /// HTML or XHTML.
    pub syntax: Syntax,
    /// Whether images, media, scripts, style sheets and the like are wanted too.
    pub assets: bool,
    /// Product token whose `<meta name>` addresses this crawler beside `robots`, in any case.
    pub agent: &'o str,
    /// Links kept; further ones are only counted.
    pub max_links: usize,
}

impl Default for ScanOptions<'_> {
    fn default() -> Self {
        ScanOptions { syntax: Syntax::Html, assets: false, agent: "dolomedes", max_links: MAX_LINKS }
    }
}

/// What kind of element or relation a link came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// `a href`
    Anchor,
    /// `area href`
    Area,
    /// `iframe src`, `frame src`
    Frame,
    /// `link rel=canonical`: a hint at the page's better URL
    Canonical,
    /// `link rel=alternate`: translations, feeds
    Alternate,
    /// `link rel=next`
    Next,
    /// `link rel=prev`
    Prev,
    /// `link rel=amphtml`
    Amp,
    /// `link rel=stylesheet`
    Stylesheet,
    /// `link rel=icon` and its vendors' variants
    Icon,
    /// `script src`
    Script,
    /// `img src` and `srcset`, `input type=image`, `video poster`, `source srcset`
    Image,
    /// `video`, `audio`, `track` and `source src`
    Media,
    /// `object data`, `embed src`
    Object,
}

impl LinkKind {
    /// Whether it is a part of the page rather than another page.
    pub fn is_asset(self) -> bool {
        use LinkKind::*;
        matches!(self, Stylesheet | Icon | Script | Image | Media | Object)
    }
}

/// Qualifiers in a link's `rel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rel {
    /// `nofollow`
    pub nofollow: bool,
    /// `ugc`: content of users
    pub ugc: bool,
    /// `sponsored`
    pub sponsored: bool,
}

impl Rel {
    fn of(value: &str) -> Rel {
        let mut rel = Rel::default();
        for token in value.split_ascii_whitespace() {
            rel.nofollow |= token.eq_ignore_ascii_case("nofollow");
            rel.ugc |= token.eq_ignore_ascii_case("ugc");
            rel.sponsored |= token.eq_ignore_ascii_case("sponsored");
        }
        rel
    }
}

/// One link as written, references decoded, surrounding white space and controls removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// The reference; may be empty, relative, or of any scheme.
    pub href: Cow<'a, str>,
    /// Where it stands.
    pub kind: LinkKind,
    /// Its qualifiers.
    pub rel: Rel,
}

/// A declared refresh to another URL. It counts as a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh<'a> {
    /// Seconds to wait.
    pub delay: u32,
    /// Where to, as written.
    pub href: Cow<'a, str>,
    /// Inside `noscript`: meant for clients that run no scripts.
    pub in_noscript: bool,
}

/// Caps that were hit while scanning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capped {
    /// Links beyond [`ScanOptions::max_links`] were dropped.
    pub links: bool,
    /// A tag had more than [`super::tokenizer::MAX_ATTRIBUTES`].
    pub attributes: bool,
    /// A value longer than [`MAX_VALUE`] was passed over.
    pub values: bool,
    /// The title was cut to [`MAX_TITLE`].
    pub title: bool,
}

/// What a page says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageScan<'a> {
    /// `href` of the first `base` that has one, as written.
    pub base: Option<Cow<'a, str>>,
    /// The first title outside `svg`, white space collapsed; `None` when absent or empty.
    pub title: Option<String>,
    /// `lang` of the first `html` element that has one.
    pub lang: Option<Cow<'a, str>>,
    /// The first `link rel=canonical`, as written. It is also among the links.
    pub canonical: Option<Cow<'a, str>>,
    /// The first declared refresh, if it names a URL.
    pub refresh: Option<Refresh<'a>>,
    /// Directives of meta elements for `robots` and for our agent.
    pub robots: MetaRobots,
    /// Links in document order, repeats included.
    pub links: Vec<Link<'a>>,
    /// Links seen, dropped ones included.
    pub links_seen: usize,
    /// Which caps were hit.
    pub capped: Capped,
}

const NAVIGATION: ElementSet = ElementSet::of(&[
    Element::A,
    Element::Area,
    Element::Base,
    Element::Frame,
    Element::Html,
    Element::Iframe,
    Element::Link,
    Element::Meta,
    Element::Noscript,
    Element::Svg,
    Element::Title,
]);
const ASSETS: ElementSet = ElementSet::of(&[
    Element::Audio,
    Element::Embed,
    Element::Img,
    Element::Input,
    Element::Object,
    Element::Script,
    Element::Source,
    Element::Track,
    Element::Video,
]);
const ENDS: ElementSet = ElementSet::of(&[Element::Noscript, Element::Svg]);

/// Scans a decoded page.
pub fn scan<'a>(text: &'a str, options: &ScanOptions<'_>) -> PageScan<'a> {
    let starts = if options.assets { NAVIGATION.union(ASSETS) } else { NAVIGATION };
    let mut scanner = Scanner {
        tokenizer: Tokenizer::new(text, options.syntax, starts, ENDS),
        options,
        page: PageScan::default(),
        svg_depth: 0,
        noscript_depth: 0,
        title_seen: false,
        refresh_seen: false,
    };
    while let Some(tag) = scanner.tokenizer.next_tag() {
        scanner.tag(tag);
    }
    scanner.page.capped.attributes = scanner.tokenizer.attributes_capped();
    scanner.page
}

struct Scanner<'a, 'o> {
    tokenizer: Tokenizer<'a>,
    options: &'o ScanOptions<'o>,
    page: PageScan<'a>,
    svg_depth: u32,
    noscript_depth: u32,
    title_seen: bool,
    refresh_seen: bool,
}

impl<'a> Scanner<'a, '_> {
    fn tag(&mut self, tag: Tag) {
        if tag.is_end {
            match tag.element {
                Element::Svg => self.svg_depth = self.svg_depth.saturating_sub(1),
                _ => self.noscript_depth = self.noscript_depth.saturating_sub(1),
            }
            return;
        }
        match tag.element {
            Element::A => self.hyperlink(LinkKind::Anchor),
            Element::Area => self.hyperlink(LinkKind::Area),
            Element::Base if self.page.base.is_none() => self.page.base = self.value_of(b"href").map(strip),
            Element::Frame | Element::Iframe => self.source(b"src", LinkKind::Frame),
            Element::Html if self.page.lang.is_none() => {
                self.page.lang = self.value_of(b"lang").map(strip).filter(|lang| !lang.is_empty());
            }
            Element::Link => self.link(),
            Element::Meta => self.meta(),
            Element::Noscript => self.noscript_depth += u32::from(!tag.self_closing),
            Element::Svg => self.svg_depth += u32::from(!tag.self_closing),
            Element::Title => self.title(),
            Element::Audio | Element::Track => self.source(b"src", LinkKind::Media),
            Element::Video => {
                self.source(b"src", LinkKind::Media);
                self.source(b"poster", LinkKind::Image);
            }
            Element::Embed => self.source(b"src", LinkKind::Object),
            Element::Object => self.source(b"data", LinkKind::Object),
            Element::Script => self.source(b"src", LinkKind::Script),
            Element::Img => {
                self.source(b"src", LinkKind::Image);
                self.candidates();
            }
            Element::Source => {
                self.source(b"src", LinkKind::Media);
                self.candidates();
            }
            Element::Input
                if self.value_of(b"type").is_some_and(|kind| kind.eq_ignore_ascii_case("image")) =>
            {
                self.source(b"src", LinkKind::Image);
            }
            _ => {}
        }
    }

    /// The decoded value of the first attribute of this name, if it is not too long.
    fn value_of(&mut self, name: &[u8]) -> Option<Cow<'a, str>> {
        let attribute =
            self.tokenizer.attributes().find(|a| a.raw_name.as_bytes().eq_ignore_ascii_case(name))?;
        self.bounded(attribute)
    }

    fn bounded(&mut self, attribute: Attribute<'a>) -> Option<Cow<'a, str>> {
        if attribute.exceeds(MAX_VALUE) {
            self.page.capped.values = true;
            return None;
        }
        Some(attribute.value())
    }

    fn push(&mut self, href: Cow<'a, str>, kind: LinkKind, rel: Rel) {
        self.page.links_seen += 1;
        if self.page.links.len() < self.options.max_links {
            self.page.links.push(Link { href, kind, rel });
        } else {
            self.page.capped.links = true;
        }
    }

    fn hyperlink(&mut self, kind: LinkKind) {
        const HREF: u64 = key(b"href");
        const REL: u64 = key(b"rel");
        let (mut href, mut rel) = (None, None);
        for attribute in self.tokenizer.attributes() {
            let name = attribute.raw_name.as_bytes();
            // An HTML link in an SVG picture may be written the XLink way.
            let is_xlink = || self.svg_depth > 0 && name.eq_ignore_ascii_case(b"xlink:href");
            if name.len() == 4 && key(name) == HREF || is_xlink() {
                href = href.or(Some(attribute));
            } else if name.len() == 3 && key(name) == REL {
                rel = rel.or(Some(attribute));
            }
        }
        let Some(href) = href.and_then(|href| self.bounded(href)) else { return };
        let rel = rel.and_then(|rel| self.bounded(rel)).map(|rel| Rel::of(&rel)).unwrap_or_default();
        self.push(strip(href), kind, rel);
    }

    fn source(&mut self, name: &[u8], kind: LinkKind) {
        if let Some(href) = self.value_of(name).map(strip).filter(|href| !href.is_empty()) {
            self.push(href, kind, Rel::default());
        }
    }

    fn candidates(&mut self) {
        match self.value_of(b"srcset") {
            Some(Cow::Borrowed(set)) => {
                for url in srcset::urls(set) {
                    self.push(Cow::Borrowed(url), LinkKind::Image, Rel::default());
                }
            }
            Some(Cow::Owned(set)) => {
                for url in srcset::urls(&set) {
                    self.push(Cow::Owned(url.to_owned()), LinkKind::Image, Rel::default());
                }
            }
            None => {}
        }
    }

    fn link(&mut self) {
        let Some(rel) = self.value_of(b"rel") else { return };
        let Some(kind) = link_kind(&rel) else { return };
        if kind.is_asset() && !self.options.assets {
            return;
        }
        let qualifiers = Rel::of(&rel);
        let Some(href) = self.value_of(b"href").map(strip).filter(|href| !href.is_empty()) else { return };
        if kind == LinkKind::Canonical && self.page.canonical.is_none() {
            self.page.canonical = Some(href.clone());
        }
        self.push(href, kind, qualifiers);
    }

    fn meta(&mut self) {
        if let Some(name) = self.value_of(b"name") {
            let name = name.trim_matches(|c: char| c.is_ascii_whitespace());
            if name.eq_ignore_ascii_case("robots") || name.eq_ignore_ascii_case(self.options.agent) {
                let content = self.value_of(b"content").unwrap_or_default();
                self.page.robots.add_content(&content);
            }
        }
        if !self.refresh_seen
            && self.value_of(b"http-equiv").is_some_and(|pragma| pragma.eq_ignore_ascii_case("refresh"))
            && let Some(content) = self.value_of(b"content")
        {
            let parsed = match &content {
                Cow::Borrowed(text) => {
                    refresh::parse(text).map(|(delay, url)| (delay, url.map(Cow::Borrowed)))
                }
                Cow::Owned(text) => refresh::parse(text)
                    .map(|(delay, url)| (delay, url.map(|url| Cow::Owned(url.to_owned())))),
            };
            let Some((delay, href)) = parsed else { return };
            // Only the first refresh of a page has effect, also one that merely reloads.
            self.refresh_seen = true;
            let in_noscript = self.noscript_depth > 0;
            self.page.refresh = href.map(|href| Refresh { delay, href: strip(href), in_noscript });
        }
    }

    fn title(&mut self) {
        let raw = self.tokenizer.raw_text();
        if self.title_seen || self.svg_depth > 0 {
            return;
        }
        self.title_seen = true;
        let head = cut(raw, MAX_RAW_TITLE);
        let text = char_ref::decode(head, Context::Text);
        let mut title = String::new();
        for word in text.split_ascii_whitespace() {
            if title.len() + word.len() >= MAX_TITLE {
                self.page.capped.title = true;
                if title.is_empty() {
                    title.push_str(cut(word, MAX_TITLE));
                }
                break;
            }
            if !title.is_empty() {
                title.push(' ');
            }
            title.push_str(word);
        }
        self.page.capped.title |= head.len() < raw.len();
        self.page.title = Some(title).filter(|title| !title.is_empty());
    }
}

/// The relation that a `link` is kept for. A style sheet wins over `alternate`: together they mean an
/// alternative one.
fn link_kind(rel: &str) -> Option<LinkKind> {
    const KINDS: [(&str, LinkKind); 10] = [
        ("canonical", LinkKind::Canonical),
        ("stylesheet", LinkKind::Stylesheet),
        ("alternate", LinkKind::Alternate),
        ("next", LinkKind::Next),
        ("prev", LinkKind::Prev),
        ("amphtml", LinkKind::Amp),
        ("icon", LinkKind::Icon),
        ("apple-touch-icon", LinkKind::Icon),
        ("apple-touch-icon-precomposed", LinkKind::Icon),
        ("mask-icon", LinkKind::Icon),
    ];
    KINDS
        .iter()
        .find(|(name, _)| rel.split_ascii_whitespace().any(|token| token.eq_ignore_ascii_case(name)))
        .map(|(_, kind)| *kind)
}

/// Removes what the URL parser would remove at both ends: C0 controls and spaces.
fn strip(value: Cow<'_, str>) -> Cow<'_, str> {
    let is_strippable = |c: char| c <= ' ';
    match value {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_matches(is_strippable)),
        Cow::Owned(text) => {
            let trimmed = text.trim_matches(is_strippable);
            if trimmed.len() == text.len() { Cow::Owned(text) } else { Cow::Owned(trimmed.to_owned()) }
        }
    }
}

/// The longest prefix of at most `limit` bytes that ends between characters.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

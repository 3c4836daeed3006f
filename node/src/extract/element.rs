//! The elements that the scanner knows by name, and how it knows them quickly. What their attributes mean is
//! not here.

/// Elements that the scanner knows by name: those that carry links or page data, and those that change its
/// state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Element {
    /// Any other name.
    Other,
    A,
    Area,
    Audio,
    Base,
    Embed,
    Frame,
    Html,
    Iframe,
    /// `img`, and `image`, which the tree builder renames to it.
    Img,
    Input,
    Link,
    Meta,
    Noembed,
    Noframes,
    Noscript,
    Object,
    Plaintext,
    Script,
    Source,
    Style,
    Svg,
    Textarea,
    Title,
    Track,
    Video,
    Xmp,
}

impl Element {
    /// The element of this name, in any case.
    pub(super) fn of(name: &[u8]) -> Element {
        use Element::*;
        if name.len() > 8 {
            return if name.eq_ignore_ascii_case(b"plaintext") { Plaintext } else { Other };
        }
        match key(name) {
            A_KEY => A,
            AREA => Area,
            AUDIO => Audio,
            BASE => Base,
            EMBED => Embed,
            FRAME => Frame,
            HTML => Html,
            IFRAME => Iframe,
            IMG | IMAGE => Img,
            INPUT => Input,
            LINK => Link,
            META => Meta,
            NOEMBED => Noembed,
            NOFRAMES => Noframes,
            NOSCRIPT => Noscript,
            OBJECT => Object,
            SCRIPT => Script,
            SOURCE => Source,
            STYLE => Style,
            SVG => Svg,
            TEXTAREA => Textarea,
            TITLE => Title,
            TRACK => Track,
            VIDEO => Video,
            XMP => Xmp,
            _ => Other,
        }
    }

    /// The name to close it with, for those whose content is not markup.
    pub(super) fn raw_name(self) -> Option<&'static [u8]> {
        use Element::*;
        Some(match self {
            Iframe => b"iframe",
            Noembed => b"noembed",
            Noframes => b"noframes",
            Plaintext => b"plaintext",
            Script => b"script",
            Style => b"style",
            Textarea => b"textarea",
            Title => b"title",
            Xmp => b"xmp",
            _ => return None,
        })
    }
}

/// A name of at most eight letters as a number. `| 0x20` maps no other byte onto a lower-case letter than the
/// two cases of that letter, so for names made of letters equality of keys is equality without regard to
/// ASCII case.
pub(super) const fn key(name: &[u8]) -> u64 {
    let mut key = 0u64;
    let mut i = 0;
    while i < name.len() && i < 8 {
        key |= ((name[i] | 0x20) as u64) << (8 * i);
        i += 1;
    }
    key
}

macro_rules! keys {
    ($($name:ident = $text:literal),* $(,)?) => { $(const $name: u64 = key($text);)* };
}
keys! {
    A_KEY = b"a", AREA = b"area", AUDIO = b"audio", BASE = b"base", EMBED = b"embed", FRAME = b"frame", HTML = b"html",
    IFRAME = b"iframe", IMG = b"img", IMAGE = b"image", INPUT = b"input", LINK = b"link", META = b"meta",
    NOEMBED = b"noembed", NOFRAMES = b"noframes", NOSCRIPT = b"noscript", OBJECT = b"object", SCRIPT = b"script",
    SOURCE = b"source", STYLE = b"style", SVG = b"svg", TEXTAREA = b"textarea", TITLE = b"title", TRACK = b"track",
    VIDEO = b"video", XMP = b"xmp",
}

/// A set of [`Element`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElementSet(u32);

impl ElementSet {
    /// Every element, also [`Element::Other`].
    pub const ALL: ElementSet = ElementSet(u32::MAX);

    /// The set of these.
    pub const fn of(elements: &[Element]) -> ElementSet {
        let mut bits = 0;
        let mut i = 0;
        while i < elements.len() {
            bits |= 1 << elements[i] as u32;
            i += 1;
        }
        ElementSet(bits)
    }

    /// What is in either.
    pub const fn union(self, other: ElementSet) -> ElementSet {
        ElementSet(self.0 | other.0)
    }

    /// Whether `element` is in the set.
    pub const fn contains(self, element: Element) -> bool {
        self.0 & (1 << element as u32) != 0
    }
}

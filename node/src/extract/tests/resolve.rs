use encoding_rs::{Encoding, GBK, UTF_8};
use proptest::prelude::*;
use url::Url;

use crate::extract::resolve::{MAX_URL, ResolvedLinks, base_of, resolve, resolve_one};
use crate::extract::{LinkKind, ScanOptions, scan};

fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

fn resolved(html: &str, document: &str) -> ResolvedLinks {
    resolve(&scan(html, &ScanOptions { assets: true, ..ScanOptions::default() }), &url(document), UTF_8)
}

fn urls(html: &str, document: &str) -> Vec<String> {
    resolved(html, document).iter().map(|link| link.url.to_owned()).collect()
}

#[test]
fn references_resolve_against_base_or_document() {
    for (document, html, expected) in [
        ("http://h/a/b/", "<base href='../x/'><a href=y><base href=/z/>", vec!["http://h/a/x/y"]),
        ("https://other/new/", "<a href=rel>", vec!["https://other/new/rel"]),
        ("http://h/a/b", "<a href='//cdn.test/x'>", vec!["http://cdn.test/x"]),
        ("http://h/a/b", "<a href='\\\\host\\p'>", vec!["http://host/p"]),
        ("http://h/a/b", "<a href='/p\tq'>", vec!["http://h/pq"]),
        ("http://h/a/b?q", "<a href='?r'>", vec!["http://h/a/b?r"]),
        (
            "http://h/a/b",
            "<a href='../../../c'><a href='./../d/'><a href='e/../f'><a href='..'>",
            vec!["http://h/c", "http://h/d/", "http://h/a/f", "http://h/"],
        ),
        (
            "http://h/a/b",
            "<a href='HTTP://H:80/x'><a href='https://h'><a href='https://h?q'>",
            vec!["http://h/x", "https://h/", "https://h/?q"],
        ),
        (
            "http://h/a/b",
            "<a href='/a b'><a href='/ü'><a href='/%zz'>",
            vec!["http://h/a%20b", "http://h/%C3%BC", "http://h/%zz"],
        ),
        ("http://h/", "<a href='http://BÜCHER.example/'>", vec!["http://xn--bcher-kva.example/"]),
        ("http://h/a/", "<a href='.. #f'><a href='x #f'>", vec!["http://h/a/..%20", "http://h/a/x%20"]),
        ("http://h/", "<base href='javascript:x'><a href=y>", vec!["http://h/y"]),
        ("http://h/", "<base href='http://['><a href=y>", vec!["http://h/y"]),
        ("http://h/d", "<base href='http://b/x?q#f'><a href='#top'>", vec!["http://b/x?q"]),
        ("http://h/", "<a href='http://010.1/'>", vec!["http://8.0.0.1/"]),
    ] {
        assert_eq!(urls(html, document), expected, "for {html:?} at {document}");
    }
}

#[test]
fn what_is_no_new_url_is_counted() {
    let html = "<a href=x><a href='x#f'><a href='#t'><a href><a href='javascript:void(0)'><a href='MAILTO:a'><a href='ftp://h/'>\
        <a href='http://['><a href='tel:1'><a href=x>";
    let links = resolved(html, "http://h/p");
    assert_eq!(links.iter().map(|l| l.url).collect::<Vec<_>>(), ["http://h/x"]);
    let counts = links.counts;
    assert_eq!(
        (counts.repeated, counts.same_document, counts.other_scheme, counts.invalid, counts.too_long),
        (2, 2, 4, 1, 0)
    );
    let long = format!("<a href={}>", "x".repeat(MAX_URL));
    let links = resolved(&long, "http://h/");
    assert_eq!((links.len(), links.counts.too_long), (0, 1));
}

#[test]
fn mentions_of_one_reference_add_up() {
    let links = resolved(
        "<img src=x><a rel=nofollow href=x><a rel='nofollow ugc' href=y><a rel=nofollow href=y#f>",
        "http://h/",
    );
    let found: Vec<_> = links.iter().map(|l| (l.url, l.kind, l.rel.nofollow, l.rel.ugc)).collect();
    assert_eq!(
        found,
        [("http://h/x", LinkKind::Anchor, false, false), ("http://h/y", LinkKind::Anchor, true, false)]
    );
}

#[test]
fn queries_are_written_in_the_documents_encoding() {
    let page = scan("<a href='/中?q=中'>", &ScanOptions::default());
    let links = resolve(&page, &url("http://h/"), GBK);
    assert_eq!(links.iter().map(|l| l.url).collect::<Vec<_>>(), ["http://h/%E4%B8%AD?q=%D6%D0"]);
    let one = resolve_one("?q=中#f", &url("http://h/x"), Encoding::for_label(b"utf-16").expect("a label"));
    assert_eq!(one, Some(url("http://h/x?q=%E4%B8%AD")));
}

/// What `Url::join` makes of every reference, one by one.
fn slowly(hrefs: &[String], base: &Url) -> Vec<String> {
    let mut found = Vec::new();
    for href in hrefs {
        if let Ok(mut joined) = base.join(href) {
            joined.set_fragment(None);
            if matches!(joined.scheme(), "http" | "https") {
                found.push(joined.to_string());
            }
        }
    }
    found
}

const PIECES: &[&str] = &[
    "/",
    "//",
    "..",
    "../",
    "./",
    ".",
    "a",
    "b.html",
    "%2e",
    "%2E%2e",
    "%",
    "%41",
    "?",
    "&",
    "=",
    ":",
    "#",
    "@",
    "x:y",
    "http:",
    "http://",
    "https://",
    "HTTP://",
    "h.test",
    "www.example.com",
    "EXAMPLE.com",
    "1.2.3.4",
    "0x7f.1",
    "a-b",
    "a--b.test",
    "-a.test",
    "a-.test",
    "xn--bcher-kva.de",
    "xn--a",
    "a..b",
    "com.",
    ":80",
    ":8080",
    "_",
    "~",
    "'",
    "\"",
    " ",
    "\\",
    "ü",
    "|",
    "^",
    "[",
    "]",
    "{",
    "`",
    "\t",
    "+",
    "!",
    "$",
    "(",
    ")",
    "*",
    ",",
    ";",
    "a.1",
    "a.0x1",
    "file:",
    "ftp://",
    ".htaccess",
    "...",
    "",
    "user@",
];

const BASES: &[&str] = &[
    "http://h.test/",
    "https://h.test/a/b/c.html?q=1#f",
    "http://h.test:8080//a//",
    "http://u:p@h.test/a/",
    "http://[::1]/x",
    "http://h.test/%2e/a;b/c,d",
    "ftp://h.test/a/b",
    "data:text/html,x",
];

proptest! {
    /// The shortcut is `Url::join`: same URLs, in the same order.
    #[test]
    fn joining_by_copy_equals_joining_by_parser(
        base in prop::sample::select(BASES),
        hrefs in prop::collection::vec(
            prop::collection::vec(prop::sample::select(PIECES), 1..6).prop_map(|p| p.concat()), 1..12),
    ) {
        let base = url(base);
        // An empty base, so that references to the document itself are not left out.
        let html: String = "<base href=''>".to_owned()
            + &hrefs.iter().map(|h| format!("<a href=\"{}\">", h.replace('&', "&amp;").replace('"', "&quot;"))).collect::<String>();
        let page = scan(&html, &ScanOptions::default());
        prop_assert_eq!(page.links.len(), hrefs.len());
        let ours = resolve(&page, &base, UTF_8);
        let ours: Vec<&str> = ours.iter().map(|l| l.url).collect();
        let mut expected = Vec::new();
        let base = base_of(&page, &base);
        let mut known = Vec::new();
        for href in &hrefs {
            let trimmed = href.trim_matches(|c: char| c <= ' ');
            let bare = trimmed.split('#').next().unwrap_or_default();
            if known.contains(&bare.to_owned()) {
                continue;
            }
            known.push(bare.to_owned());
            expected.extend(slowly(std::slice::from_ref(href), &base));
        }
        prop_assert_eq!(ours, expected);
    }
}

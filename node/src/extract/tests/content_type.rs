use crate::extract::{ContentType, DocumentKind};

#[test]
fn content_types_parse() {
    for (value, expected) in [
        ("text/html", Some(("text/html", None))),
        (" Text/HTML ;  Charset=UTF-8 ", Some(("text/html", Some("UTF-8")))),
        ("text/html; charset=\"utf8;\"", Some(("text/html", Some("utf8;")))),
        ("text/html; x=\"a;charset=b\\\"\"; charset=c", Some(("text/html", Some("c")))),
        ("text/html;charset=a;charset=b", Some(("text/html", Some("a")))),
        ("text/html;charset=;charset=b", Some(("text/html", Some("b")))),
        ("text/html;charset", Some(("text/html", None))),
        ("text/html;charset=\"open", Some(("text/html", Some("open")))),
        ("text/html;charset=\"a\"junk;x=y", Some(("text/html", Some("a")))),
        ("text", None),
        ("", None),
        ("/html", None),
        ("text/ht ml", None),
        ("text/html, text/plain", None),
        ("text/hü", None),
    ] {
        let parsed = ContentType::parse(value);
        let found = parsed.as_ref().map(|p| (p.essence.as_str(), p.charset.as_deref()));
        assert_eq!(found, expected, "for {value:?}");
    }
}

#[test]
fn kinds_by_type_and_where_it_says_nothing_by_bytes() {
    use DocumentKind::*;
    for (value, head, expected) in [
        (Some("text/html"), "\0", Html),
        (Some("application/xhtml+xml"), "", Xhtml),
        (Some("application/rss+xml"), "", Feed),
        (Some("text/xml"), "<?xml version='1.0'?><!-- x --><!DOCTYPE x>\n<urlset xmlns='x'>", Sitemap),
        (Some("application/xml"), "<s:sitemapindex>", Sitemap),
        (Some("application/xml"), "\u{feff}<rss version=2>", Feed),
        (Some("application/xml"), "<html xmlns='x'>", Xhtml),
        (Some("application/foo+xml"), "<foo/>", Xml),
        (Some("application/xml"), "<!-- open", Xml),
        (Some("application/xml"), "", Xml),
        (Some("image/svg+xml"), "<svg>", Other),
        (Some("text/plain"), "<html>", Text),
        (Some("text/css"), "", Text),
        (Some("application/octet-stream"), "<html>", Other),
        (Some("image/png"), "", Other),
        (None, " \n<!doctype html>", Html),
        (None, "<!-- x", Html),
        (None, "<p class=x>", Html),
        (None, "<para>", Text),
        (None, "<?xml version='1.0'?><urlset>", Sitemap),
        (None, "\u{feff}hello", Text),
        (None, "\u{feff}<html>", Html),
        (None, "%PDF-1.4", Other),
        (None, "a\0b", Other),
        (None, "hello", Text),
        (None, "", Text),
        (Some("*/*"), "<body>", Html),
    ] {
        let parsed = value.map(|v| ContentType::parse(v).expect("a type"));
        assert_eq!(DocumentKind::of(parsed.as_ref(), head.as_bytes()), expected, "for {value:?}, {head:?}");
    }
    assert_eq!(DocumentKind::of(None, b"\xff\xfeh\0"), Text);
}

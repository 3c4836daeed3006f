//! Tables for the headers that are read: Location, Retry-After, Link.

use std::time::{Duration, SystemTime};

use dolomedes_netproto::fetch::link_header::{MAX_LINKS, links};
use dolomedes_netproto::fetch::redirect::{RedirectError, location};
use dolomedes_netproto::fetch::retry_after::retry_after;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue, LINK, LOCATION, RETRY_AFTER};
use proptest::prelude::*;

use crate::support::url;

fn with(name: HeaderName, values: &[&[u8]]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(name.clone(), HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

fn target(base: &str, status: u16, value: &[u8]) -> Result<Option<String>, RedirectError> {
    let found = location(&url(base), StatusCode::from_u16(status).unwrap(), &with(LOCATION, &[value]))?;
    Ok(found.map(String::from))
}

#[test]
fn e16_redirect_targets() {
    for (value, expected) in [
        (&b"/new"[..], "http://a.test/new"),
        (b"new?x=1", "http://a.test/d/new?x=1"),
        (b"//b.test/", "http://b.test/"),
        (b" https://b.test ", "https://b.test/"),
        (b"?q", "http://a.test/d/p?q"),
        (b"#frag", "http://a.test/d/p#frag"),
        (b"\\\\b.test\\x", "http://b.test/x"),
        ("/ü".as_bytes(), "http://a.test/%C3%BC"),
        ("http://bücher.test/".as_bytes(), "http://xn--bcher-kva.test/"),
        (b"/\xfc", "http://a.test/%EF%BF%BD"),
        (b"/a b", "http://a.test/a%20b"),
        (b"http://b.test:0080/", "http://b.test/"),
    ] {
        for status in [301, 302, 303, 307, 308] {
            assert_eq!(target("http://a.test/d/p", status, value).unwrap().as_deref(), Some(expected));
        }
        for status in [200, 201, 300, 304, 305, 306, 404] {
            assert_eq!(target("http://a.test/d/p", status, value), Ok(None), "{status}");
        }
    }
    assert_eq!(target("http://a.test/#x", 302, b"/n").unwrap().as_deref(), Some("http://a.test/n#x"));
    assert_eq!(target("http://a.test/#x", 302, b"/n#y").unwrap().as_deref(), Some("http://a.test/n#y"));
}

#[test]
fn e16_redirects_to_nowhere() {
    let base = url("http://a.test/");
    assert_eq!(location(&base, StatusCode::FOUND, &HeaderMap::new()), Err(RedirectError::Missing));
    assert_eq!(target("http://a.test/", 302, b""), Err(RedirectError::Empty));
    assert_eq!(target("http://a.test/", 302, b"  "), Err(RedirectError::Empty));
    assert!(matches!(target("http://a.test/", 302, b"http://[bad"), Err(RedirectError::Invalid { .. })));
    assert!(matches!(target("http://a.test/", 302, b"http://a b/"), Err(RedirectError::Invalid { .. })));
    for scheme in ["file", "data", "javascript", "ftp", "mailto"] {
        let value = format!("{scheme}:///x");
        let expected = Err(RedirectError::Scheme(scheme.to_owned()));
        assert_eq!(target("http://a.test/", 302, value.as_bytes()), expected);
    }
}

#[test]
fn e23_retry_after() {
    // Sun, 06 Nov 1994 08:49:37 GMT
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    for (value, expected) in [
        ("120", Some(120)),
        ("0", Some(0)),
        (" 7 ", Some(7)),
        ("315360000", Some(86_400)),
        ("99999999999999999999999999", Some(86_400)),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
        ("Sunday, 06-Nov-94 08:49:38 GMT", Some(1)),
        ("Sun Nov  6 08:49:39 1994", Some(2)),
        ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
        ("Fri, 31 Dec 1999 23:59:59 GMT", Some(86_400)),
        ("-1", None),
        ("+5", None),
        ("1.5", None),
        ("", None),
        ("soon", None),
        ("12x", None),
    ] {
        let found = retry_after(&with(RETRY_AFTER, &[value.as_bytes()]), now);
        assert_eq!(found, expected.map(Duration::from_secs), "{value:?}");
    }
    assert_eq!(retry_after(&HeaderMap::new(), now), None);
    assert_eq!(retry_after(&with(RETRY_AFTER, &[b"\xff"]), now), None);
}

#[test]
fn e9_link_headers() {
    let found = |values: &[&[u8]]| {
        let found = links(&with(LINK, values));
        found.iter().map(|l| format!("{}|{}", l.target, l.rels.join("+"))).collect::<Vec<_>>()
    };
    assert_eq!(found(&[b"</n>; rel=\"next\", </c>; rel=canonical"]), ["/n|next", "/c|canonical"]);
    assert_eq!(found(&[b"</n>; rel=next", b"</p>;rel=PREV"]), ["/n|next", "/p|prev"]);
    assert_eq!(found(&[b"<a,b;c>; title=\"x, <y>; \\\"z\"; rel=\"a  b\",<d>;rel=e"]), ["a,b;c|a+b", "d|e"]);
    assert_eq!(found(&[b"<a>; rel=x; rel=y , , <b> ; REL = z"]), ["a|x", "b|z"]);
    assert_eq!(found(&[b"<a>; title=t, <b>; rel, <c>; rel=c"]), ["c|c"]);
    assert_eq!(found(&[b"junk; rel=x, <a>; rel=y"]), ["a|y"]);
    assert_eq!(found(&[b"<unclosed; rel=x"]), [""; 0]);
    assert_eq!(found(&["<ü>; rel=x".as_bytes()]), ["ü|x"]);
    let link =
        &links(&with(LINK, &[b"<a>; rel=alternate; hreflang=de; type=\"text/html\"; anchor=\"#x\""]))[0];
    assert!(link.has_rel("alternate"));
    assert_eq!(
        (link.hreflang.as_deref(), link.media_type.as_deref(), link.anchor.as_deref()),
        (Some("de"), Some("text/html"), Some("#x"))
    );
    let many = "<a>; rel=x,".repeat(MAX_LINKS * 2);
    assert_eq!(links(&with(LINK, &[many.as_bytes()])).len(), MAX_LINKS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_read_without_a_panic(value in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let value = value.as_bytes();
            links(&with(LINK, &[value]));
            let _ = target("http://a.test/", 302, value);
            retry_after(&with(RETRY_AFTER, &[value]), SystemTime::UNIX_EPOCH);
        }
    }

    #[test]
    fn links_survive_odd_punctuation(value in "[<>;=,\" a\\\\]{0,40}") {
        links(&with(LINK, &[value.as_bytes()]));
    }
}

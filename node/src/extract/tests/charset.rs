use std::borrow::Cow;

use encoding_rs::{GB18030, SHIFT_JIS};
use proptest::prelude::*;

use crate::extract::charset::{CharsetHints, CharsetSource, decode};

fn hints(header: Option<&str>) -> CharsetHints<'_> {
    CharsetHints { header, ..CharsetHints::default() }
}

#[test]
fn the_order_is_mark_header_document_guess() {
    use CharsetSource::*;
    for (header, body, name, source) in [
        (Some("utf-8"), &b"\xff\xfea\0"[..], "UTF-16LE", Bom),
        (Some("latin1"), b"\xef\xbb\xbfx", "UTF-8", Bom),
        (Some("ISO-8859-1"), b"<meta charset=Shift_JIS>", "windows-1252", Header),
        (None, b"<meta charset=Shift_JIS>", "Shift_JIS", Document),
        (None, b"<META http-equiv='Content-Type' content='text/html; charset=gb2312'>", "GBK", Document),
        (None, b"<meta content='text/html; charset=gb2312'>", "UTF-8", Guess),
        (None, b"<meta content=\"charset = 'gbk'\" http-equiv=content-type>", "GBK", Document),
        (None, b"<meta charset='utf-16le'>", "UTF-8", Document),
        (None, b"<meta charset=x-user-defined>", "windows-1252", Document),
        (None, b"<meta charset=\"utf8;\">x", "UTF-8", Guess),
        (Some("utf8;"), b"<meta charset=koi8-r>", "KOI8-R", Document),
        (Some(" utf8 "), b"<meta charset=koi8-r>", "UTF-8", Header),
        (Some("none"), b"abc", "UTF-8", Guess),
        (None, b"<!-- <meta charset=koi8-r> --><meta charset=euc-kr>", "EUC-KR", Document),
        (None, b"<!--><meta charset=koi8-r>", "KOI8-R", Document),
        (None, b"<script src='?charset=gbk&x=1'></script>", "UTF-8", Guess),
        (None, b"<p title='<meta charset=gbk>'>", "UTF-8", Guess),
        (None, b"<meta name=x charset=koi8-r>", "KOI8-R", Document),
        (None, b"<meta/charset=koi8-r>", "KOI8-R", Document),
        (None, b"<metax charset=koi8-r>", "UTF-8", Guess),
        (None, b"<meta charset=koi8-r", "UTF-8", Guess),
        (None, b"<?xml version='1.0' encoding='koi8-r'?>", "KOI8-R", Document),
        (None, b"<?xml encoding='koi8-r'?><meta charset=euc-kr>", "EUC-KR", Document),
        (None, b"<\0?\0x\0m\0l\0", "UTF-16LE", Document),
        (Some("hz-gb-2312"), b"x", "replacement", Header),
        (None, b"", "UTF-8", Guess),
        (None, b"plain", "UTF-8", Guess),
        (None, "grün".as_bytes(), "UTF-8", Guess),
    ] {
        let decoded = decode(body, hints(header));
        let shown = String::from_utf8_lossy(body);
        assert_eq!((decoded.encoding.name(), decoded.source), (name, source), "for {header:?}, {shown:?}");
    }
}

#[test]
fn xml_declares_only_in_its_declaration() {
    let body = b"<?xml version='1.0' encoding='koi8-r'?><meta charset=euc-kr>";
    let xml = CharsetHints { is_xml: true, ..CharsetHints::default() };
    assert_eq!(decode(body, xml).encoding.name(), "KOI8-R");
    assert_eq!(decode(b"<meta charset=euc-kr>\xe9", xml).encoding.name(), "UTF-8");
}

#[test]
fn a_declaration_beyond_the_first_1024_bytes_is_not_seen() {
    let mut body = b" ".repeat(1000);
    body.extend_from_slice(b"<meta charset=koi8-r>");
    assert_eq!(decode(&body, hints(None)).encoding.name(), "KOI8-R");
    let mut body = b" ".repeat(2048);
    body.extend_from_slice(b"<meta charset=koi8-r>");
    assert_eq!(decode(&body, hints(None)).source, CharsetSource::Guess);
}

#[test]
fn gb2312_pages_may_use_four_byte_characters() {
    let mut body = b"<meta charset=gb2312>".to_vec();
    body.extend_from_slice(&GB18030.encode("\u{1f600}").0);
    let decoded = decode(&body, hints(None));
    assert!(decoded.text.ends_with('\u{1f600}') && !decoded.replaced);
}

#[test]
fn undeclared_text_is_guessed() {
    let (body, _, _) = SHIFT_JIS.encode("日本語のホームページへようこそ。これはテストです。");
    let jp = CharsetHints { tld: Some("jp"), ..CharsetHints::default() };
    assert_eq!(decode(&body, jp).encoding, SHIFT_JIS);
    let decoded = decode(b"\x1b$B4A;z\x1b(B", jp);
    assert_eq!(decoded.encoding.name(), "ISO-2022-JP");
    let french = decode(b"<p>d\xe9j\xe0 vu, l'\xe9t\xe9 fran\xe7ais", hints(None));
    assert!(french.text.contains("déjà vu"), "{}", french.text);
    for tld in ["", "JP", "a.b", "ü", "xn--p1ai"] {
        let _ = decode(b"\xe9", CharsetHints { tld: Some(tld), ..CharsetHints::default() });
    }
}

#[test]
fn valid_utf8_is_borrowed_and_the_rest_is_flagged() {
    let decoded = decode("\u{feff}grün".as_bytes(), hints(Some("utf-8")));
    assert!(matches!(decoded.text, Cow::Borrowed("grün")) && !decoded.replaced);
    let decoded = decode(b"plain", hints(Some("gbk")));
    assert!(matches!(decoded.text, Cow::Borrowed("plain")));
    let decoded = decode(b"a\xffb", hints(Some("utf-8")));
    assert!(decoded.replaced);
    assert_eq!(decoded.text, "a\u{fffd}b");
}

proptest! {
    #[test]
    fn any_bytes_decode(body in prop::collection::vec(any::<u8>(), 0..300), header in "[a-z0-9-]{0,8}", tld in "\\PC{0,4}") {
        let _ = decode(&body, CharsetHints { header: Some(&header), tld: Some(&tld), is_xml: false });
        let _ = decode(&body, CharsetHints { header: None, tld: Some(&tld), is_xml: true });
    }

    #[test]
    fn any_declaration_is_read_without_a_panic(
        parts in prop::collection::vec(prop::sample::select(&["<meta", " ", "/", "charset", "=", "'", "\"", ">", "<!--", "-->", "<",
            "content", "http-equiv", "content-type", "gbk", ";", "<?xml", "encoding", "?>", "<p", "</", "<!"][..]), 0..20),
    ) {
        let _ = decode(parts.concat().as_bytes(), CharsetHints::default());
    }
}

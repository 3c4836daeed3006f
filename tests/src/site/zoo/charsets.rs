//! Charsets, and labels that lie about them. Right: BOM, then header, then meta in the first 1,024 bytes, then a guess
//! (WHATWG Encoding and HTML standards). The bytes are written out, so that no encoder is trusted.

use super::{Answer, Exhibit, Request};
use crate::site::Reply;

const fn charset(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "charsets", name, about, answer }
}

/// 日本語の頁
const SHIFT_JIS: &[u8] = b"\x93\xfa\x96\x7b\x8c\xea\x82\xcc\x95\xc5";
/// 𠂇文档, whose first character takes four bytes in GB18030.
const GB18030: &[u8] = b"\x95\x32\x90\x31\xce\xc4\xb5\xb5";
/// café
const LATIN_1: &[u8] = b"caf\xe9";

fn page(content_type: &str, parts: &[&[u8]]) -> Answer {
    Reply::with(content_type, parts.concat()).into()
}

/// A page in UTF-16 with its byte order mark.
fn utf16(title: &str, big: bool) -> Vec<u8> {
    format!("\u{feff}<html><head><title>{title}</title></head></html>")
        .encode_utf16()
        .flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
        .collect()
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    charset("shift-jis-header", "Shift_JIS, said in the header", |_| {
        page("text/html; charset=Shift_JIS", &[b"<title>", SHIFT_JIS, b"</title>"])
    }),
    charset("shift-jis-meta", "Shift_JIS, said in meta", |_| {
        page("text/html", &[b"<meta charset=\"shift_jis\"><title>", SHIFT_JIS, b"</title>"])
    }),
    charset("shift-jis-http-equiv", "Shift_JIS, said in the old meta", |_| {
        let meta = b"<META HTTP-EQUIV=Content-Type CONTENT='text/html; CHARSET=x-sjis'>";
        page("text/html", &[meta, b"<title>", SHIFT_JIS, b"</title>"])
    }),
    charset("header-beats-meta", "UTF-8 in the header, Shift_JIS in meta; is UTF-8", |_| {
        page(
            "text/html; charset=utf-8",
            &[b"<meta charset=shift_jis><title>", "日本語".as_bytes(), b"</title>"],
        )
    }),
    charset("gb2312", "said to be gb2312, has a character of GB18030", |_| {
        page("text/html; charset=gb2312", &[b"<title>", GB18030, b"</title>"])
    }),
    charset("gbk-meta", "said to be gbk in meta, has a character of GB18030", |_| {
        page("text/html", &[b"<meta charset=gbk><title>", GB18030, b"</title>"])
    }),
    charset("utf-16le-bom", "UTF-16 with a mark, said to be UTF-8", |_| {
        Reply::with("text/html; charset=utf-8", utf16("sixteen é", false)).into()
    }),
    charset("utf-16be-bom", "big-endian UTF-16 with a mark", |_| {
        Reply::with("text/html", utf16("sixteen é", true)).into()
    }),
    charset("utf-8-bom", "UTF-8 with a mark, said to be Latin-1", |_| {
        page("text/html; charset=iso-8859-1", &["\u{feff}<title>mark é</title>".as_bytes()])
    }),
    charset("junk-label", "a label with junk behind it", |_| {
        page("text/html; charset=\"utf8;\"", &["<title>junk é</title>".as_bytes()])
    }),
    charset("unknown-label", "a label that does not exist", |_| {
        page("text/html; charset=klingon", &["<meta charset=utf-8><title>unknown é</title>".as_bytes()])
    }),
    charset("late-meta", "meta behind 2 KB: too late to count", |_| {
        let filler = vec![b' '; 2048];
        page("text/html", &[&filler, b"<meta charset=shift_jis><title>late \xc3\xa9</title>"])
    }),
    charset("in-script", "charset=gbk in a script is no label", |_| {
        let script = b"<script>load('/x?charset=gbk&x=1')</script>";
        page("text/html; charset=utf-8", &[script, "<title>script é</title>".as_bytes()])
    }),
    charset("latin-1", "Latin-1, said to be", |_| {
        page("text/html; charset=iso-8859-1", &[b"<title>", LATIN_1, b"</title>"])
    }),
    charset("latin-1-unsaid", "Latin-1, not said", |_| {
        page("text/html", &[b"<title>", LATIN_1, b" au lait</title>"])
    }),
    charset("latin-1-as-utf-8", "Latin-1, said to be UTF-8", |_| {
        page("text/html; charset=utf-8", &[b"<title>", LATIN_1, b"</title>"])
    }),
    charset("utf-7", "a label that must not be honoured", |_| {
        page("text/html; charset=utf-7", &[b"<title>seven</title>+ADw-a href=+ACI-/good/x+ACI-+AD4-"])
    }),
];

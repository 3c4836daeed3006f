//! Pages with too much of what a page may have. Right: caps on links and URL lengths that the record names.

use std::sync::OnceLock;

use bytes::Bytes;

use super::{Answer, Exhibit, Request};
use crate::site::Reply;

const fn flood(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "floods", name, about, answer }
}

/// Makes a page of many lines once, and keeps it.
fn lines(cell: &'static OnceLock<Bytes>, count: usize, line: impl Fn(usize) -> String) -> Answer {
    let body = cell.get_or_init(|| {
        let mut html = String::from("<!doctype html><title>a flood</title>\n");
        for n in 0..count {
            html.push_str(&line(n));
            html.push('\n');
        }
        html.into()
    });
    Reply::with("text/html; charset=utf-8", body.clone()).into()
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    flood("links", "100,000 links to pages that are not there", |request| {
        static PAGE: OnceLock<Bytes> = OnceLock::new();
        match request.path_only() {
            "/floods/links" => lines(&PAGE, 100_000, |n| format!("<a href=\"/floods/links/{n}\">{n}</a>")),
            _ => Reply::not_found().into(),
        }
    }),
    flood("same-link", "100,000 times the same link, with another fragment", |_| {
        static PAGE: OnceLock<Bytes> = OnceLock::new();
        lines(&PAGE, 100_000, |n| format!("<a href=\"/good/same#{n}\">{n}</a>"))
    }),
    flood("hosts", "10,000 links to hosts that do not exist", |_| {
        static PAGE: OnceLock<Bytes> = OnceLock::new();
        lines(&PAGE, 10_000, |n| format!("<a href=\"http://h{n}.nowhere.invalid/\">{n}</a>"))
    }),
    flood("long-urls", "100 links of 64 KiB", |_| {
        static PAGE: OnceLock<Bytes> = OnceLock::new();
        lines(&PAGE, 100, |n| format!("<a href=\"/good/{n}/{}\">{n}</a>", "x".repeat(64 * 1024)))
    }),
    flood("odd-urls", "links that are none", |_| {
        const ODD: [&str; 16] = [
            "http://",
            "http:///",
            "http://[::1",
            "http://a:99999/",
            "http://a b/",
            "//",
            "///",
            "javascript:void(0)",
            "data:text/html,x",
            "tel:1",
            "\u{0}",
            "http://%/",
            "http://user:pass@/x",
            "?",
            "#",
            "http://-.test/",
        ];
        static PAGE: OnceLock<Bytes> = OnceLock::new();
        lines(&PAGE, ODD.len(), |n| format!("<a href=\"{}\">odd</a>", ODD[n]))
    }),
    flood("srcset", "a srcset with 10,000 candidates", |_| {
        let list: Vec<String> = (0..10_000).map(|n| format!("/img/{n}.png {n}w")).collect();
        Reply::html(format!("<title>srcset</title><img srcset=\"{}\">", list.join(", "))).into()
    }),
    flood("cookies", "500 cookies, one of them of 64 KiB", |_| {
        let mut reply = Reply::page("cookies", ["/good/cookies"]);
        for n in 0..500 {
            reply = reply.header("Set-Cookie", format!("c{n}={n}"));
        }
        reply.header("Set-Cookie", format!("large={}", "x".repeat(64 * 1024))).into()
    }),
    flood("foreign-cookie", "a cookie for all of .test", |_| {
        Reply::page("foreign-cookie", ["/good/foreign"]).header("Set-Cookie", "all=1; Domain=test").into()
    }),
];

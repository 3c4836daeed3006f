//! HTML that is hard on a parser. Right: linear time, bounded memory, no overflow of the stack.

use bytes::Bytes;

use super::{Answer, Exhibit, Request};
use crate::site::Reply;

const fn markup(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "markup", name, about, answer }
}

fn html(before: &str, piece: impl Into<Bytes>, times: u64, after: &str) -> Answer {
    Reply::status(200)
        .header("Content-Type", "text/html; charset=utf-8")
        .body("<!doctype html><title>markup</title>")
        .body(before.to_owned())
        .repeated(piece, times)
        .body(after.to_owned())
        .into()
}

const LINK: &str = "<a href=\"/good/markup\">on</a>";

pub(super) const EXHIBITS: &[Exhibit] = &[
    markup("deep-divs", "100,000 nested elements", |_| html("", "<div>", 100_000, LINK)),
    markup("deep-formatting", "50,000 unclosed formatting elements", |_| html("", "<b><i>", 25_000, LINK)),
    markup("deep-tables", "10,000 nested tables", |_| html("", "<table><tr><td>", 10_000, LINK)),
    markup("many-attributes", "50,000 attributes on one element", |_| {
        let attributes: String = (0..50_000).map(|n| format!(" a{n}=v{n}")).collect();
        html("<p", attributes, 1, &format!(">{LINK}"))
    }),
    markup("same-attribute", "one attribute 50,000 times", |_| {
        html("<p", " a=b", 50_000, &format!(">{LINK}"))
    }),
    markup("giant-attribute", "one attribute of 8 MiB", |_| {
        html("<p title=\"", "x".repeat(1024), 8192, &format!("\">{LINK}"))
    }),
    markup("giant-link", "a link of 8 MiB", |_| {
        html("<a href=\"/", "x".repeat(1024), 8192, &format!("\">{LINK}"))
    }),
    markup("giant-tag-name", "a tag name of 1 MiB", |_| {
        html("<", "x".repeat(1024), 1024, &format!(">{LINK}"))
    }),
    markup("giant-title", "a title of 1 MiB", |_| html("<title>", "x".repeat(1024), 1024, LINK)),
    markup("open-comment", "a comment of 4 MiB that never ends", |_| html("<!--", "- ", 2 << 20, "")),
    markup("open-script", "a script that never ends", |_| html("<script>", "<!--<script>", 100_000, LINK)),
    markup("open-tag", "a tag that never ends", |_| html("<a href=/good/x ", "y ", 500_000, "")),
    markup("entities", "200,000 character references", |_| html("<p>", "&amp;&#x41;&notit;", 66_000, LINK)),
    markup("zeros", "zeros between the letters", |_| html("", "\0<\0p\0>", 10_000, LINK)),
    markup("one-line", "8 MiB without a tag", |_| html("", "x".repeat(1024), 8192, LINK)),
    markup("binary-as-html", "an image that is said to be HTML", |_| {
        let noise: Vec<u8> = (0..65_536_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        Reply::with("text/html", noise).into()
    }),
    markup("empty", "no byte at all", |_| Reply::html("").into()),
    markup("no-type", "no Content-Type", |_| {
        Reply::status(200).body(format!("<title>no type</title>{LINK}")).into()
    }),
];

//! Redirect mazes. Right: a redirect error or a capped chain, never a crash or an endless loop, and never out of http(s).

use super::{Answer, Exhibit, Request, page};
use crate::site::Reply;

const fn maze(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "redirects", name, about, answer }
}

/// The number at the end of a path `/redirects/NAME/N`.
fn hop(request: &Request) -> u64 {
    request.path_only().rsplit('/').next().and_then(|last| last.parse().ok()).unwrap_or(0)
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    maze("no-location", "302 without Location", |_| Reply::status(302).into()),
    maze("empty-location", "302 with an empty Location", |_| Reply::redirect(302, "").into()),
    maze("bad-location", "Location: http://[bad", |_| Reply::redirect(302, "http://[bad").into()),
    maze("raw-utf8", "Location with raw UTF-8", |request| match request.path_only() {
        "/redirects/raw-utf8" => Reply::redirect(302, "/redirects/raw-utf8/é").into(),
        _ => Reply::html(page("raw-utf8")).into(),
    }),
    maze("latin-1", "Location with a byte that is no UTF-8", |_| {
        Reply::redirect(302, b"/good/caf\xe9".as_slice()).into()
    }),
    maze("to-file", "Location: file:///etc/passwd", |_| Reply::redirect(302, "file:///etc/passwd").into()),
    maze("to-data", "Location: data:", |_| Reply::redirect(302, "data:text/html,<title>data</title>").into()),
    maze("to-javascript", "Location: javascript:", |_| Reply::redirect(302, "javascript:alert(1)").into()),
    maze("to-ftp", "Location: ftp:", |_| Reply::redirect(302, "ftp://127.0.0.1/x").into()),
    maze("to-metadata", "to the address of cloud metadata", |_| {
        Reply::redirect(302, "http://169.254.169.254/latest/meta-data/").into()
    }),
    maze("to-private", "to a private address", |_| Reply::redirect(302, "http://10.0.0.1/").into()),
    maze("two-locations", "two Location headers", |_| {
        Reply::redirect(302, "/good/one").header("Location", "/good/two").into()
    }),
    maze("self", "to itself", |_| Reply::redirect(302, "/redirects/self").into()),
    maze("loop", "A to B to A", |request| match request.path_only() {
        "/redirects/loop" => Reply::redirect(302, "/redirects/loop/b").into(),
        _ => Reply::redirect(302, "/redirects/loop").into(),
    }),
    maze("self-with-cookie", "to itself once, to set a cookie; a page with the cookie", |request| {
        if request.header("cookie").is_some_and(|cookies| cookies.contains("seen=1")) {
            Reply::html(page("self-with-cookie")).into()
        } else {
            Reply::redirect(302, "/redirects/self-with-cookie").header("Set-Cookie", "seen=1; Path=/").into()
        }
    }),
    maze("new-cookie-each-time", "to itself for ever, with a new cookie each time", |request| {
        Reply::redirect(302, "/redirects/new-cookie-each-time")
            .header("Set-Cookie", format!("n{}=1", request.visit))
            .into()
    }),
    maze("three-hops", "three hops to a page", |request| match hop(request) {
        3 => Reply::html(page("three-hops")).into(),
        n => Reply::redirect(301, format!("/redirects/three-hops/{}", n + 1)).into(),
    }),
    maze("thousand-hops", "a thousand hops", |request| match hop(request) {
        1000 => Reply::html(page("thousand-hops")).into(),
        n => Reply::redirect(301, format!("/redirects/thousand-hops/{}", n + 1)).into(),
    }),
    maze("endless-query", "the query grows with each hop", |request| {
        Reply::redirect(302, format!("/redirects/endless-query?{}a", request.query())).into()
    }),
    maze("huge-location", "a Location of 200 KiB", |_| {
        Reply::redirect(302, format!("/good/{}", "x".repeat(200 * 1024))).into()
    }),
    maze("with-body", "a redirect whose body is a page with links", |_| {
        let mut reply = Reply::page("moved", ["/good/from-redirect-body"]).header("Location", "/good/moved");
        reply.status = 301;
        reply.into()
    }),
    maze("300", "300 without Location, with a list of links", |_| {
        Reply::page("choices", ["/good/choice"]).code(300).into()
    }),
];

//! Heads of answers that are too large or against the grammar. Right: an error of the attempt, or tolerance; never a crash.

use super::{Answer, Exhibit, Request, page};
use crate::site::{Reply, Script};

const fn head(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "headers", name, about, answer }
}

/// An answer whose status line is this, with the head lines and a small page.
fn raw(status_line: &str, lines: &str) -> Answer {
    let body = page("headers");
    Script::new()
        .send(format!(
            "{status_line}\r\nContent-Type: text/html\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .into()
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    head("one-huge", "one header of 2 MiB", |_| {
        Script::new().send("HTTP/1.1 200 OK\r\nX-A: ").repeat("x".repeat(1024), 2048).send("\r\n\r\n").into()
    }),
    head("ten-thousand", "10,000 headers", |_| {
        Script::new().send("HTTP/1.1 200 OK\r\n").repeat("X-A: b\r\n", 10_000).send("\r\nhello").into()
    }),
    head("endless", "64 MiB of headers", |_| {
        Script::new()
            .send("HTTP/1.1 200 OK\r\n")
            .repeat(format!("X-A: {}\r\n", "y".repeat(1000)), 65_536)
            .into()
    }),
    head("zero-byte", "a zero byte in a value", |_| raw("HTTP/1.1 200 OK", "X-A: a\0b\r\n")),
    head("folded", "a folded header, as it was once legal", |_| raw("HTTP/1.1 200 OK", "X-A: a\r\n b\r\n")),
    head("no-colon", "a line without a colon", |_| raw("HTTP/1.1 200 OK", "what is this\r\n")),
    head("space-before-colon", "a space before the colon", |_| raw("HTTP/1.1 200 OK", "X-A : b\r\n")),
    head("latin-1", "bytes above 127 in a value", |_| {
        Reply::html(page("latin-1")).header("X-A", b"caf\xe9".as_slice()).into()
    }),
    head("bare-lf", "line ends without CR", |_| {
        let body = page("bare-lf");
        Script::new()
            .send(format!(
                "HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: {}\n\n{body}",
                body.len()
            ))
            .into()
    }),
    head("no-reason", "a status line without a reason", |_| raw("HTTP/1.1 200", "")),
    head("status-99", "status 99", |_| raw("HTTP/1.1 99 Odd", "")),
    head("status-600", "status 600", |_| raw("HTTP/1.1 600 Odd", "")),
    head("status-word", "a status in words", |_| raw("HTTP/1.1 good OK", "")),
    head("http-0.9", "a body without any head", |_| Script::new().send(page("http-0.9")).into()),
    head("http-1.0", "an answer of HTTP/1.0", |_| raw("HTTP/1.0 200 OK", "")),
    head("http-3.7", "a version that does not exist", |_| raw("HTTP/3.7 200 OK", "")),
    head("early-hints", "103 before the answer", |_| {
        let body = page("early-hints");
        Script::new()
            .send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
            .send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .into()
    }),
    head("endless-continue", "100,000 times 100 Continue", |_| {
        Script::new().repeat("HTTP/1.1 100 Continue\r\n\r\n", 100_000).into()
    }),
    head("switching", "101 without having been asked", |_| {
        Script::new()
            .send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
            .into()
    }),
    head("types", "a Content-Type of nonsense", |_| {
        Reply::status(200).header("Content-Type", ";;;=,text/html/x; charset").body(page("types")).into()
    }),
];

//! Lies about the length of a body. Right: what is short is marked incomplete, excess bytes never become the next
//! answer, and lengths that differ are an error (RFC 9112, section 6.3).

use super::{Answer, Exhibit, Request};
use crate::site::{Reply, Script};

const BODY: &str = "<html><head><title>lengths</title></head><body>a body of some length <a href=\"/good/lengths\">on</a></body></html>";

const fn lie(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "lengths", name, about, answer }
}

/// A head with these length headers.
fn head(lines: &str) -> Script {
    Script::ok(&format!("Content-Type: text/html\r\n{lines}"))
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    lie("too-long", "declares 500 bytes more than it sends", |_| {
        head(&format!("Content-Length: {}\r\n", BODY.len() + 500)).send(BODY).into()
    }),
    lie("too-short", "declares fewer bytes than it sends, and goes on with the connection", |_| {
        head("Content-Length: 40\r\n").send(BODY).keep().into()
    }),
    lie("smuggled", "the excess bytes look like the next answer", |_| {
        head(&format!("Content-Length: {}\r\n", BODY.len()))
            .send(BODY)
            .send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 28\r\n\r\n<title>smuggled page</title>")
            .keep()
            .into()
    }),
    lie("two-that-differ", "two lengths that differ", |_| {
        head(&format!("Content-Length: {}\r\nContent-Length: 10\r\n", BODY.len())).send(BODY).into()
    }),
    lie("two-that-agree", "the same length twice", |_| {
        head(&format!("Content-Length: {0}\r\nContent-Length: {0}\r\n", BODY.len())).send(BODY).into()
    }),
    lie("list-that-differs", "two lengths in one header", |_| {
        head(&format!("Content-Length: {}, 10\r\n", BODY.len())).send(BODY).into()
    }),
    lie("negative", "a negative length", |_| head("Content-Length: -5\r\n").send(BODY).into()),
    lie("not-a-number", "a length in words", |_| head("Content-Length: many\r\n").send(BODY).into()),
    lie("overflow", "a length beyond 64 bits", |_| {
        head("Content-Length: 99999999999999999999999\r\n").send(BODY).into()
    }),
    lie("huge", "promises an exabyte", |_| head("Content-Length: 1152921504606846976\r\n").send(BODY).into()),
    lie("zero-with-body", "length 0, then a body, on a kept connection", |_| {
        head("Content-Length: 0\r\n").send(BODY).keep().into()
    }),
    lie("none", "no length: ends with the connection, which is right", |_| head("").send(BODY).into()),
    lie("no-content-with-body", "204 with a body", |_| {
        Script::new().send(format!("HTTP/1.1 204 No\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len())).into()
    }),
    lie("not-modified-unasked", "304 without having been asked", |_| Reply::status(304).into()),
    lie("both", "length and chunked: chunked counts, and the connection is closed", |_| {
        head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n").chunk(BODY).send("0\r\n\r\n").into()
    }),
];

//! Broken and odd chunking. Right: without its last chunk a body is incomplete; extensions and trailers are legal.

use super::{Answer, Exhibit, Request, page};
use crate::site::Script;

const fn chunk(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "chunking", name, about, answer }
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    chunk("well-formed", "three chunks; nothing is wrong", |_| {
        Script::chunked()
            .chunk(page("well-formed"))
            .chunk("<p>more")
            .chunk(" of it</p>")
            .send("0\r\n\r\n")
            .into()
    }),
    chunk("no-last-chunk", "closed before the last chunk", |_| {
        Script::chunked().chunk(page("no-last-chunk")).into()
    }),
    chunk("bad-size", "a size that is no hexadecimal number", |_| {
        Script::chunked().chunk(page("bad-size")).send("xyz\r\nhello\r\n0\r\n\r\n").into()
    }),
    chunk("negative-size", "a negative size", |_| Script::chunked().send("-5\r\nhello\r\n0\r\n\r\n").into()),
    chunk("overflowing-size", "a size beyond 64 bits", |_| {
        Script::chunked().send("fffffffffffffffffff\r\nhello\r\n0\r\n\r\n").into()
    }),
    chunk("wrong-size", "more data than the size says", |_| {
        Script::chunked().send("5\r\nhello world\r\n0\r\n\r\n").into()
    }),
    chunk("extension", "a chunk with an extension, which is legal", |_| {
        let body = page("extension");
        Script::chunked().send(format!("{:x};note=\"a b\"\r\n{body}\r\n0\r\n\r\n", body.len())).into()
    }),
    chunk("long-extension", "an extension of 1 MiB", |_| {
        Script::chunked().send("5;").repeat("x=y;", 256 * 1024).send("\r\nhello\r\n0\r\n\r\n").into()
    }),
    chunk("trailer", "a trailer after the last chunk, which is legal", |_| {
        Script::chunked().chunk(page("trailer")).send("0\r\nX-Digest: abc\r\n\r\n").into()
    }),
    chunk("long-trailer", "a trailer of 1 MiB", |_| {
        Script::chunked()
            .chunk(page("long-trailer"))
            .send("0\r\n")
            .repeat(format!("X-A: {}\r\n", "y".repeat(1000)), 1024)
            .send("\r\n")
            .into()
    }),
    chunk("one-byte-chunks", "100,000 chunks of one byte", |_| {
        Script::chunked().repeat("1\r\na\r\n", 100_000).send("0\r\n\r\n").into()
    }),
    chunk("twice", "chunked named twice", |_| {
        Script::ok("Content-Type: text/html\r\nTransfer-Encoding: chunked, chunked\r\n")
            .chunk(page("twice"))
            .send("0\r\n\r\n")
            .into()
    }),
];

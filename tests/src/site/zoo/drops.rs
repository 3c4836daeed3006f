//! Connections that break. Right: a failed attempt that names the phase; the prefix of a body is not passed off as whole.

use super::{Answer, Exhibit, Request, page};
use crate::site::{Reply, Script};

const fn drop(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "drops", name, about, answer }
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    drop("reset-at-once", "reset after the request was read", |_| Script::new().reset().into()),
    drop("close-at-once", "closed after the request was read", |_| Script::new().into()),
    drop("in-status-line", "closed inside the status line", |_| Script::new().send("HTTP/1.").into()),
    drop("in-headers", "reset between two headers", |_| {
        Script::new().send("HTTP/1.1 200 OK\r\nContent-Type: text/ht").reset().into()
    }),
    drop("in-body", "reset in the middle of the body", |_| {
        Script::ok("Content-Type: text/html\r\nContent-Length: 5000\r\n").send(page("in-body")).reset().into()
    }),
    drop("in-chunk", "closed inside a chunk", |_| {
        Script::chunked().send("400\r\n<title>in-chunk</title>").into()
    }),
    drop("first-time-only", "reset at the first request, a page at the second", |request| {
        match request.visit {
            1 => Script::new().reset().into(),
            _ => Reply::html(page("first-time-only")).into(),
        }
    }),
    drop("after-answer", "a whole answer, then a reset in place of keep-alive", |_| {
        Script::ok("Content-Type: text/html\r\nContent-Length: 32\r\n")
            .send("<title>after-answer</title>hello")
            .reset()
            .into()
    }),
    drop("not-http", "an SSH banner", |_| Script::new().send("SSH-2.0-OpenSSH_9.2p1\r\n").into()),
    drop("binary-noise", "random bytes in place of an answer", |_| {
        Script::new().send(vec![0x16, 0x03, 0x01, 0x00, 0xff, 0xfe, 0x00, 0x80]).into()
    }),
];

//! Servers that stop talking, or talk too slowly. Right: the deadline of the phase ends it, with its name in the record.

use std::time::Duration;

use super::{Answer, Exhibit, Request, page};
use crate::site::{Reply, Script};

const fn stall(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "stalls", name, about, answer }
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    stall("before-headers", "accepts the request and says nothing", |_| Script::new().hang().into()),
    stall("in-status-line", "stops inside the status line", |_| {
        Script::new().send("HTTP/1.1 2").hang().into()
    }),
    stall("in-headers", "stops between two headers", |_| {
        Script::new().send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n").hang().into()
    }),
    stall("in-body", "sends half of its body and stops", |_| {
        Script::ok("Content-Type: text/html\r\nContent-Length: 2000\r\n").send(page("in-body")).hang().into()
    }),
    stall("in-chunk", "stops inside a chunk", |_| {
        Script::chunked().send("400\r\n<title>in-chunk</title>").hang().into()
    }),
    stall("drip-body", "one byte each 200 ms: never idle, never done", |_| {
        Script::ok("Content-Type: text/html\r\nContent-Length: 400\r\n")
            .drip(vec![b'a'; 400], Duration::from_millis(200))
            .into()
    }),
    stall("drip-headers", "one byte of header each 200 ms", |_| {
        Script::new()
            .send("HTTP/1.1 200 OK\r\nX-Slow: ")
            .drip(vec![b'a'; 400], Duration::from_millis(200))
            .into()
    }),
    stall("after-body", "body complete, connection left open without a length", |_| {
        Script::ok("Content-Type: text/html\r\nConnection: close\r\n").send(page("after-body")).hang().into()
    }),
    stall("late", "answers after 300 ms; nothing is wrong", |_| {
        Reply::html(page("late")).after(Duration::from_millis(300)).into()
    }),
];

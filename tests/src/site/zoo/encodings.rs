//! Lies and rarities of Content-Encoding. Right: see E18 and E19; a cut stream keeps its prefix and is marked.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use super::{Answer, Exhibit, Request, page};
use crate::site::Reply;

const fn coded(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "encodings", name, about, answer }
}

/// One gzip member.
pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn deflate(data: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// A page long and varied enough that half of its gzip stream decodes to a good part of it.
fn long_page(title: &str) -> Vec<u8> {
    let mut html = page(title);
    let mut random = crate::site::Random::new(1);
    for _ in 0..4000 {
        html.push_str(&format!("<p>{}</p>", random.next_u64()));
    }
    html.into_bytes()
}

fn sent_as(coding: &str, body: Vec<u8>) -> Answer {
    Reply::with("text/html; charset=utf-8", body).header("Content-Encoding", coding).into()
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    coded("gzip", "gzip; nothing is wrong", |_| sent_as("gzip", gzip(page("gzip").as_bytes()))),
    coded("upper-case", "GZIP in capitals", |_| sent_as("GZIP", gzip(page("upper-case").as_bytes()))),
    coded("x-gzip", "the old name", |_| sent_as("x-gzip", gzip(page("x-gzip").as_bytes()))),
    coded("plain-as-gzip", "says gzip, is plain", |_| sent_as("gzip", page("plain-as-gzip").into_bytes())),
    coded("gzip-as-plain", "is gzip, does not say so", |_| {
        Reply::with("text/html", gzip(page("gzip-as-plain").as_bytes())).into()
    }),
    coded("identity", "identity, named", |_| sent_as("identity", page("identity").into_bytes())),
    coded("unknown", "a coding that does not exist", |_| sent_as("frobnicate", page("unknown").into_bytes())),
    coded("stacked", "deflate, then gzip", |_| {
        sent_as("deflate, gzip", gzip(&zlib(page("stacked").as_bytes())))
    }),
    coded("stacked-in-two-headers", "the same in two headers", |_| {
        Reply::with("text/html", gzip(&zlib(page("stacked-in-two-headers").as_bytes())))
            .header("Content-Encoding", "deflate")
            .header("Content-Encoding", "gzip")
            .into()
    }),
    coded("zlib-deflate", "deflate with zlib's frame, as the standard says", |_| {
        sent_as("deflate", zlib(page("zlib-deflate").as_bytes()))
    }),
    coded("raw-deflate", "deflate without a frame, as many servers do", |_| {
        sent_as("deflate", deflate(page("raw-deflate").as_bytes()))
    }),
    coded("two-members", "two gzip members in a row", |_| {
        let whole = page("two-members");
        let (first, second) = whole.as_bytes().split_at(30);
        sent_as("gzip", [gzip(first), gzip(second)].concat())
    }),
    coded("cut-gzip", "gzip, cut in the middle", |_| {
        let mut body = gzip(&long_page("cut-gzip"));
        body.truncate(body.len() / 2);
        sent_as("gzip", body)
    }),
    coded("cut-in-header", "ten bytes of gzip", |_| sent_as("gzip", gzip(b"x")[..10].to_vec())),
    coded("wrong-crc", "gzip with a wrong checksum", |_| {
        let mut body = gzip(page("wrong-crc").as_bytes());
        let at = body.len() - 8;
        body[at] ^= 0xff;
        sent_as("gzip", body)
    }),
    coded("trailing-junk", "bytes after the gzip stream", |_| {
        let mut body = gzip(page("trailing-junk").as_bytes());
        body.extend_from_slice(b"trailing junk that is no gzip member");
        sent_as("gzip", body)
    }),
    coded("trailing-zeros", "zeros after the gzip stream", |_| {
        let mut body = gzip(page("trailing-zeros").as_bytes());
        body.extend_from_slice(&[0; 512]);
        sent_as("gzip", body)
    }),
    coded("noise", "a gzip header and then noise", |_| {
        let mut body = gzip(b"")[..10].to_vec();
        body.extend((0..4000_u32).map(|n| (n * 131 % 251) as u8));
        sent_as("gzip", body)
    }),
    coded("archive.gz", "a .gz file that is also sent as gzip: one layer is the file's own", |_| {
        Reply::with("application/gzip", gzip(&gzip(b"the content of a file")))
            .header("Content-Encoding", "gzip")
            .into()
    }),
    coded("empty", "says gzip, has no body", |_| sent_as("gzip", Vec::new())),
    coded("ten-layers", "ten times gzip", |_| {
        let mut body = page("ten-layers").into_bytes();
        for _ in 0..10 {
            body = gzip(&body);
        }
        sent_as(&["gzip"; 10].join(", "), body)
    }),
];

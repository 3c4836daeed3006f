//! Small bodies that decode to very large ones. Right: decoding stops at the cap, with constant memory, and the record
//! names the cap.
//!
//! None of them is ever made in full: each is one compressed piece of zeros that may be repeated.

use std::io::Write;
use std::sync::OnceLock;

use brotli::CompressorWriter;
use bytes::Bytes;

use super::encodings::gzip;
use super::{Answer, Exhibit, Request};
use crate::site::Reply;

const fn bomb(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "bombs", name, about, answer }
}

/// Decoded size of a piece.
const PIECE: usize = 16 << 20;
/// Pieces that decode to 10 GiB.
const TEN_GIB: u64 = 640;

fn html() -> Reply {
    Reply::status(200).header("Content-Type", "text/html")
}

/// Brotli: the head of a stream, a piece that can follow itself, and the end. Pieces are byte-aligned, because each
/// ends in a flush.
fn brotli_parts() -> &'static (Bytes, Bytes) {
    static PARTS: OnceLock<(Bytes, Bytes)> = OnceLock::new();
    PARTS.get_or_init(|| {
        let zeros = vec![0_u8; PIECE];
        let mut encoder = CompressorWriter::new(Vec::new(), 64 * 1024, 5, 22);
        let mut ends = Vec::new();
        for _ in 0..3 {
            encoder.write_all(&zeros).unwrap();
            encoder.flush().unwrap();
            ends.push(encoder.get_ref().len());
        }
        let all = Bytes::from(encoder.get_ref().clone());
        (all.slice(..ends[1]), all.slice(ends[1]..ends[2]))
    })
}

/// A brotli stream that decodes to `pieces` times 16 MiB, at least 2.
pub fn brotli_zeros(pieces: u64) -> Vec<(Bytes, u64)> {
    let (head, piece) = brotli_parts();
    // The last byte is an empty last meta-block (RFC 7932, section 9.2).
    vec![(head.clone(), 1), (piece.clone(), pieces.saturating_sub(2)), (Bytes::from_static(&[3]), 1)]
}

/// A gzip member of 16 MiB of zeros.
fn gzip_piece() -> &'static Bytes {
    static PIECE_OF_GZIP: OnceLock<Bytes> = OnceLock::new();
    PIECE_OF_GZIP.get_or_init(|| gzip(&vec![0; PIECE]).into())
}

/// A Zstandard frame with this window (an exponent of two, RFC 8878, section 3.1.1.1.2) of run-length blocks that
/// decode to 128 KiB for every four bytes.
fn zstd_frame(window_log: u8, blocks: u64) -> Reply {
    html()
        .header("Content-Encoding", "zstd")
        .body(vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, (window_log - 10) << 3])
        .repeated(Bytes::from_static(&[0x02, 0x00, 0x10, 0x00]), blocks - 1)
        .body(Bytes::from_static(&[0x03, 0x00, 0x10, 0x00]))
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    bomb("brotli", "some KB of brotli, 10 GiB decoded", |_| {
        let mut reply = html().header("Content-Encoding", "br");
        reply.body = brotli_zeros(TEN_GIB);
        reply.into()
    }),
    bomb("gzip", "10 MB of gzip members, 10 GiB decoded", |_| {
        html().header("Content-Encoding", "gzip").repeated(gzip_piece().clone(), TEN_GIB).into()
    }),
    bomb("gzip-in-gzip", "some KB, two layers of gzip, 10 GiB decoded", |_| {
        static BODY: OnceLock<Bytes> = OnceLock::new();
        let body = BODY.get_or_init(|| gzip(&gzip_piece().repeat(usize::try_from(TEN_GIB).unwrap())).into());
        html().header("Content-Encoding", "gzip, gzip").body(body.clone()).into()
    }),
    bomb("zstd", "320 KB of Zstandard, 10 GiB decoded", |_| zstd_frame(20, 81_920).into()),
    bomb("zstd-window", "Zstandard that asks for a window of 2 GiB", |_| zstd_frame(31, 64).into()),
    bomb("endless", "1 GiB without any coding", |_| {
        html().body("<title>endless</title>").repeated(vec![b'a'; 64 * 1024], 16_384).into()
    }),
    bomb("one-image", "256 MiB that are said to be an image", |_| {
        Reply::status(200).header("Content-Type", "image/png").repeated(vec![0x89; 64 * 1024], 4096).into()
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, copy, sink};

    fn flat(body: &[(Bytes, u64)]) -> Vec<u8> {
        body.iter().flat_map(|(piece, times)| piece.repeat(usize::try_from(*times).unwrap())).collect()
    }

    fn count(mut reader: impl Read) -> u64 {
        copy(&mut reader, &mut sink()).unwrap()
    }

    #[test]
    fn a_piece_of_brotli_can_follow_itself() {
        let stream = flat(&brotli_zeros(8));
        assert_eq!(count(brotli::Decompressor::new(stream.as_slice(), 64 * 1024)), 8 * PIECE as u64);
        assert!(flat(&brotli_zeros(TEN_GIB)).len() < 100_000, "{}", flat(&brotli_zeros(TEN_GIB)).len());
    }

    #[test]
    fn the_zstd_frame_is_well_formed() {
        let stream = flat(&zstd_frame(20, 100).body);
        assert_eq!(count(zstd::Decoder::new(stream.as_slice()).unwrap()), 100 * 128 * 1024);
    }
}

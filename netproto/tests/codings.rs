//! Content codings: all of them, broken ones, lying ones, bombs.

use std::io::Write;

use dolomedes_netproto::fetch::{Coding, Cut, Fetched, Limits, Request};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use crate::support::{canned, fetcher, get, page, response, web};

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn brotli(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = brotli::CompressorWriter::new(&mut out, 4096, 5, 22);
    encoder.write_all(body).unwrap();
    drop(encoder);
    out
}

fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(body, 3).unwrap()
}

/// Text that compresses as pages do, and is longer than any buffer on the way.
fn text(len: usize) -> Vec<u8> {
    (0..)
        .flat_map(|i: u32| {
            format!("line {} of some text, {}\n", i, i.wrapping_mul(2_654_435_761)).into_bytes()
        })
        .take(len)
        .collect()
}

async fn fetch_with(limits: Limits, encoding: &str, body: &[u8]) -> Fetched {
    let headers =
        if encoding.is_empty() { String::new() } else { format!("Content-Encoding: {encoding}\r\n") };
    let server = canned(response(&headers, body)).await;
    let request = Request { limits, keep_wire: true, ..get(&server.url("/")) };
    let fetched = fetcher().fetch(request).await.unwrap();
    assert_eq!(fetched.decoded_bytes, fetched.body.len() as u64);
    let wire = fetched.wire.as_ref().unwrap();
    assert_eq!(wire.len() as u64, fetched.wire_bytes);
    assert!(body.starts_with(wire), "the wire bytes are kept as received");
    fetched
}

async fn fetch(encoding: &str, body: &[u8]) -> Fetched {
    fetch_with(Limits::default(), encoding, body).await
}

#[tokio::test]
async fn every_coding_at_every_size() {
    for len in [0, 1, 3, 100, 20_000, 300_000, 3_000_000] {
        let body = text(len);
        for (name, encoded, coding) in [
            ("gzip", gzip(&body), Coding::Gzip),
            ("x-gzip", gzip(&body), Coding::Gzip),
            ("deflate", zlib(&body), Coding::Deflate),
            ("deflate", deflate(&body), Coding::Deflate),
            ("br", brotli(&body), Coding::Brotli),
            ("zstd", zstd(&body), Coding::Zstd),
        ] {
            let fetched = fetch(name, &encoded).await;
            assert_eq!(fetched.truncated, None, "{name} of {len}");
            assert!(fetched.body[..] == body, "{name} of {len}");
            assert_eq!(fetched.encodings, [coding]);
        }
        let fetched = fetch("", &body).await;
        assert!(fetched.body[..] == body && fetched.encodings.is_empty());
    }
}

#[tokio::test]
async fn e18_headers_that_are_not_exact() {
    let body = text(5000);
    for (name, encoded) in [
        ("GZIP", gzip(&body)),
        (" gzip ", gzip(&body)),
        ("identity", body.clone()),
        ("gzip, identity", gzip(&body)),
        ("gzip, br", brotli(&gzip(&body))),
        ("br\r\nContent-Encoding: Gzip", gzip(&brotli(&body))),
        ("zstd,deflate", zlib(&zstd(&body))),
        ("gzip, gzip", gzip(&gzip(&body))),
        // Declared, and not there.
        ("gzip", body.clone()),
        ("zstd", body.clone()),
        ("gzip", b"x".to_vec()),
        ("gzip, gzip", gzip(&body)),
    ] {
        let fetched = fetch(name, &encoded).await;
        assert_eq!(fetched.truncated, None, "{name}");
        let expected = if encoded == b"x" { &b"x"[..] } else { &body };
        assert!(fetched.body[..] == *expected, "{name}");
    }
}

#[tokio::test]
async fn e18_a_download_is_decoded_as_often_as_declared() {
    let archive = gzip(&text(5000));
    let fetched = fetch("", &archive).await;
    assert!(fetched.body[..] == archive);
    let fetched = fetch("gzip", &gzip(&archive)).await;
    assert!(fetched.body[..] == archive);
}

#[tokio::test]
async fn unknown_codings_leave_the_body_as_it_is() {
    for name in ["compress", "gzip, x-secret", "gzip, gzip, gzip", "br;q=1"] {
        let fetched = fetch(name, b"whatever").await;
        assert_eq!(
            (&fetched.body[..], fetched.truncated),
            (&b"whatever"[..], Some(Cut::UnknownCoding)),
            "{name}"
        );
    }
}

#[tokio::test]
async fn e19_cut_streams_keep_their_prefix() {
    // Several blocks of zstd, which gives nothing before a block of 128 KiB is whole.
    let body = text(600_000);
    for (name, encoded) in [
        ("gzip", gzip(&body)),
        ("deflate", zlib(&body)),
        ("deflate", deflate(&body)),
        ("br", brotli(&body)),
        ("zstd", zstd(&body)),
    ] {
        for keep in [encoded.len() - 1, encoded.len() / 2, 5, 1] {
            let fetched = fetch(name, &encoded[..keep]).await;
            assert!(body.starts_with(&fetched.body) || keep == 1, "{name}");
            // Too short for the magic is not the coding at all.
            if keep > 4 {
                assert_eq!(fetched.truncated, Some(Cut::Incomplete), "{name} cut to {keep}");
            }
            if keep > encoded.len() / 3 {
                assert!(fetched.body.len() > 30_000, "{name}: {} bytes", fetched.body.len());
            }
        }
    }
}

#[tokio::test]
async fn e19_damage() {
    let body = text(50_000);
    let mut wrong_sum = gzip(&body);
    let at = wrong_sum.len() - 6;
    wrong_sum[at] ^= 1;
    let fetched = fetch("gzip", &wrong_sum).await;
    assert!(fetched.body[..] == body);
    assert_eq!(fetched.truncated, Some(Cut::Damaged));

    for (name, mut encoded) in
        [("gzip", gzip(&body)), ("deflate", zlib(&body)), ("br", brotli(&body)), ("zstd", zstd(&body))]
    {
        let middle = encoded.len() / 2;
        for byte in &mut encoded[middle..middle + 40] {
            *byte = 0xff;
        }
        let fetched = fetch(name, &encoded).await;
        assert!(fetched.truncated.is_some(), "{name}");
        assert!(fetched.body.len() <= body.len() * 2);
    }
    for name in ["deflate", "br"] {
        let fetched = fetch(name, b"<html>not encoded at all</html>").await;
        assert!(fetched.truncated.is_some(), "{name}");
    }
}

#[tokio::test]
async fn e19_members_and_junk() {
    let (first, second) = (text(40_000), text(10_000));
    let both = [&first[..], &second].concat();
    for (name, one, two) in [("gzip", gzip(&first), gzip(&second)), ("zstd", zstd(&first), zstd(&second))] {
        let fetched = fetch(name, &[&one[..], &two].concat()).await;
        assert!(fetched.body[..] == both, "{name}");
        assert_eq!(fetched.truncated, None);
    }
    for (name, encoded) in
        [("gzip", gzip(&first)), ("deflate", zlib(&first)), ("br", brotli(&first)), ("zstd", zstd(&first))]
    {
        for junk in [&[0_u8; 600][..], b"junk that follows", b"\x1f", b"\x1fx"] {
            let fetched = fetch(name, &[&encoded[..], junk].concat()).await;
            assert!(fetched.body[..] == first, "{name} {junk:?}");
            assert_eq!(fetched.truncated, None, "{name} {junk:?}");
        }
    }
}

/// About 10 GiB of zeros: one compressed metablock of 16 MiB, again and again.
fn brotli_bomb() -> Vec<u8> {
    let zeros = vec![0_u8; 16 << 20];
    let (mut out, mut flushed) = (Vec::new(), Vec::new());
    {
        let mut encoder = brotli::CompressorWriter::new(&mut out, 1 << 16, 5, 24);
        for _ in 0..2 {
            encoder.write_all(&zeros).unwrap();
            encoder.flush().unwrap();
            flushed.push(encoder.get_ref().len());
        }
    }
    let block = out[flushed[0]..flushed[1]].to_vec();
    let mut bomb = out[..flushed[1]].to_vec();
    for _ in 0..638 {
        bomb.extend_from_slice(&block);
    }
    bomb.extend_from_slice(&out[flushed[1]..]);
    bomb
}

#[tokio::test]
async fn e20_bombs_end_at_the_caps() {
    let bomb = brotli_bomb();
    assert!(bomb.len() < 100_000, "{} bytes", bomb.len());
    let fetched = fetch("br", &bomb).await;
    assert_eq!(fetched.truncated, Some(Cut::Ratio));
    assert!(fetched.body.len() <= bomb.len() * 256);
    let lenient = Limits { ratio: u32::MAX, decoded_bytes: 5_000_000, ..Limits::default() };
    let fetched = fetch_with(lenient, "br", &bomb).await;
    assert_eq!((fetched.truncated, fetched.body.len()), (Some(Cut::DecodedSize), 5_000_000));

    let zeros = vec![0; 64 << 20];
    for (name, encoded) in [("gzip", gzip(&zeros)), ("deflate", zlib(&zeros)), ("zstd", zstd(&zeros))] {
        let fetched = fetch(name, &encoded).await;
        assert!(matches!(fetched.truncated, Some(Cut::Ratio | Cut::DecodedSize)), "{name}");
        assert!(fetched.body.len() <= 16 << 20);
    }
    // The caps hold over all layers: the inner stream is the bomb, or the outer one is.
    let fetched = fetch("gzip, gzip", &gzip(&gzip(&zeros))).await;
    assert!(matches!(fetched.truncated, Some(Cut::Ratio | Cut::DecodedSize)));
    let mut long_name = b"\x1f\x8b\x08\x08\0\0\0\0\0\xff".to_vec();
    long_name.extend(vec![b'a'; 64 << 20]);
    let fetched = fetch("gzip, gzip", &gzip(&long_name)).await;
    assert_eq!((fetched.truncated, fetched.body.len()), (Some(Cut::DecodedSize), 0));
}

#[tokio::test]
async fn e20_a_window_of_two_gigabytes_is_refused() {
    // No content size, window log 31, then one last block that repeats a byte.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (31 - 10) << 3, 0x03 | 8 << 3, 0, 0, b'x'];
    let fetched = fetch("zstd", &frame).await;
    assert_eq!((fetched.truncated, fetched.body.len()), (Some(Cut::Damaged), 0));
    let small = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (23 - 10) << 3, 0x03 | 8 << 3, 0, 0, b'x'];
    let fetched = fetch("zstd", &small).await;
    assert_eq!((fetched.truncated, &fetched.body[..]), (None, &b"xxxxxxxx"[..]));
}

#[tokio::test]
async fn caps_keep_an_exact_prefix() {
    let body = text(100_000);
    for (limits, cut, len) in [
        (Limits { wire_bytes: 70_000, ..Limits::default() }, Some(Cut::WireSize), 70_000),
        (Limits { decoded_bytes: 60_000, ..Limits::default() }, Some(Cut::DecodedSize), 60_000),
        (Limits { wire_bytes: 100_000, decoded_bytes: 100_000, ratio: 1 }, None, 100_000),
        (Limits { wire_bytes: 0, ..Limits::default() }, Some(Cut::WireSize), 0),
    ] {
        let fetched = fetch_with(limits, "", &body).await;
        assert_eq!((fetched.truncated, fetched.body.len()), (cut, len));
        assert!(body.starts_with(&fetched.body));
    }
    for (name, encoded) in [("gzip", gzip(&body)), ("br", brotli(&body)), ("zstd", zstd(&body))] {
        for (cap, cut) in [
            (100_000, None),
            (99_999, Some(Cut::DecodedSize)),
            (10, Some(Cut::DecodedSize)),
            (0, Some(Cut::DecodedSize)),
        ] {
            let fetched =
                fetch_with(Limits { decoded_bytes: cap, ..Limits::default() }, name, &encoded).await;
            assert_eq!((fetched.truncated, fetched.decoded_bytes), (cut, cap), "{name}");
            assert!(body.starts_with(&fetched.body));
        }
        let limits = Limits { wire_bytes: encoded.len() as u64 / 2, ..Limits::default() };
        let fetched = fetch_with(limits, name, &encoded).await;
        assert_eq!(fetched.truncated, Some(Cut::WireSize));
        assert!(body.starts_with(&fetched.body), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any damage gives a result within the caps; none hangs, panics or is taken for whole when bytes are missing.
    #[test]
    fn any_damage_is_survived(
        which in 0..5_usize, at in 0..4000_usize, flip in any::<u8>(), cut in 0..4000_usize, junk in proptest::collection::vec(any::<u8>(), 0..40)
    ) {
        let body = text(20_000);
        let (name, mut encoded) = match which {
            0 => ("gzip", gzip(&body)),
            1 => ("deflate", zlib(&body)),
            2 => ("deflate", deflate(&body)),
            3 => ("br", brotli(&body)),
            _ => ("zstd", zstd(&body)),
        };
        let at = at % encoded.len();
        encoded[at] ^= flip;
        encoded.truncate(encoded.len() - cut % encoded.len());
        encoded.extend(junk);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limits = Limits { decoded_bytes: 50_000, ..Limits::default() };
        let fetched = runtime.block_on(fetch_with(limits, name, &encoded));
        prop_assert!(fetched.body.len() <= 50_000);
    }
}

#[tokio::test]
async fn every_coding_is_asked_for() {
    let server = web(None, |request| {
        let accept = request.headers()["accept-encoding"].to_str().unwrap().to_owned();
        page(accept)
    })
    .await;
    let fetched = fetcher().fetch(get(&server.url("/"))).await.unwrap();
    assert_eq!(&fetched.body[..], b"gzip, deflate, br, zstd");
}

//! What stands in the WARC files, also judged by warcio and cdxj-indexer where they are installed.

use std::process::Command;

use super::*;
use crate::record::Truncated;

/// One fetch of each odd kind.
fn odd_fetches() -> Vec<Envelope> {
    let headers = |fields: &[(&'static str, &[u8])]| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    };
    let html: &[(&'static str, &[u8])] = &[("content-type", b"text/html")];
    let gzipped = {
        let mut bytes = Vec::new();
        let mut gzip =
            flate2::read::GzEncoder::new(&b"<title>packed</title>"[..], flate2::Compression::fast());
        std::io::Read::read_to_end(&mut gzip, &mut bytes).unwrap();
        bytes
    };
    let huge = vec![b'v'; 60_000];
    let mut cases = vec![
        exchange("http://example.com/", 1, 200, &headers(html), b"<title>plain</title>"),
        exchange("https://www.example.com/again", 2, 200, &headers(html), b"<title>plain</title>"),
        exchange("http://example.com/none", 3, 204, &headers(&[]), b""),
        exchange("http://example.com/same", 4, 304, &headers(&[("etag", b"\"x\"")]), b""),
        exchange("http://example.com/empty", 5, 200, &headers(html), b""),
        exchange(
            "http://example.com/latin",
            6,
            200,
            &headers(&[
                ("content-type", b"text/html; charset=latin1"),
                ("x-name", b"M\xfcnchen"),
                ("x-name", b"\xff\xfe"),
            ]),
            b"\xfc\xff\x00",
        ),
        exchange(
            "http://example.com/chunked",
            7,
            200,
            &headers(&[
                ("transfer-encoding", b"chunked"),
                ("content-encoding", b"gzip"),
                ("content-type", b"text/html"),
            ]),
            &gzipped,
        ),
        exchange("http://example.com/huge?x=%20y#f", 8, 404, &headers(&[("x-huge", &huge)]), b"gone"),
        exchange(
            "http://user:pw@example.com:8080/A/B/?b=2&a=1&a",
            9,
            301,
            &headers(&[("location", b"/c")]),
            b"moved",
        ),
        exchange("http://[2001:db8::1]:81/v6", 10, 599, &headers(&[("content-type", b"")]), b"odd"),
    ];
    let mut cut = exchange(
        "http://example.com/cut",
        11,
        200,
        &headers(&[("content-length", b"1000000")]),
        b"only this",
    );
    cut.truncated = Some(Truncated::Length);
    cases.push(cut);
    let mut two = exchange("https://example.com/two", 12, 200, &headers(html), b"over HTTP/2");
    two.protocols = vec!["h2".into(), "tls/1.3".into()];
    two.response_head = response_head(Version::HTTP_2, 200, None, &headers(html)).into();
    two.remote_ip = Some("2001:db8::2".parse().unwrap());
    cases.push(two);
    let mut nothing = envelope(99, b"");
    nothing.exchange = None;
    let fetched = cases
        .into_iter()
        .zip(1..)
        .map(|(exchange, number)| Envelope { exchange: Some(exchange), ..envelope(number, b"") });
    fetched.chain([nothing]).collect()
}

fn deliver(envelopes: &[Envelope]) -> Place {
    let place = Place::new();
    let mut spool = place.spool();
    for envelope in envelopes {
        spool.append(&envelope.encode()).unwrap();
    }
    let last = spool.sync().unwrap();
    let mut delivery = place.delivery(&spool, true).unwrap();
    (1..=last).for_each(|seq| delivery.judge(seq, true).unwrap());
    delivery.flush(Duration::ZERO).unwrap();
    delivery.finish().unwrap();
    place
}

#[test]
fn odd_responses_are_kept_as_they_were() {
    let envelopes = odd_fetches();
    let place = deliver(&envelopes);
    let records: Vec<_> = place.warcs().iter().flat_map(|path| read::records(path)).collect();
    let responses: Vec<_> =
        records.iter().filter(|record| matches!(record.kind(), "response" | "revisit")).collect();
    assert_eq!(responses.len(), 12);
    for (record, envelope) in responses.iter().zip(&envelopes) {
        let exchange = envelope.exchange.as_ref().unwrap();
        assert!(record.block.starts_with(&exchange.response_head));
        assert_eq!(record.get("warc-target-uri"), exchange.url);
        if record.kind() == "response" {
            assert_eq!(record.payload(), exchange.body);
        }
    }
    let revisits: Vec<_> = responses.iter().filter(|record| record.kind() == "revisit").collect();
    let [revisit] = revisits[..] else { panic!("one payload came twice") };
    assert_eq!(revisit.get("warc-refers-to-target-uri"), "http://example.com/");
    assert_eq!(revisit.get("warc-refers-to"), responses[0].get("warc-record-id"));
    assert_eq!(revisit.get("warc-refers-to-date"), responses[0].get("warc-date"));
    assert_eq!(revisit.get("warc-payload-digest"), responses[0].get("warc-payload-digest"));
    assert_eq!(responses[10].get("warc-truncated"), "length");
    assert_eq!(responses[11].get("warc-ip-address"), "2001:db8::2");
    assert!(responses[11].block.starts_with(b"HTTP/1.1 200 OK\r\n"));
    let chunked = String::from_utf8_lossy(&responses[6].block);
    assert!(
        chunked.contains("x-archive-orig-transfer-encoding: chunked") && !chunked.contains("\r\ntransfer-")
    );
    assert_eq!(place.lines().len(), 13, "the record without an exchange is in pages.jsonl only");
    let request = &records[2];
    assert!(request.block.starts_with(b"GET / HTTP/1.1\r\nhost: example.com\r\n\r\n"));
}

#[test]
fn the_same_fetch_has_the_same_ids_and_others_have_others() {
    let ids = |envelope: &Envelope| -> Vec<String> {
        let place = deliver(std::slice::from_ref(envelope));
        read::records(&place.warcs()[0])
            .iter()
            .map(|record| record.get("warc-record-id").to_owned())
            .collect()
    };
    let first = envelope(1, b"x");
    assert_eq!(ids(&first), ids(&first));
    let second = Envelope { attempt: 2, ..first.clone() };
    assert!(ids(&first)[1..].iter().all(|id| !ids(&second).contains(id)));
}

#[test]
fn files_are_closed_when_they_have_their_size() {
    let pages: Vec<_> = (1..=30)
        .map(|number| {
            let noise: Vec<u8> = (0..900u64)
                .flat_map(|at| blake3::hash(&(at * 31 + number).to_le_bytes()).as_bytes()[..2].to_vec())
                .collect();
            envelope(number, &noise)
        })
        .collect();
    let place = deliver(&pages);
    let files = place.warcs();
    assert!(files.len() > 3, "{files:?}");
    for path in &files[..files.len() - 1] {
        assert!((6_000..12_000).contains(&size(path)));
    }
}

/// A Python with both tools: that of `DOLOMEDES_PYTHON`, or the usual one.
fn python() -> Option<String> {
    let python = std::env::var("DOLOMEDES_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import warcio, cdxj_indexer"]).output();
    found.is_ok_and(|output| output.status.success()).then_some(python)
}

#[test]
fn warcio_and_cdxj_indexer_agree() {
    let Some(python) = python() else {
        eprintln!("not checked: no Python with warcio and cdxj-indexer (set DOLOMEDES_PYTHON)");
        return;
    };
    let place = deliver(&odd_fetches());
    let check =
        Command::new(&python).args(["-m", "warcio.cli", "check", "-v"]).args(place.warcs()).output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.success(), "{said}{}", String::from_utf8_lossy(&check.stderr));
    assert!(check.stderr.is_empty(), "{}", String::from_utf8_lossy(&check.stderr));
    assert!(said.contains("digest pass"));
    let index =
        Command::new(&python).args(["-m", "cdxj_indexer.main", "-s"]).args(place.warcs()).output().unwrap();
    assert!(index.status.success(), "{}", String::from_utf8_lossy(&index.stderr));
    let ours = fs::read_to_string(place.out().join("warc/index.cdxj")).unwrap();
    assert_eq!(ours, String::from_utf8(index.stdout).unwrap());
}

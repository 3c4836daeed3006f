//! HTTP/1.1 as it comes: framing that is broken, heads that are odd, connections that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dolomedes_netproto::fetch::{Cut, FetchFailure, Fetched, Request};
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{canned, fetcher, get, kind, raw, read_head, response};

async fn fetch(bytes: impl Into<Vec<u8>>) -> Result<Fetched, FetchFailure> {
    let server = canned(bytes).await;
    fetcher().fetch(get(&server.url("/"))).await
}

fn chunked(rest: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}")
}

#[tokio::test]
async fn e21_chunked() {
    for (rest, body, cut) in [
        ("3\r\nabc\r\n0\r\n\r\n", "abc", None),
        ("3;ext=\"x\"\r\nabc\r\n0\r\n\r\n", "abc", None),
        ("3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n", "abc", None),
        ("0003\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde", None),
        ("3\r\nabc\r\n", "abc", Some(Cut::Incomplete)),
        ("3\r\nabc\r\n0\r\n", "abc", Some(Cut::Incomplete)),
        ("5\r\nabc", "abc", Some(Cut::Incomplete)),
        ("3\r\nabc\r\nzz\r\n", "abc", Some(Cut::Framing)),
        ("3\r\nabcd\r\n0\r\n\r\n", "abc", Some(Cut::Framing)),
        ("fffffffffffffffff\r\nabc\r\n", "", Some(Cut::Framing)),
        ("-1\r\nabc\r\n", "", Some(Cut::Framing)),
    ] {
        let fetched = fetch(chunked(rest)).await.unwrap();
        assert_eq!((&fetched.body[..], fetched.truncated), (body.as_bytes(), cut), "{rest:?}");
    }
}

#[tokio::test]
async fn e21_chunked_beats_content_length() {
    let bytes =
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let fetched = fetch(bytes).await.unwrap();
    assert_eq!((&fetched.body[..], fetched.truncated), (&b"abc"[..], None));
}

#[tokio::test]
async fn e21_content_length() {
    let fetched = fetch("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").await.unwrap();
    assert_eq!((&fetched.body[..], fetched.truncated), (&b"abc"[..], Some(Cut::Incomplete)));
    let fetched = fetch("HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc").await;
    assert!(fetched.is_err() || fetched.is_ok_and(|f| &f.body[..] == b"abc"));
    assert_eq!(
        kind(fetch("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd").await),
        "protocol"
    );
    assert_eq!(kind(fetch("HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc").await), "protocol");
    // Until the connection ends.
    let fetched = fetch("HTTP/1.0 200 OK\r\n\r\nall of it").await.unwrap();
    assert_eq!(
        (&fetched.body[..], fetched.truncated, fetched.protocol()),
        (&b"all of it"[..], None, "http/1.0")
    );
}

#[tokio::test]
async fn e21_excess_bytes_never_become_the_next_response() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let server = raw(move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            while read_head(&mut stream).await.is_some() {
                let n = count.fetch_add(1, Ordering::SeqCst);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}");
                let excess = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
                let _ = stream.write_all(format!("{head}{excess}").as_bytes()).await;
            }
        }
    })
    .await;
    let fetcher = fetcher();
    for n in ["0", "1", "2"] {
        let fetched = fetcher.fetch(get(&server.url("/"))).await.unwrap();
        assert_eq!(&fetched.body[..], n.as_bytes());
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn e21_an_empty_body_keeps_its_connection() {
    let server = raw(|mut stream| async move {
        while read_head(&mut stream).await.is_some() {
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").await;
        }
    })
    .await;
    let fetcher = fetcher();
    for reused in [false, true, true] {
        let fetched = fetcher.fetch(get(&server.url("/"))).await.unwrap();
        assert_eq!((fetched.status.as_u16(), fetched.body.len(), fetched.truncated), (204, 0, None));
        assert_eq!(fetched.timings.reused, reused);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn odd_heads() {
    let fetched = fetch(response("X-Odd: caf\u{e9}\r\nX-Bytes: \u{fffd}\r\n", b"ok")).await.unwrap();
    assert_eq!(fetched.headers["x-odd"].as_bytes(), "café".as_bytes());
    let mut latin1 = b"HTTP/1.1 302 Gef\xfcnden\r\nLocation: /\xfc\r\nContent-Length: 0\r\n\r\n".to_vec();
    let fetched = fetch(latin1.clone()).await.unwrap();
    assert_eq!(fetched.headers["location"].as_bytes(), b"/\xfc");
    latin1.clear();

    for (bytes, name, value) in [
        ("HTTP/1.1 200 OK\r\nX-Folded: a\r\n  b\r\nContent-Length: 2\r\n\r\nok", "x-folded", "a b"),
        ("HTTP/1.1 200 OK\r\nX-Space : v\r\nContent-Length: 2\r\n\r\nok", "x-space", "v"),
        ("HTTP/1.1 200 OK\r\nb@d name: v\r\nX-Good: v\r\nContent-Length: 2\r\n\r\nok", "x-good", "v"),
        ("HTTP/1.1 200\r\nX-No-Reason: v\r\nContent-Length: 2\r\n\r\nok", "x-no-reason", "v"),
        ("HTTP/1.1 200 OK\nX-Bare-LF: v\nContent-Length: 2\n\nok", "x-bare-lf", "v"),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nX-Final: v\r\nContent-Length: 2\r\n\r\nok",
            "x-final",
            "v",
        ),
    ] {
        let fetched = fetch(bytes).await.unwrap_or_else(|failure| panic!("{name}: {failure}"));
        let found =
            fetched.headers[name].to_str().unwrap().split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!((found.as_str(), &fetched.body[..]), (value, &b"ok"[..]), "{name}");
    }
}

#[tokio::test]
async fn many_headers_and_large_ones() {
    let line = |n: usize| (0..n).map(|i| format!("x-{i}: v\r\n")).collect::<String>();
    let fetched = fetch(response(&line(200), b"ok")).await.unwrap();
    assert_eq!(fetched.headers.len(), 201);
    assert_eq!(kind(fetch(response(&line(300), b"ok")).await), "header_too_large");
    let fetched = fetch(response(&format!("x: {}\r\n", "v".repeat(100_000)), b"ok")).await.unwrap();
    assert_eq!(fetched.headers["x"].len(), 100_000);
    assert_eq!(
        kind(fetch(response(&format!("x: {}\r\n", "v".repeat(1_000_000)), b"ok")).await),
        "header_too_large"
    );
}

#[tokio::test]
async fn not_http_at_all() {
    assert_eq!(kind(fetch("SSH-2.0-OpenSSH_9.2\r\n").await), "protocol");
    assert_eq!(kind(fetch("<html>HTTP/0.9</html>").await), "protocol");
    assert_eq!(kind(fetch(vec![0_u8; 2000]).await), "protocol");
    assert_eq!(kind(fetch("HTTP/1.1 200 OK\r\nX: y").await), "reset");
    assert_eq!(kind(fetch("").await), "reset");
}

#[tokio::test]
async fn a_reset_before_and_within_the_response() {
    // Closing with unread bytes, or with no linger time, sends a reset.
    let server = raw(|mut stream| async move {
        let _ = stream.read_u8().await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    assert_eq!(kind(fetcher().fetch(get(&server.url("/"))).await), "reset");
    assert_eq!(server.connections(), 1, "a new connection is not tried again");

    let server = raw(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome").await;
        let _ = stream.read_u8().await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    let deadlines = dolomedes_netproto::fetch::Deadlines {
        idle: std::time::Duration::from_millis(200),
        ..crate::support::patient()
    };
    assert_eq!(kind(fetcher().fetch(Request { deadlines, ..get(&server.url("/")) }).await), "idle_timeout");
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closes_is_no_failure() {
    // Answers once per connection, and takes the second request only to hang up.
    let server = raw(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        read_head(&mut stream).await;
    })
    .await;
    let fetcher = fetcher();
    for _ in 0..3 {
        let fetched = fetcher.fetch(get(&server.url("/"))).await.unwrap();
        assert_eq!(&fetched.body[..], b"ok");
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn heads_for_archives() {
    let server = canned(chunked("3\r\nabc\r\n0\r\n\r\n").replace("200 OK", "200 Very Well")).await;
    let request = Request { keep_wire: true, ..get(&server.url("/p?q=1#f")) };
    let fetched = fetcher().fetch(request).await.unwrap();
    let text = |bytes: &Option<bytes::Bytes>| String::from_utf8(bytes.as_ref().unwrap().to_vec()).unwrap();
    let head = text(&fetched.request_head);
    assert!(head.starts_with(&format!("GET /p?q=1 HTTP/1.1\r\nhost: {}\r\n", server.addr)), "{head}");
    assert!(head.contains("user-agent: dolomedes/") && head.ends_with("\r\n\r\n"), "{head}");
    let head = text(&fetched.response_head);
    assert_eq!(head, "HTTP/1.1 200 Very Well\r\nx-crawler-transfer-encoding: chunked\r\n\r\n");
    assert_eq!(fetched.wire.as_deref(), Some(&b"abc"[..]));
    let fetched = fetcher().fetch(get(&server.url("/"))).await.unwrap();
    assert!(fetched.wire.is_none() && fetched.request_head.is_none() && fetched.response_head.is_none());
}

#[tokio::test]
async fn head_requests_have_no_body() {
    let server = canned("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 999\r\n\r\n").await;
    let request = Request { method: Method::HEAD, ..get(&server.url("/")) };
    let fetched = fetcher().fetch(request).await.unwrap();
    assert_eq!((fetched.body.len(), fetched.truncated), (0, None));
    assert_eq!(fetched.headers["content-length"], "999");
}

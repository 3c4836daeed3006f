//! HTTP/1.1 and HTTP/2, with and without TLS; what is sent; connections kept.

use std::io::Write as _;

use dolomedes_netproto::fetch::{Conditional, Fetcher, FetcherConfig, HttpVersions, Request};
use http::Version;
use http::header::{HeaderMap, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Authority, canned, config, fetcher, get, kind, page, raw, response, web};

fn trusting(authority: &Authority, http: HttpVersions) -> Fetcher {
    Fetcher::new(FetcherConfig { ca_pem: Some(authority.pem.clone()), http, ..config() }).unwrap()
}

#[tokio::test]
async fn http2_by_alpn_and_http1_otherwise() {
    let both = Authority::new(&["h2", "http/1.1"]);
    let old = Authority::new(&["http/1.1"]);
    let none = Authority::new(&[]);
    for (authority, http, version, protocol) in [
        (&both, HttpVersions::Auto, Version::HTTP_2, "h2"),
        (&both, HttpVersions::Http1, Version::HTTP_11, "http/1.1"),
        (&old, HttpVersions::Auto, Version::HTTP_11, "http/1.1"),
        (&none, HttpVersions::Auto, Version::HTTP_11, "http/1.1"),
    ] {
        let server =
            web(Some(authority), |request| page(format!("{:?} {}", request.version(), request.uri().path())))
                .await;
        let fetcher = trusting(authority, http);
        for reused in [false, true] {
            let fetched = fetcher.fetch(get(&server.named("https", "a.test", "/p"))).await.unwrap();
            assert_eq!((fetched.version, fetched.protocol()), (version, protocol));
            assert_eq!(String::from_utf8_lossy(&fetched.body), format!("{version:?} /p"));
            assert_eq!(fetched.timings.reused, reused);
            let timings = fetched.timings;
            assert_eq!([timings.dns, timings.connect, timings.tls].map(|t| t.is_some()), [!reused; 3]);
            assert!(timings.first_byte.is_some() && timings.total >= timings.first_byte.unwrap());
            let tls = fetched.tls;
            assert_eq!(tls.is_some(), !reused);
            if let Some(tls) = tls {
                assert_eq!(tls.version, Some("TLSv1.3"));
                assert!(tls.key_exchange.is_some() && tls.certificate.is_some(), "{tls:?}");
            }
        }
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn http2_with_prior_knowledge() {
    let server = web(None, |request| page(format!("{:?}", request.version()))).await;
    let fetcher = Fetcher::new(FetcherConfig { http: HttpVersions::Http2, ..config() }).unwrap();
    let fetches = (0..20).map(|_| {
        let (fetcher, url) = (fetcher.clone(), server.url("/"));
        async move { fetcher.fetch(get(&url)).await }
    });
    for fetched in join_all(fetches).await {
        assert_eq!(&fetched.unwrap().body[..], b"HTTP/2.0");
    }
    assert_eq!(server.connections(), 1);
    let fetched = Fetcher::new(config()).unwrap().fetch(get(&server.url("/"))).await.unwrap();
    assert_eq!(&fetched.body[..], b"HTTP/1.1");
}

async fn join_all<F: Future + Send + 'static>(futures: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F::Output: Send,
{
    let tasks: Vec<_> = futures.map(tokio::spawn).collect();
    let mut outputs = Vec::new();
    for task in tasks {
        outputs.push(task.await.unwrap());
    }
    outputs
}

#[tokio::test]
async fn many_at_once_over_a_new_http2_host() {
    let authority = Authority::new(&["h2"]);
    let server = web(Some(&authority), |_| page("x".repeat(100_000))).await;
    let fetcher = trusting(&authority, HttpVersions::Auto);
    let fetches = (0..30).map(|i| {
        let (fetcher, url) = (fetcher.clone(), server.named("https", "a.test", &format!("/{i}")));
        async move { fetcher.fetch(get(&url)).await }
    });
    for fetched in join_all(fetches).await {
        let fetched = fetched.unwrap();
        assert_eq!((fetched.body.len(), fetched.version), (100_000, Version::HTTP_2));
    }
}

#[tokio::test]
async fn certificates_are_checked() {
    let (authority, other) = (Authority::new(&["h2"]), Authority::new(&["h2"]));
    let server = web(Some(&authority), |_| page("secret")).await;
    let failure = fetcher().fetch(get(&server.named("https", "a.test", "/"))).await.unwrap_err();
    assert_eq!(failure.kind.as_str(), "tls");
    assert!(failure.message.contains("UnknownIssuer"), "{failure}");
    let stranger = trusting(&other, HttpVersions::Auto);
    assert_eq!(kind(stranger.fetch(get(&server.named("https", "a.test", "/"))).await), "tls");
    let trusting = trusting(&authority, HttpVersions::Auto);
    assert!(trusting.fetch(get(&server.named("https", "127.0.0.1", "/"))).await.is_ok());
    let failure = trusting.fetch(get(&server.named("https", "a.b.test", "/"))).await.unwrap_err();
    assert_eq!(failure.kind.as_str(), "tls");
    assert!(failure.timings.tls.is_some(), "{:?}", failure.timings);
    // Plain text where TLS is expected.
    let plain = raw(|mut stream| async move {
        let _ = stream.write_all(&response("", b"ok")).await;
        let _ = stream.read_u8().await;
    })
    .await;
    assert_eq!(kind(trusting.fetch(get(&plain.named("https", "a.test", "/"))).await), "tls");
    let closed = raw(|stream| async move { drop(stream) }).await;
    assert_eq!(kind(trusting.fetch(get(&closed.named("https", "a.test", "/"))).await), "tls");
}

#[test]
fn unusable_configurations_are_named() {
    for (config, part) in [
        (FetcherConfig { ca_pem: Some(b"nothing".to_vec()), ..config() }, "CERTIFICATE"),
        (
            FetcherConfig {
                ca_pem: Some(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec()),
                ..config()
            },
            "CA certificates",
        ),
        (FetcherConfig { user_agent: "a\nb".to_owned(), ..config() }, "user agent"),
        (FetcherConfig { proxy: Some("ftp://p.test".parse().unwrap()), ..config() }, "ftp://p.test"),
        (FetcherConfig { proxy: Some("socks5://p.test".parse().unwrap()), ..config() }, "proxy"),
    ] {
        let Err(error) = Fetcher::new(config) else { panic!("{part} is accepted") };
        assert!(error.to_string().contains(part), "{error}");
    }
}

fn echo(request: &http::Request<hyper::body::Incoming>) -> String {
    let mut lines: Vec<_> =
        request.headers().iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
    lines.sort();
    lines.insert(0, request.uri().to_string());
    lines.join("\n")
}

#[tokio::test]
async fn what_is_sent() {
    let server = web(None, |request| page(echo(&request))).await;
    let mut own = HeaderMap::new();
    own.insert("accept", HeaderValue::from_static("*/*"));
    own.insert("cookie", HeaderValue::from_static("a=b"));
    let conditional = Conditional {
        etag: Some(HeaderValue::from_static("W/\"x\"")),
        last_modified: Some(HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT")),
    };
    let mut config = config();
    config.user_agent = "tester/1 (+http://a.test)".to_owned();
    config.headers.insert("accept-language", HeaderValue::from_static("en"));
    let fetcher = Fetcher::new(config).unwrap();
    let target = format!("http://me:secret@{}/p?q=%20#f", server.addr);
    let request = Request { headers: own, conditional: Some(conditional), ..get(&target) };
    let fetched = fetcher.fetch(request).await.unwrap();
    let expected = format!(
        "/p?q=%20\naccept-encoding: gzip, deflate, br, zstd\naccept-language: en\naccept: */*\ncookie: a=b\n\
         host: {}\nif-modified-since: Sun, 06 Nov 1994 08:49:37 GMT\nif-none-match: W/\"x\"\nuser-agent: tester/1 (+http://a.test)",
        server.addr
    );
    assert_eq!(String::from_utf8_lossy(&fetched.body), expected);

    let mut own = HeaderMap::new();
    own.insert("content-length", HeaderValue::from_static("5"));
    assert_eq!(
        kind(fetcher.fetch(Request { headers: own, ..get(&server.url("/")) }).await),
        "invalid_request"
    );
}

#[tokio::test]
async fn a_redirect_is_a_response_like_any_other() {
    let server = canned("HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n").await;
    let fetched = fetcher().fetch(get(&server.url("/"))).await.unwrap();
    assert_eq!((fetched.status.as_u16(), server.connections()), (302, 1));
}

#[tokio::test]
async fn connections_are_kept_and_shared() {
    let server = web(None, |_| page("x".repeat(30_000))).await;
    let fetcher = fetcher();
    for round in 0..3 {
        let fetches = (0..8).map(|_| {
            let (fetcher, url) = (fetcher.clone(), server.url("/"));
            async move { fetcher.fetch(get(&url)).await }
        });
        for fetched in join_all(fetches).await {
            assert_eq!(fetched.unwrap().body.len(), 30_000, "round {round}");
        }
    }
    assert!(server.connections() <= 16, "{} connections", server.connections());
}

#[tokio::test]
async fn thousands_of_hosts_by_a_wildcard() {
    let server = web(None, |request| page(request.headers()["host"].to_str().unwrap().to_owned())).await;
    let fetcher = fetcher();
    let port = server.addr.port();
    for batch in 0..20 {
        let fetches = (0..100).map(|i| {
            let (fetcher, host) = (fetcher.clone(), format!("h{}.test:{port}", batch * 100 + i));
            async move { (fetcher.fetch(get(&format!("http://{host}/"))).await, host) }
        });
        for (fetched, host) in join_all(fetches).await {
            assert_eq!(String::from_utf8_lossy(&fetched.unwrap().body), host);
        }
    }
}

#[tokio::test]
async fn large_http2_heads() {
    let authority = Authority::new(&["h2"]);
    let server = web(Some(&authority), |request| {
        let len: usize = request.uri().path()[1..].parse().unwrap();
        let mut response = page("ok");
        response.headers_mut().insert("x", HeaderValue::from_str(&"v".repeat(len)).unwrap());
        response
    })
    .await;
    let fetcher = trusting(&authority, HttpVersions::Auto);
    let fetched = fetcher.fetch(get(&server.named("https", "a.test", "/40000"))).await.unwrap();
    assert_eq!(fetched.headers["x"].len(), 40_000);
    let failure = fetcher.fetch(get(&server.named("https", "a.test", "/200000"))).await.unwrap_err();
    assert!(["header_too_large", "protocol", "reset"].contains(&failure.kind.as_str()), "{failure}");
}

#[tokio::test]
async fn http2_bodies_are_decoded_under_the_same_caps() {
    let authority = Authority::new(&["h2"]);
    let server = web(Some(&authority), |_| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&vec![b'x'; 30 << 20]).unwrap();
        let mut response = page(encoder.finish().unwrap());
        response.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
        response
    })
    .await;
    let fetcher = trusting(&authority, HttpVersions::Auto);
    let fetched = fetcher.fetch(get(&server.named("https", "a.test", "/"))).await.unwrap();
    assert!(fetched.truncated.is_some() && fetched.body.len() <= 16 << 20);
    assert!(fetched.body.iter().all(|b| *b == b'x'));
    // The connection goes on.
    assert!(fetcher.fetch(get(&server.named("https", "a.test", "/"))).await.unwrap().timings.reused);
}

//! Each phase has a deadline of its own and a failure of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dolomedes_netproto::fetch::{
    Deadlines, Fetcher, FetcherConfig, LARGE_BODIES, MinRate, Request, Resolve, Resolving,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{canned, config, fetcher, get, kind, patient, raw, read_head, response, url};

const SHORT: Duration = Duration::from_millis(150);

struct Silent;

impl Resolve for Silent {
    fn resolve(&self, _: &str) -> Resolving {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn dns() {
    let config = FetcherConfig { resolver: Some(Arc::new(Silent)), ..config() };
    let fetcher = Fetcher::new(config).unwrap();
    let request = Request { deadlines: Deadlines { dns: SHORT, ..patient() }, ..get("http://a.example/") };
    let failure = fetcher.fetch(request).await.unwrap_err();
    assert_eq!(failure.kind.as_str(), "dns_timeout");
    assert!(failure.timings.dns.unwrap() >= SHORT);
    assert_eq!(failure.timings.tls, None);
    assert!(failure.to_string().contains("a.example"), "{failure}");
}

/// A listener whose queue is full, so that the kernel answers no further SYN, and what fills it.
async fn deaf() -> (SocketAddr, Vec<TcpStream>, tokio::net::TcpListener) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(addr)).await
    {
        held.push(stream);
        assert!(held.len() < 64, "the queue never fills");
    }
    (addr, held, listener)
}

#[tokio::test]
async fn connect() {
    let (addr, _held, _listener) = deaf().await;
    let request =
        Request { deadlines: Deadlines { connect: SHORT, ..patient() }, ..get(&format!("http://{addr}/")) };
    let failure = fetcher().fetch(request).await.unwrap_err();
    assert_eq!(failure.kind.as_str(), "connect_timeout");
    assert!(failure.timings.connect.unwrap() >= SHORT);
}

#[tokio::test]
async fn connect_refused_is_not_a_timeout() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let request = get(&format!("http://{}/", socket.local_addr().unwrap()));
    assert_eq!(kind(fetcher().fetch(request).await), "connect");
}

#[tokio::test]
async fn tls() {
    let server = raw(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let request = Request {
        deadlines: Deadlines { tls: SHORT, ..patient() },
        ..get(&server.named("https", "a.test", "/"))
    };
    let failure = fetcher().fetch(request).await.unwrap_err();
    assert_eq!(failure.kind.as_str(), "tls_timeout");
    assert!(failure.timings.tls.unwrap() >= SHORT);
    assert!(failure.timings.connect.is_some() && failure.timings.dns.is_some());
}

#[tokio::test]
async fn first_byte_on_a_new_and_on_a_kept_connection() {
    let server = raw(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        std::future::pending::<()>().await;
    })
    .await;
    let fetcher = fetcher();
    let fetched = fetcher.fetch(get(&server.url("/"))).await.unwrap();
    assert!(!fetched.timings.reused);
    let deadlines = Deadlines { first_byte: SHORT, ..patient() };
    let failure = fetcher.fetch(Request { deadlines, ..get(&server.url("/")) }).await.unwrap_err();
    assert_eq!((failure.kind.as_str(), failure.timings.reused), ("first_byte_timeout", true));
    assert_eq!(server.connections(), 1);

    let mute = raw(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nServer: half a head").await;
        std::future::pending::<()>().await;
    })
    .await;
    let failure = fetcher.fetch(Request { deadlines, ..get(&mute.url("/")) }).await.unwrap_err();
    assert_eq!((failure.kind.as_str(), failure.timings.reused), ("first_byte_timeout", false));
}

#[tokio::test]
async fn idle() {
    let server = raw(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome").await;
        std::future::pending::<()>().await;
    })
    .await;
    let request = Request { deadlines: Deadlines { idle: SHORT, ..patient() }, ..get(&server.url("/")) };
    let failure = fetcher().fetch(request).await.unwrap_err();
    assert_eq!(failure.kind.as_str(), "idle_timeout");
    assert!(failure.message.contains("after 4 bytes"), "{failure}");
}

async fn drip(mut stream: TcpStream) {
    read_head(&mut stream).await;
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await;
    let mut drops = tokio::time::interval(Duration::from_millis(5));
    loop {
        drops.tick().await;
        if stream.write_all(b"x").await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn total() {
    let server = raw(drip).await;
    let request = Request { deadlines: Deadlines { total: SHORT, ..patient() }, ..get(&server.url("/")) };
    assert_eq!(kind(fetcher().fetch(request).await), "total_timeout");
}

#[tokio::test]
async fn least_rate() {
    let server = raw(drip).await;
    let rate = |bytes| Some(MinRate { bytes, window: SHORT });
    let slow =
        Request { deadlines: Deadlines { min_rate: rate(1 << 20), ..patient() }, ..get(&server.url("/")) };
    assert_eq!(kind(fetcher().fetch(slow).await), "too_slow");
    // Fast enough, so that something else ends it.
    let deadlines = Deadlines { min_rate: rate(1), total: SHORT * 4, ..patient() };
    let enough = Request { deadlines, ..get(&server.url("/")) };
    assert_eq!(kind(fetcher().fetch(enough).await), "total_timeout");
}

#[tokio::test]
async fn total_covers_waiting_too() {
    let (addr, _held, _listener) = deaf().await;
    let deadlines = Deadlines { total: SHORT, ..patient() };
    let request = Request { deadlines, ..Request::get(url(&format!("http://{addr}/"))) };
    assert_eq!(kind(fetcher().fetch(request).await), "total_timeout");
}

#[tokio::test]
async fn waiting_for_room_counts_against_none() {
    // Large bodies that are held keep all places.
    let body = vec![b'x'; 2 << 20];
    let server = canned(response("", &body)).await;
    let fetcher = fetcher();
    let mut held = Vec::new();
    for _ in 0..LARGE_BODIES {
        held.push(fetcher.fetch(get(&server.url("/"))).await.unwrap());
    }
    let rate = Some(MinRate { bytes: 1 << 10, window: SHORT });
    let deadlines = Deadlines { idle: SHORT * 2, total: SHORT * 3, min_rate: rate, ..patient() };
    let next = tokio::spawn({
        let request = Request { deadlines, ..get(&server.url("/")) };
        async move { fetcher.fetch(request).await }
    });
    // Longer than any of its deadlines.
    tokio::time::sleep(SHORT * 5).await;
    assert!(!next.is_finished());
    held.pop();
    assert_eq!(next.await.unwrap().unwrap().body.len(), body.len());
}

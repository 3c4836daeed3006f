//! Through proxies: CONNECT tunnels, plain forwarding, SOCKS5.

use std::net::SocketAddr;

use dolomedes_netproto::fetch::{Fetcher, FetcherConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Authority, Server, canned, config, get, kind, page, raw, read_head, response, web};

fn via(proxy: &str, server: &Server, authority: Option<&Authority>) -> Fetcher {
    Fetcher::new(FetcherConfig {
        proxy: Some(format!("{proxy}://user:pw@{}", server.addr).parse().unwrap()),
        ca_pem: authority.map(|authority| authority.pem.clone()),
        allow_nets: Vec::new(),
        ..config()
    })
    .unwrap()
}

/// A tunnel to `backend`, whatever name is asked for, if the password is right.
async fn connect_proxy(backend: SocketAddr) -> Server {
    raw(move |mut stream| async move {
        let Some(head) = read_head(&mut stream).await else { return };
        if !head.contains("CONNECT a.test:443 ") || !head.contains("Basic dXNlcjpwdw==") {
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await;
            return;
        }
        let mut far = TcpStream::connect(backend).await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
    })
    .await
}

#[tokio::test]
async fn a_tunnel_for_https() {
    let authority = Authority::new(&["h2"]);
    let server = web(Some(&authority), |_| page("far")).await;
    let proxy = connect_proxy(server.addr).await;
    let fetcher = via("http", &proxy, Some(&authority));
    for reused in [false, true] {
        let fetched = fetcher.fetch(get("https://a.test/")).await.unwrap();
        assert_eq!(
            (&fetched.body[..], fetched.protocol(), fetched.timings.reused),
            (&b"far"[..], "h2", reused)
        );
    }
    assert_eq!(kind(fetcher.fetch(get("https://other.example/")).await), "proxy");
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test]
async fn forwarding_for_http() {
    let proxy = raw(|mut stream| async move {
        let Some(head) = read_head(&mut stream).await else { return };
        let line = head.lines().next().unwrap_or_default();
        let _ = stream.write_all(&response("", line.as_bytes())).await;
    })
    .await;
    let fetcher = via("http", &proxy, None);
    let fetched = fetcher.fetch(get("http://hidden.example/p")).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&fetched.body), "GET http://hidden.example/p HTTP/1.1");
    assert_eq!(fetched.remote_addr, Some(proxy.addr));
    // Addresses in URLs are still judged.
    assert_eq!(kind(fetcher.fetch(get("http://127.0.0.1/")).await), "refused_address");
}

#[tokio::test]
async fn socks_resolves_at_the_proxy() {
    let server = canned(response("", b"far")).await;
    let backend = server.addr;
    let proxy = raw(move |mut stream| async move {
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).await.unwrap();
        let mut methods = vec![0; usize::from(greeting[1])];
        stream.read_exact(&mut methods).await.unwrap();
        stream.write_all(&[5, 2]).await.unwrap();
        // RFC 1929: version, length and name, length and password.
        let mut login = [0; 1 + 1 + 4 + 1 + 2];
        stream.read_exact(&mut login).await.unwrap();
        assert_eq!(&login, b"\x01\x04user\x02pw");
        stream.write_all(&[1, 0]).await.unwrap();
        let mut request = [0; 5];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(request[..4], [5, 1, 0, 3], "the name is sent, not an address");
        let mut name = vec![0; usize::from(request[4]) + 2];
        stream.read_exact(&mut name).await.unwrap();
        let code = if name.starts_with(b"hidden.example") { 0 } else { 4 };
        stream.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        if code == 0 {
            let mut far = TcpStream::connect(backend).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
        }
    })
    .await;
    let fetcher = via("socks5h", &proxy, None);
    let fetched = fetcher.fetch(get("http://hidden.example/")).await.unwrap();
    assert_eq!(&fetched.body[..], b"far");
    assert_eq!(kind(fetcher.fetch(get("http://gone.example/")).await), "proxy");
}

#[tokio::test]
async fn a_proxy_that_is_not_there() {
    let gone = {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket.local_addr().unwrap()
    };
    let config = FetcherConfig { proxy: Some(format!("http://{gone}").parse().unwrap()), ..config() };
    let fetcher = Fetcher::new(config).unwrap();
    assert_eq!(kind(fetcher.fetch(get("http://hidden.example/")).await), "proxy");
    assert_eq!(kind(fetcher.fetch(get("https://hidden.example/")).await), "proxy");
}

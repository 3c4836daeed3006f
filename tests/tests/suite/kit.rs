//! The testkit itself, seen by clients that have nothing to do with the crawler.

use std::collections::{BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dolomedes_tests::site::zoo::{self, Exhibit};
use dolomedes_tests::site::{Reply, Request, Scope, Site, Web, WebShape};

/// Sends one request by hand and reads at most `limit` bytes, until a second has brought none or five have passed.
fn get(site: &Site, host: &str, path: &str, limit: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", site.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let port = site.port();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n").unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    while answer.len() < limit && Instant::now() < until {
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => answer.extend_from_slice(&buffer[..n]),
            _ => break,
        }
    }
    answer
}

fn client(site: &Site) -> reqwest::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(site.ca().as_bytes()).unwrap()])
        .resolve("a.web.test", local(site.tls_port()))
        .resolve("b.web.test", local(site.tls_port()))
        .timeout(Duration::from_secs(20))
        .build()
        .unwrap()
}

#[tokio::test]
async fn speaks_http2_over_tls_to_any_name() {
    let site = Site::start();
    for host in ["a.web.test", "b.web.test"] {
        site.host(host, |request: &Request| {
            Reply::page(&request.host, ["/next"]).header("X-Path", &request.path)
        });
    }
    let client = client(&site);
    for host in ["a.web.test", "b.web.test"] {
        let response = client.get(site.secure_url(host, "/x?y=1")).send().await.unwrap();
        assert_eq!(response.version(), reqwest::Version::HTTP_2);
        assert_eq!(response.headers()["x-path"], "/x?y=1");
        assert!(response.text().await.unwrap().contains(&format!("<title>{host}</title>")));
    }
    let seen = site.log().all();
    assert_eq!(seen.len(), 2);
    assert_eq!(
        (seen[0].protocol, seen[0].host.as_str(), seen[0].path.as_str()),
        ("HTTP/2", "a.web.test", "/x?y=1")
    );
    assert!(seen.iter().all(|seen| seen.until.is_some()));
    assert_ne!(seen[0].connection, seen[1].connection);
}

#[tokio::test]
async fn speaks_http1_over_tls_when_that_is_all_that_is_offered() {
    let site = Site::start();
    site.host("a.web.test", |_: &Request| Reply::page("A page", ["/next"]));
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(site.ca().as_bytes()).unwrap()])
        .resolve("a.web.test", SocketAddr::from(([127, 0, 0, 1], site.tls_port())))
        .http1_only()
        .build()
        .unwrap();
    for _ in 0..3 {
        let response = client.get(site.secure_url("a.web.test", "/")).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, reqwest::Version::HTTP_11));
        response.bytes().await.unwrap();
    }
    assert_eq!((site.log().len(), site.log().connections("a.web.test")), (3, 1));
    assert_eq!(site.log().max_in_flight("a.web.test"), 1);
}

#[test]
fn a_naive_walk_of_a_web_finds_its_truth() {
    let site = Site::start();
    let shape = WebShape { hosts: 4, pages_per_host: 15, cross_links: 1, ..WebShape::default() };
    let web = Arc::new(Web::generate(3, &shape));
    site.web(&web);
    let truth = web.truth(0, Scope::Any, None, |host| site.url(host, ""));
    let start = url::Url::parse(&site.url(&web.hosts()[0], "/")).unwrap();
    let (mut seen, mut todo) = (BTreeSet::from([start.to_string()]), VecDeque::from([start]));
    while let Some(url) = todo.pop_front() {
        let answer = get(&site, url.host_str().unwrap(), url.path(), 1 << 20);
        let html = String::from_utf8(answer).unwrap();
        assert!(html.starts_with("HTTP/1.1 200"), "{url}: {html}");
        for link in html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let mut target = url.join(link).unwrap();
            target.set_fragment(None);
            if target.scheme() == "http" && seen.insert(target.to_string()) {
                todo.push_back(target);
            }
        }
    }
    assert_eq!(seen, truth.keys().cloned().collect());
    assert!(site.log().repeats().is_empty());
}

#[test]
fn every_exhibit_does_something_and_the_server_survives_it() {
    let site = Site::start();
    zoo::install(&site, "zoo.test");
    zoo::robots::install(&site);
    zoo::sitemaps::install(&site);
    let visits = std::thread::scope(|scope| {
        let stalled = |exhibit: &&Exhibit| exhibit.theme == "stalls";
        let quick: Vec<_> = zoo::exhibits().filter(|exhibit| !stalled(exhibit)).collect();
        let slow = zoo::exhibits().filter(stalled);
        for exhibit in slow {
            scope.spawn(|| get(&site, "zoo.test", &exhibit.path(), 4096));
        }
        for exhibit in &quick {
            let answer = get(&site, "zoo.test", &exhibit.path(), 64 * 1024);
            let silent = ["reset-at-once", "close-at-once", "first-time-only"].contains(&exhibit.name);
            assert_eq!(answer.is_empty(), silent, "{}", exhibit.path());
            assert!(!answer.starts_with(b"HTTP/1.1 404"), "{}", exhibit.path());
        }
        for kind in zoo::robots::HOSTS.iter().filter(|kind| !["timeout", "reset"].contains(&kind.name)) {
            assert!(!get(&site, &kind.host(), "/robots.txt", 4096).is_empty(), "{}", kind.name);
        }
        for kind in zoo::sitemaps::HOSTS {
            assert!(get(&site, &kind.host(), kind.path, 4096).starts_with(b"HTTP/1.1 200"), "{}", kind.name);
        }
        quick.len()
    });
    assert!(visits > 80);
    assert!(get(&site, "zoo.test", "/good", 4096).starts_with(b"HTTP/1.1 200"));
    assert!(get(&site, "nowhere.test", "/", 4096).starts_with(b"HTTP/1.1 404"));
}

#[test]
fn what_is_repeated_is_sent_in_full() {
    let site = Site::start();
    site.host("a.test", |_: &Request| {
        Reply::with("text/plain", "start ").repeated("0123456789", 100_000).body("end")
    });
    let answer = get(&site, "a.test", "/", 10 << 20);
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert_eq!(body.len(), 6 + 1_000_000 + 3);
    assert!(body.starts_with("start 0123") && body.ends_with("789end"));
}

#[test]
fn the_second_visit_may_get_another_answer() {
    let site = Site::start();
    zoo::pushback::install(&site, "busy.test", 2, || zoo::pushback::in_seconds(429, "1"));
    assert!(get(&site, "busy.test", "/1", 4096).starts_with(b"HTTP/1.1 429"));
    assert!(get(&site, "busy.test", "/1", 4096).starts_with(b"HTTP/1.1 200"));
    assert_eq!(site.log().hits("busy.test", "/1"), 2);
}

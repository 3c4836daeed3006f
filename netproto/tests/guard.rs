//! Which addresses are refused, in the table and at every door.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dolomedes_netproto::fetch::guard::{AddressGuard, special};
use dolomedes_netproto::fetch::{
    FailureKind, Fetcher, FetcherConfig, Resolve, ResolveError, ResolveErrorKind, Resolving, StaticNames,
};

use crate::support::{canned, config, get, kind, page, response, url, web};

#[test]
fn special_addresses() {
    let refused = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254 \
        168.63.129.16 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 \
        198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 \
        :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1 \
        2001::1 2001:2::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:0808:0808:: 3fff::1 3fff:fff:: 5f00::1 \
        fc00::1 fd00:ec2::254 fe80::1 febf::1 fec0::1 ff02::1 4000::1 1::1";
    for text in refused.split_ascii_whitespace() {
        assert!(special(text.parse().unwrap()).is_some(), "{text} passes");
    }
    let public = "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 168.63.129.17 \
        169.253.255.255 172.15.255.255 172.32.0.0 192.0.0.9 192.0.1.1 192.167.255.255 192.169.0.0 198.17.255.255 \
        198.20.0.0 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:200::1 2001:4860:4860::8888 2003::1 \
        2606:4700::1111 2a00:1450:4001::1 3fff:1000::1";
    for text in public.split_ascii_whitespace() {
        assert_eq!(special(text.parse().unwrap()), None, "{text} is refused");
    }
}

#[test]
fn urls() {
    let guard = AddressGuard::new(vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()]);
    let kind = |text: &str| guard.check_url(&url(text)).err().map(|refused| refused.kind().as_str());
    for (text, expected) in [
        ("http://example.com/", None),
        ("https://example.com:8443/", None),
        ("http://8.8.8.8/", None),
        ("http://10.1.2.3/", None),
        ("http://[::ffff:10.1.2.3]/", None),
        ("http://[fd00::7]/", None),
        ("http://10.2.0.1/", Some("refused_address")),
        ("http://[::ffff:10.2.0.1]/", Some("refused_address")),
        ("http://127.1/", Some("refused_address")),
        ("http://0x7f000001/", Some("refused_address")),
        ("http://017700000001/", Some("refused_address")),
        ("http://127.0.0.1./", Some("refused_address")),
        ("http://①②⑦.0.0.1/", Some("refused_address")),
        ("http://[::]/", Some("refused_address")),
        ("http://example.com:25/", Some("refused_port")),
        ("http://example.com:6667/", Some("refused_port")),
        ("http://example.com:0/", Some("refused_port")),
        ("ftp://example.com/", Some("invalid_url")),
        ("file:///etc/passwd", Some("invalid_url")),
        ("data:text/html,x", Some("invalid_url")),
    ] {
        assert_eq!(kind(text), expected, "{text}");
    }
}

#[tokio::test]
async fn the_loopback_is_refused_unless_allowed() {
    let server = web(None, |_| page("here")).await;
    let closed = Fetcher::new(FetcherConfig { allow_nets: Vec::new(), ..config() }).unwrap();
    for target in [
        server.url("/"),
        format!("http://[::ffff:127.0.0.1]:{}/", server.addr.port()),
        server.named("http", "a.test", "/"),
        server.named("https", "a.test", "/"),
    ] {
        assert_eq!(kind(closed.fetch(get(&target)).await), "refused_address", "{target}");
    }
    assert_eq!(server.connections(), 0);
    let open = Fetcher::new(config()).unwrap();
    let fetched = open.fetch(get(&server.url("/"))).await.unwrap();
    assert_eq!((&fetched.body[..], fetched.remote_addr), (&b"here"[..], Some(server.addr)));
}

struct Zone(Vec<IpAddr>, AtomicUsize);

impl Resolve for Zone {
    fn resolve(&self, name: &str) -> Resolving {
        self.1.fetch_add(1, Ordering::SeqCst);
        let answer = match name {
            "down.example" => {
                Err(ResolveError { kind: ResolveErrorKind::Failed, message: "SERVFAIL".to_owned() })
            }
            "none.example" => {
                Err(ResolveError { kind: ResolveErrorKind::NoAddress, message: "no such name".to_owned() })
            }
            _ => Ok(self.0.clone()),
        };
        Box::pin(async move { answer })
    }
}

fn zone(addresses: &[&str]) -> Arc<Zone> {
    Arc::new(Zone(addresses.iter().map(|a| a.parse().unwrap()).collect(), AtomicUsize::new(0)))
}

#[tokio::test]
async fn names_are_judged_by_what_they_resolve_to() {
    let resolver = zone(&["10.0.0.1", "169.254.169.254", "::ffff:192.168.0.1"]);
    let fetcher = Fetcher::new(FetcherConfig { resolver: Some(resolver), ..config() }).unwrap();
    let failure = fetcher.fetch(get("http://rebind.example/")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::RefusedAddress);
    assert!(failure.message.contains("rebind.example") && failure.message.contains("private"), "{failure}");

    // Of several addresses only the permitted ones are dialled.
    let server = canned(response("", b"ok")).await;
    let resolver = zone(&["10.0.0.1", "127.0.0.1"]);
    let fetcher = Fetcher::new(FetcherConfig { resolver: Some(resolver), ..config() }).unwrap();
    let fetched = fetcher.fetch(get(&server.named("http", "mixed.example", "/"))).await.unwrap();
    assert_eq!(fetched.remote_addr, Some(server.addr));
}

#[tokio::test]
async fn failures_of_the_dns_are_told_apart_and_remembered() {
    let resolver = zone(&[]);
    let config = FetcherConfig { resolver: Some(Arc::clone(&resolver) as Arc<dyn Resolve>), ..config() };
    let fetcher = Fetcher::new(config).unwrap();
    assert_eq!(kind(fetcher.fetch(get("http://none.example/")).await), "dns");
    assert_eq!(kind(fetcher.fetch(get("http://empty.example/")).await), "dns");
    for _ in 0..3 {
        assert_eq!(kind(fetcher.fetch(get("http://down.example/")).await), "dns_failure");
    }
    assert_eq!(resolver.1.load(Ordering::SeqCst), 3);
}

#[test]
fn static_names() {
    let table = StaticNames::parse([
        "a.test=10.0.0.1",
        "*.test=10.0.0.2",
        "*.x.test=10.0.0.3",
        "B.org=::1",
        "b.org=[::2]",
    ])
    .unwrap();
    let get =
        |name: &str| table.get(name).map(|found| found.iter().map(IpAddr::to_string).collect::<Vec<_>>());
    for (name, expected) in [
        ("a.test", Some(vec!["10.0.0.1"])),
        ("A.TEST.", Some(vec!["10.0.0.1"])),
        ("b.test", Some(vec!["10.0.0.2"])),
        ("c.b.test", Some(vec!["10.0.0.2"])),
        ("x.test", Some(vec!["10.0.0.2"])),
        ("y.x.test", Some(vec!["10.0.0.3"])),
        ("b.org", Some(vec!["::1", "::2"])),
        ("test", None),
        ("nottest", None),
        ("c.b.org", None),
    ] {
        assert_eq!(get(name), expected.map(|all| all.into_iter().map(str::to_owned).collect()), "{name}");
    }
    for bad in ["", "a.test", "a.test=", "a.test=localhost", "=127.0.0.1", "*.=127.0.0.1", "a/b=127.0.0.1"] {
        assert!(StaticNames::parse([bad]).is_err(), "{bad}");
    }
}

#[test]
fn names_of_failures_are_unique_and_stable_in_form() {
    let mut names: Vec<_> = FailureKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FailureKind::ALL.len());
}

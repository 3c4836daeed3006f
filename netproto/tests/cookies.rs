//! The jar: who sees which cookie, and its bounds.

use std::sync::Arc;

use dolomedes_netproto::fetch::cookies::{CookieJar, MAX_PER_SITE};
use http::header::{HeaderMap, HeaderValue, SET_COOKIE};

use crate::support::url;

fn set(jar: &CookieJar, partition: u64, from: &str, cookies: &[&str]) -> bool {
    let mut headers = HeaderMap::new();
    for cookie in cookies {
        headers.append(SET_COOKIE, HeaderValue::from_str(cookie).unwrap());
    }
    jar.store(partition, &url(from), &headers)
}

fn sent(jar: &CookieJar, partition: u64, to: &str) -> String {
    jar.header(partition, &url(to)).map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default()
}

#[test]
fn who_sees_what() {
    for (from, cookie, to, expected) in [
        ("http://a.example.com/", "n=v", "http://a.example.com/x", "n=v"),
        ("http://a.example.com/", "n=v", "http://b.example.com/", ""),
        ("http://a.example.com/", "n=v", "http://example.com/", ""),
        ("http://a.example.com/", "n=v; Domain=example.com", "http://b.example.com/", "n=v"),
        ("http://a.example.com/", "n=v; Domain=.EXAMPLE.com", "https://example.com/", "n=v"),
        ("http://a.example.com/", "n=v; Domain=b.example.com", "http://b.example.com/", ""),
        ("http://a.example.com/", "n=v; Domain=other.com", "http://other.com/", ""),
        ("http://a.example.com/", "n=v; Domain=com", "http://b.com/", ""),
        ("http://a.example.com/", "n=v; Domain=com", "http://a.example.com/", ""),
        ("http://a.co.uk/", "n=v; Domain=co.uk", "http://b.co.uk/", ""),
        ("http://me.github.io/", "n=v; Domain=github.io", "http://you.github.io/", ""),
        ("http://github.io/", "n=v; Domain=github.io", "http://github.io/", "n=v"),
        ("http://github.io/", "n=v; Domain=github.io", "http://you.github.io/", ""),
        ("http://127.0.0.1/", "n=v", "http://127.0.0.1:8080/", "n=v"),
        ("http://127.0.0.1/", "n=v; Domain=0.0.1", "http://127.0.0.1/", ""),
        ("http://localhost/", "n=v", "http://localhost/", "n=v"),
        ("http://a.test/d/p", "n=v", "http://a.test/d/q", "n=v"),
        ("http://a.test/d/p", "n=v", "http://a.test/e", ""),
        ("http://a.test/d/p", "n=v; Path=/", "http://a.test/e", "n=v"),
        ("http://a.test/", "n=v; Path=/d", "http://a.test/dd", ""),
        ("https://a.test/", "n=v; Secure", "http://a.test/", ""),
        ("https://a.test/", "n=v; Secure", "https://a.test/", "n=v"),
        ("http://a.test/", "n=v; Secure", "https://a.test/", ""),
        ("http://a.test/", "n=v; HttpOnly", "http://a.test/", "n=v"),
        ("http://a.test/", "n=v; Max-Age=0", "http://a.test/", ""),
        ("http://a.test/", "n=v; Max-Age=100", "http://a.test/", "n=v"),
        ("http://a.test/", "n=v; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "http://a.test/", ""),
        ("https://a.test/", "__Host-n=v; Secure; Path=/", "https://a.test/", "__Host-n=v"),
        ("https://a.test/", "__Host-n=v; Secure; Path=/; Domain=a.test", "https://a.test/", ""),
        ("https://a.test/", "__Secure-n=v", "https://a.test/", ""),
        ("http://a.test/", "garbage", "http://a.test/", ""),
        ("http://a.test/", "n=ü", "http://a.test/", ""),
    ] {
        let jar = CookieJar::new(100);
        if cookie == "n=ü" {
            let mut headers = HeaderMap::new();
            headers.append(SET_COOKIE, HeaderValue::from_bytes(b"n=\xfc").unwrap());
            assert!(!jar.store(1, &url(from), &headers));
        } else {
            set(&jar, 1, from, &[cookie]);
        }
        assert_eq!(sent(&jar, 1, to), expected, "{cookie} from {from} to {to}");
        assert_eq!(sent(&jar, 2, to), "", "another partition sees {cookie}");
    }
}

#[test]
fn order_replacement_and_removal() {
    let jar = CookieJar::new(100);
    assert!(set(&jar, 1, "http://a.test/d/p", &["b=1; Path=/", "a=2; Path=/", "c=3"]));
    assert_eq!(sent(&jar, 1, "http://a.test/d/"), "c=3; a=2; b=1");
    assert!(set(&jar, 1, "http://a.test/", &["a=4; Path=/"]));
    assert!(set(&jar, 1, "http://a.test/", &["b=; Path=/; Max-Age=0"]));
    assert_eq!(sent(&jar, 1, "http://a.test/d/"), "c=3; a=4");
    jar.clear(1);
    assert_eq!(sent(&jar, 1, "http://a.test/d/"), "");
    assert!(!set(&jar, 1, "http://a.test/", &[]));
}

#[test]
fn is_bounded() {
    let jar = CookieJar::new(64);
    for i in 0..MAX_PER_SITE * 3 {
        set(&jar, 1, "http://a.test/", &[&format!("n{i}=v; Max-Age={}", 1000 + i)]);
    }
    let header = sent(&jar, 1, "http://a.test/");
    assert_eq!(header.split("; ").count(), MAX_PER_SITE);
    assert!(header.contains(&format!("n{}=v", MAX_PER_SITE * 3 - 1)) && !header.contains("n0=v"));
    let big = format!("big={}", "x".repeat(5000));
    assert!(!set(&jar, 1, "http://a.test/", &[&big]));
    for i in 0..2000 {
        set(&jar, 1, &format!("http://s{i}.example/"), &["n=v"]);
    }
    let left = (0..2000).filter(|i| !sent(&jar, 1, &format!("http://s{i}.example/")).is_empty()).count();
    assert!((1..=64).contains(&left), "{left} sites");
    assert_eq!(sent(&jar, 1, "http://s1999.example/"), "n=v");
}

#[test]
fn saved_and_loaded() {
    let jar = CookieJar::new(100);
    set(&jar, 1, "http://a.example.com/d/p", &["host=1", "dom=2; Domain=example.com; Path=/; Max-Age=1000"]);
    set(&jar, 7, "https://b.test/x;y=1/p", &["s=\"q=1\"; Secure; HttpOnly", "gone=1; Max-Age=0"]);
    let saved = jar.save();
    let other = CookieJar::new(100);
    other.load(&saved).unwrap();
    assert_eq!(other.save(), saved);
    for (partition, to) in [
        (1, "http://a.example.com/d/q"),
        (1, "http://c.example.com/"),
        (1, "http://a.example.com/"),
        (7, "https://b.test/x;y=1/q"),
        (7, "http://b.test/x;y=1/q"),
        (7, "http://a.example.com/d/q"),
    ] {
        assert_eq!(sent(&other, partition, to), sent(&jar, partition, to), "{to}");
    }
    assert_eq!(sent(&other, 7, "https://b.test/x;y=1/q"), "s=\"q=1\"");
    for bad in [&b""[..], b"\xff", b"something else\n", b"dolomedes-cookies 1\nx\ty\n"] {
        assert!(other.load(bad).is_err());
    }
}

#[test]
fn many_threads() {
    let jar = Arc::new(CookieJar::new(1000));
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let jar = Arc::clone(&jar);
            std::thread::spawn(move || {
                for i in 0..200 {
                    let site = format!("http://s{}.example/", i % 20);
                    set(&jar, 1, &site, &[&format!("t{t}={i}")]);
                    assert!(sent(&jar, 1, &site).contains(&format!("t{t}={i}")));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

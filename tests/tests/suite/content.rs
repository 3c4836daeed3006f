//! What is taken of a response: ends that are missing, sitemaps that were linked, links that add up to more than the page.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dolomedes_tests::site::{Answer, Reply, Request, Script, Site};

use crate::mini::{as_is, crawl, page};

/// Half of a page whose whole length is declared.
fn broken_off(html: &str) -> Answer {
    let head = format!("Content-Type: text/html\r\nContent-Length: {}\r\n", html.len());
    Script::ok(&head).send(html[..html.len() / 2].to_owned()).into()
}

#[test]
fn a_page_that_breaks_off_is_tried_again() {
    let site = Site::start();
    let asked = Arc::new(AtomicUsize::new(0));
    let html = page("Whole", &"<a href='/second'>a page</a>".repeat(20));
    site.host("flaky.test", move |request: &Request| match request.path.as_str() {
        "/" if asked.fetch_add(1, Ordering::SeqCst) == 0 => broken_off(&html),
        "/" => Reply::html(html.clone()).into(),
        "/second" => Reply::page("Second", [""; 0]).into(),
        _ => Reply::not_found().into(),
    });
    let done = crawl(&site, [site.url("flaky.test", "/")], as_is);
    let root = done.records.at(&site.url("flaky.test", "/"));
    assert_eq!((root.title(), root.error(), root.is_marked()), ("Whole", "", false));
    assert_eq!(site.log().hits("flaky.test", "/"), 2);
    assert_eq!(done.records.pages().len(), 2);
}

#[test]
fn a_page_that_always_breaks_off_is_kept_as_far_as_it_goes() {
    let site = Site::start();
    let html = page("Half", &"<a href='/second'>a page</a>".repeat(20));
    site.host("short.test", move |request: &Request| match request.path.as_str() {
        "/" => broken_off(&html),
        "/second" => Reply::page("Second", [""; 0]).into(),
        _ => Reply::not_found().into(),
    });
    let done = crawl(&site, [site.url("short.test", "/")], |job| {
        job.set("--max-attempts", "5");
    });
    let root = done.records.at(&site.url("short.test", "/"));
    assert_eq!((root.title(), root.text("cap"), root.is_marked()), ("Half", "incomplete", true));
    assert_eq!(site.log().hits("short.test", "/"), 3);
    assert_eq!(done.records.pages().len(), 2);
}

#[test]
fn a_sitemap_that_a_page_links_to_is_read() {
    let site = Site::start();
    let port = site.port();
    site.host("maps.test", move |request: &Request| {
        let at = |path: &str| format!("<loc>http://maps.test:{port}{path}</loc>");
        let index = format!("<sitemapindex><sitemap>{}</sitemap></sitemapindex>", at("/pages.xml"));
        let pages = format!("<urlset><url>{}</url></urlset>", at("/found"));
        match request.path.as_str() {
            "/" => Reply::page("Start", ["/index.xml", "/other.xml"]),
            "/index.xml" => Reply::with("application/xml", index),
            "/pages.xml" => Reply::with("text/xml", pages),
            "/other.xml" => Reply::with("application/xml", format!("<data>{}</data>", at("/unlinked"))),
            "/found" => Reply::page("Found", [""; 0]),
            _ => Reply::not_found(),
        }
    });
    let done = crawl(&site, [site.url("maps.test", "/")], as_is);
    assert_eq!(done.records.at(&site.url("maps.test", "/found")).title(), "Found");
    assert!(done.records.get(&site.url("maps.test", "/unlinked")).is_none());
    let without = crawl(&site, [site.url("maps.test", "/")], |job| {
        job.flag("--no-sitemaps");
    });
    assert!(without.records.get(&site.url("maps.test", "/found")).is_none());
}

#[test]
fn links_that_add_up_to_more_than_the_page_are_cut_with_a_note() {
    let site = Site::start();
    let base = format!("http://long.test:{}/{}/", site.port(), "d".repeat(1_500));
    let links: String = (0..15_000).map(|n| format!("<a href={n}>x</a>")).collect();
    let html = format!("<base href='{base}'><title>Long</title>{links}");
    site.host("long.test", move |request: &Request| match request.path.as_str() {
        "/" => Reply::html(html.clone()),
        _ => Reply::not_found(),
    });
    let done = crawl(&site, [site.url("long.test", "/")], |job| {
        job.set("--max-pages", "1").flag("--ignore-robots");
    });
    let root = done.records.at(&site.url("long.test", "/"));
    assert!(root.0["notes"].to_string().contains("longer than are kept"), "{root:?}");
    let urls = done.finished.number("urls");
    assert!((1_000..15_000).contains(&urls), "{urls}");
}

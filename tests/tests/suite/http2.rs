//! TLS and HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use dolomedes_tests::process::Job;
use dolomedes_tests::site::{Reply, Request, Site, Web, WebShape};

use crate::mini::{self, DEADLINE, as_is, crawl};

#[test]
fn http2_is_spoken_where_it_is_offered() {
    let site = Site::start();
    let web = mini::one_host(&site, 50, 60, Duration::from_millis(2));
    let host = &web.hosts()[0];
    let done = crawl(&site, [site.secure_url(host, "/")], |job| {
        job.set("--per-host", "8");
    });
    assert_eq!(done.records.pages().len(), 60);
    assert!(done.records.all.iter().all(|record| record.text("protocol") == "HTTP/2"));
    assert!(site.log().all().iter().all(|seen| seen.protocol == "HTTP/2"));
    assert!(site.log().connections(host) <= 8, "{} connections", site.log().connections(host));
}

#[test]
fn http1_is_spoken_when_told_to() {
    let site = Site::start();
    let web = mini::one_host(&site, 51, 10, Duration::ZERO);
    let done = crawl(&site, [site.secure_url(&web.hosts()[0], "/")], |job| {
        job.set("--http", "1");
    });
    assert_eq!(done.records.pages().len(), 10);
    assert!(done.records.all.iter().all(|record| record.text("protocol") == "HTTP/1.1"));
}

#[test]
fn many_secure_hosts_and_both_schemes() {
    let site = Site::start();
    let shape = WebShape { hosts: 6, pages_per_host: 5, cross_links: 1, ..WebShape::default() };
    let web = Arc::new(Web::generate(52, &shape));
    site.web(&web);
    let seeds = web.hosts().iter().flat_map(|host| [site.secure_url(host, "/"), site.url(host, "/")]);
    let done = crawl(&site, seeds.collect::<Vec<_>>(), as_is);
    let (secure, plain): (Vec<_>, Vec<_>) =
        done.records.pages().into_iter().partition(|url| url.starts_with("https:"));
    assert_eq!((secure.len(), plain.len()), (30, 30));
}

#[test]
fn a_certificate_of_a_stranger_is_refused() {
    let site = Site::start();
    let web = mini::one_host(&site, 53, 3, Duration::ZERO);
    let mut job = Job::new(&site);
    // Its host is given up after some attempts to reach robots.txt; what counts is that nothing is asked of it.
    job.seed(site.secure_url(&web.hosts()[0], "/")).unset("--ca-file").flag("--ignore-robots");
    job.run(DEADLINE);
    assert!(site.log().is_empty(), "{:?}", site.log().all());
    let records = job.records().checked();
    let record = records.at(&site.secure_url(&web.hosts()[0], "/"));
    assert_eq!((record.status(), record.error()), (None, "tls"));
}

#[test]
fn a_redirect_from_plain_to_secure_is_followed() {
    let site = Site::start();
    let tls_port = site.tls_port();
    site.host("up.test", move |request: &Request| match (request.secure, request.path.as_str()) {
        (_, "/robots.txt") => Reply::not_found(),
        (false, path) => Reply::redirect(301, format!("https://up.test:{tls_port}{path}")),
        (true, _) => Reply::page("Secure", ["/next"]),
    });
    // Another port is another host key, as it must be in a test and hardly ever is in the world.
    let done = crawl(&site, [site.url("up.test", "/")], |job| {
        job.set("--scope", "domain");
    });
    assert_eq!(done.records.at(&site.url("up.test", "/")).status(), Some(301));
    assert_eq!(done.records.at(&site.secure_url("up.test", "/")).title(), "Secure");
    assert_eq!(done.records.at(&site.secure_url("up.test", "/next")).text("protocol"), "HTTP/2");
}

#[test]
fn a_stream_that_breaks_does_not_harm_the_others() {
    let site = Site::start();
    site.host("h2.test", |request: &Request| -> dolomedes_tests::site::Answer {
        match request.path.as_str() {
            "/robots.txt" => Reply::not_found().into(),
            "/" => Reply::page("Front", ["/broken", "/1", "/2", "/3"]).into(),
            "/broken" => dolomedes_tests::site::Script::new().reset().into(),
            _ => Reply::page("Fine", [""; 0]).after(Duration::from_millis(50)).into(),
        }
    });
    let done = crawl(&site, [site.secure_url("h2.test", "/")], |job| {
        job.set("--per-host", "4");
    });
    for path in ["/1", "/2", "/3"] {
        assert_eq!(done.records.at(&site.secure_url("h2.test", path)).title(), "Fine");
    }
    assert!(done.records.at(&site.secure_url("h2.test", "/broken")).is_marked());
}

//! Thousands of hosts.

use std::sync::Arc;
use std::time::Duration;

use dolomedes_tests::site::{Scope, Site, Web, WebShape};

use crate::mini::crawl;

#[test]
fn two_thousand_hosts_are_crawled_each_for_itself() {
    let site = Site::start();
    let shape = WebShape { hosts: 2000, pages_per_host: 2, links: 1, cross_links: 2, ..WebShape::default() };
    let web = Arc::new(Web::generate(40, &shape));
    site.web(&web);
    let truth = web.truth(0, Scope::Any, None, |host| site.url(host, ""));
    assert_eq!(truth.len(), 4000);
    let done = crawl(&site, [site.url(&web.hosts()[0], "/")], |job| {
        // A second between requests of a host, and nobody waits for it but that host.
        job.set("--scope", "any").set("--delay", "1000").set("--concurrency", "128");
    });
    assert_eq!(done.records.pages(), truth.keys().cloned().collect());
    assert!(site.log().repeats().is_empty(), "{:?}", site.log().repeats());
    for host in web.hosts() {
        assert_eq!(site.log().hits(host, "/robots.txt"), 1, "{host}");
        let gap = site.log().min_gap(host).unwrap();
        assert!(gap >= Duration::from_millis(500), "{host}: {gap:?}");
    }
    assert!(done.finished.peak_memory <= 400 << 20, "{} MiB", done.finished.peak_memory >> 20);
}

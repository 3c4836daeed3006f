//! Budgets are exact, whatever the concurrency, and across kills.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dolomedes_tests::process::Job;
use dolomedes_tests::site::{Scope, Site, Web, WebShape};
use dolomedes_tests::wait::eventually;

use crate::mini::{self, DEADLINE, as_is, crawl};

fn parallel(job: &mut Job) -> &mut Job {
    job.set("--per-host", "16").set("--concurrency", "16")
}

#[test]
fn pages_are_exact_and_a_higher_budget_goes_on() {
    let site = Site::start();
    let web = mini::one_host(&site, 30, 300, Duration::from_millis(2));
    let host = &web.hosts()[0];
    let mut job = Job::new(&site);
    parallel(&mut job).seed(site.url(host, "/")).set("--max-pages", "40");
    let finished = job.complete(DEADLINE);
    assert_eq!(finished.number("pages"), 40);
    assert_eq!(finished.summary()["end"], "budget_reached");
    assert_eq!(job.records().checked().pages().len(), 40);
    assert_eq!(site.log().pages(host), 40);
    job.set("--max-pages", "75").complete(DEADLINE);
    assert_eq!(job.records().checked().pages().len(), 75);
    assert_eq!(site.log().pages(host), 75);
    job.unset("--max-pages").complete(DEADLINE);
    assert_eq!(job.records().checked().pages().len(), 300);
    assert!(site.log().repeats().is_empty());
}

#[test]
fn pages_are_exact_across_kills() {
    let site = Site::start();
    let web = mini::one_host(&site, 31, 300, Duration::from_millis(10));
    let host = &web.hosts()[0];
    let mut job = Job::new(&site);
    parallel(&mut job).seed(site.url(host, "/")).set("--max-pages", "100");
    for pages in [20, 50, 80] {
        let process = job.start();
        eventually("pages are requested", DEADLINE, || match site.log().pages(host) {
            seen if seen >= pages => Ok(()),
            seen => Err((seen, process.stderr())),
        });
        process.kill();
    }
    job.complete(DEADLINE);
    assert_eq!(job.records().checked().pages().len(), 100);
}

#[test]
fn each_host_has_its_own_budget() {
    let site = Site::start();
    let shape = WebShape { hosts: 5, pages_per_host: 40, cross_links: 1, ..WebShape::default() };
    let web = Arc::new(Web::generate(32, &shape));
    site.web(&web);
    let seeds: Vec<String> = web.hosts().iter().map(|host| site.url(host, "/")).collect();
    let done = crawl(&site, seeds, |job| {
        parallel(job).set("--max-pages-per-host", "15");
    });
    let mut pages: BTreeMap<String, usize> = BTreeMap::new();
    for url in done.records.pages() {
        *pages.entry(url::Url::parse(&url).unwrap().host_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(pages.len(), 5);
    assert!(pages.values().all(|pages| *pages == 15), "{pages:?}");
}

#[test]
fn depth_ends_where_it_is_told_to() {
    let site = Site::start();
    let web = mini::one_host(&site, 33, 150, Duration::ZERO);
    let host = &web.hosts()[0];
    for depth in [0_u32, 1, 3] {
        let truth = web.truth(0, Scope::Host, Some(depth), |host| site.url(host, ""));
        let done = crawl(&site, [site.url(host, "/")], |job| {
            job.set("--max-depth", depth.to_string());
        });
        assert_eq!(done.records.pages(), truth.keys().cloned().collect(), "depth {depth}");
    }
}

#[test]
fn bytes_end_a_crawl() {
    let site = Site::start();
    let shape = WebShape { pages_per_host: 200, text: 10_000, ..WebShape::default() };
    let web = Arc::new(Web::generate(34, &shape));
    site.web(&web);
    let done = crawl(&site, [site.url(&web.hosts()[0], "/")], |job| {
        job.set("--max-bytes", "300000");
    });
    assert_eq!(done.finished.summary()["end"], "budget_reached");
    let bytes = done.finished.number("bytes");
    // What was leased when the budget ran out may still be fetched.
    assert!((300_000..1_500_000).contains(&bytes), "{bytes} bytes");
    assert!(done.records.pages().len() < 150, "{}", done.records.pages().len());
}

#[test]
fn without_budgets_everything_is_fetched() {
    let site = Site::start();
    let web = mini::one_host(&site, 35, 50, Duration::ZERO);
    let done = crawl(&site, [site.url(&web.hosts()[0], "/")], as_is);
    assert_eq!(done.finished.summary()["end"], "finished");
    assert_eq!(done.records.pages().len(), 50);
}

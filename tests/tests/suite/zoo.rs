//! The adversarial site: all of the zoo at once beside a good host.

use std::time::Duration;

use dolomedes_tests::site::zoo;
use dolomedes_tests::site::{Scope, Site};

use crate::mini::{self, crawl};

#[test]
fn the_zoo_ends_by_itself_while_a_good_host_is_crawled() {
    let site = Site::start();
    mini::serve_zoo(&site);
    zoo::sitemaps::install(&site);
    let web = mini::one_host(&site, 60, 200, Duration::from_millis(5));
    let good = &web.hosts()[0];
    let mut seeds: Vec<String> = zoo::exhibits().map(|exhibit| mini::exhibit_url(&site, exhibit)).collect();
    seeds.extend(zoo::sitemaps::HOSTS.iter().map(|kind| site.url(&kind.host(), "/")));
    seeds.push(site.url(good, "/"));
    let exhibits = seeds.len() - 1;
    let done = crawl(&site, seeds, |job| {
        job.set("--max-pages-per-host", "300").set("--max-depth", "40").set("--max-body", "4194304");
    });
    let truth = web.truth(0, Scope::Host, None, |host| site.url(host, ""));
    let found = done.records.pages();
    let missing: Vec<&String> = truth.keys().filter(|url| !found.contains(*url)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(done.records.len() > exhibits, "every exhibit has a record");
    for exhibit in zoo::exhibits() {
        let url = mini::exhibit_url(&site, exhibit);
        assert!(done.records.get(&url).is_some(), "no record of {url}: {}", exhibit.about);
    }
    assert!(done.finished.peak_memory <= 500 << 20, "{} MiB", done.finished.peak_memory >> 20);

    // At full rate: the good host was done long before the bad ones had used up their deadlines.
    let seen = site.log().of(good);
    let took = seen.last().unwrap().at - seen[0].at;
    assert!(took < Duration::from_secs(20), "the good host took {took:?}");
}

//! E10 to E15: robots.txt by RFC 9309.

use std::time::Duration;

use dolomedes_tests::site::Site;
use dolomedes_tests::site::zoo::robots::{self, HOSTS, RobotsHost};

use crate::mini::{self, as_is, crawl};

fn kind(name: &str) -> &'static RobotsHost {
    HOSTS.iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("there is no host {name}"))
}

#[track_caller]
fn assert_obeyed(site: &Site, kind: &RobotsHost) {
    let found = site.log().paths(&kind.host());
    for path in kind.reached {
        assert!(found.contains(*path), "{}: {path} was not fetched, but {found:?}", kind.name);
    }
    for path in kind.avoided {
        assert!(!found.contains(*path), "{}: {path} was fetched", kind.name);
    }
}

/// Crawls hosts whose robots.txt gives an answer at once.
fn check(names: &[&str]) -> Site {
    let site = Site::start();
    robots::install(&site);
    let seeds: Vec<String> = names.iter().map(|name| site.url(&kind(name).host(), "/")).collect();
    crawl(&site, seeds, |job| {
        // The endless one is 1 GiB; it is up to the crawler to stop.
        job.set("--total-timeout", "20000");
    });
    for name in names {
        assert_obeyed(&site, kind(name));
        assert_eq!(site.log().hits(&kind(name).host(), "/robots.txt"), 1, "{name}");
    }
    site
}

#[test]
fn e10_a_byte_order_mark_hides_no_rules() {
    check(&["bom", "plain", "crlf", "empty", "all"]);
}

#[test]
fn e11_no_rules_allow_and_no_answer_forbids() {
    check(&["status-404", "status-410", "status-401", "status-403"]);

    // Hosts that do not answer are asked for their rules again, and then given up, beside one that is well.
    let site = Site::start();
    robots::install(&site);
    let web = mini::one_host(&site, 80, 30, Duration::ZERO);
    let silent = ["status-429", "status-500", "status-503", "timeout", "reset"];
    let mut seeds: Vec<String> = silent.iter().map(|name| site.url(&kind(name).host(), "/")).collect();
    seeds.push(site.url(&web.hosts()[0], "/"));
    let done = crawl(&site, seeds, as_is);
    for name in silent {
        let host = kind(name).host();
        assert_obeyed(&site, kind(name));
        assert!(site.log().hits(&host, "/robots.txt") >= 2, "{name} is asked again");
        let record = done.records.at(&site.url(&host, "/"));
        assert!(record.status().is_none() && !record.error().is_empty(), "{}", record.0);
    }
    assert_eq!(done.records.pages().len(), 30);
}

#[test]
fn e12_redirects_of_robots_count_for_the_host_that_was_asked() {
    let site = Site::start();
    robots::install(&site);
    let names = ["chain-5", "chain-6", "loop", "no-location"];
    let mut seeds: Vec<String> = names.iter().map(|name| site.url(&kind(name).host(), "/")).collect();
    seeds.push(site.url("a.hops.test", "/"));
    crawl(&site, seeds, as_is);
    for name in names {
        assert_obeyed(&site, kind(name));
    }
    // The rules were found on this host, but they are not its own.
    assert_eq!(site.log().hits("a.hops.test", "/private/x.html"), 1);
}

#[test]
fn e13_long_rules_are_read_up_to_a_limit_and_not_beyond() {
    let site = check(&["long", "endless"]);
    let seen = site.log().of("endless.robots.test");
    assert!(seen.len() >= 2, "{seen:?}");
}

#[test]
fn e14_the_longest_match_wins() {
    check(&["longest"]);
}

#[test]
fn e15_groups_are_merged_and_typos_forgiven() {
    check(&["groups", "between", "typos", "cr-only", "html", "soft-404", "zeros", "gzip", "slow"]);
}

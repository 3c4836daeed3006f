//! What a host sees of the crawler's manners, across crashes as well. The judge is the log of the server.
//!
//! A server may be late to note a request, so gaps are compared with a good part of what was asked for.

use std::time::{Duration, Instant};

use dolomedes_tests::process::{Job, Process};
use dolomedes_tests::site::zoo::pushback;
use dolomedes_tests::site::{Reply, Request, Site};
use dolomedes_tests::wait::eventually;

use crate::mini::{self, DEADLINE, crawl};

#[track_caller]
fn assert_gap(site: &Site, host: &str, least: Duration) {
    let gap = site.log().min_gap(host).unwrap();
    assert!(gap >= least, "two requests of {host} only {gap:?} apart: {:#?}", site.log().of(host));
}

/// Waits until a path of a host was asked for so often.
#[track_caller]
fn wait_for(site: &Site, host: &str, path: &str, times: usize, process: &Process) {
    eventually(path, DEADLINE, || match site.log().hits(host, path) {
        seen if seen >= times => Ok(()),
        seen => Err((seen, process.stderr())),
    });
}

/// When a path was asked for, in order.
fn times(site: &Site, host: &str, path: &str) -> Vec<Instant> {
    site.log().of(host).iter().filter(|seen| seen.path == path).map(|seen| seen.at).collect()
}

#[test]
fn the_delay_lies_between_any_two_requests_of_a_host() {
    let site = Site::start();
    let web = mini::one_host(&site, 20, 8, Duration::ZERO);
    crawl(&site, [site.url(&web.hosts()[0], "/")], |job| {
        job.set("--delay", "500").set("--per-host", "4");
    });
    assert_gap(&site, &web.hosts()[0], Duration::from_millis(300));
}

#[test]
fn hosts_do_not_wait_for_each_other() {
    let site = Site::start();
    let names: Vec<String> = (0..10).map(|n| format!("h{n}.many.test")).collect();
    for name in &names {
        site.host(name, |_: &Request| Reply::page("A page", ["/1", "/2"]));
    }
    let begun = Instant::now();
    crawl(&site, names.iter().map(|name| site.url(name, "/")), |job| {
        job.set("--delay", "1000");
    });
    // One after the other they would need 40 seconds for robots.txt and three pages each.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    for name in &names {
        assert_gap(&site, name, Duration::from_millis(600));
    }
}

#[test]
fn one_request_at_a_time_unless_more_are_allowed() {
    for (allowed, flag) in [(1, None), (3, Some("3"))] {
        let site = Site::start();
        let web = mini::one_host(&site, 21, 40, Duration::from_millis(30));
        crawl(&site, [site.url(&web.hosts()[0], "/")], |job| {
            if let Some(flag) = flag {
                job.set("--per-host", flag);
            }
        });
        assert_eq!(site.log().max_in_flight(&web.hosts()[0]), allowed);
    }
}

#[test]
fn the_delay_outlives_a_kill() {
    let site = Site::start();
    let web = mini::one_host(&site, 22, 6, Duration::ZERO);
    let host = &web.hosts()[0];
    let mut job = Job::new(&site);
    job.seed(site.url(host, "/")).set("--delay", "1500");
    for pages in [1, 2, 3] {
        let process = job.start();
        eventually("a page", DEADLINE, || match site.log().pages(host) {
            seen if seen >= pages => Ok(()),
            seen => Err((seen, process.stderr())),
        });
        process.kill();
    }
    job.complete(DEADLINE);
    assert_gap(&site, host, Duration::from_millis(900));
    assert_eq!(job.records().checked().pages().len(), 6);
}

#[test]
fn a_crawl_delay_counts_like_an_own_one() {
    let site = Site::start();
    site.host("slow.test", |request: &Request| match request.path.as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 1\n"),
        _ => Reply::page("A page", ["/1", "/2", "/3"]),
    });
    crawl(&site, [site.url("slow.test", "/")], |_| {});
    let mut pages: Vec<Instant> =
        site.log().of("slow.test").iter().filter(|seen| !seen.is_robots()).map(|seen| seen.at).collect();
    pages.sort_unstable();
    let least = pages.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(least >= Duration::from_millis(600), "{least:?}");
}

#[test]
fn redirects_of_robots_txt_keep_the_delay() {
    let site = Site::start();
    site.host("moved.test", |request: &Request| match request.path.as_str() {
        "/robots.txt" => Reply::redirect(301, "/robots-2.txt"),
        "/robots-2.txt" => Reply::redirect(301, "/robots-3.txt"),
        "/robots-3.txt" => Reply::text("User-agent: *\nDisallow: /secret\n"),
        _ => Reply::page("A page", ["/1", "/secret"]),
    });
    crawl(&site, [site.url("moved.test", "/")], |job| {
        job.set("--delay", "1000");
    });
    assert_gap(&site, "moved.test", Duration::from_millis(600));
    assert_eq!(site.log().hits("moved.test", "/secret"), 0);
    assert_eq!(site.log().hits("moved.test", "/1"), 1);
}

#[test]
fn both_forms_of_retry_after_hold_the_whole_host() {
    let site = Site::start();
    pushback::install(&site, "seconds.test", 4, || pushback::in_seconds(429, "3"));
    pushback::install(&site, "date.test", 4, || pushback::at_date(503, Duration::from_secs(4)));
    pushback::install(&site, "past.test", 4, || pushback::in_seconds(503, "0"));
    let hosts = ["seconds.test", "date.test", "past.test"];
    let done = crawl(&site, hosts.map(|host| site.url(host, "/")), |_| {});
    for host in ["seconds.test", "date.test"] {
        let refused = times(&site, host, "/1")[0];
        let next = site.log().of(host).iter().map(|seen| seen.at).filter(|at| *at > refused).min().unwrap();
        // A date has whole seconds, so that up to one of them is lost.
        assert!(
            next - refused >= Duration::from_millis(2500),
            "{host} was asked again after {:?}",
            next - refused
        );
    }
    for host in hosts {
        assert_eq!(done.records.at(&site.url(host, "/1")).status(), Some(200), "{host}");
    }
}

#[test]
fn a_hold_outlives_a_kill() {
    let site = Site::start();
    pushback::install(&site, "busy.test", 4, || pushback::in_seconds(429, "6"));
    site.host("marker.test", |_: &Request| Reply::page("Free", [""; 0]));
    let mut job = Job::new(&site);
    job.seed(site.url("busy.test", "/"));
    let process = job.start();
    wait_for(&site, "busy.test", "/1", 1, &process);
    let refused = times(&site, "busy.test", "/1")[0];
    // Until the answer has been recorded: it is in the spool before the completion that carries the hold is on its way.
    eventually("the hold is durable", Duration::from_secs(2), || {
        if refused.elapsed() > Duration::from_secs(1) { Ok(()) } else { Err(refused.elapsed()) }
    });
    process.kill();
    job.complete(DEADLINE);
    let next =
        site.log().of("busy.test").iter().map(|seen| seen.at).filter(|at| *at > refused).min().unwrap();
    assert!(next - refused >= Duration::from_millis(5000), "asked again after {:?}", next - refused);
    assert_eq!(job.records().checked().at(&site.url("busy.test", "/1")).status(), Some(200));
}

#[test]
fn an_absurd_retry_after_holds_one_host_only() {
    let site = Site::start();
    pushback::install(&site, "never.test", 3, || pushback::in_seconds(503, "315360000"));
    let web = mini::one_host(&site, 23, 40, Duration::ZERO);
    let mut job = Job::new(&site);
    job.seed(site.url("never.test", "/")).seed(site.url(&web.hosts()[0], "/"));
    let process = job.start();
    wait_for(&site, "never.test", "/1", 1, &process);
    eventually("the other host is done", DEADLINE, || match site.log().pages(&web.hosts()[0]) {
        40 => Ok(()),
        seen => Err((seen, process.stderr())),
    });
    let refused = times(&site, "never.test", "/1")[0];
    process.signal("INT");
    process.wait(Duration::from_secs(30)).expect_code(130);
    assert!(
        site.log().of("never.test").iter().all(|seen| seen.at <= refused),
        "{:#?}",
        site.log().of("never.test")
    );
}

#[test]
fn refusals_without_a_time_slow_the_host_down() {
    let site = Site::start();
    for (host, status) in [("s429.test", 429), ("s503.test", 503)] {
        pushback::install(&site, host, 2, move || Reply::page("Later", [""; 0]).code(status));
    }
    crawl(&site, ["s429.test", "s503.test"].map(|host| site.url(host, "/")), |_| {});
    for host in ["s429.test", "s503.test"] {
        let seen = times(&site, host, "/1");
        assert!(seen[1] - seen[0] >= Duration::from_secs(1), "{host}: {:?}", seen[1] - seen[0]);
    }
}

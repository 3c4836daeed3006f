//! E22 to E25: charsets, Retry-After, sitemaps, traps.

use std::time::Duration;

use dolomedes_tests::process::Job;
use dolomedes_tests::site::zoo::{self, pushback, sitemaps};
use dolomedes_tests::site::{Reply, Request, Site};
use dolomedes_tests::wait::eventually;

use crate::mini::{self, DEADLINE, as_is, crawl, crawl_exhibits, exhibit};

#[test]
fn e22_charsets_are_found_in_the_order_of_the_standards() {
    let site = Site::start();
    let titles = [
        ("charsets/shift-jis-header", "日本語の頁"),
        ("charsets/shift-jis-meta", "日本語の頁"),
        ("charsets/shift-jis-http-equiv", "日本語の頁"),
        ("charsets/header-beats-meta", "日本語"),
        ("charsets/gb2312", "𠂇文档"),
        ("charsets/gbk-meta", "𠂇文档"),
        ("charsets/utf-16le-bom", "sixteen é"),
        ("charsets/utf-16be-bom", "sixteen é"),
        ("charsets/utf-8-bom", "mark é"),
        ("charsets/junk-label", "junk é"),
        ("charsets/unknown-label", "unknown é"),
        ("charsets/late-meta", "late é"),
        ("charsets/in-script", "script é"),
        ("charsets/latin-1", "café"),
        ("charsets/latin-1-unsaid", "café au lait"),
        ("charsets/latin-1-as-utf-8", "caf\u{fffd}"),
    ];
    let mut places: Vec<&str> = titles.iter().map(|(place, _)| *place).collect();
    places.push("charsets/utf-7");
    let done = crawl_exhibits(&site, &places, as_is);
    for (place, title) in titles {
        let record = done.records.at(&exhibit(&site, place));
        assert_eq!(record.title(), title, "{place}: {}", record.0);
    }
    assert_eq!(site.log().hits("utf-7.charsets.zoo.test", "/good/x"), 0, "UTF-7 is never spoken");
}

#[test]
fn e23_retry_after_is_understood_in_all_its_forms() {
    let site = Site::start();
    let past = || pushback::in_seconds(503, "Fri, 31 Dec 1999 23:59:59 GMT");
    pushback::install(&site, "past.e23.test", 1, past);
    pushback::install(&site, "seconds.e23.test", 1, || pushback::in_seconds(429, "3"));
    pushback::install(&site, "date.e23.test", 1, || pushback::at_date(503, Duration::from_secs(4)));
    pushback::install(&site, "negative.e23.test", 1, || pushback::in_seconds(503, "-1"));
    pushback::install(&site, "redirect.e23.test", 1, || {
        Reply::redirect(301, "/there").header("Retry-After", "3")
    });
    pushback::install(&site, "years.e23.test", 1, || pushback::in_seconds(503, "315360000"));
    let ended = ["past", "seconds", "date", "negative", "redirect"];
    let host = |name: &str| format!("{name}.e23.test");
    let mut job = Job::new(&site);
    for name in ended.into_iter().chain(["years"]) {
        job.seed(site.url(&host(name), "/"));
    }
    let process = job.start();
    let again = |name: &str| {
        let times: Vec<_> =
            site.log().of(&host(name)).iter().filter(|seen| !seen.is_robots()).map(|seen| seen.at).collect();
        // The front page, the refusal, and what came after it.
        times.get(2).map(|third| *third - times[1])
    };
    eventually("all but one are asked again", DEADLINE, || {
        let waiting: Vec<&str> = ended.into_iter().filter(|name| again(name).is_none()).collect();
        let years = site.log().hits(&host("years"), "/1");
        if waiting.is_empty() && years == 1 { Ok(()) } else { Err((waiting, years, process.stderr())) }
    });
    process.signal("INT");
    process.wait(Duration::from_secs(30));
    for name in ["seconds", "date", "redirect"] {
        assert!(again(name).unwrap() >= Duration::from_millis(2500), "{name}: {:?}", again(name));
    }
    assert_eq!(again("years"), None);
}

#[test]
fn e24_sitemaps_of_every_kind_are_read() {
    let site = Site::start();
    sitemaps::install(&site);
    let seeds: Vec<String> = sitemaps::HOSTS.iter().map(|kind| site.url(&kind.host(), "/")).collect();
    let done = crawl(&site, seeds.clone(), |job| {
        // The largest has 60 MB; the cap on bodies must not make it worthless.
        job.set("--total-timeout", "20000");
    });
    for kind in sitemaps::HOSTS {
        let found = site.log().paths(&kind.host());
        for path in kind.reached {
            assert!(found.contains(*path), "{}: {path} was not fetched, but {found:?}", kind.name);
        }
    }
    assert!(site.log().of("victim.sitemaps.test").is_empty(), "a sitemap speaks for its own host only");
    assert!(done.finished.peak_memory <= 400 << 20, "{} MiB", done.finished.peak_memory >> 20);

    let before = site.log().len();
    crawl(&site, seeds, |job| {
        job.flag("--no-sitemaps");
    });
    let asked: Vec<_> = site
        .log()
        .all()
        .into_iter()
        .skip(before)
        .filter(|seen| !seen.is_robots() && seen.path != "/")
        .collect();
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn e25_traps_end_and_harm_nobody_else() {
    let site = Site::start();
    mini::serve_zoo(&site);
    let web = mini::one_host(&site, 90, 100, Duration::from_millis(2));
    let traps: Vec<_> = zoo::theme("traps").collect();
    let mut seeds: Vec<String> = traps.iter().map(|trap| mini::exhibit_url(&site, trap)).collect();
    seeds.push(site.url(&web.hosts()[0], "/"));
    let done = crawl(&site, seeds, |job| {
        job.set("--max-pages-per-host", "150");
    });
    assert_eq!(done.records.pages().iter().filter(|url| url.contains(web.hosts()[0].as_str())).count(), 100);
    for trap in &traps {
        let url = url::Url::parse(&mini::exhibit_url(&site, trap)).unwrap();
        let requests = site.log().pages(url.host_str().unwrap());
        assert!((1..=150).contains(&requests), "{}: {requests} requests", trap.name);
    }
    let notes = |host: &str| {
        let of_host = done.records.all.iter().filter(|record| record.url().contains(host));
        of_host.map(|record| record.0["notes"].to_string()).collect::<String>()
    };
    for name in ["path", "calendar"] {
        assert!(notes(&format!("{name}.traps.zoo.test")).contains("trap suspected"), "{name}");
    }
    // The session id is taken off, so that the three pages are known when they come again.
    assert!(site.log().pages("session-path.traps.zoo.test") <= 8);
    assert!(site.log().pages("session-query.traps.zoo.test") <= 8);
}

#[test]
fn e25_a_site_of_many_pages_is_no_trap() {
    let site = Site::start();
    site.host("archive.test", |request: &Request| match request.path.as_str() {
        "/robots.txt" => Reply::not_found(),
        "/" => Reply::page(
            "Front",
            (0..400).map(|n| format!("/{}/{:02}/story-{n}.html", 2000 + n / 20, n % 12 + 1)),
        ),
        path => Reply::page(path, [""; 0]),
    });
    let done = crawl(&site, [site.url("archive.test", "/")], as_is);
    assert_eq!(done.records.pages().len(), 401);
}

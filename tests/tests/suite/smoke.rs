//! The first crawl of a person: what is found, what is written, what is said.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dolomedes_tests::outcome::differences;
use dolomedes_tests::process::{self, Job};
use dolomedes_tests::site::{Reply, Request, Scope, Site, Web, WebShape};
use dolomedes_tests::warc;

use crate::mini::{self, DEADLINE, as_is, crawl};

#[track_caller]
fn assert_same(wanted: &BTreeSet<String>, found: &BTreeSet<String>) {
    let differences = differences(wanted, found);
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn one_host_is_found_in_full_and_each_page_once() {
    let site = Site::start();
    let web = mini::one_host(&site, 1, 120, Duration::ZERO);
    let host = &web.hosts()[0];
    let truth = web.truth(0, Scope::Host, None, |host| site.url(host, ""));
    let done = crawl(&site, [site.url(host, "/")], as_is);
    assert_same(&truth.keys().cloned().collect(), &done.records.pages());
    for record in &done.records.all {
        let depth = record.depth().unwrap();
        assert!(depth >= u64::from(truth[record.url()]), "{} at depth {depth}", record.url());
        assert!(record.title().starts_with("Page "), "{}", record.0);
        assert_eq!(record.text("content_type"), "text/html");
        assert_eq!(record.text("protocol"), "HTTP/1.1");
    }
    assert!(site.log().repeats().is_empty(), "{:?}", site.log().repeats());
    assert_eq!(site.log().hits(host, "/robots.txt"), 1);
    assert!(site.log().of(host)[0].is_robots(), "robots.txt comes first");
    assert!(site.log().all().iter().all(|seen| seen.user_agent.starts_with("dolomedes/")));
}

#[test]
fn scopes_go_as_far_as_they_say() {
    let site = Site::start();
    let shape = WebShape { hosts: 8, pages_per_host: 12, cross_links: 1, ..WebShape::default() };
    let web = Arc::new(Web::generate(5, &shape));
    site.web(&web);
    // Page 1 of a host lies under /docs/, so that a prefix is less than the host.
    for (word, scope, start) in [
        ("host", Scope::Host, 0),
        ("domain", Scope::Domain, 0),
        ("prefix", Scope::Prefix, 1),
        ("any", Scope::Any, 0),
    ] {
        let truth = web.truth(start, scope, None, |host| site.url(host, ""));
        let page = &web.pages()[start];
        let seed = site.url(&web.hosts()[page.host], &page.path);
        let done = crawl(&site, [seed], |job| {
            job.set("--scope", word);
        });
        assert_same(&truth.keys().cloned().collect(), &done.records.pages());
    }
}

#[test]
fn patterns_let_in_and_keep_out() {
    let site = Site::start();
    let page = |links: &str| mini::page("A page", links);
    let links = "<a href='/in/1.html'>x</a><a href='/in/2.pdf'>x</a><a href='/out/3.html'>x</a>";
    mini::serve(
        &site,
        "a.test",
        [("/", page(links)), ("/in/1.html", page(links)), ("/in/2.pdf", page("")), ("/out/3.html", page(""))],
    );
    crawl(&site, [site.url("a.test", "/")], |job| {
        job.add("--include", "/in/").add("--include", "/$").set("--exclude", r"\.pdf$");
    });
    let fetched = site.log().paths("a.test");
    assert_eq!(fetched, BTreeSet::from(["/".into(), "/in/1.html".into(), "/robots.txt".into()]));
}

#[test]
fn the_summary_is_one_object_and_progress_goes_elsewhere() {
    let site = Site::start();
    let web = mini::one_host(&site, 2, 30, Duration::ZERO);
    let done = crawl(&site, [site.url(&web.hosts()[0], "/")], as_is);
    assert_eq!(done.finished.stdout.trim().lines().count(), 1, "{}", done.finished.stdout);
    let summary = done.finished.summary();
    for key in ["pages", "ok", "failed", "bytes", "seconds"] {
        assert!(summary[key].is_number(), "{key} in {summary}");
    }
    assert_eq!((done.finished.number("pages"), done.finished.number("ok")), (30, 30));
    assert!(done.finished.number("bytes") > 30 * 400);

    let mut job = Job::new(&site);
    job.seed(site.url(&web.hosts()[0], "/")).unset("--json");
    let text = job.complete(DEADLINE).stdout;
    assert!(text.contains("finished") && text.contains("30 pages") && text.contains("pages.jsonl"), "{text}");
}

#[test]
fn private_addresses_are_refused_unless_allowed() {
    let site = Site::start();
    let web = mini::one_host(&site, 3, 5, Duration::ZERO);
    let mut job = Job::new(&site);
    job.seed(site.url(&web.hosts()[0], "/"))
        .seed(format!("http://127.0.0.1:{}/", site.port()))
        .unset("--allow-net");
    let finished = job.run(DEADLINE);
    assert!(site.log().is_empty(), "{:?}; {}", site.log().all(), finished.story());
    let records = job.records().checked();
    assert!(records.all.iter().all(|record| record.status().is_none() && !record.error().is_empty()));
}

#[test]
fn a_redirect_into_a_private_network_is_refused() {
    let site = Site::start();
    let done = mini::crawl_exhibits(&site, &["redirects/to-metadata", "redirects/to-private"], |job| {
        job.set("--scope", "any");
    });
    for record in done
        .records
        .all
        .iter()
        .filter(|record| record.url().contains("169.254") || record.url().contains("10.0.0.1"))
    {
        assert!(record.status().is_none() && !record.error().is_empty(), "{}", record.0);
    }
}

#[test]
fn cookies_stay_with_their_site() {
    let site = Site::start();
    for host in ["a.one.test", "b.one.test", "a.two.test"] {
        site.host(host, move |request: &Request| match request.path.as_str() {
            "/" if request.host == "a.one.test" => Reply::page("Front", ["/next"])
                .header("Set-Cookie", "site=1; Path=/; Domain=one.test")
                .header("Set-Cookie", "own=1; Path=/")
                .header("Set-Cookie", "wide=1; Path=/; Domain=test"),
            "/robots.txt" => Reply::not_found(),
            _ => Reply::page(request.header("cookie").unwrap_or("none"), ["/next"]),
        });
    }
    let front = crawl(&site, [site.url("a.one.test", "/")], as_is);
    let title = front.records.at(&site.url("a.one.test", "/next")).title().to_owned();
    assert!(title.contains("site=1") && title.contains("own=1") && !title.contains("wide"), "{title}");

    let site_two =
        [site.url("a.one.test", "/"), site.url("b.one.test", "/next"), site.url("a.two.test", "/next")];
    let all = crawl(&site, site_two, |job| {
        // One after the other, so that the cookie is there before the second host is asked.
        job.set("--concurrency", "1");
    });
    assert_eq!(all.records.at(&site.url("a.two.test", "/next")).title(), "none");
    let other = all.records.at(&site.url("b.one.test", "/next")).title().to_owned();
    assert!(["none", "site=1"].contains(&other.as_str()), "{other}");
}

#[test]
fn redirects_and_errors_have_records_too() {
    let site = Site::start();
    site.host("a.test", |request: &Request| match request.path.as_str() {
        "/" => Reply::page("Front", ["/moved", "/gone", "/broken", "/image"]),
        "/moved" => Reply::redirect(301, "/there"),
        "/there" => Reply::page("There", [""; 0]),
        "/gone" => Reply::page("Gone", [""; 0]).code(410),
        "/broken" => Reply::page("Broken", [""; 0]).code(500),
        "/image" => Reply::with("image/png", b"\x89PNG\r\n\x1a\n".as_slice()),
        _ => Reply::not_found(),
    });
    let done = crawl(&site, [site.url("a.test", "/")], as_is);
    let at = |path: &str| done.records.at(&site.url("a.test", path)).clone();
    assert_eq!(done.records.len(), 6);
    assert_eq!((at("/moved").status(), at("/moved").outcome()), (Some(301), "redirected"));
    assert_eq!((at("/there").status(), at("/there").title()), (Some(200), "There"));
    assert_eq!(at("/gone").status(), Some(410));
    assert_eq!(at("/broken").status(), Some(500));
    assert_eq!(site.log().hits("a.test", "/gone"), 1, "410 is final");
    assert_eq!(site.log().hits("a.test", "/broken"), 2, "500 is tried again");
    assert_eq!((at("/image").status(), at("/image").text("content_type")), (Some(200), "image/png"));
}

#[test]
fn an_archive_has_every_exchange_once() {
    let site = Site::start();
    let web = mini::one_host(&site, 4, 60, Duration::ZERO);
    let done = crawl(&site, [site.url(&web.hosts()[0], "/")], |job| {
        job.flag("--warc").set("--per-host", "4");
    });
    let archive = warc::read(&done.job.out()).unwrap();
    let violations = warc::violations(&archive, &done.records);
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(archive.iter().any(|record| record.kind() == "warcinfo"));
    let index = std::fs::read_to_string(done.job.out().join("warc/index.cdxj")).unwrap();
    assert!(index.lines().filter(|line| line.contains("test,web,h0")).count() >= 60, "{index}");
}

#[test]
fn one_url_can_be_looked_at() {
    let site = Site::start();
    site.host("a.test", |request: &Request| match request.path.as_str() {
        "/" => Reply::redirect(302, "/there"),
        "/there" => Reply::page("There", [""; 0]).header("X-Special", "yes"),
        _ => Reply::not_found(),
    });
    let url = site.url("a.test", "/");
    let finished =
        process::run(["fetch", &url, "--resolve", "*.test=127.0.0.1", "--allow-net", "127.0.0.0/8"])
            .expect_code(0);
    let said = format!("{}{}", finished.stdout, finished.stderr).to_lowercase();
    for word in ["302", "/there", "200", "http/1.1", "x-special", "robots"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let refused = process::run(["fetch", &url, "--resolve", "*.test=127.0.0.1"]);
    assert_eq!(refused.code, Some(1), "{}", refused.story());
}

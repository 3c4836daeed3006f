//! Stopping, crashing and going on.

use std::time::Duration;

use dolomedes_tests::kill_loop::{self, Plan};
use dolomedes_tests::process::{Job, Process};
use dolomedes_tests::site::{Scope, Site};
use dolomedes_tests::wait::eventually;

use crate::mini::{self, DEADLINE};

/// Waits until the server has seen so many pages.
#[track_caller]
fn wait_for_pages(site: &Site, host: &str, pages: usize, process: &Process) {
    eventually("pages are requested", DEADLINE, || match site.log().pages(host) {
        seen if seen >= pages => Ok(()),
        seen => Err((seen, process.stderr())),
    });
}

fn slow_job(site: &Site, pages: usize) -> (Job, String) {
    let web = mini::one_host(site, 11, pages, Duration::from_millis(20));
    let host = web.hosts()[0].clone();
    let mut job = Job::new(site);
    job.seed(site.url(&host, "/")).set("--per-host", "4").flag("--warc");
    (job, host)
}

#[track_caller]
fn assert_complete(site: &Site, job: &Job, host: &str, pages: usize) {
    let records = job.records().checked();
    assert_eq!(records.pages().len(), pages);
    assert!(records.pages().iter().all(|url| url.starts_with(&site.url(host, "/"))));
    let archive = dolomedes_tests::warc::read(&job.out()).unwrap();
    let violations = dolomedes_tests::warc::violations(&archive, &records);
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn kills_lose_and_repeat_nothing() {
    let site = Site::start();
    let web = mini::one_host(&site, 10, 300, Duration::from_millis(15));
    let url = site.url(&web.hosts()[0], "/");
    let job = || {
        let mut job = Job::new(&site);
        job.seed(url.as_str()).flag("--warc").set("--concurrency", "8").set("--per-host", "8");
        job
    };
    let plan = Plan { seed: 42, kills: 5, truth: None, deadline: DEADLINE };
    let report = kill_loop::run(&plan, &site, &job(), &job()).unwrap();
    assert!(report.violations.is_empty(), "{:#}", report.json());
    assert_eq!(report.pages, web.truth(0, Scope::Host, None, |host| site.url(host, "")).len());
    assert!(report.kills >= 4, "{:#}", report.json());
}

#[test]
fn one_interrupt_stops_cleanly_and_says_how_to_go_on() {
    let site = Site::start();
    let (job, host) = slow_job(&site, 150);
    let process = job.start();
    wait_for_pages(&site, &host, 30, &process);
    process.signal("INT");
    let finished = process.wait(Duration::from_secs(30)).expect_code(130);
    let said = format!("{}{}", finished.stdout, finished.stderr);
    assert!(said.contains("same command") || said.contains("\"stopped\""), "{}", finished.story());
    // A clean stop leaves nothing in flight, so nothing is asked for twice.
    job.complete(DEADLINE);
    assert_complete(&site, &job, &host, 150);
    assert!(site.log().repeats().is_empty(), "{:?}", site.log().repeats());
}

#[test]
fn a_second_interrupt_stops_at_once_and_is_safe() {
    let site = Site::start();
    let (job, host) = slow_job(&site, 100);
    let process = job.start();
    wait_for_pages(&site, &host, 20, &process);
    process.signal("INT");
    process.signal("INT");
    let finished = process.wait(Duration::from_secs(30));
    assert_eq!(finished.code, Some(130), "{}", finished.story());
    job.complete(DEADLINE);
    assert_complete(&site, &job, &host, 100);
}

#[test]
fn a_polite_request_to_end_is_like_an_interrupt() {
    let site = Site::start();
    let (job, host) = slow_job(&site, 60);
    let process = job.start();
    wait_for_pages(&site, &host, 10, &process);
    process.signal("TERM");
    process.wait(Duration::from_secs(30)).expect_code(143);
    job.complete(DEADLINE);
    assert_complete(&site, &job, &host, 60);
}

#[test]
fn a_finished_job_says_so_and_asks_for_nothing() {
    let site = Site::start();
    let web = mini::one_host(&site, 12, 20, Duration::ZERO);
    let mut job = Job::new(&site);
    job.seed(site.url(&web.hosts()[0], "/"));
    job.complete(DEADLINE);
    let (requests, lines) = (site.log().len(), job.records());
    let again = job.complete(DEADLINE);
    assert_eq!(again.summary()["already_finished"], true, "{}", again.story());
    assert_eq!(again.number("pages"), 20);
    assert_eq!(site.log().len(), requests);
    assert_eq!(job.records().len(), lines.len());
    job.unset("--json");
    let text = job.complete(DEADLINE);
    assert!(text.stdout.contains("finished already") && text.stdout.contains("--fresh"), "{}", text.story());
}

#[test]
fn fresh_starts_over() {
    let site = Site::start();
    let web = mini::one_host(&site, 13, 20, Duration::ZERO);
    let mut job = Job::new(&site);
    job.seed(site.url(&web.hosts()[0], "/")).flag("--warc");
    job.complete(DEADLINE);
    assert_eq!(site.log().pages(&web.hosts()[0]), 20);
    job.flag("--fresh").complete(DEADLINE);
    assert_eq!(site.log().pages(&web.hosts()[0]), 40);
    assert_complete(&site, &job, &web.hosts()[0], 20);
}

#[test]
fn a_second_process_is_refused() {
    let site = Site::start();
    let (job, host) = slow_job(&site, 100);
    let first = job.start();
    wait_for_pages(&site, &host, 5, &first);
    let second = job.run(Duration::from_secs(30)).expect_code(1).says(&["data"]);
    assert!(second.stderr.contains(&first.id().to_string()), "names the other process; {}", second.story());
    first.wait(DEADLINE).expect_code(0);
    assert_complete(&site, &job, &host, 100);
}

#[test]
fn what_must_not_change_is_refused_and_what_may_change_may() {
    let site = Site::start();
    let (mut job, host) = slow_job(&site, 60);
    let process = job.start();
    wait_for_pages(&site, &host, 10, &process);
    process.kill();
    job.set("--scope", "any");
    job.run(DEADLINE).expect_code(1).says(&["--scope", "--fresh"]);
    job.unset("--scope").set("--per-host", "2").set("--concurrency", "3");
    job.complete(DEADLINE);
    assert_complete(&site, &job, &host, 60);
}

//! Jobs that a cluster crawls together: every page once, whoever dies; and steering them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dolomedes_tests::cluster::{Cluster, PATIENCE};
use dolomedes_tests::outcome::{Records, differences};
use dolomedes_tests::process::Finished;
use dolomedes_tests::site::{Scope, Site, Web, WebShape};
use dolomedes_tests::wait::eventually;
use dolomedes_tests::warc;
use serde_json::Value;

/// Longest time of a job.
const DEADLINE: Duration = Duration::from_secs(120);

/// A cluster, a site for it, and a directory for what comes of it.
struct Lab {
    cluster: Cluster,
    site: Site,
    dir: tempfile::TempDir,
}

impl Lab {
    fn new(nodes: usize) -> Self {
        let dir = tempfile::Builder::new().prefix("dolomedes-test-").tempdir().unwrap();
        Self { cluster: Cluster::start(nodes), site: Site::start(), dir }
    }

    fn web(&self, seed: u64, hosts: usize, pages: usize, think: Duration) -> Arc<Web> {
        let shape = WebShape { hosts, pages_per_host: pages, delay: think, ..WebShape::default() };
        let web = Arc::new(Web::generate(seed, &shape));
        self.site.web(&web);
        web
    }

    fn job(&self, args: &[&str]) -> Finished {
        self.cluster.command(&[&["job"], args].concat())
    }

    #[track_caller]
    fn submit(&self, name: &str, web: &Web, more: &[&str]) {
        let seeds: Vec<String> = web.hosts().iter().map(|host| self.site.url(host, "/")).collect();
        let mut args = vec!["submit", "--name", name, "--resolve", "*.test=127.0.0.1"];
        args.extend(["--allow-net", "127.0.0.0/8", "--delay", "0", "--retry-delay", "50"]);
        args.extend(more);
        args.push("--seed");
        args.extend(seeds.iter().map(String::as_str));
        self.job(&args).expect_code(0);
    }

    fn show(&self, name: &str) -> Result<Value, String> {
        let finished = self.job(&["show", name, "--json"]);
        if finished.code != Some(0) {
            return Err(finished.story());
        }
        serde_json::from_str(&finished.stdout).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn wait_for_pages(&self, name: &str, pages: u64) {
        eventually("pages are crawled", DEADLINE, || {
            let shown = self.show(name)?;
            if shown["pages"].as_u64() >= Some(pages) { Ok(()) } else { Err(format!("{shown:#}")) }
        });
    }

    #[track_caller]
    fn wait_for_state(&self, name: &str, state: &str) -> Value {
        eventually("the job is in the state", DEADLINE, || {
            let shown = self.show(name)?;
            if shown["state"] == state { Ok(shown) } else { Err(format!("{shown:#}")) }
        })
    }

    #[track_caller]
    fn export(&self, name: &str) -> (Records, PathBuf) {
        let out = self.dir.path().join(format!("out-{name}"));
        // The last records are on their way to a node's file when the job is finished already.
        eventually("every record is delivered", PATIENCE, || {
            let exported = self.job(&["export", name, "--replace", "--out", &out.display().to_string()]);
            if exported.code != Some(0) {
                return Err(exported.story());
            }
            let wanted = self.show(name)?["pages"].as_u64();
            let pages = Records::read(&out).map_err(|error| error.to_string())?.pages().len() as u64;
            if Some(pages) >= wanted { Ok(()) } else { Err(format!("{pages} of {wanted:?} pages")) }
        });
        (Records::read(&out).unwrap().checked(), out)
    }

    #[track_caller]
    fn assert_whole(&self, name: &str, web: &Web) -> PathBuf {
        let shown = self.wait_for_state(name, "finished");
        let (records, out) = self.export(name);
        assert_same(&truth(&self.site, web), &records.pages());
        assert_eq!(shown["pages"].as_u64(), Some(records.pages().len() as u64), "{shown:#}");
        out
    }
}

/// All pages of a web that can be reached from its hosts' front pages.
fn truth(site: &Site, web: &Web) -> BTreeSet<String> {
    let of = |page| web.truth(page, Scope::Host, None, |host| site.url(host, "")).into_keys();
    let fronts = web.pages().iter().enumerate().filter(|(_, page)| page.path == "/");
    fronts.flat_map(|(page, _)| of(page)).collect()
}

#[track_caller]
fn assert_same(wanted: &BTreeSet<String>, found: &BTreeSet<String>) {
    let differences = differences(wanted, found);
    assert!(differences.is_empty(), "{differences:#?}");
}

#[track_caller]
fn prints(finished: &Finished, words: &str) {
    assert!(finished.stdout.contains(words), "it does not print \"{words}\"; {}", finished.story());
}

/// Whether a node has records of a job.
fn has_records(dir: &Path) -> bool {
    let jobs = std::fs::read_dir(dir.join("jobs")).into_iter().flatten().flatten();
    jobs.map(|job| job.path().join("out/pages.jsonl"))
        .any(|file| std::fs::metadata(file).is_ok_and(|found| found.len() > 0))
}

#[test]
fn nodes_crawl_a_job_together_and_every_page_comes_out_once() {
    let lab = Lab::new(3);
    let web = lab.web(101, 12, 40, Duration::from_millis(30));
    lab.submit("docs", &web, &["--warc"]);
    let out = lab.assert_whole("docs", &web);
    let workers = lab.cluster.nodes.iter().filter(|node| has_records(node.dir())).count();
    assert!(workers > 1, "one node did it all");
    assert!(lab.site.log().repeats().is_empty(), "{:?}", lab.site.log().repeats());
    let wrong = warc::violations(&warc::read(&out).unwrap(), &Records::read(&out).unwrap());
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Submitted again it is the same job; another one cannot have its name.
    lab.submit("docs", &web, &["--warc"]);
    let other = lab.job(&["submit", "--name", "docs", "--seed", "http://other.test/"]);
    other.expect_code(1).says(&["another job"]);
    prints(&lab.job(&["list"]).expect_code(0), "docs finished");
    prints(&lab.job(&["logs", "docs"]).expect_code(0), "the job is finished");
    prints(&lab.job(&["wait", "docs"]).expect_code(0), "docs finished");
}

#[test]
fn a_job_outlives_nodes_that_die_and_come_back() {
    let mut lab = Lab::new(3);
    let web = lab.web(102, 9, 60, Duration::from_millis(20));
    lab.submit("hardy", &web, &["--concurrency", "8"]);
    for round in 0..4_u64 {
        lab.wait_for_pages("hardy", 30 + 60 * round);
        let victim = usize::try_from(round).unwrap() % 3;
        lab.cluster.kill(victim);
        lab.cluster.restart(victim);
    }
    lab.assert_whole("hardy", &web);
}

#[test]
fn what_a_lost_node_had_is_fetched_again() {
    let mut lab = Lab::new(3);
    let web = lab.web(103, 9, 40, Duration::from_millis(5));
    lab.submit("lost", &web, &["--concurrency", "8"]);
    lab.wait_for_state("lost", "finished");
    let lost = lab.cluster.nodes.iter().position(|node| has_records(node.dir())).unwrap();
    lab.cluster.kill(lost);
    let out = lab.dir.path().join("without").display().to_string();
    lab.job(&["export", "lost", "--out", &out]).expect_code(1).says(&["cluster remove"]);
    let id = lab.cluster.nodes[lost].id.to_string();
    prints(&lab.cluster.command(&["cluster", "remove", &id]).expect_code(0), "queued again");
    std::fs::remove_dir_all(lab.cluster.nodes[lost].dir()).unwrap();
    lab.cluster.nodes.remove(lost);
    lab.cluster.join();
    lab.assert_whole("lost", &web);
}

#[test]
fn jobs_pause_go_on_and_end_when_they_are_told_to() {
    let lab = Lab::new(1);
    let web = lab.web(104, 2, 300, Duration::from_millis(10));
    lab.submit("steered", &web, &["--concurrency", "4"]);
    lab.wait_for_pages("steered", 10);
    lab.job(&["pause", "steered"]).expect_code(0);
    lab.wait_for_state("steered", "paused");
    let rest = eventually("nothing is in work", PATIENCE, || {
        let shown = lab.show("steered")?;
        let idle = shown["leased"] == 0 && shown["nodes"][0]["working"] == false;
        if idle { Ok(shown) } else { Err(format!("{shown:#}")) }
    });
    lab.job(&["resume", "steered"]).expect_code(0);
    lab.wait_for_pages("steered", rest["pages"].as_u64().unwrap() + 10);
    lab.job(&["cancel", "steered"]).expect_code(0);
    lab.wait_for_state("steered", "cancelled");
    lab.job(&["resume", "steered"]).expect_code(1).says(&["cancel"]);
    lab.job(&["wait", "steered"]).expect_code(1);
    let budget = lab.web(105, 1, 50, Duration::ZERO);
    lab.submit("small", &budget, &["--max-pages", "20"]);
    let shown = lab.wait_for_state("small", "finished");
    assert_eq!((shown["pages"].as_u64(), &shown["budget_reached"]), (Some(20), &Value::Bool(true)));
}

#[test]
fn jobs_that_cannot_be_are_refused_with_their_reason() {
    let lab = Lab::new(1);
    let refused = |args: &[&str], code: i32, says: &str| {
        lab.job(&[&["submit"], args].concat()).expect_code(code).says(&[says]);
    };
    refused(&["--seed", "http://a.test/"], 2, "--name");
    refused(&["--name", "a/b", "--seed", "http://a.test/"], 2, "job's name");
    refused(&["--name", "x"], 2, "no URL");
    refused(&["--name", "x", "--seed", "ftp://a.test/"], 2, "scheme");
    refused(&["--name", "x", "--include", "(", "--seed", "http://a.test/"], 1, "include");
    refused(&["--name", "x", "--ca-file", "/nonexistent", "--seed", "http://a.test/"], 2, "--ca-file");
    let file = lab.dir.path().join("job.yaml");
    std::fs::write(&file, "name: x\nseeds: [http://a.test/]\nmax-page: 3\n").unwrap();
    refused(&["--file", &file.display().to_string()], 2, "max-pages");
    lab.job(&["show", "nothing"]).expect_code(1).says(&["no job"]);
    lab.job(&["pause", "nothing"]).expect_code(1).says(&["no job"]);
    let out = lab.dir.path().join("none").display().to_string();
    lab.job(&["export", "nothing", "--out", &out]).expect_code(1).says(&["no job"]);
}

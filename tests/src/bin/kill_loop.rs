//! `dolomedes-kill-loop`: crawls a site with the real binary, kills it again and again, and says whether anything was lost
//! or repeated. What it does is in [`dolomedes_tests::kill_loop`].
#![allow(clippy::print_stdout, reason = "its output is its result")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use dolomedes_tests::kill_loop::{self, AccessLog, Plan, Report, Server};
use dolomedes_tests::process::Job;
use dolomedes_tests::site::{Site, Web, WebShape};

/// Kills a crawl with SIGKILL at random moments, resumes it each time, and checks that nothing was lost or repeated.
///
/// Without --url it crawls a site of its own. With --url it crawls that one, and needs the access log of its nginx
/// (format combined), e.g. after `CORPUS_ACCESS_LOG=/tmp/access.log corpus/serve start`:
///
///   dolomedes-kill-loop --url http://127.0.10.4:8080/ --access-log /tmp/access.log --warc --kills 50
#[derive(Parser, Debug)]
#[command(name = "dolomedes-kill-loop")]
struct Options {
    /// How often to kill it
    #[arg(long, default_value_t = 50)]
    kills: u32,
    /// Seed of the moments, and of the own site
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Pages of the own site
    #[arg(long, default_value_t = 2000)]
    pages: usize,
    /// Milliseconds that the own site thinks about each page
    #[arg(long, default_value_t = 5)]
    think: u64,
    /// A site that is running already
    #[arg(long, requires = "access_log")]
    url: Option<String>,
    /// Access log of that site
    #[arg(long)]
    access_log: Option<PathBuf>,
    /// File of URLs that have to be found, one a line; otherwise an undisturbed crawl is made first
    #[arg(long)]
    truth: Option<PathBuf>,
    /// Requests at the same time, over all and to one host
    #[arg(long, default_value_t = 32)]
    concurrency: u32,
    /// Write and check WARC files as well
    #[arg(long)]
    warc: bool,
    /// Longest time for one run, in seconds
    #[arg(long, default_value_t = 600)]
    deadline: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Further options for the crawl, e.g. `-- --scope=domain`
    #[arg(last = true)]
    crawl: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let report = run(&options)?;
    if options.json {
        println!("{}", report.json());
    } else {
        print(&report);
    }
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn run(options: &Options) -> anyhow::Result<Report> {
    let site = Site::start();
    let shape = WebShape {
        pages_per_host: options.pages,
        delay: Duration::from_millis(options.think),
        ..WebShape::default()
    };
    let web = Arc::new(Web::generate(options.seed, &shape));
    site.web(&web);
    let access_log = options.access_log.as_deref().map(AccessLog::follow).transpose()?;
    let (server, url): (&dyn Server, String) = match (&access_log, &options.url) {
        (Some(log), Some(url)) => (log, url.clone()),
        _ => (&site, site.url(&web.hosts()[0], "/")),
    };
    let job = || {
        let mut job = Job::new(&site);
        job.seed(url.as_str());
        job.set("--concurrency", options.concurrency.to_string());
        job.set("--per-host", options.concurrency.to_string());
        // A server that is short of a core must not look like one that is broken.
        for name in ["--first-byte-timeout", "--idle-timeout", "--total-timeout"] {
            job.set(name, "60000");
        }
        if options.warc {
            job.flag("--warc");
        }
        for option in &options.crawl {
            match option.split_once('=') {
                Some((name, value)) => job.add(name, value),
                None => job.flag(option),
            };
        }
        job
    };
    let plan = Plan {
        seed: options.seed,
        kills: options.kills,
        truth: options.truth.as_ref().map(kill_loop::read_truth).transpose()?,
        deadline: Duration::from_secs(options.deadline),
    };
    kill_loop::run(&plan, server, &job(), &job())
}

fn print(report: &Report) {
    println!("{} kills in {:.1} s", report.kills, report.seconds);
    println!("{} records, {} pages, {} beyond the truth", report.records, report.pages, report.extra);
    println!(
        "{} repeated requests, {} after the worst kill; {} URLs were leased at the kills, {} at most",
        report.repeated(),
        report.repeats.iter().max().unwrap_or(&0),
        report.leased.iter().sum::<u64>(),
        report.leased.iter().max().unwrap_or(&0)
    );
    println!(
        "first new page after {} of {} restarts: worst {} ms",
        report.restart_ms.len(),
        report.kills,
        report.restart_ms.iter().max().unwrap_or(&0)
    );
    if report.violations.is_empty() {
        println!("nothing lost, nothing twice");
    } else {
        println!("{} violations:", report.violations.len());
        for violation in report.violations.iter().take(50) {
            println!("  {violation}");
        }
    }
}

//! The kill loop: crawls a site with the real binary, kills it with SIGKILL at seeded moments, starts it again each time, and
//! then compares what came out with an undisturbed crawl, and what the server saw with what the kills can excuse.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::outcome::{Records, differences};
use crate::process::Job;
use crate::site::{Random, Site};
use crate::warc;

/// How often the server is looked at while a kill is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What the server saw: moments and URLs (or paths), robots.txt left out, in order.
pub trait Server {
    /// Everything from the `from`th on.
    fn seen(&self, from: usize) -> Vec<(Instant, String)>;
}

impl Server for Site {
    fn seen(&self, from: usize) -> Vec<(Instant, String)> {
        let all = self.log().all();
        all.into_iter().filter(|seen| !seen.is_robots()).skip(from).map(|seen| (seen.at, seen.url)).collect()
    }
}

/// Follows the access log of an nginx (format `combined`, unbuffered) from its end on. The moment of a request is the one at
/// which its line was read; the URL is the path only.
#[derive(Debug)]
pub struct AccessLog {
    lines: Arc<Mutex<Vec<(Instant, String)>>>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Begins to follow.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn follow(path: &Path) -> anyhow::Result<Self> {
        let mut file =
            File::open(path).with_context(|| format!("reading the access log {}", path.display()))?;
        file.seek(SeekFrom::End(0))?;
        let (lines, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, stopped) = (Arc::clone(&lines), Arc::clone(&stop));
        let reader = std::thread::spawn(move || {
            let mut reader = BufReader::new(file);
            let mut line = String::new();
            while !stopped.load(Ordering::Relaxed) {
                match reader.read_line(&mut line) {
                    Ok(n) if n > 0 && line.ends_with('\n') => {
                        if let Some(path) = requested(&line).filter(|path| *path != "/robots.txt") {
                            kept.lock().unwrap().push((Instant::now(), path.to_owned()));
                        }
                        line.clear();
                    }
                    // The end, or the beginning of a line that goes on: what was read stays in `line`.
                    Ok(_) => sleep(LOOK_EVERY),
                    Err(_) => return,
                }
            }
        });
        Ok(Self { lines, stop, reader: Some(reader) })
    }
}

/// The path in a line of the access log.
fn requested(line: &str) -> Option<&str> {
    line.split('"').nth(1)?.split(' ').nth(1)
}

impl Server for AccessLog {
    fn seen(&self, from: usize) -> Vec<(Instant, String)> {
        self.lines.lock().unwrap().get(from..).unwrap_or_default().to_vec()
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of the moments.
    pub seed: u64,
    /// How many kills.
    pub kills: u32,
    /// URLs that have to be found; more are reported only. `None`: those of an undisturbed crawl, and exactly these.
    pub truth: Option<BTreeSet<String>>,
    /// Longest time of the undisturbed crawl, and of the last run.
    pub deadline: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Kills that hit a running crawl.
    pub kills: u32,
    /// Records at the end.
    pub records: usize,
    /// Pages (status 200) at the end.
    pub pages: usize,
    /// Pages beyond the truth.
    pub extra: usize,
    /// Requests of URLs that the server had seen before, since each kill.
    pub repeats: Vec<u64>,
    /// URLs that were leased at each kill, as the next run found them.
    pub leased: Vec<u64>,
    /// From the start after a kill to the first request of a URL that the server had not seen, in milliseconds. Starts that
    /// were killed before are left out.
    pub restart_ms: Vec<u64>,
    /// Duration of all runs together.
    pub seconds: f64,
    /// What must not be.
    pub violations: Vec<String>,
}

impl Report {
    /// All requests of URLs that the server had seen before.
    pub fn repeated(&self) -> u64 {
        self.repeats.iter().sum()
    }

    /// As one object.
    pub fn json(&self) -> Value {
        json!({
            "kills": self.kills,
            "records": self.records,
            "pages": self.pages,
            "extra": self.extra,
            "repeats": self.repeated(),
            "repeats_worst": self.repeats.iter().max(),
            "leased": self.leased.iter().sum::<u64>(),
            "leased_most": self.leased.iter().max(),
            "restart_ms_median": median(&self.restart_ms),
            "restart_ms_worst": self.restart_ms.iter().max(),
            "restarts": self.restart_ms.len(),
            "seconds": self.seconds,
            "violations": self.violations,
        })
    }
}

fn median(values: &[u64]) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// Carries it out. `reference` and `job` are the same crawl in different directories.
///
/// # Errors
/// If the crawl cannot be run at all. What it does wrong is in the report.
pub fn run(plan: &Plan, server: &dyn Server, reference: &Job, job: &Job) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let wanted = match &plan.truth {
        Some(truth) => truth.clone(),
        None => {
            let finished = reference.run(plan.deadline);
            ensure!(finished.code == Some(0), "the undisturbed crawl failed: {}", finished.story());
            Records::read(&reference.out())?.pages()
        }
    };
    let before = server.seen(0).len();
    let begun = Instant::now();
    let kills = disturb(plan, server, job, before, wanted.len(), &mut report)?;
    report.seconds = begun.elapsed().as_secs_f64();

    // An access log may be a moment late.
    sleep(Duration::from_millis(200));
    judge_requests(&server.seen(before), &kills, &mut report);
    judge_output(plan, job, &wanted, &mut report);
    Ok(report)
}

/// A kill and the start after it.
struct Kill {
    at: Instant,
    restarted: Instant,
    /// URLs that were leased then: only these may be requested again.
    leased: u64,
}

/// What a run says it found leased at its start; 0 if it was killed before it had ended these leases: then they are
/// there for the run after it.
fn found_leased(stderr: &str) -> u64 {
    let line = stderr.lines().find(|line| line.starts_with("resuming: "));
    let number = line.and_then(|line| line.rsplit(", ").next()?.strip_suffix(" were in work"));
    number.and_then(|number| number.replace(',', "").parse().ok()).unwrap_or(0)
}

/// Runs the crawl to its end with all the kills.
fn disturb(
    plan: &Plan,
    server: &dyn Server,
    job: &Job,
    before: usize,
    total: usize,
    report: &mut Report,
) -> anyhow::Result<Vec<Kill>> {
    let mut random = Random::new(plan.seed);
    let mut kills: Vec<Kill> = Vec::new();
    let mut process = job.start();
    let (mut distinct, mut looked) = (BTreeSet::new(), before);
    for n in 0..plan.kills {
        // Most kills come at a point of progress, so that they are spread over the whole crawl; every fourth comes at a
        // point of time after the start, so that recovery is hit as well.
        let by_time = random.below(4) == 0;
        let step = (total / (plan.kills as usize + 1)).max(1);
        let goal = step * (n as usize + 1) + random.below(step);
        let pause = Duration::from_micros(random.below(if by_time { 600_000 } else { 20_000 }) as u64);
        let patience = Instant::now() + plan.deadline;
        while !by_time && distinct.len() < goal && process.is_running() {
            ensure!(Instant::now() < patience, "no progress before kill {n}: {}", process.stderr());
            sleep(LOOK_EVERY);
            let news = server.seen(looked);
            looked += news.len();
            distinct.extend(news.into_iter().map(|(_, url)| url));
        }
        sleep(pause);
        if !process.is_running() {
            break;
        }
        let at = Instant::now();
        let killed = process.kill();
        if let Some(last) = kills.last_mut() {
            last.leased = found_leased(&killed.stderr);
        }
        // It may have ended by itself in the last moment.
        if killed.signal != Some(9) {
            ensure!(killed.code == Some(0), "the crawl failed: {}", killed.story());
        }
        report.kills += 1;
        process = job.start();
        kills.push(Kill { at, restarted: process.started, leased: 0 });
    }
    let finished = process.wait(plan.deadline);
    ensure!(finished.code == Some(0), "the last run failed: {}", finished.story());
    if let Some(last) = kills.last_mut() {
        last.leased = found_leased(&finished.stderr);
    }
    Ok(kills)
}

fn judge_requests(seen: &[(Instant, String)], kills: &[Kill], report: &mut Report) {
    let mut known = BTreeSet::new();
    let mut repeats = vec![0_u64; kills.len()];
    let mut unexcused = Vec::new();
    let mut first_new: BTreeMap<usize, u64> = BTreeMap::new();
    for (at, url) in seen {
        // The number of kills before it.
        let after = kills.partition_point(|kill| kill.at < *at);
        let is_new = known.insert(url.as_str());
        match (after.checked_sub(1), is_new) {
            // What arrives before the new start was sent by the old one.
            (Some(kill), true) if *at < kills[kill].restarted => {}
            (Some(kill), true) => {
                let since = at.saturating_duration_since(kills[kill].restarted);
                first_new.entry(kill).or_insert(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
            }
            (Some(kill), false) => repeats[kill] += 1,
            (None, false) => unexcused.push(url.clone()),
            (None, true) => {}
        }
    }
    report.restart_ms = first_new.into_values().collect();
    report.repeats = repeats;
    report.leased = kills.iter().map(|kill| kill.leased).collect();
    // What was leased at one kill may be requested again only after the next, so sums are compared.
    let (mut repeated, mut leased) = (0, 0);
    for (n, (repeats, kill)) in report.repeats.iter().zip(kills).enumerate() {
        (repeated, leased) = (repeated + repeats, leased + kill.leased);
        if repeated > leased {
            report.violations.push(format!(
                "{repeated} repeated requests up to kill {}, {leased} URLs were leased",
                n + 1
            ));
            break;
        }
    }
    if !unexcused.is_empty() {
        report.violations.push(format!("requested twice before any kill: {unexcused:?}"));
    }
}

fn judge_output(plan: &Plan, job: &Job, wanted: &BTreeSet<String>, report: &mut Report) {
    let records = match Records::read(&job.out()) {
        Ok(records) => records,
        Err(error) => {
            report.violations.push(format!("{error:#}"));
            return;
        }
    };
    let pages = records.pages();
    report.records = records.len();
    report.pages = pages.len();
    report.extra = pages.difference(wanted).count();
    report.violations.extend(records.violations());
    let exact = plan.truth.is_none();
    report.violations.extend(
        differences(wanted, &pages)
            .into_iter()
            .filter(|difference| exact || difference.starts_with("missing")),
    );
    if job.args().iter().any(|arg| arg == "--warc") {
        match warc::read(&job.out()) {
            Ok(warc) => report.violations.extend(warc::violations(&warc, &records)),
            Err(error) => report.violations.push(format!("{error:#}")),
        }
    }
}

/// Reads a file of URLs, one a line.
///
/// # Errors
/// If it cannot be read.
pub fn read_truth(path: &PathBuf) -> anyhow::Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(requests: &[(u64, &str)], kills: &[(u64, u64, u64)]) -> Report {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let seen: Vec<_> = requests.iter().map(|(ms, url)| (at(*ms), (*url).to_owned())).collect();
        let kill = |&(killed, started, leased)| Kill { at: at(killed), restarted: at(started), leased };
        let kills: Vec<_> = kills.iter().map(kill).collect();
        let mut report = Report::default();
        judge_requests(&seen, &kills, &mut report);
        report
    }

    #[test]
    fn repeats_belong_to_the_kill_before_them() {
        let requests = [(1, "a"), (2, "b"), (20, "b"), (25, "c"), (40, "c"), (41, "b"), (50, "d")];
        let report = judged(&requests, &[(10, 15, 1), (30, 35, 2)]);
        assert_eq!(report.repeats, [1, 2]);
        assert_eq!(report.restart_ms, [10, 15]);
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        for leased in [(0, 3), (1, 1)] {
            assert_eq!(judged(&requests, &[(10, 15, leased.0), (30, 35, leased.1)]).violations.len(), 1);
        }
        // What was leased at the first kill may come after the second.
        assert!(judged(&requests, &[(10, 15, 3), (30, 35, 0)]).violations.is_empty());
    }

    #[test]
    fn what_was_leased_is_read_from_what_the_next_run_says() {
        let said = "resuming: 1,024 pages are done, 77 URLs wait, 1,160 were in work\n5 pages, 1/s\n";
        assert_eq!(found_leased(said), 1160);
        assert_eq!(found_leased("5 pages, 1/s\n"), 0);
    }

    #[test]
    fn a_repeat_without_a_kill_has_no_excuse() {
        assert_eq!(judged(&[(1, "a"), (2, "a")], &[]).violations.len(), 1);
    }

    #[test]
    fn the_path_is_read_from_the_access_log() {
        let line =
            "127.0.0.1 - - [01/Jan/2026:00:00:00 +0000] \"GET /a/b.html HTTP/1.1\" 200 5 \"-\" \"x/1\"\n";
        assert_eq!(requested(line), Some("/a/b.html"));
        assert_eq!(requested("nonsense"), None);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        std::fs::write(&path, line).unwrap();
        let log = AccessLog::follow(&path).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        for part in [&line[..50], &line[50..]] {
            std::io::Write::write_all(&mut file, part.as_bytes()).unwrap();
        }
        let seen = crate::wait::eventually("one line", Duration::from_secs(20), || {
            let seen = log.seen(0);
            if seen.len() == 1 { Ok(seen) } else { Err(seen) }
        });
        assert_eq!(seen[0].1, "/a/b.html");
    }
}

//! Live progress on stderr: a line that is redrawn on a terminal, a plain line every few seconds in a pipe.

use std::{
    io::IsTerminal as _,
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, HumanCount, MultiProgress, ProgressBar, ProgressStyle};

use crate::crawl::{Stats, Watch};

/// How often a terminal is redrawn.
const REDRAW: Duration = Duration::from_millis(500);
/// How often a pipe gets a line.
const LINE: Duration = Duration::from_secs(5);
/// Hosts shown at most.
const HOSTS_SHOWN: usize = 8;

/// Shows the crawl until dropped or cancelled.
pub(super) async fn show(watch: Arc<Watch>, with_hosts: bool) {
    let said = watch.clone();
    let resuming = async move {
        let before = said.resumed().await;
        eprintln!(
            "resuming: {} pages are done, {} URLs wait, {} were in work",
            HumanCount(before.units),
            HumanCount(before.ready + before.delayed),
            HumanCount(before.leased),
        );
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = resuming => {}
        () = keep_showing(&watch, with_hosts) => {}
    }
}

async fn keep_showing(watch: &Watch, with_hosts: bool) {
    if std::io::stderr().is_terminal() {
        redraw(watch, with_hosts).await
    } else {
        lines(watch, with_hosts).await
    }
}

async fn redraw(watch: &Watch, with_hosts: bool) {
    let screen = MultiProgress::new();
    let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") else { return };
    let main = screen.add(ProgressBar::new_spinner().with_style(style));
    let mut host_lines: Vec<ProgressBar> = Vec::new();
    let mut meter = Meter::new();
    let mut every = tokio::time::interval(REDRAW);
    loop {
        every.tick().await;
        main.set_message(meter.line(watch));
        main.tick();
        if with_hosts {
            let hosts = watch.hosts(HOSTS_SHOWN);
            while host_lines.len() < hosts.len() {
                let Ok(style) = ProgressStyle::with_template("  {msg}") else { return };
                host_lines.push(screen.add(ProgressBar::new_spinner().with_style(style)));
            }
            for (place, bar) in host_lines.iter().enumerate() {
                bar.set_message(hosts.get(place).cloned().unwrap_or_default());
            }
        }
    }
}

async fn lines(watch: &Watch, with_hosts: bool) {
    let mut meter = Meter::new();
    let mut every = tokio::time::interval(LINE);
    every.tick().await;
    loop {
        every.tick().await;
        eprintln!("{}", meter.line(watch));
        if with_hosts {
            watch.hosts(HOSTS_SHOWN).iter().for_each(|line| eprintln!("  {line}"));
        }
    }
}

/// Prints the state of the busiest hosts once.
pub(super) fn print_hosts(watch: &Watch) {
    watch.hosts(64).iter().for_each(|line| eprintln!("  {line}"));
}

struct Meter {
    at: Instant,
    pages: u64,
    rate: f64,
}

impl Meter {
    fn new() -> Self {
        Self { at: Instant::now(), pages: 0, rate: 0.0 }
    }

    fn line(&mut self, watch: &Watch) -> String {
        let stats = &watch.stats;
        let pages = Stats::get(&stats.pages);
        let passed = self.at.elapsed().as_secs_f64();
        if passed > 0.0 {
            let now = pages.saturating_sub(self.pages) as f64 / passed;
            // Half of the old rate keeps the figure readable without hiding a stall for long.
            self.rate = if self.pages == 0 { now } else { 0.5 * self.rate + 0.5 * now };
        }
        (self.at, self.pages) = (Instant::now(), pages);
        let counters = watch.counters();
        let errors: Vec<String> =
            stats.errors().iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        format!(
            "{} pages, {:.0}/s, {}, queue {} (+{} later), {} in flight, {} hosts{}{}",
            HumanCount(pages),
            self.rate,
            HumanBytes(Stats::get(&stats.bytes_wire)),
            HumanCount(counters.ready),
            HumanCount(counters.delayed),
            Stats::get(&stats.in_flight),
            Stats::get(&stats.hosts),
            if errors.is_empty() { "" } else { "; " },
            errors.join(", "),
        )
    }
}

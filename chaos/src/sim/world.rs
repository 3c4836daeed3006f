//! What outlives a run of the crawler: time, the disk, the web, the invariants and the story that is told of it all.

use std::collections::BTreeMap;

use dolomedes::{record::Envelope, totals::Class};
use dolomedes_raft::{
    command::{Entry, Outcome, Reply},
    stamp::Stamps,
};
use fastrand::Rng;

use super::{
    Coverage, Stop, broken,
    disk::Disk,
    log,
    plan::{Plan, Sabotage},
    web::{Expected, Web},
};
use crate::invariant::{
    Checks,
    pace::{Moment, Pace},
    records,
};

/// What clocks show at the start of the world: a day in 2027.
const EPOCH_MS: u64 = 1_800_000_000_000;
/// The longest outage.
const LONGEST_OUTAGE_MS: u64 = 20_000;
/// How far a clock is set forward at most while the power is out …
const FORWARD_MS: u64 = 2 * 3_600_000;
/// … and backward.
const BACKWARD_MS: u64 = 48 * 3_600_000;

/// See the module.
pub(super) struct World {
    /// True time in milliseconds.
    pub(super) now: u64,
    /// What the node's clock shows at true time 0.
    clock_base: u64,
    /// What this run's node stamps entries with.
    stamps: Stamps,
    /// Which run of the crawler this is.
    pub(super) run: u32,
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) sabotage: Sabotage,
    pub(super) disk: Disk,
    pub(super) web: Web,
    pub(super) truth: BTreeMap<String, Expected>,
    pub(super) checks: Checks,
    pub(super) coverage: Coverage,
    /// Whether the crawler of this run is still opening its data directory.
    pub(super) opening: bool,
    story: Vec<String>,
}

impl World {
    pub(super) fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut rng = Rng::with_seed(seed);
        let web = Web::new(rng.fork());
        let plan = Plan::new(rng.fork());
        // A lease that runs out under a request leaves the request running.
        let per_host = if plan.stalls { u32::MAX } else { plan.per_host };
        let checks = Checks { pace: Pace::new(plan.delay_ms, per_host), ..Checks::default() };
        let story = vec![format!("seed {seed}: {plan:?}")];
        Self {
            now: 0,
            clock_base: EPOCH_MS,
            stamps: Stamps::begin(0, EPOCH_MS),
            run: 0,
            rng,
            sabotage,
            disk: Disk::default(),
            truth: web.truth(),
            web,
            plan,
            checks,
            coverage: Coverage::default(),
            opening: true,
            story,
        }
    }

    /// What the node's clock shows.
    pub(super) fn clock(&self) -> u64 {
        self.clock_base + self.now
    }

    /// The stamp of an entry that is proposed now.
    pub(super) fn stamp(&self) -> u64 {
        self.stamps.at(self.clock())
    }

    /// The node leads its group, and everything that was acknowledged is applied.
    pub(super) fn begin_stamps(&mut self) -> Result<(), Stop> {
        self.stamps = Stamps::begin(log::state(&self.disk).log_time()?, self.clock());
        Ok(())
    }

    /// The true time at which the node's clock shows `clock_ms`.
    pub(super) fn true_time(&self, clock_ms: u64) -> u64 {
        clock_ms.saturating_sub(self.clock_base)
    }

    pub(super) fn moment(&self) -> Moment {
        Moment { true_ms: self.now, clock_ms: self.clock(), run: self.run }
    }

    pub(super) fn tell(&mut self, what: &str) {
        self.story.push(format!("{:>9} run {} {what}", self.now, self.run));
    }

    pub(super) fn begin_run(&mut self) {
        self.run += 1;
        self.opening = true;
        self.tell("begins");
    }

    /// Cuts the power, and gives it back after a while.
    pub(super) fn crash(&mut self) {
        let lost = self.disk.crash(&mut self.rng);
        self.checks.pace.cut();
        self.coverage.cuts += 1;
        self.coverage.cuts_in_opening += u64::from(self.opening);
        self.coverage.lost.writes += lost.writes;
        self.coverage.lost.spooled += lost.spooled;
        self.coverage.lost.delivered += lost.delivered;
        self.tell(&format!("power cut: {lost:?}"));
        self.now += self.rng.u64(1..=LONGEST_OUTAGE_MS);
        let jump = match self.rng.u8(..8) {
            0 => {
                let forward = self.rng.u64(1..=FORWARD_MS);
                self.clock_base += forward;
                format!("{forward} ms forward")
            }
            1 => {
                let backward = self.rng.u64(1..=BACKWARD_MS);
                self.clock_base -= backward;
                format!("{backward} ms backward")
            }
            _ => return,
        };
        self.coverage.clock_jumps += 1;
        self.tell(&format!("the clock was set {jump}"));
    }

    /// An entry was applied.
    pub(super) fn applied(&mut self, index: u64, entry: &Entry, replies: &[Reply]) -> Result<(), Stop> {
        let queues = log::state(&self.disk).queues()?;
        let kinds: Vec<String> = entry
            .commands
            .iter()
            .map(|command| {
                let text = format!("{command:?}");
                text.split([' ', '{']).next().unwrap_or_default().to_owned()
            })
            .collect();
        self.tell(&format!("entry {index}: {}", kinds.join(", ")));
        Ok(self.checks.applied(index, entry, replies, &queues)?)
    }

    /// The records that are delivered for good.
    pub(super) fn records(&self) -> Result<Vec<(String, Expected)>, Stop> {
        let read = |body| {
            let envelope = Envelope::decode(body)?;
            let url = String::from_utf8_lossy(&envelope.line).into_owned();
            let outcome = match (envelope.class, envelope.outcome) {
                (Class::Ok | Class::ErrorStatus, Outcome::Done { bytes, .. }) => Expected::Fetched(bytes),
                (Class::Refused, _) => Expected::Refused,
                _ => Expected::Failed,
            };
            Ok((url, outcome))
        };
        self.disk.delivered().iter().map(|record| read(&record.body)).collect()
    }

    /// Looks at what is delivered for good so far.
    pub(super) fn check_records(&self) -> Result<(), Stop> {
        records::so_far(&self.records()?, &self.truth)?;
        Ok(())
    }

    /// The node found its own data damaged, which no power cut may bring about.
    pub(super) fn damaged(&self, text: String) -> Stop {
        broken("11: damage", text)
    }

    pub(super) fn end(self) -> (Vec<String>, Coverage) {
        (self.story, self.coverage)
    }
}

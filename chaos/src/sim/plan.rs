//! What a seed decides before the crawl begins: its pace, and what will go wrong when.

use fastrand::Rng;

/// A planted bug, to see that it is caught. It lies in the simulated shell, never in the product's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    #[default]
    None,
    /// Records go to the sink once they are in the spool, before their completion was accepted.
    DeliverBeforeCompletion,
    /// Completions are handed in before their records are durable in the spool.
    CompleteBeforeSync,
    /// After a restart, completions that were spooled and never judged are not handed in again.
    NoTakeUp,
    /// The key's hold and delay are left out of completions.
    HoldNotReplicated,
}

/// When the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// After so many durable steps: between any two of them.
    AfterSteps(u64),
    /// So long after the start, whatever happens then.
    AfterMs(u64),
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) delay_ms: u64,
    pub(super) per_host: u32,
    pub(super) concurrency: usize,
    /// In the order of the runs that they end.
    pub(super) cuts: Vec<Cut>,
    /// Whether the disk sometimes hangs for longer than a lease lasts.
    pub(super) stalls: bool,
}

impl Plan {
    pub(super) fn new(mut rng: Rng) -> Self {
        let cuts = (0..rng.u32(2..=7)).map(|_| match rng.u8(..3) {
            0 => Cut::AfterMs(rng.u64(1..=40_000)),
            // Opening and taking up is only a few steps.
            1 => Cut::AfterSteps(rng.u64(0..=20)),
            _ => Cut::AfterSteps(rng.u64(0..=300)),
        });
        Self {
            cuts: cuts.collect(),
            delay_ms: [0, 200, 1_000][rng.usize(..3)],
            per_host: rng.u32(1..=3),
            concurrency: rng.usize(1..=12),
            stalls: rng.u8(..4) == 0,
        }
    }
}

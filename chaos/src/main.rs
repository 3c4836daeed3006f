//! `dolomedes-chaos`: runs simulations from seeds until one breaks a promise, and says how to see it again.

use std::{io::Write as _, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use dolomedes_chaos::sim::{self, Coverage, Sabotage};

/// Lines of a story that a failure shows, from its end.
const TAIL: usize = 40;

#[derive(Debug, Parser)]
#[command(name = "dolomedes-chaos", version, about = "Finds out whether Dolomedes keeps its promises")]
struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Simulate crawls with power cuts, one per seed; stop at the first that breaks a promise.
    Sim(SimArgs),
}

#[derive(Debug, Args)]
struct SimArgs {
    /// How many seeds.
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Tell the whole story of each seed.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let What::Sim(args) = Cli::parse().command;
    match simulate(&args, &mut std::io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nothing is left to say it to if this fails as well.
            let _ = writeln!(std::io::stderr(), "dolomedes-chaos: cannot write the report: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all promises were kept.
fn simulate(args: &SimArgs, out: &mut impl std::io::Write) -> std::io::Result<bool> {
    let mut coverage = Coverage::default();
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let ended = sim::run(seed, Sabotage::None);
        let shown = if args.verbose { ended.story.len() } else { 0 };
        for line in &ended.story[..shown] {
            writeln!(out, "{line}")?;
        }
        if let Some(violation) = ended.violation {
            let tail = ended.story.len().saturating_sub(TAIL).max(shown);
            for line in &ended.story[tail..] {
                writeln!(out, "{line}")?;
            }
            writeln!(out, "seed {seed} broke promise {}: {}", violation.promise, violation.text)?;
            writeln!(out, "again: dolomedes-chaos sim --seed {seed} --seeds 1 --verbose")?;
            return Ok(false);
        }
        coverage.add(&ended.coverage);
    }
    writeln!(out, "{} seeds kept every promise:\n{coverage}", args.seeds)?;
    Ok(true)
}

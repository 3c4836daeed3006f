//! The command line: grammar, and from errors to exit codes. What a command does is in its own file.
//!
//! Exit codes: 0 done, 1 failed (the message says how to go on), 2 wrong usage, 130 or 143 stopped by SIGINT or SIGTERM
//! (resumable).

mod bench;
mod cluster;
mod crawl;
mod fetch;
mod job;
mod lock;
mod node;
mod progress;
mod registry;
mod to;
mod token;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 130/143 stopped by SIGINT/SIGTERM (run the same command to go on).
Logs: set DOLOMEDES_LOG, e.g. DOLOMEDES_LOG=info or DOLOMEDES_LOG=dolomedes=debug.";

#[derive(Parser)]
#[command(name = "dolomedes", version, about = "A durable, resumable web crawler in one binary", after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Crawl from one or more URLs; the same command resumes after a stop or a crash
    Crawl(Box<crate::config::CrawlOptions>),
    /// Fetch one URL and show how it went: hops, protocol, TLS, timings, headers, robots verdict
    Fetch(Box<fetch::FetchArgs>),
    /// Run a node of a cluster: begin one, join one, or go on after a stop
    Node(node::NodeArgs),
    /// Look at a cluster, and change who belongs to it
    Cluster(cluster::ClusterArgs),
    /// Crawl with a cluster: submit jobs, watch and steer them, fetch their records
    Job(job::JobArgs),
    /// Hold a lock of a cluster while a command runs
    Lock(lock::LockArgs),
    /// Small values of a cluster that are changed together and can be watched
    Registry(registry::RegistryArgs),
    /// Named values of a cluster with versions
    Checkpoint(registry::CheckpointArgs),
    /// Measure how fast a cluster is
    Bench(bench::BenchArgs),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As asked.
    Done,
    /// What was asked for did not come about; said on stderr already.
    Failed,
    /// As another program, with its exit code.
    As(u8),
    /// By this signal, ready to be resumed.
    Stopped(i32),
}

/// An error in what the user wrote, as against one in carrying it out.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) anyhow::Error);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Usage {}

/// Parses the arguments, runs the command and turns the result into an exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are "errors" of kind success to clap; a closed pipe on printing them is nobody's loss.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    logging();
    let result = match cli.command {
        Command::Crawl(options) => crawl::run(*options),
        Command::Fetch(args) => fetch::run(*args),
        Command::Node(args) => node::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Job(args) => job::run(args),
        Command::Lock(args) => lock::run(args),
        Command::Registry(args) => registry::run(args),
        Command::Checkpoint(args) => registry::run_checkpoint(args),
        Command::Bench(args) => bench::run(args),
    };
    match result {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Failed) => ExitCode::from(1),
        Ok(Ending::As(code)) => ExitCode::from(code),
        Ok(Ending::Stopped(signal)) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
        Err(error) => {
            eprintln!("dolomedes: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn logging() {
    use tracing_subscriber::{EnvFilter, fmt};
    let filter =
        EnvFilter::try_from_env("DOLOMEDES_LOG").unwrap_or_else(|_| EnvFilter::new("error,openraft=off"));
    // Only fails if a subscriber is installed already, which then serves as well.
    let _ = fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

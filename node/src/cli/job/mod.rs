//! `dolomedes job …`: crawls that a cluster does together.

mod export;
mod file;
mod show;

use std::{io::Write as _, path::PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use dolomedes_netproto::wire::{Client, v1};

use super::{Ending, Usage, to::To};
use crate::config::{JobOptions, options::OrElseFrom as _};

#[derive(Args)]
pub(super) struct JobArgs {
    #[command(subcommand)]
    command: JobCommand,
}

#[derive(Subcommand)]
enum JobCommand {
    /// Create a job; the nodes begin with it at once
    Submit(Box<SubmitArgs>),
    /// All jobs and how they stand
    List {
        #[command(flatten)]
        to: To,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// State and exact numbers of a job, and which node does what
    Show {
        #[command(flatten)]
        to: To,
        /// The job
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Wait until a job ends, with a line of progress now and then
    Wait {
        #[command(flatten)]
        to: To,
        /// The job
        name: String,
        /// Print one JSON object at the end
        #[arg(long)]
        json: bool,
    },
    /// Let nothing new begin; what is in work is finished
    Pause {
        #[command(flatten)]
        to: To,
        /// The job
        name: String,
    },
    /// Go on with a paused job
    Resume {
        #[command(flatten)]
        to: To,
        /// The job
        name: String,
    },
    /// End a job for good; its records stay
    Cancel {
        #[command(flatten)]
        to: To,
        /// The job
        name: String,
    },
    /// What the nodes say about a job
    Logs {
        #[command(flatten)]
        to: To,
        /// The job
        name: String,
        /// Newest lines of each node
        #[arg(long, value_name = "N", default_value_t = 100)]
        lines: u32,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Gather the records of all nodes in OUT: the same files as `crawl` writes
    Export {
        #[command(flatten)]
        to: To,
        /// The job
        name: String,
        /// Where to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Replace what an earlier export left there
        #[arg(long)]
        replace: bool,
        /// Print one JSON object at the end
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct SubmitArgs {
    #[command(flatten)]
    to: To,
    /// The job's name: letters, digits, dots, dashes, underscores
    #[arg(long, value_name = "N")]
    name: Option<String>,
    /// Where to start: one or more http or https URLs. Without a scheme, https is assumed
    #[arg(long = "seed", value_name = "URL", num_args = 1..)]
    seeds: Vec<String>,
    /// Read the job from this YAML file: `name`, `seeds`, and the names of the flags; flags go first
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Wait until the job ends
    #[arg(long)]
    wait: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: JobOptions,
}

/// Runs the command.
pub(super) fn run(args: JobArgs) -> anyhow::Result<Ending> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(carry_out(args.command))
}

async fn carry_out(command: JobCommand) -> anyhow::Result<Ending> {
    match command {
        JobCommand::Submit(args) => submit(*args).await,
        JobCommand::List { to, json } => {
            let jobs = to.client()?.list_jobs().await?;
            say(&show::list(&jobs, json)?)
        }
        JobCommand::Show { to, name, json } => {
            let client = to.client()?;
            let shown = show::look(&client, &name).await?;
            say(&if json { show::json(&shown).to_string() } else { show::text(&shown) })
        }
        JobCommand::Wait { to, name, json } => wait(&to.client()?, &name, json).await,
        JobCommand::Pause { to, name } => set(&to, &name, v1::JobState::Paused, "paused").await,
        JobCommand::Resume { to, name } => set(&to, &name, v1::JobState::Running, "goes on").await,
        JobCommand::Cancel { to, name } => set(&to, &name, v1::JobState::Cancelled, "cancelled").await,
        JobCommand::Logs { to, name, lines, json } => {
            let lines = show::logs(&to.client()?, &name, lines, json).await?;
            if lines.is_empty() { Ok(Ending::Done) } else { say(&lines.join("\n")) }
        }
        JobCommand::Export { to, name, out, replace, json } => {
            let done = export::gather(&to.client()?, &name, &out, replace).await?;
            say(&if json { done.json().to_string() } else { done.text() })
        }
    }
}

async fn submit(args: SubmitArgs) -> anyhow::Result<Ending> {
    let SubmitArgs { to, name, seeds, file, wait: waits, json, options } = args;
    let from_file = match &file {
        Some(path) => file::read(path).map_err(Usage)?,
        None => file::JobFile::default(),
    };
    let name = name.or(from_file.name);
    let name = name.ok_or_else(|| Usage(anyhow::anyhow!("--name is missing, also in the job file")))?;
    let seeds = seeds.or_else_from(from_file.seeds);
    let mut options = options.or_else_from(from_file.options);
    let ca = match options.network.ca_file.take() {
        None => String::new(),
        Some(path) => std::fs::read_to_string(&path)
            .with_context(|| format!("--ca-file: cannot read `{}`", path.display()))
            .map_err(Usage)?,
    };
    let usage = |result: anyhow::Result<()>| result.map_err(Usage);
    usage(crate::jobs::spec::check_name(&name))?;
    let spec = crate::jobs::Spec::new(&seeds, options, ca).map_err(Usage)?;
    let request = v1::SubmitJobRequest {
        name: name.clone(),
        seeds: spec.seeds.clone(),
        options: spec.options_json()?,
        ca: spec.ca.clone(),
    };
    let client = to.client()?;
    let created = client.submit_job(request).await?;
    if waits {
        return wait(&client, &name, json).await;
    }
    say(&match (json, created) {
        (true, _) => serde_json::json!({"name": name, "created": created}).to_string(),
        (false, true) => format!("job {name} is submitted; `dolomedes job show {name}` tells how it stands"),
        (false, false) => format!("job {name} is there already; nothing has changed"),
    })
}

async fn wait(client: &Client, name: &str, json: bool) -> anyhow::Result<Ending> {
    let job = show::until_end(client, name).await?;
    let shown = show::Shown { job, nodes: Vec::new() };
    say(&if json { show::json(&shown).to_string() } else { show::text(&shown) })?;
    let finished = shown.job.state() == v1::JobState::Finished;
    Ok(if finished { Ending::Done } else { Ending::Failed })
}

async fn set(to: &To, name: &str, state: v1::JobState, said: &str) -> anyhow::Result<Ending> {
    ensure!(!name.is_empty(), Usage(anyhow::anyhow!("a job's name cannot be empty")));
    to.client()?.set_job_state(name, state).await?;
    say(&format!("job {name}: {said}"))
}

fn say(text: &str) -> anyhow::Result<Ending> {
    writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")?;
    Ok(Ending::Done)
}

//! `dolomedes lock …`: a command that runs while a lock is held, and who holds one.

use std::{ffi::OsString, io::Write as _, process::ExitStatus, time::Duration};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use dolomedes_netproto::wire::Lock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

use super::{Ending, Usage, to::To};

/// How long a command may take to end once it is told to; then it is killed.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Holds the fence in the command's environment.
const FENCE: &str = "DOLOMEDES_FENCE";

#[derive(Args)]
pub(super) struct LockArgs {
    #[command(subcommand)]
    command: LockCommand,
}

#[derive(Subcommand)]
enum LockCommand {
    /// Run a command while holding a lock; it is stopped if the lock is lost. The exit code is the command's
    Run {
        #[command(flatten)]
        to: To,
        /// Wait for the lock so long at most
        #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
        wait: u64,
        /// The lock is free again so long after this machine was heard of last
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        ttl: u64,
        /// The lock
        name: String,
        /// What to run; finds the lock's fence in DOLOMEDES_FENCE
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Who holds a lock
    Show {
        #[command(flatten)]
        to: To,
        /// The lock
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub(super) fn run(args: LockArgs) -> anyhow::Result<Ending> {
    // Two threads: the session is kept alive whatever the other does.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ending = runtime.block_on(carry_out(args.command));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ending
}

async fn carry_out(command: LockCommand) -> anyhow::Result<Ending> {
    match command {
        LockCommand::Show { to, name, json } => {
            let lock = to.client()?.describe_lock(&name).await?;
            let free = lock.fence == 0;
            let text = match (json, free) {
                (true, _) => json!({
                    "lock": name,
                    "holder": (!free).then_some(lock.holder),
                    "fence": (!free).then_some(lock.fence),
                    "waiters": lock.waiters,
                })
                .to_string(),
                (false, true) => format!("{name} is free"),
                (false, false) => format!(
                    "{name} is held by session {} under fence {}; {} wait for it",
                    lock.holder, lock.fence, lock.waiters
                ),
            };
            writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")?;
            Ok(Ending::Done)
        }
        LockCommand::Run { to, wait, ttl, name, command } => {
            ensure!((1..=86_400).contains(&ttl), Usage(anyhow::anyhow!("--ttl {ttl}: expected 1 to 86400")));
            let client = to.client()?;
            let session =
                client.open_session(Duration::from_secs(ttl)).await.context("cannot open a session")?;
            let lock = session.acquire(&name, Duration::from_secs(wait)).await?;
            let lock = lock.with_context(|| format!("`{name}` was not to be had within {wait} s"))?;
            let ending = run_under(&lock, &name, &command).await;
            // Whoever waits need not wait for the session's end. What is lost already is nobody's to give back.
            if !matches!(ending, Ok(Ending::Failed)) {
                let _ = lock.release().await;
                let _ = client.close_session(session.number()).await;
            }
            ending
        }
    }
}

async fn run_under(lock: &Lock, name: &str, words: &[OsString]) -> anyhow::Result<Ending> {
    let (program, args) = words.split_first().context("there is no command")?;
    let mut command = Command::new(program);
    command.args(args).env(FENCE, lock.fence().to_string()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot run `{}`", program.to_string_lossy()))?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let ended = tokio::select! {
        ended = child.wait() => ended.context("the command cannot be waited for")?,
        () = lock.lost() => {
            eprintln!("dolomedes: the lock `{name}` is lost; stopping the command");
            stop(&mut child).await?;
            return Ok(Ending::Failed);
        }
        _ = interrupt.recv() => stop(&mut child).await?,
        _ = terminate.recv() => stop(&mut child).await?,
    };
    Ok(Ending::As(code(ended)))
}

/// Ends a command: politely, then not.
async fn stop(child: &mut Child) -> anyhow::Result<ExitStatus> {
    // A child that has not been waited for: its number is still its own. One that has just ended needs no signal.
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(id) = id {
        let _ = kill_process(id, Signal::TERM);
    }
    match tokio::time::timeout(END_PATIENCE, child.wait()).await {
        Ok(ended) => ended.context("the command cannot be waited for"),
        Err(_) => {
            child.kill().await.context("the command cannot be killed")?;
            child.wait().await.context("the command cannot be waited for")
        }
    }
}

/// As shells have it: 128 and the signal's number for a command that a signal ended.
fn code(ended: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = ended.code().or_else(|| Some(128 + ended.signal()?)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

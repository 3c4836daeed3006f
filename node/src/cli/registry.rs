//! `dolomedes registry …` and `dolomedes checkpoint …`: small consistent values of a cluster, for scripts.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use dolomedes_netproto::wire::v1::{self, operation::Operation as Op};
use serde_json::{Value, json};

use super::{Ending, to::To};

/// Keys of one page.
const PAGE: u32 = 100;

#[derive(Args)]
pub(super) struct RegistryArgs {
    #[command(subcommand)]
    command: RegistryCommand,
}

#[derive(Subcommand)]
enum RegistryCommand {
    /// Print a key's value
    Get {
        #[command(flatten)]
        to: To,
        /// The key
        key: String,
        /// Print one JSON object with its revisions
        #[arg(long)]
        json: bool,
    },
    /// Set a key
    Set {
        #[command(flatten)]
        to: To,
        /// Only if the key has this revision; 0: only if there is none
        #[arg(long, value_name = "REVISION")]
        expect: Option<u64>,
        /// The key
        key: String,
        /// Its value
        value: String,
    },
    /// Remove a key
    Delete {
        #[command(flatten)]
        to: To,
        /// Only if the key has this revision
        #[arg(long, value_name = "REVISION")]
        expect: Option<u64>,
        /// The key
        key: String,
    },
    /// Print the keys that begin with a prefix, with their values
    List {
        #[command(flatten)]
        to: To,
        /// The prefix
        #[arg(default_value = "")]
        prefix: String,
        /// Print one JSON object per key
        #[arg(long)]
        json: bool,
    },
    /// Print every change of the keys that begin with a prefix, one JSON object per line, until stopped
    Watch {
        #[command(flatten)]
        to: To,
        /// From this revision on, instead of from now on
        #[arg(long, value_name = "REVISION", default_value_t = 0)]
        from: u64,
        /// The prefix
        #[arg(default_value = "")]
        prefix: String,
    },
}

#[derive(Args)]
pub(super) struct CheckpointArgs {
    #[command(subcommand)]
    command: CheckpointCommand,
}

#[derive(Subcommand)]
enum CheckpointCommand {
    /// Print a checkpoint's value
    Get {
        #[command(flatten)]
        to: To,
        /// Its name
        name: String,
        /// Print one JSON object with its version
        #[arg(long)]
        json: bool,
    },
    /// Set a checkpoint
    Set {
        #[command(flatten)]
        to: To,
        /// Only if it has this version; 0: only if there is none
        #[arg(long, value_name = "VERSION")]
        expect: Option<u64>,
        /// How many versions to keep
        #[arg(long, value_name = "N", default_value_t = 1)]
        keep: u32,
        /// Its name
        name: String,
        /// Its value
        value: String,
    },
    /// Print the earlier versions that are kept, one JSON object per line
    History {
        #[command(flatten)]
        to: To,
        /// Its name
        name: String,
    },
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(work)
}

fn say(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `dolomedes registry`.
pub(super) fn run(args: RegistryArgs) -> anyhow::Result<Ending> {
    block_on(registry(args.command))
}

/// Runs `dolomedes checkpoint`.
pub(super) fn run_checkpoint(args: CheckpointArgs) -> anyhow::Result<Ending> {
    block_on(checkpoint(args.command))
}

fn key(key: &v1::Key) -> Value {
    json!({
        "key": text(&key.key),
        "value": text(&key.value),
        "created": key.created,
        "revision": key.revision,
        "session": (key.session != 0).then_some(key.session),
    })
}

async fn registry(command: RegistryCommand) -> anyhow::Result<Ending> {
    match command {
        RegistryCommand::Get { to, key: name, json } => {
            let found = to.client()?.get_key(name.clone()).await?;
            let found = found.with_context(|| format!("there is no key `{name}`"))?;
            say(&if json { key(&found).to_string() } else { text(&found.value) })?;
        }
        RegistryCommand::Set { to, expect, key, value } => {
            let set = v1::SetKey { key: key.clone().into(), value: value.into(), expect, session: 0 };
            let revision = write(&to, &key, Op::Set(set)).await?;
            say(&revision.to_string())?;
        }
        RegistryCommand::Delete { to, expect, key } => {
            let delete = v1::DeleteKey { key: key.clone().into(), expect };
            if write(&to, &key, Op::Delete(delete)).await? == 0 {
                bail!("there is no key `{key}`");
            }
        }
        RegistryCommand::List { to, prefix, json } => {
            let client = to.client()?;
            let mut after = bytes::Bytes::new();
            loop {
                let request = v1::ListRequest { prefix: prefix.clone().into(), after, limit: PAGE };
                let page = client.list_keys(request).await?;
                for found in &page.keys {
                    let line = match json {
                        true => key(found).to_string(),
                        false => format!("{}\t{}", text(&found.key), text(&found.value)),
                    };
                    say(&line)?;
                }
                match page.keys.last().filter(|_| page.more) {
                    Some(last) => after = last.key.clone(),
                    None => break,
                }
            }
        }
        RegistryCommand::Watch { to, from, prefix } => {
            let mut watch = to.client()?.watch_keys(prefix, from).await?;
            loop {
                for change in watch.changes().await? {
                    let line = json!({
                        "revision": change.revision,
                        "key": text(&change.key),
                        "value": change.value.as_deref().map(text),
                    });
                    say(&line.to_string())?;
                }
            }
        }
    }
    Ok(Ending::Done)
}

/// Makes one change; returns its revision.
async fn write(to: &To, key: &str, operation: Op) -> anyhow::Result<u64> {
    let operation = v1::Operation { operation: Some(operation) };
    let reply = to.client()?.txn(Vec::new(), vec![operation]).await?;
    match reply.revisions.first() {
        Some(revision) if reply.written => Ok(*revision),
        _ if reply.found == 0 => bail!("there is no key `{key}`"),
        _ => bail!("`{key}` has revision {}", reply.found),
    }
}

async fn checkpoint(command: CheckpointCommand) -> anyhow::Result<Ending> {
    match command {
        CheckpointCommand::Get { to, name, json } => {
            let found = to.client()?.get_checkpoint(&name).await?;
            if found.version == 0 {
                bail!("there is no checkpoint `{name}`");
            }
            let value = text(&found.value);
            say(&if json {
                json!({"name": name, "version": found.version, "oldest": found.oldest, "value": value})
                    .to_string()
            } else {
                value
            })?;
        }
        CheckpointCommand::Set { to, expect, keep, name, value } => {
            let reply = to.client()?.set_checkpoint(&name, Some(value.into()), expect, keep, None).await?;
            if !reply.written {
                bail!("`{name}` has version {}", reply.version);
            }
            say(&reply.version.to_string())?;
        }
        CheckpointCommand::History { to, name } => {
            let client = to.client()?;
            let mut after = 0;
            loop {
                let page = client.checkpoint_history(&name, after).await?;
                for past in &page {
                    say(&json!({"version": past.version, "value": text(&past.value)}).to_string())?;
                }
                match page.last() {
                    Some(last) => after = last.version,
                    None => break,
                }
            }
        }
    }
    Ok(Ending::Done)
}

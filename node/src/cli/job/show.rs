//! Showing jobs: as text for people, as JSON for scripts.

use std::{fmt::Write as _, time::Duration};

use dolomedes_netproto::wire::{Client, v1};
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use crate::record::rfc3339_ms;

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Nodes that were silent so long are not asked.
const SILENT_MS: u64 = 3_000;
/// How often a line is printed.
const LINE: Duration = Duration::from_secs(5);

/// A job, and what each node does for it.
pub(super) struct Shown {
    pub job: v1::Job,
    pub nodes: Vec<(u64, Result<v1::JobOnNodeReply, String>)>,
}

/// Looks a job up, on all nodes.
pub(super) async fn look(client: &Client, name: &str) -> anyhow::Result<Shown> {
    let job = client.show_job(name).await?;
    Ok(Shown { job, nodes: on_nodes(client, name, 0).await? })
}

async fn on_nodes(
    client: &Client,
    name: &str,
    lines: u32,
) -> anyhow::Result<Vec<(u64, Result<v1::JobOnNodeReply, String>)>> {
    let nodes = client.status().await?.nodes;
    let asked = nodes.into_iter().map(|node| async move {
        if node.silent_ms > SILENT_MS {
            return (node.id, Err(format!("not heard of for {} s", node.silent_ms / 1_000)));
        }
        let reply = client.job_on_node(name, node.id, lines).await;
        (node.id, reply.map_err(|error| error.to_string()))
    });
    Ok(futures_util::future::join_all(asked).await)
}

/// Waits for the end of a job, and prints a line on stderr now and then.
pub(super) async fn until_end(client: &Client, name: &str) -> anyhow::Result<v1::Job> {
    let mut said = tokio::time::Instant::now();
    loop {
        let job = client.show_job(name).await?;
        if matches!(job.state(), v1::JobState::Finished | v1::JobState::Cancelled) {
            return Ok(job);
        }
        if said.elapsed() >= LINE {
            said = tokio::time::Instant::now();
            eprintln!("{}", line(&job));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn state(job: &v1::Job) -> &'static str {
    match job.state() {
        v1::JobState::Running => "running",
        v1::JobState::Paused => "paused",
        v1::JobState::Finished => "finished",
        v1::JobState::Cancelled => "cancelled",
        v1::JobState::Unspecified => "unknown",
    }
}

fn line(job: &v1::Job) -> String {
    let counts = job.counts.unwrap_or_default();
    format!(
        "{} {}: {} pages, {}, {} URLs known, {} wait, {} in work, {} given up, {} hosts",
        job.name,
        state(job),
        HumanCount(counts.pages),
        HumanBytes(counts.bytes),
        HumanCount(counts.urls),
        HumanCount(counts.ready + counts.delayed),
        HumanCount(counts.leased),
        HumanCount(counts.dead),
        HumanCount(counts.hosts),
    )
}

pub(super) fn text(shown: &Shown) -> String {
    let mut text = line(&shown.job);
    if shown.job.budget_reached {
        text.push_str("; a budget is used up");
    }
    for (node, reply) in &shown.nodes {
        // Writing to a string cannot fail.
        let _ = match reply {
            Ok(reply) if !reply.trouble.is_empty() => {
                write!(text, "\n  node {node}: trouble: {}", reply.trouble)
            }
            Ok(reply) if reply.working => write!(
                text,
                "\n  node {node}: {} pages, {} hosts, {} requests under way",
                HumanCount(reply.pages),
                reply.hosts,
                reply.in_flight
            ),
            Ok(_) => write!(text, "\n  node {node}: does nothing for it"),
            Err(error) => write!(text, "\n  node {node}: {error}"),
        };
    }
    text
}

pub(super) fn json(shown: &Shown) -> Value {
    let v1::Job { name, budget_reached, counts, group, seeds, options, .. } = &shown.job;
    let counts = counts.unwrap_or_default();
    let nodes: Vec<Value> = shown
        .nodes
        .iter()
        .map(|(node, reply)| match reply {
            Ok(reply) => json!({
                "node": node, "working": reply.working, "pages": reply.pages, "hosts": reply.hosts,
                "in_flight": reply.in_flight,
                "trouble": (!reply.trouble.is_empty()).then_some(&reply.trouble),
            }),
            Err(error) => json!({"node": node, "error": error}),
        })
        .collect();
    json!({
        "name": name,
        "state": state(&shown.job),
        "budget_reached": budget_reached,
        "pages": counts.pages,
        "bytes": counts.bytes,
        "urls": counts.urls,
        "ready": counts.ready,
        "delayed": counts.delayed,
        "leased": counts.leased,
        "done": counts.done,
        "dead": counts.dead,
        "retries": counts.retries,
        "lost": counts.lost,
        "hosts": counts.hosts,
        "hosts_leased": counts.hosts_leased,
        "group": group,
        "seeds": seeds,
        "options": serde_json::from_str(options).unwrap_or(Value::Null),
        "nodes": nodes,
    })
}

pub(super) fn list(jobs: &[v1::Job], as_json: bool) -> anyhow::Result<String> {
    if as_json {
        let jobs: Vec<Value> =
            jobs.iter().map(|job| json(&Shown { job: job.clone(), nodes: Vec::new() })).collect();
        return Ok(serde_json::to_string(&jobs)?);
    }
    Ok(match jobs {
        [] => "there are no jobs".to_owned(),
        jobs => jobs.iter().map(line).collect::<Vec<_>>().join("\n"),
    })
}

/// The lines of all nodes, in the order of their time.
pub(super) async fn logs(
    client: &Client,
    name: &str,
    lines: u32,
    as_json: bool,
) -> anyhow::Result<Vec<String>> {
    client.show_job(name).await?;
    let mut all = Vec::new();
    for (node, reply) in on_nodes(client, name, lines).await? {
        match reply {
            Ok(reply) => all.extend(reply.log.into_iter().map(|line| (line.at_ms, node, line.text))),
            Err(error) => eprintln!("node {node}: {error}"),
        }
    }
    all.sort();
    let print = |(at, node, text): (u64, u64, String)| {
        let at = rfc3339_ms(at);
        if as_json {
            json!({"at": at, "node": node, "text": text}).to_string()
        } else {
            format!("{at} node {node}: {text}")
        }
    };
    Ok(all.into_iter().map(print).collect())
}

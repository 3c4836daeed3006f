//! `dolomedes cluster …`: looking at a cluster and changing who belongs to it, through any member.

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dolomedes_netproto::wire::v1;
use serde_json::{Value, json};

use super::{
    Ending,
    to::To,
    token::{self, TokenCommand},
};

#[derive(Args)]
pub(super) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand)]
enum ClusterCommand {
    /// Nodes with their roles, groups with their leaders and how far everybody is
    Status {
        #[command(flatten)]
        to: To,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Take a node out for good; it stops, and its number is never given again
    Remove {
        #[command(flatten)]
        to: To,
        /// The node's number
        node: u64,
    },
    /// Give a node's votes and leaderships to others, before it is stopped for long
    Drain {
        #[command(flatten)]
        to: To,
        /// The node's number
        node: u64,
        /// Let it vote and lead again
        #[arg(long)]
        undo: bool,
    },
    /// Let another voter lead a group
    Transfer {
        #[command(flatten)]
        to: To,
        /// The group
        group: u32,
        /// The number of the node that shall lead it
        node: u64,
    },
    /// Let nodes join and programs in, and shut them out again
    #[command(subcommand)]
    Token(TokenCommand),
}

/// Runs the command.
pub(super) fn run(args: ClusterArgs) -> anyhow::Result<Ending> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(carry_out(args.command))
}

async fn carry_out(command: ClusterCommand) -> anyhow::Result<Ending> {
    let said = match command {
        ClusterCommand::Status { to, json } => {
            let status = to.client()?.status().await?;
            if json { serde_json::to_string(&as_json(&status))? } else { as_text(&status) }
        }
        ClusterCommand::Remove { to, node } => {
            let recalled = to.client()?.remove_node(node).await?;
            let again = match recalled {
                0 => String::new(),
                pages => format!("; {pages} URLs whose records only it had are queued again"),
            };
            format!("node {node} is removed; the groups that it was in are being changed{again}")
        }
        ClusterCommand::Drain { to, node, undo } => {
            to.client()?.drain_node(node, undo).await?;
            match undo {
                false => format!("node {node} gives its votes and leaderships away"),
                true => format!("node {node} may vote and lead again"),
            }
        }
        ClusterCommand::Transfer { to, group, node } => {
            to.client()?.transfer_leader(group, node).await?;
            format!("node {node} leads group {group}")
        }
        ClusterCommand::Token(command) => token::carry_out(command).await?,
    };
    writeln!(std::io::stdout(), "{said}").context("cannot write to standard output")?;
    Ok(Ending::Done)
}

fn role(node: &v1::Node) -> &'static str {
    match node.role() {
        v1::Role::Voter => "voter",
        v1::Role::Learner => "learner",
        v1::Role::Worker => "worker",
        v1::Role::Unspecified => "unknown",
    }
}

fn as_json(status: &v1::StatusReply) -> Value {
    let nodes: Vec<Value> = status
        .nodes
        .iter()
        .map(|node| {
            json!({
                "id": node.id,
                "address": node.address,
                "role": role(node),
                "version": node.version,
                "silent_ms": node.silent_ms,
                "draining": node.draining,
            })
        })
        .collect();
    let groups: Vec<Value> = status
        .groups
        .iter()
        .map(|group| {
            let members: Vec<Value> = group
                .members
                .iter()
                .map(|member| json!({"node": member.node, "votes": member.votes, "behind": member.behind}))
                .collect();
            json!({
                "group": group.group,
                "leader": (group.leader != 0).then_some(group.leader),
                "term": group.term,
                "last_index": group.last_index,
                "applied_index": group.applied_index,
                "members": members,
            })
        })
        .collect();
    json!({"cluster": status.cluster, "answered_by": status.answered_by, "nodes": nodes, "groups": groups})
}

fn as_text(status: &v1::StatusReply) -> String {
    let mut lines = vec![format!("cluster {}", status.cluster)];
    for node in &status.nodes {
        let leads: Vec<String> = status
            .groups
            .iter()
            .filter(|group| group.leader == node.id)
            .map(|group| group.group.to_string())
            .collect();
        lines.push(format!(
            "  node {:<6} {:<8} {:<24} {}{}{}",
            node.id,
            role(node),
            node.address,
            if leads.is_empty() { String::new() } else { format!("leads {} ", leads.join(", ")) },
            if node.draining { "draining " } else { "" },
            if node.silent_ms > 2_000 {
                format!("silent for {} s", node.silent_ms / 1_000)
            } else {
                String::new()
            },
        ));
    }
    for group in &status.groups {
        let behind: Vec<String> = group
            .members
            .iter()
            .filter(|member| member.node != group.leader)
            .map(|member| format!("node {} {} behind", member.node, member.behind))
            .collect();
        let leader = match group.leader {
            0 => "no leader".to_owned(),
            leader => format!("led by node {leader}, entry {}", group.last_index),
        };
        lines.push(format!("  group {:<3} {leader}; {}", group.group, behind.join(", ")));
    }
    lines.join("\n")
}

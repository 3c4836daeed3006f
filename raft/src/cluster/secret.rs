//! The secret that the members of group 0 share: whatever their leader needs so that it can let new nodes in. It is kept
//! on their disks and goes from one to another over their own connections, never through the log, which is copied, kept
//! and shown in too many places. What the secret is, is not known here.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    node::{META, Shared},
    presence,
    wire::{Answer, Ask},
};

/// How often a member that has no secret looks for one.
const EVERY: Duration = Duration::from_millis(250);

/// Keeps the secret of a cluster on a node's disk.
pub trait SecretKeeper: Send + Sync + 'static {
    /// The secret, if this node has it.
    fn secret(&self) -> Option<Bytes>;

    /// Keeps it, durably. May block.
    ///
    /// # Errors
    /// If it is not this cluster's secret, or cannot be written.
    fn keep(&self, secret: &[u8]) -> Result<(), String>;
}

/// A secret on its way; shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) Bytes);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Gives the secret to a node that votes in group 0 or is about to.
pub(super) fn hand_over(shared: &Shared, to: u64) -> Result<Secret, String> {
    let keeper = shared.options.secret.as_ref().ok_or("this cluster has no secret")?;
    if !is_member(shared, to) {
        return Err(format!(
            "node {to} is no member of group {META}, as far as node {} knows",
            shared.number
        ));
    }
    keeper.secret().map(Secret).ok_or_else(|| format!("node {} has no secret either", shared.number))
}

/// Gets the secret from another member once this node is one, and then ends.
pub(super) async fn fetch(shared: Arc<Shared>) {
    let Some(keeper) = shared.options.secret.clone() else { return };
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut turn = 0_usize;
    loop {
        every.tick().await;
        if keeper.secret().is_some() {
            return;
        }
        if !is_member(&shared, shared.number) {
            continue;
        }
        let mut others: Vec<u64> = members(&shared).filter(|node| *node != shared.number).collect();
        // The leader has been a voter for longest, most likely.
        let leader = shared.leader(META);
        others.sort_unstable_by_key(|node| (Some(*node) != leader, *node));
        let Some(&from) = others.get(turn % others.len().max(1)) else { continue };
        turn = turn.wrapping_add(1);
        match presence::ask(&shared, from, Ask::Secret).await {
            Ok(Answer::Secret(Secret(secret))) => {
                let keeper = keeper.clone();
                match tokio::task::spawn_blocking(move || keeper.keep(&secret)).await {
                    Ok(Ok(())) => return,
                    Ok(Err(reason)) => {
                        tracing::error!(from, reason, "the cluster's secret cannot be kept");
                    }
                    Err(_) => return,
                }
            }
            Ok(_) => tracing::warn!(from, "another answer than the cluster's secret"),
            Err(error) => tracing::debug!(%error, "no secret yet"),
        }
    }
}

fn is_member(shared: &Shared, node: u64) -> bool {
    members(shared).any(|member| member == node)
}

/// Voters and learners of group 0, as this node knows them.
fn members(shared: &Shared) -> impl Iterator<Item = u64> + use<> {
    let metrics = shared.meta().map(|meta| meta.metrics());
    metrics.into_iter().flat_map(|metrics| metrics.voters.into_iter().chain(metrics.learners))
}

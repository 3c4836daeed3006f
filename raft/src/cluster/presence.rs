//! Who is there. Every node tells the leader of group 0 twice a second that it is; the leader remembers when it heard of
//! whom, and says where everybody is reached. A node that hears that it was removed stops.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dolomedes_netproto::peer::{Lane, PeerError, Transport};
use tokio::time::Instant;

use super::{
    controller,
    node::{META, Shared},
    secret,
    wire::{self, Answer, Ask},
};
use crate::command::{Command, Reply};

/// How often a node tells that it is there.
const EVERY: Duration = Duration::from_millis(500);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How a refusal of a removed node begins, so that the node understands it.
pub(super) const REMOVED: &str = "removed from the cluster: node ";

/// When which node was heard of last.
#[derive(Debug)]
pub(super) struct Heard {
    since: Mutex<Instant>,
    nodes: Mutex<HashMap<u64, Instant>>,
}

impl Default for Heard {
    fn default() -> Self {
        Self { since: Mutex::new(Instant::now()), nodes: Mutex::default() }
    }
}

impl Heard {
    /// Begins to count: who was not heard of before is not blamed for that.
    pub(super) fn begin(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn note(&self, node: u64) {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(node, Instant::now());
    }

    /// How long nothing was heard of `node`.
    pub(super) fn silent(&self, node: u64) -> Duration {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&node).copied().unwrap_or(since).max(since).elapsed()
    }

    /// Forgets who is no member.
    pub(super) fn keep(&self, members: &BTreeMap<u64, String>) {
        self.nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|node, _| members.contains_key(node));
    }
}

/// Tells the leader of group 0 again and again that this node is there.
pub(super) async fn tell(shared: Arc<Shared>) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Whom to ask, if nobody is known to lead.
    let mut turn = 0_usize;
    loop {
        every.tick().await;
        // A voter or learner knows the members from its own rows.
        if let Err(error) = refresh(&shared).await {
            tracing::warn!(%error, "the nodes cannot be read");
        }
        let leader = shared.leader(META);
        if leader == Some(shared.number) {
            continue;
        }
        let members: Vec<u64> = {
            let directory = shared.directory();
            directory.keys().copied().filter(|node| *node != shared.number).collect()
        };
        let Some(to) = leader.or_else(|| members.get(turn % members.len().max(1)).copied()) else { continue };
        match ask(&shared, to, Ask::Presence { address: shared.advertise() }).await {
            Ok(Answer::Known { leader, nodes, leaders: all }) => {
                let mut leaders = shared.leaders.lock().unwrap_or_else(PoisonError::into_inner);
                if !nodes.is_empty() {
                    *leaders = all;
                }
                match leader {
                    Some(leader) => leaders.insert(META, leader),
                    None => leaders.remove(&META),
                };
                drop(leaders);
                if !nodes.is_empty() {
                    shared.set_directory(nodes);
                }
            }
            Ok(_) => turn += 1,
            Err(PeerError::Refused { detail, .. }) if detail.contains(REMOVED) => {
                let reason = format!(
                    "node {} was removed from the cluster; to join again, begin with an empty data directory",
                    shared.number
                );
                shared.dismissed.send_replace(Some(reason));
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "no answer to a sign of life");
                shared.leaders.lock().unwrap_or_else(PoisonError::into_inner).remove(&META);
                turn += 1;
            }
        }
    }
}

async fn refresh(shared: &Arc<Shared>) -> dolomedes_storage::Result<()> {
    let shared = shared.clone();
    let reading = tokio::task::spawn_blocking(move || shared.refresh_from_rows().map(drop));
    reading.await.unwrap_or(Ok(()))
}

/// Notes that a node is reached elsewhere now.
pub(super) async fn move_to(shared: &Shared, node: u64, address: String) -> Result<(), String> {
    let meta = shared.meta().ok_or("group 0 is not on this node")?;
    let moved = Command::SetNode { node, address: Some(address), version: None, wish: None };
    match meta.submit(moved).await {
        Ok(Reply::Refused(refusal)) => Err(refusal.to_string()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Asks a node.
pub(super) async fn ask(shared: &Shared, to: u64, ask: Ask) -> Result<Answer, PeerError> {
    ask_within(shared, to, ask, PATIENCE).await
}

/// Asks a node, and waits so long for its answer.
pub(super) async fn ask_within(
    shared: &Shared,
    to: u64,
    ask: Ask,
    patience: Duration,
) -> Result<Answer, PeerError> {
    let answer = shared.peers.call(to, Lane::Control, wire::encode_ask(&ask), patience).await?;
    wire::decode_answer(&answer).map_err(|error| PeerError::Lost { node: to, detail: error.to_string() })
}

/// Answers a node.
pub(super) async fn answer(shared: &Arc<Shared>, from: u64, ask: Ask) -> Result<Answer, String> {
    match ask {
        Ask::Presence { address } => {
            shared.heard.note(from);
            let leader = shared.leader(META);
            let leads = leader == Some(shared.number);
            let nodes = if leads { shared.directory().clone() } else { BTreeMap::new() };
            if leads && !nodes.contains_key(&from) {
                return Err(format!("node {from} is not known to the cluster"));
            }
            if leads && nodes.get(&from) != Some(&address) {
                move_to(shared, from, address).await?;
            }
            let leaders = if leads {
                shared.leaders.lock().unwrap_or_else(PoisonError::into_inner).clone()
            } else {
                BTreeMap::new()
            };
            Ok(Answer::Known { leader, nodes, leaders })
        }
        Ask::Picture => Ok(Answer::Picture(controller::own_groups(shared))),
        Ask::Group { group, question } => {
            let told = match shared.groups.get(&group) {
                Some(group) => question.answer(group).await,
                None => return Err(format!("there is no group {group} here")),
            };
            Ok(Answer::Group(told))
        }
        Ask::Secret => secret::hand_over(shared, from).map(Answer::Secret),
        Ask::Carry(step) => controller::carry_here(shared, step).await.map(|()| Answer::Carried),
    }
}

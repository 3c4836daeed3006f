//! Takes the pictures that [`super::plan`] wants to see, and carries its steps out. Runs on every node and does something
//! on the one that leads group 0.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::{
    node::{META, Shared},
    plan::{self, GroupState, NodeState, Step},
    presence,
    wire::{Answer, Ask},
};
use crate::{command::NodeWish, machine::read::NodeInfo};

/// How often the controller looks.
const EVERY: Duration = Duration::from_millis(250);

pub(super) async fn run(shared: Arc<Shared>) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut led = false;
    loop {
        every.tick().await;
        let leads = shared.leader(META) == Some(shared.number);
        if leads && !led {
            shared.heard.begin();
        }
        if led && !leads {
            shared.picture.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        led = leads;
        if !leads {
            continue;
        }
        let reading = shared.clone();
        let nodes = match tokio::task::spawn_blocking(move || reading.refresh_from_rows()).await {
            Ok(Ok(nodes)) => nodes,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the nodes cannot be read");
                continue;
            }
            Err(_) => return,
        };
        let advertise = shared.advertise();
        let own = nodes.iter().find(|node| node.node == shared.number);
        if own.is_some_and(|own| own.address != advertise)
            && let Err(reason) = presence::move_to(&shared, shared.number, advertise).await
        {
            tracing::info!(reason, "this node's new address is not noted yet");
        }
        shared.heard.keep(&shared.directory());
        let groups = picture(&shared, &nodes).await;
        let states = states(&shared, &nodes, &groups);
        *shared.picture.lock().unwrap_or_else(PoisonError::into_inner) = groups.clone();
        if let Some(step) = plan::next_step(&states, &groups, &shared.options.plan) {
            tracing::info!(?step, "changing a membership");
            if let Err(reason) = carry(&shared, step.clone()).await {
                // It is planned anew from what is then seen.
                tracing::info!(?step, reason, "a step was not carried out");
            }
        }
    }
}

/// The groups that this node leads, as it sees them.
pub(super) fn own_groups(shared: &Shared) -> BTreeMap<u32, GroupState> {
    let mut seen = BTreeMap::new();
    for (&number, group) in &shared.groups {
        let metrics = group.metrics();
        if !metrics.leads {
            continue;
        }
        let last = metrics.last.unwrap_or(0);
        let mut state = GroupState {
            joint: metrics.joint,
            leader: Some(shared.number),
            term: metrics.term,
            last,
            applied: metrics.applied.unwrap_or(0),
            ..GroupState::default()
        };
        for (&node, follower) in &metrics.followers {
            if let Some(matched) = follower.matched {
                state.behind.insert(node, last.saturating_sub(matched));
            }
            if let Some(answered) = follower.answered {
                state.silent_ms.insert(node, millis(answered));
            }
        }
        state.behind.insert(shared.number, 0);
        state.silent_ms.insert(shared.number, 0);
        state.voters = metrics.voters;
        state.learners = metrics.learners;
        seen.insert(number, state);
    }
    seen
}

/// All groups: those led here, and those that others say they lead. Of a group that nobody says to lead, nothing is known.
async fn picture(shared: &Arc<Shared>, nodes: &[NodeInfo]) -> BTreeMap<u32, GroupState> {
    let mut groups = own_groups(shared);
    if groups.len() < shared.groups.len() {
        let others = nodes.iter().filter(|node| node.node != shared.number);
        let asked = others.map(|node| async move { presence::ask(shared, node.node, Ask::Picture).await });
        for answer in futures_util::future::join_all(asked).await {
            let Ok(Answer::Picture(theirs)) = answer else { continue };
            for (number, state) in theirs {
                // A deposed leader may not know it yet.
                let newer = groups.get(&number).is_none_or(|known: &GroupState| known.term < state.term);
                if newer {
                    groups.insert(number, state);
                }
            }
        }
    }
    let mut leaders = shared.leaders.lock().unwrap_or_else(PoisonError::into_inner);
    leaders.clear();
    leaders.extend(groups.iter().filter_map(|(group, state)| Some((*group, state.leader?))));
    drop(leaders);
    for &group in shared.groups.keys() {
        groups.entry(group).or_default();
    }
    groups
}

fn states(
    shared: &Shared,
    nodes: &[NodeInfo],
    groups: &BTreeMap<u32, GroupState>,
) -> BTreeMap<u64, NodeState> {
    let mut states: BTreeMap<u64, NodeState> = nodes
        .iter()
        .map(|node| {
            // Either way of hearing of it is good enough.
            let answered = groups.values().filter_map(|group| group.silent_ms.get(&node.node)).min().copied();
            let told = millis(shared.silent(node.node));
            let silent_ms = answered.map_or(told, |answered| answered.min(told));
            let leaving = matches!(node.wish, NodeWish::Drain | NodeWish::Worker);
            (node.node, NodeState { silent_ms, leaving })
        })
        .collect();
    // Whoever votes without being listed has to go.
    for voter in groups.values().flat_map(|group| group.voters.iter().chain(&group.learners)) {
        states.entry(*voter).or_insert(NodeState { silent_ms: u64::MAX, leaving: true });
    }
    states
}

/// Has a step carried out by the leader of its group.
pub(super) async fn carry(shared: &Arc<Shared>, step: Step) -> Result<(), String> {
    let group = group_of(&step);
    match shared.leader(group) {
        Some(leader) if leader == shared.number => carry_here(shared, step).await,
        Some(leader) => match presence::ask(shared, leader, Ask::Carry(step)).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        None => Err(format!("group {group} has no leader that is known here")),
    }
}

/// Carries a step out, as the leader of its group.
pub(super) async fn carry_here(shared: &Shared, step: Step) -> Result<(), String> {
    let number = group_of(&step);
    let group = shared.groups.get(&number).ok_or_else(|| format!("there is no group {number} here"))?;
    let done = match step {
        Step::FinishChange { .. } => group.finish_joint().await,
        Step::AddLearner { node, .. } => group.add_learner(node).await,
        Step::ChangeVoters { voters, .. } => group.change_voters(voters, None).await,
        Step::RemoveLearner { node, .. } => group.remove(node).await,
        Step::MoveLeader { to, .. } => group.transfer_leadership(to).await,
    };
    done.map_err(|error| error.to_string())
}

fn group_of(step: &Step) -> u32 {
    match step {
        Step::FinishChange { group }
        | Step::AddLearner { group, .. }
        | Step::ChangeVoters { group, .. }
        | Step::RemoveLearner { group, .. }
        | Step::MoveLeader { group, .. } => *group,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

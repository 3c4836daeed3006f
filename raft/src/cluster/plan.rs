//! What has to change next in the memberships of a cluster's groups. A core: it is shown the nodes, the groups and what
//! people wish, and names one step or none. Who carries it out, and how the pictures are taken, is
//! [`super::controller`]'s business.
//!
//! All groups have the same voters. Their number is odd and at most [`MOST_VOTERS`]: a fourth voter would make
//! majorities larger without letting one more node fail.

use std::collections::{BTreeMap, BTreeSet};

/// Voters of a group at most.
pub const MOST_VOTERS: usize = 5;
/// Learners and voters this many entries behind count as caught up.
pub const CLOSE: u64 = 512;

/// A node as the plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// How long nothing was heard of it, in milliseconds; 0 for one that answers.
    pub silent_ms: u64,
    /// It is to hold no group any more: it was removed, or is being drained.
    pub leaving: bool,
}

/// A group as its leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// The voters of the newest configuration.
    pub voters: BTreeSet<u64>,
    /// The learners.
    pub learners: BTreeSet<u64>,
    /// Two sets of voters are in force: a change was begun and not ended.
    pub joint: bool,
    /// The leader; `None`: nobody leads, and nothing can be changed.
    pub leader: Option<u64>,
    /// Entries that each member is behind the leader.
    pub behind: BTreeMap<u64, u64>,
    /// How long each member has not answered the leader, in milliseconds.
    pub silent_ms: BTreeMap<u64, u64>,
    /// The leader's term.
    pub term: u64,
    /// Index of its last entry.
    pub last: u64,
    /// Index of the last entry that it has applied.
    pub applied: u64,
}

/// How patient the plan is, and how many voters it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRules {
    /// Voters wanted at most; even numbers count as the odd one below.
    pub voters: usize,
    /// A voter that was silent for so long is replaced, if another node can take its place.
    pub replace_after_ms: u64,
    /// A node that was silent for no longer than this counts as healthy.
    pub healthy_ms: u64,
}

impl Default for PlanRules {
    fn default() -> Self {
        Self { voters: 3, replace_after_ms: 300_000, healthy_ms: 5_000 }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// End a change of voters that was begun.
    FinishChange {
        /// The group.
        group: u32,
    },
    /// Let a node follow a group.
    AddLearner {
        /// The group.
        group: u32,
        /// The node.
        node: u64,
    },
    /// Give a group other voters, all of which are members already.
    ChangeVoters {
        /// The group.
        group: u32,
        /// All its voters from then on.
        voters: BTreeSet<u64>,
    },
    /// Take a node that does not vote out of a group.
    RemoveLearner {
        /// The group.
        group: u32,
        /// The node.
        node: u64,
    },
    /// Let another voter lead a group.
    MoveLeader {
        /// The group.
        group: u32,
        /// The new leader.
        to: u64,
    },
}

/// The next step, if there is one to take. The same picture gives the same step, and once all steps are taken there is
/// none, so whoever leads may ask again and again.
pub fn next_step(
    nodes: &BTreeMap<u64, NodeState>,
    groups: &BTreeMap<u32, GroupState>,
    rules: &PlanRules,
) -> Option<Step> {
    if let Some((&group, _)) = groups.iter().find(|(_, state)| state.joint && state.leader.is_some()) {
        return Some(Step::FinishChange { group });
    }
    // One change at a time over all groups: whatever is decided, it is decided for the first group that needs it.
    let membership = groups.iter().filter(|(_, state)| state.leader.is_some()).find_map(|(&group, state)| {
        let wanted = wanted_voters(nodes, &state.voters, rules);
        step_towards(group, state, &wanted, nodes, rules)
    });
    membership.or_else(|| balance(nodes, groups, rules))
}

/// The voters that a group with `present` ones should have: whom it has, as long as they are there or may come back, and
/// then the nodes with the lowest numbers.
fn wanted_voters(
    nodes: &BTreeMap<u64, NodeState>,
    present: &BTreeSet<u64>,
    rules: &PlanRules,
) -> BTreeSet<u64> {
    let usable = |node: &u64| nodes.get(node).is_some_and(|state| !state.leaving);
    let silent = |node: &u64| nodes.get(node).map_or(u64::MAX, |state| state.silent_ms);
    let mut staying: Vec<u64> = present
        .iter()
        .copied()
        .filter(|node| usable(node) && silent(node) < rules.replace_after_ms)
        .collect();
    let spares: Vec<u64> = nodes
        .keys()
        .copied()
        .filter(|node| usable(node) && !present.contains(node) && silent(node) <= rules.healthy_ms)
        .collect();
    // Without a spare, a long-silent voter stays: a smaller group survives no more than it does, and forgets more.
    let lost = present.iter().copied().filter(|node| usable(node) && silent(node) >= rules.replace_after_ms);
    let short = odd(rules.voters.min(staying.len() + spares.len() + lost.clone().count()));
    staying.sort_by_key(|node| (silent(node) > rules.healthy_ms, *node));
    let mut wanted: Vec<u64> = staying;
    wanted.extend(spares);
    wanted.extend(lost);
    wanted.truncate(short.max(1));
    wanted.into_iter().collect()
}

fn odd(number: usize) -> usize {
    let number = number.min(MOST_VOTERS);
    if number.is_multiple_of(2) { number.saturating_sub(1) } else { number }
}

fn step_towards(
    group: u32,
    state: &GroupState,
    wanted: &BTreeSet<u64>,
    nodes: &BTreeMap<u64, NodeState>,
    rules: &PlanRules,
) -> Option<Step> {
    if *wanted != state.voters {
        let coming = || wanted.iter().copied().filter(|node| !state.voters.contains(node));
        if let Some(node) = coming().find(|node| !state.learners.contains(node)) {
            return Some(Step::AddLearner { group, node });
        }
        let close = |node: &u64| state.behind.get(node).is_some_and(|behind| *behind <= CLOSE);
        // A group is changed while all of those who stay are there: else the change itself could cost the majority.
        let healthy = |node: &u64| nodes.get(node).is_some_and(|node| node.silent_ms <= rules.healthy_ms);
        let staying_are_well = state.voters.intersection(wanted).all(healthy);
        if coming().all(|node| close(&node)) && staying_are_well {
            // The leader goes last, and not by its own hand.
            if let Some(leader) = state.leader.filter(|leader| !wanted.contains(leader)) {
                let heir = state.voters.intersection(wanted).copied().find(|node| close(node));
                if let Some(to) = heir.filter(|heir| *heir != leader) {
                    return Some(Step::MoveLeader { group, to });
                }
            }
            return Some(Step::ChangeVoters { group, voters: wanted.clone() });
        }
        return None;
    }
    // Learners only ever are voters to be.
    let node = state.learners.iter().copied().find(|node| !wanted.contains(node))?;
    Some(Step::RemoveLearner { group, node })
}

/// Leaders are spread: no healthy voter leads two groups more than another.
fn balance(
    nodes: &BTreeMap<u64, NodeState>,
    groups: &BTreeMap<u32, GroupState>,
    rules: &PlanRules,
) -> Option<Step> {
    let mut leads: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (&group, state) in groups {
        for &voter in &state.voters {
            let able =
                nodes.get(&voter).is_some_and(|node| !node.leaving && node.silent_ms <= rules.healthy_ms);
            if able {
                leads.entry(voter).or_default();
            }
        }
        if let Some(leader) = state.leader {
            leads.entry(leader).or_default().push(group);
        }
    }
    let able = |node: u64| {
        nodes.get(&node).is_some_and(|state| !state.leaving && state.silent_ms <= rules.healthy_ms)
    };
    let (&busiest, most) = leads.iter().max_by_key(|(node, groups)| (groups.len(), **node))?;
    let (&idlest, least) =
        leads.iter().filter(|(node, _)| able(**node)).min_by_key(|(node, groups)| (groups.len(), **node))?;
    if most.len() < least.len() + 2 && able(busiest) {
        return None;
    }
    let group = *most.iter().rev().find(|group| {
        groups.get(group).is_some_and(|state| {
            state.voters.contains(&idlest) && state.behind.get(&idlest).is_some_and(|behind| *behind <= CLOSE)
        })
    })?;
    (busiest != idlest).then_some(Step::MoveLeader { group, to: idlest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(silent: &[(u64, u64)]) -> BTreeMap<u64, NodeState> {
        silent.iter().map(|&(node, silent_ms)| (node, NodeState { silent_ms, leaving: false })).collect()
    }

    fn group(voters: &[u64], learners: &[u64], leader: u64) -> GroupState {
        let voters: BTreeSet<u64> = voters.iter().copied().collect();
        let learners: BTreeSet<u64> = learners.iter().copied().collect();
        let behind = voters.union(&learners).map(|node| (*node, 0)).collect();
        GroupState { voters, learners, leader: Some(leader), behind, ..GroupState::default() }
    }

    fn one(state: GroupState) -> BTreeMap<u32, GroupState> {
        BTreeMap::from([(0, state)])
    }

    fn set(nodes: &[u64]) -> BTreeSet<u64> {
        nodes.iter().copied().collect()
    }

    #[test]
    fn two_nodes_do_not_vote_together_but_three_do() {
        let rules = PlanRules::default();
        assert_eq!(next_step(&nodes(&[(1, 0), (2, 0)]), &one(group(&[1], &[], 1)), &rules), None);
        let three = nodes(&[(1, 0), (2, 0), (3, 0)]);
        let mut groups = one(group(&[1], &[], 1));
        assert_eq!(next_step(&three, &groups, &rules), Some(Step::AddLearner { group: 0, node: 2 }));
        groups = one(group(&[1], &[2], 1));
        assert_eq!(next_step(&three, &groups, &rules), Some(Step::AddLearner { group: 0, node: 3 }));
        groups = one(group(&[1], &[2, 3], 1));
        let all = set(&[1, 2, 3]);
        assert_eq!(next_step(&three, &groups, &rules), Some(Step::ChangeVoters { group: 0, voters: all }));
    }

    #[test]
    fn a_learner_that_lags_is_waited_for() {
        let three = nodes(&[(1, 0), (2, 0), (3, 0)]);
        let mut state = group(&[1], &[2, 3], 1);
        state.behind.insert(3, CLOSE + 1);
        assert_eq!(next_step(&three, &one(state), &PlanRules::default()), None);
    }

    #[test]
    fn a_long_silent_voter_is_replaced_by_a_spare_only() {
        let rules = PlanRules::default();
        let gone = rules.replace_after_ms;
        let without = nodes(&[(1, 0), (2, 0), (3, gone)]);
        assert_eq!(next_step(&without, &one(group(&[1, 2, 3], &[], 1)), &rules), None);
        let with = nodes(&[(1, 0), (2, 0), (3, gone), (4, 0)]);
        assert_eq!(
            next_step(&with, &one(group(&[1, 2, 3], &[], 1)), &rules),
            Some(Step::AddLearner { group: 0, node: 4 })
        );
        assert_eq!(
            next_step(&with, &one(group(&[1, 2, 3], &[4], 1)), &rules),
            Some(Step::ChangeVoters { group: 0, voters: set(&[1, 2, 4]) })
        );
        let back_soon = nodes(&[(1, 0), (2, 0), (3, gone - 1), (4, 0)]);
        assert_eq!(next_step(&back_soon, &one(group(&[1, 2, 3], &[], 1)), &rules), None);
    }

    #[test]
    fn nothing_is_changed_while_another_voter_is_away() {
        let rules = PlanRules::default();
        let two_away = nodes(&[(1, 0), (2, rules.healthy_ms + 1), (3, rules.replace_after_ms), (4, 0)]);
        assert_eq!(next_step(&two_away, &one(group(&[1, 2, 3], &[4], 1)), &rules), None);
    }

    #[test]
    fn a_begun_change_is_ended_first_and_one_group_changes_at_a_time() {
        let three = nodes(&[(1, 0), (2, 0), (3, 0)]);
        let mut groups = one(group(&[1], &[], 1));
        groups.insert(1, GroupState { joint: true, ..group(&[1, 2, 3], &[], 1) });
        let rules = PlanRules::default();
        assert_eq!(next_step(&three, &groups, &rules), Some(Step::FinishChange { group: 1 }));
        groups.insert(1, group(&[1], &[], 1));
        assert_eq!(next_step(&three, &groups, &rules), Some(Step::AddLearner { group: 0, node: 2 }));
    }

    #[test]
    fn a_leader_that_leaves_hands_over_first() {
        let rules = PlanRules::default();
        let mut four = nodes(&[(1, 0), (2, 0), (3, 0), (4, 0)]);
        four.insert(1, NodeState { silent_ms: 0, leaving: true });
        let state = group(&[1, 2, 3], &[4], 1);
        assert_eq!(next_step(&four, &one(state), &rules), Some(Step::MoveLeader { group: 0, to: 2 }));
        let state = group(&[1, 2, 3], &[4], 2);
        assert_eq!(
            next_step(&four, &one(state), &rules),
            Some(Step::ChangeVoters { group: 0, voters: set(&[2, 3, 4]) })
        );
    }

    #[test]
    fn leaders_are_spread_over_the_voters() {
        let rules = PlanRules::default();
        let three = nodes(&[(1, 0), (2, 0), (3, 0)]);
        let mut groups: BTreeMap<u32, GroupState> = (0..5).map(|n| (n, group(&[1, 2, 3], &[], 1))).collect();
        let mut moves = 0;
        while let Some(step) = next_step(&three, &groups, &rules) {
            let Step::MoveLeader { group, to } = step else { panic!("{step:?}") };
            groups.get_mut(&group).unwrap().leader = Some(to);
            moves += 1;
            assert!(moves < 10, "it never ends");
        }
        let count = |node| groups.values().filter(|state| state.leader == Some(node)).count();
        let counts = [count(1), count(2), count(3)];
        assert!(counts.iter().all(|count| (1..=2).contains(count)), "{counts:?}");
    }

    #[test]
    fn without_a_leader_there_is_nothing_to_do() {
        let three = nodes(&[(1, 0), (2, 0), (3, 0)]);
        let state = GroupState { leader: None, ..group(&[1], &[], 1) };
        assert_eq!(next_step(&three, &one(state), &PlanRules::default()), None);
    }

    /// Follows the steps of random pictures to their end: they end, and the voters are then an odd number of healthy nodes.
    #[test]
    fn steps_lead_to_an_end() {
        use std::collections::VecDeque;
        let rules = PlanRules { voters: 5, ..PlanRules::default() };
        for seed in 0_u64..2_000 {
            let mut bits: VecDeque<bool> =
                (0..64).map(|n| seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> n & 1 == 1).collect();
            let mut bit = || bits.pop_front().unwrap_or_default();
            let picture: BTreeMap<u64, NodeState> = (1..=7)
                .map(|node| {
                    let silent_ms = if node > 2 && bit() { rules.replace_after_ms } else { 0 };
                    (node, NodeState { silent_ms, leaving: node > 2 && bit() && bit() })
                })
                .collect();
            let voters: Vec<u64> = if bit() { vec![1, 2, 3] } else { vec![1] };
            let mut groups: BTreeMap<u32, GroupState> = (0..3).map(|n| (n, group(&voters, &[], 1))).collect();
            for round in 0.. {
                assert!(round < 100, "seed {seed} never ends: {groups:?}");
                let Some(step) = next_step(&picture, &groups, &rules) else { break };
                match step {
                    Step::FinishChange { group } => groups.get_mut(&group).unwrap().joint = false,
                    Step::AddLearner { group, node } => {
                        let state = groups.get_mut(&group).unwrap();
                        state.learners.insert(node);
                        state.behind.insert(node, 0);
                    }
                    Step::ChangeVoters { group, voters } => {
                        let state = groups.get_mut(&group).unwrap();
                        assert!(voters.iter().all(|node| state.behind.contains_key(node)), "{state:?}");
                        state.learners.retain(|node| !voters.contains(node));
                        state.voters = voters;
                    }
                    Step::RemoveLearner { group, node } => {
                        groups.get_mut(&group).unwrap().learners.remove(&node);
                    }
                    Step::MoveLeader { group, to } => groups.get_mut(&group).unwrap().leader = Some(to),
                }
            }
            for state in groups.values() {
                assert!(!state.voters.len().is_multiple_of(2), "seed {seed}: {state:?}");
                assert!(state.voters.iter().all(|node| !picture[node].leaving), "seed {seed}: {state:?}");
            }
        }
    }
}

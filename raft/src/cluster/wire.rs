//! What the nodes of a cluster say to each other beside consensus, in bytes: that a node is there, what a leader sees of
//! its group, and steps that a group's leader is to carry out.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dolomedes_storage::codec::{DecodeError, Decoder, Encoder};

use super::{
    plan::{GroupState, Step},
    question::{self, Question, Told},
    secret::Secret,
};
use crate::group::SubmitError;

/// Begins every message here. Those of consensus begin with their own version, which is another number.
pub(super) const TAG: u8 = 0xD0;
const VERSION: u8 = 1;

/// A question to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// The sender is there.
    Presence {
        /// Where it is reached now.
        address: String,
    },
    /// What does the receiver see of the groups that it leads?
    Picture,
    /// Carry this step out, as the leader of its group.
    Carry(Step),
    /// Something about a group that the receiver leads.
    Group {
        /// The group.
        group: u32,
        /// What.
        question: Question,
    },
    /// The secret that the members of group 0 share.
    Secret,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// To a presence: who leads group 0 as far as is known; and, from that leader, where every node is reached.
    Known {
        /// The leader of group 0.
        leader: Option<u64>,
        /// The nodes; empty from anybody else.
        nodes: BTreeMap<u64, String>,
        /// The leaders of all groups, likewise.
        leaders: BTreeMap<u32, u64>,
    },
    /// The groups that the receiver leads.
    Picture(BTreeMap<u32, GroupState>),
    /// The step was carried out.
    Carried,
    /// The secret.
    Secret(Secret),
    /// To a question about a group.
    Group(Result<Told, SubmitError>),
}

pub(super) fn encode_ask(ask: &Ask) -> Bytes {
    let mut to = Encoder::versioned(TAG);
    to.u8(VERSION);
    match ask {
        Ask::Presence { address } => to.u8(1).str(address),
        Ask::Picture => to.u8(2),
        Ask::Carry(step) => {
            to.u8(3);
            put_step(&mut to, step);
            &mut to
        }
        Ask::Group { group, question } => {
            to.u8(4).uint((*group).into());
            question::put_question(&mut to, question);
            &mut to
        }
        Ask::Secret => to.u8(5),
    };
    to.finish().into()
}

pub(super) fn decode_ask(bytes: &[u8]) -> Result<Ask, DecodeError> {
    let mut from = begin("a question between nodes", bytes)?;
    let ask = match from.u8()? {
        1 => Ask::Presence { address: from.str()?.to_owned() },
        2 => Ask::Picture,
        3 => Ask::Carry(step(&mut from)?),
        4 => Ask::Group { group: from.uint32()?, question: question::question(&mut from)? },
        5 => Ask::Secret,
        _ => return Err(from.error("there is no such question")),
    };
    from.finish()?;
    Ok(ask)
}

pub(super) fn encode_answer(answer: &Answer) -> Bytes {
    let mut to = Encoder::versioned(TAG);
    to.u8(VERSION);
    match answer {
        Answer::Known { leader, nodes, leaders } => {
            to.u8(1);
            to.option(*leader, |to, leader| {
                to.uint(leader);
            });
            let nodes: Vec<(&u64, &String)> = nodes.iter().collect();
            to.list(&nodes, |to, (node, address)| {
                to.uint(**node).str(address);
            });
            let leaders: Vec<(&u32, &u64)> = leaders.iter().collect();
            to.list(&leaders, |to, (group, leader)| {
                to.uint((**group).into()).uint(**leader);
            });
        }
        Answer::Picture(groups) => {
            to.u8(2);
            let groups: Vec<(&u32, &GroupState)> = groups.iter().collect();
            to.list(&groups, |to, (group, state)| {
                to.uint((**group).into());
                put_state(to, state);
            });
        }
        Answer::Carried => {
            to.u8(3);
        }
        Answer::Group(told) => {
            to.u8(4);
            question::put_told(&mut to, told);
        }
        Answer::Secret(secret) => {
            to.u8(5).bytes(&secret.0);
        }
    }
    to.finish().into()
}

pub(super) fn decode_answer(bytes: &[u8]) -> Result<Answer, DecodeError> {
    let mut from = begin("an answer between nodes", bytes)?;
    let answer = match from.u8()? {
        1 => {
            let leader = from.option(|from| from.uint())?;
            let nodes = from.list(|from| Ok((from.uint()?, from.str()?.to_owned())))?;
            let leaders = from.list(|from| Ok((from.uint32()?, from.uint()?)))?;
            Answer::Known {
                leader,
                nodes: nodes.into_iter().collect(),
                leaders: leaders.into_iter().collect(),
            }
        }
        2 => {
            let groups = from.list(|from| Ok((from.uint32()?, state(from)?)))?;
            Answer::Picture(groups.into_iter().collect())
        }
        3 => Answer::Carried,
        4 => Answer::Group(question::told(&mut from)?),
        5 => Answer::Secret(Secret(Bytes::copy_from_slice(from.bytes()?))),
        _ => return Err(from.error("there is no such answer")),
    };
    from.finish()?;
    Ok(answer)
}

fn begin<'a>(what: &'static str, bytes: &'a [u8]) -> Result<Decoder<'a>, DecodeError> {
    let mut from = Decoder::new(what, bytes);
    if from.u8()? != TAG || from.u8()? != VERSION {
        return Err(from.error("it is of another kind or version"));
    }
    Ok(from)
}

fn put_nodes(to: &mut Encoder, nodes: &BTreeSet<u64>) {
    let nodes: Vec<u64> = nodes.iter().copied().collect();
    to.list(&nodes, |to, node| {
        to.uint(*node);
    });
}

fn nodes(from: &mut Decoder<'_>) -> Result<BTreeSet<u64>, DecodeError> {
    Ok(from.list(|from| from.uint())?.into_iter().collect())
}

fn put_state(to: &mut Encoder, state: &GroupState) {
    put_nodes(to, &state.voters);
    put_nodes(to, &state.learners);
    to.bool(state.joint);
    to.option(state.leader, |to, leader| {
        to.uint(leader);
    });
    let behind: Vec<(u64, u64)> = state.behind.iter().map(|(node, behind)| (*node, *behind)).collect();
    to.list(&behind, |to, (node, behind)| {
        to.uint(*node).uint(*behind);
    });
    let silent: Vec<(u64, u64)> = state.silent_ms.iter().map(|(node, silent)| (*node, *silent)).collect();
    to.list(&silent, |to, (node, silent)| {
        to.uint(*node).uint(*silent);
    });
    to.uint(state.term).uint(state.last).uint(state.applied);
}

fn state(from: &mut Decoder<'_>) -> Result<GroupState, DecodeError> {
    Ok(GroupState {
        voters: nodes(from)?,
        learners: nodes(from)?,
        joint: from.bool()?,
        leader: from.option(|from| from.uint())?,
        behind: from.list(|from| Ok((from.uint()?, from.uint()?)))?.into_iter().collect(),
        silent_ms: from.list(|from| Ok((from.uint()?, from.uint()?)))?.into_iter().collect(),
        term: from.uint()?,
        last: from.uint()?,
        applied: from.uint()?,
    })
}

fn put_step(to: &mut Encoder, step: &Step) {
    match step {
        Step::FinishChange { group } => {
            to.u8(1).uint((*group).into());
        }
        Step::AddLearner { group, node } => {
            to.u8(2).uint((*group).into()).uint(*node);
        }
        Step::ChangeVoters { group, voters } => {
            to.u8(3).uint((*group).into());
            put_nodes(to, voters);
        }
        Step::RemoveLearner { group, node } => {
            to.u8(4).uint((*group).into()).uint(*node);
        }
        Step::MoveLeader { group, to: node } => {
            to.u8(5).uint((*group).into()).uint(*node);
        }
    }
}

fn step(from: &mut Decoder<'_>) -> Result<Step, DecodeError> {
    let kind = from.u8()?;
    let group = from.uint32()?;
    Ok(match kind {
        1 => Step::FinishChange { group },
        2 => Step::AddLearner { group, node: from.uint()? },
        3 => Step::ChangeVoters { group, voters: nodes(from)? },
        4 => Step::RemoveLearner { group, node: from.uint()? },
        5 => Step::MoveLeader { group, to: from.uint()? },
        _ => return Err(from.error("there is no such step")),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set() -> impl Strategy<Value = BTreeSet<u64>> {
        prop::collection::btree_set(any::<u64>(), 0..6)
    }

    fn a_step() -> impl Strategy<Value = Step> {
        (any::<u32>(), any::<u64>(), set(), 0..5).prop_map(|(group, node, voters, kind)| match kind {
            0 => Step::FinishChange { group },
            1 => Step::AddLearner { group, node },
            2 => Step::ChangeVoters { group, voters },
            3 => Step::RemoveLearner { group, node },
            _ => Step::MoveLeader { group, to: node },
        })
    }

    fn a_state() -> impl Strategy<Value = GroupState> {
        let map = || prop::collection::btree_map(any::<u64>(), any::<u64>(), 0..6);
        (set(), set(), any::<bool>(), any::<Option<u64>>(), map(), map(), any::<(u64, u64, u64)>()).prop_map(
            |(voters, learners, joint, leader, behind, silent_ms, (term, last, applied))| GroupState {
                voters,
                learners,
                joint,
                leader,
                behind,
                silent_ms,
                term,
                last,
                applied,
            },
        )
    }

    proptest! {
        #[test]
        fn questions_and_answers_come_back(
            step in a_step(),
            groups in prop::collection::btree_map(any::<u32>(), a_state(), 0..4),
            leader in any::<Option<u64>>(),
            nodes in prop::collection::btree_map(any::<u64>(), ".*", 0..5),
            leaders in prop::collection::btree_map(any::<u32>(), any::<u64>(), 0..5),
        ) {
            let presence = Ask::Presence { address: "a:1".to_owned() };
            for ask in [presence, Ask::Picture, Ask::Carry(step), Ask::Secret] {
                prop_assert_eq!(&decode_ask(&encode_ask(&ask)).unwrap(), &ask);
            }
            let secret = Answer::Secret(Secret(Bytes::from_static(b"key")));
            let known = Answer::Known { leader, nodes, leaders };
            for answer in [known, Answer::Picture(groups), Answer::Carried, secret] {
                prop_assert_eq!(&decode_answer(&encode_answer(&answer)).unwrap(), &answer);
            }
        }

        #[test]
        fn garbage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_ask(&bytes);
            let _ = decode_answer(&bytes);
            let tagged = [&[TAG, VERSION][..], &bytes].concat();
            let _ = decode_ask(&tagged);
            let _ = decode_answer(&tagged);
        }
    }
}

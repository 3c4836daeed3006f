//! The bytes of votes, entries and positions: every value comes back, and no bytes do harm.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dolomedes_raft::group::{
    format::{self, Position},
    types::{LeaderTerm, LogEntry, LogId, Membership, Proposal, StoredMembership, Vote},
};
use openraft::{EmptyNode, EntryPayload};
use proptest::{collection::vec, option, prelude::*};

fn log_id() -> impl Strategy<Value = LogId> {
    (any::<u64>(), any::<u64>()).prop_map(|(term, index)| LogId::new(LeaderTerm::new(term), index))
}

fn membership() -> impl Strategy<Value = Membership> {
    let voters = vec(0u64..9, 1..4).prop_map(|voters| voters.into_iter().collect::<BTreeSet<_>>());
    (vec(voters, 0..3), vec(0u64..12, 0..3)).prop_map(|(configs, learners)| {
        let ids = configs.iter().flatten().copied().chain(learners);
        let nodes: BTreeMap<_, _> = ids.map(|id| (id, EmptyNode::new())).collect();
        Membership::new(configs, nodes).unwrap_or_default()
    })
}

fn payload() -> impl Strategy<Value = EntryPayload<Proposal, u64, EmptyNode>> {
    prop_oneof![
        Just(EntryPayload::Blank),
        vec(any::<u8>(), 0..40).prop_map(|bytes| EntryPayload::Normal(Proposal(bytes.into()))),
        membership().prop_map(EntryPayload::Membership),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_is_read(
        (term, node, committed) in any::<(u64, u64, bool)>(),
        (log_id, payload) in (log_id(), payload()),
        (generation, applied, since, membership) in (any::<u64>(), option::of(log_id()), option::of(log_id()), membership()),
    ) {
        let vote = if committed { Vote::new_committed(term, node) } else { Vote::new(term, node) };
        prop_assert_eq!(format::decode_vote(&format::encode_vote(&vote)).unwrap(), vote);
        prop_assert_eq!(format::decode_log_id(&format::encode_log_id(&log_id)).unwrap(), log_id);
        let entry = LogEntry { log_id, payload };
        prop_assert_eq!(format::decode_entry(log_id.index, format::encode_entry(&entry).into()).unwrap(), entry);
        let position = Position { generation, applied, membership: StoredMembership::new(since, membership) };
        prop_assert_eq!(Position::decode(&position.encode()).unwrap(), position);
    }

    #[test]
    fn strange_bytes_are_refused_quietly(mut bytes in vec(any::<u8>(), 0..60), first in 0u8..3) {
        if let Some(version) = bytes.first_mut() {
            *version = first;
        }
        let _ = format::decode_vote(&bytes);
        let _ = format::decode_log_id(&bytes);
        let _ = Position::decode(&bytes);
        let _ = format::decode_entry(1, Bytes::from(bytes));
    }
}

#[test]
fn formats_are_frozen() {
    let entry = |payload| LogEntry { log_id: LogId::new(LeaderTerm::new(300), 5), payload };
    let voters = Membership::new(
        vec![BTreeSet::from([1, 2])],
        BTreeMap::from([1, 2, 3].map(|id| (id, EmptyNode::new()))),
    );
    let voters = voters.unwrap();
    assert_eq!(format::encode_vote(&Vote::new_committed(300, 2)), [1, 0xac, 2, 2, 1]);
    assert_eq!(format::encode_log_id(&LogId::new(LeaderTerm::new(1), 2)), [1, 1, 2]);
    assert_eq!(format::encode_entry(&entry(EntryPayload::Blank)), [1, 0xac, 2, 0]);
    let commands = EntryPayload::Normal(Proposal(Bytes::from_static(b"xyz")));
    assert_eq!(format::encode_entry(&entry(commands)), [1, 0xac, 2, 1, b'x', b'y', b'z']);
    let members = EntryPayload::Membership(voters.clone());
    assert_eq!(format::encode_entry(&entry(members)), [1, 0xac, 2, 2, 1, 2, 1, 2, 3, 1, 2, 3]);
    let since = Some(LogId::new(LeaderTerm::new(0), 0));
    let applied = Some(LogId::new(LeaderTerm::new(3), 9));
    let position = Position { generation: 4, applied, membership: StoredMembership::new(since, voters) };
    assert_eq!(position.encode(), [1, 4, 1, 3, 9, 1, 0, 0, 1, 2, 1, 2, 3, 1, 2, 3]);
}

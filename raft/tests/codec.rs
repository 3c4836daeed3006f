//! The bytes of log entries: what goes in comes out, and nothing that comes in does harm.

use bytes::Bytes;
use dolomedes_raft::{
    codec::{decode_entry, decode_reply, encode_entry, encode_reply},
    command::{
        Acquired, Attached, Bootstrapped, Claimed, Command, Compare, Completion, CompletionVerdict, Consumer,
        Enrolled, Entry, FirstNode, Grant, Guard, LeaseRef, Message, MessageId, MessageResult, MoreOf,
        NewMessage, NodeWish, Outcome, Pace, PurgeFrom, PutStatus, QueueConfig, QueueState, RecallFrom,
        Refusal, RegistryOp, Reply, Retention, TokenKind, TxnReply,
    },
};
use proptest::{collection::vec, option, prelude::*, sample::select};

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn queue_config() -> impl Strategy<Value = QueueConfig> {
    let budget = || option::of(any::<u64>());
    (any::<(u32, u32, u64, u64, u64, bool)>(), (budget(), budget(), budget(), budget())).prop_map(
        |((max_attempts, max_lost, capacity, key_delay_ms, retention_ms, finishes), budgets)| {
            let (unit_budget, byte_budget, key_unit_budget, key_byte_budget) = budgets;
            QueueConfig {
                max_attempts,
                max_lost,
                capacity,
                key_delay_ms,
                retention_ms,
                unit_budget,
                byte_budget,
                key_unit_budget,
                key_byte_budget,
                finishes,
            }
        },
    )
}

fn consumer() -> impl Strategy<Value = Consumer> {
    any::<(u64, u64)>().prop_map(|(node, epoch)| Consumer { node, epoch })
}

fn lease() -> impl Strategy<Value = LeaseRef> {
    (bytes(), any::<u64>()).prop_map(|(key, fence)| LeaseRef { key, fence })
}

fn result() -> impl Strategy<Value = MessageResult> {
    let outcome = prop_oneof![
        any::<(u32, u64)>().prop_map(|(units, bytes)| Outcome::Done { units, bytes }),
        (any::<u64>(), text(), any::<bool>()).prop_map(|(after_ms, reason, free)| Outcome::Retry {
            after_ms,
            reason,
            free
        }),
        (text(), any::<u32>(), any::<u64>()).prop_map(|(reason, units, bytes)| Outcome::Dead {
            reason,
            units,
            bytes
        }),
    ];
    (any::<(u64, u32, u64)>(), outcome).prop_map(|((index, ordinal, sequence), outcome)| MessageResult {
        id: MessageId { index, ordinal },
        outcome,
        sequence,
    })
}

fn completion() -> impl Strategy<Value = Completion> {
    let pace = (any::<(u64, u64)>(), option::of(bytes())).prop_map(|((hold_ms, delay_ms), note)| Pace {
        hold_ms,
        delay_ms,
        note,
    });
    (lease(), vec(result(), 0..4), option::of(pace), any::<bool>())
        .prop_map(|(lease, results, pace, release)| Completion { lease, results, pace, release })
}

fn command() -> impl Strategy<Value = Command> {
    let state = prop_oneof![
        Just(QueueState::Running),
        Just(QueueState::Paused),
        Just(QueueState::Cancelled),
        Just(QueueState::Finished),
        Just(QueueState::BudgetReached),
    ];
    let message = (bytes(), any::<(u8, u64)>(), option::of(any::<u128>()), bytes()).prop_map(
        |(key, (priority, delay_ms), fingerprint, payload)| NewMessage {
            key,
            priority,
            delay_ms,
            fingerprint,
            payload,
        },
    );
    let more = (lease(), any::<u32>()).prop_map(|(lease, messages)| MoreOf { lease, messages });
    prop_oneof![
        (text(), queue_config(), bytes()).prop_map(|(name, config, spec)| Command::CreateQueue {
            name,
            config,
            spec
        }),
        (any::<u64>(), queue_config(), option::of(bytes()))
            .prop_map(|(queue, config, spec)| Command::ConfigureQueue { queue, config, spec }),
        (any::<u64>(), state).prop_map(|(queue, state)| Command::SetQueueState { queue, state }),
        any::<u64>().prop_map(|queue| Command::DropQueue { queue }),
        (any::<u64>(), vec(message, 0..5)).prop_map(|(queue, messages)| Command::Put { queue, messages }),
        (any::<(u64, u32, u32, u64)>(), consumer(), vec(more, 0..3)).prop_map(
            |((queue, keys, per_key, ttl_ms), consumer, more)| Command::Claim {
                queue,
                consumer,
                keys,
                per_key,
                more,
                ttl_ms,
            }
        ),
        (any::<(u64, u64)>(), consumer(), vec(lease(), 0..3)).prop_map(
            |((queue, ttl_ms), consumer, leases)| Command::Renew { queue, consumer, leases, ttl_ms }
        ),
        (any::<(u64, u64)>(), consumer(), vec(completion(), 0..3)).prop_map(
            |((queue, released_upto), consumer, completions)| Command::Complete {
                queue,
                consumer,
                completions,
                released_upto,
            }
        ),
        any::<u64>().prop_map(|node| Command::Attach { node }),
        (any::<(u64, u32)>(), option::of(bytes()), option::of(text()))
            .prop_map(|((queue, limit), key, reason)| Command::Redrive { queue, key, reason, limit }),
        (text(), option::of(any::<u64>()), option::of(bytes()), any::<u32>(), option::of(guard())).prop_map(
            |(name, expect, value, keep, guard)| Command::SetCheckpoint { name, expect, value, keep, guard }
        ),
        Just(Command::Tick),
    ]
}

fn guard() -> impl Strategy<Value = Guard> {
    (text(), any::<u64>()).prop_map(|(lock, fence)| Guard { lock, fence })
}

fn recall_from() -> impl Strategy<Value = RecallFrom> {
    any::<(Option<u64>, u64, u32)>().prop_map(|(at, index, ordinal)| {
        let id = MessageId { index, ordinal };
        at.map_or(RecallFrom::Dead { id }, |at| RecallFrom::Done { at, id })
    })
}

fn of_queues() -> impl Strategy<Value = Command> {
    let purge = select(vec![PurgeFrom::Ready, PurgeFrom::Delayed, PurgeFrom::Dead, PurgeFrom::Done]);
    prop_oneof![
        (any::<(u64, u32, u64, u32)>(), option::of(bytes()), option::of(any::<u64>())).prop_map(
            |((queue, limit, index, ordinal), key, within_ms)| Command::Replay {
                queue,
                key,
                from: MessageId { index, ordinal },
                within_ms,
                limit
            }
        ),
        (any::<(u64, u64, u32)>(), recall_from())
            .prop_map(|((queue, worker, limit), from)| { Command::Recall { queue, worker, from, limit } }),
        (any::<(u64, u32)>(), purge, option::of(bytes()))
            .prop_map(|((queue, limit), from, key)| Command::Purge { queue, from, key, limit }),
    ]
}

fn coordination() -> impl Strategy<Value = Command> {
    let revision = || option::of(any::<u64>());
    let compare = prop_oneof![
        (bytes(), any::<u64>()).prop_map(|(key, revision)| Compare::Revision { key, revision }),
        (bytes(), bytes()).prop_map(|(key, value)| Compare::Value { key, value }),
        guard().prop_map(Compare::Held),
    ];
    let op = prop_oneof![
        (bytes(), bytes(), revision(), revision())
            .prop_map(|(key, value, expect, session)| RegistryOp::Set { key, value, expect, session }),
        (bytes(), revision()).prop_map(|(key, expect)| RegistryOp::Delete { key, expect }),
    ];
    prop_oneof![
        any::<u64>().prop_map(|ttl_ms| Command::OpenSession { ttl_ms }),
        vec(any::<u64>(), 0..5).prop_map(|sessions| Command::KeepAlive { sessions }),
        any::<u64>().prop_map(|session| Command::CloseSession { session }),
        (text(), any::<u64>(), any::<bool>()).prop_map(|(lock, session, wait)| Command::Acquire {
            lock,
            session,
            wait
        }),
        (text(), any::<u64>(), revision()).prop_map(|(lock, session, fence)| Command::Release {
            lock,
            session,
            fence
        }),
        (vec(compare, 0..4), vec(op, 0..4)).prop_map(|(compare, ops)| Command::Txn { compare, ops }),
        any::<(u64, u64)>()
            .prop_map(|(events, bytes)| Command::ConfigureFeed { retention: Retention { events, bytes } }),
        any::<u128>().prop_map(|client| Command::OpenClient { client }),
    ]
}

fn of_cluster() -> impl Strategy<Value = Command> {
    let hash = || any::<[u8; 32]>();
    let wish = select(vec![NodeWish::Any, NodeWish::Voter, NodeWish::Worker, NodeWish::Drain]);
    prop_oneof![
        (any::<(u128, u32, u64, u128)>(), text(), text(), option::of(hash())).prop_map(
            |((cluster, groups, node, uuid), address, version, access)| Command::Bootstrap {
                cluster,
                groups,
                first: FirstNode { node, uuid, address, version },
                access,
            }
        ),
        (any::<u128>(), text(), text(), option::of(hash())).prop_map(|(uuid, address, version, token)| {
            Command::EnrolNode { uuid, address, version, token }
        }),
        (any::<u64>(), option::of(text()), option::of(text()), option::of(wish))
            .prop_map(|(node, address, version, wish)| Command::SetNode { node, address, version, wish }),
        any::<u64>().prop_map(|node| Command::RemoveNode { node }),
        (hash(), any::<bool>(), text(), option::of(any::<u64>()), option::of(any::<u32>())).prop_map(
            |(hash, join, label, ttl_ms, uses)| {
                let kind = if join { TokenKind::Join } else { TokenKind::Access };
                Command::MakeToken { hash, kind, label, ttl_ms, uses }
            }
        ),
        hash().prop_map(|hash| Command::RevokeToken { hash }),
        (any::<u32>(), vec(any::<u64>(), 0..6))
            .prop_map(|(group, nodes)| Command::SetVoters { group, nodes }),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    let plain = || prop_oneof![command(), of_queues(), coordination(), of_cluster()].boxed();
    let once = (any::<(u128, u64)>(), plain()).prop_map(|((client, sequence), command)| Command::Once {
        client,
        sequence,
        command: Box::new(command),
    });
    prop_oneof![8 => plain(), 1 => once]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<u64>().prop_map(Refusal::NoQueue),
        any::<(u64, u64)>().prop_map(|(node, epoch)| Refusal::StaleConsumer { node, epoch }),
        any::<(u64, u64)>()
            .prop_map(|(judged_upto, sequence)| Refusal::SequenceGap { judged_upto, sequence }),
        text().prop_map(Refusal::Invalid),
        any::<u64>().prop_map(Refusal::NoSession),
        text().prop_map(Refusal::Full),
        guard().prop_map(Refusal::StaleFence),
        any::<u128>().prop_map(Refusal::NoClient),
        any::<(u128, u64, u64)>().prop_map(|(client, sequence, upto)| Refusal::Forgotten {
            client,
            sequence,
            upto
        }),
        any::<u128>().prop_map(Refusal::OtherCluster),
        Just(Refusal::NoCluster),
        any::<u64>().prop_map(Refusal::NodeRemoved),
        any::<u64>().prop_map(Refusal::NoNode),
        Just(Refusal::BadToken),
    ]
}

fn queue_reply() -> impl Strategy<Value = Reply> {
    let status = select(vec![PutStatus::Accepted, PutStatus::Duplicate, PutStatus::Full, PutStatus::Invalid]);
    let message = (any::<(u64, u32, u32, u32, u32, u8)>(), bytes()).prop_map(
        |((index, ordinal, attempt, failures, lost, priority), payload)| Message {
            id: MessageId { index, ordinal },
            attempt,
            failures,
            lost,
            priority,
            payload,
        },
    );
    let grant = (lease(), any::<(u64, u64, u64, u64)>(), option::of(bytes()), vec(message, 0..3)).prop_map(
        |(lease, (ttl_ms, hold_ms, delay_ms, ready_left), note, messages)| Grant {
            lease,
            ttl_ms,
            hold_ms,
            delay_ms,
            note,
            messages,
            ready_left,
        },
    );
    let flags = || vec(any::<bool>(), 0..5);
    let verdict =
        (flags(), flags(), any::<(bool, u64)>()).prop_map(|(accepted, dead, (released, ready_left))| {
            CompletionVerdict { accepted, dead, released, ready_left }
        });
    prop_oneof![
        any::<(u64, bool)>().prop_map(|(queue, created)| Reply::Queue { queue, created }),
        vec(status, 0..5).prop_map(Reply::Put),
        (vec(grant, 0..3), option::of(any::<u64>())).prop_map(|(grants, next_due_ms)| {
            Reply::Claimed(Claimed { grants, state: QueueState::Paused, next_due_ms })
        }),
        flags().prop_map(Reply::Renewed),
        vec(verdict, 0..3).prop_map(Reply::Completed),
        (consumer(), any::<(u64, u64)>(), vec(any::<u64>(), 0..4)).prop_map(
            |(consumer, (judged_upto, leases_ended), refused)| Reply::Attached(Attached {
                consumer,
                judged_upto,
                refused,
                leases_ended
            })
        ),
        any::<u64>().prop_map(Reply::Redriven),
        any::<u64>().prop_map(Reply::Replayed),
        (any::<u64>(), option::of(recall_from())).prop_map(|(moved, next)| Reply::Recalled { moved, next }),
        any::<u64>().prop_map(Reply::Purged),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let acquired = prop_oneof![
        any::<u64>().prop_map(|fence| Acquired::Granted { fence }),
        any::<u64>().prop_map(|ticket| Acquired::Queued { ticket }),
        any::<(u64, u64)>().prop_map(|(session, fence)| Acquired::Taken { session, fence }),
    ];
    let txn = prop_oneof![
        vec(any::<u64>(), 0..4).prop_map(TxnReply::Written),
        any::<(u32, u64)>().prop_map(|(at, found)| TxnReply::Failed { at, found }),
    ];
    prop_oneof![
        4 => queue_reply(),
        1 => Just(Reply::Done),
        1 => any::<(bool, u64)>().prop_map(|(written, version)| Reply::Checkpoint { written, version }),
        1 => option::of(any::<u64>()).prop_map(|next_due_ms| Reply::Ticked { next_due_ms }),
        1 => any::<u64>().prop_map(Reply::Session),
        1 => vec(any::<bool>(), 0..5).prop_map(Reply::Kept),
        1 => acquired.prop_map(Reply::Acquired),
        1 => any::<bool>().prop_map(Reply::Released),
        1 => txn.prop_map(Reply::Txn),
        1 => any::<(u32, bool)>()
            .prop_map(|(groups, created)| Reply::Bootstrapped(Bootstrapped { groups, created })),
        1 => any::<(u64, bool)>().prop_map(|(node, created)| Reply::Enrolled(Enrolled { node, created })),
        4 => refusal().prop_map(Reply::Refused),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<u64>(), vec(any_command(), 0..6)).prop_map(|(stamp, commands)| Entry { stamp, commands })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_entry_comes_back_as_it_was(entry in entry()) {
        prop_assert_eq!(decode_entry(encode_entry(&entry).into()), Ok(entry));
    }

    #[test]
    fn a_shortened_or_lengthened_entry_is_an_error(entry in entry(), cut in any::<prop::sample::Index>()) {
        let mut bytes = encode_entry(&entry);
        prop_assert!(decode_entry(bytes[..cut.index(bytes.len())].to_vec().into()).is_err());
        bytes.push(0);
        prop_assert!(decode_entry(bytes.into()).is_err());
    }

    #[test]
    fn a_damaged_entry_does_no_harm(
        entry in entry(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode_entry(&entry);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(entry) = decode_entry(bytes.into()) {
            prop_assert_eq!(decode_entry(encode_entry(&entry).into()), Ok(entry));
        }
    }

    #[test]
    fn a_reply_comes_back_as_it_was_and_no_part_of_it_passes_for_one(
        reply in reply(),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = encode_reply(&reply);
        prop_assert!(decode_reply(bytes[..cut.index(bytes.len())].to_vec().into()).is_err());
        prop_assert!(decode_reply([&bytes[..], &[0]].concat().into()).is_err());
        prop_assert_eq!(decode_reply(bytes.into()), Ok(reply));
    }

    #[test]
    fn garbage_does_no_harm(garbage in vec(any::<u8>(), 0..200)) {
        let _ = decode_reply([vec![1], garbage.clone()].concat().into());
        let _ = decode_entry(garbage.clone().into());
        let _ = decode_entry([vec![1, 0, 1], garbage].concat().into());
    }
}

#[test]
fn commands_that_are_nested_too_deep_are_neither_written_nor_read() {
    let once = |command| Command::Once { client: 1, sequence: 1, command: Box::new(command) };
    let mut nested = Command::Tick;
    for _ in 0..100 {
        nested = once(nested);
    }
    let bytes = encode_entry(&Entry { stamp: 1, commands: vec![nested] });
    let entry = decode_entry(bytes.into()).unwrap();
    assert_eq!(entry.commands, [once(Command::Tick)], "which the machine refuses just the same");
    let mut forged = vec![1, 0, 1];
    for _ in 0..100_000 {
        forged.push(23);
        forged.extend([0; 17]);
    }
    assert!(decode_entry(forged.into()).is_err());
}

#[test]
fn byte_strings_are_slices_of_the_input() {
    let payload = Bytes::from(vec![7; 1000]);
    let message = NewMessage {
        key: Bytes::from_static(b"k"),
        priority: 0,
        delay_ms: 0,
        fingerprint: None,
        payload: payload.clone(),
    };
    let entry = Entry { stamp: 1, commands: vec![Command::Put { queue: 1, messages: vec![message] }] };
    let bytes = Bytes::from(encode_entry(&entry));
    let Command::Put { messages, .. } = &decode_entry(bytes.clone()).unwrap().commands[0] else { panic!() };
    assert_eq!(messages[0].payload, payload);
    assert!(bytes.as_ptr_range().contains(&messages[0].payload.as_ptr()));
}

//! The bytes of log entries: what goes in comes out, and nothing that comes in does harm.

use bytes::Bytes;
use dolomedes_raft::{
    codec::{decode_entry, encode_entry},
    command::{
        Command, Completion, Consumer, Entry, LeaseRef, MessageId, MessageResult, MoreOf, NewMessage,
        Outcome, Pace, QueueConfig, QueueState,
    },
};
use proptest::{collection::vec, option, prelude::*};

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
        (text(), option::of(any::<u64>()), option::of(bytes()))
            .prop_map(|(name, expect, value)| Command::SetCheckpoint { name, expect, value }),
        Just(Command::Tick),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<u64>(), vec(command(), 0..6)).prop_map(|(stamp, commands)| Entry { stamp, commands })
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
    fn garbage_does_no_harm(garbage in vec(any::<u8>(), 0..200)) {
        let _ = decode_entry(garbage.clone().into());
        let _ = decode_entry([vec![1, 0, 1], garbage].concat().into());
    }
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

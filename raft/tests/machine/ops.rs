//! Random use of one queue: steps that mean something whatever came before, made into commands by what is leased now.

use bytes::Bytes;
use dolomedes_raft::command::{
    Command, Completion, Consumer, LeaseRef, MessageId, MessageResult, MoreOf, NewMessage, Outcome, Pace, QueueConfig,
    QueueId, QueueState,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::model::Model;

pub(super) const NODES: u64 = 2;
const KEYS: [&str; 4] = ["a", "b", "b\0", "c"];

/// A message to add.
#[derive(Clone, Debug)]
pub(super) struct Adding {
    key: &'static str,
    priority: u8,
    delay_ms: u64,
    fingerprint: Option<u8>,
}

/// What a worker says wrongly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Flaw {
    None,
    Fence,
    Epoch,
    Owner,
    Gap,
}

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Put(Vec<Adding>),
    Claim { node: u64, keys: u32, per_key: u32, more: u32, ttl_ms: u64, flaw: Flaw },
    Renew { node: u64, ttl_ms: u64, flaw: Flaw },
    Complete { node: u64, outcomes: Vec<Outcome>, sequenced: bool, release: bool, pace: Option<Pace>, flaw: Flaw },
    /// The newest Complete of the node comes a second time.
    Resend { node: u64 },
    Release { node: u64 },
    Attach { node: u64 },
    Redrive { limit: u32, key: Option<&'static str>, reason: Option<&'static str> },
    Raise { units: u64, key_units: u64 },
    State(QueueState),
    Replace,
    Tick,
    Pass(u64),
}

fn node() -> impl Strategy<Value = u64> {
    1..=NODES
}

fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        20 => Just(Flaw::None),
        1 => Just(Flaw::Fence),
        1 => Just(Flaw::Epoch),
        1 => Just(Flaw::Owner),
        1 => Just(Flaw::Gap),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let after = prop_oneof![Just(0u64), 1..40u64];
    prop_oneof![
        4 => (0..3u32, 0..50u64).prop_map(|(units, bytes)| Outcome::Done { units, bytes }),
        3 => (after, any::<bool>()).prop_map(|(after_ms, free)| Outcome::Retry {
            after_ms,
            reason: "failed".into(),
            free
        }),
        1 => (0..2u32).prop_map(|units| Outcome::Dead { reason: "gone".into(), units, bytes: 7 }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let adding = (select(&KEYS[..]), select(&[0u8, 5, 9][..]), prop_oneof![Just(0), 1..60u64], option::of(0..60u8))
        .prop_map(|(key, priority, delay_ms, fingerprint)| Adding { key, priority, delay_ms, fingerprint });
    let pace = (0..40u64, 0..30u64, option::of(Just(Bytes::from_static(b"note"))))
        .prop_map(|(hold_ms, delay_ms, note)| Pace { hold_ms, delay_ms, note });
    prop_oneof![
        6 => vec(adding, 1..6).prop_map(Step::Put),
        8 => (node(), 0..4u32, 0..4u32, 0..3u32, 1..80u64, flaw()).prop_map(
            |(node, keys, per_key, more, ttl_ms, flaw)| Step::Claim { node, keys, per_key, more, ttl_ms, flaw }
        ),
        1 => (node(), 1..80u64, flaw()).prop_map(|(node, ttl_ms, flaw)| Step::Renew { node, ttl_ms, flaw }),
        8 => (node(), vec(outcome(), 0..6), any::<bool>(), any::<bool>(), option::of(pace), flaw()).prop_map(
            |(node, outcomes, sequenced, release, pace, flaw)| Step::Complete {
                node,
                outcomes,
                sequenced,
                release,
                pace,
                flaw
            }
        ),
        1 => node().prop_map(|node| Step::Resend { node }),
        1 => node().prop_map(|node| Step::Release { node }),
        1 => node().prop_map(|node| Step::Attach { node }),
        1 => (0..5u32, option::of(select(&KEYS[..])), option::of(select(&["failed", "lost"][..])))
            .prop_map(|(limit, key, reason)| Step::Redrive { limit, key, reason }),
        1 => (0..8u64, 0..3u64).prop_map(|(units, key_units)| Step::Raise { units, key_units }),
        1 => select(&[QueueState::Running, QueueState::Running, QueueState::Paused][..]).prop_map(Step::State),
        1 => Just(Step::Tick),
        8 => (0..50u64).prop_map(Step::Pass),
    ]
}

/// Steps, with the queue replaced once in a while.
pub(super) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(prop_oneof![60 => step(), 1 => Just(Step::Replace)], 1..most)
}

/// Tight rules, so that bounds are met.
pub(super) fn rules() -> impl Strategy<Value = QueueConfig> {
    (1..4u32, 1..4u32, 6..30u64, 0..20u64, option::of(4..20u64), option::of(1..8u64), any::<bool>(), 0..2u64).prop_map(
        |(max_attempts, max_lost, capacity, key_delay_ms, unit_budget, key_unit_budget, finishes, kept)| QueueConfig {
            max_attempts,
            max_lost,
            capacity,
            key_delay_ms,
            retention_ms: kept * 100,
            unit_budget,
            byte_budget: None,
            key_unit_budget,
            key_byte_budget: None,
            finishes,
        },
    )
}

/// The queue that all steps use.
pub(super) fn create(config: &QueueConfig) -> Command {
    Command::CreateQueue { name: "q".into(), config: config.clone(), spec: Bytes::from_static(b"spec") }
}

impl Step {
    /// The commands of this step, each an entry of its own, given what the model knows. `last` holds each node's newest
    /// Complete.
    pub(super) fn commands(&self, model: &Model, last: &mut [Option<Command>]) -> Vec<Command> {
        let queue = model.queue;
        let consumer = |node: u64, flaw: Flaw| Consumer {
            node,
            epoch: model.epoch(node).saturating_sub(u64::from(flaw == Flaw::Epoch)),
        };
        let whose = |node: u64, flaw: Flaw| if flaw == Flaw::Owner { NODES + 1 - node } else { node };
        let leases = |node: u64, flaw: Flaw| {
            let leases = model.leases(whose(node, flaw));
            leases.map(move |(key, fence)| LeaseRef { key, fence: fence - u64::from(flaw == Flaw::Fence) })
        };
        match self.clone() {
            Step::Put(messages) => vec![put(queue, messages)],
            Step::Claim { node, keys, per_key, more, ttl_ms, flaw } => vec![Command::Claim {
                queue,
                consumer: consumer(node, flaw),
                keys,
                per_key,
                more: if more == 0 {
                    Vec::new()
                } else {
                    leases(node, flaw).map(|lease| MoreOf { lease, messages: more }).collect()
                },
                ttl_ms,
            }],
            Step::Renew { node, ttl_ms, flaw } => vec![Command::Renew {
                queue,
                consumer: consumer(node, flaw),
                leases: leases(node, flaw).collect(),
                ttl_ms,
            }],
            Step::Complete { node, outcomes, sequenced, release, pace, flaw } => {
                let mut sequence = model.judged_upto(node) + u64::from(flaw == Flaw::Gap);
                let mut outcomes = outcomes.into_iter();
                let completions = leases(node, flaw).map(|lease| {
                    let ids = model.leased_of(&lease.key).into_iter();
                    // One that is not leased, now and then.
                    let ids = ids.chain(release.then_some(MessageId { index: 1, ordinal: 0 }));
                    let results = ids.zip(outcomes.by_ref()).map(|(id, outcome)| {
                        sequence += u64::from(sequenced);
                        MessageResult { id, outcome, sequence: if sequenced { sequence } else { 0 } }
                    });
                    let results = results.collect();
                    Completion { lease, results, pace: pace.clone(), release }
                });
                let completions = completions.collect();
                let command = Command::Complete {
                    queue,
                    consumer: consumer(node, flaw),
                    completions,
                    released_upto: 0,
                };
                last[node as usize] = Some(command.clone());
                vec![command]
            }
            Step::Resend { node } => last[node as usize].clone().into_iter().collect(),
            Step::Release { node } => vec![Command::Complete {
                queue,
                consumer: consumer(node, Flaw::None),
                completions: Vec::new(),
                released_upto: model.judged_upto(node) / 2 + 1,
            }],
            Step::Attach { node } => vec![Command::Attach { node }],
            Step::Redrive { limit, key, reason } => vec![Command::Redrive {
                queue,
                key: key.map(|key| Bytes::from_static(key.as_bytes())),
                reason: reason.map(str::to_owned),
                limit,
            }],
            Step::Raise { units, key_units } => {
                let mut config = model.config.clone();
                config.unit_budget = config.unit_budget.map(|budget| budget + units);
                config.key_unit_budget = config.key_unit_budget.map(|budget| budget + key_units);
                vec![Command::ConfigureQueue { queue, config, spec: None }]
            }
            Step::State(state) => vec![Command::SetQueueState { queue, state }],
            Step::Replace => vec![Command::DropQueue { queue }, create(&model.config)],
            Step::Tick => vec![Command::Tick],
            Step::Pass(_) => Vec::new(),
        }
    }
}

fn put(queue: QueueId, messages: Vec<Adding>) -> Command {
    let messages = messages.into_iter().map(|adding| NewMessage {
        key: Bytes::from_static(adding.key.as_bytes()),
        priority: adding.priority,
        delay_ms: adding.delay_ms,
        fingerprint: adding.fingerprint.map(u128::from),
        payload: Bytes::copy_from_slice(adding.key.as_bytes()),
    });
    Command::Put { queue, messages: messages.collect() }
}

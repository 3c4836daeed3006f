//! What a node asks of the leader of a group, for a part of it that lives on another node: to carry a command out, or how
//! a queue or a worker stands. The bytes, and the answers as the leader gives them.

use bytes::Bytes;
use dolomedes_storage::codec::{DecodeError, Decoder, Encoder};

use crate::{
    codec::{
        decode_config, decode_entry, decode_kind, decode_reply, decode_state, encode_config, encode_entry,
        encode_kind, encode_reply, encode_state,
    },
    command::{Command, Consumer, Counters, Entry, Reply, TokenHash},
    group::{Group, SubmitError},
    machine::read::{ConsumerInfo, QueueInfo, State, TokenInfo},
};

/// Queues that one answer lists at most.
const MOST_QUEUES: usize = 4_096;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Carry this out.
    Submit(Box<Command>),
    /// The queues whose names begin so, by name, with their numbers.
    Queues(String),
    /// A queue's numbers and what it keeps for its user.
    Queue(String),
    /// What has been judged of a worker.
    Consumer(u64),
    /// The token with this hash.
    Token(TokenHash),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The machine's reply.
    Reply(Box<Reply>),
    /// To [`Question::Queues`].
    Queues(Vec<QueueInfo>),
    /// To [`Question::Queue`].
    Queue(Option<Box<(QueueInfo, Bytes)>>),
    /// To [`Question::Consumer`].
    Consumer(Option<ConsumerInfo>),
    /// To [`Question::Token`].
    Token(Option<TokenInfo>),
}

impl Question {
    /// Answers it as a member of the group; with [`SubmitError::NotLeader`] unless this node leads it. What is read is
    /// as new as anything that was acknowledged before.
    pub(super) async fn answer(self, group: &Group) -> Result<Told, SubmitError> {
        if let Self::Submit(command) = self {
            return group.submit(*command).await.map(|reply| Told::Reply(Box::new(reply)));
        }
        group.linearizable().await?;
        let (number, reading) = (group.number(), group.clone());
        let read = move || {
            reading.view(|reader, generation| {
                let state = State::new(reader, number, generation);
                Ok(match &self {
                    Self::Submit(_) => None,
                    Self::Queues(prefix) => Some(Told::Queues(state.queues_named(prefix, MOST_QUEUES)?)),
                    Self::Queue(name) => {
                        let found = match state.queue_by_name(name)? {
                            Some(queue) => state.queue(queue)?.zip(state.spec(queue)?),
                            None => None,
                        };
                        Some(Told::Queue(found.map(Box::new)))
                    }
                    Self::Consumer(worker) => Some(Told::Consumer(state.consumer(*worker)?)),
                    Self::Token(hash) => Some(Told::Token(state.token(hash)?)),
                })
            })
        };
        // A storage that cannot be read ends the node; whoever asked hears that the group is closed.
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(Some(told))) => Ok(told),
            Ok(Ok(None)) | Err(_) => Err(SubmitError::Closed),
            Ok(Err(error)) => {
                tracing::error!(%error, group = number, "the group cannot be read");
                Err(SubmitError::Closed)
            }
        }
    }
}

pub(super) fn put_question(to: &mut Encoder, question: &Question) {
    match question {
        Question::Submit(command) => {
            let entry = Entry { stamp: 0, commands: vec![(**command).clone()] };
            to.u8(1).bytes(&encode_entry(&entry))
        }
        Question::Queues(prefix) => to.u8(2).str(prefix),
        Question::Queue(name) => to.u8(3).str(name),
        Question::Consumer(worker) => to.u8(4).uint(*worker),
        Question::Token(hash) => to.u8(5).raw(hash),
    };
}

pub(super) fn question(from: &mut Decoder<'_>) -> Result<Question, DecodeError> {
    Ok(match from.u8()? {
        1 => {
            let entry = decode_entry(Bytes::copy_from_slice(from.bytes()?))?;
            let mut commands = entry.commands.into_iter();
            match (commands.next(), commands.next()) {
                (Some(command), None) => Question::Submit(Box::new(command)),
                _ => return Err(from.error("one command is expected")),
            }
        }
        2 => Question::Queues(from.str()?.to_owned()),
        3 => Question::Queue(from.str()?.to_owned()),
        4 => Question::Consumer(from.uint()?),
        5 => Question::Token(hash(from)?),
        _ => return Err(from.error("there is no such question about a group")),
    })
}

pub(super) fn put_told(to: &mut Encoder, told: &Result<Told, SubmitError>) {
    match told {
        Ok(Told::Reply(reply)) => _ = to.u8(1).bytes(&encode_reply(reply)),
        Ok(Told::Queues(queues)) => _ = to.u8(2).list(queues, put_info),
        Ok(Told::Queue(found)) => {
            to.u8(3).option(found.as_ref(), |to, found| {
                put_info(to, &found.0);
                to.bytes(&found.1);
            });
        }
        Ok(Told::Consumer(found)) => {
            to.u8(4).option(found.as_ref(), |to, found| {
                to.uint(found.consumer.node).uint(found.consumer.epoch);
                to.uint(found.judged_upto).uint(found.released_upto);
                to.list(&found.refused, |to, refused| _ = to.uint(*refused));
            });
        }
        Ok(Told::Token(found)) => {
            to.u8(5).option(found.as_ref(), |to, found| {
                to.raw(&found.hash).u8(encode_kind(found.kind)).str(&found.label).uint(found.made_at);
                to.option(found.expires_at, |to, end| _ = to.uint(end));
                to.option(found.uses_left, |to, uses| _ = to.uint(uses.into()));
            });
        }
        Err(SubmitError::Closed) => _ = to.u8(10),
        Err(SubmitError::NotLeader { leader }) => {
            to.u8(11).option(*leader, |to, leader| _ = to.uint(leader));
        }
        Err(SubmitError::Unknown) => _ = to.u8(12),
        Err(SubmitError::Overloaded) => _ = to.u8(13),
        Err(SubmitError::TooLarge { bytes }) => _ = to.u8(14).uint(*bytes as u64),
    }
}

pub(super) fn told(from: &mut Decoder<'_>) -> Result<Result<Told, SubmitError>, DecodeError> {
    Ok(Ok(match from.u8()? {
        1 => Told::Reply(Box::new(decode_reply(Bytes::copy_from_slice(from.bytes()?))?)),
        2 => Told::Queues(from.list(info)?),
        3 => Told::Queue(from.option(|from| {
            let found = info(from)?;
            Ok(Box::new((found, Bytes::copy_from_slice(from.bytes()?))))
        })?),
        4 => Told::Consumer(from.option(|from| {
            Ok(ConsumerInfo {
                consumer: Consumer { node: from.uint()?, epoch: from.uint()? },
                judged_upto: from.uint()?,
                released_upto: from.uint()?,
                refused: from.list(|from| from.uint())?,
            })
        })?),
        5 => Told::Token(from.option(|from| {
            Ok(TokenInfo {
                hash: hash(from)?,
                kind: decode_kind(from)?,
                label: from.str()?.to_owned(),
                made_at: from.uint()?,
                expires_at: from.option(|from| from.uint())?,
                uses_left: from.option(|from| from.uint32())?,
            })
        })?),
        10 => return Ok(Err(SubmitError::Closed)),
        11 => return Ok(Err(SubmitError::NotLeader { leader: from.option(|from| from.uint())? })),
        12 => return Ok(Err(SubmitError::Unknown)),
        13 => return Ok(Err(SubmitError::Overloaded)),
        14 => {
            let bytes = usize::try_from(from.uint()?).unwrap_or(usize::MAX);
            return Ok(Err(SubmitError::TooLarge { bytes }));
        }
        _ => return Err(from.error("there is no such answer about a group")),
    }))
}

fn hash(from: &mut Decoder<'_>) -> Result<TokenHash, DecodeError> {
    let bytes = from.raw(size_of::<TokenHash>())?;
    bytes.try_into().map_err(|_| from.error("a hash has another length"))
}

fn put_info(to: &mut Encoder, info: &QueueInfo) {
    to.uint(info.id).str(&info.name);
    encode_config(to, &info.config);
    to.u8(encode_state(info.state));
    for count in counts(&info.counters) {
        to.uint(count);
    }
    to.uint(info.waiting_keys).uint(info.leased_keys).uint(info.exhausted_keys);
}

fn info(from: &mut Decoder<'_>) -> Result<QueueInfo, DecodeError> {
    let (id, name) = (from.uint()?, from.str()?.to_owned());
    let (config, state) = (decode_config(from)?, decode_state(from)?);
    let counters = Counters {
        accepted: from.uint()?,
        duplicates: from.uint()?,
        ready: from.uint()?,
        delayed: from.uint()?,
        leased: from.uint()?,
        done: from.uint()?,
        dead: from.uint()?,
        retries: from.uint()?,
        lost: from.uint()?,
        units: from.uint()?,
        bytes: from.uint()?,
        keys: from.uint()?,
        purged: from.uint()?,
    };
    let (waiting_keys, leased_keys, exhausted_keys) = (from.uint()?, from.uint()?, from.uint()?);
    Ok(QueueInfo { id, name, config, state, counters, waiting_keys, leased_keys, exhausted_keys })
}

fn counts(counters: &Counters) -> [u64; 13] {
    let Counters {
        accepted,
        duplicates,
        ready,
        delayed,
        leased,
        done,
        dead,
        retries,
        lost,
        units,
        bytes,
        keys,
        purged,
    } = *counters;
    [accepted, duplicates, ready, delayed, leased, done, dead, retries, lost, units, bytes, keys, purged]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::{QueueConfig, QueueState, RecallFrom, TokenKind};

    fn an_info() -> impl Strategy<Value = QueueInfo> {
        (any::<(u64, u32, u64, Option<u64>, bool)>(), ".{0,9}", any::<[u64; 13]>()).prop_map(
            |((id, attempts, capacity, budget, finishes), name, n)| QueueInfo {
                id,
                name,
                config: QueueConfig {
                    max_attempts: attempts,
                    max_lost: attempts,
                    capacity,
                    key_delay_ms: capacity,
                    retention_ms: id,
                    unit_budget: budget,
                    byte_budget: None,
                    key_unit_budget: budget,
                    key_byte_budget: None,
                    finishes,
                },
                state: QueueState::Paused,
                counters: Counters {
                    accepted: n[0],
                    duplicates: n[1],
                    ready: n[2],
                    delayed: n[3],
                    leased: n[4],
                    done: n[5],
                    dead: n[6],
                    retries: n[7],
                    lost: n[8],
                    units: n[9],
                    bytes: n[10],
                    keys: n[11],
                    purged: n[12],
                },
                waiting_keys: n[3],
                leased_keys: n[5],
                exhausted_keys: n[7],
            },
        )
    }

    proptest! {
        #[test]
        fn questions_and_answers_come_back(
            infos in proptest::collection::vec(an_info(), 0..3),
            spec in proptest::collection::vec(any::<u8>(), 0..50),
            numbers in any::<(u64, u64, u64, Vec<u64>, Option<u64>)>(),
        ) {
            let (worker, epoch, upto, refused, leader) = numbers;
            let command = Command::Recall { queue: upto, worker, from: RecallFrom::default(), limit: 7 };
            for one in [
                Question::Submit(Box::new(command)),
                Question::Queues("job/".to_owned()),
                Question::Queue("job/x".to_owned()),
                Question::Consumer(worker),
                Question::Token([worker.to_be_bytes()[7]; 32]),
            ] {
                let mut to = Encoder::with_capacity(0);
                put_question(&mut to, &one);
                let bytes = to.finish();
                prop_assert_eq!(question(&mut Decoder::new("test", &bytes)).unwrap(), one);
            }
            let consumer = ConsumerInfo {
                consumer: Consumer { node: worker, epoch },
                judged_upto: upto,
                released_upto: upto,
                refused,
            };
            let token = TokenInfo {
                hash: [7; 32],
                kind: TokenKind::Access,
                label: "laptop".to_owned(),
                made_at: epoch,
                expires_at: leader,
                uses_left: leader.map(|_| 3),
            };
            let first = infos.first().cloned().map(|info| Box::new((info, Bytes::from(spec))));
            for one in [
                Ok(Told::Reply(Box::new(Reply::Purged(upto)))),
                Ok(Told::Queues(infos)),
                Ok(Told::Queue(first)),
                Ok(Told::Consumer(Some(consumer))),
                Ok(Told::Consumer(None)),
                Ok(Told::Token(Some(token))),
                Ok(Told::Token(None)),
                Err(SubmitError::Closed),
                Err(SubmitError::NotLeader { leader }),
                Err(SubmitError::Unknown),
                Err(SubmitError::Overloaded),
                Err(SubmitError::TooLarge { bytes: 9 }),
            ] {
                let mut to = Encoder::with_capacity(0);
                put_told(&mut to, &one);
                let bytes = to.finish();
                prop_assert_eq!(told(&mut Decoder::new("test", &bytes)).unwrap(), one);
            }
        }

        #[test]
        fn garbage_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = question(&mut Decoder::new("test", &bytes));
            let _ = told(&mut Decoder::new("test", &bytes));
        }
    }
}

//! The bytes of an [`Entry`], as the log keeps them and followers receive them. The format is frozen once released: a
//! change takes a new version byte, and old versions stay readable. Rows of the machine have their codecs in
//! [`crate::machine`].

use bytes::Bytes;
pub use dolomedes_storage::codec::DecodeError;
use dolomedes_storage::codec::{Decoder, Encoder};

use crate::command::{
    Command, Completion, Consumer, Entry, LeaseRef, MessageId, MessageResult, MoreOf, NewMessage, Outcome,
    Pace, QueueConfig, QueueState,
};

/// The newest version of an entry's bytes, and so far the only one.
const ENTRY_VERSION: u8 = 1;

/// What a command takes in its encoding beside its own bytes, at most, roughly; only sizes a first allocation.
const COMMAND_OVERHEAD: usize = 64;

/// The bytes of `entry`.
pub fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut to = Encoder::with_capacity(16 + entry.commands.iter().map(size_hint).sum::<usize>());
    to.u8(ENTRY_VERSION).uint(entry.stamp);
    to.list(&entry.commands, encode_command);
    to.finish()
}

/// The entry that `bytes` hold. Its byte strings are slices of `bytes` (no copies), so they keep all of it in memory.
///
/// Any input is safe: garbage gives an error, and allocations stay proportional to the input.
pub fn decode_entry(bytes: Bytes) -> Result<Entry, DecodeError> {
    let mut from = Source { bytes: &bytes, decoder: Decoder::new("log entry", &bytes) };
    if from.decoder.u8()? != ENTRY_VERSION {
        return Err(from.decoder.error("this version of the format is not known"));
    }
    let stamp = from.decoder.uint()?;
    let commands = from.list(decode_command)?;
    from.decoder.finish()?;
    Ok(Entry { stamp, commands })
}

fn size_hint(command: &Command) -> usize {
    let own = match command {
        Command::CreateQueue { name, spec, .. } => name.len() + spec.len(),
        Command::ConfigureQueue { spec, .. } => spec.as_ref().map_or(0, Bytes::len),
        Command::Put { messages, .. } => messages.iter().map(|m| m.key.len() + m.payload.len() + 32).sum(),
        Command::Claim { more, .. } => more.iter().map(|m| m.lease.key.len() + 16).sum(),
        Command::Renew { leases, .. } => leases.iter().map(|lease| lease.key.len() + 16).sum(),
        Command::Complete { completions, .. } => {
            completions.iter().map(|c| c.lease.key.len() + 48 + c.results.len() * 32).sum()
        }
        Command::SetCheckpoint { name, value, .. } => name.len() + value.as_ref().map_or(0, Bytes::len),
        _ => 0,
    };
    own + COMMAND_OVERHEAD
}

/// A decoder together with the buffer it reads, to hand out slices of it.
struct Source<'a> {
    bytes: &'a Bytes,
    decoder: Decoder<'a>,
}

impl<'a> Source<'a> {
    fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let slice = self.decoder.bytes()?;
        Ok(self.bytes.slice_ref(slice))
    }

    fn string(&mut self) -> Result<String, DecodeError> {
        Ok(self.decoder.str()?.to_owned())
    }

    fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        Ok(if self.decoder.bool()? { Some(read(self)?) } else { None })
    }

    fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let bytes = self.bytes;
        self.decoder.list(|decoder| {
            let mut item = Source { bytes, decoder: decoder.clone() };
            let value = read(&mut item)?;
            *decoder = item.decoder;
            Ok(value)
        })
    }
}

/// Tags of commands. A number is never given to another command.
mod tag {
    pub(super) const CREATE_QUEUE: u8 = 1;
    pub(super) const CONFIGURE_QUEUE: u8 = 2;
    pub(super) const SET_QUEUE_STATE: u8 = 3;
    pub(super) const DROP_QUEUE: u8 = 4;
    pub(super) const PUT: u8 = 5;
    pub(super) const CLAIM: u8 = 6;
    pub(super) const RENEW: u8 = 7;
    pub(super) const COMPLETE: u8 = 8;
    pub(super) const ATTACH: u8 = 9;
    pub(super) const REDRIVE: u8 = 10;
    pub(super) const SET_CHECKPOINT: u8 = 11;
    pub(super) const TICK: u8 = 12;
}

fn encode_command(to: &mut Encoder, command: &Command) {
    match command {
        Command::CreateQueue { name, config, spec } => {
            to.u8(tag::CREATE_QUEUE).str(name);
            encode_config(to, config);
            to.bytes(spec);
        }
        Command::ConfigureQueue { queue, config, spec } => {
            to.u8(tag::CONFIGURE_QUEUE).uint(*queue);
            encode_config(to, config);
            to.option(spec.as_ref(), |to, spec| _ = to.bytes(spec));
        }
        Command::SetQueueState { queue, state } => {
            to.u8(tag::SET_QUEUE_STATE).uint(*queue).u8(encode_state(*state));
        }
        Command::DropQueue { queue } => {
            to.u8(tag::DROP_QUEUE).uint(*queue);
        }
        Command::Put { queue, messages } => {
            to.u8(tag::PUT).uint(*queue).list(messages, |to, message| {
                to.bytes(&message.key).u8(message.priority).uint(message.delay_ms);
                to.option(message.fingerprint, |to, fingerprint| _ = to.u128(fingerprint));
                to.bytes(&message.payload);
            });
        }
        Command::Claim { queue, consumer, keys, per_key, more, ttl_ms } => {
            to.u8(tag::CLAIM).uint(*queue);
            encode_consumer(to, consumer);
            to.uint((*keys).into()).uint((*per_key).into());
            to.list(more, |to, more| {
                encode_lease(to, &more.lease);
                to.uint(more.messages.into());
            });
            to.uint(*ttl_ms);
        }
        Command::Renew { queue, consumer, leases, ttl_ms } => {
            to.u8(tag::RENEW).uint(*queue);
            encode_consumer(to, consumer);
            to.list(leases, encode_lease).uint(*ttl_ms);
        }
        Command::Complete { queue, consumer, completions, released_upto } => {
            to.u8(tag::COMPLETE).uint(*queue);
            encode_consumer(to, consumer);
            to.list(completions, encode_completion).uint(*released_upto);
        }
        Command::Attach { node } => {
            to.u8(tag::ATTACH).uint(*node);
        }
        Command::Redrive { queue, key, reason, limit } => {
            to.u8(tag::REDRIVE).uint(*queue);
            to.option(key.as_ref(), |to, key| _ = to.bytes(key));
            to.option(reason.as_ref(), |to, reason| _ = to.str(reason));
            to.uint((*limit).into());
        }
        Command::SetCheckpoint { name, expect, value } => {
            to.u8(tag::SET_CHECKPOINT).str(name);
            to.option(*expect, |to, expect| _ = to.uint(expect));
            to.option(value.as_ref(), |to, value| _ = to.bytes(value));
        }
        Command::Tick => {
            to.u8(tag::TICK);
        }
    }
}

fn decode_command(from: &mut Source<'_>) -> Result<Command, DecodeError> {
    Ok(match from.decoder.u8()? {
        tag::CREATE_QUEUE => Command::CreateQueue {
            name: from.string()?,
            config: decode_config(&mut from.decoder)?,
            spec: from.bytes()?,
        },
        tag::CONFIGURE_QUEUE => Command::ConfigureQueue {
            queue: from.decoder.uint()?,
            config: decode_config(&mut from.decoder)?,
            spec: from.option(Source::bytes)?,
        },
        tag::SET_QUEUE_STATE => {
            Command::SetQueueState { queue: from.decoder.uint()?, state: decode_state(&mut from.decoder)? }
        }
        tag::DROP_QUEUE => Command::DropQueue { queue: from.decoder.uint()? },
        tag::PUT => Command::Put { queue: from.decoder.uint()?, messages: from.list(decode_message)? },
        tag::CLAIM => Command::Claim {
            queue: from.decoder.uint()?,
            consumer: decode_consumer(&mut from.decoder)?,
            keys: from.decoder.uint32()?,
            per_key: from.decoder.uint32()?,
            more: from
                .list(|from| Ok(MoreOf { lease: decode_lease(from)?, messages: from.decoder.uint32()? }))?,
            ttl_ms: from.decoder.uint()?,
        },
        tag::RENEW => Command::Renew {
            queue: from.decoder.uint()?,
            consumer: decode_consumer(&mut from.decoder)?,
            leases: from.list(decode_lease)?,
            ttl_ms: from.decoder.uint()?,
        },
        tag::COMPLETE => Command::Complete {
            queue: from.decoder.uint()?,
            consumer: decode_consumer(&mut from.decoder)?,
            completions: from.list(decode_completion)?,
            released_upto: from.decoder.uint()?,
        },
        tag::ATTACH => Command::Attach { node: from.decoder.uint()? },
        tag::REDRIVE => Command::Redrive {
            queue: from.decoder.uint()?,
            key: from.option(Source::bytes)?,
            reason: from.option(Source::string)?,
            limit: from.decoder.uint32()?,
        },
        tag::SET_CHECKPOINT => Command::SetCheckpoint {
            name: from.string()?,
            expect: from.option(|from| from.decoder.uint())?,
            value: from.option(Source::bytes)?,
        },
        tag::TICK => Command::Tick,
        _ => return Err(from.decoder.error("this command is not known")),
    })
}

fn decode_message(from: &mut Source<'_>) -> Result<NewMessage, DecodeError> {
    Ok(NewMessage {
        key: from.bytes()?,
        priority: from.decoder.u8()?,
        delay_ms: from.decoder.uint()?,
        fingerprint: from.option(|from| from.decoder.u128())?,
        payload: from.bytes()?,
    })
}

fn encode_completion(to: &mut Encoder, completion: &Completion) {
    encode_lease(to, &completion.lease);
    to.list(&completion.results, |to, result| {
        to.uint(result.id.index).uint(result.id.ordinal.into()).uint(result.sequence);
        match &result.outcome {
            Outcome::Done { units, bytes } => {
                to.u8(1).uint((*units).into()).uint(*bytes);
            }
            Outcome::Retry { after_ms, reason, free } => {
                to.u8(2).uint(*after_ms).str(reason).bool(*free);
            }
            Outcome::Dead { reason, units, bytes } => {
                to.u8(3).str(reason).uint((*units).into()).uint(*bytes);
            }
        }
    });
    to.option(completion.pace.as_ref(), |to, pace| {
        to.uint(pace.hold_ms).uint(pace.delay_ms);
        to.option(pace.note.as_ref(), |to, note| _ = to.bytes(note));
    });
    to.bool(completion.release);
}

fn decode_completion(from: &mut Source<'_>) -> Result<Completion, DecodeError> {
    Ok(Completion {
        lease: decode_lease(from)?,
        results: from.list(decode_result)?,
        pace: from.option(|from| {
            Ok(Pace {
                hold_ms: from.decoder.uint()?,
                delay_ms: from.decoder.uint()?,
                note: from.option(Source::bytes)?,
            })
        })?,
        release: from.decoder.bool()?,
    })
}

fn decode_result(from: &mut Source<'_>) -> Result<MessageResult, DecodeError> {
    let id = MessageId { index: from.decoder.uint()?, ordinal: from.decoder.uint32()? };
    let sequence = from.decoder.uint()?;
    let outcome = match from.decoder.u8()? {
        1 => Outcome::Done { units: from.decoder.uint32()?, bytes: from.decoder.uint()? },
        2 => Outcome::Retry {
            after_ms: from.decoder.uint()?,
            reason: from.string()?,
            free: from.decoder.bool()?,
        },
        3 => Outcome::Dead {
            reason: from.string()?,
            units: from.decoder.uint32()?,
            bytes: from.decoder.uint()?,
        },
        _ => return Err(from.decoder.error("this outcome is not known")),
    };
    Ok(MessageResult { id, outcome, sequence })
}

fn encode_lease(to: &mut Encoder, lease: &LeaseRef) {
    to.bytes(&lease.key).uint(lease.fence);
}

fn decode_lease(from: &mut Source<'_>) -> Result<LeaseRef, DecodeError> {
    Ok(LeaseRef { key: from.bytes()?, fence: from.decoder.uint()? })
}

fn encode_consumer(to: &mut Encoder, consumer: &Consumer) {
    to.uint(consumer.node).uint(consumer.epoch);
}

fn decode_consumer(from: &mut Decoder<'_>) -> Result<Consumer, DecodeError> {
    Ok(Consumer { node: from.uint()?, epoch: from.uint()? })
}

/// Also part of a queue's row.
pub(crate) fn encode_config(to: &mut Encoder, config: &QueueConfig) {
    to.uint(config.max_attempts.into()).uint(config.max_lost.into()).uint(config.capacity);
    to.uint(config.key_delay_ms).uint(config.retention_ms);
    for budget in [config.unit_budget, config.byte_budget, config.key_unit_budget, config.key_byte_budget] {
        to.option(budget, |to, budget| _ = to.uint(budget));
    }
    to.bool(config.finishes);
}

/// Reads what [`encode_config`] wrote.
pub(crate) fn decode_config(from: &mut Decoder<'_>) -> Result<QueueConfig, DecodeError> {
    Ok(QueueConfig {
        max_attempts: from.uint32()?,
        max_lost: from.uint32()?,
        capacity: from.uint()?,
        key_delay_ms: from.uint()?,
        retention_ms: from.uint()?,
        unit_budget: from.option(Decoder::uint)?,
        byte_budget: from.option(Decoder::uint)?,
        key_unit_budget: from.option(Decoder::uint)?,
        key_byte_budget: from.option(Decoder::uint)?,
        finishes: from.bool()?,
    })
}

/// Also part of a queue's row.
pub(crate) fn encode_state(state: QueueState) -> u8 {
    match state {
        QueueState::Running => 1,
        QueueState::Paused => 2,
        QueueState::Cancelled => 3,
        QueueState::Finished => 4,
        QueueState::BudgetReached => 5,
    }
}

/// Reads what [`encode_state`] wrote.
pub(crate) fn decode_state(from: &mut Decoder<'_>) -> Result<QueueState, DecodeError> {
    Ok(match from.u8()? {
        1 => QueueState::Running,
        2 => QueueState::Paused,
        3 => QueueState::Cancelled,
        4 => QueueState::Finished,
        5 => QueueState::BudgetReached,
        _ => return Err(from.error("this state of a queue is not known")),
    })
}

//! The bytes of what a queue's commands carry.

use dolomedes_storage::codec::{Decoder, Encoder};

use super::{DecodeError, Source};
use crate::command::{
    Completion, Consumer, LeaseRef, MessageId, MessageResult, NewMessage, Outcome, Pace, PurgeFrom,
    QueueConfig, QueueState, RecallFrom,
};

pub(super) fn decode_message(from: &mut Source<'_>) -> Result<NewMessage, DecodeError> {
    Ok(NewMessage {
        key: from.bytes()?,
        priority: from.decoder.u8()?,
        delay_ms: from.decoder.uint()?,
        fingerprint: from.option(|from| from.decoder.u128())?,
        payload: from.bytes()?,
    })
}

pub(super) fn encode_completion(to: &mut Encoder, completion: &Completion) {
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

pub(super) fn decode_completion(from: &mut Source<'_>) -> Result<Completion, DecodeError> {
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

pub(super) fn encode_lease(to: &mut Encoder, lease: &LeaseRef) {
    to.bytes(&lease.key).uint(lease.fence);
}

pub(super) fn decode_lease(from: &mut Source<'_>) -> Result<LeaseRef, DecodeError> {
    Ok(LeaseRef { key: from.bytes()?, fence: from.decoder.uint()? })
}

pub(super) fn encode_consumer(to: &mut Encoder, consumer: &Consumer) {
    to.uint(consumer.node).uint(consumer.epoch);
}

pub(super) fn decode_consumer(from: &mut Decoder<'_>) -> Result<Consumer, DecodeError> {
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

pub(super) fn encode_purge(from: PurgeFrom) -> u8 {
    match from {
        PurgeFrom::Ready => 1,
        PurgeFrom::Delayed => 2,
        PurgeFrom::Dead => 3,
        PurgeFrom::Done => 4,
    }
}

pub(super) fn decode_purge(from: &mut Decoder<'_>) -> Result<PurgeFrom, DecodeError> {
    Ok(match from.u8()? {
        1 => PurgeFrom::Ready,
        2 => PurgeFrom::Delayed,
        3 => PurgeFrom::Dead,
        4 => PurgeFrom::Done,
        _ => return Err(from.error("it is not known what to throw away")),
    })
}

pub(super) fn encode_recall(to: &mut Encoder, from: RecallFrom) {
    match from {
        RecallFrom::Done { at, id } => to.u8(0).uint(at).uint(id.index).uint(id.ordinal.into()),
        RecallFrom::Dead { id } => to.u8(1).uint(id.index).uint(id.ordinal.into()),
    };
}

pub(super) fn decode_recall(from: &mut Decoder<'_>) -> Result<RecallFrom, DecodeError> {
    let done_at = match from.u8()? {
        0 => Some(from.uint()?),
        1 => None,
        _ => return Err(from.error("there is no such place to recall from")),
    };
    let id = MessageId { index: from.uint()?, ordinal: from.uint32()? };
    Ok(match done_at {
        Some(at) => RecallFrom::Done { at, id },
        None => RecallFrom::Dead { id },
    })
}

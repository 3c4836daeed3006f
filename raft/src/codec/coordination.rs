//! The bytes of what commands about locks, the registry and nodes carry, and of the replies to them.

use dolomedes_storage::codec::{Decoder, Encoder};

use super::{DecodeError, Source};
use crate::command::{Acquired, Compare, Guard, NodeWish, RegistryOp, TokenKind, TxnReply};

pub(super) fn encode_guard(to: &mut Encoder, guard: &Guard) {
    to.str(&guard.lock).uint(guard.fence);
}

pub(super) fn decode_guard(from: &mut Source<'_>) -> Result<Guard, DecodeError> {
    Ok(Guard { lock: from.string()?, fence: from.uint()? })
}

pub(super) fn encode_compare(to: &mut Encoder, compare: &Compare) {
    match compare {
        Compare::Revision { key, revision } => {
            to.u8(1).bytes(key).uint(*revision);
        }
        Compare::Value { key, value } => {
            to.u8(2).bytes(key).bytes(value);
        }
        Compare::Held(guard) => {
            to.u8(3);
            encode_guard(to, guard);
        }
    }
}

pub(super) fn decode_compare(from: &mut Source<'_>) -> Result<Compare, DecodeError> {
    Ok(match from.decoder.u8()? {
        1 => Compare::Revision { key: from.bytes()?, revision: from.uint()? },
        2 => Compare::Value { key: from.bytes()?, value: from.bytes()? },
        3 => Compare::Held(decode_guard(from)?),
        _ => return Err(from.decoder.error("this comparison is not known")),
    })
}

pub(super) fn encode_op(to: &mut Encoder, op: &RegistryOp) {
    let number = |to: &mut Encoder, number| _ = to.uint(number);
    match op {
        RegistryOp::Set { key, value, expect, session } => {
            to.u8(1).bytes(key).bytes(value).option(*expect, number).option(*session, number);
        }
        RegistryOp::Delete { key, expect } => {
            to.u8(2).bytes(key).option(*expect, number);
        }
    }
}

pub(super) fn decode_op(from: &mut Source<'_>) -> Result<RegistryOp, DecodeError> {
    Ok(match from.decoder.u8()? {
        1 => RegistryOp::Set {
            key: from.bytes()?,
            value: from.bytes()?,
            expect: from.option(Source::uint)?,
            session: from.option(Source::uint)?,
        },
        2 => RegistryOp::Delete { key: from.bytes()?, expect: from.option(Source::uint)? },
        _ => return Err(from.decoder.error("this change of the registry is not known")),
    })
}

/// Also part of a node's row.
pub(crate) fn encode_wish(wish: NodeWish) -> u8 {
    match wish {
        NodeWish::Any => 1,
        NodeWish::Voter => 2,
        NodeWish::Worker => 3,
        NodeWish::Drain => 4,
    }
}

/// Reads what [`encode_wish`] wrote.
pub(crate) fn decode_wish(from: &mut Decoder<'_>) -> Result<NodeWish, DecodeError> {
    Ok(match from.u8()? {
        1 => NodeWish::Any,
        2 => NodeWish::Voter,
        3 => NodeWish::Worker,
        4 => NodeWish::Drain,
        _ => return Err(from.error("it is not known what the node is wanted for")),
    })
}

/// Also part of a token's row.
pub(crate) fn encode_kind(kind: TokenKind) -> u8 {
    match kind {
        TokenKind::Join => 1,
        TokenKind::Access => 2,
    }
}

/// Reads what [`encode_kind`] wrote.
pub(crate) fn decode_kind(from: &mut Decoder<'_>) -> Result<TokenKind, DecodeError> {
    Ok(match from.u8()? {
        1 => TokenKind::Join,
        2 => TokenKind::Access,
        _ => return Err(from.error("it is not known what the token is good for")),
    })
}

pub(super) fn encode_acquired(to: &mut Encoder, acquired: &Acquired) {
    match acquired {
        Acquired::Granted { fence } => to.u8(1).uint(*fence),
        Acquired::Queued { ticket } => to.u8(2).uint(*ticket),
        Acquired::Taken { session, fence } => to.u8(3).uint(*session).uint(*fence),
    };
}

pub(super) fn decode_acquired(from: &mut Source<'_>) -> Result<Acquired, DecodeError> {
    Ok(match from.decoder.u8()? {
        1 => Acquired::Granted { fence: from.uint()? },
        2 => Acquired::Queued { ticket: from.uint()? },
        3 => Acquired::Taken { session: from.uint()?, fence: from.uint()? },
        _ => return Err(from.decoder.error("this state of a lock is not known")),
    })
}

pub(super) fn encode_txn_reply(to: &mut Encoder, reply: &TxnReply) {
    match reply {
        TxnReply::Written(revisions) => to.u8(1).list(revisions, |to, revision| _ = to.uint(*revision)),
        TxnReply::Failed { at, found } => to.u8(2).uint((*at).into()).uint(*found),
    };
}

pub(super) fn decode_txn_reply(from: &mut Source<'_>) -> Result<TxnReply, DecodeError> {
    Ok(match from.decoder.u8()? {
        1 => TxnReply::Written(from.list(Source::uint)?),
        2 => TxnReply::Failed { at: from.decoder.uint32()?, found: from.uint()? },
        _ => return Err(from.decoder.error("this outcome of a transaction is not known")),
    })
}

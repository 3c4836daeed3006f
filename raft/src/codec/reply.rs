//! The bytes of a reply: as the machine remembers it for a client, and as one node may hand it to another.

use bytes::Bytes;
use dolomedes_storage::codec::{Decoder, Encoder};

use super::{
    DecodeError, Source,
    coordination::{
        decode_acquired, decode_guard, decode_txn_reply, encode_acquired, encode_guard, encode_txn_reply,
    },
    queue::{
        decode_consumer, decode_lease, decode_recall, decode_state, encode_consumer, encode_lease,
        encode_recall, encode_state,
    },
};
use crate::command::{
    Attached, Bootstrapped, Claimed, CompletionVerdict, Enrolled, Grant, Message, MessageId, PutStatus,
    Refusal, Reply,
};

/// The newest version of a reply's bytes, and so far the only one.
const REPLY_VERSION: u8 = 1;

/// Tags of replies. A number is never given to another reply.
mod tag {
    pub(super) const DONE: u8 = 1;
    pub(super) const QUEUE: u8 = 2;
    pub(super) const PUT: u8 = 3;
    pub(super) const CLAIMED: u8 = 4;
    pub(super) const RENEWED: u8 = 5;
    pub(super) const COMPLETED: u8 = 6;
    pub(super) const ATTACHED: u8 = 7;
    pub(super) const REDRIVEN: u8 = 8;
    pub(super) const CHECKPOINT: u8 = 9;
    pub(super) const TICKED: u8 = 10;
    pub(super) const REFUSED: u8 = 11;
    pub(super) const REPLAYED: u8 = 12;
    pub(super) const PURGED: u8 = 13;
    pub(super) const SESSION: u8 = 14;
    pub(super) const KEPT: u8 = 15;
    pub(super) const ACQUIRED: u8 = 16;
    pub(super) const RELEASED: u8 = 17;
    pub(super) const TXN: u8 = 18;
    pub(super) const BOOTSTRAPPED: u8 = 19;
    pub(super) const ENROLLED: u8 = 20;
    pub(super) const RECALLED: u8 = 21;
}

fn encode_flags(to: &mut Encoder, flags: &[bool]) {
    to.list(flags, |to, flag| _ = to.bool(*flag));
}

fn decode_flags(from: &mut Source<'_>) -> Result<Vec<bool>, DecodeError> {
    from.list(|from| from.decoder.bool())
}

fn encode_number(to: &mut Encoder, number: u64) {
    to.uint(number);
}

/// The bytes of `reply`.
pub fn encode_reply(reply: &Reply) -> Vec<u8> {
    let mut to = Encoder::versioned(REPLY_VERSION);
    match reply {
        Reply::Done => _ = to.u8(tag::DONE),
        Reply::Queue { queue, created } => _ = to.u8(tag::QUEUE).uint(*queue).bool(*created),
        Reply::Put(statuses) => {
            to.u8(tag::PUT).list(statuses, |to, status| _ = to.u8(encode_status(*status)));
        }
        Reply::Claimed(claimed) => {
            to.u8(tag::CLAIMED).list(&claimed.grants, encode_grant).u8(encode_state(claimed.state));
            to.option(claimed.next_due_ms, encode_number);
        }
        Reply::Renewed(stand) => encode_flags(to.u8(tag::RENEWED), stand),
        Reply::Completed(verdicts) => {
            to.u8(tag::COMPLETED).list(verdicts, |to, verdict| {
                encode_flags(to, &verdict.accepted);
                encode_flags(to, &verdict.dead);
                to.bool(verdict.released).uint(verdict.ready_left);
            });
        }
        Reply::Attached(attached) => {
            encode_consumer(to.u8(tag::ATTACHED), &attached.consumer);
            to.uint(attached.judged_upto).list(&attached.refused, |to, refused| _ = to.uint(*refused));
            to.uint(attached.leases_ended);
        }
        Reply::Redriven(count) => _ = to.u8(tag::REDRIVEN).uint(*count),
        Reply::Checkpoint { written, version } => {
            to.u8(tag::CHECKPOINT).bool(*written).uint(*version);
        }
        Reply::Ticked { next_due_ms } => _ = to.u8(tag::TICKED).option(*next_due_ms, encode_number),
        Reply::Refused(refusal) => encode_refusal(to.u8(tag::REFUSED), refusal),
        Reply::Replayed(count) => _ = to.u8(tag::REPLAYED).uint(*count),
        Reply::Purged(count) => _ = to.u8(tag::PURGED).uint(*count),
        Reply::Recalled { moved, next } => {
            to.u8(tag::RECALLED).uint(*moved).option(*next, encode_recall);
        }
        Reply::Session(session) => _ = to.u8(tag::SESSION).uint(*session),
        Reply::Kept(kept) => encode_flags(to.u8(tag::KEPT), kept),
        Reply::Acquired(acquired) => encode_acquired(to.u8(tag::ACQUIRED), acquired),
        Reply::Released(released) => _ = to.u8(tag::RELEASED).bool(*released),
        Reply::Txn(reply) => encode_txn_reply(to.u8(tag::TXN), reply),
        Reply::Bootstrapped(Bootstrapped { groups, created }) => {
            to.u8(tag::BOOTSTRAPPED).uint((*groups).into()).bool(*created);
        }
        Reply::Enrolled(Enrolled { node, created }) => {
            to.u8(tag::ENROLLED).uint(*node).bool(*created);
        }
    }
    to.finish()
}

/// The reply that `bytes` hold. Its byte strings are slices of `bytes`. Any input is safe: garbage gives an error.
pub fn decode_reply(bytes: Bytes) -> Result<Reply, DecodeError> {
    let mut source = Source { bytes: &bytes, decoder: Decoder::new("reply", &bytes) };
    let from = &mut source;
    if from.decoder.u8()? != REPLY_VERSION {
        return Err(from.decoder.error("this version of the format is not known"));
    }
    let reply = match from.decoder.u8()? {
        tag::DONE => Reply::Done,
        tag::QUEUE => Reply::Queue { queue: from.uint()?, created: from.decoder.bool()? },
        tag::PUT => Reply::Put(from.list(decode_status)?),
        tag::CLAIMED => Reply::Claimed(Claimed {
            grants: from.list(decode_grant)?,
            state: decode_state(&mut from.decoder)?,
            next_due_ms: from.option(Source::uint)?,
        }),
        tag::RENEWED => Reply::Renewed(decode_flags(from)?),
        tag::COMPLETED => Reply::Completed(from.list(|from| {
            Ok(CompletionVerdict {
                accepted: decode_flags(from)?,
                dead: decode_flags(from)?,
                released: from.decoder.bool()?,
                ready_left: from.uint()?,
            })
        })?),
        tag::ATTACHED => Reply::Attached(Attached {
            consumer: decode_consumer(&mut from.decoder)?,
            judged_upto: from.uint()?,
            refused: from.list(Source::uint)?,
            leases_ended: from.uint()?,
        }),
        tag::REDRIVEN => Reply::Redriven(from.uint()?),
        tag::CHECKPOINT => Reply::Checkpoint { written: from.decoder.bool()?, version: from.uint()? },
        tag::TICKED => Reply::Ticked { next_due_ms: from.option(Source::uint)? },
        tag::REFUSED => Reply::Refused(decode_refusal(from)?),
        tag::REPLAYED => Reply::Replayed(from.uint()?),
        tag::PURGED => Reply::Purged(from.uint()?),
        tag::RECALLED => Reply::Recalled {
            moved: from.uint()?,
            next: from.option(|from| decode_recall(&mut from.decoder))?,
        },
        tag::SESSION => Reply::Session(from.uint()?),
        tag::KEPT => Reply::Kept(decode_flags(from)?),
        tag::ACQUIRED => Reply::Acquired(decode_acquired(from)?),
        tag::RELEASED => Reply::Released(from.decoder.bool()?),
        tag::TXN => Reply::Txn(decode_txn_reply(from)?),
        tag::BOOTSTRAPPED => Reply::Bootstrapped(Bootstrapped {
            groups: from.decoder.uint32()?,
            created: from.decoder.bool()?,
        }),
        tag::ENROLLED => Reply::Enrolled(Enrolled { node: from.uint()?, created: from.decoder.bool()? }),
        _ => return Err(from.decoder.error("this reply is not known")),
    };
    source.decoder.finish()?;
    Ok(reply)
}

fn encode_status(status: PutStatus) -> u8 {
    match status {
        PutStatus::Accepted => 1,
        PutStatus::Duplicate => 2,
        PutStatus::Full => 3,
        PutStatus::Invalid => 4,
    }
}

fn decode_status(from: &mut Source<'_>) -> Result<PutStatus, DecodeError> {
    Ok(match from.decoder.u8()? {
        1 => PutStatus::Accepted,
        2 => PutStatus::Duplicate,
        3 => PutStatus::Full,
        4 => PutStatus::Invalid,
        _ => return Err(from.decoder.error("this status of a message is not known")),
    })
}

fn encode_grant(to: &mut Encoder, grant: &Grant) {
    encode_lease(to, &grant.lease);
    to.uint(grant.ttl_ms).uint(grant.hold_ms).uint(grant.delay_ms);
    to.option(grant.note.as_ref(), |to, note| _ = to.bytes(note));
    to.list(&grant.messages, |to, message| {
        to.uint(message.id.index).uint(message.id.ordinal.into()).uint(message.attempt.into());
        to.uint(message.failures.into()).uint(message.lost.into()).u8(message.priority);
        to.bytes(&message.payload);
    });
    to.uint(grant.ready_left);
}

fn decode_grant(from: &mut Source<'_>) -> Result<Grant, DecodeError> {
    Ok(Grant {
        lease: decode_lease(from)?,
        ttl_ms: from.uint()?,
        hold_ms: from.uint()?,
        delay_ms: from.uint()?,
        note: from.option(Source::bytes)?,
        messages: from.list(|from| {
            Ok(Message {
                id: MessageId { index: from.uint()?, ordinal: from.decoder.uint32()? },
                attempt: from.decoder.uint32()?,
                failures: from.decoder.uint32()?,
                lost: from.decoder.uint32()?,
                priority: from.decoder.u8()?,
                payload: from.bytes()?,
            })
        })?,
        ready_left: from.uint()?,
    })
}

fn encode_refusal(to: &mut Encoder, refusal: &Refusal) {
    match refusal {
        Refusal::NoQueue(queue) => to.u8(1).uint(*queue),
        Refusal::StaleConsumer { node, epoch } => to.u8(2).uint(*node).uint(*epoch),
        Refusal::SequenceGap { judged_upto, sequence } => to.u8(3).uint(*judged_upto).uint(*sequence),
        Refusal::Invalid(why) => to.u8(4).str(why),
        Refusal::NoSession(session) => to.u8(5).uint(*session),
        Refusal::Full(why) => to.u8(6).str(why),
        Refusal::StaleFence(guard) => {
            encode_guard(to.u8(7), guard);
            to
        }
        Refusal::NoClient(client) => to.u8(8).u128(*client),
        Refusal::Forgotten { client, sequence, upto } => to.u8(9).u128(*client).uint(*sequence).uint(*upto),
        Refusal::OtherCluster(cluster) => to.u8(10).u128(*cluster),
        Refusal::NoCluster => to.u8(11),
        Refusal::NodeRemoved(node) => to.u8(12).uint(*node),
        Refusal::NoNode(node) => to.u8(13).uint(*node),
        Refusal::BadToken => to.u8(14),
    };
}

fn decode_refusal(from: &mut Source<'_>) -> Result<Refusal, DecodeError> {
    Ok(match from.decoder.u8()? {
        1 => Refusal::NoQueue(from.uint()?),
        2 => Refusal::StaleConsumer { node: from.uint()?, epoch: from.uint()? },
        3 => Refusal::SequenceGap { judged_upto: from.uint()?, sequence: from.uint()? },
        4 => Refusal::Invalid(from.string()?),
        5 => Refusal::NoSession(from.uint()?),
        6 => Refusal::Full(from.string()?),
        7 => Refusal::StaleFence(decode_guard(from)?),
        8 => Refusal::NoClient(from.decoder.u128()?),
        9 => Refusal::Forgotten { client: from.decoder.u128()?, sequence: from.uint()?, upto: from.uint()? },
        10 => Refusal::OtherCluster(from.decoder.u128()?),
        11 => Refusal::NoCluster,
        12 => Refusal::NodeRemoved(from.uint()?),
        13 => Refusal::NoNode(from.uint()?),
        14 => Refusal::BadToken,
        _ => return Err(from.decoder.error("this refusal is not known")),
    })
}

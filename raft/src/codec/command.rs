//! The bytes of a command.

use dolomedes_storage::codec::Encoder;

use super::{
    DecodeError, Source,
    coordination::{
        decode_compare, decode_guard, decode_kind, decode_op, decode_wish, encode_compare, encode_guard,
        encode_kind, encode_op, encode_wish,
    },
    queue::{
        decode_completion, decode_config, decode_consumer, decode_lease, decode_message, decode_purge,
        decode_recall, decode_state, encode_completion, encode_config, encode_consumer, encode_lease,
        encode_purge, encode_recall, encode_state,
    },
};
use crate::command::{Command, FirstNode, MessageId, MoreOf, Retention};

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
    pub(super) const REPLAY: u8 = 13;
    pub(super) const PURGE: u8 = 14;
    pub(super) const OPEN_SESSION: u8 = 15;
    pub(super) const KEEP_ALIVE: u8 = 16;
    pub(super) const CLOSE_SESSION: u8 = 17;
    pub(super) const ACQUIRE: u8 = 18;
    pub(super) const RELEASE: u8 = 19;
    pub(super) const TXN: u8 = 20;
    pub(super) const CONFIGURE_FEED: u8 = 21;
    pub(super) const OPEN_CLIENT: u8 = 22;
    pub(super) const ONCE: u8 = 23;
    pub(super) const BOOTSTRAP: u8 = 24;
    pub(super) const ENROL_NODE: u8 = 25;
    pub(super) const SET_NODE: u8 = 26;
    pub(super) const REMOVE_NODE: u8 = 27;
    pub(super) const MAKE_TOKEN: u8 = 28;
    pub(super) const REVOKE_TOKEN: u8 = 29;
    pub(super) const SET_VOTERS: u8 = 30;
    pub(super) const RECALL: u8 = 31;
}

pub(super) fn encode_command(to: &mut Encoder, command: &Command) {
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
        Command::SetCheckpoint { name, expect, value, keep, guard } => {
            to.u8(tag::SET_CHECKPOINT).str(name);
            to.option(*expect, |to, expect| _ = to.uint(expect));
            to.option(value.as_ref(), |to, value| _ = to.bytes(value));
            to.uint((*keep).into()).option(guard.as_ref(), encode_guard);
        }
        Command::Tick => {
            to.u8(tag::TICK);
        }
        Command::Replay { queue, key, from, within_ms, limit } => {
            to.u8(tag::REPLAY).uint(*queue).option(key.as_ref(), |to, key| _ = to.bytes(key));
            to.uint(from.index).uint(from.ordinal.into());
            to.option(*within_ms, |to, within| _ = to.uint(within)).uint((*limit).into());
        }
        Command::Purge { queue, from, key, limit } => {
            to.u8(tag::PURGE).uint(*queue).u8(encode_purge(*from));
            to.option(key.as_ref(), |to, key| _ = to.bytes(key)).uint((*limit).into());
        }
        Command::Recall { queue, worker, from, limit } => {
            encode_recall(to.u8(tag::RECALL).uint(*queue).uint(*worker), *from);
            to.uint((*limit).into());
        }
        Command::OpenSession { ttl_ms } => {
            to.u8(tag::OPEN_SESSION).uint(*ttl_ms);
        }
        Command::KeepAlive { sessions } => {
            to.u8(tag::KEEP_ALIVE).list(sessions, |to, session| _ = to.uint(*session));
        }
        Command::CloseSession { session } => {
            to.u8(tag::CLOSE_SESSION).uint(*session);
        }
        Command::Acquire { lock, session, wait } => {
            to.u8(tag::ACQUIRE).str(lock).uint(*session).bool(*wait);
        }
        Command::Release { lock, session, fence } => {
            to.u8(tag::RELEASE).str(lock).uint(*session).option(*fence, |to, fence| _ = to.uint(fence));
        }
        Command::Txn { compare, ops } => {
            to.u8(tag::TXN).list(compare, encode_compare).list(ops, encode_op);
        }
        Command::ConfigureFeed { retention } => {
            to.u8(tag::CONFIGURE_FEED).uint(retention.events).uint(retention.bytes);
        }
        Command::OpenClient { client } => {
            to.u8(tag::OPEN_CLIENT).u128(*client);
        }
        Command::Once { client, sequence, command } => {
            to.u8(tag::ONCE).u128(*client).uint(*sequence);
            // One within another is refused by the machine whatever it holds, and so is a tick: what is decoded has a
            // bounded depth.
            match &**command {
                Command::Once { .. } => encode_command(to, &Command::Tick),
                command => encode_command(to, command),
            }
        }
        Command::Bootstrap { cluster, groups, first, access } => {
            to.u8(tag::BOOTSTRAP).u128(*cluster).uint((*groups).into());
            to.uint(first.node).u128(first.uuid).str(&first.address).str(&first.version);
            to.option(access.as_ref(), |to, access| _ = to.raw(access));
        }
        Command::EnrolNode { uuid, address, version, token } => {
            to.u8(tag::ENROL_NODE).u128(*uuid).str(address).str(version);
            to.option(token.as_ref(), |to, token| _ = to.raw(token));
        }
        Command::SetNode { node, address, version, wish } => {
            to.u8(tag::SET_NODE).uint(*node);
            to.option(address.as_ref(), |to, address| _ = to.str(address));
            to.option(version.as_ref(), |to, version| _ = to.str(version));
            to.option(*wish, |to, wish| _ = to.u8(encode_wish(wish)));
        }
        Command::RemoveNode { node } => {
            to.u8(tag::REMOVE_NODE).uint(*node);
        }
        Command::MakeToken { hash, kind, label, ttl_ms, uses } => {
            to.u8(tag::MAKE_TOKEN).raw(hash).u8(encode_kind(*kind)).str(label);
            to.option(*ttl_ms, |to, ttl| _ = to.uint(ttl));
            to.option(*uses, |to, uses| _ = to.uint(uses.into()));
        }
        Command::RevokeToken { hash } => {
            to.u8(tag::REVOKE_TOKEN).raw(hash);
        }
        Command::SetVoters { group, nodes } => {
            to.u8(tag::SET_VOTERS).uint((*group).into()).list(nodes, |to, node| _ = to.uint(*node));
        }
    }
}

pub(super) fn decode_command(from: &mut Source<'_>) -> Result<Command, DecodeError> {
    decode(from, false)
}

/// `within`: another one, which is to be carried out once.
fn decode(from: &mut Source<'_>, within: bool) -> Result<Command, DecodeError> {
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
            keep: from.decoder.uint32()?,
            guard: from.option(decode_guard)?,
        },
        tag::TICK => Command::Tick,
        tag::REPLAY => Command::Replay {
            queue: from.decoder.uint()?,
            key: from.option(Source::bytes)?,
            from: MessageId { index: from.decoder.uint()?, ordinal: from.decoder.uint32()? },
            within_ms: from.option(Source::uint)?,
            limit: from.decoder.uint32()?,
        },
        tag::PURGE => Command::Purge {
            queue: from.decoder.uint()?,
            from: decode_purge(&mut from.decoder)?,
            key: from.option(Source::bytes)?,
            limit: from.decoder.uint32()?,
        },
        tag::RECALL => Command::Recall {
            queue: from.decoder.uint()?,
            worker: from.decoder.uint()?,
            from: decode_recall(&mut from.decoder)?,
            limit: from.decoder.uint32()?,
        },
        tag::OPEN_SESSION => Command::OpenSession { ttl_ms: from.decoder.uint()? },
        tag::KEEP_ALIVE => Command::KeepAlive { sessions: from.list(Source::uint)? },
        tag::CLOSE_SESSION => Command::CloseSession { session: from.decoder.uint()? },
        tag::ACQUIRE => Command::Acquire {
            lock: from.string()?,
            session: from.decoder.uint()?,
            wait: from.decoder.bool()?,
        },
        tag::RELEASE => Command::Release {
            lock: from.string()?,
            session: from.decoder.uint()?,
            fence: from.option(Source::uint)?,
        },
        tag::TXN => Command::Txn { compare: from.list(decode_compare)?, ops: from.list(decode_op)? },
        tag::CONFIGURE_FEED => {
            let retention = Retention { events: from.decoder.uint()?, bytes: from.decoder.uint()? };
            Command::ConfigureFeed { retention }
        }
        tag::OPEN_CLIENT => Command::OpenClient { client: from.decoder.u128()? },
        tag::ONCE if !within => Command::Once {
            client: from.decoder.u128()?,
            sequence: from.decoder.uint()?,
            command: Box::new(decode(from, true)?),
        },
        tag::BOOTSTRAP => Command::Bootstrap {
            cluster: from.decoder.u128()?,
            groups: from.decoder.uint32()?,
            first: FirstNode {
                node: from.decoder.uint()?,
                uuid: from.decoder.u128()?,
                address: from.string()?,
                version: from.string()?,
            },
            access: from.option(Source::hash)?,
        },
        tag::ENROL_NODE => Command::EnrolNode {
            uuid: from.decoder.u128()?,
            address: from.string()?,
            version: from.string()?,
            token: from.option(Source::hash)?,
        },
        tag::SET_NODE => Command::SetNode {
            node: from.decoder.uint()?,
            address: from.option(Source::string)?,
            version: from.option(Source::string)?,
            wish: from.option(|from| decode_wish(&mut from.decoder))?,
        },
        tag::REMOVE_NODE => Command::RemoveNode { node: from.decoder.uint()? },
        tag::MAKE_TOKEN => Command::MakeToken {
            hash: from.hash()?,
            kind: decode_kind(&mut from.decoder)?,
            label: from.string()?,
            ttl_ms: from.option(Source::uint)?,
            uses: from.option(|from| from.decoder.uint32())?,
        },
        tag::REVOKE_TOKEN => Command::RevokeToken { hash: from.hash()? },
        tag::SET_VOTERS => {
            Command::SetVoters { group: from.decoder.uint32()?, nodes: from.list(Source::uint)? }
        }
        _ => return Err(from.decoder.error("this command is not known")),
    })
}

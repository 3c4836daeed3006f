//! The language of transcripts beside the queues: sessions, locks, the registry, the feed, checkpoints, clients, the
//! cluster. See `tests/transcripts/README.md`.

use std::{collections::BTreeMap, fmt::Write as _};

use dolomedes_raft::{
    command::{
        Acquired, Change, Command, Compare, Event, FirstNode, Guard, NodeWish, PurgeFrom, QueueId,
        RecallFrom, RegistryOp, Reply, Retention, TokenHash, TokenKind, TxnReply,
    },
    machine::read::{Events, Feed, State},
};

use super::transcripts::{Words, cut, name, number, owned};

fn text(word: &str) -> String {
    String::from_utf8(owned(word).to_vec()).unwrap()
}

fn hash(byte: u8) -> TokenHash {
    [byte; 32]
}

/// `LOCK@FENCE`.
pub(super) fn guard(word: &str) -> Guard {
    let (lock, fence) = word.split_once('@').unwrap();
    Guard { lock: text(lock), fence: number(fence) }
}

pub(super) fn purge(queue: QueueId, words: &mut Words<'_>) -> Command {
    let from = match words.next() {
        "ready" => PurgeFrom::Ready,
        "delayed" => PurgeFrom::Delayed,
        "dead" => PurgeFrom::Dead,
        "done" => PurgeFrom::Done,
        other => panic!("cannot purge {other}"),
    };
    Command::Purge { queue, from, limit: words.number(), key: words.option("key").map(owned) }
}

fn txn(words: Vec<&str>) -> Command {
    let (mut compare, mut ops) = (Vec::new(), Vec::new());
    for word in words {
        let (mark, mut rest) = word.split_at(1);
        match mark {
            "?" => compare.push(match rest.strip_prefix("held:") {
                Some(held) => Compare::Held(guard(held)),
                None => match rest.split_once('=') {
                    Some((key, value)) => Compare::Value { key: owned(key), value: owned(value) },
                    None => {
                        let (key, revision) = rest.split_once('@').unwrap();
                        Compare::Revision { key: owned(key), revision: number(revision) }
                    }
                },
            }),
            "+" => {
                let session = cut(&mut rest, '~').map(number);
                let expect = cut(&mut rest, '@').map(number);
                let (key, value) = rest.split_once('=').unwrap();
                ops.push(RegistryOp::Set { key: owned(key), value: owned(value), expect, session });
            }
            "-" => {
                let expect = cut(&mut rest, '@').map(number);
                ops.push(RegistryOp::Delete { key: owned(rest), expect });
            }
            other => panic!("unknown mark {other} in a transaction"),
        }
    }
    Command::Txn { compare, ops }
}

pub(super) fn command(word: &str, words: &mut Words<'_>) -> Command {
    match word {
        "open" => Command::OpenSession { ttl_ms: words.number() },
        "alive" => Command::KeepAlive { sessions: words.rest().into_iter().map(number).collect() },
        "close" => Command::CloseSession { session: words.number() },
        "acquire" => {
            let wait = words.flag("wait");
            Command::Acquire { lock: text(words.next()), session: words.number(), wait }
        }
        "release" => {
            let fence = words.option("fence").map(number);
            Command::Release { lock: text(words.next()), session: words.number(), fence }
        }
        "txn" => txn(words.rest()),
        "feed" => Command::ConfigureFeed {
            retention: Retention {
                events: words.option("events").map_or(100, number),
                bytes: words.option("bytes").map_or(1_000_000, number),
            },
        },
        "client" => Command::OpenClient { client: words.number() },
        "bootstrap" => Command::Bootstrap {
            cluster: words.number(),
            groups: words.number(),
            first: FirstNode {
                node: words.number(),
                uuid: words.number(),
                address: text(words.next()),
                version: words.option("version").unwrap_or("1").to_owned(),
            },
            access: words.option("access").map(|byte| hash(number(byte))),
        },
        "enrol" => Command::EnrolNode {
            uuid: words.number(),
            address: text(words.next()),
            version: words.option("version").unwrap_or("1").to_owned(),
            token: words.option("token").map(|byte| hash(number(byte))),
        },
        "node" => Command::SetNode {
            node: words.number(),
            address: words.option("address").map(text),
            version: words.option("version").map(text),
            wish: words.option("wish").map(|wish| match wish {
                "any" => NodeWish::Any,
                "voter" => NodeWish::Voter,
                "worker" => NodeWish::Worker,
                "drain" => NodeWish::Drain,
                other => panic!("unknown wish {other}"),
            }),
        },
        "remove" => Command::RemoveNode { node: words.number() },
        "token" => Command::MakeToken {
            hash: hash(words.number()),
            ttl_ms: Some(words.next()).filter(|ttl| *ttl != "never").map(number),
            uses: words.option("uses").map(number),
            kind: match words.option("for").unwrap_or("join") {
                "join" => TokenKind::Join,
                "access" => TokenKind::Access,
                other => panic!("a token for {other}"),
            },
            label: words.option("label").map(text).unwrap_or_default(),
        },
        "revoke" => Command::RevokeToken { hash: hash(words.number()) },
        "voters" => Command::SetVoters {
            group: words.number(),
            nodes: words.rest().into_iter().map(number).collect(),
        },
        other => panic!("unknown command {other}"),
    }
}

pub(super) fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Replayed(count) => format!("replayed {count}"),
        Reply::Purged(count) => format!("purged {count}"),
        Reply::Recalled { moved, next } => {
            let next = match next {
                None => "that was all".to_owned(),
                Some(RecallFrom::Done { at, id }) => {
                    format!("go on at done {at}@{}.{}", id.index, id.ordinal)
                }
                Some(RecallFrom::Dead { id }) => format!("go on at dead {}.{}", id.index, id.ordinal),
            };
            format!("recalled {moved}, {next}")
        }
        Reply::Session(session) => format!("session {session}"),
        Reply::Kept(kept) => {
            let kept = kept.iter().map(|kept| if *kept { "kept" } else { "gone" });
            kept.collect::<Vec<_>>().join(" ")
        }
        Reply::Acquired(Acquired::Granted { fence }) => format!("granted under {fence}"),
        Reply::Acquired(Acquired::Queued { ticket }) => format!("in line with ticket {ticket}"),
        Reply::Acquired(Acquired::Taken { session, fence }) => format!("taken by {session} under {fence}"),
        Reply::Released(released) => if *released { "released" } else { "nothing to release" }.to_owned(),
        Reply::Txn(TxnReply::Written(revisions)) => format!("written, revisions {revisions:?}"),
        Reply::Txn(TxnReply::Failed { at, found }) => format!("condition {at} does not hold: {found}"),
        Reply::Bootstrapped(it) => format!("{} groups{}", it.groups, if it.created { ", new" } else { "" }),
        Reply::Enrolled(it) => format!("node {}{}", it.node, if it.created { ", new" } else { "" }),
        other => panic!("{other:?} is told elsewhere"),
    }
}

fn change(event: &Event) -> String {
    match &event.change {
        Change::Set { key, value, session } => {
            let with = session.map_or(String::new(), |session| format!(", goes with {session}"));
            format!("set {} to {}{with}", name(key), name(value))
        }
        Change::Deleted { key, session } => {
            let with = session.map_or(String::new(), |session| format!(", as {session} ended"));
            format!("deleted {}{with}", name(key))
        }
        Change::Granted { lock, session, fence } => format!("{lock} granted to {session} under {fence}"),
        Change::Released { lock, session, fence } => format!("{lock} released by {session} under {fence}"),
        Change::Checkpoint { name: of, version, removed } => {
            let what = if *removed { "removed" } else { "written" };
            format!("checkpoint {} {what}, version {version}", name(of.as_bytes()))
        }
    }
}

/// Adds all that there is beside the queues, each piece under the place that it has in the story.
pub(super) fn tell_state(state: &State<'_>, now: &mut BTreeMap<String, String>) {
    let all = usize::MAX;
    for session in state.sessions(None, all).unwrap() {
        let text = format!("session {}: until {}, items {}", session.id, session.expires_at, session.items);
        now.insert(format!("~1 {:06}", session.id), text);
    }
    for lock in state.locks("", None, all).unwrap() {
        let mut text = format!("lock {}: {} under {}", lock.name, lock.session, lock.fence);
        let line = state.waiters(&lock.name, all).unwrap();
        assert_eq!(line.len() as u64, lock.waiters, "waiters for {}", lock.name);
        for (ticket, session) in line {
            write!(text, ", then {session} with {ticket}").unwrap();
        }
        now.insert(format!("~2 {}", lock.name), text);
    }
    for entry in state.registry(b"", None, all).unwrap().keys {
        let key = name(&entry.key);
        let mut text =
            format!("entry {key}: {} at {}, made at {}", name(&entry.value), entry.revision, entry.created);
        if let Some(session) = entry.session {
            write!(text, ", goes with {session}").unwrap();
        }
        now.insert(format!("~3 {key}"), text);
    }
    for (of, checkpoint) in state.checkpoints("", None, all).unwrap() {
        let of = name(of.as_bytes());
        let past = state.checkpoint_history(&of, 0, all).unwrap();
        let past: Vec<_> =
            past.iter().map(|past| format!("{} {}", past.version, name(&past.value))).collect();
        if !past.is_empty() {
            now.insert(format!("~4 {of}"), format!("history of {of}: {}", past.join(", ")));
            assert_eq!(checkpoint.oldest + past.len() as u64, checkpoint.version);
        }
    }
    tell_cluster(state, now);
    let mut from = 1;
    loop {
        match state.events(from, &Feed::All, 3).unwrap() {
            Events::Compacted { oldest } => from = oldest,
            Events::Events { events, next, newest } => {
                for event in events {
                    let text = format!("event {}: {}", event.revision, change(&event));
                    now.insert(format!("~9 {:06}", event.revision), text);
                }
                from = next;
                if next > newest {
                    break;
                }
            }
        }
    }
}

fn tell_cluster(state: &State<'_>, now: &mut BTreeMap<String, String>) {
    let Some(cluster) = state.cluster().unwrap() else { return };
    let text = format!("cluster {}: {} groups, slots {:?}…", cluster.id, cluster.groups, &cluster.map[..6]);
    now.insert("~5".to_owned(), text);
    for node in state.nodes().unwrap() {
        let text = format!(
            "node {}: {}, release {}, at {}, wanted for {:?}, since {}",
            node.node, node.uuid, node.version, node.address, node.wish, node.since
        );
        now.insert(format!("~6 {:06}", node.node), text);
        assert_eq!(state.node_by_uuid(node.uuid).unwrap(), Some(node.node));
    }
    for removed in state.removed_nodes(usize::MAX).unwrap() {
        let text = format!("removed node {}: {} at {}", removed.node, removed.uuid, removed.at);
        now.insert(format!("~6 {:06} removed", removed.node), text);
    }
    for token in state.tokens().unwrap() {
        let left = token.uses_left.map_or("any".to_owned(), |left| left.to_string());
        let end = token.expires_at.map_or("revoked".to_owned(), |end| end.to_string());
        let mut text = format!("token {}: until {end}, uses {left}", token.hash[0]);
        if token.kind == TokenKind::Access {
            text.push_str(&format!(", for access, {:?}", token.label));
        }
        assert_eq!(state.token(&token.hash).unwrap(), Some(token.clone()));
        now.insert(format!("~7 {:03}", token.hash[0]), text);
    }
    for group in 0..=cluster.groups {
        if let Some(voters) = state.voters(group).unwrap() {
            now.insert(format!("~8 {group:03}"), format!("voters of group {group}: {voters:?}"));
        }
    }
}

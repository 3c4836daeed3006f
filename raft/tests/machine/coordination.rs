//! Sessions, locks, the registry and the feed against a second machine, as plain as it can be, and against what they promise:
//! one holder, rising fences, turns in order, no end before its time, events without gaps that add up to the list.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dolomedes_raft::{
    command::{
        Acquired, Change, Command, Compare, Guard, Refusal, RegistryOp, Reply, Retention, SessionId, TxnReply,
    },
    machine::read::{Events, Feed},
};
use dolomedes_storage::memory::MemoryEngine;
use proptest::{collection::vec, prelude::*};

use super::{determinism::replay, harness::Node};

const CLIENT: u128 = 77;

#[derive(Clone, Default)]
struct Lock {
    holder: SessionId,
    fence: u64,
    line: Vec<(u64, SessionId)>,
    next: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    value: Bytes,
    revision: u64,
    session: Option<SessionId>,
}

/// The plain machine.
#[derive(Default)]
struct Model {
    now: u64,
    index: u64,
    /// Term and end.
    sessions: BTreeMap<SessionId, (u64, u64)>,
    /// All that ever were.
    opened: Vec<SessionId>,
    locks: BTreeMap<String, Lock>,
    keys: BTreeMap<Bytes, Entry>,
    events: Vec<Change>,
    last_fence: u64,
    version: u64,
    replies: BTreeMap<u64, Reply>,
}

impl Model {
    fn emit(&mut self, change: Change) -> u64 {
        self.events.push(change);
        self.events.len() as u64
    }

    fn grant(&mut self, name: &str, session: SessionId) -> u64 {
        self.last_fence = self.index.max(self.last_fence + 1);
        let fence = self.last_fence;
        self.emit(Change::Granted { lock: name.into(), session, fence });
        let lock = self.locks.entry(name.into()).or_default();
        (lock.holder, lock.fence) = (session, fence);
        fence
    }

    fn let_go(&mut self, name: &str) {
        let lock = self.locks.get_mut(name).unwrap();
        let (session, fence) = (lock.holder, lock.fence);
        let next = (!lock.line.is_empty()).then(|| lock.line.remove(0).1);
        self.emit(Change::Released { lock: name.into(), session, fence });
        match next {
            Some(next) => _ = self.grant(name, next),
            None => _ = self.locks.remove(name),
        }
    }

    fn end(&mut self, id: SessionId) {
        self.sessions.remove(&id);
        for lock in self.locks.values_mut() {
            lock.line.retain(|(_, session)| *session != id);
        }
        let held: Vec<_> =
            self.locks.iter().filter(|(_, lock)| lock.holder == id).map(|(name, _)| name.clone()).collect();
        held.iter().for_each(|name| self.let_go(name));
        let keys: Vec<_> =
            self.keys.iter().filter(|(_, e)| e.session == Some(id)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.keys.remove(&key);
            self.emit(Change::Deleted { key, session: Some(id) });
        }
    }

    fn expire(&mut self) {
        let over = self.sessions.iter().filter(|(_, (_, end))| *end <= self.now);
        let over: BTreeSet<_> = over.map(|(id, (_, end))| (*end, *id)).collect();
        over.into_iter().for_each(|(_, id)| self.end(id));
    }

    fn held(&self, guard: &Guard) -> Result<(), u64> {
        let fence = self.locks.get(&guard.lock).map_or(0, |lock| lock.fence);
        if fence == guard.fence && fence > 0 { Ok(()) } else { Err(fence) }
    }

    fn apply(&mut self, command: &Command) -> Reply {
        match command {
            Command::OpenSession { ttl_ms } => {
                self.expire();
                let id = self.index;
                self.sessions.insert(id, (*ttl_ms, self.now + ttl_ms));
                self.opened.push(id);
                Reply::Session(id)
            }
            Command::KeepAlive { sessions } => {
                let now = self.now;
                let kept = sessions.iter().map(|id| {
                    self.sessions.get_mut(id).map(|(ttl, end)| *end = (*end).max(now + *ttl)).is_some()
                });
                Reply::Kept(kept.collect())
            }
            Command::CloseSession { session } => {
                if self.sessions.contains_key(session) {
                    self.end(*session);
                }
                Reply::Done
            }
            Command::Acquire { lock, session, wait } => self.acquire(lock, *session, *wait),
            Command::Release { lock: name, session, fence } => {
                let Some(lock) = self.locks.get_mut(name) else { return Reply::Released(false) };
                if lock.holder == *session {
                    let fits = fence.is_none_or(|fence| fence == lock.fence);
                    if fits {
                        self.let_go(name);
                    }
                    return Reply::Released(fits);
                }
                let before = lock.line.len();
                if fence.is_none() {
                    lock.line.retain(|(_, waits)| waits != session);
                }
                Reply::Released(lock.line.len() < before)
            }
            Command::Txn { compare, ops } => self.txn(compare, ops),
            Command::SetCheckpoint { name, guard, .. } => {
                if let Some(guard) = guard {
                    self.expire();
                    if self.held(guard).is_err() {
                        return Reply::Refused(Refusal::StaleFence(guard.clone()));
                    }
                }
                self.version += 1;
                let version = self.version;
                self.emit(Change::Checkpoint { name: name.clone(), version, removed: false });
                Reply::Checkpoint { written: true, version }
            }
            Command::Tick => {
                self.expire();
                let next = self.sessions.values().map(|(_, end)| *end - self.now).min();
                Reply::Ticked { next_due_ms: next }
            }
            Command::Once { sequence, command, .. } => {
                if let Some(reply) = self.replies.get(sequence) {
                    return reply.clone();
                }
                let reply = self.apply(command);
                self.replies.insert(*sequence, reply.clone());
                reply
            }
            Command::ConfigureFeed { .. } | Command::OpenClient { .. } => Reply::Done,
            other => panic!("{other:?} is not of this model"),
        }
    }

    fn acquire(&mut self, name: &str, session: SessionId, wait: bool) -> Reply {
        self.expire();
        if !self.sessions.contains_key(&session) {
            return Reply::Refused(Refusal::NoSession(session));
        }
        let Some(lock) = self.locks.get_mut(name) else {
            return Reply::Acquired(Acquired::Granted { fence: self.grant(name, session) });
        };
        if lock.holder == session {
            return Reply::Acquired(Acquired::Granted { fence: lock.fence });
        }
        if let Some((ticket, _)) = lock.line.iter().find(|(_, waits)| *waits == session) {
            return Reply::Acquired(Acquired::Queued { ticket: *ticket });
        }
        if !wait {
            return Reply::Acquired(Acquired::Taken { session: lock.holder, fence: lock.fence });
        }
        lock.line.push((lock.next, session));
        lock.next += 1;
        Reply::Acquired(Acquired::Queued { ticket: lock.next - 1 })
    }

    fn txn(&mut self, compare: &[Compare], ops: &[RegistryOp]) -> Reply {
        let mut seen = BTreeSet::new();
        if !ops.iter().all(|op| seen.insert(op.key())) {
            return Reply::Refused(Refusal::Invalid("a key is changed twice by one transaction".into()));
        }
        self.expire();
        let revision = |model: &Self, key: &Bytes| model.keys.get(key).map_or(0, |entry| entry.revision);
        for (at, compare) in (0..).zip(compare) {
            let failed = match compare {
                Compare::Revision { key, revision: is } => Some(revision(self, key)).filter(|r| r != is),
                Compare::Value { key, value } => {
                    let same = self.keys.get(key).is_some_and(|entry| entry.value == *value);
                    (!same).then(|| revision(self, key))
                }
                Compare::Held(guard) => self.held(guard).err(),
            };
            if let Some(found) = failed {
                return Reply::Txn(TxnReply::Failed { at, found });
            }
        }
        for (at, op) in (compare.len() as u32..).zip(ops) {
            let (RegistryOp::Set { expect, .. } | RegistryOp::Delete { expect, .. }) = op;
            let found = revision(self, op.key());
            if expect.is_some_and(|expect| expect != found) {
                return Reply::Txn(TxnReply::Failed { at, found });
            }
            if let RegistryOp::Set { session: Some(session), .. } = op
                && !self.sessions.contains_key(session)
            {
                return Reply::Refused(Refusal::NoSession(*session));
            }
        }
        let written = ops.iter().map(|op| match op.clone() {
            RegistryOp::Set { key, value, session, .. } => {
                let revision = self.emit(Change::Set { key: key.clone(), value: value.clone(), session });
                self.keys.insert(key, Entry { value, revision, session });
                revision
            }
            RegistryOp::Delete { key, .. } => match self.keys.remove(&key) {
                Some(_) => self.emit(Change::Deleted { key, session: None }),
                None => 0,
            },
        });
        Reply::Txn(TxnReply::Written(written.collect()))
    }
}

/// One step: a kind, and numbers that choose among what there is.
type Step = (u8, u8, u8, u64);

fn command((kind, a, b, c): Step, model: &Model) -> Option<Command> {
    let session = |at: u8| *model.opened.iter().rev().nth(usize::from(at) % 5).unwrap_or(&999);
    let lock = |at: u8| ["l", "m"][usize::from(at) % 2].to_owned();
    let key = |at: u8| Bytes::from_static([&b"a"[..], b"a\0", b"ab", b"b"][usize::from(at) % 4]);
    let fence = |at: u8| model.locks.get(&lock(at)).map_or(1, |lock| lock.fence);
    let guard = |at: u8| Guard { lock: lock(at), fence: fence(at) - u64::from(at > 200) };
    let some = |yes: bool, value: u64| yes.then_some(value);
    Some(match kind % 16 {
        0 | 1 => Command::OpenSession { ttl_ms: c + 1 },
        2 => Command::KeepAlive { sessions: vec![session(a), session(b)] },
        3 => Command::CloseSession { session: session(a) },
        4..=7 => Command::Acquire { lock: lock(a), session: session(b), wait: c % 4 > 0 },
        8 | 9 => {
            let holder = model.locks.get(&lock(a)).map_or(999, |lock| lock.holder);
            let session = if c % 2 == 0 { holder } else { session(b) };
            Command::Release { lock: lock(a), session, fence: some(c % 3 == 0, fence(a) - u64::from(c == 9)) }
        }
        10..=12 => {
            let found = model.keys.get(&key(b)).map_or(0, |entry| entry.revision);
            let mut ops = vec![RegistryOp::Set {
                key: key(a),
                value: Bytes::from(c.to_string()),
                expect: None,
                session: some(c % 3 == 0, session(b)),
            }];
            if c % 2 == 0 {
                ops.push(RegistryOp::Delete { key: key(b), expect: some(c % 4 == 0, found + c % 5 / 4) });
            }
            let compare = match c % 7 {
                0 => vec![Compare::Held(guard(a))],
                1 => vec![Compare::Revision { key: key(b), revision: found }],
                2 => vec![Compare::Value { key: key(b), value: Bytes::from((c / 2).to_string()) }],
                _ => Vec::new(),
            };
            Command::Txn { compare, ops }
        }
        13 => Command::SetCheckpoint {
            name: "c".into(),
            expect: None,
            value: Some(Bytes::from_static(b"value")),
            keep: 2,
            guard: (c % 2 == 0).then(|| guard(a)),
        },
        14 if c % 8 == 0 => {
            Command::ConfigureFeed { retention: Retention { events: u64::from(a) % 12, bytes: 1_000 } }
        }
        14 => Command::Tick,
        _ => return None,
    })
}

/// Somebody who follows the registry by events alone, and lists anew only when told to.
#[derive(Default)]
struct Watcher {
    next: u64,
    keys: BTreeMap<Bytes, (Bytes, u64)>,
}

impl Watcher {
    fn catch_up(&mut self, node: &Node) {
        loop {
            match node.state().events(self.next, &Feed::Registry(Bytes::from_static(b"a")), 2).unwrap() {
                Events::Compacted { oldest } => {
                    assert!(self.next < oldest, "compacted, though {} is kept from {oldest} on", self.next);
                    let page = node.state().registry(b"a", None, usize::MAX).unwrap();
                    self.keys = page
                        .keys
                        .into_iter()
                        .map(|entry| (entry.key, (entry.value, entry.revision)))
                        .collect();
                    self.next = page.revision + 1;
                }
                Events::Events { events, next, newest } => {
                    for event in events {
                        match event.change {
                            Change::Set { key, value, .. } => {
                                self.keys.insert(key, (value, event.revision));
                            }
                            Change::Deleted { key, .. } => {
                                assert!(self.keys.remove(&key).is_some(), "{key:?} was deleted twice");
                            }
                            other => panic!("{other:?} was not asked for"),
                        }
                    }
                    self.next = next;
                    if next > newest {
                        return;
                    }
                }
            }
        }
    }
}

/// Takes `steps` on a machine and on the model side by side. Returns the log.
fn walk(steps: &[Step]) -> Vec<(u64, Command)> {
    let (mut node, mut model, mut watcher) = (Node::new(), Model::default(), Watcher::default());
    let (mut log, mut now, mut sequence) = (Vec::new(), 0, 0);
    let mut holders: BTreeMap<String, u64> = BTreeMap::new();
    let (mut newest_fence, mut seen) = (0, 0);
    let mut last = None;
    let start = Command::OpenClient { client: CLIENT };
    for (at, step) in std::iter::once(&(0, 0, 0, 0)).chain(steps).enumerate() {
        let command = if at == 0 { Some(start.clone()) } else { command(*step, &model) };
        let Some(mut command) = command else {
            now += step.3;
            continue;
        };
        if step.1 % 5 == 4 && !matches!(command, Command::Tick | Command::KeepAlive { .. }) {
            sequence += 1;
            command = Command::Once { client: CLIENT, sequence, command: Box::new(command) };
        }
        // Now and then, what was sent last comes a second time.
        let again = last.take().filter(|_| step.2 % 9 == 8);
        last = Some(command.clone()).filter(|command| matches!(command, Command::Once { .. }));
        for command in [Some(command), again].into_iter().flatten() {
            let before = node.state().sessions(None, usize::MAX).unwrap();
            model.now = now;
            model.index += 1;
            let (is, should) = (node.run(now, command.clone()), model.apply(&command));
            assert_eq!(is, should, "reply to {command:?} at {now}");
            let closes = format!("{command:?}").contains("CloseSession");
            for session in before {
                let gone = node.state().session(session.id).unwrap().is_none();
                assert!(!gone || closes || session.expires_at <= now, "{session:?} ended early, at {now}");
            }
            log.push((now, command));
        }
        let keys: BTreeMap<_, _> = node
            .state()
            .registry(b"", None, usize::MAX)
            .unwrap()
            .keys
            .into_iter()
            .map(|e| (e.key, Entry { value: e.value, revision: e.revision, session: e.session }))
            .collect();
        assert_eq!(keys, model.keys);
        for (name, lock) in &model.locks {
            assert_eq!(node.state().waiters(name, usize::MAX).unwrap(), lock.line);
        }
        assert_eq!(node.state().locks("", None, usize::MAX).unwrap().len(), model.locks.len());
        watcher.catch_up(&node);
        let listed = keys.into_iter().filter(|(key, _)| key.starts_with(b"a"));
        let listed: BTreeMap<_, _> = listed.map(|(key, e)| (key, (e.value, e.revision))).collect();
        assert_eq!(watcher.keys, listed, "what the events add up to");
        assert_eq!(node.state().revision().unwrap(), model.events.len() as u64);
        // What is kept is what happened; and of locks, that each has one holder at a time.
        let kept = match node.state().events(1, &Feed::All, usize::MAX).unwrap() {
            Events::Compacted { oldest } => node.state().events(oldest, &Feed::All, usize::MAX).unwrap(),
            all => all,
        };
        let Events::Events { events, .. } = kept else { panic!("the oldest event is not there") };
        for event in &events {
            assert_eq!(event.change, model.events[event.revision as usize - 1]);
        }
        for change in &model.events[seen..] {
            match change {
                Change::Granted { lock, fence, .. } => {
                    assert!(*fence > newest_fence, "fence {fence} after {newest_fence}");
                    newest_fence = *fence;
                    assert_eq!(holders.insert(lock.clone(), *fence), None, "{lock} has two holders");
                }
                Change::Released { lock, fence, .. } => assert_eq!(holders.remove(lock), Some(*fence)),
                _ => {}
            }
        }
        seen = model.events.len();
    }
    log
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    vec((any::<u8>(), any::<u8>(), any::<u8>(), 0..60u64), 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn locks_and_the_registry_do_what_the_model_does(steps in steps(80)) {
        walk(&steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn chunks_and_restarts_leave_no_trace_in_locks_and_registry(steps in steps(80), chunk in 2..20usize) {
        let log = walk(&steps);
        let one_by_one = replay(&MemoryEngine::new(), &log, 1, false, false);
        for (chunk, restart) in [(log.len().max(1), false), (chunk, true)] {
            prop_assert_eq!(&replay(&MemoryEngine::new(), &log, chunk, restart, false), &one_by_one);
        }
    }
}

//! A second state machine, as plain as it can be: everything in maps, every question answered by looking at all of it. The
//! machine must give its replies and its numbers, whatever is asked. One queue; budgets are raised only.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dolomedes_raft::command::{
    Attached, Claimed, Command, Completion, CompletionVerdict, Consumer, Counters, Grant, LeaseRef, Message,
    MessageId, NewMessage, Outcome, PutStatus, QueueConfig, QueueId, QueueState, Refusal, Reply,
};
use proptest::prelude::*;

use super::{
    harness::Node,
    ops::{self, NODES, Step},
    promises::Promises,
};

#[derive(Clone, Debug, PartialEq)]
enum At {
    Ready,
    Delayed(u64),
    Leased,
    Done,
    Dead(String),
}

#[derive(Clone, Debug)]
struct Msg {
    key: Bytes,
    priority: u8,
    payload: Bytes,
    at: At,
    attempts: u32,
    lost: u32,
    free: u32,
}

#[derive(Clone, Debug)]
struct Lease {
    consumer: Consumer,
    fence: u64,
    expires_at: u64,
    release: bool,
}

#[derive(Clone, Debug, Default)]
struct Key {
    hold_until: u64,
    delay_ms: u64,
    due: Option<u64>,
    lease: Option<Lease>,
    units: u64,
    bytes: u64,
    exhausted: bool,
    note: Option<Bytes>,
}

#[derive(Clone, Debug, Default)]
struct Worker {
    epoch: u64,
    judged_upto: u64,
    released_upto: u64,
    refused: BTreeSet<u64>,
}

/// The plain machine.
pub(super) struct Model {
    pub(super) queue: QueueId,
    pub(super) config: QueueConfig,
    state: QueueState,
    now: u64,
    index: u64,
    messages: BTreeMap<MessageId, Msg>,
    keys: BTreeMap<Bytes, Key>,
    prints: BTreeSet<u128>,
    workers: BTreeMap<u64, Worker>,
    duplicates: u64,
    retries: u64,
    lost: u64,
}

impl Model {
    fn new(queue: QueueId, config: QueueConfig) -> Self {
        Self {
            queue,
            config,
            state: QueueState::Running,
            now: 0,
            index: queue,
            messages: BTreeMap::new(),
            keys: BTreeMap::new(),
            prints: BTreeSet::new(),
            workers: BTreeMap::new(),
            duplicates: 0,
            retries: 0,
            lost: 0,
        }
    }

    pub(super) fn epoch(&self, node: u64) -> u64 {
        self.workers.get(&node).map_or(0, |worker| worker.epoch)
    }

    pub(super) fn judged_upto(&self, node: u64) -> u64 {
        self.workers.get(&node).map_or(0, |worker| worker.judged_upto)
    }

    pub(super) fn leases(&self, node: u64) -> impl Iterator<Item = (Bytes, u64)> {
        let leases = self.keys.iter().filter_map(move |(name, key)| {
            let lease = key.lease.as_ref().filter(|lease| lease.consumer.node == node)?;
            Some((name.clone(), lease.fence))
        });
        leases.collect::<Vec<_>>().into_iter()
    }

    pub(super) fn leased_of(&self, key: &Bytes) -> Vec<MessageId> {
        self.ids(|message| message.key == *key && message.at == At::Leased)
    }

    fn ids(&self, wanted: impl Fn(&Msg) -> bool) -> Vec<MessageId> {
        self.messages.iter().filter(|(_, message)| wanted(message)).map(|(id, _)| *id).collect()
    }

    fn count(&self, wanted: impl Fn(&Msg) -> bool) -> u64 {
        self.ids(wanted).len() as u64
    }

    fn ready(&self, key: &Bytes) -> u64 {
        self.count(|message| message.key == *key && message.at == At::Ready)
    }

    fn ready_left(&self, key: &Bytes) -> u64 {
        if self.keys.get(key).is_none_or(|key| key.exhausted) { 0 } else { self.ready(key) }
    }

    fn is_back(&self, message: &Msg) -> bool {
        message.at == At::Ready && self.keys[&message.key].exhausted
    }

    fn live(&self) -> u64 {
        self.count(|message| match message.at {
            At::Ready => !self.is_back(message),
            At::Delayed(_) | At::Leased => true,
            _ => false,
        })
    }

    fn units(&self) -> u64 {
        self.keys.values().map(|key| key.units).sum()
    }

    fn counters(&self) -> Counters {
        Counters {
            accepted: self.messages.len() as u64,
            duplicates: self.duplicates,
            ready: self.count(|message| message.at == At::Ready && !self.is_back(message)),
            delayed: self.count(|message| matches!(message.at, At::Delayed(_))),
            leased: self.count(|message| message.at == At::Leased),
            done: self.count(|message| message.at == At::Done),
            dead: self.count(|message| matches!(message.at, At::Dead(_)) || self.is_back(message)),
            retries: self.retries,
            lost: self.lost,
            units: self.units(),
            bytes: self.keys.values().map(|key| key.bytes).sum(),
            keys: self.keys.len() as u64,
            purged: 0,
        }
    }

    /// Puts the key into the schedule if it belongs there.
    fn schedule(&mut self, name: &Bytes, since: u64) {
        let ready = self.ready(name);
        let key = self.keys.get_mut(name).unwrap();
        if key.lease.is_some() || key.exhausted || ready == 0 {
            key.due = None;
        } else if key.due.is_none() {
            key.due = Some(since.max(key.hold_until));
        }
    }

    fn judge_budget(&mut self, name: &Bytes) {
        let key = self.keys.get_mut(name).unwrap();
        key.exhausted = self.config.key_unit_budget.is_some_and(|budget| key.units >= budget);
        self.schedule(name, self.now);
    }

    fn promote(&mut self) {
        let now = self.now;
        let due = |message: &Msg| match message.at {
            At::Delayed(due) if due <= now => Some(due),
            _ => None,
        };
        let mut promoted: Vec<_> =
            self.messages.iter().filter_map(|(id, m)| Some((due(m)?, m.key.clone(), *id))).collect();
        promoted.sort();
        for (since, key, id) in promoted {
            self.messages.get_mut(&id).unwrap().at = At::Ready;
            self.schedule(&key, since);
        }
    }

    fn lose(&mut self, name: &Bytes) {
        let key = self.keys.get_mut(name).unwrap();
        key.lease = None;
        key.hold_until = key.hold_until.max(self.now + key.delay_ms);
        self.lost += 1;
        for id in self.leased_of(name) {
            let message = self.messages.get_mut(&id).unwrap();
            message.lost += 1;
            let last = message.lost >= self.config.max_lost;
            message.at = if last { At::Dead("lost".into()) } else { At::Ready };
        }
        self.schedule(name, self.now);
    }

    fn expire(&mut self) {
        let over = |key: &Key| key.lease.as_ref().is_some_and(|lease| lease.expires_at <= self.now);
        let names: Vec<_> =
            self.keys.iter().filter(|(_, key)| over(key)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.lose(&name);
        }
    }

    fn settle(&mut self) {
        if matches!(self.state, QueueState::Paused | QueueState::Cancelled) {
            return;
        }
        let spent = self.config.unit_budget.is_some_and(|budget| self.units() >= budget);
        self.state = if self.config.finishes && !self.messages.is_empty() && self.live() == 0 {
            QueueState::Finished
        } else if spent && self.counters().leased == 0 {
            QueueState::BudgetReached
        } else {
            QueueState::Running
        };
    }

    fn room(&self) -> u64 {
        let used = self.units() + self.counters().leased;
        self.config.unit_budget.map_or(u64::MAX, |budget| budget.saturating_sub(used))
    }

    fn key_room(&self, name: &Bytes) -> u64 {
        let used = self.keys[name].units + self.leased_of(name).len() as u64;
        self.config.key_unit_budget.map_or(u64::MAX, |budget| budget.saturating_sub(used))
    }

    fn take(&mut self, name: &Bytes, limit: u64) -> Vec<Message> {
        let limit = limit.min(self.room()).min(self.key_room(name));
        let mut ready = self.ids(|message| message.key == *name && message.at == At::Ready);
        ready.sort_by_key(|id| (9 - self.messages[id].priority, *id));
        ready.truncate(limit as usize);
        let granted = ready.into_iter().map(|id| {
            let message = self.messages.get_mut(&id).unwrap();
            message.at = At::Leased;
            let failures = message.attempts - message.lost - message.free;
            message.attempts += 1;
            let (attempt, lost) = (message.attempts, message.lost);
            let (priority, payload) = (message.priority, message.payload.clone());
            Message { id, attempt, failures, lost, priority, payload }
        });
        granted.collect()
    }

    /// What the machine must answer to `command`, the next entry of the log, stamped `stamp`.
    fn apply(&mut self, stamp: u64, command: &Command) -> Reply {
        self.now = self.now.max(stamp);
        self.index += 1;
        let consumer = match command {
            Command::Claim { consumer, .. } | Command::Renew { consumer, .. } => Some(consumer),
            Command::Complete { consumer, .. } => Some(consumer),
            _ => None,
        };
        if let Some(&Consumer { node, epoch }) =
            consumer.filter(|c| c.epoch == 0 || c.epoch != self.epoch(c.node))
        {
            return Reply::Refused(Refusal::StaleConsumer { node, epoch });
        }
        let reply = match command {
            Command::Put { messages, .. } => self.put(messages),
            Command::Claim { consumer, keys, per_key, more, ttl_ms, .. } => {
                let more: Vec<_> = more.iter().map(|more| (&more.lease, u64::from(more.messages))).collect();
                self.claim(*consumer, (*keys as usize, (*per_key).into()), &more, *ttl_ms)
            }
            Command::Renew { consumer, leases, ttl_ms, .. } => {
                let expires_at = self.now + ttl_ms;
                Reply::Renewed(
                    leases.iter().map(|lease| self.prolong(*consumer, lease, expires_at)).collect(),
                )
            }
            Command::Complete { queue, consumer, completions, released_upto } => {
                // Of a queue that is gone, nothing is known and every new result is refused.
                let gone = (*queue != self.queue)
                    .then(|| (std::mem::take(&mut self.keys), std::mem::take(&mut self.messages)));
                let reply = self.complete(*consumer, completions, *released_upto);
                if let Some(kept) = gone {
                    (self.keys, self.messages) = kept;
                }
                reply
            }
            Command::Attach { node } => self.attach(*node),
            Command::Redrive { key, reason, limit, .. } => {
                self.redrive(key.as_ref(), reason.as_deref(), *limit)
            }
            Command::ConfigureQueue { config, .. } => {
                self.config = config.clone();
                for name in self.keys.keys().cloned().collect::<Vec<_>>() {
                    self.judge_budget(&name);
                }
                self.promote();
                Reply::Done
            }
            Command::SetQueueState { state, .. } => {
                self.state = *state;
                Reply::Done
            }
            Command::DropQueue { .. } => {
                let workers = std::mem::take(&mut self.workers);
                let (now, index) = (self.now, self.index);
                *self = Self { workers, now, ..Self::new(index, self.config.clone()) };
                Reply::Done
            }
            Command::CreateQueue { .. } => {
                self.queue = self.index;
                Reply::Queue { queue: self.queue, created: true }
            }
            Command::Tick => {
                self.promote();
                self.expire();
                Reply::Ticked { next_due_ms: self.next([self.next_delayed(), self.next_end()]) }
            }
            other => unreachable!("{other:?} is not of this model"),
        };
        self.settle();
        reply
    }

    fn next_delayed(&self) -> Option<u64> {
        let delayed = self.messages.values().filter_map(|message| match message.at {
            At::Delayed(due) => Some(due),
            _ => None,
        });
        delayed.min()
    }

    fn next_end(&self) -> Option<u64> {
        self.keys.values().filter_map(|key| Some(key.lease.as_ref()?.expires_at)).min()
    }

    fn next<const N: usize>(&self, times: [Option<u64>; N]) -> Option<u64> {
        times.into_iter().flatten().min().map(|at| at.saturating_sub(self.now))
    }

    fn put(&mut self, messages: &[NewMessage]) -> Reply {
        let statuses = messages.iter().zip(0..).map(|(message, ordinal)| {
            if message.fingerprint.is_some_and(|print| self.prints.contains(&print)) {
                self.duplicates += 1;
                return PutStatus::Duplicate;
            }
            if self.live() >= self.config.capacity {
                return PutStatus::Full;
            }
            self.prints.extend(message.fingerprint);
            let delay_ms = self.config.key_delay_ms;
            self.keys.entry(message.key.clone()).or_insert(Key { delay_ms, ..Key::default() });
            let delay = message.delay_ms;
            let added = Msg {
                key: message.key.clone(),
                priority: message.priority,
                payload: message.payload.clone(),
                at: if delay == 0 { At::Ready } else { At::Delayed(self.now + delay) },
                attempts: 0,
                lost: 0,
                free: 0,
            };
            self.messages.insert(MessageId { index: self.index, ordinal }, added);
            self.schedule(&message.key, self.now);
            PutStatus::Accepted
        });
        Reply::Put(statuses.collect())
    }

    fn holds(&self, consumer: Consumer, lease: &LeaseRef) -> bool {
        let held = self.keys.get(&lease.key).and_then(|key| key.lease.as_ref());
        held.is_some_and(|held| held.consumer == consumer && held.fence == lease.fence)
    }

    fn prolong(&mut self, consumer: Consumer, lease: &LeaseRef, expires_at: u64) -> bool {
        let holds = self.holds(consumer, lease);
        if holds {
            let held = self.keys.get_mut(&lease.key).unwrap().lease.as_mut().unwrap();
            held.expires_at = held.expires_at.max(expires_at);
        }
        holds
    }

    fn claim(
        &mut self,
        consumer: Consumer,
        (keys, per_key): (usize, u64),
        more: &[(&LeaseRef, u64)],
        ttl_ms: u64,
    ) -> Reply {
        self.promote();
        self.settle();
        let expires_at = self.now + ttl_ms;
        let mut got_more = Vec::new();
        for (lease, limit) in more {
            if !self.prolong(consumer, lease, expires_at) {
                continue;
            }
            let open = self.state == QueueState::Running && !self.keys[&lease.key].exhausted;
            let messages = self.take(&lease.key, if open { *limit } else { 0 });
            if messages.is_empty() {
                continue;
            }
            let ready_left = self.ready_left(&lease.key);
            let now = self.now;
            let key = self.keys.get_mut(&lease.key).unwrap();
            let held = key.lease.as_mut().unwrap();
            held.release = false;
            got_more.push(Grant {
                lease: (*lease).clone(),
                ttl_ms: held.expires_at - now,
                hold_ms: key.hold_until.saturating_sub(now),
                delay_ms: key.delay_ms,
                note: None,
                messages,
                ready_left,
            });
        }
        self.expire();
        self.settle();
        let mut grants = Vec::new();
        while self.state == QueueState::Running && grants.len() < keys && per_key > 0 && self.room() > 0 {
            let due = self.keys.iter().filter_map(|(name, key)| Some((key.due?, name.clone())));
            let Some((_, name)) = due.filter(|(due, _)| *due <= self.now).min() else { break };
            let messages = self.take(&name, per_key);
            let ready_left = self.ready_left(&name);
            let fence = self.index;
            let key = self.keys.get_mut(&name).unwrap();
            key.due = None;
            key.lease = Some(Lease { consumer, fence, expires_at, release: false });
            grants.push(Grant {
                lease: LeaseRef { key: name.clone(), fence },
                ttl_ms,
                hold_ms: 0,
                delay_ms: key.delay_ms,
                note: key.note.clone(),
                messages,
                ready_left,
            });
        }
        grants.append(&mut got_more);
        self.settle();
        let scheduled = self.keys.values().filter_map(|key| key.due).min();
        let next_due_ms = match (self.state, self.room()) {
            (QueueState::Running, 0) => self.next([self.next_end()]),
            (QueueState::Running, _) => self.next([self.next_end(), self.next_delayed(), scheduled]),
            _ => None,
        };
        Reply::Claimed(Claimed { grants, state: self.state, next_due_ms })
    }

    fn complete(&mut self, consumer: Consumer, completions: &[Completion], released_upto: u64) -> Reply {
        let worker = self.workers.get_mut(&consumer.node).unwrap();
        let before = worker.judged_upto;
        let mut judged_upto = before;
        for result in completions.iter().flat_map(|completion| &completion.results) {
            if result.sequence > before {
                if result.sequence != judged_upto + 1 {
                    let sequence = result.sequence;
                    return Reply::Refused(Refusal::SequenceGap { judged_upto, sequence });
                }
                judged_upto = result.sequence;
            }
        }
        worker.released_upto = worker.released_upto.max(released_upto.min(before));
        let released_upto = worker.released_upto;
        worker.refused.retain(|sequence| *sequence > released_upto);
        worker.judged_upto = judged_upto;
        let verdicts = completions.iter().map(|completion| self.complete_one(consumer, completion, before));
        Reply::Completed(verdicts.collect())
    }

    fn complete_one(
        &mut self,
        consumer: Consumer,
        completion: &Completion,
        before: u64,
    ) -> CompletionVerdict {
        let name = &completion.lease.key;
        let holds = self.holds(consumer, &completion.lease);
        let (mut accepted, mut dead) = (Vec::new(), Vec::new());
        let leased = self.leased_of(name);
        let mut judged = BTreeSet::new();
        for result in &completion.results {
            let is_dead =
                |model: &Self| matches!(model.messages.get(&result.id), Some(Msg { at: At::Dead(_), .. }));
            let refused = &mut self.workers.get_mut(&consumer.node).unwrap().refused;
            if result.sequence > 0 && result.sequence <= before {
                let verdict = !refused.contains(&result.sequence);
                accepted.push(verdict);
                dead.push(verdict && self.keys.contains_key(name) && is_dead(self));
            } else if holds && leased.contains(&result.id) && judged.insert(result.id) {
                self.judge(result.id, &result.outcome);
                accepted.push(true);
                dead.push(is_dead(self));
            } else {
                refused.extend((result.sequence > 0).then_some(result.sequence));
                accepted.push(false);
                dead.push(false);
            }
        }
        let mut released = false;
        if holds {
            let nothing_leased = self.leased_of(name).is_empty();
            let key = self.keys.get_mut(name).unwrap();
            if let Some(pace) = &completion.pace {
                key.hold_until = key.hold_until.max(self.now + pace.hold_ms);
                key.delay_ms = pace.delay_ms;
                key.note = pace.note.clone().or(key.note.take());
            }
            let lease = key.lease.as_mut().unwrap();
            lease.release |= completion.release;
            released = lease.release && nothing_leased;
            if released {
                key.lease = None;
            }
            self.judge_budget(name);
        }
        CompletionVerdict { accepted, dead, released, ready_left: self.ready_left(name) }
    }

    fn judge(&mut self, id: MessageId, outcome: &Outcome) {
        let now = self.now;
        let message = self.messages.get_mut(&id).unwrap();
        let key = self.keys.get_mut(&message.key).unwrap();
        match outcome {
            Outcome::Done { units, bytes } | Outcome::Dead { units, bytes, .. } => {
                key.units += u64::from(*units);
                key.bytes += bytes;
                message.at = match outcome {
                    Outcome::Dead { reason, .. } => At::Dead(reason.clone()),
                    _ => At::Done,
                };
            }
            Outcome::Retry { after_ms, reason, free } => {
                message.free += u32::from(*free);
                let failures = message.attempts - message.lost - message.free;
                if !free && failures >= self.config.max_attempts {
                    message.at = At::Dead(reason.clone());
                } else {
                    self.retries += u64::from(!free);
                    message.at = if *after_ms == 0 { At::Ready } else { At::Delayed(now + after_ms) };
                }
            }
        }
    }

    fn attach(&mut self, node: u64) -> Reply {
        let names: Vec<_> = self.leases(node).map(|(name, _)| name).collect();
        for name in &names {
            self.lose(name);
        }
        let worker = self.workers.entry(node).or_default();
        worker.epoch += 1;
        Reply::Attached(Attached {
            consumer: Consumer { node, epoch: worker.epoch },
            judged_upto: worker.judged_upto,
            refused: worker.refused.iter().copied().collect(),
            leases_ended: names.len() as u64,
        })
    }

    fn redrive(&mut self, key: Option<&Bytes>, reason: Option<&str>, limit: u32) -> Reply {
        let limit = u64::from(limit).min(self.config.capacity.saturating_sub(self.live()));
        let mut letters = self.ids(|message| {
            let At::Dead(why) = &message.at else { return false };
            key.is_none_or(|key| *key == message.key)
                && reason.is_none_or(|reason| reason == why)
                && !self.keys[&message.key].exhausted
        });
        letters.truncate(limit as usize);
        for id in &letters {
            let message = self.messages.get_mut(id).unwrap();
            *message = Msg { at: At::Ready, attempts: 0, lost: 0, free: 0, ..message.clone() };
            let name = message.key.clone();
            self.schedule(&name, self.now);
        }
        Reply::Redriven(letters.len() as u64)
    }
}

/// Takes `steps` on a machine and on the model side by side. Returns the log.
pub(super) fn walk(config: &QueueConfig, steps: &[Step]) -> Vec<(u64, Command)> {
    let mut node = Node::new();
    let mut log = Vec::new();
    let mut promises = Promises::default();
    let mut last = vec![None; NODES as usize + 1];
    let mut now = 0;
    let created = ops::create(config);
    node.run(now, created.clone());
    log.push((now, created));
    let mut model = Model::new(1, config.clone());
    let start = (1..=NODES).map(|node| Step::Attach { node }).collect::<Vec<_>>();
    for step in start.iter().chain(steps) {
        if let Step::Pass(time) = step {
            now += time;
        }
        for command in step.commands(&model, &mut last) {
            let is = node.run(now, command.clone());
            let should = model.apply(now, &command);
            assert_eq!(is, should, "reply to {command:?} at {now}");
            promises.observe(now, &command, &is);
            log.push((now, command));
            if let Some(queue) = node.state().queue(model.queue).unwrap() {
                assert_eq!(queue.counters, model.counters(), "numbers at {now}");
                assert_eq!(queue.state, model.state, "state at {now}");
            }
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_machine_does_what_the_model_does(config in ops::rules(), steps in ops::steps(60)) {
        walk(&config, &steps);
    }
}

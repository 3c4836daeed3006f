//! Scenarios as text, in `tests/transcripts`: what is asked, and the complete story of what happens. `UPDATE_TRANSCRIPTS=1`
//! writes the files anew; read the difference before committing it.
//!
//! A line without indent is one log entry (its commands separated by `;`), or a comment. Indented lines are the story: the
//! replies, then each queue, key and dead letter that has changed. The language is explained by `tests/transcripts/README.md`.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

use bytes::Bytes;
use dolomedes_raft::command::{
    Attached, Claimed, Command, Completion, CompletionVerdict, Consumer, LeaseRef, MessageId, MessageResult,
    MoreOf, NewMessage, Outcome, Pace, QueueConfig, QueueId, QueueState, RecallFrom, Reply,
};

use super::{
    harness::{Node, config},
    stories,
};

/// The words of one command, taken from the front; options (`name=value`) and flags from anywhere.
pub(super) struct Words<'a> {
    line: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn new(line: &'a str) -> Self {
        Self { line, words: line.split_whitespace().collect() }
    }

    pub(super) fn next(&mut self) -> &'a str {
        assert!(!self.words.is_empty(), "a word is missing: {}", self.line);
        self.words.remove(0)
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self) -> T {
        number(self.next())
    }

    pub(super) fn option(&mut self, name: &str) -> Option<&'a str> {
        let value = |word: &&'a str| word.strip_prefix(name)?.strip_prefix('=');
        let at = self.words.iter().position(|word| value(word).is_some())?;
        value(&self.words.remove(at))
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| *word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    pub(super) fn rest(&mut self) -> Vec<&'a str> {
        std::mem::take(&mut self.words)
    }
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().unwrap_or_else(|| panic!("not a number: {text}"))
}

/// Cuts `mark` and what follows it off `text`.
pub(super) fn cut<'a>(text: &mut &'a str, mark: char) -> Option<&'a str> {
    let (before, after) = text.rsplit_once(mark)?;
    *text = before;
    Some(after)
}

pub(super) fn owned(text: &str) -> Bytes {
    // `xN` stands for N times x: for values out of bounds.
    match text.split_once('*') {
        Some((what, times)) => Bytes::from(what.repeat(number(times))),
        None => Bytes::copy_from_slice(text.as_bytes()),
    }
}

fn lease(text: &str) -> LeaseRef {
    let (key, fence) = text.split_once('@').unwrap();
    LeaseRef { key: owned(key), fence: number(fence) }
}

pub(super) fn id(text: &str) -> MessageId {
    let (index, ordinal) = text.split_once('.').unwrap();
    MessageId { index: number(index), ordinal: number(ordinal) }
}

/// `key/payload`, then any of `#fingerprint`, `+delay`, `!priority`.
fn message(mut text: &str) -> NewMessage {
    let fingerprint = cut(&mut text, '#').map(number);
    let delay_ms = cut(&mut text, '+').map_or(0, number);
    let priority = cut(&mut text, '!').map_or(5, number);
    let (key, payload) = text.split_once('/').unwrap();
    NewMessage { key: owned(key), priority, delay_ms, fingerprint, payload: owned(payload) }
}

/// `id=outcome` or `id=outcome~sequence`.
fn result(mut text: &str) -> MessageResult {
    let sequence = cut(&mut text, '~').map_or(0, number);
    let (message, outcome) = text.split_once('=').unwrap();
    let mut parts = outcome.split(':');
    let what = parts.next().unwrap();
    let mut part = || parts.next();
    let outcome = match what {
        "done" => Outcome::Done { units: part().map_or(1, number), bytes: part().map_or(100, number) },
        "retry" => Outcome::Retry {
            after_ms: part().map_or(0, number),
            reason: part().unwrap_or("failed").to_owned(),
            free: false,
        },
        "free" => {
            Outcome::Retry { after_ms: part().map_or(0, number), reason: "given back".to_owned(), free: true }
        }
        "dead" => Outcome::Dead {
            reason: String::from_utf8(owned(part().unwrap_or("refused")).to_vec()).unwrap(),
            units: part().map_or(0, number),
            bytes: part().map_or(0, number),
        },
        other => panic!("unknown outcome {other}"),
    };
    MessageResult { id: id(message), outcome, sequence }
}

/// A story being told.
struct Story {
    node: Node,
    now: u64,
    /// Queues by name, also those dropped.
    queues: BTreeMap<String, QueueId>,
    epochs: BTreeMap<u64, u64>,
    /// What was last told of each queue, key and dead letter.
    told: BTreeMap<String, String>,
}

impl Story {
    fn new() -> Self {
        Self {
            node: Node::new(),
            now: 0,
            queues: BTreeMap::new(),
            epochs: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    fn queue(&self, name: &str) -> QueueId {
        self.queues.get(name).copied().unwrap_or(999)
    }

    /// `w1` is worker 1 as it attached last, `w1.2` its epoch 2.
    fn consumer(&self, text: &str) -> Consumer {
        let (node, epoch) = match text.strip_prefix('w').unwrap().split_once('.') {
            Some((node, epoch)) => (number(node), number(epoch)),
            None => {
                let node = number(&text[1..]);
                (node, self.epochs.get(&node).copied().unwrap_or(0))
            }
        };
        Consumer { node, epoch }
    }

    fn config(&self, base: QueueConfig, words: &mut Words<'_>) -> QueueConfig {
        let mut config = base;
        let budget = |text: &str| (text != "none").then(|| number(text));
        let mut option = |name| words.option(name);
        config.max_attempts = option("max_attempts").map_or(config.max_attempts, number);
        config.max_lost = option("max_lost").map_or(config.max_lost, number);
        config.capacity = option("capacity").map_or(config.capacity, number);
        config.key_delay_ms = option("key_delay").map_or(config.key_delay_ms, number);
        config.retention_ms = option("retention").map_or(config.retention_ms, number);
        config.unit_budget = option("units").map_or(config.unit_budget, budget);
        config.byte_budget = option("bytes").map_or(config.byte_budget, budget);
        config.key_unit_budget = option("key_units").map_or(config.key_unit_budget, budget);
        config.key_byte_budget = option("key_bytes").map_or(config.key_byte_budget, budget);
        config.finishes |= words.flag("finishes");
        config
    }

    fn command(&self, line: &str) -> Command {
        let mut words = Words::new(line);
        let words = &mut words;
        let command = match words.next() {
            "create" => Command::CreateQueue {
                name: String::from_utf8(owned(words.next()).to_vec()).unwrap(),
                config: self.config(config(), words),
                spec: words.option("spec").map(owned).unwrap_or_default(),
            },
            "configure" => {
                let queue = self.queue(words.next());
                let before =
                    self.node.state().queue(queue).unwrap().map_or_else(config, |queue| queue.config);
                let spec = words.option("spec").map(owned);
                Command::ConfigureQueue { queue, config: self.config(before, words), spec }
            }
            "state" => Command::SetQueueState {
                queue: self.queue(words.next()),
                state: match words.next() {
                    "running" => QueueState::Running,
                    "paused" => QueueState::Paused,
                    "cancelled" => QueueState::Cancelled,
                    "finished" => QueueState::Finished,
                    other => panic!("unknown state {other}"),
                },
            },
            "drop" => Command::DropQueue { queue: self.queue(words.next()) },
            "put" => Command::Put {
                queue: self.queue(words.next()),
                messages: words.rest().into_iter().map(message).collect(),
            },
            "claim" => {
                let (queue, consumer) = (self.queue(words.next()), self.consumer(words.next()));
                let (keys, per_key) = {
                    let (keys, per_key) = words.next().split_once('x').unwrap();
                    (number(keys), number(per_key))
                };
                let ttl_ms = words.option("ttl").map_or(10_000, number);
                let more = words.rest().into_iter().map(|word| {
                    let (messages, of) = word.split_once(':').unwrap();
                    MoreOf { lease: lease(of), messages: number(messages) }
                });
                Command::Claim { queue, consumer, keys, per_key, more: more.collect(), ttl_ms }
            }
            "renew" => Command::Renew {
                queue: self.queue(words.next()),
                consumer: self.consumer(words.next()),
                ttl_ms: words.option("ttl").map_or(10_000, number),
                leases: words.rest().into_iter().map(lease).collect(),
            },
            "complete" => self.complete(words),
            "attach" => Command::Attach { node: words.number() },
            "redrive" => Command::Redrive {
                queue: self.queue(words.next()),
                limit: words.number(),
                key: words.option("key").map(owned),
                reason: words.option("reason").map(str::to_owned),
            },
            "checkpoint" => Command::SetCheckpoint {
                name: String::from_utf8(owned(words.next()).to_vec()).unwrap(),
                expect: words.option("expect").map(number),
                value: words.option("value").map(owned),
                keep: words.option("keep").map_or(1, number),
                guard: words.option("guard").map(stories::guard),
            },
            "tick" => Command::Tick,
            "replay" => Command::Replay {
                queue: self.queue(words.next()),
                limit: words.number(),
                key: words.option("key").map(owned),
                from: words.option("from").map_or(MessageId { index: 0, ordinal: 0 }, id),
                within_ms: words.option("within").map(number),
            },
            "recall" => Command::Recall {
                queue: self.queue(words.next()),
                worker: words.number(),
                limit: words.number(),
                from: match (words.option("done"), words.option("dead")) {
                    (Some(at), _) => {
                        let (at, message) = at.split_once('@').unwrap();
                        RecallFrom::Done { at: number(at), id: id(message) }
                    }
                    (None, Some(message)) => RecallFrom::Dead { id: id(message) },
                    (None, None) => RecallFrom::default(),
                },
            },
            "purge" => {
                let queue = self.queue(words.next());
                stories::purge(queue, words)
            }
            "once" => {
                let (client, sequence) = (words.number(), words.number());
                let command = Box::new(self.command(&words.rest().join(" ")));
                Command::Once { client, sequence, command }
            }
            other => stories::command(other, words),
        };
        assert!(words.words.is_empty(), "words are left over: {line}");
        command
    }

    fn complete(&self, words: &mut Words<'_>) -> Command {
        let (queue, consumer) = (self.queue(words.next()), self.consumer(words.next()));
        let released_upto = words.option("released").map_or(0, number);
        let pace = match (words.option("hold"), words.option("delay"), words.option("note")) {
            (None, None, None) => None,
            (hold, delay, note) => Some(Pace {
                hold_ms: hold.map_or(0, number),
                delay_ms: delay.map_or(0, number),
                note: note.map(owned),
            }),
        };
        let release = words.flag("release");
        let mut completions: Vec<Completion> = Vec::new();
        for word in words.rest() {
            if word.contains('@') {
                let (lease, results) = (lease(word), Vec::new());
                completions.push(Completion { lease, results, pace: pace.clone(), release });
            } else {
                completions.last_mut().unwrap().results.push(result(word));
            }
        }
        Command::Complete { queue, consumer, completions, released_upto }
    }

    /// Tells what `line` causes.
    fn tell(&mut self, line: &str) -> String {
        if let Some(time) = line.strip_prefix("at ") {
            self.now = number(time.trim());
            return String::new();
        }
        let lines: Vec<&str> = line.split(';').map(str::trim).collect();
        let commands: Vec<Command> = lines.iter().map(|line| self.command(line)).collect();
        let replies = self.node.apply(self.now, commands.clone());
        let mut story = String::new();
        for (command, reply) in commands.iter().zip(replies) {
            if let (Command::CreateQueue { name, .. }, Reply::Queue { queue, created: true }) =
                (command, &reply)
            {
                self.queues.insert(name.clone(), *queue);
            }
            if let Reply::Attached(attached) = &reply {
                self.epochs.insert(attached.consumer.node, attached.consumer.epoch);
            }
            tell_reply(&mut story, &reply);
        }
        self.tell_changes(&mut story);
        story
    }

    fn tell_changes(&mut self, story: &mut String) {
        let mut now: BTreeMap<String, String> = BTreeMap::new();
        let state = self.node.state();
        for (order, queue) in state.queues().unwrap().into_iter().enumerate() {
            let place = |what: &str| format!("{order:03} {what}");
            now.insert(place(""), tell_queue(&queue.name, queue.state, &queue.counters));
            for key in self.node.keys(queue.id) {
                let mut text = format!("{}: ready {}", name(&key.key), key.ready);
                for (what, count) in [
                    ("delayed", key.delayed),
                    ("leased", key.leased),
                    ("units", key.units),
                    ("delay", key.delay_ms),
                ] {
                    if count > 0 {
                        write!(text, ", {what} {count}").unwrap();
                    }
                }
                // The hold is told as a time, so that it does not change with each entry.
                if key.hold_ms > 0 {
                    write!(text, ", held until {}", state.log_time().unwrap() + key.hold_ms).unwrap();
                }
                if let Some(lease) = &key.lease {
                    let Consumer { node, epoch } = lease.consumer;
                    write!(text, ", w{node}.{epoch} until {} under {}", lease.expires_at, lease.fence)
                        .unwrap();
                }
                if key.exhausted {
                    text.push_str(", exhausted");
                }
                now.insert(place(&format!("key {}", name(&key.key))), format!("  {text}"));
            }
            for dead in state.dead_letters(queue.id, None, usize::MAX).unwrap() {
                let id = dead.id;
                let text = format!(
                    "  dead {}.{} of {} at {}: {} after {} deliveries",
                    id.index,
                    id.ordinal,
                    name(&dead.key),
                    dead.at,
                    dead.reason,
                    dead.attempts
                );
                now.insert(place(&format!("letter {:06}.{:06}", id.index, id.ordinal)), text);
            }
            for done in state.done_messages(queue.id, None, usize::MAX).unwrap() {
                let id = done.id;
                let text =
                    format!("  kept {}.{} of {}, done at {}", id.index, id.ordinal, name(&done.key), done.at);
                now.insert(place(&format!("kept {:06}.{:06}", id.index, id.ordinal)), text);
            }
        }
        stories::tell_state(&state, &mut now);
        for (place, text) in &now {
            if self.told.get(place) != Some(text) {
                writeln!(story, "  {text}").unwrap();
            }
        }
        for (place, text) in &self.told {
            if !now.contains_key(place) {
                writeln!(story, "  {} is gone", text.split([':', ',']).next().unwrap()).unwrap();
            }
        }
        self.told = now;
    }
}

fn tell_queue(name: &str, state: QueueState, c: &dolomedes_raft::command::Counters) -> String {
    let mut text = format!("{name}: {state:?}, accepted {}", c.accepted);
    for (what, count) in [
        ("duplicates", c.duplicates),
        ("ready", c.ready),
        ("delayed", c.delayed),
        ("leased", c.leased),
        ("done", c.done),
        ("dead", c.dead),
        ("retries", c.retries),
        ("lost", c.lost),
        ("units", c.units),
        ("bytes", c.bytes),
        ("purged", c.purged),
    ] {
        if count > 0 {
            write!(text, ", {what} {count}").unwrap();
        }
    }
    text
}

/// A key as text; a long one is shortened.
pub(super) fn name(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(key);
    if text.len() > 20 { format!("{}… ({} bytes)", &text[..3], text.len()) } else { text.into_owned() }
}

fn list<T>(items: &[T], tell: impl Fn(&T) -> String) -> String {
    if items.is_empty() { "none".to_owned() } else { items.iter().map(tell).collect::<Vec<_>>().join(" ") }
}

fn tell_reply(story: &mut String, reply: &Reply) {
    match reply {
        Reply::Done => writeln!(story, "  -> done"),
        Reply::Queue { queue, created } => {
            writeln!(story, "  -> queue {queue}{}", if *created { ", new" } else { ", as it was" })
        }
        Reply::Put(statuses) => writeln!(story, "  -> {}", list(statuses, |status| format!("{status:?}"))),
        Reply::Claimed(claimed) => {
            tell_claimed(story, claimed);
            Ok(())
        }
        Reply::Renewed(stand) => {
            writeln!(
                story,
                "  -> {}",
                list(stand, |stands| String::from(if *stands { "renewed" } else { "gone" }))
            )
        }
        Reply::Completed(verdicts) => {
            for verdict in verdicts {
                tell_verdict(story, verdict);
            }
            Ok(())
        }
        Reply::Attached(Attached { consumer, judged_upto, refused, leases_ended }) => writeln!(
            story,
            "  -> w{}.{}, judged up to {judged_upto}, refused {}, leases ended {leases_ended}",
            consumer.node,
            consumer.epoch,
            list(refused, u64::to_string)
        ),
        Reply::Redriven(count) => writeln!(story, "  -> redriven {count}"),
        Reply::Checkpoint { written, version } => {
            writeln!(story, "  -> {}, version {version}", if *written { "written" } else { "not written" })
        }
        Reply::Ticked { next_due_ms } => writeln!(story, "  -> ticked, next due {}", tell_due(*next_due_ms)),
        Reply::Refused(refusal) => writeln!(story, "  -> refused: {refusal}"),
        other => writeln!(story, "  -> {}", stories::reply(other)),
    }
    .unwrap();
}

fn tell_due(next_due_ms: Option<u64>) -> String {
    next_due_ms.map_or("never".to_owned(), |due| format!("in {due}"))
}

fn tell_claimed(story: &mut String, claimed: &Claimed) {
    writeln!(story, "  -> claimed, {:?}, next due {}", claimed.state, tell_due(claimed.next_due_ms)).unwrap();
    for grant in &claimed.grants {
        write!(
            story,
            "     {}@{} for {}, delay {}",
            name(&grant.lease.key),
            grant.lease.fence,
            grant.ttl_ms,
            grant.delay_ms
        )
        .unwrap();
        if grant.hold_ms > 0 {
            write!(story, ", held for {}", grant.hold_ms).unwrap();
        }
        if let Some(note) = &grant.note {
            write!(story, ", note {}", name(note)).unwrap();
        }
        let messages = list(&grant.messages, |message| {
            let attempt = if message.attempt > 1 {
                format!(" attempt {} after {} failures", message.attempt, message.failures)
            } else {
                String::new()
            };
            format!("[{}.{} {}{attempt}]", message.id.index, message.id.ordinal, name(&message.payload))
        });
        writeln!(story, ": {messages}, left {}", grant.ready_left).unwrap();
    }
}

fn tell_verdict(story: &mut String, verdict: &CompletionVerdict) {
    let results: Vec<_> = verdict.accepted.iter().zip(&verdict.dead).collect();
    let results = list(&results, |(accepted, dead)| {
        let text = match (accepted, dead) {
            (true, true) => "dead",
            (true, false) => "accepted",
            (false, _) => "refused",
        };
        text.to_owned()
    });
    let released = if verdict.released { ", key released" } else { "" };
    writeln!(story, "  -> {results}{released}, left {}", verdict.ready_left).unwrap();
}

/// The transcript with its story told anew.
fn retell(text: &str) -> String {
    let mut story = Story::new();
    let mut told = String::new();
    for line in text.lines() {
        if line.starts_with(' ') {
            continue;
        }
        writeln!(told, "{line}").unwrap();
        if !line.is_empty() && !line.starts_with('#') {
            told.push_str(&story.tell(line));
        }
    }
    told
}

fn transcripts() -> Vec<PathBuf> {
    // Tests run in their package's directory, wherever it was built.
    let files = fs::read_dir("tests/transcripts").unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    files
}

#[test]
fn transcripts_tell_what_happens() {
    let update = std::env::var_os("UPDATE_TRANSCRIPTS").is_some();
    let files = transcripts();
    assert!(!files.is_empty());
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let told = retell(&text);
        if update {
            fs::write(&path, told).unwrap();
        } else {
            for (at, (is, should)) in told.lines().zip(text.lines()).enumerate() {
                assert_eq!(is, should, "{}:{}", path.display(), at + 1);
            }
            assert_eq!(told.lines().count(), text.lines().count(), "{}", path.display());
        }
    }
}

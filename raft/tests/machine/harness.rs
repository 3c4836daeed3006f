//! One machine over one engine, one entry at a time, with its promises checked on the bare rows after each.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use bytes::Bytes;
use dolomedes_raft::{
    command::{Command, Entry, QueueConfig, QueueId, Reply},
    machine::{
        Machine, Overlay,
        read::{KeyInfo, QueueInfo, State},
    },
};
use dolomedes_storage::{
    codec::key::KeyReader,
    engine::{Durability, Engine, Family, Reader},
    memory::MemoryEngine,
};

pub(super) const GROUP: u32 = 1;
pub(super) const GENERATION: u64 = 0;

/// Rules without any limit that matters.
pub(super) fn config() -> QueueConfig {
    QueueConfig {
        max_attempts: 3,
        max_lost: 3,
        capacity: 1_000_000,
        key_delay_ms: 0,
        retention_ms: 0,
        unit_budget: None,
        byte_budget: None,
        key_unit_budget: None,
        key_byte_budget: None,
        finishes: false,
    }
}

/// All rows of a family.
pub(super) fn dump(reader: &dyn Reader, family: Family) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    reader
        .scan(family, &[], &[0xff; 64], &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    rows
}

/// A machine with its engine.
pub(super) struct Node {
    pub(super) engine: MemoryEngine,
    machine: Machine,
    pub(super) index: u64,
}

impl Node {
    pub(super) fn new() -> Self {
        Self { engine: MemoryEngine::new(), machine: Machine::new(GROUP, GENERATION), index: 0 }
    }

    /// Applies `commands` as one entry and checks what must always hold.
    pub(super) fn apply(&mut self, stamp: u64, commands: Vec<Command>) -> Vec<Reply> {
        self.index += 1;
        let entry = Entry { stamp, commands };
        let mut overlay = Overlay::new(&self.engine);
        let replies = self.machine.apply(&mut overlay, self.index, &entry).unwrap();
        let batch = overlay.into_batch();
        self.engine.write(batch, Durability::Buffered).unwrap();
        assert_eq!(replies.len(), entry.commands.len());
        check(&self.engine);
        replies
    }

    /// Applies one command.
    pub(super) fn run(&mut self, stamp: u64, command: Command) -> Reply {
        self.apply(stamp, vec![command]).remove(0)
    }

    pub(super) fn state(&self) -> State<'_> {
        State::new(&self.engine, GROUP, GENERATION)
    }

    pub(super) fn keys(&self, queue: QueueId) -> Vec<KeyInfo> {
        self.state().keys(queue, None, usize::MAX).unwrap()
    }
}

/// The bare rows of one queue, by the tags of their tables.
#[derive(Default)]
struct Tables {
    rows: BTreeMap<u8, Vec<Vec<u8>>>,
}

impl Tables {
    fn count(&self, tag: u8) -> u64 {
        self.rows.get(&tag).map_or(0, Vec::len) as u64
    }

    /// The rows of a table, with `read` applied to what follows the queue's number.
    fn read<T: Ord>(&self, tag: u8, read: impl Fn(KeyReader<'_>) -> T) -> BTreeSet<T> {
        let rows = self.rows.get(&tag).map(Vec::as_slice).unwrap_or_default();
        rows.iter().map(|row| read(KeyReader::new(&row[21..]))).collect()
    }
}

const SCHEDULE: u8 = 7;
const READY: u8 = 8;
const DELAYED: u8 = 9;
const LEASED: u8 = 10;
const DEAD: u8 = 11;
const EXPIRY: u8 = 13;
const EXHAUSTED: u8 = 14;
const HELD: u8 = 16;

/// What must hold between any two entries, for all queues in `reader`.
pub(super) fn check(reader: &dyn Reader) {
    let state = State::new(reader, GROUP, GENERATION);
    let mut tables: BTreeMap<QueueId, Tables> = BTreeMap::new();
    for (row, _) in dump(reader, Family::State) {
        if row.len() >= 21 && !matches!(row[12], 1 | 4 | 15 | 17..) {
            let queue = u64::from_be_bytes(row[13..21].try_into().unwrap());
            tables.entry(queue).or_default().rows.entry(row[12]).or_default().push(row);
        }
    }
    let queues = state.queues().unwrap();
    assert_eq!(
        queues.iter().map(|queue| queue.id).collect::<Vec<_>>(),
        tables.keys().copied().collect::<Vec<_>>(),
        "rows are left of a queue that was dropped"
    );
    for queue in queues {
        check_queue(&queue, &state.keys(queue.id, None, usize::MAX).unwrap(), &tables[&queue.id]);
    }
}

fn check_queue(queue: &QueueInfo, keys: &[KeyInfo], tables: &Tables) {
    let c = &queue.counters;
    assert_eq!(
        c.accepted,
        c.ready + c.delayed + c.leased + c.done + c.dead + c.purged,
        "accepted messages are lost: {c:?}"
    );
    let back = keys.iter().filter(|key| key.exhausted).map(|key| key.ready).sum::<u64>();
    assert_eq!(tables.count(READY), c.ready + back, "rows of ready messages");
    assert_eq!(tables.count(DELAYED), c.delayed, "rows of delayed messages");
    assert_eq!(tables.count(LEASED), c.leased, "rows of leased messages");
    assert_eq!(tables.count(DEAD), c.dead - back, "rows of dead letters");
    assert_eq!(keys.len() as u64, c.keys, "rows of keys");
    for (what, of_keys, of_queue) in [
        ("ready", keys.iter().map(|key| key.ready).sum::<u64>(), c.ready + back),
        ("delayed", keys.iter().map(|key| key.delayed).sum(), c.delayed),
        ("leased", keys.iter().map(|key| key.leased).sum(), c.leased),
        ("units", keys.iter().map(|key| key.units).sum(), c.units),
        ("bytes", keys.iter().map(|key| key.bytes).sum(), c.bytes),
    ] {
        assert_eq!(of_keys, of_queue, "{what} messages of keys and of their queue");
    }

    let waiting = keys.iter().filter(|key| key.lease.is_none() && !key.exhausted && key.ready > 0);
    let waiting: BTreeSet<Bytes> = waiting.map(|key| key.key.clone()).collect();
    let scheduled = tables.read(SCHEDULE, |mut parts| {
        parts.u64().unwrap();
        Bytes::from(parts.bytes().unwrap())
    });
    assert_eq!(scheduled, waiting, "keys in the schedule");
    assert_eq!(tables.count(SCHEDULE), waiting.len() as u64, "a key is in the schedule twice");
    assert_eq!(queue.waiting_keys, waiting.len() as u64);

    let leases = || keys.iter().filter_map(|key| key.lease.as_ref());
    let ends: BTreeSet<_> = leases().map(|lease| (lease.expires_at, lease.key.clone())).collect();
    let rows = tables.read(EXPIRY, |mut parts| (parts.u64().unwrap(), Bytes::from(parts.bytes().unwrap())));
    assert_eq!(rows, ends, "leases by their end");
    let owners: BTreeSet<_> = leases().map(|lease| (lease.consumer.node, lease.key.clone())).collect();
    let rows = tables.read(HELD, |mut parts| (parts.u64().unwrap(), Bytes::from(parts.bytes().unwrap())));
    assert_eq!(rows, owners, "leases by their owner");
    assert_eq!(queue.leased_keys, leases().count() as u64);
    for key in keys {
        assert!(key.leased == 0 || key.lease.is_some(), "messages are leased of a key that is not: {key:?}");
    }

    let exhausted: BTreeSet<_> = keys.iter().filter(|key| key.exhausted).map(|key| key.key.clone()).collect();
    let rows = tables.read(EXHAUSTED, |mut parts| Bytes::from(parts.bytes().unwrap()));
    assert_eq!(rows, exhausted, "exhausted keys");
    assert_eq!(queue.exhausted_keys, exhausted.len() as u64);
}

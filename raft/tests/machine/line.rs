//! A grant costs the same however many stand in line.

use std::sync::atomic::{AtomicUsize, Ordering};

use dolomedes_raft::{
    command::{Acquired, Command, Entry, Reply},
    machine::{Machine, Overlay, read::State},
};
use dolomedes_storage::{
    Result,
    engine::{Durability, Engine, Family, Reader, Visit},
    memory::MemoryEngine,
};

use super::harness::{GENERATION, GROUP};

/// An engine whose reads are counted: rows asked for, and rows that scans went through.
struct Counting {
    engine: MemoryEngine,
    reads: AtomicUsize,
}

impl Counting {
    fn count(&self, rows: usize) {
        self.reads.fetch_add(rows, Ordering::Relaxed);
    }
}

impl Reader for Counting {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.count(1);
        self.engine.get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.count(keys.len());
        self.engine.get_many(family, keys)
    }

    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.engine.scan(family, from, to, &mut |key, value| {
            self.count(1);
            visit(key, value)
        })
    }

    fn scan_back(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.engine.scan_back(family, from, to, &mut |key, value| {
            self.count(1);
            visit(key, value)
        })
    }
}

#[test]
fn a_grant_reads_a_handful_of_rows_with_ten_thousand_in_line() {
    const WAITERS: u64 = 10_000;
    let store = Counting { engine: MemoryEngine::new(), reads: AtomicUsize::new(0) };
    let mut machine = Machine::new(GROUP, GENERATION);
    let mut index = 0;
    let mut apply = |commands: Vec<Command>| {
        index += 1;
        store.reads.store(0, Ordering::Relaxed);
        let mut overlay = Overlay::new(&store);
        let replies = machine.apply(&mut overlay, index, &Entry { stamp: 0, commands }).unwrap();
        store.engine.write(overlay.into_batch(), Durability::Buffered).unwrap();
        (replies, store.reads.load(Ordering::Relaxed))
    };
    let acquire = |session| Command::Acquire { lock: "door".into(), session, wait: true };
    let release = |session| Command::Release { lock: "door".into(), session, fence: None };

    let (replies, _) = apply((0..=WAITERS).map(|_| Command::OpenSession { ttl_ms: 1_000 }).collect());
    let sessions: Vec<u64> = replies
        .into_iter()
        .map(|reply| match reply {
            Reply::Session(session) => session,
            other => panic!("{other:?}"),
        })
        .collect();
    let mut tickets = Vec::new();
    for session in &sessions {
        let (replies, reads) = apply(vec![acquire(*session)]);
        assert!(reads <= 8, "standing in line took {reads} reads");
        if let Reply::Acquired(Acquired::Queued { ticket }) = replies[0] {
            tickets.push(ticket);
        }
    }
    assert!(tickets.is_sorted() && tickets.len() as u64 == WAITERS);

    // A part of the line goes away: from its middle and from its front.
    let gone = |at: usize| (1..1_000).contains(&at) || (4_000..6_000).contains(&at);
    for (at, session) in sessions.iter().enumerate() {
        if gone(at) {
            apply(vec![Command::CloseSession { session: *session }]);
        }
    }
    let (mut most, mut newest_fence) = (0, 0);
    let line = sessions.iter().enumerate().filter(|(at, _)| !gone(*at));
    for (_, session) in line {
        let lock = State::new(&store.engine, GROUP, GENERATION).lock("door").unwrap().unwrap();
        assert_eq!(lock.session, *session, "turns are taken in order");
        assert!(lock.fence > newest_fence);
        newest_fence = lock.fence;
        let (replies, reads) = apply(vec![release(*session)]);
        assert_eq!(replies, [Reply::Released(true)]);
        most = most.max(reads);
    }
    assert!(most <= 8, "a grant took {most} reads");
    assert_eq!(State::new(&store.engine, GROUP, GENERATION).lock("door").unwrap(), None);
}

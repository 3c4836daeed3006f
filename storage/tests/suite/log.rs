//! The log's bytes: order, durability, gaps, many groups, and every crash against a model.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use bytes::Bytes;
use dolomedes_storage::{
    Error,
    engine::{Batch, Durability, Engine, Family},
    log::{Completion, LogOptions, LogStore, LogSync},
    memory::{Fault, MemoryEngine},
};
use proptest::{collection::vec, prelude::*};

use crate::open as open_rocks;

fn store(engine: impl Engine, group: u32, tail_bytes: usize) -> LogStore {
    let sync = LogSync::start(Arc::new(engine)).unwrap();
    LogStore::open(&sync, group, LogOptions { tail_bytes }).unwrap()
}

fn payload(index: u64, salt: u64) -> Bytes {
    Bytes::from(format!("{index}:{salt}:{}", "x".repeat((index * 7 % 50) as usize)))
}

fn entries(range: std::ops::Range<u64>) -> Vec<(u64, Bytes)> {
    range.map(|index| (index, payload(index, 0))).collect()
}

fn unheard() -> Completion {
    Box::new(|_| {})
}

/// Runs `case` on both engines, with all, some and no entries in memory.
fn on_all(case: impl Fn(&LogStore)) {
    for tail_bytes in [0, 200, 1 << 20] {
        case(&store(MemoryEngine::new(), 3, tail_bytes));
        let dir = tempfile::tempdir().unwrap();
        case(&store(open_rocks(dir.path()).unwrap(), 3, tail_bytes));
    }
}

#[test]
fn reads_what_was_appended() {
    on_all(|log| {
        assert_eq!((log.first_index(), log.last_index(), log.last().unwrap()), (None, None, None));
        assert_eq!(log.read(0..100).unwrap(), []);
        log.append(entries(0..1), unheard()).unwrap();
        log.append(entries(1..40), unheard()).unwrap();
        log.append([], unheard()).unwrap();
        assert_eq!((log.first_index(), log.last_index()), (Some(0), Some(39)));
        assert_eq!(log.last().unwrap(), Some((39, payload(39, 0))));
        for range in [0..40, 0..1, 39..40, 17..31, 5..5] {
            assert_eq!(log.read(range.clone()).unwrap(), entries(range));
        }
        assert_eq!(log.read(30..u64::MAX).unwrap(), entries(30..40), "what there is of the range");
        assert_eq!(log.read(40..50).unwrap(), []);
        assert!(log.append(entries(41..42), unheard()).is_err(), "a gap");
        assert!(log.append(entries(39..40), unheard()).is_err(), "an overlap");
        assert!(log.append([(40, Bytes::new()), (42, Bytes::new())], unheard()).is_err());
        assert_eq!(log.last_index(), Some(39), "a refused append changes nothing");
        log.append(entries(40..41), unheard()).unwrap();
    });
}

#[test]
fn reads_within_a_cap_of_bytes() {
    on_all(|log| {
        log.append((0..20).map(|index| (index, Bytes::from(vec![0; 100]))), unheard()).unwrap();
        let read = |range, cap| log.read_limited(range, cap).unwrap().len();
        assert_eq!(read(0..20, 0), 1, "never empty");
        assert_eq!(read(0..20, 100), 1);
        assert_eq!(read(0..20, 101), 2);
        assert_eq!(read(0..20, 1950), 20);
        assert_eq!(read(15..20, 350), 4);
        assert_eq!(read(0..20, usize::MAX), 20);
    });
}

#[test]
fn truncates_and_purges() {
    on_all(|log| {
        log.append(entries(0..20), unheard()).unwrap();
        log.truncate_after(Some(25)).unwrap();
        log.truncate_after(Some(19)).unwrap();
        log.truncate_after(Some(14)).unwrap();
        assert_eq!(log.read(0..100).unwrap(), entries(0..15));
        log.append([(15, payload(15, 1))], unheard()).unwrap();
        assert_eq!(log.last().unwrap(), Some((15, payload(15, 1))));

        log.purge(9, b"mark 9").unwrap();
        log.purge(4, b"older").unwrap();
        assert_eq!(log.purged(), Some((9, Bytes::from_static(b"mark 9"))));
        assert_eq!((log.first_index(), log.last_index()), (Some(10), Some(15)));
        assert_eq!(log.read(0..15).unwrap(), entries(10..15));

        log.truncate_after(None).unwrap();
        assert_eq!((log.first_index(), log.last_index()), (None, None));
        assert!(log.append(entries(0..1), unheard()).is_err(), "the log goes on behind its purge mark");
        log.append(entries(10..12), unheard()).unwrap();
        log.purge(100, b"mark 100").unwrap();
        assert_eq!((log.first_index(), log.read(0..200).unwrap().len()), (None, 0));
        log.append(entries(101..103), unheard()).unwrap();
        assert_eq!(log.read(0..200).unwrap(), entries(101..103));
        assert_eq!(
            log.held_bytes(),
            entries(101..103).iter().map(|(_, it)| it.len() as u64 + 17).sum::<u64>()
        );
        assert_eq!(log.purgeable(1 << 20), None);
        assert_eq!(log.purgeable(0), Some(102));
    });
}

#[test]
fn is_the_same_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let log = store(open_rocks(dir.path()).unwrap(), 3, 1000);
        if round == 0 {
            assert_eq!((log.read_vote().unwrap(), log.read_committed().unwrap()), (None, None));
            log.append(entries(0..50), unheard()).unwrap();
            log.purge(9, b"mark").unwrap();
            log.save_vote(b"vote 1").unwrap();
            log.save_vote(b"vote 2").unwrap();
            log.save_committed(b"45").unwrap();
        }
        assert_eq!((log.first_index(), log.last_index()), (Some(10), Some(49)));
        assert_eq!(log.read(0..100).unwrap(), entries(10..50));
        assert_eq!(log.purged(), Some((9, Bytes::from_static(b"mark"))));
        assert_eq!(log.read_vote().unwrap().unwrap(), "vote 2");
        assert_eq!(log.read_committed().unwrap().unwrap(), "45");
        assert!(log.held_bytes() > 0);
    }
}

#[test]
fn groups_do_not_see_each_other() {
    let sync = LogSync::start(Arc::new(MemoryEngine::new())).unwrap();
    let open = |group| LogStore::open(&sync, group, LogOptions { tail_bytes: 0 }).unwrap();
    let logs: Vec<LogStore> = [0, 1, 2, u32::MAX].map(open).into();
    for log in &logs {
        log.append(entries(5..10), unheard()).unwrap();
        log.save_vote(b"vote").unwrap();
    }
    logs[1].truncate_after(None).unwrap();
    logs[2].purge(7, b"").unwrap();
    let spans: Vec<_> =
        [0, 1, 2, u32::MAX].map(|group| open(group).first_index().zip(open(group).last_index())).into();
    assert_eq!(spans, [Some((5, 9)), None, Some((8, 9)), Some((5, 9))]);
}

#[test]
fn completes_in_the_order_of_submission() {
    let dir = tempfile::tempdir().unwrap();
    let engine: Arc<dyn Engine> = Arc::new(open_rocks(dir.path()).unwrap());
    let sync = LogSync::start(engine).unwrap();
    let completed = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for group in 0..4u32 {
            let log = LogStore::open(&sync, group, LogOptions::default()).unwrap();
            let completed = completed.clone();
            scope.spawn(move || {
                for index in 0..200u64 {
                    let completed = completed.clone();
                    let done: Completion = Box::new(move |result| {
                        result.unwrap();
                        completed.lock().unwrap().push((group, index));
                    });
                    log.append([(index, payload(index, 0))], done).unwrap();
                }
            });
        }
    });
    sync.wait().unwrap();
    let completed = completed.lock().unwrap();
    assert_eq!(completed.len(), 800);
    for group in 0..4 {
        let own: Vec<u64> =
            completed.iter().filter(|(of, _)| *of == group).map(|(_, index)| *index).collect();
        assert!(own.is_sorted());
    }
}

#[test]
fn completes_only_what_is_durable() {
    let engine = MemoryEngine::new();
    let log = store(engine.clone(), 1, 0);
    for index in 0..50 {
        let (sender, receiver) = mpsc::channel();
        let observer = engine.clone();
        let done: Completion = Box::new(move |result| {
            result.unwrap();
            let lost_all = observer.crash_images().next().unwrap();
            sender.send(store(lost_all, 1, 0).last_index()).unwrap();
        });
        log.append([(index, payload(index, 0))], done).unwrap();
        assert_eq!(receiver.recv().unwrap(), Some(index));
    }
}

#[test]
fn a_failure_is_final() {
    let injected = || Error::Engine("injected".into());
    for fault in [Fault::Sync { after: 0, error: injected() }, Fault::Write { after: 0, error: injected() }] {
        let engine = MemoryEngine::new();
        let sync = LogSync::start(Arc::new(engine.clone())).unwrap();
        let log = LogStore::open(&sync, 1, LogOptions::default()).unwrap();
        let other = LogStore::open(&sync, 2, LogOptions::default()).unwrap();
        log.append(entries(0..1), unheard()).unwrap();
        sync.wait().unwrap();
        engine.inject(fault);
        let (sender, receiver) = mpsc::channel();
        let done: Completion = Box::new(move |result| sender.send(result).unwrap());
        let _ = log.append(entries(1..2), done);
        assert!(receiver.recv().unwrap().unwrap_err().to_string().contains("injected"));
        assert!(other.append(entries(0..1), unheard()).is_err(), "for all groups");
        assert!(log.save_vote(b"vote").is_err());
        assert!(sync.wait().is_err());
        assert!(sync.failure().is_some());
    }
}

#[test]
fn a_panicking_completion_stops_the_log_instead_of_hanging_it() {
    let log = store(MemoryEngine::new(), 1, 0);
    log.append(entries(0..1), Box::new(|_| panic!("meant to"))).unwrap();
    assert!(log.sync().wait().is_err());
    assert!(log.append(entries(1..2), unheard()).is_err());
}

#[test]
fn the_last_handle_may_go_with_a_completion() {
    let log = store(MemoryEngine::new(), 1, 0);
    let (sender, receiver) = mpsc::channel();
    let own = log.clone();
    let done: Completion = Box::new(move |result| {
        drop(own);
        sender.send(result).unwrap();
    });
    log.append(entries(0..1), done).unwrap();
    drop(log);
    receiver.recv().unwrap().unwrap();
}

#[test]
fn damaged_rows_are_refused() {
    let key = |index: u64| [&3u32.to_be_bytes()[..], &index.to_be_bytes()].concat();
    let damage = |change: &dyn Fn(&mut Batch, &MemoryEngine)| {
        let engine = MemoryEngine::new();
        let log = store(engine.clone(), 3, 0);
        log.append(entries(0..10), unheard()).unwrap();
        log.purge(1, b"mark").unwrap();
        log.save_vote(b"vote").unwrap();
        let mut batch = Batch::new();
        change(&mut batch, &engine);
        engine.write(batch, Durability::Synced).unwrap();
        let sync = LogSync::start(Arc::new(engine)).unwrap();
        let read = LogStore::open(&sync, 3, LogOptions { tail_bytes: 0 })
            .and_then(|log| log.read_vote().and_then(|_| log.read(0..100)));
        match read {
            Err(Error::Corrupt { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    damage(&|batch, _| batch.delete(Family::Log, key(5)));
    damage(&|batch, _| batch.delete(Family::Log, key(2)));
    damage(&|batch, _| batch.put(Family::Log, key(5), "garbage"));
    damage(&|batch, _| batch.put(Family::Log, key(5), ""));
    damage(&|batch, engine| {
        let mut row = dolomedes_storage::engine::Reader::get(engine, Family::Log, &key(5)).unwrap().unwrap();
        row[7] ^= 1;
        batch.put(Family::Log, key(5), row);
    });
    damage(&|batch, _| batch.put(Family::Meta, b"L\0\0\0\x03\x01".to_vec(), "vote"));
    damage(&|batch, _| batch.put(Family::Meta, b"L\0\0\0\x03\x02".to_vec(), "mark"));
}

#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Truncate(u64),
    Purge(u64),
    Vote,
    Committed,
    Wait,
    Crash(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..6u64).prop_map(Step::Append),
        1 => (0..4u64).prop_map(Step::Truncate),
        1 => (0..8u64).prop_map(Step::Purge),
        1 => Just(Step::Vote),
        1 => Just(Step::Committed),
        1 => Just(Step::Wait),
        1 => (0..=8usize).prop_map(Step::Crash),
    ]
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    entries: Vec<(u64, Bytes)>,
    purged: Option<u64>,
    vote: Option<u64>,
    committed: Option<u64>,
}

fn number(bytes: Option<Bytes>) -> Option<u64> {
    bytes.map(|bytes| std::str::from_utf8(&bytes).unwrap().parse().unwrap())
}

fn observe(log: &LogStore) -> Model {
    let entries = log.read(0..u64::MAX).unwrap();
    assert_eq!(log.first_index(), entries.first().map(|(index, _)| *index));
    assert_eq!(log.last().unwrap(), entries.last().cloned());
    Model {
        entries,
        purged: log.purged().map(|(upto, mark)| {
            assert_eq!(mark, upto.to_string());
            upto
        }),
        vote: number(log.read_vote().unwrap()),
        committed: number(log.read_committed().unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// After a crash the log is as it was after some step, at or behind the last one known to be durable.
    #[test]
    fn crashes_leave_a_state_that_was(steps in vec(step(), 1..60), tail_bytes in 0..400usize) {
        let mut engine = MemoryEngine::new();
        let mut log = store(engine.clone(), 3, tail_bytes);
        let mut model = Model::default();
        // All states since the last crash, and the place of the newest that was reported as durable.
        let mut states = vec![model.clone()];
        let mut durable = Arc::new(AtomicUsize::new(0));
        for (salt, step) in (1..).zip(steps) {
            let next = model.entries.last().map(|(last, _)| last + 1).or(model.purged.map(|it| it + 1)).unwrap_or(0);
            match step {
                Step::Append(count) => {
                    let new: Vec<_> = (next..next + count).map(|index| (index, payload(index, salt))).collect();
                    model.entries.extend(new.iter().cloned());
                    let (reached, durable) = (states.len(), durable.clone());
                    log.append(new, Box::new(move |result| {
                        if result.is_ok() {
                            durable.fetch_max(reached, Ordering::SeqCst);
                        }
                    })).unwrap();
                }
                Step::Truncate(back) => {
                    let keep = next.checked_sub(back + 1);
                    model.entries.retain(|(index, _)| keep.is_some_and(|keep| *index <= keep));
                    log.truncate_after(keep).unwrap();
                }
                Step::Purge(ahead) => {
                    let upto = model.entries.first().map_or(next, |(first, _)| *first) + ahead;
                    model.entries.retain(|(index, _)| *index > upto);
                    model.purged = Some(upto);
                    log.purge(upto, upto.to_string().as_bytes()).unwrap();
                }
                Step::Vote => {
                    model.vote = Some(salt);
                    log.save_vote(salt.to_string().as_bytes()).unwrap();
                    durable.fetch_max(states.len(), Ordering::SeqCst);
                }
                Step::Committed => {
                    model.committed = Some(salt);
                    log.save_committed(salt.to_string().as_bytes()).unwrap();
                }
                Step::Wait => {
                    log.sync().wait().unwrap();
                    durable.fetch_max(states.len(), Ordering::SeqCst);
                }
                Step::Crash(share) => {
                    let known = durable.load(Ordering::SeqCst);
                    engine = engine.crash(|unsynced| unsynced * share / 8);
                    log = store(engine.clone(), 3, tail_bytes);
                    let found = observe(&log);
                    prop_assert!(states[known.min(states.len() - 1)..].contains(&found), "{:?}", found);
                    model = found;
                    states.clear();
                    durable = Arc::default();
                }
            }
            states.push(model.clone());
            prop_assert_eq!(&observe(&log), &model);
        }
    }
}

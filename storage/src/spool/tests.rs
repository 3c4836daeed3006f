//! The spool against a model, against cut and damaged files, and on a disk that fails.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const SMALL: SpoolOptions = SpoolOptions { segment_bytes: 300, max_bytes: 2_000, buffer_bytes: 64 };

fn segments(dir: &Path) -> Vec<PathBuf> {
    list_segments(dir).unwrap().into_iter().map(|first| dir.join(file_name(first))).collect()
}

fn all(spool: &Spool) -> Vec<(u64, Vec<u8>)> {
    let mut reader = spool.reader();
    let mut found = Vec::new();
    let mut from = reader.first_seq();
    while from <= reader.synced_upto() {
        for entry in reader.read(from, u64::MAX, 100).unwrap() {
            from = entry.seq + 1;
            found.push((entry.seq, entry.body.to_vec()));
        }
    }
    found
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn records_come_back_in_order_across_segments_and_restarts() {
    let dir = TempDir::new().unwrap();
    let mut wanted = Vec::new();
    for round in 0..4u8 {
        let (mut spool, recovered) = Spool::open(dir.path(), SMALL).unwrap();
        assert_eq!(recovered.last_seq, wanted.len() as u64);
        assert_eq!(all(&spool), wanted);
        for length in [0, 1, 40, 250, 1000] {
            let body = vec![round; length];
            let seq = spool.append(&body).unwrap();
            wanted.push((seq, body));
        }
        assert_eq!(spool.sync().unwrap(), wanted.len() as u64);
    }
    assert!(segments(dir.path()).len() > 5);
}

#[test]
fn a_reader_sees_only_what_is_synced() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = Spool::open(dir.path(), SpoolOptions::default()).unwrap();
    let mut reader = spool.reader();
    spool.append_batch(["a", "b"]).unwrap();
    assert!(reader.read(1, u64::MAX, 1000).unwrap().is_empty());
    spool.sync().unwrap();
    spool.append(b"c").unwrap();
    assert_eq!(reader.read(1, u64::MAX, 1000).unwrap().len(), 2);
    assert_eq!(reader.read(2, u64::MAX, 0).unwrap().len(), 1, "at least one");
    assert!(reader.read(3, u64::MAX, 1000).unwrap().is_empty());
    spool.sync().unwrap();
    assert_eq!(reader.read(3, u64::MAX, 1000).unwrap()[0].body, "c");
    assert_eq!(reader.read(1, u64::MAX, 1000).unwrap().len(), 3, "going back works");
}

#[test]
fn whole_segments_are_released_and_numbers_go_on() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = Spool::open(dir.path(), SMALL).unwrap();
    while !spool.is_full() {
        spool.append(&[7; 100]).unwrap();
    }
    let last = spool.sync().unwrap();
    let mut reader = spool.reader();
    reader.release(last - 3).unwrap();
    assert!(!spool.is_full());
    let first = reader.first_seq();
    assert!(first > 1 && first <= last - 2);
    assert!(
        matches!(reader.read(1, u64::MAX, 10), Err(Error::Corrupt { .. })),
        "released records are not an empty answer"
    );
    assert_eq!(reader.read(first, u64::MAX, 10).unwrap()[0].seq, first);
    reader.release(u64::MAX).unwrap();
    assert_eq!(segments(dir.path()).len(), 1, "the last segment keeps the numbers");
    drop(spool);
    let (mut spool, recovered) = Spool::open(dir.path(), SMALL).unwrap();
    assert_eq!(recovered.last_seq, last);
    assert_eq!(spool.append(b"next").unwrap(), last + 1);
}

#[test]
fn a_record_larger_than_the_spool_does_not_block_it_for_ever() {
    let dir = TempDir::new().unwrap();
    let (mut spool, _) = Spool::open(dir.path(), SMALL).unwrap();
    let seq = spool.append(&[1; 5_000]).unwrap();
    spool.sync().unwrap();
    assert!(spool.is_full());
    spool.release(seq).unwrap();
    assert!(!spool.is_full());
}

/// Three records of 26 bytes each in one segment; the third was appended when the first was synced.
fn three_records(dir: &Path) -> PathBuf {
    let (mut spool, _) = Spool::open(dir, SpoolOptions::default()).unwrap();
    spool.append(b"aa").unwrap();
    spool.sync().unwrap();
    spool.append_batch(["bb", "cc"]).unwrap();
    spool.sync().unwrap();
    segments(dir).remove(0)
}

#[test]
fn damage_is_told_from_a_torn_end() {
    const SIZE: u64 = RECORD_HEADER as u64 + 2;
    let start = HEADER as u64;
    // (what, place of a flipped byte, the records left or None for damage)
    let cases = [
        ("body of the first", start + SIZE - 1, None),
        ("checksum of the first", start + 5, None),
        ("length of the first", start, None),
        ("header", 20, None),
        ("magic", 0, None),
        ("the second, never seen synced by the third", start + 2 * SIZE - 1, Some(1)),
        ("the third", start + 3 * SIZE - 1, Some(2)),
    ];
    for (what, at, left) in cases {
        let dir = TempDir::new().unwrap();
        let path = three_records(dir.path());
        let byte = fs::read(&path).unwrap()[at as usize];
        overwrite(&path, at, &[byte ^ 0x40]);
        match (Spool::open(dir.path(), SpoolOptions::default()), left) {
            (Ok((_, recovered)), Some(left)) => assert_eq!(recovered.last_seq, left, "{what}"),
            (Err(Error::Corrupt { .. }), None) => {}
            (other, _) => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn damage_in_an_older_segment_and_a_missing_segment_are_found() {
    let fill = |dir: &Path| {
        let (mut spool, _) = Spool::open(dir, SMALL).unwrap();
        for _ in 0..9 {
            spool.append(&[3; 90]).unwrap();
        }
        spool.sync().unwrap();
        segments(dir)
    };
    let dir = TempDir::new().unwrap();
    let files = fill(dir.path());
    let bytes = fs::metadata(&files[1]).unwrap().len();
    OpenOptions::new().write(true).open(&files[1]).unwrap().set_len(bytes - 1).unwrap();
    assert!(matches!(Spool::open(dir.path(), SMALL), Err(Error::Corrupt { .. })));

    let dir = TempDir::new().unwrap();
    fs::remove_file(&fill(dir.path())[1]).unwrap();
    let error = Spool::open(dir.path(), SMALL).unwrap_err().to_string();
    assert!(error.contains("are missing"), "{error}");
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let dir = TempDir::new().unwrap();
    overwrite(&three_records(dir.path()), 8, &[2]);
    let error = Spool::open(dir.path(), SMALL).unwrap_err();
    assert!(matches!(error, Error::UnknownFormat { found: 2, known: 1, .. }), "{error}");
}

#[test]
fn the_rest_of_an_interrupted_rotation_is_removed() {
    let dir = TempDir::new().unwrap();
    three_records(dir.path());
    fs::write(dir.path().join("00000000000000000004.spool-new"), b"DLMS").unwrap();
    let (_, recovered) = Spool::open(dir.path(), SMALL).unwrap();
    assert_eq!(recovered.last_seq, 3);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// A file on a disk that takes half of a write, and then no more, once `broken` is set.
struct Failing {
    file: File,
    broken: Arc<AtomicBool>,
    only_sync: bool,
}

impl SegmentFile for Failing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.broken.load(Ordering::SeqCst) && !self.only_sync {
            self.file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            Err(io::Error::other("I/O error"))
        } else {
            self.file.sync_data()
        }
    }
}

#[test]
fn a_failed_disk_poisons_the_spool_and_loses_nothing_acknowledged() {
    for only_sync in [false, true] {
        let dir = TempDir::new().unwrap();
        let broken = Arc::new(AtomicBool::new(false));
        let wrap = {
            let broken = Arc::clone(&broken);
            Box::new(move |file| {
                Box::new(Failing { file, broken: Arc::clone(&broken), only_sync }) as Box<dyn SegmentFile>
            })
        };
        let (mut spool, _) = Spool::open_with(dir.path(), SpoolOptions::default(), wrap).unwrap();
        spool.append_batch(["one", "two"]).unwrap();
        spool.sync().unwrap();
        broken.store(true, Ordering::SeqCst);
        spool.append(b"three").unwrap();
        let error = spool.sync().unwrap_err();
        assert_eq!(matches!(error, Error::Full { .. }), !only_sync, "{error}");
        broken.store(false, Ordering::SeqCst);
        assert!(spool.append(b"four").is_err());
        assert!(spool.sync().is_err());
        assert_eq!(spool.reader().synced_upto(), 2);
        drop(spool);
        let (spool, recovered) = Spool::open(dir.path(), SpoolOptions::default()).unwrap();
        assert_eq!(recovered.last_seq, if only_sync { 3 } else { 2 });
        assert_eq!(all(&spool)[..2], [(1, b"one".to_vec()), (2, b"two".to_vec())]);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Sync,
    Release(u64),
    /// Dies, with `kept` of 256 parts of the unsynced bytes on disk, one of them turned over if `garbled`.
    Crash {
        kept: u64,
        garbled: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0usize..200).prop_map(Step::Append),
        3 => Just(Step::Sync),
        1 => (0u64..40).prop_map(Step::Release),
        2 => (0u64..=256, any::<bool>()).prop_map(|(kept, garbled)| Step::Crash { kept, garbled }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn behaves_like_its_model(steps in steps()) {
        // In memory where that is possible: many small syncs are slow on disks, and crashes are played anyway.
        let dir = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        let (mut spool, _) = Spool::open(dir.path(), SMALL).unwrap();
        let mut model: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut synced_bytes = HEADER as u64;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Append(length) => {
                    let body: Vec<u8> = (0..length).map(|at| (at + number) as u8).collect();
                    let seq = spool.append(&body).unwrap();
                    prop_assert_eq!(seq, model.len() as u64 + 1);
                    model.push((seq, body));
                }
                Step::Sync => {
                    prop_assert_eq!(spool.sync().unwrap(), model.len() as u64);
                }
                Step::Release(upto) => spool.release(upto.min(spool.synced_upto())).unwrap(),
                Step::Crash { kept, garbled } => {
                    let synced = spool.synced_upto();
                    drop(spool);
                    let path = segments(dir.path()).pop().unwrap();
                    let written = fs::metadata(&path).unwrap().len();
                    let cut = synced_bytes + (written - synced_bytes) * kept / 256;
                    OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
                    if garbled && cut > synced_bytes {
                        overwrite(&path, synced_bytes + (cut - synced_bytes) / 2, &[0xa5]);
                    }
                    let (reopened, recovered) = Spool::open(dir.path(), SMALL).unwrap();
                    prop_assert!(recovered.last_seq >= synced, "{recovered:?}, {synced} were synced");
                    prop_assert!(recovered.last_seq <= model.len() as u64);
                    model.truncate(recovered.last_seq as usize);
                    spool = reopened;
                }
            }
            let found = all(&spool);
            let from = spool.reader().first_seq() as usize - 1;
            let upto = spool.synced_upto() as usize;
            prop_assert_eq!(&found[..], &model[from.min(upto)..upto]);
            if spool.synced_upto() as usize == model.len() {
                synced_bytes = fs::metadata(segments(dir.path()).pop().unwrap()).unwrap().len();
            } else if spool.header.first > spool.synced_upto() {
                synced_bytes = HEADER as u64;
            }
        }
    }
}

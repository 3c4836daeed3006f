//! What every [`Engine`] has to do, as one suite: call [`check`] from a test. It panics where a promise is broken.
//!
//! Not here: damage and injected faults, which each engine meets in its own way.

use std::{ops::ControlFlow, path::PathBuf};

use crate::{
    engine::{Batch, Durability, Engine, Family, Reader},
    error::Result,
};

/// A store of one engine, that can be opened again and again.
pub trait Subject {
    /// Opens it.
    fn open(&mut self) -> Result<Box<dyn Engine>>;

    /// Crashes the process that has it open as `engine`, and opens it again. Whatever the engine may lose, it should.
    fn crash(&mut self, engine: Box<dyn Engine>) -> Result<Box<dyn Engine>>;

    /// A path at which no checkpoint is yet.
    fn checkpoint_dir(&mut self) -> PathBuf;
}

/// Runs the suite, each case on a fresh subject made by `fresh`.
///
/// # Errors
/// Whatever the engine returns where it should not.
pub fn check<S: Subject>(mut fresh: impl FnMut() -> S) -> Result<()> {
    for case in [
        reads_what_was_written,
        applies_changes_in_order,
        deletes_ranges,
        keeps_families_apart,
        scans_in_order,
        stops_scans_early,
        answers_in_the_order_of_the_keys,
        snapshots_do_not_move,
        ingests_rows,
        checkpoints_are_consistent,
        keeps_everything_when_reopened,
        keeps_what_was_synced_through_a_crash,
    ] {
        case(&mut fresh())?;
    }
    Ok(())
}

const F: Family = Family::State;

fn put(engine: &dyn Engine, rows: &[(&str, &str)]) -> Result<()> {
    let mut batch = Batch::new();
    for (key, value) in rows {
        batch.put(F, *key, *value);
    }
    engine.write(batch, Durability::Buffered)
}

fn rows(reader: &dyn Reader, family: Family, from: &str, to: &str) -> Result<Vec<(String, String)>> {
    let mut rows = Vec::new();
    reader.scan(family, from.as_bytes(), to.as_bytes(), &mut |key, value| {
        rows.push((text(key), text(value)));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// All rows of the one family that most cases use, as `key=value`.
fn all(reader: &dyn Reader) -> Result<String> {
    let rows = rows(reader, F, "", "~")?;
    Ok(rows.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn reads_what_was_written(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    assert_eq!(engine.get(F, b"a")?, None);
    put(&*engine, &[("a", "1"), ("b", "")])?;
    assert_eq!(engine.get(F, b"a")?.as_deref(), Some(&b"1"[..]));
    assert_eq!(engine.get(F, b"b")?.as_deref(), Some(&b""[..]), "an empty value is a value");
    assert_eq!(engine.get(F, b"")?, None);
    let big = vec![7; 1 << 20];
    let mut batch = Batch::new();
    batch.put(F, "big", big.clone());
    batch.put(F, vec![0xff; 300], "long key");
    engine.write(batch, Durability::Synced)?;
    assert_eq!(engine.get(F, b"big")?, Some(big));
    assert_eq!(engine.get(F, &[0xff; 300])?.as_deref(), Some(&b"long key"[..]));
    engine.write(Batch::new(), Durability::Buffered)?;
    engine.write(Batch::new(), Durability::Synced)?;
    engine.sync()
}

fn applies_changes_in_order(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    let mut batch = Batch::new();
    batch.put(F, "a", "1");
    batch.put(F, "a", "2");
    batch.put(F, "b", "1");
    batch.delete(F, "b");
    batch.delete(F, "c");
    batch.put(F, "c", "1");
    batch.delete(F, "absent");
    engine.write(batch, Durability::Buffered)?;
    assert_eq!(all(&*engine)?, "a=2 c=1");
    Ok(())
}

fn deletes_ranges(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    put(&*engine, &[("a", "0"), ("b", "0"), ("c", "0"), ("d", "0")])?;
    let mut batch = Batch::new();
    batch.put(F, "ba", "gone: put before the range");
    batch.delete_range(F, "b", "d");
    batch.put(F, "c", "kept: put after the range");
    engine.write(batch, Durability::Buffered)?;
    assert_eq!(all(&*engine)?, "a=0 c=kept: put after the range d=0");

    let mut batch = Batch::new();
    batch.delete_range(F, "a", "a");
    batch.delete_range(F, "d", "a");
    engine.write(batch, Durability::Buffered)?;
    assert_eq!(rows(&*engine, F, "", "~")?.len(), 3, "empty and inverted ranges delete nothing");

    let mut batch = Batch::new();
    batch.delete_range(F, "", "~");
    engine.write(batch, Durability::Buffered)?;
    assert_eq!(all(&*engine)?, "");
    put(&*engine, &[("b", "again")])?;
    assert_eq!(all(&*engine)?, "b=again");
    Ok(())
}

fn keeps_families_apart(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    let mut batch = Batch::new();
    for family in Family::ALL {
        batch.put(family, "key", family.name());
    }
    engine.write(batch, Durability::Buffered)?;
    let mut batch = Batch::new();
    batch.delete_range(Family::Log, "", "~");
    engine.write(batch, Durability::Buffered)?;
    for family in Family::ALL {
        let expected = (family != Family::Log).then(|| family.name().as_bytes().to_vec());
        assert_eq!(engine.get(family, b"key")?, expected);
    }
    Ok(())
}

fn scans_in_order(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    let keys: [&[u8]; 7] = [b"\x00", b"\x00\x00", b"\x01", b"a", b"a\x00", b"b", b"\xff\xff"];
    let mut batch = Batch::new();
    for key in keys.iter().rev() {
        batch.put(F, *key, "");
    }
    engine.write(batch, Durability::Buffered)?;
    for (first, from) in keys.iter().enumerate() {
        for (last, to) in keys.iter().enumerate() {
            let expected: Vec<Vec<u8>> =
                keys.get(first..last).unwrap_or_default().iter().map(|key| key.to_vec()).collect();
            let mut up = Vec::new();
            engine.scan(F, from, to, &mut |key, _| {
                up.push(key.to_vec());
                ControlFlow::Continue(())
            })?;
            let mut down = Vec::new();
            engine.scan_back(F, from, to, &mut |key, _| {
                down.push(key.to_vec());
                ControlFlow::Continue(())
            })?;
            assert_eq!(up, expected, "[{from:?}, {to:?})");
            down.reverse();
            assert_eq!(down, expected, "[{from:?}, {to:?}) backwards");
        }
    }
    Ok(())
}

fn stops_scans_early(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    put(&*engine, &[("a", ""), ("b", ""), ("c", ""), ("d", "")])?;
    let mut seen = String::new();
    engine.scan(F, b"b", b"~", &mut |key, _| {
        seen += &text(key);
        if key == b"c" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    engine.scan_back(F, b"", b"d", &mut |key, _| {
        seen += &text(key);
        ControlFlow::Break(())
    })?;
    assert_eq!(seen, "bcc");
    // A visitor may use the engine.
    let mut values = Vec::new();
    engine.scan(F, b"", b"~", &mut |key, _| {
        values.push(engine.get(F, key));
        ControlFlow::Continue(())
    })?;
    assert_eq!(values.len(), 4);
    values.into_iter().try_for_each(|value| value.map(|value| assert!(value.is_some())))
}

fn answers_in_the_order_of_the_keys(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    for family in Family::ALL {
        let mut batch = Batch::new();
        for number in 0..200u8 {
            batch.put(family, [number], [number, number]);
        }
        engine.write(batch, Durability::Buffered)?;
        let asked: Vec<[u8; 1]> = (0..=255u8).map(|number| [number.wrapping_mul(91)]).collect();
        for sorted in [false, true] {
            let mut keys: Vec<&[u8]> = asked.iter().map(|key| &key[..]).collect();
            keys.extend([&[7][..], &[7][..], &[][..]]);
            if sorted {
                keys.sort_unstable();
            }
            let expected: Vec<_> = keys
                .iter()
                .map(|key| key.first().filter(|it| **it < 200).map(|&number| vec![number, number]))
                .collect();
            assert_eq!(engine.get_many(family, &keys)?, expected);
            assert_eq!(engine.snapshot().get_many(family, &keys)?, expected);
        }
        assert_eq!(engine.get_many(family, &[])?, Vec::new());
    }
    Ok(())
}

fn snapshots_do_not_move(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    put(&*engine, &[("a", "1"), ("b", "1")])?;
    let before = engine.snapshot();
    put(&*engine, &[("a", "2"), ("c", "2")])?;
    let between = engine.snapshot();
    let mut batch = Batch::new();
    batch.delete_range(F, "", "~");
    engine.write(batch, Durability::Synced)?;
    assert_eq!(all(&*before)?, "a=1 b=1");
    assert_eq!(before.get(F, b"c")?, None);
    assert_eq!(before.get_many(F, &[b"c", b"a"])?, vec![None, Some(b"1".to_vec())]);
    assert_eq!(all(&*between)?, "a=2 b=1 c=2");
    assert_eq!(all(&*engine)?, "");
    Ok(())
}

fn ingests_rows(subject: &mut dyn Subject) -> Result<()> {
    let mut engine = subject.open()?;
    put(&*engine, &[("a", "written"), ("z", "written")])?;
    let ascending = |name: &'static str| {
        (0..1000).map(move |number| (format!("{name}{number:04}").into_bytes(), b"ingested".to_vec()))
    };
    engine.ingest(F, &mut ascending("m"))?;
    engine.ingest(Family::Seen, &mut ascending("s"))?;
    engine.ingest(F, &mut std::iter::empty())?;
    let unordered = [("n2", ""), ("n1", "")].map(|(key, value)| (key.into(), value.into()));
    assert!(engine.ingest(F, &mut unordered.into_iter()).is_err(), "rows have to ascend");
    put(&*engine, &[("m0500", "overwritten")])?;
    for crashed in [false, true] {
        if crashed {
            put(&*engine, &[("m0500", "ingested")])?;
            engine.sync()?;
            engine = subject.crash(engine)?;
        }
        assert_eq!(rows(&*engine, F, "", "~")?.len(), 1002);
        assert_eq!(rows(&*engine, F, "m0998", "z")?.len(), 2);
        assert_eq!(rows(&*engine, Family::Seen, "", "~")?.len(), 1000);
        let expected = if crashed { "ingested" } else { "overwritten" };
        assert_eq!(engine.get(F, b"m0500")?.as_deref(), Some(expected.as_bytes()));
    }
    Ok(())
}

fn checkpoints_are_consistent(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    let dirs: Vec<PathBuf> = (0..4).map(|_| subject.checkpoint_dir()).collect();
    let step = |number: u32| {
        let mut batch = Batch::new();
        for family in Family::ALL {
            batch.put(family, "number", number.to_be_bytes());
            batch.put(family, format!("row{number:08}"), "");
        }
        engine.write(batch, Durability::Buffered)
    };
    // Written while the checkpoints are made: each has to hold whole batches, and a prefix of them.
    let finished = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<u32> {
            let mut number = 0;
            while number < 100 || !finished.load(std::sync::atomic::Ordering::Relaxed) {
                step(number)?;
                number += 1;
            }
            Ok(number)
        });
        let made = dirs.iter().try_for_each(|dir| engine.checkpoint(dir));
        finished.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(writer.join().is_ok_and(|written| written.is_ok_and(|number| number >= 100)));
        made
    })?;
    assert!(engine.checkpoint(&dirs[0]).is_err(), "a checkpoint is not overwritten");
    for dir in &dirs {
        let reader = engine.open_checkpoint(dir)?;
        let number = reader.get(F, b"number")?;
        let count = rows(&*reader, F, "row", "rox")?.len();
        let last = number.as_deref().and_then(|it| it.try_into().ok()).map(u32::from_be_bytes);
        assert_eq!(last.map_or(0, |last| last as usize + 1), count);
        for family in Family::ALL {
            assert_eq!(reader.get(family, b"number")?, number);
            assert_eq!(rows(&*reader, family, "row", "rox")?.len(), count);
        }
    }
    assert!(engine.open_checkpoint(&subject.checkpoint_dir()).is_err(), "there is none");
    Ok(())
}

fn keeps_everything_when_reopened(subject: &mut dyn Subject) -> Result<()> {
    for round in 0..3 {
        let engine = subject.open()?;
        assert_eq!(rows(&*engine, F, "", "~")?.len(), round);
        put(&*engine, &[(["a", "b", "c"][round], "buffered")])?;
    }
    Ok(())
}

fn keeps_what_was_synced_through_a_crash(subject: &mut dyn Subject) -> Result<()> {
    let engine = subject.open()?;
    let step = |engine: &dyn Engine, number: u32, durability| {
        let mut batch = Batch::new();
        for family in Family::ALL {
            batch.put(family, format!("{number:08}"), "");
        }
        engine.write(batch, durability)
    };
    for number in 0..10 {
        step(&*engine, number, Durability::Buffered)?;
    }
    engine.sync()?;
    let engine = subject.crash(engine)?;
    assert_eq!(rows(&*engine, F, "", "~")?.len(), 10);
    for number in 10..20 {
        step(&*engine, number, Durability::Buffered)?;
    }
    step(&*engine, 20, Durability::Synced)?;
    for number in 21..30 {
        step(&*engine, number, Durability::Buffered)?;
    }
    let engine = subject.crash(engine)?;
    let kept = rows(&*engine, F, "", "~")?;
    assert!(kept.len() >= 21, "a synced write takes all earlier ones with it");
    for (number, (key, _)) in kept.iter().enumerate() {
        assert_eq!(*key, format!("{number:08}"), "what is kept is a prefix");
    }
    for family in Family::ALL {
        assert_eq!(rows(&*engine, family, "", "~")?, kept, "over all families");
    }
    Ok(())
}

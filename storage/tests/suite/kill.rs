//! A process that is killed while it writes loses nothing that it was told is synced.

use std::{
    io::{BufRead, BufReader, Write},
    ops::ControlFlow,
    process::{Command, Stdio},
};

use dolomedes_storage::engine::{Batch, Durability, Engine, Family, Reader};

use crate::open;

const DIRECTORY: &str = "DOLOMEDES_KILL_TEST_DIR";
const ROUNDS: usize = 4;
const LINES_PER_ROUND: usize = 40;

/// The child: writes numbered rows for ever, and says which are synced. Does nothing as a test.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let engine = open(dir.as_ref()).unwrap();
    let mut number = next(&engine);
    loop {
        let mut batch = Batch::new();
        for family in Family::ALL {
            batch.put(family, number.to_be_bytes(), vec![number as u8; 2000]);
        }
        if number % 100 == 99 {
            batch.delete_range(Family::Log, 0u64.to_be_bytes(), (number - 50).to_be_bytes());
        }
        engine.write(batch, Durability::Buffered).unwrap();
        if number.is_multiple_of(7) {
            engine.sync().unwrap();
            writeln!(std::io::stdout(), "synced {number}").unwrap();
        }
        number += 1;
    }
}

fn next(engine: &dyn Reader) -> u64 {
    let mut next = 0;
    engine
        .scan_back(Family::State, b"", &[0xff; 9], &mut |key, _| {
            next = u64::from_be_bytes(key.try_into().unwrap()) + 1;
            ControlFlow::Break(())
        })
        .unwrap();
    next
}

#[test]
fn a_killed_process_loses_nothing_that_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture"])
            .env(DIRECTORY, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut synced = None;
        let mut lines = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            // The test harness writes lines too, and its own words before the first.
            if let Some((_, number)) = line.split_once("synced ") {
                synced = Some(number.parse::<u64>().unwrap());
                lines += 1;
            }
            if lines == LINES_PER_ROUND {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let synced = synced.unwrap();
        let engine = open(dir.path()).unwrap();
        let end = next(&engine);
        assert!(end > synced, "{synced} was synced, the store ends before {end}");
        for family in [Family::Meta, Family::State, Family::Seen] {
            let mut expected = 0u64;
            engine
                .scan(family, b"", &[0xff; 9], &mut |key, value| {
                    assert_eq!(key, expected.to_be_bytes(), "no row is missing in {family:?}");
                    assert_eq!(value[0], expected as u8);
                    expected += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(expected, end, "{family:?} ends with the others");
        }
        let mut last = None;
        engine
            .scan(Family::Log, b"", &[0xff; 9], &mut |key, _| {
                last = Some(key.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(last.unwrap(), (end - 1).to_be_bytes());
    }
}

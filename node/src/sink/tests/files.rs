//! What the sinks do about files that are not as they should be, and the thread around the delivery.

use std::fs::OpenOptions;

use super::*;

/// A place where records 1 to 3 were delivered.
fn delivered(with_warc: bool) -> Place {
    let place = Place::new();
    let mut spool = place.spool();
    append(&mut spool, 1..=3);
    let mut delivery = place.delivery(&spool, with_warc).unwrap();
    (1..=3).for_each(|seq| delivery.judge(seq, true).unwrap());
    delivery.flush(Duration::ZERO).unwrap();
    place
}

fn reopen(place: &Place) -> Result<Delivery> {
    place.delivery(&place.spool(), false)
}

#[test]
fn what_is_not_ours_is_never_overwritten() {
    let place = Place::new();
    fs::create_dir_all(place.out()).unwrap();
    fs::write(place.pages(), "precious\n").unwrap();
    let error = reopen(&place).unwrap_err();
    assert!(matches!(error, SinkError::Foreign { .. }) && error.to_string().contains("--out"), "{error}");
    assert_eq!(fs::read_to_string(place.pages()).unwrap(), "precious\n");

    let place = Place::new();
    fs::create_dir_all(place.out().join("warc")).unwrap();
    let file = place.out().join("warc/dolomedes-00001.warc.gz");
    fs::write(&file, "precious").unwrap();
    let error = place.delivery(&place.spool(), true).unwrap_err();
    assert!(matches!(error, SinkError::Foreign { .. }), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn another_out_with_a_file_of_the_same_name_is_foreign_even_before_the_first_record() {
    let place = Place::new();
    drop(reopen(&place).unwrap());
    let other = place.dir.path().join("other");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("pages.jsonl"), "precious\n").unwrap();
    assert!(matches!(JsonLines::open(&other, &place.marks()), Err(SinkError::Foreign { .. })));
    assert_eq!(fs::read_to_string(other.join("pages.jsonl")).unwrap(), "precious\n");
}

#[test]
fn a_missing_shortened_or_changed_file_is_named_and_nothing_is_lost() {
    let place = delivered(false);
    let whole = fs::read(place.pages()).unwrap();

    fs::remove_file(place.pages()).unwrap();
    let error = reopen(&place).unwrap_err();
    assert!(matches!(error, SinkError::Missing { delivered: 3, .. }), "{error}");
    assert!(!place.pages().exists());

    fs::write(place.pages(), &whole[..5]).unwrap();
    let error = reopen(&place).unwrap_err();
    assert!(matches!(error, SinkError::Shortened { found: 5, .. }), "{error}");

    fs::write(place.pages(), vec![b'x'; whole.len() + 9]).unwrap();
    let error = reopen(&place).unwrap_err();
    assert!(matches!(error, SinkError::Changed { .. }), "{error}");
    assert_eq!(size(&place.pages()), whole.len() as u64 + 9, "not cut");

    fs::write(place.pages(), &whole).unwrap();
    assert_eq!(reopen(&place).unwrap().next_seq(), 4);
}

#[test]
fn out_can_be_moved() {
    let place = delivered(true);
    let moved = place.dir.path().join("moved");
    fs::rename(place.out(), &moved).unwrap();
    let marks = place.marks();
    assert_eq!(JsonLines::open(&moved, &marks).unwrap().delivered_upto(), 3);
    assert_eq!(Warc::open(&moved, &marks, WarcOptions::default()).unwrap().delivered_upto(), 3);
}

#[test]
fn bytes_behind_the_mark_are_cut_off() {
    let place = delivered(false);
    let whole = fs::read(place.pages()).unwrap();
    let mut file = OpenOptions::new().append(true).open(place.pages()).unwrap();
    std::io::Write::write_all(&mut file, b"{\"half").unwrap();
    reopen(&place).unwrap();
    assert_eq!(fs::read(place.pages()).unwrap(), whole);
}

#[test]
fn an_unwritable_out_is_an_error_that_names_it() {
    let place = Place::new();
    fs::write(place.out(), "a file").unwrap();
    let error = reopen(&place).unwrap_err().to_string();
    assert!(error.contains("/out`"), "{error}");
}

#[test]
fn a_damaged_or_newer_mark_is_refused() {
    let place = delivered(false);
    let path = place.marks_dir().join("jsonl.mark");
    let mut bytes = fs::read(&path).unwrap();
    bytes[1] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(reopen(&place).unwrap_err().to_string().contains("damaged"));
    bytes[0] = 2;
    fs::write(&path, &bytes).unwrap();
    assert!(reopen(&place).unwrap_err().to_string().contains("newer release"));
}

#[test]
fn lost_marks_and_a_lost_spool_are_noticed() {
    let place = delivered(false);
    fs::remove_dir_all(place.spool_dir()).unwrap();
    let error = reopen(&place).unwrap_err().to_string();
    assert!(error.contains("delivered up to record 3"), "{error}");

    let place = Place::new();
    let mut spool = place.spool();
    append(&mut spool, 1..=20);
    spool.release(15).unwrap();
    assert!(spool.reader().first_seq() > 1);
    let error = place.delivery(&spool, false).unwrap_err().to_string();
    assert!(error.contains("delivered up to record 0"), "{error}");
}

#[test]
fn a_sink_may_join_leave_and_join_again() {
    let place = delivered(false);
    let run = |upto: u64, with_warc: bool| {
        let mut spool = place.spool();
        let from = spool.last_seq() + 1;
        append(&mut spool, from..=upto);
        let mut delivery = place.delivery(&spool, with_warc).unwrap();
        assert_eq!(delivery.next_seq(), from);
        (from..=upto).for_each(|seq| delivery.judge(seq, true).unwrap());
        delivery.flush(Duration::ZERO).unwrap();
    };
    run(5, true);
    run(7, false);
    run(9, true);
    assert_eq!(place.lines(), (1..=9).map(line).collect::<Vec<_>>());
    let pages: Vec<_> = place
        .warcs()
        .iter()
        .flat_map(|path| read::records(path))
        .filter(|record| record.kind() == "response")
        .map(|record| String::from_utf8(record.payload().to_vec()).unwrap())
        .collect();
    assert_eq!(pages, [4, 5, 8, 9].map(|number| format!("body of {number}")));
}

#[test]
fn a_fresh_start_removes_what_is_ours_and_nothing_else() {
    let place = delivered(true);
    let notes = place.out().join("warc/notes.txt");
    fs::write(&notes, "mine").unwrap();
    Marks::discard(&place.marks_dir(), &place.out()).unwrap();
    assert!(!place.pages().exists() && place.warcs().is_empty() && notes.exists());
    assert_eq!(fs::read_dir(place.marks_dir()).unwrap().count(), 0);

    let place = delivered(false);
    fs::write(place.pages(), "{\"n\":1}\n{\"n\":2}\n{\"n\":9}\n").unwrap();
    Marks::discard(&place.marks_dir(), &place.out()).unwrap();
    assert!(place.pages().exists(), "it was changed, so it stays");
}

#[test]
fn verdicts_may_come_in_any_order_but_not_from_nowhere() {
    let place = Place::new();
    let mut spool = place.spool();
    append(&mut spool, 1..=4);
    let mut delivery = place.delivery(&spool, false).unwrap();
    delivery.judge(3, true).unwrap();
    delivery.judge(2, false).unwrap();
    delivery.flush(Duration::ZERO).unwrap();
    assert_eq!(delivery.next_seq(), 1);
    delivery.judge(1, true).unwrap();
    delivery.judge(1, true).unwrap();
    delivery.flush(Duration::ZERO).unwrap();
    delivery.judge(1, false).unwrap();
    assert_eq!((delivery.next_seq(), delivery.released()), (4, 3));
    assert_eq!(place.lines(), [line(1), line(3)]);
    assert!(matches!(delivery.judge(u64::MAX, true), Err(SinkError::Gap { waiting: 4, .. })));
    delivery.judge(5, true).unwrap();
    delivery.judge(4, true).unwrap();
    assert!(delivery.flush(Duration::ZERO).unwrap_err().to_string().contains("does not have it"));
}

#[test]
fn syncs_after_a_while_or_many_bytes() {
    let place = Place::new();
    let mut spool = place.spool();
    append(&mut spool, 1..=40);
    let mut delivery = place.delivery(&spool, false).unwrap();
    let second = Duration::from_secs(1);
    assert_eq!(delivery.poll(second).unwrap(), None);
    delivery.judge(1, true).unwrap();
    assert_eq!(delivery.poll(second).unwrap(), Some(second));
    assert_eq!(delivery.poll(second * 3 / 2).unwrap(), Some(second / 2));
    assert_eq!(delivery.released(), 0);
    assert_eq!(delivery.poll(second * 2).unwrap(), None);
    assert_eq!(delivery.released(), 1);

    let place = Place::new();
    let mut spool = place.spool();
    append(&mut spool, 1..=40);
    let mut delivery = place.delivery(&spool, true).unwrap();
    (1..=40).for_each(|seq| delivery.judge(seq, true).unwrap());
    delivery.poll(Duration::ZERO).unwrap();
    assert!(delivery.released() > 0, "3,000 bytes are many here");
}

#[test]
fn the_thread_delivers_flushes_and_closes() {
    let place = Place::new();
    let mut spool = place.spool();
    append(&mut spool, 1..=50);
    let handle = DeliveryHandle::spawn(place.delivery(&spool, true).unwrap()).unwrap();
    handle.judge((1..=30).map(|seq| (seq, true))).unwrap();
    assert_eq!(handle.flush().unwrap(), 30);
    handle.refuse(31).unwrap();
    handle.accept(32).unwrap();
    assert_eq!(handle.close(true).unwrap(), 32);
    assert_eq!(place.lines().len(), 31);
    assert!(place.out().join("warc/index.cdxj").exists());

    // Dropped without closing: as after a crash, the rest is delivered by the next run.
    let handle = DeliveryHandle::spawn(place.delivery(&spool, true).unwrap()).unwrap();
    handle.judge((33..=50).map(|seq| (seq, true))).unwrap();
    drop(handle);
    let delivery = place.delivery(&spool, true).unwrap();
    let from = delivery.next_seq();
    let handle = DeliveryHandle::spawn(delivery).unwrap();
    handle.judge((from..=50).map(|seq| (seq, true))).unwrap();
    assert_eq!(handle.close(false).unwrap(), 50);
    assert_eq!(place.lines().len(), 49);
}

#[test]
fn a_failure_reaches_every_caller() {
    let place = Place::new();
    let mut spool = place.spool();
    spool.append(b"\0 no envelope").unwrap();
    spool.sync().unwrap();
    let handle = DeliveryHandle::spawn(place.delivery(&spool, false).unwrap()).unwrap();
    handle.accept(1).unwrap();
    assert!(handle.flush().unwrap_err().to_string().contains("damaged"));
    assert!(handle.failure().is_some() && handle.accept(2).is_err() && handle.close(true).is_err());
}

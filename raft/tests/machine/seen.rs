//! The filter in front of the seen set never decides, before, while and after it is filled.

use bytes::Bytes;
use dolomedes_raft::{
    command::{Command, Entry, NewMessage, PutStatus, Reply},
    machine::{Machine, Overlay},
};
use dolomedes_storage::engine::{Durability, Engine};

use super::harness::{GENERATION, GROUP, Node, config};

fn put(queue: u64, fingerprints: impl Iterator<Item = u128>) -> Command {
    let messages = fingerprints.map(|fingerprint| NewMessage {
        key: Bytes::from_static(b"k"),
        priority: 5,
        delay_ms: 0,
        fingerprint: Some(fingerprint),
        payload: Bytes::new(),
    });
    Command::Put { queue, messages: messages.collect() }
}

#[test]
fn the_exact_set_decides_at_every_stage_of_the_filter() {
    let mut node = Node::new();
    let create =
        |name: &str| Command::CreateQueue { name: name.into(), config: config(), spec: Bytes::new() };
    node.apply(0, vec![create("one"), create("two")]);
    node.apply(0, vec![put(1, 0..1000), put(2, 500..600)]);

    let mut machine = Machine::new(GROUP, GENERATION);
    let filter = machine.seen_filter();
    let mut index = node.index;
    let mut statuses = |commands: Vec<Command>| {
        index += 1;
        let mut overlay = Overlay::new(&node.engine);
        let replies = machine.apply(&mut overlay, index, &Entry { stamp: 0, commands }).unwrap();
        node.engine.write(overlay.into_batch(), Durability::Buffered).unwrap();
        let statuses = replies.into_iter().flat_map(|reply| match reply {
            Reply::Put(statuses) => statuses,
            other => panic!("{other:?}"),
        });
        statuses.collect::<Vec<_>>()
    };

    // It knows nothing yet.
    assert!(!filter.is_complete());
    let known = [PutStatus::Duplicate; 2];
    assert_eq!(statuses(vec![put(1, 999..1001)]), [PutStatus::Duplicate, PutStatus::Accepted]);

    // Half of it is filled, while the machine goes on.
    let mut cursor = filter.rebuild(&node.engine, &[], 300).unwrap().unwrap();
    assert!(!filter.is_complete());
    assert_eq!(statuses(vec![put(1, 0..2), put(1, 998..1000)]), [known, known].concat());
    let mut steps = 1;
    while let Some(next) = filter.rebuild(&node.engine, &cursor, 300).unwrap() {
        cursor = next;
        steps += 1;
    }
    assert_eq!(steps, 3, "1,101 rows in steps of 300");

    // It is complete: every known one is found, in its own queue only.
    assert!(filter.is_complete());
    assert!(statuses(vec![put(1, 0..1001)]).iter().all(|status| *status == PutStatus::Duplicate));
    assert!(statuses(vec![put(2, 0..500)]).iter().all(|status| *status == PutStatus::Accepted));
    assert_eq!(
        statuses(vec![put(2, 600..601), put(2, 600..601)]),
        [PutStatus::Accepted, PutStatus::Duplicate]
    );
    assert_eq!(
        statuses(vec![put(2, [700, 700].into_iter())]),
        [PutStatus::Accepted, PutStatus::Duplicate],
        "twice in one command"
    );
}

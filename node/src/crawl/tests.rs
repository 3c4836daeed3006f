//! The window's behaviour that whole crawls cannot show in reasonable time.

use bytes::Bytes;
use dolomedes_raft::command::{Grant, LeaseRef, Message, MessageId};

use super::{Start, Task, Window, WindowLimits};
use crate::politeness::PaceRules;

fn limits() -> WindowLimits {
    WindowLimits {
        concurrency: 4,
        robots: false,
        max_crawl_delay_ms: 0,
        pace: PaceRules { delay_ms: 0, per_host: 4, ..PaceRules::default() },
        give_up_probes: 3,
        give_up_robots: 3,
        max_lost: 100,
        lease_ms: 60_000,
        poll_ms: None,
    }
}

fn grant(urls: &[(&str, u32)]) -> Grant {
    let message = |(id, (url, lost)): (usize, &(&str, u32))| Message {
        id: MessageId { index: 1, ordinal: id as u32 },
        attempt: lost + 1,
        failures: 0,
        lost: *lost,
        priority: 5,
        payload: Bytes::from(Task::page((*url).to_owned(), 0).encode()),
    };
    Grant {
        lease: LeaseRef { key: Bytes::from_static(b"http://a.test"), fence: 1 },
        ttl_ms: 60_000,
        hold_ms: 0,
        delay_ms: 0,
        note: None,
        messages: urls.iter().enumerate().map(message).collect(),
        ready_left: 0,
    }
}

#[test]
fn a_url_that_was_there_at_many_crashes_is_settled_without_a_request() {
    let mut window = Window::new(limits());
    let urls = [("http://a.test/new", 0), ("http://a.test/unlucky", 99), ("http://a.test/suspect", 100)];
    assert!(window.handle_grant(grant(&urls), 0, 0).is_empty());
    let mut started = Vec::new();
    while let Some(start) = window.poll_start(0) {
        match start {
            Start::Fetch { work, .. } => started.push((work.task.url, None)),
            Start::Settle { work, reason, .. } => started.push((work.task.url, Some(reason))),
            Start::Robots { .. } => panic!("robots.txt is not wanted here"),
        }
    }
    let expected = [(urls[0].0, None), (urls[1].0, None), (urls[2].0, Some("crashes"))];
    assert_eq!(started, expected.map(|(url, reason)| (url.to_owned(), reason)));
}

#[test]
fn a_crawler_takes_its_share_at_once_and_what_nobody_takes_slowly() {
    let mut window = Window::new(WindowLimits { concurrency: 64, poll_ms: Some(500), ..limits() });
    let granted = |number: u64| Grant {
        lease: LeaseRef { key: format!("http://h{number}.test").into(), fence: number },
        ..grant(&[("http://a.test/", 0)])
    };
    // Before anything is known, one host.
    assert_eq!(window.claim_plan(1_000).unwrap().keys, 1);
    window.handle_grant(granted(1), 1_000, 1_000);
    window.handle_claimed(true, None, 1_000);
    window.set_share(9, 3);
    let plan = window.claim_plan(1_000).unwrap();
    assert_eq!(plan.keys, 2);
    (2..4).for_each(|number| assert!(window.handle_grant(granted(number), 1_000, 1_000).is_empty()));
    window.handle_claimed(true, None, 1_000);
    // Now it has its share: one more, then none for a while.
    assert_eq!(window.claim_plan(1_000).unwrap().keys, 1);
    window.handle_grant(granted(4), 1_000, 1_000);
    window.handle_claimed(true, None, 1_000);
    assert_eq!(window.claim_plan(1_499), None);
    assert!(window.next_timeout().is_some_and(|at| at <= 1_500));
    assert_eq!(window.claim_plan(1_500).unwrap().keys, 1);
}

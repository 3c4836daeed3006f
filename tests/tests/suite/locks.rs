//! Sessions, locks, registry and checkpoints of a cluster, also while its leader dies.

use std::time::Duration;

use dolomedes_netproto::wire::{Client, ClientError, v1};
use dolomedes_tests::cluster::{Cluster, PATIENCE};
use dolomedes_tests::process::Process;
use dolomedes_tests::wait::eventually;

use crate::cluster::{client, runtime};

const TTL: Duration = Duration::from_secs(5);

fn set(key: &str, value: &str, session: u64) -> v1::Operation {
    let set =
        v1::SetKey { key: key.to_owned().into(), value: value.to_owned().into(), expect: None, session };
    v1::Operation { operation: Some(v1::operation::Operation::Set(set)) }
}

async fn put(client: &Client, key: &str, value: &str) -> u64 {
    let reply = client.txn(Vec::new(), vec![set(key, value, 0)]).await.unwrap();
    assert!(reply.written, "{reply:?}");
    reply.revisions[0]
}

#[test]
fn a_lock_goes_from_hand_to_hand_in_the_order_of_asking_while_leaders_die() {
    let mut cluster = Cluster::start(3);
    let runtime = runtime();
    let client = runtime.block_on(async { client(&cluster) });
    let (told, heard) = std::sync::mpsc::channel();
    let first = runtime.block_on(async {
        let session = client.open_session(TTL).await.unwrap();
        session.acquire("one", PATIENCE).await.unwrap().unwrap()
    });
    for number in 0..5_u64 {
        let (waiter, told) = (client.clone(), told.clone());
        runtime.spawn(async move {
            let session = waiter.open_session(TTL).await.unwrap();
            let lock = session.acquire("one", PATIENCE).await.unwrap().unwrap();
            told.send((number, lock.fence())).unwrap();
            assert!(lock.release().await.unwrap());
        });
        // The next asks once this one stands in line.
        eventually("it stands in line", PATIENCE, || {
            let found = runtime.block_on(client.describe_lock("one")).map_err(|error| error.to_string())?;
            if found.waiters > number { Ok(()) } else { Err(format!("{found:?}")) }
        });
    }
    let victim = cluster.leader(0);
    cluster.kill(victim);
    let mut fence = first.fence();
    assert!(runtime.block_on(first.release()).unwrap());
    for number in 0..5_u64 {
        let (next, granted) = heard.recv_timeout(PATIENCE).unwrap();
        assert_eq!(next, number);
        assert!(granted > fence, "{granted} after {fence}");
        fence = granted;
    }
}

#[test]
fn with_a_session_go_its_locks_and_its_keys() {
    let cluster = Cluster::start(3);
    runtime().block_on(async {
        let client = client(&cluster);
        // Nobody keeps this one alive.
        let opened = client
            .with_members(|channel| async move {
                let short = v1::OpenSessionRequest { ttl_ms: 1_500, operation: None };
                v1::locks_client::LocksClient::new(channel).open_session(short).await
            })
            .await
            .unwrap()
            .into_inner();
        let taken = v1::AcquireRequest {
            lock: "brief".to_owned(),
            session: opened.session,
            ..v1::AcquireRequest::default()
        };
        let reply = client
            .with_members(|channel| {
                let taken = taken.clone();
                async move { v1::locks_client::LocksClient::new(channel).acquire(taken).await }
            })
            .await
            .unwrap()
            .into_inner();
        assert_ne!(reply.fence, 0);
        client.txn(Vec::new(), vec![set("brief", "x", opened.session)]).await.unwrap();
        let mut watch = client.watch_keys("brief", 0).await.unwrap();
        let session = client.open_session(TTL).await.unwrap();
        let lock = session.acquire("brief", PATIENCE).await.unwrap().unwrap();
        assert!(lock.fence() > reply.fence);
        let changes = watch.changes().await.unwrap();
        assert!(changes[0].value.is_none(), "{changes:?}");
        assert!(client.get_key("brief").await.unwrap().is_none());
        // What is held so may be written, what was held so may not.
        let held = |fence| v1::Condition {
            condition: Some(v1::condition::Condition::Held(v1::LockHeld { lock: "brief".to_owned(), fence })),
        };
        let stale = client.txn(vec![held(reply.fence)], vec![set("guarded", "old", 0)]).await.unwrap();
        assert!(!stale.written && stale.found == lock.fence(), "{stale:?}");
        let fresh = client.txn(vec![held(lock.fence())], vec![set("guarded", "new", 0)]).await.unwrap();
        assert!(fresh.written, "{fresh:?}");
    });
}

#[test]
fn a_watch_tells_every_change_once_and_in_order_while_leaders_die() {
    const CHANGES: u64 = 120;
    let mut cluster = Cluster::start(3);
    let runtime = runtime();
    let client = runtime.block_on(async { client(&cluster) });
    let mut watch = runtime.block_on(client.watch_keys("w/", 1)).unwrap();
    let watching = runtime.spawn(async move {
        let mut seen = Vec::new();
        while (seen.len() as u64) < CHANGES {
            for change in watch.changes().await.unwrap() {
                seen.push((change.revision, String::from_utf8(change.value.unwrap().to_vec()).unwrap()));
            }
        }
        seen
    });
    let mut written = Vec::new();
    for number in 0..CHANGES {
        if number % 50 == 25 {
            let victim = cluster.leader(0);
            cluster.kill(victim);
            written.push((runtime.block_on(put(&client, "w/key", &number.to_string())), number.to_string()));
            cluster.restart(victim);
            cluster.wait_for_voters(3);
        } else {
            written.push((runtime.block_on(put(&client, "w/key", &number.to_string())), number.to_string()));
        }
    }
    let seen = runtime.block_on(watching).unwrap();
    assert_eq!(seen, written);
}

#[test]
fn checkpoints_are_set_by_version_and_keep_their_history() {
    let cluster = Cluster::start(1);
    runtime().block_on(async {
        let client = client(&cluster);
        for version in 0..4_u64 {
            let value = Some(format!("v{version}").into());
            let reply = client.set_checkpoint("here", value, Some(version), 3, None).await.unwrap();
            assert!(reply.written && reply.version == version + 1, "{reply:?}");
        }
        let late = client.set_checkpoint("here", Some("late".into()), Some(2), 3, None).await.unwrap();
        assert!(!late.written && late.version == 4, "{late:?}");
        let found = client.get_checkpoint("here").await.unwrap();
        assert_eq!((found.version, &found.value[..]), (4, &b"v3"[..]));
        let history = client.checkpoint_history("here", 0).await.unwrap();
        assert_eq!(history.iter().map(|past| past.version).collect::<Vec<_>>(), [2, 3]);
        let gone = client.watch_keys("x", 1).await.unwrap().next();
        assert_eq!(gone, 1);
        assert!(client.get_key("nothing").await.unwrap().is_none());
        let error = client.set_checkpoint("", Some("x".into()), None, 1, None).await.unwrap_err();
        assert!(matches!(error, ClientError::Refused(_)), "{error}");
    });
}

#[test]
fn a_command_runs_under_a_lock_and_is_stopped_when_the_lock_is_lost() {
    let mut cluster = Cluster::start(1);
    cluster.command(&["lock", "run", "job", "--", "sh", "-c", "exit 7"]).expect_code(7);
    let shown = cluster.command(&["lock", "run", "job", "--", "sh", "-c", "echo fence $DOLOMEDES_FENCE"]);
    assert!(shown.stdout.starts_with("fence "), "{}", shown.story());
    cluster
        .command(&["lock", "run", "job", "--", "/nonexistent/program"])
        .expect_code(1)
        .says(&["cannot run"]);
    let holding =
        cluster.prepared(&["lock", "run", "--ttl", "2", "job", "--", "sh", "-c", "echo up; exec sleep 600"]);
    let holding = Process::start(holding);
    eventually("the command runs", PATIENCE, || {
        if holding.stdout().contains("up") { Ok(()) } else { Err(holding.stderr()) }
    });
    let busy = cluster.command(&["lock", "run", "--wait", "1", "job", "--", "true"]);
    busy.expect_code(1).says(&["not to be had"]);
    // Without the cluster nobody knows whether the lock still stands, once its term is over.
    cluster.kill(0);
    holding.wait(PATIENCE).expect_code(1).says(&["is lost"]);
}

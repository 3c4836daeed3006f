//! An embedded node on a real directory: created once, opened again, refused when it is in use or has lost something.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use dolomedes_raft::{
    embedded::{Embedded, EmbeddedOptions},
    group::GroupOptions,
};
use futures_util::future::join_all;
use tempfile::TempDir;

use crate::group_harness::{clock, count, counted, try_count};

async fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, options()).await.unwrap()
}

fn options() -> EmbeddedOptions {
    EmbeddedOptions { clock: clock(), group: GroupOptions::default(), engine: Default::default() }
}

#[tokio::test]
async fn a_node_comes_back_with_all_it_acknowledged() {
    let dir = TempDir::new().unwrap();
    for round in 0..4 {
        let start = Instant::now();
        let node = open(dir.path()).await;
        let opened = start.elapsed();
        let group = node.group();
        assert_eq!(try_count(&group, "n").await, Ok(round * 101 + 1));
        eprintln!("round {round}: leading after {opened:?}, first reply after {:?}", start.elapsed());
        let start = Instant::now();
        let replies = join_all((0..100).map(|_| group.submit(count("n", 1000)))).await;
        assert!(replies.into_iter().all(|reply| reply.is_ok()));
        eprintln!("100 commands at once took {:?}", start.elapsed());
        drop(group);
        if round % 2 == 0 {
            node.close().await.unwrap();
        } else {
            // Without closing: as after a crash of the process, once the engine has let go.
            drop(node);
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                match Embedded::open(dir.path(), options()).await {
                    Ok(node) => break node.close().await.unwrap(),
                    Err(error) => assert!(Instant::now() < deadline, "{error}"),
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test]
async fn a_directory_has_one_user() {
    let dir = TempDir::new().unwrap();
    let node = open(dir.path()).await;
    let error = Embedded::open(dir.path(), options()).await.err().unwrap();
    assert!(error.to_string().contains("in use"), "{error}");
    assert_eq!(try_count(&node.group(), "n").await, Ok(1));
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_store_that_was_put_back_is_refused() {
    let dir = TempDir::new().unwrap();
    let node = open(dir.path()).await;
    try_count(&node.group(), "n").await.unwrap();
    node.close().await.unwrap();
    let (db, kept) = (dir.path().join("db"), dir.path().join("kept"));
    copy(&db, &kept);
    let node = open(dir.path()).await;
    assert_eq!(counted(&node.group(), "n").await, 1);
    try_count(&node.group(), "n").await.unwrap();
    node.close().await.unwrap();

    std::fs::remove_dir_all(&db).unwrap();
    std::fs::rename(&kept, &db).unwrap();
    let error = Embedded::open(dir.path(), options()).await.err().unwrap();
    assert!(error.to_string().contains("damaged"), "{error}");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

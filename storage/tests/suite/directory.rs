//! The data directory: one process, one identity, nothing that a wrong file could slip past.

use std::fs;

use dolomedes_storage::{
    Error,
    directory::{DataDir, Identity},
};

#[test]
fn a_directory_remembers_whose_it_is() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("deep").join("data");
    let identity = Identity::new(u128::MAX, 1 << 100, 42);
    let mut dir = DataDir::open(&path).unwrap();
    assert_eq!(dir.identity(), None);
    dir.set_identity(identity).unwrap();
    for folder in [dir.db(), dir.snapshots(), dir.spool(), dir.sinks()] {
        assert!(folder.is_dir());
        assert!(folder.starts_with(&path));
    }
    drop(dir);
    let mut dir = DataDir::open(&path).unwrap();
    assert_eq!(dir.identity(), Some(identity));
    dir.set_identity(identity).unwrap();
    assert!(dir.set_identity(Identity::new(1, 2, 3)).is_err(), "another node's");
}

#[test]
fn a_second_process_is_told_who_has_it() {
    let root = tempfile::tempdir().unwrap();
    let first = DataDir::open(root.path()).unwrap();
    match DataDir::open(root.path()).unwrap_err() {
        Error::InUse { pid, .. } => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{other}"),
    }
    drop(first);
    DataDir::open(root.path()).unwrap();
}

#[test]
fn damaged_identities_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("IDENTITY");
    DataDir::open(root.path()).unwrap().set_identity(Identity::new(1, 2, 3)).unwrap();
    let good = fs::read(&path).unwrap();
    let mut cases = vec![Vec::new(), b"garbage".to_vec(), vec![0; 10_000], [&good[..], b"more"].concat()];
    cases.extend((0..good.len()).map(|cut| good[..cut].to_vec()));
    cases.extend((0..good.len() * 8).map(|bit| {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        bad
    }));
    for case in cases {
        fs::write(&path, &case).unwrap();
        let error = DataDir::open(root.path()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error} for {case:?}");
    }
    fs::write(&path, good).unwrap();
    DataDir::open(root.path()).unwrap();
}

#[test]
fn data_without_an_identity_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut dir = DataDir::open(root.path()).unwrap();
    dir.set_identity(Identity::new(1, 2, 3)).unwrap();
    fs::write(dir.db().join("CURRENT"), "MANIFEST-000001").unwrap();
    drop(dir);
    fs::remove_file(root.path().join("IDENTITY")).unwrap();
    let error = DataDir::open(root.path()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

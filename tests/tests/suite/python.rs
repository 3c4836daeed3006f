//! The public API as another language sees it: a Python program with nothing but the published proto files, through the
//! deaths of leaders.

use std::path::{Path, PathBuf};
use std::process::Command;

use dolomedes_tests::cluster::{Cluster, PATIENCE};
use dolomedes_tests::process::Process;
use dolomedes_tests::wait::eventually;

const PROTOS: [&str; 4] = ["queue", "lock", "registry", "checkpoint"];

/// A Python with grpcio and its compiler: that of `DOLOMEDES_PYTHON`, or the usual one.
fn python() -> Option<String> {
    let python = std::env::var("DOLOMEDES_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import grpc, grpc_tools"]).output();
    found.is_ok_and(|found| found.status.success()).then_some(python)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn a_python_program_loses_and_doubles_nothing_while_leaders_die() {
    let Some(python) = python() else {
        eprintln!("not checked: no Python with grpcio and grpcio-tools (`.ci/setup test` installs one)");
        return;
    };
    let dir = tempfile::Builder::new().prefix("dolomedes-test-").tempdir().unwrap();
    let protos = repository().join("netproto/proto");
    let compiled = Command::new(&python)
        .args(["-m", "grpc_tools.protoc", "-I"])
        .arg(&protos)
        .arg(format!("--python_out={}", dir.path().display()))
        .arg(format!("--grpc_python_out={}", dir.path().display()))
        .args(PROTOS.map(|name| format!("dolomedes/v1/{name}.proto")))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let mut cluster = Cluster::start(3);
    let mut program = Command::new(&python);
    program
        .env("PYTHONPATH", dir.path())
        .arg(repository().join("tests/python/client.py"))
        .arg(cluster.nodes[0].dir().join("tls/ca.pem"))
        .arg(cluster.token().unwrap())
        .args(cluster.nodes.iter().map(|node| node.address.as_str()));
    let mut program = Process::start(program);
    eventually("the program is at work", PATIENCE, || {
        if program.stdout().contains("ready") { Ok(()) } else { Err(program.stderr()) }
    });
    for group in 0..4 {
        if !program.is_running() {
            break;
        }
        let victim = cluster.leader(group);
        cluster.kill(victim);
        cluster.restart(victim);
        cluster.wait_for_voters(3);
    }
    let ended = program.wait(PATIENCE * 2).expect_code(0);
    assert!(ended.stdout.contains("whole"), "{}", ended.story());
}

//! Who gets into a secure cluster, as a node or as a caller, and what those are told who do not.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use data_encoding::{BASE32_NOPAD, BASE64};
use dolomedes_netproto::peer::Member;
use dolomedes_netproto::peer::identity::ClusterCa;
use dolomedes_netproto::wire::{
    Access, Client, ClientError, ClientOptions, NodeAccess, Token, TokenKind, v1,
};
use dolomedes_tests::cluster::{Cluster, PATIENCE, node_command, up};
use dolomedes_tests::process::{Finished, Process, run};
use dolomedes_tests::wait::eventually;
use tonic::Code;

use crate::cluster::options;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn client(address: &str, access: Access) -> Client {
    let options = ClientOptions { access, deadline: Duration::from_secs(5), ..ClientOptions::default() };
    Client::new(&[address.to_owned()], options).unwrap()
}

fn access(token: &str) -> Access {
    Access::Token(token.parse().unwrap())
}

/// The status with which an answer was refused.
#[track_caller]
fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (Code, String) {
    match answer {
        Err(ClientError::Refused(status)) => (status.code(), status.message().to_owned()),
        other => panic!("not refused: {other:?}"),
    }
}

/// Makes a token with these words, and returns it.
#[track_caller]
fn create(cluster: &Cluster, words: &[&str]) -> String {
    let words = [&["cluster", "token", "create"], words].concat();
    cluster.command(&words).expect_code(0).stdout.trim().to_owned()
}

/// Starts a node that joins, and waits for its end, which is expected soon.
#[track_caller]
fn join(dir: &Path, words: &[&str]) -> Finished {
    let mut command = node_command(dir);
    command.args(["--listen", "127.0.0.1:0"]).args(words);
    Process::start(command).wait(PATIENCE)
}

#[test]
fn every_voter_can_let_nodes_in_and_keys_are_private() {
    let mut cluster = Cluster::start(3);
    let key = |place: usize| cluster.nodes[place].dir().join("tls").join("ca-key.pem");
    eventually("every voter has the CA's key", PATIENCE, || {
        let missing: Vec<usize> = (0..3).filter(|place| !key(*place).exists()).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("not on {missing:?}")) }
    });
    for node in &cluster.nodes {
        let files = ["node-key.pem", "node.pem", "ca.pem", "ca-key.pem"].map(|name| format!("tls/{name}"));
        for file in files {
            let mode = std::fs::metadata(node.dir().join(&file)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{file} of node {}", node.id);
        }
    }
    // The one that made the CA is gone; another lets the next node in.
    cluster.kill(0);
    let joined = cluster.join().id;
    eventually("the new node is a member", PATIENCE, || {
        let status = cluster.status()?;
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        if nodes.iter().any(|node| node["id"] == joined) { Ok(()) } else { Err(format!("{status:#}")) }
    });
    // With nothing but its directory, the first one is back, and so is whoever joined last.
    cluster.restart(0);
    cluster.stop(3).expect_code(143);
    cluster.restart(3);
    cluster.wait_for_voters(3);
    // What is replicated lets nobody in: neither tokens nor the CA's key are part of it.
    let tokens = [cluster.token().unwrap(), cluster.join_token()];
    let secret =
        |text: &str| BASE32_NOPAD.decode(text[6..].to_ascii_uppercase().as_bytes()).unwrap()[..20].to_vec();
    let ca_key = std::fs::read_to_string(cluster.nodes[0].dir().join("tls").join("ca-key.pem")).unwrap();
    let pem = ca_key.lines().nth(1).unwrap();
    let der =
        BASE64.decode(ca_key.lines().filter(|line| !line.starts_with('-')).collect::<String>().as_bytes());
    let mut needles: Vec<Vec<u8>> = vec![pem.into(), der.unwrap()[36..68].to_vec()];
    needles.extend(tokens.iter().flat_map(|text| [text.clone().into_bytes(), secret(text)]));
    let hash = tokens[1].parse::<Token>().unwrap().hash();
    let mut hashes = 0;
    for node in &cluster.nodes {
        for entry in std::fs::read_dir(node.dir().join("db")).unwrap() {
            let path = entry.unwrap().path();
            let Ok(bytes) = std::fs::read(&path) else { continue };
            hashes += bytes.windows(hash.len()).filter(|window| **window == hash).count();
            for (at, needle) in needles.iter().enumerate() {
                let found = bytes.windows(needle.len()).any(|window| window == needle);
                assert!(!found, "secret {at} is in {}", path.display());
            }
        }
    }
    assert!(hashes > 0, "what is looked for cannot be found");
    // Who may read a node's directory needs no token on its machine.
    for node in &cluster.nodes {
        let dir = node.dir().display().to_string();
        run(["cluster", "status", "--data-dir", &dir]).expect_code(0);
    }
}

#[test]
fn a_node_is_known_by_its_certificate_wherever_it_is_reached() {
    let mut cluster = Cluster::start(3);
    let follower = (0..3).find(|place| *place != cluster.leader(0)).unwrap();
    cluster.stop(follower).expect_code(143);
    let mut command = node_command(cluster.nodes[follower].dir());
    command.args(["--listen", "127.0.0.1:0"]);
    let moved = Process::start(command);
    let (id, address) = up(&moved);
    assert_eq!(id, cluster.nodes[follower].id);
    cluster.nodes[follower].address.clone_from(&address);
    eventually("the others have its new address", PATIENCE, || {
        let status = cluster.status()?;
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        let found = nodes.iter().any(|node| node["id"] == id && node["address"] == address.as_str());
        if found { Ok(()) } else { Err(format!("{status:#}")) }
    });
    cluster.wait_for_voters(3);
    // A client calls it as it likes.
    let named = address.replace("127.0.0.1", "localhost");
    let status = run(["cluster", "status", "--to", &named, "--token", &cluster.token().unwrap()]);
    status.expect_code(0);
}

#[test]
fn only_a_good_join_token_lets_a_node_in() {
    let mut cluster = Cluster::start(1);
    let member = cluster.nodes[0].address.clone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("n");
    let good = cluster.join_token();
    let unknown = {
        let token: Token = good.parse().unwrap();
        Token::draw(TokenKind::Join, *token.ca()).unwrap().reveal()
    };
    let revoked = create(&cluster, &["--join"]);
    cluster.command(&["cluster", "token", "revoke", &revoked]).expect_code(0);
    let expired = create(&cluster, &["--join", "--ttl", "1s"]);
    eventually("the token has expired", PATIENCE, || {
        let listed = cluster.command(&["cluster", "token", "list", "--json"]).expect_code(0).stdout;
        if listed.matches("\"join\"").count() == 1 { Ok(()) } else { Err(listed) }
    });
    let used = create(&cluster, &["--join", "--uses", "1"]);
    let mut first = node_command(&dir.with_file_name("first"));
    first.args(["--listen", "127.0.0.1:0", "--join", &member, "--token", &used]);
    let first = Process::start(first);
    let (number, _) = up(&first);
    for (what, token, code, says) in [
        ("none", None, 2, "--token"),
        ("a part of one", Some(&good[..60]), 2, "copied in part"),
        ("one for access", cluster.token().as_deref(), 2, "access token"),
        ("an unknown one", Some(unknown.as_str()), 1, "not known"),
        ("a revoked one", Some(&revoked), 1, "revoked"),
        ("an expired one", Some(&expired), 1, "expired"),
        ("a used one", Some(&used), 1, "used up"),
    ] {
        let mut words = vec!["--join", member.as_str()];
        words.extend(token.iter().flat_map(|token| ["--token", token]));
        let finished = join(&dir, &words);
        assert_eq!(finished.code, Some(code), "{what}: {}", finished.story());
        finished.says(&[says]);
    }
    // What was about to join begins no cluster of its own for want of a flag.
    join(&dir, &[]).expect_code(2).says(&["--token", &member]);
    // Nothing of all that was in the way.
    let mut command = node_command(&dir);
    command.args(["--listen", "127.0.0.1:0", "--join", &member, "--token", &good]);
    let joined = Process::start(command);
    assert_ne!(up(&joined).0, number);
    let nodes = cluster.status().unwrap()["nodes"].as_array().cloned().unwrap();
    assert_eq!(nodes.len(), 3, "{nodes:#?}");
}

#[test]
fn calls_need_an_access_token_and_health_needs_none() {
    let mut cluster = Cluster::start(3);
    let members: Vec<String> = cluster.nodes.iter().map(|node| node.address.clone()).collect();
    let join = cluster.join_token();
    let made = create(&cluster, &["--label", "test"]);
    let short = create(&cluster, &["--ttl", "1s"]);
    runtime().block_on(async {
        for member in &members {
            // TLS with the right CA, and no token.
            let nobody = client(member, access(&join));
            let (code, text) = refusal(nobody.status().await);
            assert!(code == Code::Unauthenticated && text.contains("access token"), "{code:?} {text}");
            assert_eq!(refusal(nobody.describe_queue("x").await).0, Code::Unauthenticated);
            assert_eq!(refusal(nobody.list_tokens().await).0, Code::Unauthenticated);
            let unknown = Token::draw(TokenKind::Access, *made.parse::<Token>().unwrap().ca()).unwrap();
            assert_eq!(
                refusal(client(member, Access::Token(unknown)).status().await).0,
                Code::Unauthenticated
            );
            let health = nobody
                .with_members(|channel| async move {
                    let request = tonic_health::pb::HealthCheckRequest::default();
                    tonic_health::pb::health_client::HealthClient::new(channel).check(request).await
                })
                .await;
            assert_eq!(health.unwrap().into_inner().status, 1);
            // Whoever leads, a token is good at every member.
            let somebody = client(member, access(&made));
            somebody.status().await.unwrap();
            somebody.create_queue("q", v1::QueueRules::default()).await.unwrap();
        }
    });
    let listed = cluster.command(&["cluster", "token", "list"]).expect_code(0).stdout;
    assert!(listed.contains("test") && listed.contains("made with the cluster"), "{listed}");
    assert!(!listed.contains(&made) && !listed.contains("dlma1_"), "{listed}");
    let id = listed.lines().find(|line| line.ends_with("test")).and_then(|line| line.split(' ').next());
    cluster.command(&["cluster", "token", "revoke", id.unwrap()]).expect_code(0);
    for member in &members {
        for token in [&made, &short] {
            eventually("a revoked or expired token is refused", PATIENCE, || {
                match runtime().block_on(async { client(member, access(token)).status().await }) {
                    Err(ClientError::Refused(status)) if status.code() == Code::Unauthenticated => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            });
        }
    }
}

#[test]
fn clusters_do_not_take_each_other_for_one() {
    let (one, mut other) = (Cluster::start(1), Cluster::start(1));
    let dir = tempfile::tempdir().unwrap();
    let token = other.join_token();
    let member = one.nodes[0].address.clone();
    let finished = join(&dir.path().join("n"), &["--join", &member, "--token", &token]);
    finished.expect_code(1).says(&["another cluster", &member]);
    let foreign = other.token().unwrap();
    let status = run(["cluster", "status", "--to", &member, "--token", &foreign]);
    status.expect_code(1).says(&["another cluster"]);
    // Somebody with a CA of his own passes for no node, whatever number he says.
    let cluster = u128::from_str_radix(one.status().unwrap()["cluster"].as_str().unwrap(), 16).unwrap();
    let ca = std::fs::read_to_string(one.nodes[0].dir().join("tls").join("ca.pem")).unwrap();
    let forged = ClusterCa::generate(cluster).unwrap().issue(1).unwrap();
    let own = ClusterCa::from_pem(
        cluster,
        &ca,
        &std::fs::read_to_string(one.nodes[0].dir().join("tls").join("ca-key.pem")).unwrap(),
    );
    let issued = own.unwrap().issue(7).unwrap();
    runtime().block_on(async {
        for (identity, node) in [(forged, 1), (issued, 1)] {
            let member_access = NodeAccess { member: Member { cluster, node }, ca: ca.clone(), identity };
            let answer = client(&member, Access::Node(Box::new(member_access))).status().await;
            assert!(answer.is_err(), "{answer:?}");
        }
    });
}

#[test]
fn secure_and_insecure_refuse_each_other_and_say_why() {
    let (mut secure, insecure) = (Cluster::start(1), Cluster::insecure(1));
    let token = secure.join_token();
    let (tls, plain) = (secure.nodes[0].address.clone(), insecure.nodes[0].address.clone());
    // Clients.
    run(["cluster", "status", "--insecure", "--to", &tls]).expect_code(1).says(&["TLS only"]);
    let status = run(["cluster", "status", "--to", &plain, "--token", &secure.token().unwrap()]);
    status.expect_code(1).says(&["does not speak TLS", "--insecure"]);
    run(["cluster", "status", "--to", &tls]).expect_code(2).says(&["DOLOMEDES_TOKEN", "--insecure"]);
    run(["cluster", "status", "--to", &tls, "--token", &token]).expect_code(2).says(&["join token"]);
    // Nodes.
    let dir = tempfile::tempdir().unwrap();
    let insecurely = join(&dir.path().join("a"), &["--insecure", "--join", &tls]);
    insecurely.expect_code(1).says(&["TLS only"]);
    let securely = join(&dir.path().join("b"), &["--join", &plain, "--token", &token]);
    securely.expect_code(1).says(&["does not speak TLS"]);
    // Directories stay what they are.
    let data = |cluster: &Cluster| cluster.nodes[0].dir().display().to_string();
    let (secure_dir, insecure_dir) = (data(&secure), data(&insecure));
    let (mut secure, mut insecure) = (secure, insecure);
    secure.kill(0);
    insecure.kill(0);
    run(["node", "--data-dir", &secure_dir, "--insecure"]).expect_code(2).says(&["leave --insecure away"]);
    run(["node", "--data-dir", &insecure_dir]).expect_code(2).says(&["pass --insecure"]);
    secure.restart(0);
    insecure.restart(0);
    runtime().block_on(async {
        client(&tls, options(&secure).access).status().await.unwrap();
        client(&plain, Access::Insecure).status().await.unwrap();
    });
}

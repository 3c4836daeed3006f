//! Clusters of real nodes: forming, losing members, going on. What was acknowledged is there afterwards, once.

use std::collections::BTreeSet;
use std::time::Duration;

use dolomedes_netproto::wire::{Access, Client, ClientOptions, v1};
use dolomedes_tests::cluster::{Cluster, PATIENCE, node_command};
use dolomedes_tests::process::{Job, Process, run};
use dolomedes_tests::site::Site;
use dolomedes_tests::wait::eventually;

use crate::mini;

/// Clients live on one runtime for as long as their connections.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub(crate) fn client(cluster: &Cluster) -> Client {
    let members: Vec<String> = cluster.nodes.iter().map(|node| node.address.clone()).collect();
    Client::new(&members, ClientOptions { deadline: PATIENCE, ..options(cluster) }).unwrap()
}

/// As who may use the cluster.
pub(crate) fn options(cluster: &Cluster) -> ClientOptions {
    let access = cluster.token().map_or(Access::Insecure, |token| Access::Token(token.parse().unwrap()));
    ClientOptions { access, ..ClientOptions::default() }
}

/// A message whose payload is its number.
fn message(number: u64) -> v1::NewMessage {
    v1::NewMessage {
        key: format!("key-{}", number % 7).into(),
        payload: number.to_string().into(),
        ..v1::NewMessage::default()
    }
}

/// Claims and completes until everything is done; returns the payloads in the order of completion.
async fn work_off(client: &Client, queue: &str) -> Vec<String> {
    let consumer = client.attach(queue, 77).await.unwrap();
    let mut done = Vec::new();
    loop {
        let claim = v1::ClaimRequest {
            queue: queue.to_owned(),
            consumer: Some(consumer),
            keys: 16,
            per_key: 100,
            wait_ms: 300,
            ..v1::ClaimRequest::default()
        };
        let grants = client.claim(claim).await.unwrap().grants;
        if grants.is_empty() {
            let counts = client.describe_queue(queue).await.unwrap().counts.unwrap();
            assert_eq!(counts.leased + counts.ready + counts.delayed, 0, "{counts:?}");
            return done;
        }
        let mut completions = Vec::new();
        for grant in grants {
            let payloads =
                grant.messages.iter().map(|message| String::from_utf8_lossy(&message.payload).into_owned());
            done.extend(payloads);
            completions.push(v1::Completion {
                lease: grant.lease,
                results: grant
                    .messages
                    .iter()
                    .map(|message| v1::Result {
                        id: message.id,
                        attempt: message.attempt,
                        outcome: Some(v1::result::Outcome::Done(v1::Done {})),
                    })
                    .collect(),
                release: true,
                hold_ms: None,
            });
        }
        let reply = client.complete(queue, consumer, completions).await.unwrap();
        assert!(reply.verdicts.iter().all(|verdict| verdict.accepted.iter().all(|ok| *ok)), "{reply:?}");
    }
}

#[track_caller]
fn assert_each_once(done: Vec<String>, messages: u64) {
    let distinct: BTreeSet<&String> = done.iter().collect();
    assert_eq!((done.len() as u64, distinct.len() as u64), (messages, messages));
}

#[test]
fn what_was_acknowledged_survives_the_death_of_one_leader_after_the_other() {
    let mut cluster = Cluster::start(3);
    let queue = "survivor";
    let runtime = runtime();
    let client = runtime.block_on(async { client(&cluster) });
    runtime.block_on(client.create_queue(queue, v1::QueueRules::default())).unwrap();
    let mut put = 0;
    for round in 0..3_u64 {
        // The queue is in one of four groups, so one of these deaths hits its leader, and one that of the cluster's own.
        let victim = cluster.leader(round);
        runtime.block_on(async {
            for number in put..put + 40 {
                let statuses = client.put(queue, vec![message(number)]).await.unwrap();
                assert_eq!(statuses, [v1::PutStatus::Accepted], "message {number}");
            }
        });
        put += 40;
        cluster.kill(victim);
        runtime.block_on(async {
            for number in put..put + 40 {
                let statuses = client.put(queue, vec![message(number)]).await.unwrap();
                assert_eq!(statuses, [v1::PutStatus::Accepted], "message {number}");
            }
        });
        put += 40;
        cluster.restart(victim);
        cluster.wait_for_voters(3);
    }
    assert_each_once(runtime.block_on(work_off(&client, queue)), put);
}

#[test]
fn an_insecure_cluster_on_loopback_forms_and_answers() {
    let mut cluster = Cluster::insecure(2);
    let queue = "plain";
    runtime().block_on(async {
        let client = client(&cluster);
        client.create_queue(queue, v1::QueueRules::default()).await.unwrap();
        assert_eq!(client.put(queue, vec![message(1)]).await.unwrap(), [v1::PutStatus::Accepted]);
    });
    cluster.stop(1).expect_code(143);
    cluster.restart(1);
    cluster.command(&["cluster", "token", "create"]).expect_code(2).says(&["insecure"]);
}

#[test]
fn any_member_answers_and_a_repeated_put_happens_once() {
    let cluster = Cluster::start(3);
    let queue = "everywhere";
    runtime().block_on(async {
        client(&cluster).create_queue(queue, v1::QueueRules::default()).await.unwrap();
        for node in &cluster.nodes {
            let one = Client::new(std::slice::from_ref(&node.address), options(&cluster)).unwrap();
            let request = v1::PutRequest {
                queue: queue.to_owned(),
                messages: vec![message(node.id)],
                operation: Some(one.operation(queue)),
            };
            for _ in 0..3 {
                let request = request.clone();
                let statuses = one
                    .with_members(|channel| {
                        let request = request.clone();
                        async move { v1::queues_client::QueuesClient::new(channel).put(request).await }
                    })
                    .await
                    .unwrap()
                    .into_inner()
                    .statuses;
                assert_eq!(statuses, [v1::PutStatus::Accepted as i32]);
            }
            let listed = one
                .with_members(|channel| async move {
                    v1::queues_client::QueuesClient::new(channel)
                        .list_queues(v1::ListQueuesRequest::default())
                        .await
                })
                .await
                .unwrap()
                .into_inner();
            assert_eq!(listed.queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), [queue]);
        }
        let counts = client(&cluster).describe_queue(queue).await.unwrap().counts.unwrap();
        assert_eq!((counts.accepted, counts.ready), (3, 3));
    });
}

#[test]
fn a_node_that_is_stopped_hands_over_and_comes_back_with_its_directory_alone() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader(0);
    let id = cluster.nodes[leader].id;
    cluster.stop(leader).expect_code(143);
    eventually("somebody else leads", PATIENCE, || {
        let status = cluster.status()?;
        let groups = status["groups"].as_array().cloned().unwrap_or_default();
        let led = groups.iter().all(|group| group["leader"].as_u64().is_some_and(|leader| leader != id));
        if led && !groups.is_empty() { Ok(()) } else { Err(format!("{status:#}")) }
    });
    cluster.restart(leader);
    cluster.wait_for_voters(3);
}

#[test]
fn a_removed_node_stops_for_good_and_a_spare_takes_its_place() {
    let mut cluster = Cluster::start(4);
    let status = cluster.status().unwrap();
    let role = |node: u64| {
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().find(|found| found["id"] == node).map(|found| found["role"].clone()).unwrap_or_default()
    };
    let leader = cluster.nodes[cluster.leader(0)].id;
    let voter = cluster.nodes.iter().position(|node| role(node.id) == "voter" && node.id != leader).unwrap();
    let id = cluster.nodes[voter].id;
    cluster.command(&["cluster", "remove", &id.to_string()]).expect_code(0);
    cluster.take(voter).wait(PATIENCE).expect_code(1).says(&["removed"]);
    cluster.wait_for_voters(3);
    let nodes = cluster.status().unwrap()["nodes"].as_array().cloned().unwrap();
    assert!(nodes.iter().all(|node| node["id"] != id && node["role"] == "voter"), "{nodes:#?}");
    // Its directory is of no more use.
    Process::start(node_command(cluster.nodes[voter].dir())).wait(PATIENCE).expect_code(1).says(&["removed"]);
}

#[test]
fn leaders_move_where_they_are_wanted() {
    let cluster = Cluster::start(3);
    let from = cluster.nodes[cluster.leader(0)].id;
    cluster.command(&["cluster", "drain", &from.to_string()]).expect_code(0);
    eventually("a drained node leads nothing", PATIENCE, || {
        let status = cluster.status()?;
        let groups = status["groups"].as_array().cloned().unwrap_or_default();
        let led = groups.iter().all(|group| group["leader"].as_u64().is_some_and(|leader| leader != from));
        if led && !groups.is_empty() { Ok(()) } else { Err(format!("{status:#}")) }
    });
    cluster.command(&["cluster", "drain", "--undo", &from.to_string()]).expect_code(0);
    cluster.wait_for_voters(3);
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let start = |name: &str, args: &[&str]| {
        let mut command = node_command(&dir.path().join(name));
        command.args(args);
        Process::start(command).wait(PATIENCE)
    };
    start("a", &[]).expect_code(2).says(&["--listen"]);
    start("a", &["--listen", "nonsense"]).expect_code(2).says(&["nonsense"]);
    start("a", &["--listen", "0.0.0.0:0", "--insecure"]).expect_code(2).says(&["loopback"]);
    start("a", &["--listen", "0.0.0.0:0"]).expect_code(2).says(&["--advertise"]);
    start("a", &["--listen", "127.0.0.1:0", "--voters", "2"]).expect_code(2).says(&["--voters"]);
    start("a", &["--listen", "127.0.0.1:0", "--groups", "0"]).expect_code(2).says(&["--groups"]);
    start("a", &["--listen", "127.0.0.1:0", "--join", "x"]).expect_code(2).says(&["--join"]);
    run(["cluster", "status", "--to", "nonsense", "--insecure"]).expect_code(2).says(&["nonsense"]);

    let cluster = Cluster::start(1);
    let second = Process::start(node_command(cluster.nodes[0].dir())).wait(PATIENCE);
    second.expect_code(1).says(&["in use"]);

    // A crawl's directory is not a node's.
    let site = Site::start();
    let web = mini::one_host(&site, 90, 3, Duration::ZERO);
    let mut job = Job::new(&site);
    job.seed(site.url(&web.hosts()[0], "/"));
    job.complete(mini::DEADLINE);
    let mut command = node_command(&job.data());
    command.args(["--listen", "127.0.0.1:0"]);
    Process::start(command).wait(PATIENCE).expect_code(1).says(&["crawl"]);
}

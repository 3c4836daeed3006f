//! Nodes that call each other and open streams, over plain and mutual TLS connections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dolomedes_netproto::peer::identity::{ClusterCa, NodeIdentity};
use dolomedes_netproto::peer::{
    Lane, MAX_FRAME, Member, PeerClient, PeerError, STREAM_DEPTH, Security, Transport, serve,
};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::peer_support::{
    AMPLE, CLUSTER, Cable, MARK, Node, ask, cable, client, client_to, member, next, open, soon,
};

fn refusal<T: std::fmt::Debug>(result: Result<T, PeerError>) -> String {
    match result {
        Err(PeerError::Refused { detail, .. }) => detail,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn calls_of_all_sizes_are_answered_on_both_lanes() {
    let node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    for lane in [Lane::Control, Lane::Snapshot] {
        for size in [0, 1, 200, 16 << 10, 1 << 20, MAX_FRAME] {
            let request = Bytes::from(vec![7; size]);
            let answer = soon("a call", client.call(2, lane, request.clone(), AMPLE)).await.unwrap();
            assert!(answer == request, "{lane:?} {size}");
        }
        let who = soon("a call", client.call(2, lane, Bytes::from_static(b"who"), AMPLE)).await;
        assert_eq!(who.unwrap(), format!("1 {lane:?}"));
    }
}

#[tokio::test]
async fn many_calls_at_once_are_all_answered() {
    let node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let calls = (0..1000_u32).map(|number| {
        let request = Bytes::copy_from_slice(&number.to_be_bytes());
        let call = client.call(2, Lane::Control, request.clone(), AMPLE);
        async move { (call.await, request) }
    });
    for (answer, request) in soon("all calls", futures_util::future::join_all(calls)).await {
        assert_eq!(answer, Ok(request));
    }
}

#[tokio::test]
async fn what_the_handler_refuses_is_refused_with_its_reason() {
    let node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    assert_eq!(refusal(ask(&client, 2, "refuse").await), "node 1 asked for it");
    assert_eq!(refusal(open(&client, 2, "refuse").await), "no streams of this kind");
}

#[tokio::test]
async fn a_frame_over_the_limit_is_not_sent() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let over = Bytes::from(vec![0; MAX_FRAME + 1]);
    let error = soon("a call", client.call(2, Lane::Snapshot, over.clone(), AMPLE)).await;
    assert!(refusal(error).contains("over the limit"));

    let mut near = open(&client, 2, "x").await.unwrap();
    let (_, _, mut far) = node.accepted().await;
    near.sender.send(over).await.unwrap();
    let broken = next(&mut far).await;
    assert!(matches!(broken, Some(Err(PeerError::Lost { .. }))), "{broken:?}");
    assert_eq!(next(&mut far).await, None);
    assert!(refusal(next(&mut near).await.unwrap()).contains("over the limit"));
    assert_eq!(next(&mut near).await, None);
}

#[tokio::test]
async fn frames_of_a_stream_arrive_in_order_both_ways() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let mut near = open(&client, 2, "group 4").await.unwrap();
    let (from, opening, mut far) = node.accepted().await;
    assert_eq!((from, opening.as_ref()), (1, b"group 4".as_slice()));
    tokio::spawn(async move {
        while let Some(Ok(frame)) = far.frames.recv().await {
            if far.sender.send(frame).await.is_err() {
                return;
            }
        }
    });
    let frame = |number: u32| {
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.resize(4 + (number as usize * 37) % 5000, 9);
        Bytes::from(bytes)
    };
    let sender = near.sender.clone();
    let sending = tokio::spawn(async move {
        for number in 0..2000 {
            sender.send(frame(number)).await.unwrap();
        }
    });
    for number in 0..2000 {
        assert_eq!(next(&mut near).await, Some(Ok(frame(number))), "{number}");
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_the_sender_and_no_other_stream() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let near = open(&client, 2, "slow").await.unwrap();
    let (_, _, mut far) = node.accepted().await;
    let frame = |number: u32| Bytes::from([number.to_be_bytes().to_vec(), vec![0; 64 << 10]].concat());
    let mut sent = 0;
    // It is full when nothing has moved for a while.
    while let Ok(permit) = tokio::time::timeout(Duration::from_millis(500), near.sender.reserve()).await {
        permit.unwrap().send(frame(sent));
        sent += 1;
        assert!(sent < 100, "nothing holds it up");
    }
    // At least what waits at either end; at most that, eight in the window, and a few being packed and unpacked.
    let depth = u32::try_from(STREAM_DEPTH).unwrap();
    assert!((2 * depth..2 * depth + 24).contains(&sent), "{sent}");

    let mut other = open(&client, 2, "quick").await.unwrap();
    let (_, _, quick) = node.accepted().await;
    quick.sender.send(Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(next(&mut other).await, Some(Ok(Bytes::from_static(b"hello"))));

    for number in 0..sent {
        assert_eq!(next(&mut far).await, Some(Ok(frame(number))));
    }
    soon("room", near.sender.send(frame(sent))).await.unwrap();
    assert_eq!(next(&mut far).await, Some(Ok(frame(sent))));
}

#[tokio::test]
async fn the_opener_that_drops_its_sender_still_gets_what_comes() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let mut near = open(&client, 2, "x").await.unwrap();
    let (_, _, mut far) = node.accepted().await;
    for _ in 0..STREAM_DEPTH {
        near.sender.send(Bytes::from_static(b"last")).await.unwrap();
    }
    near.sender = tokio::sync::mpsc::channel(1).0;
    for _ in 0..STREAM_DEPTH {
        assert_eq!(next(&mut far).await, Some(Ok(Bytes::from_static(b"last"))));
    }
    assert_eq!(next(&mut far).await, None);
    far.sender.send(Bytes::from_static(b"reply")).await.unwrap();
    assert_eq!(next(&mut near).await, Some(Ok(Bytes::from_static(b"reply"))));
    drop(far);
    assert_eq!(next(&mut near).await, None);
}

#[tokio::test]
async fn dropping_the_frames_or_all_ends_the_stream_for_both() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    for opener_drops in [true, false] {
        for whole in [true, false] {
            let near = open(&client, 2, "x").await.unwrap();
            let (_, _, far) = node.accepted().await;
            let (dropped, mut left) = if opener_drops { (near, far) } else { (far, near) };
            let kept = (!whole).then(|| dropped.sender.clone());
            drop(dropped);
            assert_eq!(next(&mut left).await, None, "{opener_drops} {whole}");
            soon("the other sender is told", left.sender.closed()).await;
            if let Some(kept) = kept {
                soon("the own sender is told", kept.closed()).await;
            }
        }
    }
}

#[tokio::test]
async fn the_accepter_that_drops_its_sender_ends_the_stream() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let mut near = open(&client, 2, "x").await.unwrap();
    let (_, _, far) = node.accepted().await;
    drop(far.sender);
    assert_eq!(next(&mut near).await, None);
    soon("the opener's sender is told", near.sender.closed()).await;
}

#[tokio::test]
async fn who_is_not_meant_or_not_a_member_is_refused_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = Node::on(listener, member(2), Security::Insecure, |node| {
        if node == 66 {
            Err("node 66 was removed; join again with an empty directory".to_owned())
        } else {
            Ok(())
        }
    });
    for (local, to, reason) in [
        (Member { cluster: CLUSTER + 1, node: 1 }, 2, "this is a node of cluster"),
        (member(1), 3, "this is node 2, not node 3"),
        (member(2), 2, "node 2 has reached itself"),
        (member(66), 2, "node 66 was removed; join again"),
    ] {
        let client = client(local, Security::Insecure);
        client.set_address(to, node.address.to_string());
        let told = refusal(ask(&client, to, "x").await);
        assert!(told.contains(reason), "{told}");
        let told = refusal(open(&client, to, "x").await);
        assert!(told.contains(reason), "{told}");
    }
}

/// The status and message that a request with these headers gets, if any.
async fn raw_status(node: &Node, headers: &[(&'static str, &str)]) -> (String, String) {
    let tcp = TcpStream::connect(node.address).await.unwrap();
    let (mut sending, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await.unwrap();
    tokio::spawn(connection);
    let mut request = hyper::Request::post("http://x/dolomedes.peer.v1.Peer/Call");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let response = soon("a raw request", sending.send_request(request)).await.unwrap();
    let header = |name: &str| {
        let value = response.headers().get(name).map(|value| value.to_str().unwrap().replace("%20", " "));
        value.unwrap_or_default()
    };
    (header("grpc-status"), header("grpc-message"))
}

#[tokio::test]
async fn another_version_and_other_programs_are_refused_with_the_reason() {
    let node = Node::start(member(2), Security::Insecure).await;
    let (status, message) = raw_status(&node, &[("dolomedes-version", "2")]).await;
    assert_eq!(status, "9");
    assert!(message.contains("protocol version 2 is not known here"), "{message}");
    let (status, message) = raw_status(&node, &[]).await;
    assert_eq!(status, "9");
    assert!(message.contains("not of a node"), "{message}");
}

#[tokio::test]
async fn what_does_not_speak_as_a_node_is_told_from_one_that_is_gone() {
    let canned = crate::support::canned(crate::support::response("", b"hello")).await;
    let client = client_to(canned.addr);
    let error = ask(&client, 2, "x").await.unwrap_err();
    assert!(matches!(error, PeerError::Lost { .. } | PeerError::Unreachable { .. }), "{error}");

    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let routes = tonic::service::Routes::default();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, routes, Security::Insecure, std::future::pending()));
        address
    };
    let told = refusal(ask(&client_to(address), 2, "x").await);
    assert!(told.contains("does not speak as a node"), "{told}");
}

#[tokio::test]
async fn a_peer_that_dies_ends_calls_and_streams_as_lost() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let mut near = open(&client, 2, "x").await.unwrap();
    let (_, _, far) = node.accepted().await;
    far.sender.send(Bytes::from_static(b"last words")).await.unwrap();
    assert_eq!(next(&mut near).await, Some(Ok(Bytes::from_static(b"last words"))));
    let begun = std::sync::Arc::clone(&node.handler.begun);
    let hanging = {
        let client = client.clone();
        tokio::spawn(async move { ask(&client, 2, "hang").await })
    };
    soon("the call has begun", begun.notified()).await;
    node.kill().await;
    let error = hanging.await.unwrap();
    assert!(matches!(error, Err(PeerError::Lost { node: 2, .. })), "{error:?}");
    let error = next(&mut near).await;
    assert!(matches!(error, Some(Err(PeerError::Lost { node: 2, .. }))), "{error:?}");
    assert_eq!(next(&mut near).await, None);
    soon("the sender is told", near.sender.closed()).await;
}

#[tokio::test]
async fn an_opener_that_dies_ends_the_stream_as_lost() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let mut near = open(&client, 2, "x").await.unwrap();
    let (_, _, mut far) = node.accepted().await;
    // Its connections are cut as they stand.
    client.forget(2);
    let error = next(&mut far).await;
    assert!(matches!(error, Some(Err(PeerError::Lost { node: 1, .. }))), "{error:?}");
    assert_eq!(next(&mut far).await, None);
    soon("the sender is told", far.sender.closed()).await;
    let error = next(&mut near).await;
    assert!(matches!(error, Some(Err(PeerError::Lost { node: 2, .. }))), "{error:?}");
}

#[tokio::test]
async fn a_call_to_a_silent_peer_is_lost_at_its_deadline() {
    let silent = crate::support::raw(|tcp| async move {
        std::future::pending::<()>().await;
        drop(tcp);
    })
    .await;
    let client = client_to(silent.addr);
    let call = client.call(2, Lane::Control, Bytes::from_static(b"x"), Duration::from_millis(300));
    let error = soon("the deadline", call).await;
    assert!(matches!(error, Err(PeerError::Lost { node: 2, .. })), "{error:?}");
    let error = soon("a stream is not opened", client.open(2, Bytes::new())).await;
    assert!(matches!(error, Err(PeerError::Lost { node: 2, .. })), "{error:?}");
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_noticed_on_an_open_stream_by_both() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let (address, state) = cable(node.address).await;
    let client = client_to(address);
    let mut near = open(&client, 2, "x").await.unwrap();
    let (_, _, mut far) = node.accepted().await;
    state.store(Cable::Cut as u8, Ordering::SeqCst);
    let error = next(&mut near).await;
    assert!(matches!(error, Some(Err(PeerError::Lost { node: 2, .. }))), "{error:?}");
    let error = next(&mut far).await;
    assert!(matches!(error, Some(Err(PeerError::Lost { node: 1, .. }))), "{error:?}");
}

#[tokio::test]
async fn where_nobody_listens_nothing_is_waited_for() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let client = client_to(address);
    // The second one, and the stream, fall into the time before the next attempt.
    for _ in 0..2 {
        let error = ask(&client, 2, "x").await;
        assert!(matches!(error, Err(PeerError::Unreachable { node: 2, .. })), "{error:?}");
    }
    let error = open(&client, 2, "x").await.map(drop);
    assert!(matches!(error, Err(PeerError::Unreachable { node: 2, .. })), "{error:?}");
    let error = ask(&client, 3, "x").await.unwrap_err();
    assert!(error.to_string().contains("address is not known"), "{error}");
}

/// Calls until an answer comes.
async fn until_answered(client: &PeerClient) -> Bytes {
    soon("an answer", async {
        loop {
            match ask(client, 2, "x").await {
                Ok(answer) => return answer,
                Err(PeerError::Refused { detail, .. }) => panic!("refused: {detail}"),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_peer_that_has_started_again_is_found_at_the_old_and_at_a_new_address() {
    let node = Node::start(member(2), Security::Insecure).await;
    let address = node.address;
    let client = client_to(address);
    assert_eq!(ask(&client, 2, "x").await.unwrap(), "x");
    node.kill().await;
    let error = soon("an error", async {
        loop {
            if let Err(error) = ask(&client, 2, "x").await {
                return error;
            }
        }
    })
    .await;
    assert!(!matches!(error, PeerError::Refused { .. }), "{error}");

    let listener = TcpListener::bind(address).await.unwrap();
    let node = Node::on(listener, member(2), Security::Insecure, |_| Ok(()));
    assert_eq!(until_answered(&client).await, "x");

    node.kill().await;
    let node = Node::start(member(2), Security::Insecure).await;
    client.set_address(2, node.address.to_string());
    // No attempt at the old address counts for the new one.
    assert_eq!(ask(&client, 2, "x").await.unwrap(), "x");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_given_up_at_the_peer_too() {
    let node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let call = client.call(2, Lane::Control, Bytes::from_static(b"hang"), AMPLE);
    tokio::select! {
        result = call => panic!("{result:?}"),
        () = soon("the call has begun", node.handler.begun.notified()) => {}
    }
    soon("the handler's future is dropped", node.handler.dropped.notified()).await;
    assert_eq!(ask(&client, 2, "x").await.unwrap(), "x");
}

#[tokio::test]
async fn streams_to_one_peer_are_bounded() {
    let node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(open(&client, 2, "x").await.unwrap());
    }
    let error = open(&client, 2, "x").await.map(drop);
    assert!(matches!(error, Err(PeerError::Unreachable { .. })), "{error:?}");
    held.pop();
    soon("room for another", async {
        while open(&client, 2, "x").await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_snapshot_lane_keeps_to_its_rate_and_holds_up_no_other() {
    let node = Node::start(member(2), Security::Insecure).await;
    let client = PeerClient::new(member(1), Security::Insecure, Handle::current(), 1);
    client.set_address(2, node.address.to_string());
    let piece = || Bytes::from(vec![0; 1000]);
    soon("the first piece", client.call(2, Lane::Snapshot, piece(), AMPLE)).await.unwrap();
    // The next would have to wait for a thousand seconds.
    let error = soon("a second piece", client.call(2, Lane::Snapshot, piece(), AMPLE)).await;
    assert!(matches!(&error, Err(PeerError::Unreachable { .. })), "{error:?}");
    assert!(error.unwrap_err().to_string().contains("at its rate"));
    assert_eq!(ask(&client, 2, "x").await.unwrap(), "x");
}

#[tokio::test]
async fn garbled_payloads_are_noticed_in_either_direction() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let (address, state) = cable(node.address).await;
    let client = client_to(address);
    let marked = Bytes::from(vec![MARK; 200]);
    for garbles in [Cable::GarblesRequests, Cable::GarblesAnswers] {
        state.store(garbles as u8, Ordering::SeqCst);
        let error = soon("a call", client.call(2, Lane::Control, marked.clone(), AMPLE)).await;
        assert!(
            matches!(&error, Err(PeerError::Lost { detail, .. }) if detail.contains("damaged")),
            "{error:?}"
        );

        let mut near = open(&client, 2, "x").await.unwrap();
        let (_, _, mut far) = node.accepted().await;
        let (sender, receiver) = match garbles {
            Cable::GarblesRequests => (near.sender.clone(), &mut far),
            _ => (far.sender.clone(), &mut near),
        };
        sender.send(marked.clone()).await.unwrap();
        let error = next(receiver).await;
        assert!(
            matches!(&error, Some(Err(PeerError::Lost { detail, .. })) if detail.contains("damaged")),
            "{error:?}"
        );
        assert_eq!(next(receiver).await, None);
        soon("the sender is told", sender.closed()).await;
    }
    state.store(Cable::Whole as u8, Ordering::SeqCst);
    assert_eq!(soon("a call", client.call(2, Lane::Control, marked.clone(), AMPLE)).await, Ok(marked));
}

#[tokio::test]
async fn a_server_that_shuts_down_ends_what_has_begun_and_takes_nothing_new() {
    let mut node = Node::start(member(2), Security::Insecure).await;
    let client = client_to(node.address);
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { ask(&client, 2, "wait").await })
    };
    soon("the call has begun", node.handler.begun.notified()).await;
    node.shut_down();
    soon("new calls are not taken", async { while ask(&client, 2, "x").await.is_ok() {} }).await;
    node.handler.release.notify_one();
    assert_eq!(waiting.await.unwrap().unwrap(), "wait");
    node.ended().await;
}

#[tokio::test]
async fn without_tls_only_the_loopback_is_listened_on() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let routes = tonic::service::Routes::default();
    let error = serve(listener, routes, Security::Insecure, std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("loopback only"), "{error}");
}

fn mutual(trusts: &ClusterCa, identity: &NodeIdentity) -> Security {
    Security::mutual(trusts.certificate(), identity).unwrap()
}

#[tokio::test]
async fn nodes_of_one_cluster_reach_each_other_over_mutual_tls() {
    let ca = ClusterCa::generate(CLUSTER).unwrap();
    let mut node = Node::start(member(2), mutual(&ca, &ca.issue(2).unwrap())).await;
    let client = client(member(1), mutual(&ca, &ca.issue(1).unwrap()));
    client.set_address(2, node.address.to_string());
    assert_eq!(ask(&client, 2, "who").await.unwrap(), "1 Control");
    let mut near = open(&client, 2, "x").await.unwrap();
    let (from, _, far) = node.accepted().await;
    assert_eq!(from, 1);
    far.sender.send(Bytes::from(vec![5; 1 << 20])).await.unwrap();
    assert_eq!(next(&mut near).await.unwrap().unwrap().len(), 1 << 20);
    node.kill().await;
    let error = next(&mut near).await;
    assert!(matches!(error, Some(Err(PeerError::Lost { node: 2, .. }))), "{error:?}");
}

#[tokio::test]
async fn over_mutual_tls_nobody_passes_for_another() {
    let ca = ClusterCa::generate(CLUSTER).unwrap();
    let foreign = ClusterCa::generate(CLUSTER).unwrap();
    let right = |node| mutual(&ca, &ca.issue(node).unwrap());
    // Server, client (who says that it is node 1 and wants node 2), and what it is told.
    let table = [
        (
            "a server of another CA",
            mutual(&foreign, &foreign.issue(2).unwrap()),
            right(1),
            "the certificate of",
        ),
        ("a server that is another node", right(3), right(1), "the certificate of"),
        (
            "a client of another CA",
            right(2),
            mutual(&ca, &foreign.issue(1).unwrap()),
            "does not accept this node's certificate",
        ),
        ("a client that is another node", right(2), right(3), "the certificate is not that of node-1."),
    ];
    for (case, server, client_security, reason) in table {
        let node = Node::start(member(2), server).await;
        let client = client(member(1), client_security);
        client.set_address(2, node.address.to_string());
        // The second one is told the same, whether a connection is tried again or not.
        for _ in 0..2 {
            let told = refusal(ask(&client, 2, "x").await);
            assert!(told.contains(reason), "{case}: {told}");
        }
        let told = refusal(open(&client, 2, "x").await);
        assert!(told.contains(reason), "{case}: {told}");
    }
}

#[tokio::test]
async fn a_node_with_tls_and_one_without_do_not_talk() {
    let ca = ClusterCa::generate(CLUSTER).unwrap();
    let secure = || mutual(&ca, &ca.issue(2).unwrap());
    for (server, client_security, reason) in [
        (secure(), Security::Insecure, "speaks TLS only"),
        (Security::Insecure, secure(), "does not speak TLS"),
    ] {
        let node = Node::start(member(2), server).await;
        let client = client(member(1), client_security);
        client.set_address(2, node.address.to_string());
        let told = refusal(ask(&client, 2, "x").await);
        assert!(told.contains(reason), "{told}");
    }
}

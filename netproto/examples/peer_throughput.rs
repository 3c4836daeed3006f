//! How much the transport between nodes carries on this machine, over loopback and with both ends in one process:
//! `cargo run --release -p dolomedes-netproto --example peer_throughput`.

#![allow(clippy::print_stdout, reason = "a program that is run by hand")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dolomedes_netproto::peer::identity::ClusterCa;
use dolomedes_netproto::peer::{
    Handler, Lane, Member, NodeNumber, PeerClient, PeerStream, Pending, Security, Transport, serve, service,
};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

/// How long each figure is taken.
const SECONDS: u64 = 3;

struct Sink;

impl Handler for Sink {
    fn call(&self, _: NodeNumber, _: Lane, request: Bytes) -> Pending<Result<Bytes, String>> {
        Box::pin(async move { Ok(request) })
    }

    /// Takes all frames, and says how many there were when they have ended.
    fn accept(&self, _: NodeNumber, _: Bytes, mut stream: PeerStream) -> Result<(), String> {
        tokio::spawn(async move {
            let mut count: u64 = 0;
            while let Some(Ok(_)) = stream.frames.recv().await {
                count += 1;
            }
            let _ = stream.sender.send(Bytes::copy_from_slice(&count.to_be_bytes())).await;
        });
        Ok(())
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let cluster = 1;
    let ca = ClusterCa::generate(cluster)?;
    for (name, secure) in [("plain", false), ("mutual TLS", true)] {
        let security = |node| -> Result<Security, Box<dyn Error>> {
            Ok(if secure {
                Security::mutual(ca.certificate(), &ca.issue(node)?)?
            } else {
                Security::Insecure
            })
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let everybody = |_: NodeNumber| Ok(());
        let peers = service(Member { cluster, node: 2 }, &security(2)?, Arc::new(everybody), Arc::new(Sink));
        let routes = tonic::service::Routes::new(peers);
        let server = tokio::spawn(serve(listener, routes, security(2)?, std::future::pending()));

        let client = PeerClient::new(Member { cluster, node: 1 }, security(1)?, Handle::current(), 1 << 40);
        client.set_address(2, address.to_string());
        for size in [256 << 10, 200] {
            let (rate, mebibytes) = frames(&client, size).await?;
            println!("{name}: frames of {size} B: {rate:.0}/s, {mebibytes:.0} MiB/s");
        }
        for at_once in [1, 64] {
            let rate = calls(&client, at_once).await?;
            println!("{name}: calls of 200 B, {at_once} at once: {rate:.0}/s");
        }
        server.abort();
    }
    Ok(())
}

async fn frames(client: &PeerClient, size: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let PeerStream { sender, mut frames } = client.open(2, Bytes::new()).await?;
    let frame = Bytes::from(vec![7; size]);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(SECONDS) {
        sender.send(frame.clone()).await?;
    }
    drop(sender);
    let count = frames.recv().await.ok_or("the stream has ended without its count")??;
    let count = u64::from_be_bytes(count.as_ref().try_into()?) as f64;
    let rate = count / start.elapsed().as_secs_f64();
    Ok((rate, rate * size as f64 / f64::from(1 << 20)))
}

async fn calls(client: &PeerClient, at_once: usize) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    let callers = (0..at_once).map(|_| async {
        let mut count: u64 = 0;
        while start.elapsed() < Duration::from_secs(SECONDS) {
            client.call(2, Lane::Control, Bytes::from_static(&[7; 200]), Duration::from_secs(10)).await?;
            count += 1;
        }
        Ok::<_, Box<dyn Error>>(count)
    });
    let counts = futures_util::future::join_all(callers).await;
    let count = counts.into_iter().sum::<Result<u64, _>>()?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

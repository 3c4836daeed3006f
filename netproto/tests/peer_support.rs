//! Nodes on the loopback whose handlers do as the request says, and a cable that can be cut or garbled.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dolomedes_netproto::peer::{
    Handler, Lane, Member, NodeNumber, PeerClient, PeerError, PeerStream, Pending, Security, Transport,
    serve, service,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

pub(crate) const CLUSTER: u128 = 0xC1;

/// The longest that anything in these tests may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A deadline that nothing is meant to reach.
pub(crate) const AMPLE: Duration = Duration::from_secs(60);

pub(crate) fn member(node: NodeNumber) -> Member {
    Member { cluster: CLUSTER, node }
}

/// What `future` gives, which must not take long.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// Answers as the request says: `refuse`, `hang` until the caller has gone, `wait` until released, or an echo.
pub(crate) struct Obedient {
    streams: mpsc::Sender<(NodeNumber, Bytes, PeerStream)>,
    /// A call that hangs or waits has begun.
    pub(crate) begun: Arc<Notify>,
    /// A call that hung was dropped.
    pub(crate) dropped: Arc<Notify>,
    /// Lets those that wait go on.
    pub(crate) release: Arc<Notify>,
}

struct Tell(Arc<Notify>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Handler for Obedient {
    fn call(&self, from: NodeNumber, lane: Lane, request: Bytes) -> Pending<Result<Bytes, String>> {
        let (begun, dropped, release) =
            (Arc::clone(&self.begun), Arc::clone(&self.dropped), Arc::clone(&self.release));
        Box::pin(async move {
            match request.as_ref() {
                b"refuse" => return Err(format!("node {from} asked for it")),
                b"hang" => {
                    let _tell = Tell(dropped);
                    begun.notify_one();
                    std::future::pending::<()>().await;
                }
                b"wait" => {
                    begun.notify_one();
                    release.notified().await;
                }
                b"who" => return Ok(Bytes::from(format!("{from} {lane:?}"))),
                _ => {}
            }
            Ok(request)
        })
    }

    fn accept(&self, from: NodeNumber, opening: Bytes, stream: PeerStream) -> Result<(), String> {
        if opening.as_ref() == b"refuse" {
            return Err("no streams of this kind".to_owned());
        }
        self.streams.try_send((from, opening, stream)).map_err(|error| error.to_string())
    }
}

pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) handler: Arc<Obedient>,
    streams: mpsc::Receiver<(NodeNumber, Bytes, PeerStream)>,
    shutdown: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start(local: Member, security: Security) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, local, security, |_| Ok(()))
    }

    pub(crate) fn on(
        listener: TcpListener,
        local: Member,
        security: Security,
        membership: impl Fn(NodeNumber) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let (sender, streams) = mpsc::channel(100);
        let handler = Arc::new(Obedient {
            streams: sender,
            begun: Arc::default(),
            dropped: Arc::default(),
            release: Arc::default(),
        });
        let peers = service(local, &security, Arc::new(membership), Arc::clone(&handler) as Arc<dyn Handler>);
        let (shutdown, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let routes = tonic::service::Routes::new(peers);
            let stopped = async { stopped.await.unwrap_or(()) };
            serve(listener, routes, security, stopped).await.unwrap();
        });
        Self { address, handler, streams, shutdown: Some(shutdown), serving }
    }

    /// The next stream that a peer opens.
    pub(crate) async fn accepted(&mut self) -> (NodeNumber, Bytes, PeerStream) {
        soon("a stream is opened", self.streams.recv()).await.unwrap()
    }

    /// All connections are cut and the listener closed, as if the process had died.
    pub(crate) async fn kill(self) {
        self.serving.abort();
        let _ = self.serving.await;
    }

    pub(crate) fn shut_down(&mut self) {
        let _ = self.shutdown.take().unwrap().send(());
    }

    pub(crate) async fn ended(self) {
        soon("the server ends", self.serving).await.unwrap();
    }
}

pub(crate) fn client(local: Member, security: Security) -> PeerClient {
    PeerClient::new(local, security, Handle::current(), 1 << 30)
}

/// A client of node 1 that knows node 2 at `address`.
pub(crate) fn client_to(address: SocketAddr) -> PeerClient {
    let client = client(member(1), Security::Insecure);
    client.set_address(2, address.to_string());
    client
}

pub(crate) async fn ask(
    client: &PeerClient,
    to: NodeNumber,
    request: &'static str,
) -> Result<Bytes, PeerError> {
    let request = Bytes::from_static(request.as_bytes());
    soon("a call ends", client.call(to, Lane::Control, request, AMPLE)).await
}

pub(crate) async fn open(
    client: &PeerClient,
    to: NodeNumber,
    opening: &'static str,
) -> Result<PeerStream, PeerError> {
    soon("a stream is opened", client.open(to, Bytes::from_static(opening.as_bytes()))).await
}

pub(crate) async fn next(stream: &mut PeerStream) -> Option<Result<Bytes, PeerError>> {
    soon("a frame or the end", stream.frames.recv()).await
}

/// What a cable does to what goes through it.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Cable {
    Whole,
    /// One bit of every run of [`MARK`] is flipped, from the client to the server.
    GarblesRequests,
    /// The same from the server to the client.
    GarblesAnswers,
    /// Nothing comes through, and nobody is told.
    Cut,
}

pub(crate) const MARK: u8 = 0xA5;

/// A way to `to` that does as is set.
pub(crate) async fn cable(to: SocketAddr) -> (SocketAddr, Arc<AtomicU8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::new(AtomicU8::new(Cable::Whole as u8));
    let states = Arc::clone(&state);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(to).await else { continue };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(carry(near_in, far_out, Arc::clone(&states), Cable::GarblesRequests));
            tokio::spawn(carry(far_in, near_out, Arc::clone(&states), Cable::GarblesAnswers));
        }
    });
    (address, state)
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: Arc<AtomicU8>, garbles: Cable) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let state = state.load(Ordering::SeqCst);
        if state == Cable::Cut as u8 {
            std::future::pending::<()>().await;
        }
        if state == garbles as u8
            && let Some(at) = buffer[..read].windows(8).position(|run| run == [MARK; 8])
        {
            buffer[at] ^= 1;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

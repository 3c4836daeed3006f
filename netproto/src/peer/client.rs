//! The sending side: an address book, three lines per peer, deadlines, and the rate of the snapshot lane.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::Request;

use super::bounds::{FRAME_OVERHEAD, MAX_FRAME};
use super::hello::{self, Member};
use super::line::Line;
use super::link::{Link, SendError};
use super::rate::Bucket;
use super::stream::{self, End, Fate, Outgoing, Requests};
use super::wire::Frame;
use super::wire::peer_client::PeerClient as Stub;
use super::{
    Lane, NodeNumber, PeerError, PeerStream, Pending, STREAM_DEPTH, Security, Transport, frame, verdict,
};

/// Time for a peer to accept a stream.
const OPEN_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes per second on the snapshot lane, where nothing else is asked for: a fifth of a 1 Gbit/s link.
pub const SNAPSHOT_RATE: u64 = 25 << 20;

/// Sends to the peers whose addresses it was given. Connections are made when they are needed and end with the last
/// clone.
#[derive(Clone, Debug)]
pub struct PeerClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    local: Member,
    security: Security,
    runtime: Handle,
    born: Instant,
    /// As many as the cluster has members; whoever keeps the addresses also forgets them.
    book: Mutex<HashMap<NodeNumber, Entry>>,
    snapshot_rate: Mutex<Bucket>,
}

#[derive(Debug)]
struct Entry {
    address: String,
    control: Arc<Line>,
    append: Arc<Line>,
    snapshot: Arc<Line>,
}

impl Entry {
    fn close(&self) {
        for line in [&self.control, &self.append, &self.snapshot] {
            line.close();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.book.get_mut().unwrap_or_else(PoisonError::into_inner).values().for_each(Entry::close);
    }
}

impl PeerClient {
    /// A client with an empty address book, whose connections live on `runtime`. `snapshot_rate` is in bytes per second,
    /// over all peers, requests and answers together; see [`SNAPSHOT_RATE`].
    pub fn new(local: Member, security: Security, runtime: Handle, snapshot_rate: u64) -> Self {
        let inner = Inner {
            local,
            security,
            runtime,
            born: Instant::now(),
            book: Mutex::default(),
            snapshot_rate: Mutex::new(Bucket::new(snapshot_rate, Duration::ZERO)),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Notes where `node` listens, `host:port`. If it was elsewhere before, its connections are cut.
    pub fn set_address(&self, node: NodeNumber, address: String) {
        let mut book = self.inner.book();
        if book.get(&node).is_some_and(|entry| entry.address == address) {
            return;
        }
        let to = Member { cluster: self.inner.local.cluster, node };
        let line = |line| {
            let Inner { local, security, runtime, .. } = &*self.inner;
            Arc::new(Line::new(*local, to, line, &address, security, runtime))
        };
        let entry = Entry {
            control: line(hello::Line::Control),
            append: line(hello::Line::Append),
            snapshot: line(hello::Line::Snapshot),
            address,
        };
        if let Some(old) = book.insert(node, entry) {
            old.close();
        }
    }

    /// Forgets the address of `node` and cuts its connections.
    pub fn forget(&self, node: NodeNumber) {
        if let Some(entry) = self.inner.book().remove(&node) {
            entry.close();
        }
    }
}

impl Transport for PeerClient {
    fn call(
        &self,
        to: NodeNumber,
        lane: Lane,
        request: Bytes,
        deadline: Duration,
    ) -> Pending<Result<Bytes, PeerError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.call(to, lane, request, deadline).await })
    }

    fn open(&self, to: NodeNumber, opening: Bytes) -> Pending<Result<PeerStream, PeerError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.open(to, opening).await })
    }
}

impl Inner {
    async fn call(
        &self,
        to: NodeNumber,
        lane: Lane,
        request: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, PeerError> {
        let line = self.line(to, |entry| match lane {
            Lane::Control => &entry.control,
            Lane::Snapshot => &entry.snapshot,
        })?;
        let frame = seal(to, request)?;
        let mut sent = false;
        let exchange = async {
            let mut charge = Charge { rate: &self.snapshot_rate, born: self.born, bytes: 0 };
            if lane == Lane::Snapshot {
                let wait = charge.take(frame.payload.len());
                if wait > deadline {
                    let detail = format!("the snapshot lane is at its rate for another {wait:?}");
                    return Err(PeerError::Unreachable { node: to, detail });
                }
                tokio::time::sleep(wait).await;
            }
            let permit = line.room.acquire().await;
            let _permit = permit.map_err(|error| unreachable(to, &SendError::Unsent(error.to_string())))?;
            let link = line.link().await.map_err(|error| unreachable(to, &error))?;
            sent = true;
            charge.spent();
            let request = Request::from_parts(line.metadata.clone(), tonic::Extensions::new(), frame);
            let answer = stub(link).call(request).await.map_err(|status| verdict::peer_error(to, &status))?;
            line.answered();
            let answer = frame::open(answer.into_inner())
                .map_err(|error| PeerError::Lost { node: to, detail: error.to_string() })?;
            if lane == Lane::Snapshot {
                // It has come already; the next request waits for it.
                charge.take(answer.len());
                charge.spent();
            }
            Ok(answer)
        };
        match tokio::time::timeout(deadline, exchange).await {
            Ok(result) => result,
            Err(_) if sent => {
                Err(PeerError::Lost { node: to, detail: format!("there was no answer within {deadline:?}") })
            }
            Err(_) => {
                let detail = format!("the request could not be sent within {deadline:?}");
                Err(PeerError::Unreachable { node: to, detail })
            }
        }
    }

    async fn open(&self, to: NodeNumber, opening: Bytes) -> Result<PeerStream, PeerError> {
        let line = self.line(to, |entry| &entry.append)?;
        let opening = seal(to, opening)?;
        let permit = Arc::clone(&line.room).try_acquire_owned().map_err(|_| PeerError::Unreachable {
            node: to,
            detail: format!("{} streams to it are open already", super::bounds::STREAMS_PER_PEER),
        })?;
        let mut sent = false;
        let exchange = async {
            let link = line.link().await.map_err(|error| unreachable(to, &error))?;
            sent = true;
            let fate = Fate::default();
            let (sender, outgoing) = Outgoing::new(to, Some(opening), &fate);
            let (inbox, frames) = mpsc::channel(STREAM_DEPTH);
            let request =
                Request::from_parts(line.metadata.clone(), tonic::Extensions::new(), Requests(outgoing));
            let response =
                stub(link).stream(request).await.map_err(|status| verdict::peer_error(to, &status))?;
            line.answered();
            let incoming = response.into_inner();
            self.runtime.spawn(stream::pump(incoming, inbox, to, fate, End::Opener, permit));
            Ok(PeerStream { sender, frames })
        };
        match tokio::time::timeout(OPEN_DEADLINE, exchange).await {
            Ok(result) => result,
            Err(_) if sent => Err(PeerError::Lost {
                node: to,
                detail: format!("it took no stream within {OPEN_DEADLINE:?}"),
            }),
            Err(_) => {
                let detail = format!("there was no connection within {OPEN_DEADLINE:?}");
                Err(PeerError::Unreachable { node: to, detail })
            }
        }
    }

    fn line(&self, to: NodeNumber, which: impl Fn(&Entry) -> &Arc<Line>) -> Result<Arc<Line>, PeerError> {
        let unknown = || PeerError::Unreachable { node: to, detail: "its address is not known".to_owned() };
        self.book().get(&to).map(|entry| Arc::clone(which(entry))).ok_or_else(unknown)
    }

    fn book(&self) -> MutexGuard<'_, HashMap<NodeNumber, Entry>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes taken of the snapshot lane's rate; given back unless they were sent.
struct Charge<'a> {
    rate: &'a Mutex<Bucket>,
    born: Instant,
    bytes: usize,
}

impl Charge<'_> {
    fn take(&mut self, bytes: usize) -> Duration {
        self.bytes = bytes;
        self.rate.lock().unwrap_or_else(PoisonError::into_inner).take(self.born.elapsed(), bytes)
    }

    fn spent(&mut self) {
        self.bytes = 0;
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
            rate.refund(self.born.elapsed(), self.bytes);
        }
    }
}

fn seal(to: NodeNumber, payload: Bytes) -> Result<Frame, PeerError> {
    frame::seal(payload).map_err(|error| PeerError::Refused { node: to, detail: error.to_string() })
}

fn unreachable(to: NodeNumber, error: &SendError) -> PeerError {
    match error {
        SendError::Refused(detail) => PeerError::Refused { node: to, detail: detail.clone() },
        SendError::Unsent(detail) | SendError::Broken(detail) => {
            PeerError::Unreachable { node: to, detail: detail.clone() }
        }
    }
}

fn stub(link: Link) -> Stub<Link> {
    // HTTP/2 wants a scheme and an authority; who is meant is in the metadata.
    let origin = hyper::Uri::from_static("http://node.dolomedes");
    Stub::with_origin(link, origin).max_decoding_message_size(MAX_FRAME + FRAME_OVERHEAD)
}

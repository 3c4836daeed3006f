//! Sessions and locks: a session is kept alive in the background for as long as its handle lives, and a lock tells when it
//! is lost.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tonic::{Response, Status};

use super::{
    Client, ClientError, Connection,
    v1::{
        AcquireRequest, CloseSessionRequest, DescribeLockRequest, KeepAliveRequest, LockDescription,
        OpenSessionRequest, ReleaseRequest, locks_client::LocksClient,
    },
};

/// Under which name a client notes that group 0 knows it.
pub(super) const META: &str = "\0meta";
/// Longest wait of one call; a longer one is made of several.
const ONE_WAIT: Duration = Duration::from_secs(5);
/// A session is kept alive so often in its term.
const TIMES_PER_TERM: u32 = 4;

/// A session; it ends when its last clone and lock are gone, or when the cluster has not heard of it for its term.
#[derive(Clone, Debug)]
pub struct Session {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    number: u64,
    /// False once it has ended, or may have.
    alive: watch::Receiver<bool>,
    keeper: tokio::task::JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.keeper.abort();
        let (client, session) = (self.client.clone(), self.number);
        // Without a runtime nobody is told, and it ends with its term.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { client.close_session(session).await });
        }
    }
}

/// A lock that is held. It is released when this is dropped; [`release`](Self::release) also tells whether it was.
#[derive(Debug)]
pub struct Lock {
    session: Session,
    name: String,
    fence: u64,
    released: bool,
}

impl Session {
    /// Its number, for keys of the registry that are to go with it.
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// Returns once the session has ended, or may have ended because the cluster cannot be reached.
    pub async fn ended(&self) {
        let mut alive = self.inner.alive.clone();
        let _ = alive.wait_for(|alive| !alive).await;
    }

    /// Acquires a lock; waits in line for it, at most until `deadline`. `None`: it was not to be had by then.
    ///
    /// # Errors
    /// If the session has ended, or the cluster cannot be reached.
    pub async fn acquire(&self, name: &str, deadline: Duration) -> Result<Option<Lock>, ClientError> {
        let end = Instant::now() + deadline;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let request = AcquireRequest {
                lock: name.to_owned(),
                session: self.inner.number,
                wait: !left.is_zero(),
                wait_ms: u64::try_from(left.min(ONE_WAIT).as_millis()).unwrap_or(u64::MAX),
            };
            let reply = self
                .inner
                .client
                .locks(request, |mut client, request| async move { client.acquire(request).await })
                .await?;
            if reply.fence != 0 {
                let (session, fence) = (self.clone(), reply.fence);
                return Ok(Some(Lock { session, name: name.to_owned(), fence, released: false }));
            }
            if Instant::now() >= end {
                // Out of the line; and if it was granted in this very moment, it is let go.
                self.inner.client.release_lock(name, self.inner.number, 0).await?;
                return Ok(None);
            }
        }
    }
}

impl Lock {
    /// Greater than that of any earlier grant: have smaller ones refused wherever you write.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Returns once the lock is lost, or may be: the session has ended, or the cluster cannot be reached.
    pub async fn lost(&self) {
        self.session.ended().await;
    }

    /// Lets go of it; whether it was still held.
    ///
    /// # Errors
    /// If the cluster cannot be reached; the lock is free at the end of the session's term then.
    pub async fn release(mut self) -> Result<bool, ClientError> {
        self.released = true;
        let Inner { client, number, .. } = &*self.session.inner;
        client.release_lock(&self.name, *number, self.fence).await
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        let (session, name, fence) = (self.session.clone(), std::mem::take(&mut self.name), self.fence);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let Inner { client, number, .. } = &*session.inner;
                client.release_lock(&name, *number, fence).await
            });
        }
    }
}

impl Client {
    pub(super) async fn locks<Q: Clone, T, F>(
        &self,
        request: Q,
        call: impl Fn(LocksClient<Connection>, Q) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let answered = self.with_members(|channel| call(LocksClient::new(channel), request.clone())).await;
        answered.map(Response::into_inner)
    }

    /// Opens a session and keeps it alive on the present tokio runtime.
    ///
    /// # Errors
    /// See [`with_members`](Self::with_members); likewise below.
    pub async fn open_session(&self, ttl: Duration) -> Result<Session, ClientError> {
        let request = OpenSessionRequest {
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            operation: Some(self.operation(META)),
        };
        let opened = Instant::now();
        let reply = self
            .locks(request, |mut client, request| async move { client.open_session(request).await })
            .await?;
        self.note_known(META);
        let ttl = Duration::from_millis(reply.ttl_ms);
        let (telling, alive) = watch::channel(true);
        let keeper = tokio::spawn(keep_alive(self.clone(), reply.session, ttl, opened, telling));
        let inner = Inner { client: self.clone(), number: reply.session, alive, keeper };
        Ok(Session { inner: Arc::new(inner) })
    }

    /// Ends a session.
    pub async fn close_session(&self, session: u64) -> Result<(), ClientError> {
        let request = CloseSessionRequest { session };
        self.locks(request, |mut client, request| async move { client.close_session(request).await })
            .await
            .map(drop)
    }

    /// Lets go of a lock under `fence`, or of whatever a session has of it with 0; whether there was something.
    pub async fn release_lock(&self, lock: &str, session: u64, fence: u64) -> Result<bool, ClientError> {
        let request = ReleaseRequest { lock: lock.to_owned(), session, fence };
        let reply =
            self.locks(request, |mut client, request| async move { client.release(request).await }).await?;
        Ok(reply.released)
    }

    /// Who has a lock, and how many wait for it.
    pub async fn describe_lock(&self, lock: &str) -> Result<LockDescription, ClientError> {
        let request = DescribeLockRequest { lock: lock.to_owned() };
        self.locks(request, |mut client, request| async move { client.describe_lock(request).await }).await
    }
}

/// Keeps a session alive. Its term is counted from when it was asked for, so this end never believes in it for longer than
/// the cluster does.
async fn keep_alive(
    client: Client,
    session: u64,
    ttl: Duration,
    opened: Instant,
    alive: watch::Sender<bool>,
) {
    let mut until = opened + ttl;
    loop {
        let asked = Instant::now();
        let request = KeepAliveRequest { sessions: vec![session] };
        let call =
            client.locks(request, |mut client, request| async move { client.keep_alive(request).await });
        match tokio::time::timeout_at(until, call).await {
            Ok(Ok(reply)) if reply.alive == [true] => until = asked + ttl,
            Ok(Ok(_)) => break,
            Ok(Err(_)) if Instant::now() < until => {}
            Ok(Err(_)) | Err(_) => break,
        }
        sleep(ttl / TIMES_PER_TERM).await;
    }
    alive.send_replace(false);
}

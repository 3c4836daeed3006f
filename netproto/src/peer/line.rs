//! A lane to a peer: a connection that is made when it is first needed, and made anew when it has broken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tonic::metadata::MetadataMap;

use super::Security;
use super::backoff::Backoff;
use super::bounds::{CONTROL_CALLS, SNAPSHOT_CALLS, STREAMS_PER_PEER};
use super::hello::{self, Hello, Member};
use super::link::{Link, SendError};

#[derive(Debug)]
pub(super) struct Line {
    to: Member,
    address: String,
    security: Security,
    runtime: Handle,
    born: Instant,
    /// What every request on it says of itself.
    pub(super) metadata: MetadataMap,
    /// Calls or streams under way.
    pub(super) room: Arc<Semaphore>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    backoff: Backoff,
    /// Why it failed last; said again while it is too early to try again.
    failure: SendError,
}

#[derive(Debug)]
enum State {
    Idle,
    /// Changes when the attempt has ended.
    Connecting(watch::Receiver<()>),
    Up(Link),
    Closed,
}

impl Line {
    pub(super) fn new(
        local: Member,
        to: Member,
        line: hello::Line,
        address: &str,
        security: &Security,
        runtime: &Handle,
    ) -> Self {
        let room = match line {
            hello::Line::Control => CONTROL_CALLS,
            hello::Line::Append => STREAMS_PER_PEER,
            hello::Line::Snapshot => SNAPSHOT_CALLS,
        };
        Self {
            to,
            address: address.to_owned(),
            security: security.clone(),
            runtime: runtime.clone(),
            born: Instant::now(),
            metadata: Hello::new(local, to.node, line).metadata(),
            room: Arc::new(Semaphore::new(room)),
            inner: Mutex::new(Inner {
                state: State::Idle,
                backoff: Backoff::default(),
                failure: SendError::Unsent("it was not tried yet".to_owned()),
            }),
        }
    }

    /// The connection, made if need be. Whoever gives up waiting does not end the attempt, which others may wait for.
    pub(super) async fn link(self: &Arc<Self>) -> Result<Link, SendError> {
        let mut attempted = false;
        loop {
            let mut attempt = {
                let mut inner = self.inner();
                let now = self.now();
                if let State::Up(link) = &inner.state
                    && link.is_closed()
                {
                    if !link.has_answered() {
                        // It was opened and served nothing: the same as not opened.
                        inner.failure = link.refusal().unwrap_or_else(|| closed_early(&self.address));
                        inner.backoff.failed(now);
                    }
                    inner.state = State::Idle;
                }
                if let State::Connecting(attempt) = &inner.state
                    && attempt.has_changed().is_err()
                {
                    // The runtime has dropped the attempt; one that ends by itself leaves another state.
                    inner.failure = SendError::Unsent("the runtime of the connections has ended".to_owned());
                    inner.state = State::Idle;
                    attempted = true;
                }
                match &inner.state {
                    State::Up(link) => return Ok(link.clone()),
                    State::Closed => return Err(SendError::Unsent("its address was changed".to_owned())),
                    State::Connecting(attempt) => attempt.clone(),
                    State::Idle if attempted || !inner.backoff.allows(now) => {
                        return Err(inner.failure.clone());
                    }
                    State::Idle => {
                        let (done, attempt) = watch::channel(());
                        inner.state = State::Connecting(attempt.clone());
                        self.runtime.spawn(Arc::clone(self).attempt(done));
                        attempt
                    }
                }
            };
            attempted = true;
            // An error means that the attempt has ended, too.
            let _ = attempt.changed().await;
        }
    }

    async fn attempt(self: Arc<Self>, done: watch::Sender<()>) {
        let result = Link::connect(&self.address, self.to, &self.security, &self.runtime).await;
        let mut inner = self.inner();
        match (&inner.state, result) {
            (State::Closed, Ok(link)) => link.close(),
            (State::Closed, Err(_)) => {}
            (_, Ok(link)) => inner.state = State::Up(link),
            (_, Err(failure)) => {
                inner.failure = failure;
                inner.backoff.failed(self.now());
                inner.state = State::Idle;
            }
        }
        drop(inner);
        drop(done);
    }

    /// A response has come: the next failure is the first again.
    pub(super) fn answered(&self) {
        self.inner().backoff.succeeded();
    }

    /// Cuts the connection, for good.
    pub(super) fn close(&self) {
        let mut inner = self.inner();
        if let State::Up(link) = std::mem::replace(&mut inner.state, State::Closed) {
            link.close();
        }
    }

    fn now(&self) -> Duration {
        self.born.elapsed()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed_early(address: &str) -> SendError {
    SendError::Unsent(format!("{address} closes connections without an answer"))
}

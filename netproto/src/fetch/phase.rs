//! Where an exchange is between asking for a name and waiting for the answer: the shared note that lets one deadline and
//! one timing be kept per phase, although the HTTP library opens connections inside of itself. Not the deadlines.
//!
//! How it is known: the request's future is polled with a task-local [`Progress`]. A layer around the library's connector
//! ([`PhaseLayer`]) picks it up when a connection is begun and sets it again around each poll of the connecting, which
//! the library may go on with in a task of its own. The resolver marks the beginning and the end of DNS; rustls asks
//! its session store for a hint exactly when it builds a ClientHello, which marks the beginning of TLS.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::timings::Timings;
use super::tls::TlsInfo;

tokio::task_local! {
    static CURRENT: Arc<Progress>;
}

/// What an exchange waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Addresses of a name.
    Dns,
    /// A TCP connection.
    Connect,
    /// A TLS handshake.
    Tls,
    /// The response head (or a connection that another request opens).
    Waiting,
}

/// The note of one try of one exchange.
#[derive(Debug)]
pub(super) struct Progress(Mutex<State>);

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    dns: Option<Duration>,
    connect: Option<Duration>,
    tls: Option<Duration>,
    /// The connection that carries the request was opened for it.
    opened: bool,
    /// The request was given another connection; what becomes of the one begun for it is not its business any more.
    detached: bool,
    tls_info: Option<TlsInfo>,
}

impl State {
    fn enter(&mut self, phase: Phase) {
        if self.detached {
            return;
        }
        let now = Instant::now();
        let slot = match self.phase {
            Phase::Dns => Some(&mut self.dns),
            Phase::Connect => Some(&mut self.connect),
            Phase::Tls => Some(&mut self.tls),
            Phase::Waiting => None,
        };
        if let Some(slot) = slot {
            *slot.get_or_insert_default() += now - self.since;
        }
        self.phase = phase;
        self.since = now;
    }
}

impl Progress {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            phase: Phase::Waiting,
            since: now,
            dns: None,
            connect: None,
            tls: None,
            opened: false,
            detached: false,
            tls_info: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls something on behalf of this exchange.
    pub(super) fn poll<R>(self: &Arc<Self>, poll: impl FnOnce() -> R) -> R {
        CURRENT.sync_scope(Arc::clone(self), poll)
    }

    /// The phase and when it began.
    pub(super) fn phase(&self) -> (Phase, Instant) {
        let state = self.state();
        (state.phase, state.since)
    }

    /// Whether this exchange opened its connection.
    pub(super) fn opened(&self) -> bool {
        self.state().opened
    }

    /// The timings up to now, of an exchange that began at `started`.
    pub(super) fn timings(&self, started: Instant) -> Timings {
        let mut state = self.state();
        let phase = state.phase;
        if phase != Phase::Waiting {
            // Ends the phase that it failed in.
            state.enter(phase);
        }
        Timings {
            dns: state.dns,
            connect: state.connect,
            tls: state.tls,
            first_byte: None,
            total: started.elapsed(),
            reused: phase == Phase::Waiting && !state.opened,
        }
    }

    /// What is known of the TLS session if this exchange opened it.
    pub(super) fn take_tls(&self) -> Option<TlsInfo> {
        let mut state = self.state();
        if state.opened { state.tls_info.take() } else { None }
    }
}

/// Marks on the note of the exchange that is being polled, if any.
pub(super) fn enter(phase: Phase) {
    let _ = CURRENT.try_with(|progress| progress.state().enter(phase));
}

/// Marks the beginning of a TLS handshake.
pub(super) fn enter_tls() {
    enter(Phase::Tls);
    note_tls(|_| {});
}

/// Writes down what becomes known of the TLS session.
pub(super) fn note_tls(note: impl FnOnce(&mut TlsInfo)) {
    let _ = CURRENT.try_with(|progress| note(progress.state().tls_info.get_or_insert_default()));
}

/// Wraps the library's connector.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseLayer;

impl<S> tower::Layer<S> for PhaseLayer {
    type Service = PhaseService<S>;

    fn layer(&self, inner: S) -> PhaseService<S> {
        PhaseService { inner }
    }
}

/// The wrapped connector.
#[derive(Clone, Debug)]
pub(super) struct PhaseService<S> {
    inner: S,
}

impl<S, R> tower::Service<R> for PhaseService<S>
where
    S: tower::Service<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Connecting<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, target: R) -> Connecting<S::Future> {
        enter(Phase::Connect);
        let progress = CURRENT.try_with(Arc::clone).ok();
        Connecting { inner: Box::pin(self.inner.call(target)), progress }
    }
}

/// A connection being opened.
pub(super) struct Connecting<F> {
    inner: Pin<Box<F>>,
    progress: Option<Arc<Progress>>,
}

impl<F, C, E> Future for Connecting<F>
where
    F: Future<Output = Result<C, E>>,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(progress) = self.progress.clone() else { return self.inner.as_mut().poll(cx) };
        let foreground = CURRENT.try_with(|current| Arc::ptr_eq(current, &progress)).unwrap_or(false);
        if !foreground {
            let mut state = progress.state();
            state.enter(Phase::Waiting);
            state.detached = true;
        }
        let polled = progress.poll(|| self.inner.as_mut().poll(cx));
        if let Poll::Ready(Ok(_)) = &polled {
            let mut state = progress.state();
            if !state.detached {
                state.enter(Phase::Waiting);
                state.opened = true;
            }
        }
        polled
    }
}

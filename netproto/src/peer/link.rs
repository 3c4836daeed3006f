//! One connection to a peer: TCP, TLS, HTTP/2.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

use super::bounds::{CONNECTION_WINDOW, HTTP2_FRAME, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, STREAM_WINDOW};
use super::hello::Member;
use super::{Security, security, verdict};

/// Time for name look-up, TCP and TLS together.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// Why a request brought no response at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SendError {
    /// It has certainly not been handled.
    #[error("{0}")]
    Unsent(String),
    /// The other end is not who it was meant to be, or does not take this node for who it is.
    #[error("{0}")]
    Refused(String),
    /// It may have been handled.
    #[error("{0}")]
    Broken(String),
}

/// An open connection. Clones share it; it ends when [`Link::close`] is called or all clones and streams are gone.
#[derive(Clone)]
pub(super) struct Link {
    sending: http2::SendRequest<Body>,
    refusal: Refusal,
    answered: Arc<AtomicBool>,
    cut: CancellationToken,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Link {
    /// Connects to `address`, where `to` should be.
    pub(super) async fn connect(
        address: &str,
        to: Member,
        security: &Security,
        runtime: &Handle,
    ) -> Result<Self, SendError> {
        let connecting = async {
            let tcp = TcpStream::connect(address)
                .await
                .map_err(|error| SendError::Unsent(format!("connecting to {address}: {error}")))?;
            let reached = tcp.peer_addr().map_err(|error| SendError::Unsent(error.to_string()))?;
            if !security.suffices_for(reached.ip()) {
                return Err(SendError::Unsent(format!("{reached} is not on loopback and there is no TLS")));
            }
            // A connection that cannot do without delays still works.
            let _ = tcp.set_nodelay(true);
            let refusal = Refusal::default();
            match security {
                Security::Insecure => Self::handshake(tcp, refusal, runtime).await,
                Security::Mutual(tls) => {
                    let name = security::server_name(to).map_err(SendError::Unsent)?;
                    let connector = TlsConnector::from(Arc::clone(&tls.client));
                    let stream =
                        connector.connect(name, tcp).await.map_err(|error| tls_error(address, &error))?;
                    let stream = Listening { inner: stream, refusal: refusal.clone() };
                    Self::handshake(stream, refusal, runtime).await
                }
            }
        };
        let result = tokio::time::timeout(CONNECT_DEADLINE, connecting).await;
        let late = || {
            SendError::Unsent(format!("connecting to {address}: no connection within {CONNECT_DEADLINE:?}"))
        };
        result.unwrap_or_else(|_| Err(late()))
    }

    async fn handshake<S>(stream: S, refusal: Refusal, runtime: &Handle) -> Result<Self, SendError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let spawner = Spawner { runtime: runtime.clone(), cut: CancellationToken::new() };
        let (sending, connection) = http2::Builder::new(spawner.clone())
            .timer(TokioTimer::new())
            .max_frame_size(HTTP2_FRAME)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| SendError::Unsent(verdict::chain(&error)))?;
        // How it ends is told to those whose requests it breaks.
        hyper::rt::Executor::execute(&spawner, connection);
        Ok(Self { sending, refusal, answered: Arc::default(), cut: spawner.cut })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sending.is_closed() || self.cut.is_cancelled()
    }

    /// Whether any response has come.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn refusal(&self) -> Option<SendError> {
        self.refusal.0.get().cloned().map(SendError::Refused)
    }

    /// Cuts it, with all that is under way.
    pub(super) fn close(&self) {
        self.cut.cancel();
    }
}

impl tower::Service<hyper::Request<Body>> for Link {
    type Response = hyper::Response<Incoming>;
    type Error = SendError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, SendError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        let sent = self.sending.try_send_request(request);
        let (refusal, answered) = (self.refusal.clone(), Arc::clone(&self.answered));
        Box::pin(async move {
            match sent.await {
                Ok(response) => {
                    answered.store(true, Ordering::Relaxed);
                    Ok(response)
                }
                Err(failed) => {
                    let unsent = failed.message().is_some();
                    let error = failed.into_error();
                    let text = verdict::chain(&error);
                    Err(match refusal.0.get() {
                        Some(reason) => SendError::Refused(reason.clone()),
                        None if unsent || never_looked_at(&error) => SendError::Unsent(text),
                        None => SendError::Broken(text),
                    })
                }
            }
        })
    }
}

/// Runs the parts of one connection, of which hyper has several, and ends them all at once.
#[derive(Clone)]
struct Spawner {
    runtime: Handle,
    cut: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, part: F) {
        let cut = self.cut.clone();
        self.runtime.spawn(async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => {}
                _ = part => {}
            }
        });
    }
}

/// Whether the other end says that it has not begun with the request.
fn never_looked_at(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_remote() && cause.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Why the other end ended TLS, once it has.
#[derive(Clone, Debug, Default)]
struct Refusal(Arc<OnceLock<String>>);

/// A TLS stream that notes it when the other end says that it does not take this node's certificate. In TLS 1.3 that comes
/// after the handshake, and HTTP/2 above keeps no more of it than a text.
struct Listening<S> {
    inner: S,
    refusal: Refusal,
}

impl<S: AsyncRead + Unpin> AsyncRead for Listening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Poll::Ready(Err(error)) = &read
            && let Some(rustls::Error::AlertReceived(alert)) = tls_cause(error)
            && is_about_identity(*alert)
        {
            // The first one counts.
            let _ = self.refusal.0.set(format!("it does not accept this node's certificate ({alert:?})"));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listening<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

fn tls_error(address: &str, error: &io::Error) -> SendError {
    match tls_cause(error) {
        Some(rustls::Error::InvalidCertificate(cause)) => {
            SendError::Refused(format!("the certificate of {address} is not the one of this node: {cause}"))
        }
        Some(rustls::Error::AlertReceived(alert)) if is_about_identity(*alert) => {
            SendError::Refused(format!("{address} does not accept this node's certificate ({alert:?})"))
        }
        Some(rustls::Error::InvalidMessage(_)) => SendError::Refused(format!(
            "{address} does not speak TLS; nodes with TLS and nodes without do not talk to each other"
        )),
        _ => SendError::Unsent(format!("TLS with {address}: {error}")),
    }
}

pub(crate) fn tls_cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>())
}

pub(crate) fn is_about_identity(alert: rustls::AlertDescription) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::CertificateRequired
            | Alert::DecryptError
    )
}

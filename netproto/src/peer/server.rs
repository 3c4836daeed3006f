//! The accept loop: TLS, one [`PeerConnection`] per connection, HTTP/2, and an orderly end.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tower::ServiceExt;

use super::bounds::{CONNECTION_WINDOW, HTTP2_FRAME, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, STREAM_WINDOW};
use super::{PeerConnection, Security};

/// Connections at once, of whomever; further ones wait in the listener's queue.
const MAX_CONNECTIONS: usize = 1024;

/// Requests and streams at once on one connection.
const MAX_REQUESTS: u32 = 256;

/// Time for the TLS handshake, and then for the first request: who has nothing to ask keeps no connection.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Time for requests under way to end after the shutdown began; then connections are cut.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

/// Pause after a failed accept, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// After a failed handshake: time for the client to read why, and bytes that are read meanwhile. Closing with unread bytes
/// would reset the connection and take the reason with it.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 64 << 10;

/// The first byte of a TLS connection: a record of the handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// What a client without TLS is told.
const WITHOUT_TLS: &str =
    "this node speaks TLS only: connect with TLS and a token of its cluster, not insecurely";

/// The larger header lists that are taken, bytes.
const MAX_HEADERS: u32 = 16 << 10;

/// Serves `routes` to who connects to `listener`, until `shutdown`; then requests under way have three seconds to end.
/// Dropping the future cuts all connections at once.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if `security` is [`Security::Insecure`] and `listener` can be reached from elsewhere.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    security: Security,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    if !security.suffices_for(address.ip()) {
        let text = format!(
            "without TLS a node listens on loopback only, and {address} is not; give it certificates or a loopback address"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let routes = routes.prepare();
    let stopping = CancellationToken::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            // Those that ended are taken out of the set.
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &room) => accepted,
        };
        let Some((tcp, permit)) = accepted else { continue };
        let (routes, security, stopping) = (routes.clone(), security.clone(), stopping.clone());
        connections.spawn(async move {
            let _permit = permit;
            converse(tcp, routes, security, stopping).await;
        });
    }
    drop(listener);
    stopping.cancel();
    let ended = async { while connections.join_next().await.is_some() {} };
    // What has not ended by then is cut when the set is dropped.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, ended).await;
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((tcp, _)) => Some((tcp, permit)),
        Err(_) => {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn converse(tcp: TcpStream, routes: Routes, security: Security, stopping: CancellationToken) {
    // A connection that cannot do without delays still works.
    let _ = tcp.set_nodelay(true);
    let Security::Mutual(tls) = security else {
        return speak(tcp, routes, PeerConnection::new(None), stopping).await;
    };
    match tokio::time::timeout(HANDSHAKE_DEADLINE, speaks_tls(&tcp)).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => {
            let _ = tokio::time::timeout(HANDSHAKE_DEADLINE, decline(tcp, stopping)).await;
            return;
        }
        Ok(Err(_)) | Err(_) => return,
    }
    let handshake = TlsAcceptor::from(tls.server).accept(tcp).into_fallible();
    match tokio::time::timeout(HANDSHAKE_DEADLINE, handshake).await {
        Ok(Ok(stream)) => {
            let certificates = stream.get_ref().1.peer_certificates();
            let shown = certificates.and_then(|chain| chain.first()).map(|first| first.clone().into_owned());
            speak(stream, routes, PeerConnection::new(shown), stopping).await;
        }
        Ok(Err((_, tcp))) => {
            // Whether the client hears of it or not, the connection ends.
            let _ = tokio::time::timeout(LINGER, linger(tcp)).await;
        }
        Err(_) => {}
    }
}

/// Whether a client begins with a TLS handshake.
async fn speaks_tls(tcp: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match tcp.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0] == TLS_HANDSHAKE),
    }
}

/// Tells a client that came without TLS to come with it, in words that every gRPC client shows to its user.
async fn decline(tcp: TcpStream, stopping: CancellationToken) {
    let answer = service_fn(|_: hyper::Request<Incoming>| async {
        let refusal = tonic::Status::unauthenticated(WITHOUT_TLS);
        Ok::<_, std::convert::Infallible>(refusal.into_http::<tonic::body::Body>())
    });
    let mut serving = std::pin::pin!(http2().serve_connection(TokioIo::new(tcp), answer));
    tokio::select! {
        _ = serving.as_mut() => {}
        () = stopping.cancelled() => {}
    }
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_REQUESTS)
        .max_header_list_size(MAX_HEADERS)
        .max_frame_size(HTTP2_FRAME)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    http2
}

async fn linger(mut tcp: TcpStream) -> io::Result<()> {
    tcp.shutdown().await?;
    tokio::io::copy(&mut tcp.take(LINGER_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

async fn speak<S>(stream: S, routes: Routes, connection: PeerConnection, stopping: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = Arc::new(AtomicBool::new(false));
    let asks = Arc::clone(&asked);
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        asks.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(connection.clone());
        routes.clone().oneshot(request)
    });
    let mut serving = std::pin::pin!(http2().serve_connection(TokioIo::new(stream), answer));
    let first = tokio::time::timeout(HANDSHAKE_DEADLINE, async {
        tokio::select! {
            _ = serving.as_mut() => true,
            () = stopping.cancelled() => false,
        }
    })
    .await;
    match first {
        Ok(true) => return,
        Ok(false) => {}
        Err(_) if !asked.load(Ordering::Relaxed) => return,
        Err(_) => {
            tokio::select! {
                _ = serving.as_mut() => return,
                () = stopping.cancelled() => {}
            }
        }
    }
    serving.as_mut().graceful_shutdown();
    // How it ends is the business of those who ask on it.
    let _ = serving.await;
}

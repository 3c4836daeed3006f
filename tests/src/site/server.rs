//! The listeners of a site: accept, read requests, ask the host, play the answer. HTTP/1.1 is spoken by hand, because
//! a library would not send what the zoo has to send; HTTP/2 is spoken by hyper.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::log::Ticket;
use super::reply::{Answer, Reply, Request, Script, Step};
use super::{HANG, Shared};

/// Largest request head that is read; a client that sends more is hung up on.
const HEAD_LIMIT: usize = 64 * 1024;
/// Longest time for which an idle connection is kept.
const IDLE: Duration = Duration::from_secs(60);
/// Longest time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Bytes handed to a socket at once when a body repeats a piece.
const WRITE_CHUNK: usize = 64 * 1024;

/// A connection that can be broken on purpose.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {
    /// Makes the coming close a reset.
    fn arm_reset(&self);
}

impl Connection for TcpStream {
    fn arm_reset(&self) {
        // Fails only on a socket that is gone already.
        let _ = self.set_zero_linger();
    }
}

impl Connection for TlsStream<TcpStream> {
    fn arm_reset(&self) {
        self.get_ref().0.arm_reset();
    }
}

/// Serves HTTP/1.1 without TLS until the runtime ends.
pub(super) async fn plain(listener: std::net::TcpListener, port: u16, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let id = shared.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(http1(stream, id, port, false, Arc::clone(&shared)));
    }
}

/// Serves TLS, HTTP/2 or HTTP/1.1 as the client chooses, until the runtime ends.
pub(super) async fn tls(
    listener: std::net::TcpListener,
    port: u16,
    config: Arc<ServerConfig>,
    shared: Arc<Shared>,
) {
    let listener = TcpListener::from_std(listener).unwrap();
    let acceptor = TlsAcceptor::from(config);
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
            let id = shared.connections.fetch_add(1, Ordering::Relaxed);
            if stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice()) {
                http2(stream, id, port, shared).await;
            } else {
                http1(stream, id, port, true, shared).await;
            }
        });
    }
}

async fn http1(mut stream: impl Connection, connection: u64, port: u16, secure: bool, shared: Arc<Shared>) {
    let mut buffer = BytesMut::with_capacity(4096);
    loop {
        let Some(head) = read_head(&mut stream, &mut buffer).await else { return };
        let Some(mut request) = parse_head(&head) else {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
            return;
        };
        (request.connection, request.port, request.secure) = (connection, port, secure);
        let ticket = shared.log.arrived(&mut request);
        let answer = answer(&shared, &request);
        let goes_on = match answer {
            Answer::Reply(reply) => send_reply(&mut stream, &request, reply, ticket, &shared).await,
            Answer::Script(script) => play(&mut stream, script, ticket, &shared).await,
        };
        shared.log.answered(ticket);
        if !goes_on || request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

fn answer(shared: &Shared, request: &Request) -> Answer {
    match shared.host(&request.host) {
        Some(host) => host.answer(request),
        None => Reply::not_found().into(),
    }
}

/// Reads up to the empty line. `None`: the client hung up, idled too long or sent too much.
async fn read_head(stream: &mut impl Connection, buffer: &mut BytesMut) -> Option<Bytes> {
    let mut searched = 0;
    loop {
        if let Some(at) = buffer[searched..].windows(4).position(|window| window == b"\r\n\r\n") {
            return Some(buffer.split_to(searched + at + 4).freeze());
        }
        searched = buffer.len().saturating_sub(3);
        if buffer.len() > HEAD_LIMIT {
            return None;
        }
        match timeout(IDLE, stream.read_buf(buffer)).await {
            Ok(Ok(n)) if n > 0 => {}
            _ => return None,
        }
    }
}

fn parse_head(head: &[u8]) -> Option<Request> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?, first.next()?);
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let host = headers.iter().find(|(name, _)| name == "host").map_or("", |(_, value)| value.as_str());
    // A proxy is sent the whole URL.
    let (host, path) = match target.strip_prefix("http://") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => (host, target),
    };
    Some(Request {
        at: Instant::now(),
        host: without_port(host),
        port: 0,
        secure: false,
        method: method.to_owned(),
        path: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
        protocol: "HTTP/1.1",
        headers,
        connection: 0,
        visit: 0,
    })
}

fn without_port(authority: &str) -> String {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
    .to_ascii_lowercase()
}

async fn send_reply(
    stream: &mut impl Connection,
    request: &Request,
    reply: Reply,
    ticket: Ticket,
    shared: &Shared,
) -> bool {
    if !pause(stream, reply.delay).await {
        return false;
    }
    let mut first = reply.head();
    if request.method == "HEAD" || reply.length() == 0 {
        shared.log.answered(ticket);
        return stream.write_all(&first).await.is_ok();
    }
    // Head and a small body leave in one segment.
    if reply.length() <= WRITE_CHUNK as u64 {
        for (piece, times) in &reply.body {
            for _ in 0..*times {
                first.extend_from_slice(piece);
            }
        }
        shared.log.answered(ticket);
        return stream.write_all(&first).await.is_ok();
    }
    if stream.write_all(&first).await.is_err() {
        return false;
    }
    let last = reply.body.len() - 1;
    for (n, (piece, times)) in reply.body.into_iter().enumerate() {
        let ended = (n == last).then_some(ticket);
        if !write_repeated(stream, &piece, times, ended.map(|ticket| (shared, ticket))).await {
            return false;
        }
    }
    true
}

/// Writes a piece many times, and notes the end of the answer before its last bytes.
async fn write_repeated(
    stream: &mut impl Connection,
    piece: &Bytes,
    times: u64,
    ended: Option<(&Shared, Ticket)>,
) -> bool {
    let per_write = (WRITE_CHUNK / piece.len().max(1)).max(1) as u64;
    let many = piece.repeat(usize::try_from(per_write.min(times)).unwrap_or(1));
    let mut left = times;
    while left > 0 {
        let now = left.min(per_write);
        left -= now;
        if left == 0
            && let Some((shared, ticket)) = ended
        {
            shared.log.answered(ticket);
        }
        let bytes = usize::try_from(now).unwrap_or(1) * piece.len();
        if stream.write_all(&many[..bytes]).await.is_err() {
            return false;
        }
    }
    true
}

async fn play(stream: &mut impl Connection, script: Script, ticket: Ticket, shared: &Shared) -> bool {
    let last = script.steps.len().saturating_sub(1);
    for (n, step) in script.steps.into_iter().enumerate() {
        let ended = (n == last).then_some((shared, ticket));
        let goes_on = match step {
            Step::Send(piece, times) => write_repeated(stream, &piece, times, ended).await,
            Step::Drip(bytes, every) => {
                let mut goes_on = true;
                for byte in bytes {
                    goes_on =
                        goes_on && stream.write_all(&[byte]).await.is_ok() && pause(stream, every).await;
                    if !goes_on {
                        break;
                    }
                }
                goes_on
            }
            Step::Wait(time) => pause(stream, time).await,
            Step::Reset => {
                let _ = stream.flush().await;
                stream.arm_reset();
                false
            }
        };
        if !goes_on {
            return false;
        }
    }
    script.keep
}

/// Waits; false as soon as the client has hung up.
async fn pause(stream: &mut impl Connection, time: Duration) -> bool {
    if time.is_zero() {
        return true;
    }
    let mut byte = [0];
    tokio::select! {
        () = sleep(time.min(HANG)) => true,
        // A client that pipelines while it waits is not one that these sites serve.
        _ = stream.read(&mut byte) => false,
    }
}

async fn http2(stream: TlsStream<TcpStream>, connection: u64, port: u16, shared: Arc<Shared>) {
    let service = service_fn(move |asked: http::Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            let host = asked.uri().authority().map(|authority| authority.as_str().to_owned());
            let headers: Vec<(String, String)> = asked
                .headers()
                .iter()
                .map(|(name, value)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                })
                .collect();
            let mut request = Request {
                at: Instant::now(),
                host: without_port(host.as_deref().unwrap_or_default()),
                port,
                secure: true,
                method: asked.method().to_string(),
                path: asked.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned(),
                protocol: "HTTP/2",
                headers,
                connection,
                visit: 0,
            };
            let ticket = shared.log.arrived(&mut request);
            let response = match answer(&shared, &request) {
                Answer::Reply(reply) => {
                    sleep(reply.delay.min(HANG)).await;
                    response(reply, ticket, &shared)
                }
                Answer::Script(script) => {
                    for step in script.steps {
                        if let Step::Wait(time) = step {
                            sleep(time).await;
                        }
                    }
                    let body =
                        Pieces { left: VecDeque::new(), broken: true, ticket, shared: Arc::clone(&shared) };
                    http::Response::new(body)
                }
            };
            Ok::<_, Infallible>(response)
        }
    });
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn response(reply: Reply, ticket: Ticket, shared: &Arc<Shared>) -> http::Response<Pieces> {
    let length = reply.length();
    let mut builder = http::Response::builder().status(reply.status).header("content-length", length);
    for (name, value) in &reply.headers {
        if let Ok(value) = http::HeaderValue::from_bytes(value) {
            builder = builder.header(name.to_ascii_lowercase(), value);
        }
    }
    if length == 0 {
        shared.log.answered(ticket);
    }
    let left = reply.body.into_iter().filter(|(piece, times)| !piece.is_empty() && *times > 0).collect();
    builder.body(Pieces { left, broken: false, ticket, shared: Arc::clone(shared) }).unwrap()
}

/// A body over HTTP/2.
struct Pieces {
    left: VecDeque<(Bytes, u64)>,
    /// Ends in an error, which resets the stream.
    broken: bool,
    ticket: Ticket,
    shared: Arc<Shared>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.broken {
            self.shared.log.answered(self.ticket);
            return Poll::Ready(Some(Err(std::io::Error::other("a script over HTTP/2"))));
        }
        let Some((piece, times)) = self.left.front_mut() else { return Poll::Ready(None) };
        let piece = piece.clone();
        *times -= 1;
        if *times == 0 {
            self.left.pop_front();
        }
        if self.left.is_empty() {
            self.shared.log.answered(self.ticket);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        !self.broken && self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        if self.broken {
            return SizeHint::default();
        }
        SizeHint::with_exact(self.left.iter().map(|(piece, times)| piece.remaining() as u64 * times).sum())
    }
}

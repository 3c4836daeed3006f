//! Servers of many kinds on 127.0.0.1, and a fetcher that may reach them.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dolomedes_netproto::fetch::{
    Deadlines, FetchFailure, Fetched, Fetcher, FetcherConfig, Request, StaticNames,
};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use url::Url;

/// A configuration that lets the loopback pass and sends every name below `.test` there.
pub fn config() -> FetcherConfig {
    FetcherConfig {
        allow_nets: vec!["127.0.0.0/8".parse().unwrap()],
        static_names: StaticNames::parse(["*.test=127.0.0.1"]).unwrap(),
        ..FetcherConfig::default()
    }
}

pub fn fetcher() -> Fetcher {
    Fetcher::new(config()).unwrap()
}

pub fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

pub fn get(text: &str) -> Request {
    Request::get(url(text))
}

/// Deadlines so long that only the one under test ends anything.
pub fn patient() -> Deadlines {
    let long = Duration::from_secs(60);
    Deadlines {
        dns: long,
        connect: long,
        tls: long,
        first_byte: long,
        idle: long,
        total: long,
        min_rate: None,
    }
}

pub fn kind(result: Result<Fetched, FetchFailure>) -> &'static str {
    match result {
        Ok(fetched) => panic!("status {} and {:?}", fetched.status, fetched.truncated),
        Err(failure) => failure.kind.as_str(),
    }
}

pub struct Server {
    pub addr: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub fn named(&self, scheme: &str, host: &str, path: &str) -> String {
        format!("{scheme}://{host}:{}{path}", self.addr.port())
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Runs `serve` on each connection.
pub async fn raw<F, S>(serve: S) -> Server
where
    S: Fn(TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream));
        }
    });
    Server { addr, connections }
}

/// Reads one request head; `None` at the end of the connection.
pub async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = stream.read_u8().await.ok()?;
        head.push(byte);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Answers each connection's first request with these bytes and closes.
pub async fn canned(response: impl Into<Vec<u8>>) -> Server {
    let response: Arc<Vec<u8>> = Arc::new(response.into());
    raw(move |mut stream| {
        let response = Arc::clone(&response);
        async move {
            if read_head(&mut stream).await.is_some() {
                let _ = stream.write_all(&response).await;
                let _ = stream.shutdown().await;
                // Until the client is through with it, so that unread bytes do not turn into a reset.
                let _ = stream.read_u8().await;
            }
        }
    })
    .await
}

/// A response with these headers (each line ended by CRLF) and a correct length.
pub fn response(headers: &str, body: &[u8]) -> Vec<u8> {
    let mut response =
        format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    response.extend_from_slice(body);
    response
}

/// A certificate authority and a server that it vouches for.
pub struct Authority {
    pub pem: Vec<u8>,
    config: rustls::ServerConfig,
}

impl Authority {
    /// Certificates for a.test and 127.0.0.1.
    pub fn new(alpn: &[&str]) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem().into_bytes();
        let issuer = rcgen::Issuer::new(params, key);
        let key = rcgen::KeyPair::generate().unwrap();
        let params =
            rcgen::CertificateParams::new(vec!["a.test".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self { pem, config }
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::new(self.config.clone()))
    }
}

type Answer = http::Response<Full<Bytes>>;

/// A well-behaved server (HTTP/1.1 and HTTP/2), over TLS if there is an authority.
pub async fn web<A>(authority: Option<&Authority>, answer: A) -> Server
where
    A: Fn(http::Request<hyper::body::Incoming>) -> Answer + Send + Sync + 'static,
{
    let acceptor = authority.map(Authority::acceptor);
    let answer = Arc::new(answer);
    raw(move |stream| {
        let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
        async move {
            let service = hyper::service::service_fn(move |request| {
                let response = answer(request);
                async move { Ok::<_, Infallible>(response) }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = match acceptor {
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => builder.serve_connection(TokioIo::new(stream), service).await,
                    Err(_) => return,
                },
                None => builder.serve_connection(TokioIo::new(stream), service).await,
            };
        }
    })
    .await
}

pub fn page(body: impl Into<Bytes>) -> Answer {
    http::Response::new(Full::new(body.into()))
}

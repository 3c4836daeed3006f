//! Local web sites: many virtual hosts by name behind one plain and one TLS port on loopback, with a request log.
//!
//! A [`Site`] speaks HTTP/1.1 with its own few lines, so that it can misbehave to the byte ([`Script`]), and HTTP/2
//! through hyper. Hosts are reached by a resolver that sends `*.test` to 127.0.0.1; URLs carry the port.

mod graph;
mod log;
mod reply;
mod server;
mod tls;
pub mod zoo;

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};

use tokio::runtime::{Builder, Runtime};

pub use graph::{Random, Scope, Web, WebPage, WebShape};
pub use log::{RequestLog, Seen};
pub use reply::{Answer, HANG, Reply, Request, Script, Step};

/// A virtual host: answers requests.
pub trait Host: Send + Sync {
    /// The answer to one request.
    fn answer(&self, request: &Request) -> Answer;
}

impl<F, A> Host for F
where
    F: Fn(&Request) -> A + Send + Sync,
    A: Into<Answer>,
{
    fn answer(&self, request: &Request) -> Answer {
        self(request).into()
    }
}

/// What the listeners share.
pub(crate) struct Shared {
    /// By exact name.
    hosts: RwLock<HashMap<String, Arc<dyn Host>>>,
    /// By the end of the name, when no exact one is there.
    suffixes: RwLock<Vec<(String, Arc<dyn Host>)>>,
    pub(crate) log: RequestLog,
    pub(crate) connections: AtomicU64,
}

impl Shared {
    pub(crate) fn host(&self, name: &str) -> Option<Arc<dyn Host>> {
        if let Some(host) = self.hosts.read().unwrap().get(name) {
            return Some(Arc::clone(host));
        }
        let suffixes = self.suffixes.read().unwrap();
        suffixes.iter().find(|(suffix, _)| name.ends_with(suffix.as_str())).map(|(_, host)| Arc::clone(host))
    }
}

/// A running site. It ends when it is dropped.
pub struct Site {
    shared: Arc<Shared>,
    authority: Arc<tls::Authority>,
    port: u16,
    tls_port: u16,
    runtime: Option<Runtime>,
}

impl Site {
    /// Starts a site without hosts, on two free ports.
    ///
    /// # Panics
    /// If loopback cannot be listened on.
    pub fn start() -> Self {
        let shared = Arc::new(Shared {
            hosts: RwLock::default(),
            suffixes: RwLock::default(),
            log: RequestLog::default(),
            connections: AtomicU64::new(0),
        });
        let authority = Arc::new(tls::Authority::new());
        // One thread: what is measured beside it should have the other core.
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("site").enable_all().build().unwrap();
        let (plain, port) = listen();
        let (secure, tls_port) = listen();
        runtime.spawn(server::plain(plain, port, Arc::clone(&shared)));
        runtime.spawn(server::tls(secure, tls_port, authority.config(), Arc::clone(&shared)));
        Self { shared, authority, port, tls_port, runtime: Some(runtime) }
    }

    /// Serves a host by name; a second one of the same name replaces the first.
    pub fn host(&self, name: &str, host: impl Host + 'static) -> &Self {
        self.shared.hosts.write().unwrap().insert(name.to_ascii_lowercase(), Arc::new(host));
        self
    }

    /// Serves all hosts whose name ends so (`.farm.test`) and that have no handler of their own.
    pub fn hosts_under(&self, suffix: &str, host: impl Host + 'static) -> &Self {
        self.shared.suffixes.write().unwrap().push((suffix.to_ascii_lowercase(), Arc::new(host)));
        self
    }

    /// Serves every host of a generated web.
    pub fn web(&self, web: &Arc<Web>) -> &Self {
        for name in web.hosts() {
            let pages = Arc::clone(web);
            self.host(name, move |request: &Request| pages.serve(request));
        }
        self
    }

    /// Port for HTTP/1.1 without TLS.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Port for TLS, HTTP/2 or HTTP/1.1.
    pub fn tls_port(&self) -> u16 {
        self.tls_port
    }

    /// `http://HOST:PORT` with this path.
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    /// `https://HOST:PORT` with this path.
    pub fn secure_url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.tls_port)
    }

    /// Writes the certificate that a client has to trust, as PEM.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write_ca(&self, file: &Path) {
        std::fs::write(file, self.ca()).unwrap();
    }

    /// The certificate that a client has to trust, as PEM.
    pub fn ca(&self) -> &str {
        self.authority.pem()
    }

    /// What arrived.
    pub fn log(&self) -> &RequestLog {
        &self.shared.log
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

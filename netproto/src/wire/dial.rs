//! Connections to the API: TCP, and TLS if there is to be any. Who is at the other end is decided by its certificate, not by
//! its address.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::peer::identity::API_NAME;
use crate::peer::link::{is_about_identity, tls_cause};
use crate::peer::{Member, Security, security};

/// A connection on which nothing was heard is asked for a sign of life this often, and given up after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum DialError {
    /// It may come about later.
    #[error("{0}")]
    Down(String),
    /// The other end is not what it was meant to be.
    #[error("{0}")]
    Distrusted(String),
}

/// What a call has failed for, if that is because the other end was not trusted.
pub(super) fn distrust(status: &Status) -> Option<String> {
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(DialError::Distrusted(reason)) = error.downcast_ref::<DialError>() {
            return Some(reason.clone());
        }
        cause = error.source();
    }
    None
}

/// A connection, made when it is first needed and anew when it has broken, to `address` (`HOST:PORT`); `None` if that makes
/// no sense.
pub(super) fn channel(address: &str, tls: Option<Arc<ClientConfig>>, patience: Duration) -> Option<Channel> {
    let name = ServerName::try_from(API_NAME).ok()?;
    dial(address, tls.map(|tls| (tls, name)), patience)
}

/// A connection of a node to another one's API, as the node that it is; `None` if the address makes no sense.
pub fn node_channel(address: &str, to: Member, security: &Security, patience: Duration) -> Option<Channel> {
    let tls = match security {
        Security::Insecure => None,
        Security::Mutual(tls) => Some((Arc::clone(&tls.client), security::server_name(to).ok()?)),
    };
    dial(address, tls, patience)
}

fn dial(
    address: &str,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    patience: Duration,
) -> Option<Channel> {
    let address = address.strip_prefix("http://").unwrap_or(address);
    let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
    endpoint.uri().port_u16()?;
    let address = endpoint.uri().authority()?.as_str().to_owned();
    let endpoint = endpoint
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    Some(endpoint.connect_with_connector_lazy(Dialler { address, tls, patience }))
}

#[derive(Clone)]
struct Dialler {
    address: String,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    patience: Duration,
}

/// TCP or TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl tower::Service<Uri> for Dialler {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let Self { address, tls, patience } = self.clone();
        Box::pin(async move {
            let late =
                || DialError::Down(format!("connecting to {address}: no connection within {patience:?}"));
            match tokio::time::timeout(patience, connect(&address, tls)).await {
                Ok(connected) => connected.map(TokioIo::new),
                Err(_) => Err(late()),
            }
        })
    }
}

async fn connect(
    address: &str,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
) -> Result<Box<dyn Stream>, DialError> {
    let tcp = TcpStream::connect(address)
        .await
        .map_err(|error| DialError::Down(format!("connecting to {address}: {error}")))?;
    // A connection that cannot do without delays still works.
    let _ = tcp.set_nodelay(true);
    let Some((tls, name)) = tls else { return Ok(Box::new(tcp)) };
    let stream = TlsConnector::from(tls).connect(name, tcp).await;
    Ok(Box::new(stream.map_err(|error| tls_error(address, &error))?))
}

fn tls_error(address: &str, error: &io::Error) -> DialError {
    match tls_cause(error) {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(cause))) => {
            DialError::Distrusted(format!("{address} is not trusted: {cause}"))
        }
        Some(rustls::Error::InvalidCertificate(cause)) => DialError::Distrusted(format!(
            "{address} is not trusted: its certificate is not valid here: {cause}"
        )),
        Some(rustls::Error::InvalidMessage(_)) => DialError::Distrusted(format!(
            "{address} does not speak TLS, as every node of a secure cluster does; if its cluster is meant to be insecure, say --insecure"
        )),
        Some(rustls::Error::AlertReceived(alert)) if is_about_identity(*alert) => {
            DialError::Distrusted(format!("{address} does not accept this node's certificate ({alert:?})"))
        }
        _ => DialError::Down(format!("TLS with {address}: {error}")),
    }
}

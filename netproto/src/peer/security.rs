//! Who may be on the other end of a connection: mutual TLS within one cluster, or nobody but this machine.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::hello::Member;
use super::identity::{NodeIdentity, node_name};

/// What is wrong with the certificates that were given.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A PEM text is not what it should be.
    #[error("{what} cannot be read: {detail}")]
    Pem {
        /// Which text.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The certificates do not fit together.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// How connections between nodes are protected.
#[derive(Clone)]
pub enum Security {
    /// Not at all: on loopback only, where it is for trying things out.
    Insecure,
    /// TLS 1.3, in which both ends show a certificate of the cluster's CA.
    Mutual(MutualTls),
}

/// Both halves of mutual TLS, ready for use.
#[derive(Clone)]
pub struct MutualTls {
    pub(crate) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Insecure => "Insecure",
            Self::Mutual(_) => "Mutual",
        })
    }
}

impl Security {
    /// Mutual TLS with the certificate of the cluster's CA (PEM) and this node's identity.
    ///
    /// The server also lets in clients without a certificate, because other services may share its port; those of the
    /// peers refuse them. A certificate of another CA ends the handshake.
    ///
    /// # Errors
    /// If a text is not PEM, or the key does not belong to the certificate.
    pub fn mutual(ca: &str, identity: &NodeIdentity) -> Result<Self, SecurityError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(ca.as_bytes())
            .map_err(|error| unreadable("the CA's certificate", &error))?;
        roots.add(ca.clone()).map_err(|error| SecurityError::Tls(error.to_string()))?;
        let roots = Arc::new(roots);
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())
            .map_err(|error| unreadable("the node's certificate", &error))?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
            .map_err(|error| unreadable("the node's key", &error))?;

        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(tls)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
            .map_err(tls)?;
        client.alpn_protocols = vec![b"h2".to_vec()];

        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|error| SecurityError::Tls(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(tls)?
            .with_client_cert_verifier(verifier)
            // With the CA's, by whose fingerprint those recognise the cluster who have nothing else of it.
            .with_single_cert(vec![certificate, ca], key)
            .map_err(tls)?;
        server.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self::Mutual(MutualTls { client: Arc::new(client), server: Arc::new(server) }))
    }

    /// Whether this protection is enough for connections with `address`.
    pub(super) fn suffices_for(&self, address: IpAddr) -> bool {
        matches!(self, Self::Mutual(_)) || address.to_canonical().is_loopback()
    }
}

/// The name under which a node's certificate is valid.
pub(crate) fn server_name(member: Member) -> Result<ServerName<'static>, String> {
    ServerName::try_from(node_name(member)).map_err(|error| error.to_string())
}

/// Whether a certificate, whose chain was verified, is that of `member`.
pub(super) fn names(certificate: &CertificateDer<'static>, member: Member) -> Result<(), String> {
    let parsed = ParsedCertificate::try_from(certificate).map_err(|error| error.to_string())?;
    rustls::client::verify_server_name(&parsed, &server_name(member)?)
        .map_err(|_| format!("the certificate is not that of {}", node_name(member)))
}

fn tls(error: rustls::Error) -> SecurityError {
    SecurityError::Tls(error.to_string())
}

fn unreadable(what: &'static str, error: &rustls::pki_types::pem::Error) -> SecurityError {
    SecurityError::Pem { what, detail: error.to_string() }
}

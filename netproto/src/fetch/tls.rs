//! The TLS client: which roots are trusted, which protocols are offered, and the two places where rustls lets one look
//! on, which tell when a handshake begins and what it agreed on.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue, WebPkiServerVerifier,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, NamedGroup, RootCertStore, SignatureScheme};

use super::config::{ConfigError, HttpVersions};
use super::phase;

/// Servers whose sessions are remembered for resumption.
const SESSIONS: usize = 4096;

/// What a handshake agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: Option<&'static str>,
    /// The key exchange group, by its IANA name, such as `X25519MLKEM768`.
    pub key_exchange: Option<String>,
    /// The server's own certificate, DER; `None` if an earlier session was resumed.
    pub certificate: Option<Vec<u8>>,
}

/// The client configuration: the bundled Mozilla roots, and those of `ca_pem` beside them.
pub(super) fn client_config(ca_pem: Option<&[u8]>, http: HttpVersions) -> Result<ClientConfig, ConfigError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = ca_pem {
        add_pem(&mut roots, pem)?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|error| ConfigError::Tls(error.to_string()))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::Tls(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Onlooker { verifier }))
        .with_no_client_auth();
    config.resumption =
        Resumption::store(Arc::new(Sessions { cache: ClientSessionMemoryCache::new(SESSIONS) }));
    config.alpn_protocols = match http {
        HttpVersions::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        HttpVersions::Http1 => vec![b"http/1.1".to_vec()],
        HttpVersions::Http2 => vec![b"h2".to_vec()],
    };
    Ok(config)
}

fn add_pem(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), ConfigError> {
    let mut added = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| ConfigError::CaPem(error.to_string()))?;
        roots.add(certificate).map_err(|error| ConfigError::CaPem(error.to_string()))?;
        added += 1;
    }
    if added == 0 {
        return Err(ConfigError::CaPem("it has no CERTIFICATE section".to_owned()));
    }
    Ok(())
}

/// A session store that also tells when a handshake begins: rustls asks for the hint when it builds a ClientHello.
#[derive(Debug)]
struct Sessions {
    cache: ClientSessionMemoryCache,
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        phase::note_tls(|tls| tls.key_exchange = Some(format!("{group:?}")));
        self.cache.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        phase::enter_tls();
        self.cache.kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.cache.set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let session = self.cache.tls12_session(server_name);
        if session.is_some() {
            phase::note_tls(|tls| tls.version = Some("TLSv1.2"));
        }
        session
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.cache.remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.cache.insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let ticket = self.cache.take_tls13_ticket(server_name);
        if ticket.is_some() {
            phase::note_tls(|tls| tls.version = Some("TLSv1.3"));
        }
        ticket
    }
}

/// Verifies as webpki does, and notes what it saw.
#[derive(Debug)]
struct Onlooker {
    verifier: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Onlooker {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        phase::note_tls(|tls| tls.certificate = Some(end_entity.to_vec()));
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        phase::note_tls(|tls| tls.version = Some("TLSv1.2"));
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        phase::note_tls(|tls| tls.version = Some("TLSv1.3"));
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

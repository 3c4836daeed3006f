//! TLS for those who know of a cluster no more than the fingerprint of its CA: clients of the API, and nodes that are
//! about to join. A node is recognised by its certificate's issuer, whatever address it is reached at.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use super::SecurityError;
use super::identity::{Fingerprint, NodeIdentity, fingerprint_of_der};

/// What the other end has shown is of another cluster.
#[derive(Debug, thiserror::Error)]
#[error("it belongs to another cluster than the token: its CA has another fingerprint")]
pub(crate) struct OtherCluster;

/// A client's side of TLS 1.3 that trusts the nodes of the cluster whose CA has this fingerprint. With `identity` it shows
/// that certificate if it is asked.
pub(crate) fn client_config(
    ca: Fingerprint,
    identity: Option<&NodeIdentity>,
) -> Result<Arc<ClientConfig>, SecurityError> {
    let tls = |error: Error| SecurityError::Tls(error.to_string());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { ca, provider }));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let unreadable = |what, error: rustls::pki_types::pem::Error| SecurityError::Pem {
                what,
                detail: error.to_string(),
            };
            let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())
                .map_err(|error| unreadable("the node's certificate", error))?;
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
                .map_err(|error| unreadable("the node's key", error))?;
            builder.with_client_auth_cert(vec![certificate], key).map_err(tls)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A node has one certificate, whatever it is called.
    config.enable_sni = false;
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Pinned {
    ca: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let ca =
            intermediates.iter().find(|shown| fingerprint_of_der(shown) == self.ca).ok_or_else(|| {
                Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(OtherCluster))))
            })?;
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms)?;
        verify_server_name(&parsed, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

//! A certificate authority of one site, and a leaf certificate for every name that a client asks for, made when it is
//! first asked for: so thousands of hosts need no list.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Issues certificates under one authority.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    issued: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A new authority that nobody trusts yet.
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "testkit authority");
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key), issued: Mutex::default() }
    }

    /// Its own certificate, for a client to trust.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    fn leaf(&self, name: &str) -> Arc<CertifiedKey> {
        let mut issued = self.issued.lock().unwrap();
        if let Some(leaf) = issued.get(name) {
            return Arc::clone(leaf);
        }
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let secret = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let signer = aws_lc_rs::sign::any_supported_type(&secret).unwrap();
        let leaf = Arc::new(CertifiedKey::new(vec![certificate.der().clone()], signer));
        issued.insert(name.to_owned(), Arc::clone(&leaf));
        leaf
    }

    /// A server's side of TLS that offers HTTP/2 and HTTP/1.1.
    pub(crate) fn config(self: &Arc<Self>) -> Arc<ServerConfig> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl ResolvesServerCert for Authority {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A client that connects to an address sends no name.
        Some(self.leaf(hello.server_name().unwrap_or("127.0.0.1")))
    }
}

//! The cluster's certificate authority and the certificates of its nodes: made here, as PEM, kept by whoever asked.
//!
//! Certificates do not expire: a cluster whose clocks are wrong must go on, and a node is shut out by being removed from
//! the membership, not by a date. A node's certificate names it as `node-<number>.<cluster>.dolomedes`, which is what other nodes
//! look for, and as [`API_NAME`], which all nodes share and clients look for.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SignatureAlgorithm, SigningKey,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, TrustAnchor};

use super::hello::Member;

/// Why a certificate cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The library failed at making a key or a certificate.
    #[error("cannot make {what}: {detail}")]
    Making {
        /// What was being made.
        what: &'static str,
        /// The library's words.
        detail: String,
    },
    /// The PEM text is not what it should be.
    #[error("{what} cannot be read: {detail}")]
    Reading {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// Certificate, key and cluster do not belong together.
    #[error("the CA's certificate and key are not a pair of this cluster; take both from the same cluster")]
    Mismatch,
    /// What a node says of its key is not so.
    #[error("the node has not proved that it has the key for which it wants a certificate")]
    Unproved,
}

/// The name that all nodes of all clusters have as servers of the API; which cluster it is, the CA says.
pub const API_NAME: &str = "cluster.dolomedes";

/// The DNS name in a node's certificate that is its own.
pub fn node_name(member: Member) -> String {
    format!("node-{}.{:032x}.dolomedes", member.node, member.cluster)
}

/// The SHA-256 of a certificate (its DER), in hexadecimal: what a join token carries to recognise the cluster.
///
/// # Errors
/// If `pem` holds no certificate.
pub fn fingerprint(pem: &str) -> Result<String, IdentityError> {
    fingerprint_of(pem).map(|print| HEXLOWER.encode(&print))
}

/// The same as bytes.
///
/// # Errors
/// If `pem` holds no certificate.
pub fn fingerprint_of(pem: &str) -> Result<Fingerprint, IdentityError> {
    Ok(fingerprint_of_der(&certificate(pem, "the CA's certificate")?))
}

pub(crate) fn fingerprint_of_der(certificate: &CertificateDer<'_>) -> Fingerprint {
    let mut print = [0; 32];
    print.copy_from_slice(digest(&SHA256, certificate).as_ref());
    print
}

/// The SHA-256 of a certificate.
pub type Fingerprint = [u8; 32];

/// What a node signs in order to be enrolled begins so; nothing else that its key signs does.
const PROOF_CONTEXT: &[u8] = b"dolomedes enrolment 1\0";

/// A node's key, made by the node itself before it belongs to a cluster. It never leaves the node; the certificate for it
/// comes with its enrolment.
pub struct NodeKey {
    pem: String,
    pair: KeyPair,
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeKey").field("public", &HEXLOWER.encode(self.public())).finish_non_exhaustive()
    }
}

impl NodeKey {
    /// Makes a new one (ECDSA, P-256).
    ///
    /// # Errors
    /// If the library fails.
    pub fn generate() -> Result<Self, IdentityError> {
        let pair = KeyPair::generate().map_err(|error| making("a node's key", &error))?;
        Ok(Self { pem: pair.serialize_pem(), pair })
    }

    /// Takes up one that was kept.
    ///
    /// # Errors
    /// If `pem` holds no such key.
    pub fn from_pem(pem: &str) -> Result<Self, IdentityError> {
        let pair = KeyPair::from_pem(pem).map_err(|error| reading("the node's key", &error.to_string()))?;
        Ok(Self { pem: pem.to_owned(), pair })
    }

    /// The private key, PEM (PKCS #8).
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The public key: an uncompressed point of the curve.
    pub fn public(&self) -> &[u8] {
        self.pair.der_bytes()
    }

    /// The node's own id: drawn with the key, so that nobody else can use it. See [`node_uuid`].
    pub fn uuid(&self) -> u128 {
        node_uuid(self.public())
    }

    /// Proves to the cluster with this CA that the node that wants to join at `address` has this key.
    ///
    /// # Errors
    /// If the library fails.
    pub fn prove(&self, ca: &Fingerprint, address: &str) -> Result<Vec<u8>, IdentityError> {
        self.pair.sign(&proof_text(ca, address)).map_err(|error| making("a signature", &error))
    }
}

/// Checks what [`NodeKey::prove`] gave.
///
/// # Errors
/// [`IdentityError::Unproved`].
pub fn check_proof(
    public: &[u8],
    ca: &Fingerprint,
    address: &str,
    proof: &[u8],
) -> Result<(), IdentityError> {
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public);
    key.verify(&proof_text(ca, address), proof).map_err(|_| IdentityError::Unproved)
}

fn proof_text(ca: &Fingerprint, address: &str) -> Vec<u8> {
    [PROOF_CONTEXT, ca, address.as_bytes()].concat()
}

/// The own id of the node with this public key: enrolling again with the same key is enrolling the same node.
pub fn node_uuid(public: &[u8]) -> u128 {
    let hash = digest(&SHA256, public);
    hash.as_ref().iter().take(16).fold(0, |id, byte| id << 8 | u128::from(*byte))
}

/// A public key that somebody else has the private one of.
struct Foreign<'a>(&'a [u8]);

impl PublicKeyData for Foreign<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// A certificate and its key, both PEM. The key is a secret: it goes into no log.
#[derive(Clone)]
pub struct NodeIdentity {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: String,
}

impl fmt::Debug for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIdentity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The authority of one cluster. It signs for its cluster only.
pub struct ClusterCa {
    cluster: u128,
    certificate: String,
    key: String,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for ClusterCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterCa")
            .field("cluster", &format_args!("{:032x}", self.cluster))
            .finish_non_exhaustive()
    }
}

impl ClusterCa {
    /// Makes a new authority, with a new key (ECDSA, P-256).
    ///
    /// # Errors
    /// If the library fails.
    pub fn generate(cluster: u128) -> Result<Self, IdentityError> {
        let making = |error: rcgen::Error| making("the CA", &error);
        let pair = KeyPair::generate().map_err(making)?;
        let params = ca_params(cluster)?;
        let certificate = params.self_signed(&pair).map_err(making)?.pem();
        Ok(Self { cluster, certificate, key: pair.serialize_pem(), issuer: Issuer::new(params, pair) })
    }

    /// Takes up an authority that [`ClusterCa::generate`] made for this cluster.
    ///
    /// # Errors
    /// If a text is not PEM of a certificate or key, or the two are not of one pair and of this cluster.
    pub fn from_pem(cluster: u128, certificate: &str, key: &str) -> Result<Self, IdentityError> {
        let der = self::certificate(certificate, "the CA's certificate")?;
        let pair = KeyPair::from_pem(key).map_err(|error| reading("the CA's key", &error.to_string()))?;
        let params = ca_params(cluster)?;
        let again = params.self_signed(&pair).map_err(|error| making("the CA", &error))?;
        // Name and public key; the rest of the two may differ.
        if anchor(der)? != anchor(again.der().clone())? {
            return Err(IdentityError::Mismatch);
        }
        Ok(Self {
            cluster,
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            issuer: Issuer::new(params, pair),
        })
    }

    /// The certificate, PEM: what nodes trust.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The private key, PEM (PKCS #8): a secret of the cluster.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Makes a key and a certificate for a node.
    ///
    /// # Errors
    /// If the library fails.
    pub fn issue(&self, node: super::NodeNumber) -> Result<NodeIdentity, IdentityError> {
        let key = NodeKey::generate()?;
        Ok(NodeIdentity { certificate: self.certify(node, key.public())?, key: key.pem })
    }

    /// Makes a certificate (PEM) for a node with this public key, which it must have proved to have.
    ///
    /// # Errors
    /// If the library fails.
    pub fn certify(&self, node: super::NodeNumber, public: &[u8]) -> Result<String, IdentityError> {
        let making = |error: rcgen::Error| making("a node's certificate", &error);
        let member = Member { cluster: self.cluster, node };
        let mut params =
            CertificateParams::new(vec![node_name(member), API_NAME.to_owned()]).map_err(making)?;
        params.distinguished_name = common_name(format!("dolomedes node {node}"));
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok(params.signed_by(&Foreign(public), &self.issuer).map_err(making)?.pem())
    }
}

fn ca_params(cluster: u128) -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::new(Vec::new()).map_err(|error| making("the CA", &error))?;
    params.distinguished_name = common_name(format!("dolomedes cluster {cluster:032x}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn common_name(name: String) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// What signatures are checked against.
fn anchor(certificate: CertificateDer<'static>) -> Result<Option<TrustAnchor<'static>>, IdentityError> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(|error| reading("the CA's certificate", &error.to_string()))?;
    Ok(roots.roots.pop())
}

fn certificate(pem: &str, what: &'static str) -> Result<CertificateDer<'static>, IdentityError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| reading(what, &error.to_string()))
}

fn making(what: &'static str, error: &rcgen::Error) -> IdentityError {
    IdentityError::Making { what, detail: error.to_string() }
}

fn reading(what: &'static str, detail: &str) -> IdentityError {
    IdentityError::Reading { what, detail: detail.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_that_was_kept_signs_as_before() {
        let made = ClusterCa::generate(5).unwrap();
        let kept = ClusterCa::from_pem(5, made.certificate(), made.key()).unwrap();
        assert_eq!(kept.certificate(), made.certificate());
        assert_eq!(kept.key(), made.key());
        let security = super::super::Security::mutual(made.certificate(), &kept.issue(1).unwrap());
        assert!(security.is_ok(), "{security:?}");
    }

    #[test]
    fn a_key_or_a_cluster_that_is_not_the_certificates_is_not_taken() {
        let one = ClusterCa::generate(5).unwrap();
        let other = ClusterCa::generate(5).unwrap();
        for (cluster, key) in [(5, other.key()), (6, one.key())] {
            let mixed = ClusterCa::from_pem(cluster, one.certificate(), key);
            assert!(matches!(mixed, Err(IdentityError::Mismatch)), "{mixed:?}");
        }
        for (certificate, key) in [("", one.key()), (one.certificate(), ""), (one.key(), one.certificate())] {
            let error = ClusterCa::from_pem(5, certificate, key);
            assert!(matches!(error, Err(IdentityError::Reading { .. })), "{error:?}");
        }
    }

    #[test]
    fn a_fingerprint_is_the_sha_256_of_the_certificate() {
        let ca = ClusterCa::generate(5).unwrap();
        let print = fingerprint(ca.certificate()).unwrap();
        assert_eq!(print.len(), 64);
        assert_eq!(print, fingerprint(&format!("\n{}\n", ca.certificate())).unwrap());
        assert_ne!(print, fingerprint(ClusterCa::generate(5).unwrap().certificate()).unwrap());
        assert!(fingerprint("a fingerprint of nothing").is_err());
    }

    #[test]
    fn a_certificate_is_for_the_key_that_was_proved_and_no_other() {
        let ca = ClusterCa::generate(5).unwrap();
        let print = fingerprint_of(ca.certificate()).unwrap();
        let key = NodeKey::from_pem(NodeKey::generate().unwrap().pem()).unwrap();
        let other = NodeKey::generate().unwrap();
        assert_ne!(key.uuid(), other.uuid());
        let proof = key.prove(&print, "a:1").unwrap();
        check_proof(key.public(), &print, "a:1", &proof).unwrap();
        for (public, print, address, proof) in [
            (other.public(), &print, "a:1", &proof[..]),
            (key.public(), &[0; 32], "a:1", &proof),
            (key.public(), &print, "a:2", &proof),
            (key.public(), &print, "a:1", &[]),
            (&[], &print, "a:1", &proof),
        ] {
            assert!(matches!(check_proof(public, print, address, proof), Err(IdentityError::Unproved)));
        }
        let certificate = ca.certify(3, key.public()).unwrap();
        let identity =
            |key: &NodeKey| NodeIdentity { certificate: certificate.clone(), key: key.pem.clone() };
        super::super::Security::mutual(ca.certificate(), &identity(&key)).unwrap();
        assert!(super::super::Security::mutual(ca.certificate(), &identity(&other)).is_err());
    }

    #[test]
    fn no_secret_shows_in_debug_output() {
        let ca = ClusterCa::generate(5).unwrap();
        let shown = format!("{ca:?} {:?} {:?}", ca.issue(3).unwrap(), NodeKey::generate().unwrap());
        assert!(!shown.contains("PRIVATE"), "{shown}");
    }
}

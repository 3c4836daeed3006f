//! What a node keeps for the cluster's security, in its data directory: its key and certificate and the CA's certificate in
//! `tls`; there also the CA's key, on nodes that are members of group 0; and `operator.token`, an access token, where the
//! cluster was begun. Everything is on disk, readable for its owner alone, before it is first used.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use dolomedes_netproto::{
    peer::{
        Member, Security,
        identity::{ClusterCa, Fingerprint, NodeIdentity, NodeKey, fingerprint_of},
    },
    wire::{NodeAccess, Token, TokenKind},
};
use dolomedes_raft::cluster::{FIRST_NODE, SecretKeeper};
use dolomedes_storage::file;

/// Bytes of one of these files at most.
const MOST_BYTES: u64 = 64 << 10;

/// The places of a data directory that are for security.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    dir: PathBuf,
}

impl Keys {
    pub(crate) fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn tls(&self) -> PathBuf {
        self.dir.join("tls")
    }

    fn node_key(&self) -> PathBuf {
        self.tls().join("node-key.pem")
    }

    fn node_certificate(&self) -> PathBuf {
        self.tls().join("node.pem")
    }

    fn ca_certificate(&self) -> PathBuf {
        self.tls().join("ca.pem")
    }

    fn ca_key(&self) -> PathBuf {
        self.tls().join("ca-key.pem")
    }

    /// Where the access token is that the cluster began with.
    pub(crate) fn operator_token(&self) -> PathBuf {
        self.dir.join("operator.token")
    }

    /// Whether the directory is, or is about to be, that of a node of a secure cluster.
    pub(crate) fn are_there(&self) -> bool {
        self.node_key().exists()
    }

    /// The node's key, made if it is not there.
    pub(crate) fn key(&self) -> anyhow::Result<NodeKey> {
        if let Some(pem) = read(&self.node_key())? {
            let place = self.node_key();
            return NodeKey::from_pem(&pem).with_context(|| format!("`{}` is damaged", place.display()));
        }
        let key = NodeKey::generate()?;
        file::create_private_dir(&self.tls())?;
        file::replace_private(&self.node_key(), key.pem().as_bytes())?;
        Ok(key)
    }

    /// Makes what a new cluster begins with: its CA, the certificate of its first node, and an access token. To be called
    /// before the directory has an identity: nothing was used yet of what a crash has left behind.
    pub(crate) fn begin(&self, cluster: u128) -> anyhow::Result<()> {
        let key = self.key()?;
        let ca = ClusterCa::generate(cluster)?;
        let certificate = ca.certify(FIRST_NODE, key.public())?;
        let token = Token::draw(TokenKind::Access, fingerprint_of(ca.certificate())?)
            .context("cannot draw a random number")?;
        file::replace_private(&self.ca_key(), ca.key().as_bytes())?;
        file::replace_private(&self.ca_certificate(), ca.certificate().as_bytes())?;
        file::replace_private(&self.node_certificate(), certificate.as_bytes())?;
        file::replace_private(&self.operator_token(), format!("{}\n", token.reveal()).as_bytes())?;
        Ok(())
    }

    /// Keeps what the node was given with its number.
    pub(crate) fn enrolled(&self, ca: &str, certificate: &str) -> anyhow::Result<()> {
        // Whether they belong together is seen now rather than at the next start.
        let key = self.key()?.pem().to_owned();
        Security::mutual(ca, &NodeIdentity { certificate: certificate.to_owned(), key })
            .context("the certificate that the cluster has issued is not good for this node")?;
        // Of a cluster that was about to begin here when a crash came.
        for left in [self.ca_key(), self.operator_token()] {
            match fs::remove_file(&left) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove `{}`", left.display()));
                }
                _ => {}
            }
        }
        file::replace_private(&self.ca_certificate(), ca.as_bytes())?;
        file::replace_private(&self.node_certificate(), certificate.as_bytes())?;
        Ok(())
    }

    /// What the node knows of itself and its cluster.
    pub(crate) fn access(&self, member: Member) -> anyhow::Result<NodeAccess> {
        Ok(NodeAccess {
            member,
            ca: self.needed(&self.ca_certificate())?,
            identity: NodeIdentity {
                certificate: self.needed(&self.node_certificate())?,
                key: self.needed(&self.node_key())?,
            },
        })
    }

    /// The hash of the access token that the cluster began with, as far as it is there.
    pub(crate) fn operator_hash(&self) -> anyhow::Result<Option<[u8; 32]>> {
        let place = self.operator_token();
        let Some(text) = read(&place)? else { return Ok(None) };
        let token: Token = text.parse().with_context(|| format!("`{}`", place.display()))?;
        Ok(Some(token.hash()))
    }

    /// The CA as far as this node has it.
    pub(crate) fn authority(&self, cluster: u128) -> anyhow::Result<Authority> {
        let certificate = self.needed(&self.ca_certificate())?;
        let ca = match read(&self.ca_key())? {
            Some(key) => {
                let ca = ClusterCa::from_pem(cluster, &certificate, &key);
                Some(Arc::new(ca.with_context(|| format!("`{}`", self.tls().display()))?))
            }
            None => None,
        };
        Ok(Authority {
            cluster,
            fingerprint: fingerprint_of(&certificate)?,
            certificate,
            path: self.ca_key(),
            ca: Mutex::new(ca),
        })
    }

    fn needed(&self, path: &Path) -> anyhow::Result<String> {
        read(path)?.with_context(|| {
            format!(
                "`{}` is missing; restore it, or remove this node from the cluster and join with an empty directory",
                path.display()
            )
        })
    }
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::metadata(path) {
        Ok(found) => {
            ensure!(found.len() <= MOST_BYTES, "`{}` is too long to be what it should be", path.display());
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    }
    fs::read_to_string(path).map(Some).with_context(|| format!("cannot read `{}`", path.display()))
}

/// The cluster's CA on this node: its certificate for sure, and its key if the node is a member of group 0, from another
/// member of which it then gets it.
pub(crate) struct Authority {
    cluster: u128,
    fingerprint: Fingerprint,
    certificate: String,
    path: PathBuf,
    ca: Mutex<Option<Arc<ClusterCa>>>,
}

impl Authority {
    pub(crate) fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// The CA with its key.
    pub(crate) fn ca(&self) -> Option<Arc<ClusterCa>> {
        self.ca.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl SecretKeeper for Authority {
    fn secret(&self) -> Option<Bytes> {
        self.ca().map(|ca| Bytes::copy_from_slice(ca.key().as_bytes()))
    }

    fn keep(&self, secret: &[u8]) -> Result<(), String> {
        let key = std::str::from_utf8(secret).map_err(|_| "it is not text".to_owned())?;
        let ca =
            ClusterCa::from_pem(self.cluster, &self.certificate, key).map_err(|error| error.to_string())?;
        file::replace_private(&self.path, secret).map_err(|error| error.to_string())?;
        *self.ca.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(ca));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_a_cluster_begins_with_is_private_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::of(dir.path());
        assert!(!keys.are_there());
        let uuid = keys.key().unwrap().uuid();
        keys.begin(5).unwrap();
        // What a crash has left behind is replaced, except for the key, of which the node's own id is made.
        keys.begin(6).unwrap();
        assert!(keys.are_there());
        assert_eq!(keys.key().unwrap().uuid(), uuid);
        let access = keys.access(Member { cluster: 6, node: FIRST_NODE }).unwrap();
        Security::mutual(&access.ca, &access.identity).unwrap();
        let authority = keys.authority(6).unwrap();
        assert!(authority.ca().is_some() && keys.authority(5).is_err());
        let token: Token = fs::read_to_string(keys.operator_token()).unwrap().parse().unwrap();
        assert_eq!(
            (token.ca(), keys.operator_hash().unwrap()),
            (authority.fingerprint(), Some(token.hash()))
        );
        for path in [
            keys.node_key(),
            keys.node_certificate(),
            keys.ca_key(),
            keys.ca_certificate(),
            keys.operator_token(),
        ] {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", path.display());
        }
    }

    #[test]
    fn another_member_keeps_the_key_of_its_own_cluster_only() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (first, second) = (Keys::of(one.path()), Keys::of(two.path()));
        first.begin(5).unwrap();
        // A crash has left this behind.
        second.begin(6).unwrap();
        let holder = first.authority(5).unwrap();
        let ca = holder.ca().unwrap();
        let certificate = ca.certify(7, second.key().unwrap().public()).unwrap();
        second.enrolled(ca.certificate(), &certificate).unwrap();
        let keeper = second.authority(5).unwrap();
        assert!(keeper.secret().is_none());
        let other = ClusterCa::generate(5).unwrap();
        assert!(keeper.keep(other.key().as_bytes()).is_err() && keeper.keep(b"\xff").is_err());
        assert!(keeper.secret().is_none());
        keeper.keep(&holder.secret().unwrap()).unwrap();
        assert_eq!(keeper.secret(), holder.secret());
        assert_eq!(second.authority(5).unwrap().secret(), holder.secret());
        // Another node's certificate is of no use.
        assert!(first.enrolled(ca.certificate(), &certificate).is_err());
    }
}

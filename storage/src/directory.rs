//! The data directory: who may use it, whose it is, and where things lie in it. Not what the files mean.
//!
//! Layout: `LOCK` (held by the running process, holds its pid) · `IDENTITY` · `FLOOR` ([`crate::floor`]) · `db` ·
//! `snapshots` · `spool` · `sinks`.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use crate::{
    codec::{Decoder, Encoder},
    error::{Error, Result},
    file,
};

const MAGIC: &[u8; 8] = b"DOLOMEID";
/// The newest layout of the directory, and of the identity file, that this program knows.
const FORMAT: u32 = 1;
/// A larger identity file is garbage, not worth reading.
const MAX_IDENTITY_BYTES: u64 = 4096;

/// Whose data a directory holds. Written once, before the node first takes part in anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: u128,
    /// The node: drawn at random for each new directory, so that a lost disk is a new node.
    pub node_uuid: u128,
    /// The node's number in the cluster. Never reused for another directory.
    pub node_id: u64,
    /// The format of the release that created the directory.
    pub created_format: u32,
}

impl Identity {
    /// An identity created by this release. The caller draws `cluster` and `node_uuid`.
    pub fn new(cluster: u128, node_uuid: u128, node_id: u64) -> Self {
        Self { cluster, node_uuid, node_id, created_format: FORMAT }
    }

    fn encode(&self, format: u32) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.raw(MAGIC).uint(format.into());
        encoder.u128(self.cluster).u128(self.node_uuid).uint(self.node_id).uint(self.created_format.into());
        let mut bytes = encoder.finish();
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        let place = format!("`{}`", path.display());
        // In every format the file begins with the magic and ends with the checksum of all before.
        let sound = bytes.split_last_chunk::<4>().filter(|(body, sum)| {
            body.starts_with(MAGIC) && crc32fast::hash(body) == u32::from_le_bytes(**sum)
        });
        let Some((body, _)) = sound else {
            return Err(Error::corrupt(place, "it is not an identity file, or its checksum does not match"));
        };
        let mut decoder = Decoder::new("IDENTITY", &body[MAGIC.len()..]);
        let found = decoder.uint32()?;
        if found > FORMAT {
            return Err(Error::UnknownFormat { place, found, known: FORMAT });
        }
        let identity = Self {
            cluster: decoder.u128()?,
            node_uuid: decoder.u128()?,
            node_id: decoder.uint()?,
            created_format: decoder.uint32()?,
        };
        decoder.finish()?;
        Ok(identity)
    }
}

/// A data directory in use by this process, until dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    identity: Option<Identity>,
    /// Holding it open holds the lock; the system lets go of it however the process ends.
    _lock: File,
}

impl DataDir {
    /// Takes the directory, creating it where there is none.
    ///
    /// # Errors
    /// [`Error::InUse`] with the other process's number if one has it, [`Error::UnknownFormat`] if a newer release
    /// wrote it, [`Error::Corrupt`] if its identity is damaged, or missing where there are data.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        fs::create_dir_all(&path).map_err(|error| Error::io("create", &path, error))?;
        let lock = lock(&path)?;
        let mut dir = Self { path, identity: None, _lock: lock };
        dir.identity = read_identity(&dir.path)?;
        for folder in [dir.db(), dir.snapshots(), dir.spool(), dir.sinks()] {
            fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, error))?;
        }
        file::sync_dir(&dir.path)?;
        Ok(dir)
    }

    /// Removes everything that a node keeps below `path`, whatever state it is in, for a fresh start. `before` gets the
    /// folder of the sinks' marks while it is still there. The identity goes last, so that a directory that was cleared
    /// in part is refused rather than taken for whole; clearing it again finishes the work. Other files stay.
    ///
    /// # Errors
    /// [`Error::InUse`] as [`open`](Self::open); otherwise what cannot be removed, or what `before` says.
    pub fn clear(path: impl Into<PathBuf>, before: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let path = path.into();
        if !path.exists() {
            return Ok(());
        }
        let dir = Self { _lock: lock(&path)?, path, identity: None };
        if dir.sinks().is_dir() {
            before(&dir.sinks())?;
        }
        for folder in [dir.db(), dir.snapshots(), dir.spool(), dir.sinks()] {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io("remove", &folder, error));
                }
                _ => {}
            }
        }
        for path in [dir.floor(), dir.identity_file()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io("remove", &path, error));
                }
                _ => {}
            }
        }
        file::sync_dir(&dir.path)
    }

    /// Whose directory `path` is, without taking it: for who wants to speak to the process that has it.
    ///
    /// # Errors
    /// As [`open`](Self::open), but never [`Error::InUse`].
    pub fn look(path: &Path) -> Result<Option<Identity>> {
        read_identity(path)
    }

    /// Whose directory it is; `None` in a new one.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Makes a new directory the given node's. Durable on return. To be called after [`Floor::create`] and before the
    /// engine is first opened: from then on a missing identity is damage.
    ///
    /// [`Floor::create`]: crate::floor::Floor::create
    pub fn set_identity(&mut self, identity: Identity) -> Result<()> {
        if let Some(own) = self.identity.filter(|own| *own != identity) {
            return Err(Error::Engine(format!(
                "`{}` belongs to node {} already; use another --data-dir",
                self.path.display(),
                own.node_id
            )));
        }
        file::replace(&self.identity_file(), &identity.encode(FORMAT))?;
        self.identity = Some(identity);
        Ok(())
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the engine keeps its files.
    pub fn db(&self) -> PathBuf {
        self.path.join("db")
    }

    /// Where snapshots are made and received.
    pub fn snapshots(&self) -> PathBuf {
        self.path.join("snapshots")
    }

    /// Where records wait for the sinks.
    pub fn spool(&self) -> PathBuf {
        self.path.join("spool")
    }

    /// Where sinks keep their marks.
    pub fn sinks(&self) -> PathBuf {
        self.path.join("sinks")
    }

    /// The file for [`crate::floor::Floor`].
    pub fn floor(&self) -> PathBuf {
        self.path.join("FLOOR")
    }

    fn identity_file(&self) -> PathBuf {
        identity_file(&self.path)
    }
}

fn identity_file(dir: &Path) -> PathBuf {
    dir.join("IDENTITY")
}

fn read_identity(dir: &Path) -> Result<Option<Identity>> {
    let path = identity_file(dir);
    let mut bytes = Vec::new();
    match File::open(&path).and_then(|file| file.take(MAX_IDENTITY_BYTES).read_to_end(&mut bytes)) {
        Ok(_) => Identity::decode(&path, &bytes).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if holds_files(&dir.join("db"))? {
                return Err(Error::corrupt(
                    format!("`{}`", dir.display()),
                    "it holds data, but its IDENTITY file is missing",
                ));
            }
            Ok(None)
        }
        Err(error) => Err(Error::io("read", path, error)),
    }
}

fn holds_files(dir: &Path) -> Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("list", dir, error)),
    }
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("LOCK");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| Error::io("open", &path, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            // The number only serves the message, and the other process may be about to write it.
            let _ = file.take(16).read_to_string(&mut text);
            return Err(Error::InUse { path: dir.to_owned(), pid: text.trim().parse().ok() });
        }
        Err(TryLockError::Error(error)) => return Err(Error::io("lock", path, error)),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|error| Error::io("write", &path, error))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_identity_is_refused_by_its_format() {
        let temporary = tempfile::tempdir().unwrap();
        let identity = Identity::new(1, 2, 3);
        fs::write(temporary.path().join("IDENTITY"), identity.encode(FORMAT + 1)).unwrap();
        let error = DataDir::open(temporary.path()).unwrap_err();
        assert!(matches!(error, Error::UnknownFormat { found: 2, known: 1, .. }), "{error}");
    }
}

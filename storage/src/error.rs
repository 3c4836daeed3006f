//! What can go wrong with stored bytes, in the terms in which an operator can act on it.

use std::{io, path::PathBuf, sync::Arc};

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the storage layer. Each says what failed, where, and what to do. Cloned, because one failed sync fails
/// every write that waited for it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// The device is full. Nothing acknowledged is lost; the process must end and can start again once there is space.
    #[error("no space left on the device that holds `{}`; free some and start again, nothing acknowledged is lost", path.display())]
    Full {
        /// The file or directory.
        path: PathBuf,
    },
    /// Stored bytes fail their checksum or make no sense. A node that finds this in its own state must stop.
    #[error(
        "damaged data in {place}: {detail}; restore it from a snapshot, or start over with an empty data directory"
    )]
    Corrupt {
        /// The file or the family and key.
        place: String,
        /// What was found.
        detail: String,
    },
    /// Written by a newer release.
    #[error(
        "{place} has format {found}, this program reads up to {known}; use the newer release that wrote it"
    )]
    UnknownFormat {
        /// The file or the kind of value.
        place: String,
        /// The version found.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// Another process has the directory open.
    #[error("`{}` is in use by another process{}; stop it or use another --data-dir", path.display(), pid.map(|p| format!(" (pid {p})")).unwrap_or_default())]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The other process, where it left its number.
        pid: Option<u32>,
    },
    /// The engine itself failed in another way.
    #[error("storage engine: {0}")]
    Engine(String),
}

impl Error {
    /// An I/O error with its place; a full device becomes [`Error::Full`].
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { path },
            _ => Error::Io { action, path, source: Arc::new(source) },
        }
    }

    /// Damaged bytes.
    pub fn corrupt(place: impl Into<String>, detail: impl Into<String>) -> Self {
        Error::Corrupt { place: place.into(), detail: detail.into() }
    }
}

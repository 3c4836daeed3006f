//! A snapshot that comes in pieces: each is checked and becomes a file, so that a transfer goes on where it broke off, also
//! after a crash and from another leader. One at a time per group.
//!
//! Layout: `<snapshots>/r<group>-<term>-<index>/<number>` is a checksum and the piece.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dolomedes_storage::{Error, Result};

use super::{
    super::{
        pieces::{self, Place},
        snapshot::SnapshotData,
        types::SnapshotMeta,
    },
    wire::Piece,
};

/// What has come of the snapshot that is being received.
pub(super) struct Transfer {
    pub(super) meta: SnapshotMeta,
    dir: PathBuf,
    pub(super) next: u64,
    pub(super) after: Option<Place>,
}

impl Transfer {
    /// Begins to receive, or goes on with what is there of it; whatever was received of others is removed. Blocks.
    pub(super) fn begin(root: &Path, group: u32, meta: SnapshotMeta) -> Result<Self> {
        let name = match meta.last_log_id {
            Some(last) => format!("r{group}-{}-{}", last.leader_id.term, last.index),
            None => format!("r{group}-none"),
        };
        fs::create_dir_all(root).map_err(|error| Error::io("create directory", root, error))?;
        let prefix = format!("r{group}-");
        for entry in fs::read_dir(root).map_err(|error| Error::io("list", root, error))? {
            let entry = entry.map_err(|error| Error::io("list", root, error))?;
            let found = entry.file_name();
            if found.to_str().is_some_and(|found| found.starts_with(&prefix) && found != name) {
                fs::remove_dir_all(entry.path()).map_err(|error| Error::io("remove", entry.path(), error))?;
            }
        }
        let dir = root.join(name);
        fs::create_dir_all(&dir).map_err(|error| Error::io("create directory", &dir, error))?;
        let mut transfer = Self { meta, dir, next: 0, after: None };
        while let Some(place) = transfer.found()? {
            transfer.after = Some(place);
            transfer.next += 1;
        }
        Ok(transfer)
    }

    /// The place where the next piece ends, if it is there and whole.
    fn found(&self) -> Result<Option<Place>> {
        let path = path(&self.dir, self.next);
        match read(&path) {
            Ok(rows) => Ok(self.check(&rows).ok()),
            Err(Error::Corrupt { .. }) => Ok(None),
            Err(_) if !path.exists() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether `rows` follow on what there is, and where they end.
    fn check(&self, rows: &[u8]) -> std::result::Result<Place, String> {
        let (family, rows) = pieces::decode(rows).map_err(|error| error.to_string())?;
        let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) else {
            return Err("a piece is empty".to_owned());
        };
        let follows = self.after.as_ref().is_none_or(|(before, key)| (*before, &key[..]) < (family, first));
        if !follows {
            return Err("a piece does not follow on the one before".to_owned());
        }
        Ok((family, last.clone().into()))
    }

    /// Takes a piece, if it is the next one. Blocks.
    ///
    /// # Errors
    /// If it was damaged on its way, or cannot be written.
    pub(super) fn take(&mut self, piece: &Piece) -> std::result::Result<(), String> {
        if piece.number != self.next {
            return Ok(());
        }
        if crc32fast::hash(&piece.rows) != piece.checksum {
            return Err("the checksum of a piece does not match".to_owned());
        }
        let place = self.check(&piece.rows)?;
        let (aside, path) = (self.dir.join("new"), path(&self.dir, self.next));
        let bytes = [&piece.checksum.to_le_bytes()[..], &piece.rows].concat();
        fs::write(&aside, bytes)
            .and_then(|()| fs::rename(&aside, &path))
            .map_err(|error| Error::io("write", &path, error).to_string())?;
        self.after = Some(place);
        self.next += 1;
        Ok(())
    }

    /// Whether it is the snapshot that ends with entry `last`.
    pub(super) fn covers(&self, last: u64) -> bool {
        self.meta.last_log_id.is_some_and(|id| id.index == last)
    }

    /// All of it, to be installed; the files go with the last handle.
    pub(super) fn finished(self) -> (SnapshotMeta, SnapshotData) {
        (self.meta, SnapshotData::received(self.dir, self.next))
    }
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(number.to_string())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).map_err(|error| Error::io("read", path, error))?;
    let damaged = |why: &str| Error::corrupt(path.display().to_string(), why.to_owned());
    let (sum, rows) = bytes.split_first_chunk::<4>().ok_or_else(|| damaged("it is too short"))?;
    if u32::from_le_bytes(*sum) != crc32fast::hash(rows) {
        return Err(damaged("the checksum does not match"));
    }
    Ok(rows.to_vec())
}

/// Reads piece `number` of what was received in `dir`.
pub(in crate::group) fn read_piece(dir: &Path, number: u64) -> Result<Vec<u8>> {
    read(&path(dir, number))
}

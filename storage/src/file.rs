//! Small files that are replaced whole, and directories that remember it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use crate::error::{Error, Result};

/// Makes the names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| Error::io("sync directory", dir, error))
}

/// Makes the name of `path` in its directory durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => sync_dir(Path::new(".")),
    }
}

/// Puts `bytes` in the place of the file `path`: after a crash it holds all of the old or all of the new content.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, None)
}

/// The same for what only the owner may read and write, from its first byte on.
pub fn replace_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, Some(0o600))
}

/// Makes a directory that only its owner may look into, unless it is there. Durable on return.
pub fn create_private_dir(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        Err(error) => return Err(Error::io("create", path, error)),
    }
    sync_parent(path)
}

fn write(path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<()> {
    let temporary = path.with_extension("tmp");
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        if let Some(mode) = mode {
            options.mode(mode);
        }
        let mut file = options.open(&temporary)?;
        if let Some(mode) = mode {
            // One that a crash has left behind may have another.
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| Error::io("write", path, error))?;
    sync_parent(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_so_whatever_was_there_before() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("keys");
        create_private_dir(&folder).unwrap();
        create_private_dir(&folder).unwrap();
        let path = folder.join("key.pem");
        fs::write(folder.join("key.tmp"), "left behind, longer than the key").unwrap();
        replace_private(&path, b"secret").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"secret");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
    }
}

//! Small files that are replaced whole, and directories that remember it.

use std::{
    fs::{self, File},
    io::Write,
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
    let temporary = path.with_extension("tmp");
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| Error::io("write", path, error))?;
    sync_parent(path)
}

//! A file that a sink appends to, and what a mark remembers of it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{
    Result, SinkError,
    mark::{Mark, MarkedFile},
};

/// Bytes collected before they are written.
const BUFFER: usize = 256 << 10;
/// So many bytes before a mark are checked when the file is opened again.
const TAIL: u64 = 4096;

/// An append-only file with a buffer. Dropping it loses the buffer, as a crash does.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    bytes: u64,
}

impl Output {
    /// Makes a file that must not exist, or be empty if `adopt_empty`.
    pub(super) fn create(path: &Path, adopt_empty: bool) -> Result<Self> {
        refuse_foreign(path, adopt_empty)?;
        let file = open(path, true)?;
        Ok(Self::new(path, file, 0))
    }

    /// Opens a file that `mark` tells of, below `out`, and cuts it back to what the mark says.
    pub(super) fn resume(out: &Path, marked: &MarkedFile, mark: &Mark) -> Result<Self> {
        // A mark of a new file is made before the file.
        let (output, found) = Self::check(out, marked, mark, marked.bytes == 0)?;
        if found > marked.bytes {
            let path = &output.path;
            tracing::info!(file = %path.display(), bytes = found - marked.bytes, "cut back to the last mark");
            output.file.set_len(marked.bytes).map_err(|source| SinkError::io("cut back", path, source))?;
        }
        Ok(output)
    }

    /// Whether the file below `out` is the one that `mark` tells of.
    pub(super) fn matches(out: &Path, marked: &MarkedFile, mark: &Mark) -> bool {
        Self::check(out, marked, mark, false).is_ok()
    }

    fn check(out: &Path, marked: &MarkedFile, mark: &Mark, create: bool) -> Result<(Self, u64)> {
        let path = out.join(&marked.name);
        let file = match open(&path, create) {
            Err(SinkError::Storage(dolomedes_storage::Error::Io { source, .. }))
                if source.kind() == io::ErrorKind::NotFound =>
            {
                return Err(SinkError::Missing {
                    path,
                    delivered: mark.seq,
                    written_to: mark.out.clone().into(),
                });
            }
            other => other?,
        };
        let found = file.metadata().map_err(|source| SinkError::io("look at", &path, source))?.len();
        if found < marked.bytes {
            return Err(SinkError::Shortened { path, found, expected: marked.bytes });
        }
        // An empty file has no last bytes to be known by.
        if marked.bytes == 0 && found > 0 && Path::new(&mark.out) != out {
            return Err(SinkError::Foreign { path });
        }
        let output = Self::new(&path, file, marked.bytes);
        if output.tail_crc()? != marked.tail_crc {
            return Err(SinkError::Changed { path, expected: marked.bytes });
        }
        Ok((output, found))
    }

    fn new(path: &Path, file: File, bytes: u64) -> Self {
        Self { path: path.to_path_buf(), file, buffer: Vec::with_capacity(BUFFER), bytes }
    }

    /// Bytes of the file, buffered ones included.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        if bytes.len() >= BUFFER {
            return self.write_out(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync_data().map_err(|source| SinkError::io("sync", &self.path, source))
    }

    /// What a mark made now has to say; call after [`sync`](Self::sync).
    pub(super) fn marked(&self, name: String) -> Result<MarkedFile> {
        Ok(MarkedFile { name, bytes: self.bytes, tail_crc: self.tail_crc()? })
    }

    fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write_out(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write_out(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|source| SinkError::io("write to", &self.path, source))
    }

    fn tail_crc(&self) -> Result<u32> {
        let from = self.bytes.saturating_sub(TAIL);
        let mut tail = vec![0; (self.bytes - from) as usize];
        self.file
            .read_exact_at(&mut tail, from)
            .map_err(|source| SinkError::io("read back", &self.path, source))?;
        Ok(crc32fast::hash(&tail))
    }
}

fn open(path: &Path, create: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(create);
    options.open(path).map_err(|source| SinkError::io("open for writing", path, source))
}

/// An error if there is something at `path`, other than an empty file if that is allowed.
pub(super) fn refuse_foreign(path: &Path, allow_empty: bool) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(SinkError::io("look at", path, source)),
        Ok(found) if allow_empty && found.is_file() && found.len() == 0 => Ok(()),
        Ok(_) => Err(SinkError::Foreign { path: path.to_path_buf() }),
    }
}

/// Makes the directory `out` if need be; returns its absolute path.
pub(super) fn open_out(out: &Path) -> Result<PathBuf> {
    create_dir(out)?;
    fs::canonicalize(out).map_err(|source| SinkError::io("resolve", out, source))
}

/// Makes the directory `dir` if need be.
pub(super) fn create_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|source| SinkError::io("create the directory", dir, source))
}

/// Makes creations, renames and removals in `dir` survive a crash.
pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|source| SinkError::io("sync the directory", dir, source))
}

/// Replaces the file at `path` as a whole, durably.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = PathBuf::from(name);
    let make = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        write(&mut file)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    make().map_err(|source| SinkError::io("write", path, source))?;
    path.parent().map_or(Ok(()), sync_dir)
}

//! The spool: records kept durably and in order until their receiver has them. One directory of segment files; records
//! are numbered from 1 without gaps. Not a queue: it knows neither consumers nor what a record means, and never drops
//! one by itself.
//!
//! One thread appends ([`Spool`]), another may read and release ([`SpoolReader`]). All calls block on the disk. After a
//! failed write or sync the spool refuses everything: what reached the disk is unknown until it is opened again.

mod reader;
mod segment;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    fmt,
    fs::{self, File, OpenOptions},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use reader::{Shared, Span, State, file_name, sync_dir};
pub use reader::{SpoolEntry, SpoolReader};
use segment::{HEADER, Header, RECORD_HEADER};

use crate::{Error, Result};

/// Sizes of a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// A segment is closed when the next record would make it longer than this. Default 64 MiB.
    pub segment_bytes: u64,
    /// From this total size on the spool says that it [is full](Spool::is_full). Default 1 GiB.
    pub max_bytes: u64,
    /// Appended bytes collected in memory between writes. Default 1 MiB.
    pub buffer_bytes: usize,
}

impl Default for SpoolOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, max_bytes: 1 << 30, buffer_bytes: 1 << 20 }
    }
}

/// What [`Spool::open`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The oldest record that can be read; one above `last_seq` where there is none.
    pub first_seq: u64,
    /// The newest record; 0 where there never was one.
    pub last_seq: u64,
    /// Bytes of a torn last write that were cut off. None of them had been synced.
    pub cut_bytes: u64,
}

/// What the spool asks of the file it appends to; tests put a failing disk in its place.
pub trait SegmentFile: Send {
    /// Appends all of `bytes`.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns when all that was appended is on stable storage.
    fn sync(&mut self) -> io::Result<()>;
}

impl SegmentFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Makes the file to append to out of an opened segment.
pub type Wrap = Box<dyn Fn(File) -> Box<dyn SegmentFile> + Send>;

/// The appending half of a spool. There must be one per directory; that is the business of the data directory's lock.
pub struct Spool {
    shared: Arc<Shared>,
    options: SpoolOptions,
    wrap: Wrap,
    file: Box<dyn SegmentFile>,
    header: Header,
    /// Bytes of the present segment, buffered ones included.
    segment_bytes: u64,
    buffer: Vec<u8>,
    next: u64,
    synced: u64,
    failed: bool,
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool")
            .field("dir", &self.shared.dir)
            .field("next", &self.next)
            .field("synced", &self.synced)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Spool {
    /// Opens the spool in `dir`, which is created if need be. Checks every record; cuts off the last segment's torn end.
    /// Everything that remains is on stable storage afterwards.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a record is damaged that had been synced: one in an older segment, or one before a record
    /// that says so. [`Error::UnknownFormat`] for segments of a newer release.
    pub fn open(dir: &Path, options: SpoolOptions) -> Result<(Self, Recovered)> {
        Self::open_with(dir, options, Box::new(|file| Box::new(file)))
    }

    /// As [`open`](Self::open), appending through what `wrap` makes of each opened segment.
    pub fn open_with(dir: &Path, options: SpoolOptions, wrap: Wrap) -> Result<(Self, Recovered)> {
        // A full spool must be able to empty: what cannot be released yet is the last segment.
        let segment_bytes = options.segment_bytes.min(options.max_bytes / 4).max(1);
        let options = SpoolOptions { segment_bytes, ..options };
        create_dir(dir)?;
        let mut state = State::default();
        let mut cut_bytes = 0;
        let firsts = list_segments(dir)?;
        for (at, &first) in firsts.iter().enumerate() {
            let path = dir.join(file_name(first));
            let is_last = at + 1 == firsts.len();
            if at > 0 && first != state.last_seq + 1 {
                return Err(Error::corrupt(
                    format!("the spool `{}`", dir.display()),
                    format!("records {} to {} are missing", state.last_seq + 1, first.saturating_sub(1)),
                ));
            }
            let checked = check_segment(&path, first, is_last)?;
            state.last_seq = checked.last;
            state.total_bytes += checked.span.bytes;
            state.segments.push_back(checked.span);
            cut_bytes = checked.cut;
        }
        let (file, span) = match state.segments.back().copied() {
            Some(span) => (reopen(&dir.join(file_name(span.first)), span.bytes)?, span),
            None => {
                let (file, span) = create_segment(dir, 1)?;
                state.segments = VecDeque::from([span]);
                state.total_bytes = span.bytes;
                (file, span)
            }
        };
        state.synced_upto = state.last_seq;
        let recovered = Recovered {
            first_seq: state.segments.front().map_or(1, |span| span.first),
            last_seq: state.last_seq,
            cut_bytes,
        };
        state.released_upto = recovered.first_seq.saturating_sub(1);
        let spool = Self {
            options,
            file: wrap(file),
            wrap,
            header: Header { first: span.first, salt: span.salt },
            segment_bytes: span.bytes,
            buffer: Vec::with_capacity(options.buffer_bytes),
            next: recovered.last_seq + 1,
            synced: recovered.last_seq,
            failed: false,
            shared: Shared::new(dir, state),
        };
        Ok((spool, recovered))
    }

    /// Appends a record and returns its sequence number. It is durable after the next [`sync`](Self::sync) only.
    ///
    /// # Errors
    /// As for [`sync`](Self::sync); also for a body above 512 MiB, which leaves the spool as it was.
    pub fn append(&mut self, body: &[u8]) -> Result<u64> {
        self.check_usable()?;
        if body.len() > segment::MAX_BODY {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "the record exceeds 512 MiB");
            return Err(Error::io("append to the spool", &self.shared.dir, source));
        }
        let size = (RECORD_HEADER + body.len()) as u64;
        if self.segment_bytes > HEADER as u64 && self.segment_bytes + size > self.options.segment_bytes {
            self.rotate()?;
        }
        let seq = self.next;
        segment::push_record(&mut self.buffer, self.header.salt, seq, self.synced, body);
        self.next += 1;
        self.segment_bytes += size;
        {
            let mut state = self.shared.state();
            state.total_bytes += size;
            state.last_seq = seq;
        }
        if self.buffer.len() >= self.options.buffer_bytes {
            self.flush()?;
        }
        Ok(seq)
    }

    /// Appends records in order and returns the sequence number of the last one.
    pub fn append_batch<B: AsRef<[u8]>>(&mut self, bodies: impl IntoIterator<Item = B>) -> Result<u64> {
        for body in bodies {
            self.append(body.as_ref())?;
        }
        Ok(self.last_seq())
    }

    /// Returns when every appended record is on stable storage (one `fdatasync`; none if there is nothing to do), with
    /// the sequence number of the newest.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Io`]. The spool is unusable then and must be opened again: the kernel may have dropped
    /// what it failed to write, so nothing is retried. Records synced before are safe.
    pub fn sync(&mut self) -> Result<u64> {
        self.check_usable()?;
        if self.synced < self.last_seq() {
            self.flush()?;
            if let Err(source) = self.file.sync() {
                return Err(self.fail("sync the segment", source));
            }
            self.synced = self.last_seq();
            let mut state = self.shared.state();
            state.synced_upto = self.synced;
            if let Some(span) = state.segments.back_mut() {
                span.bytes = self.segment_bytes;
            }
        }
        Ok(self.synced)
    }

    /// The newest record's sequence number; 0 before the first.
    pub fn last_seq(&self) -> u64 {
        self.next - 1
    }

    /// The newest sequence number on stable storage.
    pub fn synced_upto(&self) -> u64 {
        self.synced
    }

    /// Whether the spool has reached its size and waits for records to be released. Nobody is kept from appending: the
    /// caller takes in no new work until it is not full any more, so the excess is what was in flight.
    pub fn is_full(&self) -> bool {
        self.shared.is_full(self.options.max_bytes)
    }

    /// A reading half.
    pub fn reader(&self) -> SpoolReader {
        SpoolReader::new(Arc::clone(&self.shared))
    }

    /// Deletes the segments that hold only records up to `upto`.
    pub fn release(&mut self, upto: u64) -> Result<()> {
        self.shared.release(upto)
    }

    fn check_usable(&self) -> Result<()> {
        if self.failed {
            let source = io::Error::other("an earlier write failed; start again");
            return Err(Error::io("use the spool", &self.shared.dir, source));
        }
        Ok(())
    }

    fn fail(&mut self, action: &'static str, source: io::Error) -> Error {
        self.failed = true;
        Error::io(action, self.shared.path(self.header.first), source)
    }

    fn flush(&mut self) -> Result<()> {
        if let Err(source) = self.file.append(&self.buffer) {
            return Err(self.fail("write to the segment", source));
        }
        self.buffer.clear();
        // One huge record should not keep its memory for ever.
        self.buffer.shrink_to(self.options.buffer_bytes.saturating_mul(4));
        Ok(())
    }

    fn rotate(&mut self) -> Result<()> {
        // Synced first: only the last segment may have a torn end.
        self.sync()?;
        match create_segment(&self.shared.dir, self.next) {
            Ok((file, span)) => {
                self.file = (self.wrap)(file);
                self.header = Header { first: span.first, salt: span.salt };
                self.segment_bytes = span.bytes;
                let mut state = self.shared.state();
                state.total_bytes += span.bytes;
                state.segments.push_back(span);
                Ok(())
            }
            Err(error) => {
                self.failed = true;
                Err(error)
            }
        }
    }
}

/// A segment found whole, up to where its torn end was.
struct Checked {
    span: Span,
    last: u64,
    cut: u64,
}

fn check_segment(path: &Path, first: u64, is_last: bool) -> Result<Checked> {
    let bytes = fs::read(path).map_err(|source| Error::io("read the segment", path, source))?;
    let header = Header::decode(&bytes, path)?;
    if header.first != first || first == 0 {
        return Err(Error::corrupt(
            format!("spool segment `{}`", path.display()),
            format!("it begins with record {}, unlike its name", header.first),
        ));
    }
    let (mut at, mut next) = (HEADER, first);
    while at < bytes.len() {
        match segment::parse_record(&bytes[at..], header.salt, next) {
            Ok(size) => {
                at += size;
                next += 1;
            }
            Err(_) if is_last && !segment::proves_damage(&bytes[at..], header.salt, next) => break,
            Err(detail) => {
                return Err(Error::corrupt(
                    format!("spool segment `{}` at byte {at}", path.display()),
                    format!("record {next}: {detail}"),
                ));
            }
        }
    }
    let span = Span { first, salt: header.salt, bytes: at as u64 };
    Ok(Checked { span, last: next - 1, cut: (bytes.len() - at) as u64 })
}

/// Opens the last segment for appending behind its first `bytes`.
fn reopen(path: &Path, bytes: u64) -> Result<File> {
    let open = || -> io::Result<File> {
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(bytes)?;
        // What a killed process wrote may be in memory only; from here on it counts as synced.
        file.sync_all()?;
        Ok(file)
    };
    open().map_err(|source| Error::io("open the segment", path, source))
}

/// Makes an empty segment. It gets its name when its header is durable, so that no segment has a torn header.
fn create_segment(dir: &Path, first: u64) -> Result<(File, Span)> {
    let path = dir.join(file_name(first));
    let temporary = temporary_path(&path);
    let salt = RandomState::new().build_hasher().finish() as u32;
    let create = || -> io::Result<File> {
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&temporary)?;
        file.write_all(&Header { first, salt }.encode())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        Ok(file)
    };
    let file = create().map_err(|source| Error::io("create the segment", &path, source))?;
    sync_dir(dir)?;
    Ok((file, Span { first, salt, bytes: HEADER as u64 }))
}

fn temporary_path(path: &Path) -> PathBuf {
    path.with_extension("spool-new")
}

fn create_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(|source| Error::io("create the directory", dir, source))?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => Ok(()),
    }
}

/// First sequence numbers of the segments in `dir`, ascending. Removes what a crash left of one being created.
fn list_segments(dir: &Path) -> Result<Vec<u64>> {
    let list = || -> io::Result<Vec<u64>> {
        let mut firsts = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(".spool-new") {
                fs::remove_file(&path)?;
            } else if let Some(first) = name.strip_suffix(".spool").and_then(|stem| stem.parse().ok())
                && name == file_name(first)
            {
                firsts.push(first);
            }
        }
        firsts.sort_unstable();
        Ok(firsts)
    };
    list().map_err(|source| Error::io("list the directory", dir, source))
}

//! The reading and releasing half of the spool, for use on another thread than the one that appends. Reads only what is on
//! stable storage, so it never meets a half-written record.

use std::{
    collections::VecDeque,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::segment::{self, HEADER, RECORD_HEADER};
use crate::{Error, Result};

/// A record read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolEntry {
    /// Its sequence number.
    pub seq: u64,
    /// Its body. Shares a buffer with its neighbours; copy it to keep it for long.
    pub body: Bytes,
}

/// A segment as far as it is on stable storage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) salt: u32,
    pub(super) bytes: u64,
}

/// What both halves of a spool know.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Ascending, without gaps; the last one is being appended to.
    pub(super) segments: VecDeque<Span>,
    pub(super) synced_upto: u64,
    pub(super) last_seq: u64,
    /// Bytes of all segments, written or still buffered.
    pub(super) total_bytes: u64,
    pub(super) released_upto: u64,
}

impl Shared {
    pub(super) fn new(dir: &Path, state: State) -> Arc<Self> {
        Arc::new(Self { dir: dir.to_path_buf(), state: Mutex::new(state) })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self, first: u64) -> PathBuf {
        self.dir.join(file_name(first))
    }

    pub(super) fn is_full(&self, max_bytes: u64) -> bool {
        let state = self.state();
        state.released_upto < state.last_seq && state.total_bytes >= max_bytes
    }

    pub(super) fn release(&self, upto: u64) -> Result<()> {
        loop {
            let (path, bytes) = {
                let mut state = self.state();
                state.released_upto = state.released_upto.max(upto.min(state.last_seq));
                match (state.segments.front().copied(), state.segments.get(1).copied()) {
                    (Some(oldest), Some(next)) if next.first <= state.released_upto.saturating_add(1) => {
                        state.segments.pop_front();
                        state.total_bytes = state.total_bytes.saturating_sub(oldest.bytes);
                        (self.path(oldest.first), oldest.bytes)
                    }
                    _ => return Ok(()),
                }
            };
            tracing::debug!(segment = %path.display(), bytes, "spool segment released");
            fs::remove_file(&path).map_err(|source| Error::io("remove the segment", &path, source))?;
            // One by one and in order, so that a crash leaves no gap between the segments that remain.
            sync_dir(&self.dir)?;
        }
    }
}

/// Reads and releases records. One is made by [`Spool::reader`](super::Spool::reader); it stays valid while the spool is
/// appended to from another thread.
#[derive(Debug)]
pub struct SpoolReader {
    shared: Arc<Shared>,
    cursor: Option<Cursor>,
}

/// Where the next record in sequence is.
#[derive(Debug)]
struct Cursor {
    file: File,
    path: PathBuf,
    span: Span,
    next: u64,
    offset: u64,
}

impl SpoolReader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, cursor: None }
    }

    /// The oldest sequence number that can still be read (one above [`synced_upto`](Self::synced_upto) where there is
    /// none).
    pub fn first_seq(&self) -> u64 {
        self.shared.state().segments.front().map_or(1, |span| span.first)
    }

    /// The greatest sequence number on stable storage: what can be read.
    pub fn synced_upto(&self) -> u64 {
        self.shared.state().synced_upto
    }

    /// Records `from` to `upto` as far as they are on stable storage, in order, at least one if there is one. Ends where
    /// about `max_bytes` are reached; only the first may go beyond that. Reading on where the last call ended is cheap.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a record is damaged or `from` was released already.
    pub fn read(&mut self, from: u64, upto: u64, max_bytes: usize) -> Result<Vec<SpoolEntry>> {
        let mut entries = Vec::new();
        let mut budget = max_bytes;
        loop {
            let next = entries.last().map_or(from, |entry: &SpoolEntry| entry.seq + 1);
            let upto = upto.min(self.synced_upto());
            if next > upto || (budget == 0 && !entries.is_empty()) {
                return Ok(entries);
            }
            self.seek(next)?;
            let Some(cursor) = &mut self.cursor else { return Ok(entries) };
            let used = cursor.read((from, upto), budget, &mut entries)?;
            if used == 0 && !entries.is_empty() {
                return Ok(entries);
            }
            budget = budget.saturating_sub(used);
        }
    }

    /// Deletes the segments that hold only records up to `upto`. The rest of them goes with a later call.
    pub fn release(&mut self, upto: u64) -> Result<()> {
        self.shared.release(upto)
    }

    /// Puts the cursor into the segment of record `seq`, with its present length.
    fn seek(&mut self, seq: u64) -> Result<()> {
        let span = {
            let state = self.shared.state();
            let behind = state.segments.partition_point(|span| span.first <= seq);
            behind.checked_sub(1).and_then(|at| state.segments.get(at).copied())
        };
        let Some(span) = span else {
            return Err(Error::corrupt(
                format!("the spool `{}`", self.shared.dir.display()),
                format!("record {seq} is wanted, but the oldest one that is left is {}", self.first_seq()),
            ));
        };
        match &mut self.cursor {
            Some(cursor) if cursor.span.first == span.first && cursor.next <= seq => cursor.span = span,
            cursor => {
                let path = self.shared.path(span.first);
                let file =
                    File::open(&path).map_err(|source| Error::io("open the segment", &path, source))?;
                *cursor = Some(Cursor { file, path, span, next: span.first, offset: HEADER as u64 });
            }
        }
        Ok(())
    }
}

impl Cursor {
    /// Reads one stretch of records, keeping those from `from` on, not going beyond `upto`. Returns the bytes kept.
    fn read(
        &mut self,
        (from, upto): (u64, u64),
        budget: usize,
        entries: &mut Vec<SpoolEntry>,
    ) -> Result<usize> {
        /// The least stretch worth a system call.
        const LEAST: u64 = 16 << 10;
        let left = self.span.bytes.saturating_sub(self.offset);
        let mut chunk = self.load(left.min(LEAST.max(budget as u64)) as usize)?;
        let first = segment::record_size(&chunk).map_err(|detail| self.damaged(detail))?;
        if first > chunk.len() {
            if first as u64 > left {
                return Err(self.damaged("a record ends early"));
            }
            chunk = self.load(first)?;
        }
        let chunk = Bytes::from(chunk);
        let (mut at, mut kept) = (0, 0);
        // The last record of the stretch may be cut off by the stretch's end; the next call begins with it.
        while self.next <= upto
            && let Ok(size) = segment::record_size(&chunk[at..])
            && size <= chunk.len() - at
            && (entries.is_empty() || kept + size <= budget)
        {
            segment::parse_record(&chunk[at..], self.span.salt, self.next)
                .map_err(|detail| self.damaged(detail))?;
            if self.next >= from {
                kept += size;
                entries.push(SpoolEntry { seq: self.next, body: chunk.slice(at + RECORD_HEADER..at + size) });
            }
            at += size;
            self.next += 1;
            self.offset += size as u64;
        }
        Ok(kept)
    }

    fn load(&self, count: usize) -> Result<Vec<u8>> {
        let mut chunk = vec![0; count];
        self.file
            .read_exact_at(&mut chunk, self.offset)
            .map_err(|source| Error::io("read the segment", &self.path, source))?;
        Ok(chunk)
    }

    fn damaged(&self, detail: &str) -> Error {
        Error::corrupt(
            format!("spool segment `{}` at byte {}", self.path.display(), self.offset),
            format!("record {}: {detail}", self.next),
        )
    }
}

/// The name of the segment whose first record has number `first`.
pub(super) fn file_name(first: u64) -> String {
    format!("{first:020}.spool")
}

/// Makes creations, renames and removals in `dir` survive a crash.
pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|source| Error::io("sync the directory", dir, source))
}

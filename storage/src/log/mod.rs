//! The Raft log's bytes, for many groups in one engine: entries, vote, purge mark, committed mark. Knows indexes and
//! opaque payloads, nothing of terms, membership or openraft.
//!
//! Appends are written unsynced, readable at once, and completed by the node's [`LogSync`]. All that a group writes
//! goes through the engine's one ordered write-ahead log, so that a vote can never survive an append that came before it.

mod frame;
mod sync;
mod tail;

use std::{
    ops::{ControlFlow, Range},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use self::{
    frame::{Fact, entry_index, entry_key},
    tail::{Account, Tail},
};
use crate::{
    engine::{Batch, Durability, Engine, Family, Reader},
    error::{Error, Result},
};

pub use self::{
    frame::META_TAG,
    sync::{Completion, LogSync},
};

/// How a [`LogStore`] behaves.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The newest entries up to so many bytes are kept in memory.
    pub tail_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { tail_bytes: 4 << 20 }
    }
}

/// The log of one group. Clones are handles to the same log; there must be only one opened per group and engine.
///
/// Reads may run beside writes and see each append, truncation and purge whole or not at all.
#[derive(Clone)]
pub struct LogStore {
    inner: Arc<Inner>,
}

struct Inner {
    group: u32,
    sync: Arc<LogSync>,
    state: Mutex<State>,
}

struct State {
    /// First and last index held.
    held: Option<(u64, u64)>,
    /// The purge mark: greatest index purged, and the caller's bytes for it.
    purged: Option<(u64, Bytes)>,
    tail: Tail,
    account: Account,
}

impl State {
    /// The index that the next entry must have; any, in a log that never held one.
    fn next(&self) -> Option<u64> {
        self.held.map(|(_, last)| last + 1).or(self.purged.as_ref().map(|(upto, _)| upto + 1))
    }
}

impl LogStore {
    /// Opens the log of `group` in the engine of `sync`, empty if there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the purge mark and the entries do not meet.
    pub fn open(sync: &Arc<LogSync>, group: u32, options: LogOptions) -> Result<Self> {
        let engine = sync.engine();
        let (from, to) = (entry_key(group, 0), entry_key(group, u64::MAX));
        let first = edge(&mut |visit| engine.scan(Family::Log, &from, &to, visit))?;
        let last = edge(&mut |visit| engine.scan_back(Family::Log, &from, &to, visit))?;
        let held = first.zip(last);
        let purged = read_fact(engine.as_ref(), group, Fact::Purged)?.map(split_mark).transpose()?;
        if let (Some((first, _)), Some((upto, _))) = (held, &purged)
            && first != upto + 1
        {
            return Err(Error::corrupt(
                format!("the log of group {group}"),
                format!("entries up to {upto} are purged, but the first one held is {first}"),
            ));
        }
        let mut account = Account::default();
        if let Some((first, last)) = held {
            account.add(first, last, engine.approximate_size(Family::Log, &from, &to)?);
        }
        let state = State { held, purged, tail: Tail::new(options.tail_bytes), account };
        Ok(Self { inner: Arc::new(Inner { group, sync: sync.clone(), state: Mutex::new(state) }) })
    }

    /// Writes entries with consecutive indexes behind the last one. On return they can be read; `done` is called when
    /// they are durable, after those of all earlier submissions. Blocks while too many completions are pending.
    ///
    /// # Errors
    /// If the indexes do not follow on, nothing is written; if the engine fails, the state on disk is unknown and
    /// nothing will be reported as durable any more. `done` gets the same error in its turn.
    pub fn append(&self, entries: impl IntoIterator<Item = (u64, Bytes)>, done: Completion) -> Result<()> {
        self.inner.sync.wait_for_room();
        let mut state = self.state();
        let written = self.write_entries(&mut state, entries);
        self.inner.sync.push(done, written.clone().err());
        written
    }

    fn write_entries(
        &self,
        state: &mut State,
        entries: impl IntoIterator<Item = (u64, Bytes)>,
    ) -> Result<()> {
        let group = self.inner.group;
        let mut next = state.next();
        let mut batch = Batch::new();
        let mut added = Vec::new();
        for (index, payload) in entries {
            if next.is_some_and(|next| next != index) || index == u64::MAX {
                return Err(misuse(group, format!("entry {index} does not follow on; next is {next:?}")));
            }
            let key = entry_key(group, index);
            batch.put(Family::Log, key, frame::seal(&key, &payload));
            added.push((index, payload));
            next = Some(index + 1);
        }
        let (Some(&(first, _)), Some(&(last, _))) = (added.first(), added.last()) else {
            return Ok(());
        };
        self.write(batch)?;
        state.held = Some((state.held.map_or(first, |(first, _)| first), last));
        for (index, payload) in added {
            state.account.add(index, index, (payload.len() + frame::OVERHEAD) as u64);
            state.tail.push(index, payload);
        }
        Ok(())
    }

    /// The entries of `range` that the log holds, ascending, without a gap.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an entry that is missing between others, or fails its checksum.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<(u64, Bytes)>> {
        self.read_limited(range, usize::MAX)
    }

    /// Like [`read`](Self::read), but stops after the entry with which the payloads reach `max_bytes`: a prefix, empty
    /// only if the log holds nothing of `range`.
    pub fn read_limited(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<(u64, Bytes)>> {
        let group = self.inner.group;
        let state = self.state();
        let Some((first, last)) = state.held else {
            return Ok(Vec::new());
        };
        let (from, to) = (range.start.max(first), range.end.min(last + 1));
        if from >= to {
            return Ok(Vec::new());
        }
        let in_memory = state.tail.first().unwrap_or(to).clamp(from, to);
        let newest: Vec<_> =
            (in_memory..to).filter_map(|index| Some((index, state.tail.get(index)?.clone()))).collect();
        let mut read = Prefix { entries: Vec::new(), bytes: 0, max_bytes };
        if from < in_memory {
            // Taken under the lock, so that it holds exactly what the indexes above say.
            let snapshot = self.engine().snapshot();
            drop(state);
            if let ControlFlow::Break(()) = read_stored(snapshot.as_ref(), group, from..in_memory, &mut read)?
            {
                return Ok(read.entries);
            }
        }
        for (index, payload) in newest {
            if read.push(index, payload).is_break() {
                break;
            }
        }
        Ok(read.entries)
    }

    /// The last entry held.
    pub fn last(&self) -> Result<Option<(u64, Bytes)>> {
        match self.last_index() {
            Some(last) => Ok(self.read(last..last + 1)?.pop()),
            None => Ok(None),
        }
    }

    /// Index of the first entry held.
    pub fn first_index(&self) -> Option<u64> {
        self.state().held.map(|(first, _)| first)
    }

    /// Index of the last entry held. Of an empty log, see [`purged`](Self::purged).
    pub fn last_index(&self) -> Option<u64> {
        self.state().held.map(|(_, last)| last)
    }

    /// Removes all entries after `keep`, or all. Unsynced: durable with whatever is synced next.
    pub fn truncate_after(&self, keep: Option<u64>) -> Result<()> {
        let mut state = self.state();
        let from = keep.map_or(0, |keep| keep.saturating_add(1));
        let Some((first, last)) = state.held.filter(|&(_, last)| from <= last) else {
            return Ok(());
        };
        let from = from.max(first);
        let mut batch = Batch::new();
        batch.delete_range(
            Family::Log,
            entry_key(self.inner.group, from),
            entry_key(self.inner.group, last + 1),
        );
        self.write(batch)?;
        state.held = from.checked_sub(1).filter(|&last| first <= last).map(|last| (first, last));
        state.tail.truncate(from);
        state.account.truncate(from);
        Ok(())
    }

    /// Removes all entries up to and including `upto`, which may lie behind the last one, and keeps `mark` (the
    /// caller's encoding of the log id) in the same step. A purge up to less than before changes nothing. Unsynced.
    pub fn purge(&self, upto: u64, mark: &[u8]) -> Result<()> {
        let group = self.inner.group;
        let mut state = self.state();
        if state.purged.as_ref().is_some_and(|&(before, _)| upto <= before) {
            return Ok(());
        }
        if upto == u64::MAX || state.held.is_some_and(|(first, _)| upto + 1 < first) {
            return Err(misuse(group, format!("a purge up to {upto} leaves a gap before {:?}", state.held)));
        }
        let mut value = upto.to_be_bytes().to_vec();
        value.extend_from_slice(mark);
        let key = Fact::Purged.key(group);
        let mut batch = Batch::new();
        batch.put(Family::Meta, key, frame::seal(&key, &value));
        if let Some((first, _)) = state.held {
            batch.delete_range(Family::Log, entry_key(group, first), entry_key(group, upto + 1));
        }
        self.write(batch)?;
        state.held = state.held.filter(|&(_, last)| upto < last).map(|(_, last)| (upto + 1, last));
        state.purged = Some((upto, Bytes::copy_from_slice(mark)));
        state.tail.purge(upto);
        state.account.purge(upto);
        Ok(())
    }

    /// The purge mark: greatest index purged, and the bytes given with it.
    pub fn purged(&self) -> Option<(u64, Bytes)> {
        self.state().purged.clone()
    }

    /// Saves the vote; durable on return, together with everything written before. Blocks for a sync.
    pub fn save_vote(&self, vote: &[u8]) -> Result<()> {
        self.write_fact(Fact::Vote, vote)?;
        self.inner.sync.wait()
    }

    /// The vote saved last.
    pub fn read_vote(&self) -> Result<Option<Bytes>> {
        read_fact(self.engine().as_ref(), self.inner.group, Fact::Vote)
    }

    /// Saves how far the log is known to be committed. Unsynced: after a crash it may be older.
    pub fn save_committed(&self, committed: &[u8]) -> Result<()> {
        self.write_fact(Fact::Committed, committed)
    }

    /// What [`save_committed`](Self::save_committed) was given last.
    pub fn read_committed(&self) -> Result<Option<Bytes>> {
        read_fact(self.engine().as_ref(), self.inner.group, Fact::Committed)
    }

    /// About how many bytes the entries take, before compression.
    pub fn held_bytes(&self) -> u64 {
        self.state().account.total()
    }

    /// The greatest index whose purge leaves about `keep_bytes` of entries; `None` while the log is smaller than that.
    pub fn purgeable(&self, keep_bytes: u64) -> Option<u64> {
        self.state().account.purgeable(keep_bytes)
    }

    /// The thread that makes this log durable.
    pub fn sync(&self) -> &Arc<LogSync> {
        &self.inner.sync
    }

    fn engine(&self) -> &Arc<dyn Engine> {
        self.inner.sync.engine()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, batch: Batch) -> Result<()> {
        if let Some(error) = self.inner.sync.failure() {
            return Err(error);
        }
        self.engine().write(batch, Durability::Buffered).inspect_err(|error| self.inner.sync.fail(error))
    }

    fn write_fact(&self, fact: Fact, value: &[u8]) -> Result<()> {
        let key = fact.key(self.inner.group);
        let mut batch = Batch::new();
        batch.put(Family::Meta, key, frame::seal(&key, value));
        self.write(batch)
    }
}

/// A growing prefix of what was asked for, with its byte cap.
struct Prefix {
    entries: Vec<(u64, Bytes)>,
    bytes: usize,
    max_bytes: usize,
}

impl Prefix {
    fn push(&mut self, index: u64, payload: Bytes) -> ControlFlow<()> {
        self.bytes = self.bytes.saturating_add(payload.len());
        self.entries.push((index, payload));
        if self.bytes >= self.max_bytes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Reads all of `range` from the engine; `Break` when the cap was reached.
fn read_stored(
    reader: &dyn Reader,
    group: u32,
    range: Range<u64>,
    read: &mut Prefix,
) -> Result<ControlFlow<()>> {
    let mut expected = range.start;
    let mut outcome = Ok(ControlFlow::Continue(()));
    reader.scan(
        Family::Log,
        &entry_key(group, range.start),
        &entry_key(group, range.end),
        &mut |key, value| {
            let row = entry_index(key)
                .and_then(
                    |index| if index == expected { Ok(index) } else { Err(gap(group, expected, index)) },
                )
                .and_then(|index| Ok((index, frame::open(Family::Log, key, value.to_vec())?)));
            match row {
                Ok((index, payload)) => {
                    expected = index + 1;
                    let flow = read.push(index, payload);
                    outcome = Ok(flow);
                    flow
                }
                Err(error) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            }
        },
    )?;
    let flow = outcome?;
    if flow.is_continue() && expected != range.end {
        return Err(gap(group, expected, range.end));
    }
    Ok(flow)
}

/// The index of the first row that a scan yields.
fn edge(scan: &mut dyn FnMut(crate::engine::Visit<'_>) -> Result<()>) -> Result<Option<u64>> {
    let mut found = Ok(None);
    scan(&mut |key, _| {
        found = entry_index(key).map(Some);
        ControlFlow::Break(())
    })?;
    found
}

fn read_fact(reader: &dyn Engine, group: u32, fact: Fact) -> Result<Option<Bytes>> {
    let key = fact.key(group);
    reader.get(Family::Meta, &key)?.map(|row| frame::open(Family::Meta, &key, row)).transpose()
}

fn split_mark(value: Bytes) -> Result<(u64, Bytes)> {
    match value.first_chunk::<8>() {
        Some(&upto) => Ok((u64::from_be_bytes(upto), value.slice(8..))),
        None => Err(Error::corrupt("a purge mark of the log", "it is shorter than an index")),
    }
}

fn gap(group: u32, expected: u64, found: u64) -> Error {
    Error::corrupt(
        format!("the log of group {group}"),
        format!("entry {expected} is missing, {found} comes next"),
    )
}

fn misuse(group: u32, detail: String) -> Error {
    Error::Engine(format!("the log of group {group} refused a change: {detail}"))
}

//! openraft's view of a group's log. The bytes, their order on disk and the one sync thread are
//! [`dolomedes_storage::log`]'s; here they get terms and votes.

use std::{
    fmt::Debug,
    io,
    ops::{Bound, Range, RangeBounds},
};

use dolomedes_storage::{Error, log};
use futures_util::{Stream, TryStreamExt, stream};
use openraft::{
    LogState, OptionalSend, RaftLogReader,
    storage::{IOFlushed, RaftLogStorage},
};

use super::{
    format,
    types::{LogEntry, LogId, Types, Vote},
};

/// Entries read at once for replication or for applying end with the one that reaches so many bytes, so that neither
/// takes a whole log into memory.
const READ_BYTES: usize = 1 << 20;

/// The log of one group. Clones are handles to the same log.
#[derive(Clone)]
pub struct GroupLog {
    store: log::LogStore,
}

impl GroupLog {
    /// The log over `store`, which must be the only one opened for its group.
    pub fn new(store: log::LogStore) -> Self {
        Self { store }
    }

    fn read(&self, range: Range<u64>, max_bytes: usize) -> io::Result<Vec<LogEntry>> {
        let stored = self.store.read_limited(range, max_bytes).map_err(fatal)?;
        stored.into_iter().map(|(index, value)| format::decode_entry(index, value).map_err(damaged)).collect()
    }

    fn purged(&self) -> io::Result<Option<LogId>> {
        self.store.purged().map(|(_, mark)| format::decode_log_id(&mark).map_err(damaged)).transpose()
    }
}

/// An error that ends the group: openraft stops it, and the process after it.
pub(super) fn fatal(error: Error) -> io::Error {
    io::Error::other(error)
}

/// Bytes that make no sense.
pub(super) fn damaged(error: impl Into<Error>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.into())
}

fn indexes(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(&index) => index,
        Bound::Excluded(&index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&index) => index.saturating_add(1),
        Bound::Excluded(&index) => index,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl RaftLogReader<Types> for GroupLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<LogEntry>> {
        self.read(indexes(&range), usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<LogEntry>> {
        self.read(start..end, READ_BYTES)
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<LogEntry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let log = self.clone();
        stream::try_unfold(indexes(&range), move |left| {
            let pieces = log.read(left.clone(), READ_BYTES).map(|piece| {
                let next = piece.last()?.log_id.index + 1;
                Some((stream::iter(piece.into_iter().map(Ok)), next..left.end))
            });
            std::future::ready(pieces)
        })
        .try_flatten()
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        let vote = self.store.read_vote().map_err(fatal)?;
        vote.map(|vote| format::decode_vote(&vote).map_err(damaged)).transpose()
    }
}

impl RaftLogStorage<Types> for GroupLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let last_purged_log_id = self.purged()?;
        let last = self.store.last().map_err(fatal)?;
        let last =
            last.map(|(index, value)| format::decode_entry(index, value).map_err(damaged)).transpose()?;
        let last_log_id = last.map(|entry| entry.log_id).or(last_purged_log_id);
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.store.save_vote(&format::encode_vote(vote)).map_err(fatal)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries =
            entries.into_iter().map(|entry| (entry.log_id.index, format::encode_entry(&entry).into()));
        let done = Box::new(move |result: Result<(), Error>| callback.io_completed(result.map_err(fatal)));
        self.store.append(entries, done).map_err(fatal)
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.store.truncate_after(last.map(|id| id.index)).map_err(fatal)
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.store.purge(upto.index, &format::encode_log_id(&upto)).map_err(fatal)
    }
}

//! Looking at the registry, the feed of changes and the history of checkpoints. Where an answer is made of several rows
//! (a page with its revision), the reader must be a snapshot for it to be one state.

use std::ops::ControlFlow;

use bytes::Bytes;
use dolomedes_storage::{Result, engine::Family};

use super::{CheckpointInfo, State, behind, checkpoint_info};
use crate::{
    command::{Change, Event, LogTime, Revision, SessionId},
    machine::{
        records::{Checkpoint, Facts, PastCheckpoint, RegistryKey, decode_event},
        tables::{Table, parts},
    },
};

/// Events that one look at the feed goes through, wanted or not.
const FEED_VISITS: u64 = 65_536;

/// A key of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The revision of its first change since it exists.
    pub created: Revision,
    /// The revision of its last change.
    pub revision: Revision,
    /// The session that it goes with.
    pub session: Option<SessionId>,
}

/// Keys of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryPage {
    /// The newest change's: a watch from the next one on misses nothing. Of several pages, that is the first page's; what
    /// changed while they were read comes again as events.
    pub revision: Revision,
    /// The keys, in order.
    pub keys: Vec<KeyEntry>,
    /// Whether there may be more behind the last one.
    pub more: bool,
}

/// Which events are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    /// All.
    All,
    /// Of keys of the registry that begin so.
    Registry(Bytes),
    /// Of locks whose names begin so.
    Locks(String),
    /// Of checkpoints whose names begin so.
    Checkpoints(String),
}

impl Feed {
    fn wants(&self, change: &Change) -> bool {
        match (self, change) {
            (Feed::All, _) => true,
            (Feed::Registry(prefix), Change::Set { key, .. } | Change::Deleted { key, .. }) => {
                key.starts_with(prefix)
            }
            (Feed::Locks(prefix), Change::Granted { lock, .. } | Change::Released { lock, .. }) => {
                lock.starts_with(prefix.as_str())
            }
            (Feed::Checkpoints(prefix), Change::Checkpoint { name, .. }) => name.starts_with(prefix.as_str()),
            _ => false,
        }
    }
}

/// What the feed has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Events {
    /// Every wanted event from the revision that was asked for up to before `next`.
    Events {
        /// In order.
        events: Vec<Event>,
        /// Where to go on.
        next: Revision,
        /// The newest change's: with `next` above it, there is nothing more yet.
        newest: Revision,
    },
    /// Events that were asked for are not kept any more: list anew, and go on behind that list's revision.
    Compacted {
        /// The oldest that is kept, or will be.
        oldest: Revision,
    },
}

/// A version of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastVersion {
    /// Its number.
    pub version: u64,
    /// Log time of the write.
    pub at: LogTime,
    /// Its value.
    pub value: Bytes,
}

impl State<'_> {
    fn facts(&self) -> Result<Facts> {
        Ok(self.record::<Facts>(&self.tables.single(Table::Facts))?.unwrap_or_default())
    }

    /// The newest change's revision; 0: there was none yet.
    pub fn revision(&self) -> Result<Revision> {
        Ok(self.facts()?.revision)
    }

    /// A key of the registry.
    pub fn registry_key(&self, key: &[u8]) -> Result<Option<KeyEntry>> {
        let found = self.reader.get(Family::State, &self.tables.keyed(Table::Registry, key))?;
        let found = found.map(RegistryKey::decode).transpose()?;
        Ok(found.map(|found| key_entry(Bytes::copy_from_slice(key), found)))
    }

    /// The keys that begin with `prefix` and come behind `after`, at most `limit`.
    pub fn registry(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<RegistryPage> {
        let revision = self.revision()?;
        let mut range = self.tables.keyed_under(Table::Registry, prefix);
        if let Some(after) = after {
            range.0 = range.0.max(behind(self.tables.keyed(Table::Registry, after)));
        }
        let keys = self.list(range, limit, |mut parts, value| {
            Ok(key_entry(parts.bytes()?.into(), RegistryKey::decode(value)?))
        })?;
        Ok(RegistryPage { revision, more: keys.len() == limit, keys })
    }

    /// The events of `feed` from revision `from` on (0 and 1 mean the very first), at most `limit`. There are no gaps: either
    /// every one is there, or the answer is [`Events::Compacted`].
    pub fn events(&self, from: Revision, feed: &Feed, limit: usize) -> Result<Events> {
        let Facts { oldest, revision: newest, .. } = self.facts()?;
        let from = from.max(1);
        if from < oldest {
            return Ok(Events::Compacted { oldest });
        }
        let (mut events, mut next, mut damage) = (Vec::new(), from, None);
        let (start, (_, end)) = (self.tables.numbered(Table::Event, from), self.tables.all(Table::Event));
        let last = from.saturating_add(FEED_VISITS).min(newest.saturating_add(1));
        if limit > 0 && from < last {
            self.reader.scan(Family::State, &start, &end, &mut |row, value| {
                match read_event(row, value) {
                    // Another one than the next: written after `newest` was read, or damage below.
                    Ok(event) if event.revision != next => return ControlFlow::Break(()),
                    Ok(event) => {
                        next = event.revision.saturating_add(1);
                        if feed.wants(&event.change) {
                            events.push(event);
                        }
                    }
                    Err(error) => {
                        damage = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                if events.len() == limit || next >= last {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
        }
        match damage {
            Some(error) => Err(error),
            // On a live engine, what was there a moment ago may have been trimmed since.
            None if next == from && from < last && limit > 0 => {
                Ok(Events::Compacted { oldest: self.facts()?.oldest })
            }
            None => Ok(Events::Events { events, next, newest }),
        }
    }

    /// The checkpoints whose names begin with `prefix` and come behind `after`, at most `limit`.
    pub fn checkpoints(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, CheckpointInfo)>> {
        let mut range = self.tables.keyed_under(Table::Checkpoint, prefix.as_bytes());
        if let Some(after) = after {
            range.0 = range.0.max(behind(self.tables.named(Table::Checkpoint, after)));
        }
        self.list(range, limit, |mut parts, value| {
            let name = String::from_utf8_lossy(&parts.bytes()?).into_owned();
            Ok((name, checkpoint_info(Checkpoint::decode(value)?)))
        })
    }

    /// The earlier versions of a checkpoint that are kept and come behind version `after`, the oldest first, at most
    /// `limit`. The newest is [`State::checkpoint`].
    pub fn checkpoint_history(&self, name: &str, after: u64, limit: usize) -> Result<Vec<PastVersion>> {
        let mut range = self.tables.all_named(Table::History, name);
        range.0 = behind(self.tables.named_at(Table::History, name, after));
        self.list(range, limit, |mut parts, value| {
            parts.bytes()?;
            let PastCheckpoint { at, value } = PastCheckpoint::decode(value)?;
            Ok(PastVersion { version: parts.u64()?, at, value })
        })
    }
}

fn read_event(row: &[u8], value: &[u8]) -> Result<Event> {
    decode_event(parts(row).u64()?, value.to_vec())
}

fn key_entry(key: Bytes, found: RegistryKey) -> KeyEntry {
    let RegistryKey { created, revision, session, value } = found;
    KeyEntry { key, value, created, revision, session }
}

//! openraft's view of a group's machine: applies committed entries chunk by chunk, each chunk one atomic batch of rows
//! and applied position, and answers after that batch is written. What entries mean is [`crate::machine`]'s.

use std::{
    io, mem,
    sync::{Arc, OnceLock},
};

use dolomedes_storage::{
    Error, Result,
    codec::key::KeyBuilder,
    engine::{Durability, Engine, Family},
};
use futures_util::{Stream, StreamExt};
use openraft::{
    EntryPayload, OptionalSend, RaftSnapshotBuilder,
    storage::{ApplyResponder, RaftStateMachine},
};

use super::{
    format::Position,
    generation::{self, Source},
    log::{damaged, fatal},
    snapshot::{SnapshotData, Snapshots, read_position},
    types::{LogEntry, LogId, Replies, Snapshot, SnapshotMeta, StoredMembership, Types},
};
use crate::{
    codec,
    machine::{Machine, Overlay},
};

/// A chunk ends with so many entries …
const CHUNK_ENTRIES: usize = 64;
/// … or with the one that reaches so many bytes of commands: the bound of what one batch has to hold in memory.
const CHUNK_BYTES: usize = 1 << 20;

/// Fingerprints that are put into the filter in one step.
const FILTER_ROWS: usize = 4096;

/// The first byte of the rows kept here in [`Family::Meta`]; the log's begin with another.
const META_TAG: u8 = b'P';

/// The key of a group's [`Position`].
pub(super) fn position_key(group: u32) -> Vec<u8> {
    KeyBuilder::new().u8(META_TAG).u32(group).build()
}

/// What the state machine, the snapshot builder and the group's handle share.
pub(super) struct Shared {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) group: u32,
    pub(super) snapshots: Snapshots,
    /// What the background found to be damaged; the next entry is refused then.
    damage: OnceLock<Error>,
}

/// The machine of one group over its rows.
pub struct GroupState {
    shared: Arc<Shared>,
    machine: Machine,
    position: Position,
}

impl GroupState {
    /// Opens the machine of `group` where its rows stand, and removes what an interrupted installation left. To be
    /// called on a tokio runtime: the filter of known fingerprints is filled beside what follows.
    ///
    /// # Errors
    /// If rows cannot be read, or are damaged.
    pub fn open(engine: Arc<dyn Engine>, group: u32, snapshots: Snapshots) -> Result<Self> {
        let position = read_position(&*engine, group)?;
        generation::remove_leftovers(&*engine, group, position.generation)?;
        let machine = Machine::new(group, position.generation);
        let shared = Arc::new(Shared { engine, group, snapshots, damage: OnceLock::new() });
        fill_filter(&shared, &machine)?;
        Ok(Self { shared, machine, position })
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Commands are applied directly behind what was applied before. Of Raft's own entries only the order is checked,
    /// since openraft's suite for stores leaves some out.
    fn check_order(&self, entry: &LogEntry) -> io::Result<()> {
        let Some(applied) = self.position.applied else { return Ok(()) };
        let follows = match entry.payload {
            EntryPayload::Normal(_) => entry.log_id.index == applied.index + 1,
            EntryPayload::Blank | EntryPayload::Membership(_) => entry.log_id.index > applied.index,
        };
        if follows {
            return Ok(());
        }
        let place = format!("the log of group {}", self.shared.group);
        Err(damaged(Error::corrupt(place, format!("{} was to be applied behind {applied}", entry.log_id))))
    }

    fn apply_chunk(&mut self, chunk: &mut Vec<(LogEntry, Option<ApplyResponder<Types>>)>) -> io::Result<()> {
        if let Some(error) = self.shared.damage.get() {
            return Err(fatal(error.clone()));
        }
        let mut overlay = Overlay::new(&*self.shared.engine);
        let mut answers = Vec::with_capacity(chunk.len());
        for (entry, responder) in chunk.drain(..) {
            let index = entry.log_id.index;
            self.check_order(&entry)?;
            let replies = match entry.payload {
                EntryPayload::Blank => Vec::new(),
                EntryPayload::Membership(membership) => {
                    self.position.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Vec::new()
                }
                EntryPayload::Normal(proposal) => {
                    let commands = codec::decode_entry(proposal.0).map_err(damaged)?;
                    self.machine.apply(&mut overlay, index, &commands).map_err(fatal)?
                }
            };
            self.position.applied = Some(entry.log_id);
            if let Some(responder) = responder {
                answers.push((responder, replies));
            }
        }
        let mut batch = overlay.into_batch();
        batch.put(Family::Meta, position_key(self.shared.group), self.position.encode());
        // Not synced: the log is, and comes first in the one write-ahead log, so the entries can be applied again.
        self.shared.engine.write(batch, Durability::Buffered).map_err(fatal)?;
        for (responder, replies) in answers {
            responder.send(Replies(replies));
        }
        Ok(())
    }
}

impl RaftStateMachine<Types> for GroupState {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.position.applied, self.position.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<(LogEntry, Option<ApplyResponder<Types>>)>> + Unpin + OptionalSend,
    {
        let mut chunk = Vec::with_capacity(CHUNK_ENTRIES);
        let mut bytes = 0;
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            if let EntryPayload::Normal(proposal) = &entry.payload {
                bytes += proposal.0.len();
            }
            chunk.push((entry, responder));
            if chunk.len() >= CHUNK_ENTRIES || bytes >= CHUNK_BYTES {
                bytes = 0;
                self.apply_chunk(&mut chunk)?;
                // Raft's core runs on the same few threads and has heartbeats to send.
                tokio::task::yield_now().await;
            }
        }
        if chunk.is_empty() { Ok(()) } else { self.apply_chunk(&mut chunk) }
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<SnapshotBuilder> {
        let builder = SnapshotBuilder { shared: self.shared.clone() };
        (force || self.shared.snapshots.room()).then_some(builder)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder { shared: self.shared.clone() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotData) -> io::Result<()> {
        let (shared, present) = (self.shared.clone(), mem::take(&mut self.position));
        let meta = meta.clone();
        let installed = tokio::task::spawn_blocking(move || {
            let source = match snapshot.pieces() {
                Some((dir, count)) => Source::Pieces(dir, count),
                None => Source::Checkpoint(shared.engine.open_checkpoint(&snapshot.rows())?),
            };
            let position = generation::install(&*shared.engine, shared.group, &present, &meta, &source)?;
            // The received files may belong to somebody else; the group's own snapshot is made of its own rows.
            shared.snapshots.build(&*shared.engine)?;
            Result::Ok(position)
        });
        self.position = installed.await.map_err(io::Error::other)?.map_err(fatal)?;
        self.machine = Machine::new(self.shared.group, self.position.generation);
        fill_filter(&self.shared, &self.machine).map_err(fatal)
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        Ok(self.shared.snapshots.current())
    }
}

/// Fills the machine's filter of known fingerprints: the first step here, which is all for a small set, the rest on a
/// thread for blocking work, until it is complete or the group is gone.
fn fill_filter(shared: &Arc<Shared>, machine: &Machine) -> Result<()> {
    let filter = machine.seen_filter();
    let Some(mut cursor) = filter.rebuild(&*shared.engine, &[], FILTER_ROWS)? else {
        return Ok(());
    };
    let group = Arc::downgrade(shared);
    tokio::task::spawn_blocking(move || {
        while let Some(shared) = group.upgrade() {
            match filter.rebuild(&*shared.engine, &cursor, FILTER_ROWS) {
                Ok(Some(next)) => cursor = next,
                Ok(None) => return,
                Err(error) => {
                    let _ = shared.damage.set(error);
                    return;
                }
            }
        }
    });
    Ok(())
}

/// Builds one snapshot, beside further applying: the checkpoint itself says what it holds.
pub struct SnapshotBuilder {
    shared: Arc<Shared>,
}

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let shared = self.shared.clone();
        let built = tokio::task::spawn_blocking(move || shared.snapshots.build(&*shared.engine));
        built.await.map_err(io::Error::other)?.map_err(fatal)
    }
}

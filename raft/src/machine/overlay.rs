//! What `apply` reads and writes over a chunk of entries: rows as bytes ([`Rows`]), and beside them the records that
//! nearly every command touches, in decoded form; these become rows once, at the end.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
};

use bytes::Bytes;
use dolomedes_storage::{
    Result,
    engine::{Batch, Family, Reader},
};

use super::{
    records::{Clock, Facts, Key, Queue, Receipts, Record},
    rows::Rows,
};
use crate::command::QueueId;

/// Reads through its own writes to a [`Reader`]; at the end all writes are one [`Batch`]. Nobody else may write the
/// machine's rows while it lives. Its memory grows with what the applied entries touch: cut the log into chunks.
pub struct Overlay<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) clock: Cache<(), Clock>,
    pub(super) queues: Cache<QueueId, Queue>,
    pub(super) keys: Cache<(QueueId, Bytes), Key>,
    pub(super) receipts: Cache<u64, Receipts>,
    pub(super) facts: Cache<(), Facts>,
}

impl<'a> Overlay<'a> {
    /// A view of `reader` without any writes.
    pub fn new(reader: &'a dyn Reader) -> Self {
        Self {
            rows: Rows::new(reader),
            clock: Cache::default(),
            queues: Cache::default(),
            keys: Cache::default(),
            receipts: Cache::default(),
            facts: Cache::default(),
        }
    }

    /// All writes, to be made in one step.
    pub fn into_batch(mut self) -> Batch {
        self.clock.flush(&mut self.rows);
        self.queues.flush(&mut self.rows);
        self.keys.flush(&mut self.rows);
        self.receipts.flush(&mut self.rows);
        self.facts.flush(&mut self.rows);
        self.rows.into_batch()
    }
}

/// Decoded records by what names them. Looked up only: its order never shows.
pub(super) struct Cache<K, R> {
    slots: HashMap<K, Slot<R>>,
}

struct Slot<R> {
    row: Vec<u8>,
    record: Option<R>,
    changed: bool,
}

impl<K, R> Default for Cache<K, R> {
    fn default() -> Self {
        Self { slots: HashMap::new() }
    }
}

impl<K: Hash + Eq, R: Record> Cache<K, R> {
    fn slot(&mut self, rows: &Rows<'_>, name: K, row: impl FnOnce(&K) -> Vec<u8>) -> Result<&mut Slot<R>> {
        Ok(match self.slots.entry(name) {
            Entry::Occupied(slot) => slot.into_mut(),
            Entry::Vacant(slot) => {
                let row = row(slot.key());
                let record = rows.get(Family::State, &row)?.map(|bytes| R::decode(&bytes)).transpose()?;
                slot.insert(Slot { row, record, changed: false })
            }
        })
    }

    /// The record, for reading.
    pub(super) fn look(
        &mut self,
        rows: &Rows<'_>,
        name: K,
        row: impl FnOnce(&K) -> Vec<u8>,
    ) -> Result<Option<&R>> {
        Ok(self.slot(rows, name, row)?.record.as_ref())
    }

    /// The record, for changing.
    pub(super) fn get(
        &mut self,
        rows: &Rows<'_>,
        name: K,
        row: impl FnOnce(&K) -> Vec<u8>,
    ) -> Result<Option<&mut R>> {
        let slot = self.slot(rows, name, row)?;
        slot.changed |= slot.record.is_some();
        Ok(slot.record.as_mut())
    }

    /// The record, for changing; made by `new` where there is none.
    pub(super) fn get_or(
        &mut self,
        rows: &Rows<'_>,
        name: K,
        row: impl FnOnce(&K) -> Vec<u8>,
        new: impl FnOnce() -> R,
    ) -> Result<&mut R> {
        let slot = self.slot(rows, name, row)?;
        slot.changed = true;
        Ok(slot.record.get_or_insert_with(new))
    }

    /// Forgets records without writing them; their rows are removed by the caller.
    pub(super) fn forget(&mut self, gone: impl Fn(&K) -> bool) {
        self.slots.retain(|name, _| !gone(name));
    }

    fn flush(&mut self, rows: &mut Rows<'_>) {
        for (_, slot) in self.slots.drain() {
            if let (true, Some(record)) = (slot.changed, slot.record) {
                rows.put(Family::State, slot.row, record.encode());
            }
        }
    }
}

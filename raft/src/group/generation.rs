//! Replacing all rows of a group: they are copied beside the present ones under a new generation, and one synced row
//! makes that generation the valid one. A crash leaves either state whole; what belongs to neither is removed at start.

use std::{collections::VecDeque, ops::ControlFlow};

use dolomedes_storage::{
    Result,
    codec::key::{KeyBuilder, successor},
    engine::{Batch, Durability, Engine, Family, Reader},
};

use super::{format::Position, snapshot::read_position, state::position_key};

/// The families that hold rows of the machine.
const FAMILIES: [Family; 2] = [Family::State, Family::Seen];

/// What the key of every row of a generation starts with; the machine's tables say so too.
fn prefix(group: u32, generation: u64) -> Vec<u8> {
    KeyBuilder::new().u32(group).u64(generation).build()
}

/// Rows taken at once from a scan while copying: what one copy holds in memory.
const PAGE_BYTES: usize = 1 << 20;

/// Replaces the rows of `group` by those in `from`, and the position by the one found there. Returns the new position.
/// Can be repeated with the same source any number of times.
pub(super) fn install(
    engine: &dyn Engine,
    group: u32,
    present: &Position,
    from: &dyn Reader,
) -> Result<Position> {
    let source = read_position(from, group)?;
    let generation = present.generation + 1;
    for family in FAMILIES {
        let target = prefix(group, generation);
        remove(engine, family, &target)?;
        let mut rows = Rows::new(from, family, prefix(group, source.generation), target);
        if rows.fill()? {
            engine.ingest(family, &mut rows)?;
        }
        if let Some(error) = rows.failed {
            return Err(error);
        }
    }
    let position = Position { generation, ..source };
    let mut batch = Batch::new();
    batch.put(Family::Meta, position_key(group), position.encode());
    engine.write(batch, Durability::Synced)?;
    for family in FAMILIES {
        remove(engine, family, &prefix(group, present.generation))?;
    }
    Ok(position)
}

/// Removes rows of all generations of `group` but `keep`: what an interrupted [`install`] left.
pub(super) fn remove_leftovers(engine: &dyn Engine, group: u32, keep: u64) -> Result<()> {
    for family in FAMILIES {
        let (first, valid) = (prefix(group, 0), prefix(group, keep));
        let (after, end) = (prefix(group, keep + 1), end_of_group(group));
        remove_range(engine, family, first, valid)?;
        remove_range(engine, family, after, end)?;
    }
    Ok(())
}

fn remove(engine: &dyn Engine, family: Family, prefix: &[u8]) -> Result<()> {
    match successor(prefix) {
        Some(end) => remove_range(engine, family, prefix.to_vec(), end),
        None => Ok(()),
    }
}

/// The end of all generations of the group.
fn end_of_group(group: u32) -> Vec<u8> {
    prefix(group, u64::MAX)
}

/// A range without rows costs a look, not a tombstone.
fn remove_range(engine: &dyn Engine, family: Family, from: Vec<u8>, to: Vec<u8>) -> Result<()> {
    let mut found = false;
    engine.scan(family, &from, &to, &mut |_, _| {
        found = true;
        ControlFlow::Break(())
    })?;
    if found {
        let mut batch = Batch::new();
        batch.delete_range(family, from, to);
        engine.write(batch, Durability::Buffered)?;
    }
    Ok(())
}

/// The rows under one prefix, moved to another, page by page.
struct Rows<'a> {
    from: &'a dyn Reader,
    family: Family,
    prefix: Vec<u8>,
    target: Vec<u8>,
    page: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Where the next page begins; `None` after the last one.
    next: Option<Vec<u8>>,
    failed: Option<dolomedes_storage::Error>,
}

impl<'a> Rows<'a> {
    fn new(from: &'a dyn Reader, family: Family, prefix: Vec<u8>, target: Vec<u8>) -> Self {
        let next = Some(prefix.clone());
        Self { from, family, prefix, target, page: VecDeque::new(), next, failed: None }
    }

    /// Reads the next page if the present one is used up; whether there is a row.
    fn fill(&mut self) -> Result<bool> {
        while self.page.is_empty() {
            let (Some(start), Some(end)) = (self.next.take(), successor(&self.prefix)) else {
                return Ok(false);
            };
            let (page, target, prefix) = (&mut self.page, &self.target, self.prefix.len());
            let mut bytes = 0;
            let mut resume = None;
            self.from.scan(self.family, &start, &end, &mut |key, value| {
                if bytes >= PAGE_BYTES {
                    resume = Some(key.to_vec());
                    return ControlFlow::Break(());
                }
                bytes += key.len() + value.len();
                page.push_back(([target, &key[prefix..]].concat(), value.to_vec()));
                ControlFlow::Continue(())
            })?;
            self.next = resume;
        }
        Ok(true)
    }
}

impl Iterator for Rows<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fill() {
            self.failed = Some(error);
        }
        self.page.pop_front()
    }
}

//! Replacing all rows of a group: they are copied beside the present ones under a new generation, and one synced row
//! makes that generation the valid one. A crash leaves either state whole; what belongs to neither is removed at start.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use dolomedes_storage::{
    Error, Result,
    codec::key::successor,
    engine::{Batch, Durability, Engine, Family, Reader},
};

use super::{
    format::Position,
    pieces::{self, FAMILIES, prefix},
    rpc::read_piece,
    snapshot::read_position,
    state::position_key,
    types::SnapshotMeta,
};

/// Where the new rows come from.
pub(super) enum Source {
    /// A checkpoint of a whole engine.
    Checkpoint(Box<dyn Reader>),
    /// So many pieces in a directory.
    Pieces(PathBuf, u64),
}

/// Replaces the rows of `group` by those in `from`, which have to be what `meta` says, and the position with them. Returns
/// the new position. Can be repeated with the same source any number of times.
pub(super) fn install(
    engine: &dyn Engine,
    group: u32,
    present: &Position,
    meta: &SnapshotMeta,
    from: &Source,
) -> Result<Position> {
    let source = match from {
        Source::Checkpoint(reader) => read_position(&**reader, group)?,
        Source::Pieces(..) => {
            Position { generation: 0, applied: meta.last_log_id, membership: meta.last_membership.clone() }
        }
    };
    if source.applied != meta.last_log_id {
        let (found, promised) = (source.applied, meta.last_log_id);
        let detail = format!("it ends with entry {found:?}, but was announced with {promised:?}");
        return Err(Error::corrupt(format!("a snapshot of group {group}"), detail));
    }
    let generation = present.generation + 1;
    for family in FAMILIES {
        let target = prefix(group, generation);
        remove(engine, family, &target)?;
        let pages: Pages<'_> = match from {
            Source::Checkpoint(reader) => scanned(&**reader, family, prefix(group, source.generation)),
            Source::Pieces(dir, count) => received(dir, *count, family),
        };
        let mut rows = Rows { pages, target, page: VecDeque::new(), failed: None };
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

/// Pages of rows, without what their keys begin with.
type Pages<'a> = Box<dyn Iterator<Item = Result<pieces::Rows>> + 'a>;

/// The rows of a family under a prefix.
fn scanned<'a>(reader: &'a dyn Reader, family: Family, prefix: Vec<u8>) -> Pages<'a> {
    let mut after: Option<Vec<u8>> = None;
    Box::new(std::iter::from_fn(move || {
        let page = pieces::page(reader, family, &prefix, after.as_deref());
        if let Ok(rows) = &page {
            after = Some(rows.last()?.0.clone());
        }
        Some(page)
    }))
}

/// The rows of a family among pieces.
fn received(dir: &Path, count: u64, family: Family) -> Pages<'_> {
    Box::new((0..count).filter_map(move |number| {
        let read = read_piece(dir, number).and_then(|piece| Ok(pieces::decode(&piece)?));
        match read {
            Ok((found, rows)) => (FAMILIES[usize::from(found)] == family).then_some(Ok(rows)),
            Err(error) => Some(Err(error)),
        }
    }))
}

/// Rows under the prefix that they are to have, page by page.
struct Rows<'a> {
    pages: Pages<'a>,
    target: Vec<u8>,
    page: VecDeque<(Vec<u8>, Vec<u8>)>,
    failed: Option<Error>,
}

impl Rows<'_> {
    /// Reads the next page if the present one is used up; whether there is a row.
    fn fill(&mut self) -> Result<bool> {
        while self.page.is_empty() {
            match self.pages.next() {
                Some(page) => self.page = page?.into(),
                None => return Ok(false),
            }
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
        let (key, value) = self.page.pop_front()?;
        Some(([&self.target[..], &key].concat(), value))
    }
}

//! Named values with a version, written on condition.

use bytes::Bytes;
use dolomedes_storage::{Result, engine::Family};

use super::{limits, records::Checkpoint, tables::Table, work::Work};
use crate::command::{Refusal, Reply};

impl Work<'_, '_> {
    pub(super) fn set_checkpoint(
        &mut self,
        name: &str,
        expect: Option<u64>,
        value: Option<&Bytes>,
    ) -> Result<Reply> {
        let checks = [
            ("name", name.len(), 1, limits::NAME_BYTES),
            ("value", value.map_or(0, Bytes::len), 0, limits::CHECKPOINT_BYTES),
        ];
        if let Some((what, found, least, most)) =
            checks.into_iter().find(|(_, found, least, most)| !(least..=most).contains(&found))
        {
            return Ok(Reply::Refused(Refusal::Invalid(format!(
                "the {what} of a checkpoint has {found} bytes, {least} to {most} are allowed"
            ))));
        }
        let row = self.tables.named(Table::Checkpoint, name);
        let found = self.store.rows.get(Family::State, &row)?.map(Checkpoint::decode).transpose()?;
        let version = found.map_or(0, |found| found.version);
        if expect.is_some_and(|expect| expect != version) {
            return Ok(Reply::Checkpoint { written: false, version });
        }
        let clock = self.clock()?;
        let version = match value {
            Some(value) => {
                let before = if version == 0 { clock.checkpoint_floor } else { version };
                let next = Checkpoint { version: before.saturating_add(1), value: value.clone() };
                self.store.rows.put(Family::State, row, next.encode());
                next.version
            }
            None => {
                clock.checkpoint_floor = clock.checkpoint_floor.max(version);
                self.store.rows.delete(Family::State, row);
                0
            }
        };
        Ok(Reply::Checkpoint { written: true, version })
    }
}

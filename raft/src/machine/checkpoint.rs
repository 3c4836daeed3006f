//! Named values with a version and a history, written on condition.

use bytes::Bytes;
use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    records::{Checkpoint, PastCheckpoint},
    tables::Table,
    work::Work,
};
use crate::command::{Change, Guard, Refusal, Reply};

impl Work<'_, '_> {
    pub(super) fn set_checkpoint(
        &mut self,
        name: &str,
        expect: Option<u64>,
        value: Option<&Bytes>,
        keep: u32,
        guard: Option<&Guard>,
    ) -> Result<Reply> {
        if let Some(fault) = fault(name, value, keep) {
            return Ok(Reply::Refused(Refusal::Invalid(fault)));
        }
        if let Some(guard) = guard {
            self.end_sessions(&mut { limits::CATCH_UP_STEPS })?;
            if self.check_guard(guard)?.is_err() {
                return Ok(Reply::Refused(Refusal::StaleFence(guard.clone())));
            }
        }
        let row = self.tables.named(Table::Checkpoint, name);
        let found = self.store.rows.get(Family::State, &row)?.map(Checkpoint::decode).transpose()?;
        let version = found.as_ref().map_or(0, |found| found.version);
        if expect.is_some_and(|expect| expect != version) {
            return Ok(Reply::Checkpoint { written: false, version });
        }
        let (now, clock) = (self.now, self.clock()?);
        let version = match (value, found) {
            (Some(value), found) => {
                let before = if version == 0 { clock.checkpoint_floor } else { version };
                let version = before.saturating_add(1);
                let oldest = match found {
                    Some(found) => self.keep_version(name, found, version, keep.max(1)),
                    None => version,
                };
                let next = Checkpoint { version, oldest, at: now, value: value.clone() };
                self.store.rows.put(Family::State, row, next.encode());
                self.emit(Change::Checkpoint { name: name.to_owned(), version, removed: false })?;
                version
            }
            (None, Some(found)) => {
                clock.checkpoint_floor = clock.checkpoint_floor.max(version);
                self.store.rows.delete(Family::State, row);
                self.drop_versions(name, found.oldest, version);
                self.emit(Change::Checkpoint { name: name.to_owned(), version, removed: true })?;
                0
            }
            (None, None) => 0,
        };
        Ok(Reply::Checkpoint { written: true, version })
    }

    /// Puts the version that was the newest into the history, of which `keep` with the one to come are kept. Returns the
    /// oldest that is kept.
    fn keep_version(&mut self, name: &str, last: Checkpoint, next: u64, keep: u32) -> u64 {
        let oldest = last.oldest.max(next.saturating_add(1).saturating_sub(keep.into()));
        if last.version >= oldest {
            let past = PastCheckpoint { at: last.at, value: last.value };
            let row = self.tables.named_at(Table::History, name, last.version);
            self.store.rows.put(Family::State, row, past.encode());
        }
        self.drop_versions(name, last.oldest, oldest.min(last.version));
        oldest
    }

    /// Removes versions from `from` to before `to` from the history; at most
    /// [`CHECKPOINT_VERSIONS`](limits::CHECKPOINT_VERSIONS).
    fn drop_versions(&mut self, name: &str, from: u64, to: u64) {
        for version in from..to {
            self.store.rows.delete(Family::State, self.tables.named_at(Table::History, name, version));
        }
    }
}

fn fault(name: &str, value: Option<&Bytes>, keep: u32) -> Option<String> {
    let checks = [
        ("name", name.len(), 1, limits::NAME_BYTES),
        ("value", value.map_or(0, Bytes::len), 0, limits::CHECKPOINT_BYTES),
    ];
    if let Some((what, found, least, most)) =
        checks.into_iter().find(|(_, found, least, most)| !(least..=most).contains(&found))
    {
        return Some(format!("the {what} of a checkpoint has {found} bytes, {least} to {most} are allowed"));
    }
    let most = limits::CHECKPOINT_VERSIONS;
    (keep > most).then(|| format!("{keep} versions of a checkpoint are to be kept, at most {most} can be"))
}

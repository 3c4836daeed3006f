//! The registry: keys with values and revisions, changed together or not at all.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dolomedes_storage::{Error, Result, engine::Family};

use super::{
    limits,
    records::{Item, RegistryKey, take},
    tables::Table,
    work::Work,
};
use crate::command::{Change, Compare, Refusal, RegistryOp, Reply, Revision, SessionId, TxnReply};

impl Work<'_, '_> {
    pub(super) fn txn(&mut self, compare: &[Compare], ops: &[RegistryOp]) -> Result<Reply> {
        if let Some(fault) = fault(compare, ops) {
            return Ok(Reply::Refused(Refusal::Invalid(fault)));
        }
        self.end_sessions(&mut { limits::CATCH_UP_STEPS })?;
        for (at, compare) in (0..).zip(compare) {
            if let Some(found) = self.differs(compare)? {
                return Ok(Reply::Txn(TxnReply::Failed { at, found }));
            }
        }
        // Everything is looked at before anything is written.
        let mut before = Vec::with_capacity(ops.len());
        let (mut keys, mut bytes) = (0u64, 0u64);
        let mut ties = BTreeMap::<SessionId, u64>::new();
        for (at, op) in (compare.len()..).zip(ops) {
            let found = self.registry_key(op.key())?;
            let revision = found.as_ref().map_or(0, |found| found.revision);
            let (RegistryOp::Set { expect, .. } | RegistryOp::Delete { expect, .. }) = op;
            if expect.is_some_and(|expect| expect != revision) {
                let at = u32::try_from(at).unwrap_or(u32::MAX);
                return Ok(Reply::Txn(TxnReply::Failed { at, found: revision }));
            }
            if let RegistryOp::Set { key, value, session, .. } = op {
                keys += u64::from(found.is_none());
                bytes += (key.len() + value.len()) as u64;
                if let Some(id) = *session
                    && found.as_ref().and_then(|found| found.session) != Some(id)
                {
                    let Some(mut session) = self.session(id)? else {
                        return Ok(Reply::Refused(Refusal::NoSession(id)));
                    };
                    let more = ties.entry(id).or_default();
                    session.items = session.items.saturating_add(*more);
                    *more += 1;
                    if let Some(full) = Self::no_room_in(id, &session) {
                        return Ok(full);
                    }
                }
            }
            before.push(found);
        }
        let facts = self.known_facts()?;
        if facts.keys.saturating_add(keys) > limits::REGISTRY_KEYS
            || facts.key_bytes.saturating_add(bytes) > limits::REGISTRY_BYTES
        {
            return Ok(Reply::Refused(Refusal::Full(format!(
                "the registry has {} keys of {} bytes, of at most {} and {}; delete some first",
                facts.keys,
                facts.key_bytes,
                limits::REGISTRY_KEYS,
                limits::REGISTRY_BYTES
            ))));
        }
        let mut revisions = Vec::with_capacity(ops.len());
        for (op, found) in ops.iter().zip(before) {
            revisions.push(match op {
                RegistryOp::Set { key, value, session, .. } => self.set_key(key, value, *session, found)?,
                RegistryOp::Delete { key, .. } if found.is_some() => self.remove_key(key, false)?,
                RegistryOp::Delete { .. } => 0,
            });
        }
        Ok(Reply::Txn(TxnReply::Written(revisions)))
    }

    /// What is found where the comparison does not hold.
    fn differs(&self, compare: &Compare) -> Result<Option<u64>> {
        let revision = |found: &Option<RegistryKey>| found.as_ref().map_or(0, |found| found.revision);
        Ok(match compare {
            Compare::Revision { key, revision: expect } => {
                Some(revision(&self.registry_key(key)?)).filter(|found| found != expect)
            }
            Compare::Value { key, value } => {
                let found = self.registry_key(key)?;
                let same = found.as_ref().is_some_and(|found| found.value == *value);
                (!same).then(|| revision(&found))
            }
            Compare::Held(guard) => self.check_guard(guard)?.err(),
        })
    }

    fn set_key(
        &mut self,
        key: &Bytes,
        value: &Bytes,
        session: Option<SessionId>,
        found: Option<RegistryKey>,
    ) -> Result<Revision> {
        let facts = self.facts()?;
        match &found {
            Some(found) => take(&mut facts.key_bytes, found.value.len() as u64, "bytes of the registry")?,
            None => {
                facts.keys += 1;
                facts.key_bytes += key.len() as u64;
            }
        }
        facts.key_bytes += value.len() as u64;
        let before = found.as_ref().and_then(|found| found.session);
        if before != session {
            if let Some(before) = before {
                self.untie(before, Item::Key, key)?;
            }
            if let Some(session) = session {
                self.tie(session, Item::Key, key, 0)?;
            }
        }
        let revision = self.next_revision()?;
        let created = found.map_or(revision, |found| found.created);
        let next = RegistryKey { created, revision, session, value: value.clone() };
        self.store.rows.put(Family::State, self.tables.keyed(Table::Registry, key), next.encode());
        self.emit(Change::Set { key: key.clone(), value: value.clone(), session })
    }

    /// Removes a key that exists. Its session, if it goes with one, is untied, unless it ends: then that is the caller's.
    pub(super) fn remove_key(&mut self, key: &[u8], ends: bool) -> Result<Revision> {
        let found = self.registry_key(key)?;
        let found =
            found.ok_or_else(|| Error::corrupt("registry record", "a session is tied to a missing key"))?;
        if let Some(session) = found.session.filter(|_| !ends) {
            self.untie(session, Item::Key, key)?;
        }
        let facts = self.facts()?;
        take(&mut facts.keys, 1, "keys of the registry")?;
        take(&mut facts.key_bytes, (key.len() + found.value.len()) as u64, "bytes of the registry")?;
        self.store.rows.delete(Family::State, self.tables.keyed(Table::Registry, key));
        let session = found.session.filter(|_| ends);
        self.emit(Change::Deleted { key: Bytes::copy_from_slice(key), session })
    }

    fn registry_key(&self, key: &[u8]) -> Result<Option<RegistryKey>> {
        let found = self.store.rows.get(Family::State, &self.tables.keyed(Table::Registry, key))?;
        found.map(RegistryKey::decode).transpose()
    }
}

/// What is wrong with a transaction whatever the registry holds.
fn fault(compare: &[Compare], ops: &[RegistryOp]) -> Option<String> {
    let most = limits::TXN_OPS;
    if compare.len() > most || ops.len() > most {
        let (compare, ops) = (compare.len(), ops.len());
        return Some(format!("{compare} comparisons and {ops} changes, at most {most} of each are allowed"));
    }
    let compared = compare.iter().filter_map(|compare| match compare {
        Compare::Revision { key, .. } | Compare::Value { key, .. } => Some(key),
        Compare::Held(_) => None,
    });
    let allowed = 1..=limits::REGISTRY_KEY_BYTES;
    if let Some(key) = compared.chain(ops.iter().map(RegistryOp::key)).find(|k| !allowed.contains(&k.len())) {
        return Some(format!(
            "a key of the registry has {} bytes, 1 to {} are allowed",
            key.len(),
            limits::REGISTRY_KEY_BYTES
        ));
    }
    let mut seen = BTreeSet::new();
    for op in ops {
        if let RegistryOp::Set { value, .. } = op
            && value.len() > limits::REGISTRY_VALUE_BYTES
        {
            return Some(format!(
                "a value of the registry has {} bytes, at most {} are allowed",
                value.len(),
                limits::REGISTRY_VALUE_BYTES
            ));
        }
        if !seen.insert(op.key()) {
            return Some("a key is changed twice by one transaction".to_owned());
        }
    }
    None
}

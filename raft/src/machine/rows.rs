//! Rows as bytes: a view of the engine through writes that are not in it yet. Knows no tables; not a transaction.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
};

use dolomedes_storage::{
    Result,
    engine::{Batch, Family, Reader},
};

/// One row: its key and its value.
pub(super) type Row = (Vec<u8>, Vec<u8>);

/// Own writes over a [`Reader`].
pub(super) struct Rows<'a> {
    reader: &'a dyn Reader,
    /// Own writes by family; `None`: deleted.
    own: [BTreeMap<Vec<u8>, Option<Vec<u8>>>; Family::ALL.len()],
    /// Ranges in which the rows below are gone.
    dropped: Vec<(Family, Vec<u8>, Vec<u8>)>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(reader: &'a dyn Reader) -> Self {
        Self { reader, own: Default::default(), dropped: Vec::new() }
    }

    pub(super) fn into_batch(self) -> Batch {
        let mut batch = Batch::new();
        for (family, from, to) in self.dropped {
            batch.delete_range(family, from, to);
        }
        for (family, rows) in Family::ALL.into_iter().zip(self.own) {
            for (key, value) in rows {
                match value {
                    Some(value) => batch.put(family, key, value),
                    None => batch.delete(family, key),
                }
            }
        }
        batch
    }

    pub(super) fn put(&mut self, family: Family, key: Vec<u8>, value: Vec<u8>) {
        self.own[place(family)].insert(key, Some(value));
    }

    pub(super) fn delete(&mut self, family: Family, key: Vec<u8>) {
        self.own[place(family)].insert(key, None);
    }

    /// Removes all rows of `[from, to)`, in constant time below.
    pub(super) fn delete_range(&mut self, family: Family, (from, to): (Vec<u8>, Vec<u8>)) {
        let own = &mut self.own[place(family)];
        let gone: Vec<_> = own.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
        for key in gone {
            own.remove(&key);
        }
        self.dropped.push((family, from, to));
    }

    pub(super) fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.own[place(family)].get(key) {
            Some(value) => Ok(value.clone()),
            None if self.is_dropped(family, key) => Ok(None),
            None => self.reader.get(family, key),
        }
    }

    /// Whether `key` is among the own writes.
    pub(super) fn wrote(&self, family: Family, key: &[u8]) -> bool {
        matches!(self.own[place(family)].get(key), Some(Some(_)))
    }

    /// The values of `keys` in their order, with one call below for those not written here.
    pub(super) fn get_many(&self, family: Family, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let own = &self.own[place(family)];
        let mut values = vec![None; keys.len()];
        let mut below = Vec::with_capacity(keys.len());
        let mut places = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            match own.get(key) {
                Some(value) => values[at] = value.clone(),
                None if self.is_dropped(family, key) => {}
                None => {
                    below.push(key.as_slice());
                    places.push(at);
                }
            }
        }
        if !below.is_empty() {
            for (at, value) in places.into_iter().zip(self.reader.get_many(family, &below)?) {
                values[at] = value;
            }
        }
        Ok(values)
    }

    /// The first rows of `[from, to)` in ascending order, at most `limit`.
    pub(super) fn first(&self, family: Family, range: (&[u8], &[u8]), limit: usize) -> Result<Vec<Row>> {
        let (from, to) = range;
        let mut rows = Vec::new();
        if limit == 0 || from >= to {
            return Ok(rows);
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let mut own = self.own[place(family)].range::<[u8], _>(bounds).peekable();
        self.reader.scan(family, from, to, &mut |key, value| {
            while rows.len() < limit
                && let Some((k, v)) = own.next_if(|(k, _)| k.as_slice() < key)
            {
                rows.extend(v.as_ref().map(|v| (k.clone(), v.clone())));
            }
            if rows.len() < limit {
                match own.next_if(|(k, _)| k.as_slice() == key) {
                    Some((k, v)) => rows.extend(v.as_ref().map(|v| (k.clone(), v.clone()))),
                    None if self.is_dropped(family, key) => {}
                    None => rows.push((key.to_vec(), value.to_vec())),
                }
            }
            if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        while rows.len() < limit
            && let Some((k, v)) = own.next()
        {
            rows.extend(v.as_ref().map(|v| (k.clone(), v.clone())));
        }
        Ok(rows)
    }

    fn is_dropped(&self, family: Family, key: &[u8]) -> bool {
        self.dropped.iter().any(|(f, from, to)| *f == family && from.as_slice() <= key && key < to.as_slice())
    }
}

fn place(family: Family) -> usize {
    match family {
        Family::Log => 0,
        Family::Meta => 1,
        Family::State => 2,
        Family::Seen => 3,
    }
}

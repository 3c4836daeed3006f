//! The engine in memory, for simulators and tests. It keeps apart what is written and what is synced: a crash loses any
//! suffix of the writes that no sync covered, never one from the middle, as one write-ahead log would.
//!
//! Not modelled: time, torn bytes inside a record (a checksum turns those into a lost suffix), and files.

use std::{
    collections::{BTreeMap, HashMap},
    ops::{Bound, ControlFlow},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    engine::{Batch, Change, Durability, Engine, Family, Reader, Visit},
    error::{Error, Result},
};

type Table = BTreeMap<Vec<u8>, Vec<u8>>;
type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The rows of all families. Cloning shares them until one side changes.
#[derive(Clone, Debug, Default)]
struct Rows {
    tables: [Arc<Table>; Family::ALL.len()],
}

impl Rows {
    fn apply(&mut self, batch: &Batch) {
        for change in batch.changes() {
            match change {
                Change::Put(family, key, value) => {
                    self.table_mut(*family).insert(key.clone(), value.clone());
                }
                Change::Delete(family, key) => {
                    self.table_mut(*family).remove(key);
                }
                Change::DeleteRange(family, from, to) => {
                    if let Some(bounds) = bounds(from, to) {
                        let table = self.table_mut(*family);
                        let gone: Vec<_> =
                            table.range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
                        for key in gone {
                            table.remove(&key);
                        }
                    }
                }
            }
        }
    }

    fn table(&self, family: Family) -> &Arc<Table> {
        &self.tables[family as usize]
    }

    fn table_mut(&mut self, family: Family) -> &mut Table {
        Arc::make_mut(&mut self.tables[family as usize])
    }
}

impl Reader for Rows {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.table(family).get(key).cloned())
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(family, key)).collect()
    }

    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        if let Some(bounds) = bounds(from, to) {
            walk(self.table(family).range::<[u8], _>(bounds), visit);
        }
        Ok(())
    }

    fn scan_back(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        if let Some(bounds) = bounds(from, to) {
            walk(self.table(family).range::<[u8], _>(bounds).rev(), visit);
        }
        Ok(())
    }
}

fn walk<'a>(rows: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>, visit: Visit<'_>) {
    for (key, value) in rows {
        if let ControlFlow::Break(()) = visit(key, value) {
            return;
        }
    }
}

fn bounds<'a>(from: &'a [u8], to: &'a [u8]) -> Option<KeyRange<'a>> {
    (from < to).then_some((Bound::Included(from), Bound::Excluded(to)))
}

/// Checkpoints by the directory they would be in.
type Checkpoints = Arc<Mutex<HashMap<PathBuf, Rows>>>;

/// What is to go wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The write after so many more, and every later one, fails.
    Write {
        /// Writes that still succeed.
        after: u64,
        /// What it fails with.
        error: Error,
    },
    /// The sync after so many more fails, and with it everything later. A [`Durability::Synced`] write syncs.
    Sync {
        /// Syncs that still succeed.
        after: u64,
        /// What it fails with.
        error: Error,
    },
    /// The device takes so many more bytes; the write that exceeds them fails with [`Error::Full`].
    Capacity {
        /// Keys and values together.
        bytes: u64,
    },
}

#[derive(Debug, Default)]
struct Store {
    /// What readers see.
    written: Rows,
    /// What surely survives a crash.
    synced: Rows,
    /// The writes that lie between the two, in order; the last may be one that was reported as failed.
    unsynced: Vec<Batch>,
    checkpoints: Checkpoints,
    faults: Vec<Fault>,
    /// The error after which nothing is written any more.
    failed: Option<Error>,
}

impl Store {
    fn checkpoints(&self) -> MutexGuard<'_, HashMap<PathBuf, Rows>> {
        self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn image(&self, keep: usize) -> Self {
        let mut rows = self.synced.clone();
        for batch in self.unsynced.iter().take(keep) {
            rows.apply(batch);
        }
        Self {
            written: rows.clone(),
            synced: rows,
            unsynced: Vec::new(),
            checkpoints: self.checkpoints.clone(),
            faults: Vec::new(),
            failed: None,
        }
    }

    fn write(&mut self, batch: Batch) -> Result<()> {
        let size = batch.changes().iter().map(payload_bytes).sum();
        if let Some(error) = self.failure_of_write(size) {
            // Whether a failed write reached the disk is for the crash to decide.
            self.unsynced.push(batch);
            return Err(self.failed.insert(error).clone());
        }
        self.written.apply(&batch);
        self.unsynced.push(batch);
        Ok(())
    }

    fn failure_of_write(&mut self, size: u64) -> Option<Error> {
        for fault in &mut self.faults {
            match fault {
                Fault::Write { after: 0, error } => return Some(error.clone()),
                Fault::Write { after, .. } => *after -= 1,
                Fault::Capacity { bytes } if *bytes < size => {
                    return Some(Error::Full { path: PathBuf::from("memory") });
                }
                Fault::Capacity { bytes } => *bytes -= size,
                Fault::Sync { .. } => {}
            }
        }
        None
    }

    fn sync(&mut self) -> Result<()> {
        for fault in &mut self.faults {
            match fault {
                Fault::Sync { after: 0, error } => return Err(self.failed.insert(error.clone()).clone()),
                Fault::Sync { after, .. } => *after -= 1,
                Fault::Write { .. } | Fault::Capacity { .. } => {}
            }
        }
        for batch in self.unsynced.drain(..) {
            self.synced.apply(&batch);
        }
        Ok(())
    }
}

/// An engine in memory. Clones are handles to the same store.
#[derive(Clone, Debug, Default)]
pub struct MemoryEngine {
    store: Arc<Mutex<Store>>,
}

impl MemoryEngine {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store of another process that can open this one's checkpoints, and the other way round.
    pub fn neighbour(&self) -> Self {
        let store = Store { checkpoints: self.lock().checkpoints.clone(), ..Store::default() };
        Self { store: Arc::new(Mutex::new(store)) }
    }

    /// Crashes the process that uses the store and returns the store that the next one finds. `keep` is told how many
    /// writes are unsynced, and says how many of them, from the oldest, reached the disk all the same. All handles of
    /// the crashed store refuse to be used.
    pub fn crash(&self, keep: impl FnOnce(usize) -> usize) -> Self {
        let mut store = self.lock();
        let next = store.image(keep(store.unsynced.len()));
        *store = Store { failed: Some(crashed()), ..Store::default() };
        Self { store: Arc::new(Mutex::new(next)) }
    }

    /// All stores that a crash at this moment can leave, from the one that lost every unsynced write to the one that
    /// lost none. Each is independent of this one, which goes on.
    pub fn crash_images(&self) -> impl Iterator<Item = Self> + use<'_> {
        (0..=self.lock().unsynced.len())
            .map(|keep| Self { store: Arc::new(Mutex::new(self.lock().image(keep))) })
    }

    /// How many writes a crash could lose.
    pub fn unsynced(&self) -> usize {
        self.lock().unsynced.len()
    }

    /// Makes something go wrong later. Several faults count down side by side; a crash ends them.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store, unless an earlier write or sync failed.
    fn usable(&self) -> Result<MutexGuard<'_, Store>> {
        let store = self.lock();
        match &store.failed {
            Some(error) => Err(error.clone()),
            None => Ok(store),
        }
    }

    fn rows(&self) -> Rows {
        self.lock().written.clone()
    }
}

impl Reader for MemoryEngine {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.lock().written.get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.lock().written.get_many(family, keys)
    }

    // Visitors may use the engine themselves, so scans do not hold the lock.
    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.rows().scan(family, from, to, visit)
    }

    fn scan_back(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.rows().scan_back(family, from, to, visit)
    }
}

impl Engine for MemoryEngine {
    fn write(&self, batch: Batch, durability: Durability) -> Result<()> {
        let mut store = self.usable()?;
        store.write(batch)?;
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Synced => store.sync(),
        }
    }

    fn sync(&self) -> Result<()> {
        self.usable()?.sync()
    }

    fn snapshot(&self) -> Box<dyn Reader + '_> {
        Box::new(self.rows())
    }

    fn checkpoint(&self, dir: &Path) -> Result<()> {
        let store = self.usable()?;
        let mut checkpoints = store.checkpoints();
        if checkpoints.contains_key(dir) {
            return Err(Error::Engine(format!("the checkpoint `{}` exists already", dir.display())));
        }
        checkpoints.insert(dir.to_owned(), store.written.clone());
        Ok(())
    }

    fn open_checkpoint(&self, dir: &Path) -> Result<Box<dyn Reader>> {
        match self.lock().checkpoints().get(dir) {
            Some(rows) => Ok(Box::new(rows.clone())),
            None => Err(Error::corrupt(format!("`{}`", dir.display()), "there is no checkpoint")),
        }
    }

    fn ingest(&self, family: Family, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        let mut batch = Batch::new();
        let mut last: Option<Vec<u8>> = None;
        for (key, value) in rows {
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(Error::Engine("the rows to be ingested do not ascend strictly".into()));
            }
            last = Some(key.clone());
            batch.put(family, key, value);
        }
        self.write(batch, Durability::Synced)
    }

    fn approximate_size(&self, family: Family, from: &[u8], to: &[u8]) -> Result<u64> {
        let mut bytes = 0;
        self.scan(family, from, to, &mut |key, value| {
            bytes += (key.len() + value.len()) as u64;
            ControlFlow::Continue(())
        })?;
        Ok(bytes)
    }
}

fn payload_bytes(change: &Change) -> u64 {
    match change {
        Change::Put(_, key, value) => (key.len() + value.len()) as u64,
        Change::Delete(_, key) => key.len() as u64,
        Change::DeleteRange(_, from, to) => (from.len() + to.len()) as u64,
    }
}

fn crashed() -> Error {
    Error::Engine("this store has crashed; use the one that the crash returned".into())
}

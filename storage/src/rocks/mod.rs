//! The engine on disk: RocksDB, one column family for each [`Family`], one write-ahead log for all.
//!
//! Not here: when to sync, compact or checkpoint, and what the rows mean.

mod options;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use rocksdb::{
    Cache, ColumnFamily, DBWithThreadMode, ErrorKind, IngestExternalFileOptions, ReadOptions, SingleThreaded,
    SnapshotWithThreadMode, SstFileWriter, WriteBatch, WriteBufferManager, WriteOptions,
    checkpoint::Checkpoint,
};

use crate::{
    engine::{Batch, Change, Durability, Engine, Family, Reader, Visit},
    error::{Error, Result},
    file,
};

pub use options::RocksOptions;

/// The families are fixed when it is opened, so that looking one up takes no lock.
type DB = DBWithThreadMode<SingleThreaded>;

/// Files to be ingested are written in this folder of the database's directory; what a crash leaves there is removed.
const INGEST_DIR: &str = "ingest";
/// A file to be ingested ends after so many bytes.
const INGEST_FILE_BYTES: u64 = 128 << 20;

/// An open database.
pub struct RocksEngine {
    db: DB,
    dir: PathBuf,
    bounds: RocksOptions,
    cache: Cache,
    buffered: WriteOptions,
    synced: WriteOptions,
}

impl RocksEngine {
    /// Opens the database in `dir`, or creates it there.
    ///
    /// # Errors
    /// [`Error::InUse`] if it is open elsewhere, [`Error::Corrupt`] if the write-ahead log is damaged before its end or
    /// a file is missing. Damage inside a table file shows only when the block is read.
    pub fn open(dir: impl Into<PathBuf>, bounds: RocksOptions) -> Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(&dir).map_err(|error| Error::io("create", &dir, error))?;
        let ingest = dir.join(INGEST_DIR);
        if ingest.exists() {
            fs::remove_dir_all(&ingest).map_err(|error| Error::io("clear", &ingest, error))?;
        }
        let cache = Cache::new_lru_cache(bounds.cache_bytes);
        let memtables = WriteBufferManager::new_write_buffer_manager(bounds.memtable_bytes, false);
        let db = DB::open_cf_descriptors(
            &options::database(&bounds, Some(&memtables)),
            &dir,
            options::families(&bounds, &cache),
        )
        .map_err(|error| translate(&dir, error))?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Ok(Self { db, dir, bounds, cache, buffered: WriteOptions::default(), synced })
    }

    fn view(&self) -> View<'_> {
        View { db: &self.db, dir: &self.dir, snapshot: None }
    }

    fn translate(&self, error: rocksdb::Error) -> Error {
        translate(&self.dir, error)
    }

    /// Writes `rows` into files of bounded size, and returns them.
    fn write_tables(
        &self,
        family: Family,
        rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
        dir: &Path,
    ) -> Result<Vec<PathBuf>> {
        let options = options::family(family, &self.bounds, None);
        let mut files = Vec::new();
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let path = dir.join(format!("{}.sst", files.len()));
            let mut writer = SstFileWriter::create(&options);
            writer.open(&path).map_err(|error| self.translate(error))?;
            let mut bytes = 0;
            while bytes < INGEST_FILE_BYTES
                && let Some((key, value)) = rows.next()
            {
                bytes += (key.len() + value.len()) as u64;
                writer.put(key, value).map_err(|error| self.translate(error))?;
            }
            writer.finish().map_err(|error| self.translate(error))?;
            files.push(path);
        }
        Ok(files)
    }

    /// Moves table files into the database.
    fn adopt(&self, family: Family, files: Vec<PathBuf>) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        self.db
            .ingest_external_file_cf_opts(self.view().handle(family)?, &options, files)
            .map_err(|error| self.translate(error))
    }
}

impl Reader for RocksEngine {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.view().get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.view().get_many(family, keys)
    }

    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.view().scan(family, from, to, visit)
    }

    fn scan_back(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.view().scan_back(family, from, to, visit)
    }
}

impl Engine for RocksEngine {
    fn write(&self, batch: Batch, durability: Durability) -> Result<()> {
        let view = self.view();
        let size = batch.changes().iter().map(|change| 32 + payload_bytes(change)).sum();
        let mut native = WriteBatch::with_capacity_bytes(size);
        for change in batch.changes() {
            match change {
                Change::Put(family, key, value) => native.put_cf(view.handle(*family)?, key, value),
                Change::Delete(family, key) => native.delete_cf(view.handle(*family)?, key),
                // RocksDB calls an inverted range an error.
                Change::DeleteRange(family, from, to) if from < to => {
                    native.delete_range_cf(view.handle(*family)?, from, to);
                }
                Change::DeleteRange(..) => {}
            }
        }
        let options = match durability {
            Durability::Buffered => &self.buffered,
            Durability::Synced => &self.synced,
        };
        self.db.write_opt(native, options).map_err(|error| self.translate(error))
    }

    fn sync(&self) -> Result<()> {
        self.db.flush_wal(true).map_err(|error| self.translate(error))
    }

    fn snapshot(&self) -> Box<dyn Reader + '_> {
        Box::new(View { db: &self.db, dir: &self.dir, snapshot: Some(self.db.snapshot()) })
    }

    fn checkpoint(&self, dir: &Path) -> Result<()> {
        Checkpoint::new(&self.db)
            .and_then(|checkpoint| checkpoint.create_checkpoint(dir))
            .map_err(|error| translate(dir, error))?;
        file::sync_parent(dir)
    }

    fn open_checkpoint(&self, dir: &Path) -> Result<Box<dyn Reader>> {
        let db = DB::open_cf_descriptors_read_only(
            &options::database(&self.bounds, None),
            dir,
            options::families(&self.bounds, &self.cache),
            false,
        )
        .map_err(|error| translate(dir, error))?;
        Ok(Box::new(Frozen { db, dir: dir.to_owned() }))
    }

    fn ingest(&self, family: Family, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        // Ingested rows are durable at once, so everything that was written before them has to be.
        self.sync()?;
        let dir = self.dir.join(INGEST_DIR);
        fs::create_dir_all(&dir).map_err(|error| Error::io("create", &dir, error))?;
        // A folder of its own for each call, as calls may run side by side.
        let dir = dir.join(format!("{:?}-{}", std::thread::current().id(), self.db.latest_sequence_number()));
        fs::create_dir_all(&dir).map_err(|error| Error::io("create", &dir, error))?;
        let ingested = self.write_tables(family, rows, &dir).and_then(|files| self.adopt(family, files));
        let removed = fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", &dir, error));
        ingested.and(removed)
    }

    fn approximate_size(&self, family: Family, from: &[u8], to: &[u8]) -> Result<u64> {
        if from >= to {
            return Ok(0);
        }
        let range = rocksdb::Range::new(from, to);
        let sizes = self.db.get_approximate_sizes_cf(self.view().handle(family)?, &[range]);
        Ok(sizes.into_iter().sum())
    }
}

/// A checkpoint, opened for reading.
struct Frozen {
    db: DB,
    dir: PathBuf,
}

impl Frozen {
    fn view(&self) -> View<'_> {
        View { db: &self.db, dir: &self.dir, snapshot: None }
    }
}

impl Reader for Frozen {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.view().get(family, key)
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.view().get_many(family, keys)
    }

    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.view().scan(family, from, to, visit)
    }

    fn scan_back(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.view().scan_back(family, from, to, visit)
    }
}

/// Reads of one database, of its newest state or of a snapshot.
struct View<'a> {
    db: &'a DB,
    dir: &'a Path,
    snapshot: Option<SnapshotWithThreadMode<'a, DB>>,
}

impl View<'_> {
    fn handle(&self, family: Family) -> Result<&ColumnFamily> {
        self.db.cf_handle(family.name()).ok_or_else(|| {
            Error::Engine(format!("`{}` has no family `{}`", self.dir.display(), family.name()))
        })
    }

    fn options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_verify_checksums(true);
        if let Some(snapshot) = &self.snapshot {
            options.set_snapshot(snapshot);
        }
        options
    }

    fn walk(&self, family: Family, from: &[u8], to: &[u8], ascending: bool, visit: Visit<'_>) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let mut options = self.options();
        options.set_iterate_range(from..to);
        let mut rows = self.db.raw_iterator_cf_opt(self.handle(family)?, options);
        if ascending {
            rows.seek(from)
        } else {
            rows.seek_to_last()
        }
        while let Some((key, value)) = rows.item() {
            if let ControlFlow::Break(()) = visit(key, value) {
                return Ok(());
            }
            if ascending { rows.next() } else { rows.prev() }
        }
        rows.status().map_err(|error| translate(self.dir, error))
    }
}

impl Reader for View<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db
            .get_cf_opt(self.handle(family)?, key, &self.options())
            .map_err(|error| translate(self.dir, error))
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let sorted = keys.is_sorted();
        self.db
            .batched_multi_get_cf_opt(self.handle(family)?, keys.iter().copied(), sorted, &self.options())
            .into_iter()
            .map(|value| match value {
                Ok(value) => Ok(value.map(|bytes| bytes.to_vec())),
                Err(error) => Err(translate(self.dir, error)),
            })
            .collect()
    }

    fn scan(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk(family, from, to, true, visit)
    }

    fn scan_back(&self, family: Family, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()> {
        self.walk(family, from, to, false, visit)
    }
}

fn payload_bytes(change: &Change) -> usize {
    match change {
        Change::Put(_, key, value) => key.len() + value.len(),
        Change::Delete(_, key) => key.len(),
        Change::DeleteRange(_, from, to) => from.len() + to.len(),
    }
}

/// RocksDB tells causes apart only in its messages.
fn translate(dir: &Path, error: rocksdb::Error) -> Error {
    let text = error.as_ref();
    let says = |phrase: &str| text.contains(phrase);
    if says("No space left on device") || says("Disk quota exceeded") {
        Error::Full { path: dir.to_owned() }
    } else if says("While lock file") || says("lock hold by current process") {
        Error::InUse { path: dir.to_owned(), pid: None }
    } else if error.kind() == ErrorKind::Corruption || says("No such file or directory") {
        Error::corrupt(format!("`{}`", dir.display()), text)
    } else {
        Error::Engine(text.to_owned())
    }
}

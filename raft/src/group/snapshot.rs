//! Snapshots of a group on disk: a checkpoint of the whole engine, and beside it what it covers of this group. They are
//! handed around as a path with a guard, never as a buffer; a superseded one is removed when its last handle is gone.
//!
//! Layout: `<snapshots>/g<group>-<number>/rows` is the checkpoint, `…/meta` the applied position in it with a checksum.
//! `meta` is written aside, synced and renamed, so a directory without it is what a crash left behind.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use dolomedes_storage::{
    Error, Result,
    engine::{Engine, Family, Reader},
};

use super::{
    format::Position,
    state::position_key,
    types::{Snapshot, SnapshotMeta},
};

/// Snapshots that may exist at once for a group: the newest, and older ones that are still being sent. No further one is
/// built while there are so many, because each keeps files on disk that the engine could have dropped.
pub const MAX_KEPT: usize = 3;

const ROWS: &str = "rows";
const META: &str = "meta";

/// A snapshot's directory. The files stay as long as a handle does.
#[derive(Clone, Debug)]
pub struct SnapshotData {
    guard: Arc<Guard>,
    /// How many pieces there are, if it was received in pieces and is no checkpoint.
    pieces: Option<u64>,
}

#[derive(Debug)]
struct Guard {
    dir: PathBuf,
    superseded: AtomicBool,
    /// Counted by [`Snapshots::room`].
    _alive: Arc<()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.superseded.load(Ordering::Acquire)
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            // Not an error of the group: what is left is removed at the next start.
            tracing::warn!(dir = %self.dir.display(), %error, "cannot remove a superseded snapshot");
        }
    }
}

impl SnapshotData {
    /// Pieces that were received into `dir`, which goes with the last handle.
    pub(super) fn received(dir: PathBuf, pieces: u64) -> Self {
        let guard = Guard { dir, superseded: AtomicBool::new(true), _alive: Arc::default() };
        Self { guard: Arc::new(guard), pieces: Some(pieces) }
    }

    /// Where pieces are, and how many, if it was received.
    pub(super) fn pieces(&self) -> Option<(PathBuf, u64)> {
        self.pieces.map(|pieces| (self.guard.dir.clone(), pieces))
    }

    /// Where the checkpoint is; for [`Engine::open_checkpoint`].
    pub fn rows(&self) -> PathBuf {
        self.guard.dir.join(ROWS)
    }
}

struct Current {
    position: Position,
    data: SnapshotData,
}

/// The snapshots of one group.
pub struct Snapshots {
    root: PathBuf,
    group: u32,
    next: AtomicU64,
    /// One reference per snapshot on disk, and this one.
    alive: Arc<()>,
    /// Held while publishing, so that a build that ends late cannot replace a newer snapshot.
    current: Mutex<Option<Current>>,
    /// Held while building: one at a time.
    building: Mutex<()>,
}

impl Snapshots {
    /// Finds the newest snapshot of `group` in the directory `root`, which is created if need be, and removes what
    /// crashes and predecessors left there.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a snapshot whose description is damaged; nothing is removed then.
    pub fn open(root: &Path, group: u32) -> Result<Self> {
        fs::create_dir_all(root).map_err(|error| Error::io("create directory", root, error))?;
        let alive = Arc::new(());
        let prefix = format!("g{group}-");
        let mut found = Vec::new();
        let mut leftovers = Vec::new();
        let mut next = 0;
        for entry in fs::read_dir(root).map_err(|error| Error::io("list", root, error))? {
            let dir = entry.map_err(|error| Error::io("list", root, error))?.path();
            let number =
                dir.file_name().and_then(|name| name.to_str()?.strip_prefix(&prefix)?.parse::<u64>().ok());
            let Some(number) = number else { continue };
            next = next.max(number + 1);
            match read_meta(&dir.join(META), group)? {
                Some(position) => found.push((position, dir)),
                None => leftovers.push(dir),
            }
        }
        found.sort_by_key(|(position, _)| position.applied);
        let newest = found.pop();
        leftovers.extend(found.into_iter().map(|(_, dir)| dir));
        for dir in leftovers {
            fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", &dir, error))?;
        }
        let current = newest.map(|(position, dir)| Current { position, data: handle(dir, &alive) });
        Ok(Self {
            root: root.to_owned(),
            group,
            next: AtomicU64::new(next),
            alive,
            current: Mutex::new(current),
            building: Mutex::new(()),
        })
    }

    /// The newest snapshot.
    pub fn current(&self) -> Option<Snapshot> {
        self.lock().as_ref().map(described)
    }

    /// Whether [`MAX_KEPT`] allows another one.
    pub fn room(&self) -> bool {
        Arc::strong_count(&self.alive) - 1 < MAX_KEPT
    }

    /// Makes a snapshot of what `engine` holds now and publishes it, unless a newer one has been published meanwhile.
    /// Returns the newest. Blocks on the disk.
    ///
    /// # Errors
    /// If the engine or a file fails; the group has to stop then.
    pub fn build(&self, engine: &dyn Engine) -> Result<Snapshot> {
        let _one_at_a_time = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = self.root.join(format!("g{}-{}", self.group, self.next.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&dir).map_err(|error| Error::io("create directory", &dir, error))?;
        let data = handle(dir.clone(), &self.alive);
        // Until it is published, it goes with its handle.
        data.guard.superseded.store(true, Ordering::Release);
        engine.checkpoint(&data.rows())?;
        // What the checkpoint holds must not be ahead of what the engine itself would hold after a crash.
        engine.sync()?;
        let position = read_position(&*engine.open_checkpoint(&data.rows())?, self.group)?;
        write_meta(&dir, self.group, &position)?;
        sync_dir(&self.root)?;

        let mut current = self.lock();
        if let Some(newer) = current.as_ref().filter(|newer| newer.position.applied >= position.applied) {
            return Ok(described(newer));
        }
        data.guard.superseded.store(false, Ordering::Release);
        let published = Current { position, data };
        let snapshot = described(&published);
        if let Some(before) = current.replace(published) {
            before.data.guard.superseded.store(true, Ordering::Release);
        }
        Ok(snapshot)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn handle(dir: PathBuf, alive: &Arc<()>) -> SnapshotData {
    let guard = Guard { dir, superseded: AtomicBool::new(false), _alive: alive.clone() };
    SnapshotData { guard: Arc::new(guard), pieces: None }
}

fn described(current: &Current) -> Snapshot {
    let Position { applied, membership, .. } = current.position.clone();
    let meta = SnapshotMeta { last_log_id: applied, last_membership: membership };
    Snapshot { meta, snapshot: current.data.clone() }
}

/// The applied position of `group` in `reader`.
pub(super) fn read_position(reader: &dyn Reader, group: u32) -> Result<Position> {
    match reader.get(Family::Meta, &position_key(group))? {
        Some(row) => Ok(Position::decode(&row)?),
        None => Ok(Position::default()),
    }
}

fn read_meta(path: &Path, group: u32) -> Result<Option<Position>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", path, error)),
    };
    let place = || path.display().to_string();
    let (sum, body) =
        bytes.split_first_chunk::<4>().ok_or_else(|| Error::corrupt(place(), "it is too short"))?;
    if u32::from_le_bytes(*sum) != checksum(group, body) {
        return Err(Error::corrupt(place(), "the checksum does not match"));
    }
    Ok(Some(Position::decode(body)?))
}

fn write_meta(dir: &Path, group: u32, position: &Position) -> Result<()> {
    let body = position.encode();
    let mut bytes = checksum(group, &body).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    let (aside, path) = (dir.join("meta.new"), dir.join(META));
    let mut file = fs::File::create(&aside).map_err(|error| Error::io("create", &aside, error))?;
    io::Write::write_all(&mut file, &bytes).map_err(|error| Error::io("write", &aside, error))?;
    file.sync_all().map_err(|error| Error::io("sync", &aside, error))?;
    fs::rename(&aside, &path).map_err(|error| Error::io("rename", &aside, error))?;
    sync_dir(dir)
}

fn sync_dir(dir: &Path) -> Result<()> {
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| Error::io("sync", dir, error))
}

fn checksum(group: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&group.to_be_bytes());
    hasher.update(body);
    hasher.finalize()
}

//! The marks of the sinks, one small file each in the data directory: up to which record a sink has delivered, and how long
//! its files were then. Replaced as a whole, so a crash leaves the old or the new one.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use dolomedes_storage::{
    Error,
    codec::{DecodeError, Decoder, Encoder},
};

use super::{
    Result, SinkError, jsonl,
    output::{Output, create_dir, replace, sync_dir},
    warc,
};
use crate::totals::Totals;

const FORMAT: u8 = 1;

/// What a sink's mark says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// Every accepted record up to this one is delivered.
    pub(super) seq: u64,
    /// OUT, for messages: the user may have moved it.
    pub(super) out: String,
    /// Number of the file being written, for sinks that number theirs.
    pub(super) number: u32,
    /// The files being written.
    pub(super) files: Vec<MarkedFile>,
    /// What the delivered records count up to.
    pub(super) totals: Totals,
}

/// A file as it was at the mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MarkedFile {
    /// Its path below OUT.
    pub(super) name: String,
    /// Its length.
    pub(super) bytes: u64,
    /// CRC-32 of the last bytes before that length, to tell it from a file that somebody put in its place.
    pub(super) tail_crc: u32,
}

impl Mark {
    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::versioned(FORMAT);
        out.uint(self.seq).str(&self.out).uint(self.number.into());
        out.list(&self.files, |out, file| {
            out.str(&file.name).uint(file.bytes).uint(file.tail_crc.into());
        });
        self.totals.encode(&mut out);
        let mut bytes = out.finish();
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::new("mark of a sink", bytes);
        from.u8()?;
        let mark = Self {
            seq: from.uint()?,
            out: from.str()?.to_owned(),
            number: from.uint32()?,
            files: from.list(|from| {
                Ok(MarkedFile { name: from.str()?.to_owned(), bytes: from.uint()?, tail_crc: from.uint32()? })
            })?,
            totals: Totals::decode(&mut from)?,
        };
        from.finish()?;
        Ok(mark)
    }
}

/// The directory of the marks, `sinks` in the data directory. `NAME.mark` is that of a sink that took part in the last run,
/// `NAME.mark.off` that of one that did not; its files are gone on with if it takes part again, but it has missed records.
#[derive(Clone, Debug)]
pub struct Marks {
    dir: PathBuf,
    start: u64,
}

impl Marks {
    /// Opens the directory, which is created if need be.
    pub fn open(dir: &Path) -> Result<Self> {
        create_dir(dir)?;
        let mut marks = Self { dir: dir.to_path_buf(), start: 0 };
        let mut least = None;
        for name in marks.active()? {
            if let Some(mark) = read(&marks.path(&name))? {
                least = Some(least.map_or(mark.seq, |least: u64| least.min(mark.seq)));
            }
        }
        marks.start = least.unwrap_or(0);
        Ok(marks)
    }

    /// Up to which record all sinks of the last run had delivered; where a new sink begins.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The files that sinks of the last run were writing, by their paths below OUT, and how long they are for good.
    pub fn lengths(&self) -> Result<BTreeMap<String, u64>> {
        let mut lengths = BTreeMap::new();
        for name in self.active()? {
            if let Some(mark) = read(&self.path(&name))? {
                lengths.extend(mark.files.into_iter().map(|file| (file.name, file.bytes)));
            }
        }
        Ok(lengths)
    }

    /// Removes the marks, and the files below `out` that they prove to be of the crawl that left them. For a fresh start.
    /// Files elsewhere, or that are not as they were left, stay.
    pub fn discard(dir: &Path, out: &Path) -> Result<()> {
        let marks = Self { dir: dir.to_path_buf(), start: 0 };
        let out = fs::canonicalize(out).unwrap_or_else(|_| out.to_path_buf());
        for name in [jsonl::NAME, warc::NAME] {
            let paths = [marks.path(name), marks.off_path(name)];
            for path in &paths {
                let Some(mark) = read(path)? else { continue };
                if mark.files.iter().all(|file| Output::matches(&out, file, &mark)) {
                    let owned = if name == warc::NAME { warc::owned_files(&mark) } else { Vec::new() };
                    // The files that prove the others come last, in case this is interrupted.
                    for file in owned.into_iter().chain(mark.files.iter().map(|file| file.name.clone())) {
                        remove(&out.join(file))?;
                    }
                }
                remove(path)?;
            }
        }
        Ok(())
    }

    /// The mark that the sink `name` left, whether or not it took part in the last run.
    pub(super) fn load(&self, name: &str) -> Result<Option<Mark>> {
        if let Some(mark) = read(&self.path(name))? {
            return Ok(Some(mark));
        }
        // Records up to the start may be gone from the spool, and those that it missed with them.
        Ok(read(&self.off_path(name))?.map(|mark| Mark { seq: self.start.max(mark.seq), ..mark }))
    }

    /// Makes `mark` that of the sink `name`, durably.
    pub(super) fn store(&self, name: &str, mark: &Mark) -> Result<()> {
        replace(&self.path(name), |file| io::Write::write_all(file, &mark.encode()))
    }

    /// Sets the marks of all other sinks aside: they take no part in this run.
    pub(super) fn retire_others(&self, taking_part: &[&str]) -> Result<()> {
        for name in self.active()? {
            if !taking_part.contains(&name.as_str()) {
                let path = self.path(&name);
                fs::rename(&path, self.off_path(&name))
                    .map_err(|source| SinkError::io("set aside", &path, source))?;
            }
        }
        sync_dir(&self.dir)
    }

    fn active(&self) -> Result<Vec<String>> {
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&self.dir)? {
                let name = entry?.file_name();
                if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".mark")) {
                    names.push(name.to_owned());
                }
            }
            Ok(names)
        };
        list().map_err(|source| SinkError::io("list the directory", &self.dir, source))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.mark"))
    }

    fn off_path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.mark.off"))
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SinkError::io("remove", path, error)),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<Option<Mark>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|source| SinkError::io("read", path, source))?,
    };
    let place = format!("the mark `{}`", path.display());
    let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
        return Err(Error::corrupt(place, "it ends early").into());
    };
    match body.first() {
        Some(&found) if found > FORMAT => {
            return Err(Error::UnknownFormat { place, found: found.into(), known: FORMAT.into() }.into());
        }
        _ => {}
    }
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err(Error::corrupt(place, "its checksum is wrong").into());
    }
    Ok(Some(Mark::decode(body).map_err(Error::from)?))
}

//! The files with a node's records of a job, as far as they are delivered for good.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::sink::Marks;

/// A file below the job's OUT.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Deliverable {
    /// Its path below OUT, with `/`.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// How much of it counts.
    pub bytes: u64,
}

/// The files of the job in `dir`, sorted by name; none if the node has none. Indexes over all files of a node are left out:
/// whoever gathers several nodes makes one of its own.
pub(crate) fn deliverables(dir: &Path) -> anyhow::Result<Vec<Deliverable>> {
    let sinks = dir.join("sinks");
    if !sinks.exists() {
        return Ok(Vec::new());
    }
    // Of files that are being written, what the marks say; others are complete.
    let marked = Marks::open(&sinks)?.lengths()?;
    let out = dir.join("out");
    let mut found = Vec::new();
    for below in ["", "warc"] {
        let folder = out.join(below);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.with_context(|| format!("cannot list `{}`", folder.display()))?,
        };
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list `{}`", folder.display()))?;
            let Ok(file) = entry.file_name().into_string() else { continue };
            let name = if below.is_empty() { file.clone() } else { format!("{below}/{file}") };
            let wanted = match below {
                "" => file == "pages.jsonl",
                _ => file.ends_with(".warc.gz") || (file.ends_with(".cdxj") && file != "index.cdxj"),
            };
            if !wanted {
                continue;
            }
            let path = entry.path();
            let length = entry.metadata().with_context(|| format!("cannot read `{}`", path.display()))?.len();
            let bytes = marked.get(&name).copied().unwrap_or(length);
            found.push(Deliverable { name, path, bytes });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

//! Gathering the records of all nodes in one directory. Everything is written beside its place first, so that an export
//! that breaks off leaves nothing that looks whole.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use dolomedes_netproto::wire::{Client, v1};
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use crate::sink::merge_indexes;

const PAGES: &str = "pages.jsonl";
const INDEX: &str = "index.cdxj";
const UNFINISHED: &str = ".part";

/// What was gathered.
pub(super) struct Gathered {
    out: PathBuf,
    records: u64,
    bytes: u64,
    files: usize,
    state: v1::JobState,
}

impl Gathered {
    pub(super) fn text(&self) -> String {
        let note = match self.state {
            v1::JobState::Finished | v1::JobState::Cancelled => "",
            _ => "; the job has not ended, so there will be more",
        };
        format!(
            "{} records, {} in {} files under {}{note}",
            HumanCount(self.records),
            HumanBytes(self.bytes),
            self.files,
            self.out.display()
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "records": self.records, "bytes": self.bytes, "files": self.files, "out": self.out,
            "complete": matches!(self.state, v1::JobState::Finished | v1::JobState::Cancelled),
        })
    }
}

/// Gathers the records of the job `name` under `out`.
pub(super) async fn gather(
    client: &Client,
    name: &str,
    out: &Path,
    replace: bool,
) -> anyhow::Result<Gathered> {
    let job = client.show_job(name).await?;
    let nodes = client.status().await?.nodes;
    let out = std::path::absolute(out).context("--out")?;
    let pages = out.join(PAGES);
    ensure!(replace || !pages.exists(), "`{}` exists; name another --out, or --replace it", pages.display());
    let mut files = Files::new(out.clone())?;
    for node in nodes {
        receive(client, name, node.id, &mut files).await.with_context(|| {
            format!(
                "the records of node {} cannot be had; wait until it is back, or, if it is lost for good, remove it \
                 (`dolomedes cluster remove {}`), and its pages are fetched again",
                node.id, node.id
            )
        })?;
    }
    let (records, bytes, count) = files.complete()?;
    Ok(Gathered { out, records, bytes, files: count, state: job.state() })
}

async fn receive(client: &Client, name: &str, node: u64, files: &mut Files) -> anyhow::Result<()> {
    let mut stream = client.export_job(name, node).await?;
    let mut last = String::new();
    while let Some(v1::ExportChunk { file, data }) = stream.message().await? {
        if file != last {
            files.begin(&file)?;
            last = file;
        }
        files.append(&last, &data)?;
    }
    Ok(())
}

/// The files of an export while they are written.
struct Files {
    out: PathBuf,
    open: BTreeMap<String, (PathBuf, BufWriter<File>)>,
    records: u64,
    bytes: u64,
}

impl Files {
    fn new(out: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&out).with_context(|| format!("cannot create `{}`", out.display()))?;
        let mut files = Self { out, open: BTreeMap::new(), records: 0, bytes: 0 };
        // Also where no node has any.
        files.begin(PAGES)?;
        Ok(files)
    }

    /// Begins the file `name`, or goes on with it: pages.jsonl is one file of all nodes.
    fn begin(&mut self, name: &str) -> anyhow::Result<()> {
        if self.open.contains_key(name) {
            ensure!(name == PAGES, "two nodes have a file `{name}`");
            return Ok(());
        }
        let below = Path::new(name);
        if name.is_empty() || !below.components().all(|part| matches!(part, Component::Normal(_))) {
            bail!("a node names a file `{name}`, which is none below --out");
        }
        let path = self.out.join(below);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).with_context(|| format!("cannot create `{}`", dir.display()))?;
        }
        let aside = aside(&path);
        let file = File::create(&aside).with_context(|| format!("cannot create `{}`", aside.display()))?;
        self.open.insert(name.to_owned(), (path, BufWriter::new(file)));
        Ok(())
    }

    fn append(&mut self, name: &str, data: &[u8]) -> anyhow::Result<()> {
        let (path, file) = self.open.get_mut(name).context("a file was not begun")?;
        file.write_all(data).with_context(|| format!("cannot write `{}`", aside(path).display()))?;
        self.bytes += data.len() as u64;
        if name == PAGES {
            self.records += data.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        Ok(())
    }

    /// Puts all files in their places, durably, and makes the index over all.
    fn complete(self) -> anyhow::Result<(u64, u64, usize)> {
        let count = self.open.len();
        let mut indexes = Vec::new();
        for (name, (path, file)) in self.open {
            let place = aside(&path);
            let file = file.into_inner().map_err(std::io::IntoInnerError::into_error);
            file.and_then(|file| file.sync_all())
                .with_context(|| format!("cannot write `{}`", place.display()))?;
            fs::rename(&place, &path).with_context(|| format!("cannot rename `{}`", place.display()))?;
            if name.ends_with(".cdxj") {
                indexes.push(path);
            }
        }
        if let Some(dir) = indexes.first().and_then(|index| index.parent()) {
            merge_indexes(&indexes, &dir.join(INDEX))?;
        }
        Ok((self.records, self.bytes, count))
    }
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

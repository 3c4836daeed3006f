//! OUT/warc: the exchanges of a crawl as WARC 1.1 (ISO 28500:2017), one gzip member per record, with an index in CDXJ.
//!
//! Each NAME-00001.warc.gz has a NAME-00001.cdxj with its entries in the order of the file; index.cdxj, sorted and over all
//! files, is made when the job is finished. A file is closed when it has grown to its size; the records of one fetch stay
//! together.

mod cdxj;
mod gzip;
mod record;
mod seen;

use std::path::{Path, PathBuf};

use gzip::Members;
use record::Written;
use seen::SeenPayloads;

use super::{
    Result, Sink, SinkError,
    mark::{Mark, MarkedFile, Marks},
    output::{Output, create_dir, open_out, refuse_foreign, sync_dir},
};
use crate::record::Envelope;

pub(super) const NAME: &str = "warc";
const DIR: &str = "warc";
const INDEX: &str = "index.cdxj";

/// How WARC files are written.
#[derive(Clone, Debug)]
pub struct WarcOptions {
    /// What the files' names begin with; letters, digits, `.`, `-` and `_`, others become `_`. Default `dolomedes`.
    pub name: String,
    /// No further fetch goes into a file that has reached this size. Default 1 GiB.
    pub rotate_bytes: u64,
    /// 0 to 9. Default 1: most bodies arrive compressed, and the crawl needs its processor.
    pub level: u32,
    /// Memory for digests of payloads seen in this run; the oldest are forgotten. A payload that is not known is stored
    /// again. Default 32 MiB, about 200,000 payloads.
    pub seen_bytes: usize,
    /// Further fields of each file's warcinfo record, such as `operator` or `http-header-user-agent`.
    pub info: Vec<(String, String)>,
}

impl Default for WarcOptions {
    fn default() -> Self {
        Self {
            name: "dolomedes".into(),
            rotate_bytes: 1 << 30,
            level: 1,
            seen_bytes: 32 << 20,
            info: Vec::new(),
        }
    }
}

/// The sink of WARC files.
pub struct Warc {
    out: PathBuf,
    marks: Marks,
    options: WarcOptions,
    members: Members,
    seen: SeenPayloads,
    number: u32,
    current: Option<Current>,
    delivered: u64,
    /// The last record that was taken, or needs not be.
    handled: u64,
}

/// The file being written, and its index.
struct Current {
    warc: Output,
    index: Output,
    /// Of its first record; not known of a file that is gone on with after a restart.
    info_id: Option<String>,
}

impl Warc {
    /// Opens OUT/warc, made if need be, and cuts the files being written back to the sink's mark.
    ///
    /// # Errors
    /// [`SinkError::Foreign`] if there is a file of that name and no mark; otherwise if files are not as the mark says.
    pub fn open(out: &Path, marks: &Marks, options: WarcOptions) -> Result<Self> {
        let out = open_out(out)?;
        create_dir(&out.join(DIR))?;
        sync_dir(&out)?;
        let name = options
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' });
        let mut options = WarcOptions { name: name.collect(), ..options };
        let mark = marks.load(NAME)?.unwrap_or_else(|| Mark { seq: marks.start(), ..Mark::default() });
        // Files are gone on with under the name that they were begun with.
        if let Some(name) = stem(&mark).and_then(|stem| stem.strip_prefix(DIR)?.strip_prefix('/')) {
            options.name = name.to_owned();
        }
        let current = match &mark.files[..] {
            [warc, index] => Some(Current {
                warc: Output::resume(&out, warc, &mark)?,
                index: Output::resume(&out, index, &mark)?,
                info_id: None,
            }),
            _ => None,
        };
        let mut sink = Self {
            seen: SeenPayloads::new(options.seen_bytes),
            members: Members::new(options.level),
            out,
            marks: marks.clone(),
            options,
            number: mark.number,
            current,
            delivered: mark.seq,
            handled: mark.seq,
        };
        if sink.current.is_none() {
            refuse_foreign(&sink.path(&sink.file_name(1, "warc.gz")), false)?;
            refuse_foreign(&sink.path(INDEX), true)?;
        }
        sink.sync(mark.seq)?;
        Ok(sink)
    }

    fn file_name(&self, number: u32, extension: &str) -> String {
        file_name(&self.options.name, number, extension)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.out.join(DIR).join(file)
    }

    fn mark(&self, seq: u64, files: Vec<MarkedFile>) -> Mark {
        Mark { seq, out: self.out.display().to_string(), number: self.number, files, ..Mark::default() }
    }

    /// Closes the present file and begins the next. The mark is moved to the new file before that exists, so that a crash
    /// leaves no file that the mark does not know.
    fn rotate(&mut self) -> Result<()> {
        if let Some(current) = &mut self.current {
            current.warc.sync()?;
            current.index.sync()?;
        }
        self.number += 1;
        let names = ["warc.gz", "cdxj"].map(|extension| self.file_name(self.number, extension));
        for name in &names {
            refuse_foreign(&self.path(name), false)?;
        }
        let files = names.iter().map(|name| MarkedFile {
            name: format!("{DIR}/{name}"),
            bytes: 0,
            tail_crc: crc32fast::hash(b""),
        });
        let mark = self.mark(self.handled, files.collect());
        self.marks.store(NAME, &mark)?;
        self.delivered = self.handled;
        let [warc, index] = names.map(|name| Output::create(&self.path(&name), false));
        self.current = Some(Current { warc: warc?, index: index?, info_id: None });
        sync_dir(&self.out.join(DIR))
    }
}

impl Sink for Warc {
    fn name(&self) -> &'static str {
        NAME
    }

    fn delivered_upto(&self) -> u64 {
        self.delivered
    }

    fn write(&mut self, seq: u64, envelope: &Envelope) -> Result<u64> {
        let Some(exchange) = &envelope.exchange else {
            self.handled = seq;
            return Ok(0);
        };
        if self.current.as_ref().is_none_or(|it| it.warc.bytes() >= self.options.rotate_bytes) {
            self.rotate()?;
        }
        let file_name = self.file_name(self.number, "warc.gz");
        let Some(current) = &mut self.current else { return Ok(0) };
        let before = current.warc.bytes();
        let fail =
            |source| SinkError::io("compress a record for", self.out.join(DIR).join(&file_name), source);
        if before == 0 {
            let (id, written) = record::warcinfo(&file_name, exchange, &self.options.info);
            current.warc.append(self.members.member(&written.parts()).map_err(fail)?)?;
            current.info_id = Some(id);
        }
        for written in record::fetch(envelope, exchange, current.info_id.as_deref(), &mut self.seen) {
            let Written { entry, .. } = &written;
            let member = self.members.member(&written.parts()).map_err(fail)?;
            if let Some(entry) = entry {
                let line = cdxj::line(entry, current.warc.bytes(), member.len() as u64, &file_name);
                current.index.append(line.as_bytes())?;
            }
            current.warc.append(member)?;
        }
        self.handled = seq;
        Ok(current.warc.bytes() - before)
    }

    fn sync(&mut self, upto: u64) -> Result<()> {
        let mut files = Vec::new();
        if let Some(current) = &mut self.current {
            for (output, extension) in [(&mut current.warc, "warc.gz"), (&mut current.index, "cdxj")] {
                output.sync()?;
                let name = file_name(&self.options.name, self.number, extension);
                files.push(output.marked(format!("{DIR}/{name}"))?);
            }
        }
        let seq = upto.max(self.delivered);
        self.marks.store(NAME, &self.mark(seq, files))?;
        self.delivered = seq;
        self.handled = self.handled.max(seq);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let parts: Vec<PathBuf> =
            (1..=self.number).map(|number| self.path(&self.file_name(number, "cdxj"))).collect();
        cdxj::merge(&parts, &self.path(INDEX))
    }
}

/// Makes `target`, a sorted index, out of the indexes of single WARC files.
///
/// # Errors
/// If a file cannot be read or written.
pub fn merge_indexes(parts: &[PathBuf], target: &Path) -> Result<()> {
    cdxj::merge(parts, target)
}

/// The files that a mark proves, below OUT.
pub(super) fn owned_files(mark: &Mark) -> Vec<String> {
    let Some(stem) = stem(mark) else { return Vec::new() };
    let mut files = vec![format!("{DIR}/{INDEX}")];
    for number in 1..mark.number {
        files.extend(["warc.gz", "cdxj"].map(|extension| file_name(stem, number, extension)));
    }
    files
}

/// The part of the files' names, below OUT, before their number.
fn stem(mark: &Mark) -> Option<&str> {
    mark.files.first()?.name.strip_suffix(&format!("-{:05}.warc.gz", mark.number))
}

fn file_name(stem: &str, number: u32, extension: &str) -> String {
    format!("{stem}-{number:05}.{extension}")
}

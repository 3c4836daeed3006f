//! OUT/pages.jsonl: one line of JSON per record. The lines were made when the records went into the spool.

use std::path::{Path, PathBuf};

use super::{
    Result, Sink,
    mark::{Mark, Marks},
    output::{Output, open_out, sync_dir},
};
use crate::{record::Envelope, totals::Totals};

pub(super) const NAME: &str = "jsonl";
const FILE: &str = "pages.jsonl";

/// The sink of pages.jsonl.
#[derive(Debug)]
pub struct JsonLines {
    out: PathBuf,
    marks: Marks,
    file: Output,
    delivered: u64,
    totals: Totals,
}

impl JsonLines {
    /// Opens OUT/pages.jsonl, made if need be, and cuts it back to the sink's mark.
    ///
    /// # Errors
    /// [`Foreign`](super::SinkError::Foreign) if there is one already and no mark; otherwise if it is not as the mark says.
    pub fn open(out: &Path, marks: &Marks) -> Result<Self> {
        let out = open_out(out)?;
        let (file, delivered, totals) = match marks.load(NAME)? {
            Some(mark) if !mark.files.is_empty() => {
                (Output::resume(&out, &mark.files[0], &mark)?, mark.seq, mark.totals)
            }
            _ => {
                let file = Output::create(&out.join(FILE), true)?;
                sync_dir(&out)?;
                (file, marks.start(), Totals::default())
            }
        };
        let mut sink = Self { out, marks: marks.clone(), file, delivered, totals };
        sink.sync(delivered)?;
        Ok(sink)
    }
}

impl Sink for JsonLines {
    fn name(&self) -> &'static str {
        NAME
    }

    fn delivered_upto(&self) -> u64 {
        self.delivered
    }

    fn write(&mut self, _: u64, record: &Envelope) -> Result<u64> {
        self.file.append(&record.line)?;
        self.file.append(b"\n")?;
        self.totals.count(record.class);
        Ok(record.line.len() as u64 + 1)
    }

    fn sync(&mut self, upto: u64) -> Result<()> {
        self.file.sync()?;
        let seq = upto.max(self.delivered);
        let files = vec![self.file.marked(FILE.to_owned())?];
        let mark = Mark { seq, out: self.out.display().to_string(), number: 1, files, totals: self.totals };
        self.marks.store(NAME, &mark)?;
        self.delivered = seq;
        Ok(())
    }

    fn totals(&self) -> Option<Totals> {
        Some(self.totals)
    }
}

//! Where records go. A [`Sink`] writes the records it is given, in order, to files under OUT; [`Delivery`] gives it each
//! accepted record of the spool once. Exactly once, also across crashes: a sink's mark says how long its files were when
//! the record with a certain number had been written, and at start they are cut back to that.
//!
//! Not here: which records are accepted (the state machine says so) and what a record means ([`crate::record`]).

mod delivery;
mod head;
mod jsonl;
mod mark;
mod output;
#[cfg(test)]
mod tests;
mod warc;

use std::path::PathBuf;

pub use delivery::{Delivery, DeliveryHandle, DeliveryOptions};
pub use head::{request_head, response_head};
pub use jsonl::JsonLines;
pub use mark::Marks;
pub use warc::{Warc, WarcOptions, merge_indexes};

use crate::{record::Envelope, totals::Totals};

/// Receives records in the order of their sequence numbers.
///
/// After an error nothing is retried: the process ends, and the next one cuts the files back to the mark.
pub trait Sink: Send {
    /// A short name for messages; also that of its mark.
    fn name(&self) -> &'static str;

    /// Every record up to this sequence number is durable here, and the mark says so durably.
    fn delivered_upto(&self) -> u64;

    /// Takes a record. `seq` rises from call to call and is above [`delivered_upto`](Self::delivered_upto). Returns the
    /// bytes added to its files.
    fn write(&mut self, seq: u64, record: &Envelope) -> Result<u64>;

    /// Makes everything written durable, then a mark that says that all up to `upto` is delivered.
    fn sync(&mut self, upto: u64) -> Result<()>;

    /// What the records written so far count up to, if this sink counts them.
    fn totals(&self) -> Option<Totals> {
        None
    }

    /// After the last [`sync`](Self::sync) of a finished job: makes what needs the whole, such as a sorted index.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Result with [`SinkError`].
pub type Result<T, E = SinkError> = std::result::Result<T, E>;

/// Why records cannot be delivered. Nothing is lost by any of these: records stay in the spool.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A file, the spool or a mark failed.
    #[error(transparent)]
    Storage(#[from] dolomedes_storage::Error),
    /// There is a file that this crawl did not write.
    #[error("`{}` exists and is not from this crawl; move it away or name another --out, it is not overwritten", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A file that records were delivered to is gone.
    #[error("`{}` is missing: records up to {delivered} of this crawl were written under `{}`; name that directory (or where it was moved) as --out, or start over with --fresh", path.display(), written_to.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The newest record in it.
        delivered: u64,
        /// OUT of the last run.
        written_to: PathBuf,
    },
    /// A file has lost bytes.
    #[error("`{}` has {found} bytes, but {expected} were written to it: something has shortened it; restore it, or start over with --fresh", path.display())]
    Shortened {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// Its length at the mark.
        expected: u64,
    },
    /// A file is not as it was left.
    #[error("`{}` is not as this crawl left it (its last bytes before {expected} differ); restore it, name another --out if it is from another crawl, or start over with --fresh", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its length at the mark.
        expected: u64,
    },
    /// Verdicts came for records far beyond the one that is waited for.
    #[error(
        "record {waiting} was never judged, though {ahead} was; this is a defect of the program, start again"
    )]
    Gap {
        /// The record that is waited for.
        waiting: u64,
        /// The one that was judged.
        ahead: u64,
    },
    /// The delivery thread ended without saying why.
    #[error("the delivery of records has stopped; start again")]
    Stopped,
}

impl SinkError {
    fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Storage(dolomedes_storage::Error::io(action, path, source))
    }
}

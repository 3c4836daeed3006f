//! The replicated state machine: what each command does to the rows of one group. Pure: it reads and writes through an
//! [`Overlay`], takes time from entries, and the same log gives the same bytes on every node, however it is cut into
//! chunks. Not here: the log, consensus, snapshots ([`crate`]'s glue).

mod checkpoint;
mod claim;
mod cluster;
mod complete;
mod feed;
mod lease;
pub mod limits;
mod lock;
mod once;
mod overlay;
mod place;
mod put;
mod queue;
pub mod read;
mod recall;
mod records;
mod redrive;
mod registry;
mod replay;
mod rows;
mod seen;
mod session;
mod tables;
mod tick;
mod work;

use std::sync::Arc;

use dolomedes_storage::Result;

pub use overlay::Overlay;
pub use seen::SeenFilter;
use tables::Tables;
use work::Work;

use crate::command::{Entry, Reply};

/// The machine of one group. It holds derived state only: everything else is rows, so a new one may be made at any time.
pub struct Machine {
    tables: Tables,
    seen: Arc<SeenFilter>,
}

impl Machine {
    /// The machine of `group`, whose rows are those of `generation`: a number that rises with each installed snapshot.
    pub fn new(group: u32, generation: u64) -> Self {
        let tables = Tables::new(group, generation);
        Self { tables, seen: Arc::new(SeenFilter::new(tables)) }
    }

    /// The filter of known fingerprints, to be filled in the background ([`SeenFilter::rebuild`]).
    pub fn seen_filter(&self) -> Arc<SeenFilter> {
        self.seen.clone()
    }

    /// Applies the entry at log position `index`: reads through `store`, writes into it, and returns one reply per
    /// command. Errors are those of the storage, among them damaged rows; after one, the group must stop and `store` be
    /// thrown away. One `store` may serve many entries in a row.
    pub fn apply(&mut self, store: &mut Overlay<'_>, index: u64, entry: &Entry) -> Result<Vec<Reply>> {
        let mut work = Work::begin(store, self.tables, &self.seen, index, entry.stamp)?;
        entry.commands.iter().map(|command| work.run(command)).collect()
    }
}

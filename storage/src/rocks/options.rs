//! How RocksDB is opened: what may use how much memory, how each family is laid out, and that damage is found.

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode,
    DataBlockIndexType, LogLevel, Options, WriteBufferManager,
};

use crate::engine::Family;

/// Bounds of a [`RocksEngine`](super::RocksEngine).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocksOptions {
    /// Bytes of the one block cache. Index and filter blocks live in it.
    pub cache_bytes: usize,
    /// Bytes of all memtables together. A soft bound: what exceeds it is flushed early, writers are not stalled.
    pub memtable_bytes: usize,
    /// Bytes of live write-ahead log, which bound the time of a restart. Families that hold old log files are flushed.
    pub wal_bytes: u64,
    /// Files held open.
    pub open_files: i32,
    /// Threads for flushes and compactions.
    pub background_jobs: i32,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            memtable_bytes: 64 << 20,
            wal_bytes: 64 << 20,
            open_files: 512,
            background_jobs: 2,
        }
    }
}

/// Options of the whole database.
///
/// `atomic_flush` stays off. It exists for families without a write-ahead log; ours all have it. A recovery is then
/// always a prefix of the writes over all families: with more than one family RocksDB syncs every closed log file before
/// it flushes a memtable (`DBImpl::FlushMemTableToOutputFile`, `needs_to_sync_closed_wals`), so no table file can hold
/// a batch whose log record a power cut may still take away from another family.
pub(super) fn database(bounds: &RocksOptions, memtables: Option<&WriteBufferManager>) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);

    // The default, point-in-time recovery, silently drops everything behind one flipped byte. This mode takes only an
    // incomplete last record for what it is, the trace of a write that nobody was told is durable.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_track_and_verify_wals_in_manifest(true);
    options.set_paranoid_checks(true);

    options.set_max_total_wal_size(bounds.wal_bytes);
    options.set_max_open_files(bounds.open_files);
    options.set_max_background_jobs(bounds.background_jobs);
    if let Some(memtables) = memtables {
        options.set_write_buffer_manager(memtables);
    }
    options.set_bytes_per_sync(1 << 20);
    options.set_skip_stats_update_on_db_open(true);
    options.set_avoid_unnecessary_blocking_io(true);

    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(4 << 20);
    options.set_keep_log_file_num(4);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

/// The families with their options, and the one that RocksDB insists on.
pub(super) fn families(bounds: &RocksOptions, cache: &Cache) -> Vec<ColumnFamilyDescriptor> {
    let mut families =
        vec![ColumnFamilyDescriptor::new(rocksdb::DEFAULT_COLUMN_FAMILY_NAME, Options::default())];
    families.extend(
        Family::ALL.map(|it| ColumnFamilyDescriptor::new(it.name(), family(it, bounds, Some(cache)))),
    );
    families
}

/// Options of one family; without a cache, for files that are written beside the database.
pub(super) fn family(family: Family, bounds: &RocksOptions, cache: Option<&Cache>) -> Options {
    let mut options = Options::default();
    let mut blocks = BlockBasedOptions::default();
    blocks.set_format_version(6);
    match cache {
        Some(cache) => {
            blocks.set_block_cache(cache);
            blocks.set_cache_index_and_filter_blocks(true);
            blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
            blocks.set_pin_top_level_index_and_filter(true);
            blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        }
        None => blocks.disable_cache(),
    }
    // A memtable is given back whole, so each has to be small beside the budget of all.
    let memtable = (bounds.memtable_bytes / 4).max(64 << 10);
    options.set_write_buffer_size(memtable);
    options.set_max_write_buffer_number(3);
    options.set_level_compaction_dynamic_level_bytes(true);
    match family {
        Family::Log => {
            // Each entry is read once or twice and purged by range; the entries are compressed by their maker or small.
            options.set_compression_type(DBCompressionType::None);
            options.set_target_file_size_base(32 << 20);
            options.set_level_zero_file_num_compaction_trigger(8);
            blocks.set_block_size(32 << 10);
        }
        Family::Meta => {
            options.set_compression_type(DBCompressionType::None);
            options.set_write_buffer_size(memtable.min(2 << 20));
        }
        Family::State => {
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_target_file_size_base(32 << 20);
            options.set_max_bytes_for_level_base(128 << 20);
            // A queue is consumed at its front: without this, scans wade through the tombstones of what was taken.
            options.add_compact_on_deletion_collector_factory(4096, 2048, 0.5);
            blocks.set_block_size(8 << 10);
            filters(&mut blocks);
        }
        Family::Seen => {
            // Fingerprints are random bytes.
            options.set_compression_type(DBCompressionType::None);
            options.set_target_file_size_base(32 << 20);
            options.set_max_bytes_for_level_base(128 << 20);
            options.set_memtable_prefix_bloom_ratio(0.05);
            options.set_memtable_whole_key_filtering(true);
            blocks.set_block_size(4 << 10);
            blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            filters(&mut blocks);
        }
    }
    options.set_block_based_table_factory(&blocks);
    options
}

/// Whole-key filters in partitions, so that only the parts in use take room in the cache. Files of level 0 live
/// briefly and get Bloom filters, which are quick to build; the others get Ribbon filters, a third smaller.
fn filters(blocks: &mut BlockBasedOptions) {
    blocks.set_whole_key_filtering(true);
    blocks.set_hybrid_ribbon_filter(10.0, 1);
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_metadata_block_size(4 << 10);
    blocks.set_optimize_filters_for_memory(true);
}

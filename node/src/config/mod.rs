//! From what a user wrote to what it means: [`options`] (flags and file, the same names), [`file`] (TOML), and
//! [`resolve`] (defaults, bounds, checks).

pub mod file;
pub mod options;
pub mod resolve;

pub use options::{CrawlOptions, HttpChoice, JobOptions, NetworkOptions};
pub use resolve::{CrawlConfig, JobSpec};

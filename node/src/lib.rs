//! The crawler and the program around it: crawl loop, robots, scope, links, records, sinks, configuration, command
//! line. Knows nothing of how a log entry is stored or a vote is taken.

mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod crawl;
pub mod extract;
mod jobs;
mod keys;
pub mod politeness;
pub mod record;
pub mod robots;
pub mod sink;
pub mod sitemap;
pub mod totals;
pub mod trap;
pub mod url;

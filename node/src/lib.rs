//! The crawl and the program.

pub mod extract;

//! .

pub mod politeness;
pub mod robots;
pub mod sitemap;
pub mod trap;
pub mod url;

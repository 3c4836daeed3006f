//! .
pub mod record;
pub mod sink;

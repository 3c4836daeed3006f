//! The 25 cases that any crawler should be tried on, each named after its number. A case builds a small site, crawls it
//! with the real binary and looks at what arrived at the server and at what was written down.

mod content;
mod links;
mod robots;
mod transport;
mod urls;

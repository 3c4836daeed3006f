//! Tests of the state machine: readable transcripts, a model, determinism, the filter of known fingerprints.

mod determinism;
mod harness;
mod model;
mod ops;
mod promises;
mod seen;
mod stories;
mod transcripts;

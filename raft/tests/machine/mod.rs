//! Tests of the state machine: readable transcripts, a model, determinism, the filter of known fingerprints.

mod coordination;
mod determinism;
mod harness;
mod line;
mod model;
mod ops;
mod promises;
mod seen;
mod stories;
mod transcripts;

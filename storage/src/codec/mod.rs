//! How values and keys become bytes. Values: a version byte, then fields in a fixed order ([`Encoder`], [`Decoder`]).
//! Keys: composites whose byte order is the order of their parts ([`key`]). Both formats are frozen once released; a
//! change of meaning takes a new version byte, and decoders keep reading the old ones.

pub mod key;
mod value;

pub use value::{DecodeError, Decoder, Encoder};

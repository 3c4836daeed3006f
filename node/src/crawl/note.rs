//! What the owner of a host leaves for the next one, kept as the key's note in the frontier: robots verdict and pace.
//! Bytes ↔ values only; a note that cannot be read counts as none, since all it holds can be found out again.

use dolomedes_storage::codec::{Decoder, Encoder};

use crate::{politeness::HostPace, robots::RobotsVerdict};

/// The parts of a note, still encoded where the reader has to add its own rules.
#[derive(Debug, Default)]
pub(super) struct HostNote<'a> {
    /// What robots.txt says.
    pub robots: Option<RobotsVerdict>,
    /// For [`HostPace::restore`].
    pub pace: Option<&'a [u8]>,
}

impl<'a> HostNote<'a> {
    /// The note's bytes.
    pub(super) fn encode(robots: Option<&RobotsVerdict>, pace: &HostPace) -> Vec<u8> {
        let mut out = Encoder::versioned(1);
        out.option(robots, |out, robots| {
            out.bytes(&robots.encode());
        });
        out.bytes(&pace.encode());
        out.finish()
    }

    /// Reads a note as far as it can be read.
    pub(super) fn decode(bytes: &'a [u8]) -> Self {
        let mut input = Decoder::new("host note", bytes);
        let parts = (|| {
            if input.u8()? != 1 {
                return Err(input.error("unknown format"));
            }
            Ok((input.option(Decoder::bytes)?, input.bytes()?))
        })();
        match parts {
            Ok((robots, pace)) => Self {
                robots: robots.and_then(|robots| RobotsVerdict::decode(robots).ok()),
                pace: Some(pace),
            },
            Err(_) => Self::default(),
        }
    }
}

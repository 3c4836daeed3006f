//! What the records of a job count up to. Kept beside the records themselves, in the mark of their sink, so that after
//! a crash the totals are exactly those of the records that are there.

use std::array;

use dolomedes_storage::codec::{DecodeError, Decoder, Encoder};

/// What a record counts as. The numbers are stored; new classes are added at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// A page with a 2xx status (or 304).
    Ok,
    /// A page with another status.
    ErrorStatus,
    /// A redirect.
    Redirect,
    /// No page came of it: given up, or a redirect that leads nowhere.
    Failed,
    /// Not requested: robots.txt, a guard, the trap defence.
    Refused,
    /// A sitemap.
    Sitemap,
}

impl Class {
    const ALL: [Class; 6] =
        [Class::Ok, Class::ErrorStatus, Class::Redirect, Class::Failed, Class::Refused, Class::Sitemap];

    /// Its stored number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The class with a stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// Records by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals([u64; Class::ALL.len()]);

impl Totals {
    /// Counts a record.
    pub fn count(&mut self, class: Class) {
        self.0[usize::from(class.number())] += 1;
    }

    /// How many records there are.
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// How many records of a class there are.
    pub fn of(&self, class: Class) -> u64 {
        self.0[usize::from(class.number())]
    }

    pub(crate) fn encode(&self, out: &mut Encoder) {
        out.list(&self.0, |out, &count| {
            out.uint(count);
        });
    }

    /// Reads totals; classes that were added since count nothing.
    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let counts = from.list(Decoder::uint)?;
        if counts.len() > Class::ALL.len() {
            return Err(from.error("there are more classes of records than this release knows"));
        }
        Ok(Self(array::from_fn(|at| counts.get(at).copied().unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_survive_the_mark() {
        let mut totals = Totals::default();
        Class::ALL
            .iter()
            .enumerate()
            .for_each(|(times, &class)| (0..times).for_each(|_| totals.count(class)));
        let mut out = Encoder::default();
        totals.encode(&mut out);
        let bytes = out.finish();
        let mut from = Decoder::new("totals", &bytes);
        assert_eq!(Totals::decode(&mut from).unwrap(), totals);
        assert_eq!((totals.of(Class::Redirect), totals.of(Class::Ok)), (2, 0));
        for (number, class) in (0..).zip(Class::ALL) {
            assert_eq!((class.number(), Class::from_number(number)), (number, Some(class)));
        }
    }
}

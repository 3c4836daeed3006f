//! Names with addresses given by hand, asked before any name server. Pure.

use std::collections::HashMap;
use std::net::IpAddr;
use std::str::FromStr;

/// A table of names and `*.` wildcards. The addresses are subject to the guard like all others.
#[derive(Clone, Debug, Default)]
pub struct StaticNames {
    exact: HashMap<String, Vec<IpAddr>>,
    /// By the part after `*.`.
    below: HashMap<String, Vec<IpAddr>>,
}

/// An entry for [`StaticNames`] that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not NAME=ADDRESS or *.NAME=ADDRESS (such as *.test=127.0.0.1)")]
pub struct BadStaticName(String);

impl StaticNames {
    /// A table of entries `NAME=ADDRESS` or `*.NAME=ADDRESS`. A name may occur more than once to have several addresses.
    ///
    /// # Errors
    /// Names the first entry that is not understood.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, BadStaticName> {
        let mut table = Self::default();
        for entry in entries {
            let bad = || BadStaticName(entry.to_owned());
            let (name, address) = entry.split_once('=').ok_or_else(bad)?;
            let address = IpAddr::from_str(address.trim().trim_matches(['[', ']'])).map_err(|_| bad())?;
            let bare = name.trim().trim_start_matches("*.");
            let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if bare.trim_matches('.').is_empty() || !bare.bytes().all(allowed) {
                return Err(bad());
            }
            table.insert(name.trim(), address);
        }
        Ok(table)
    }

    /// Adds an address for `name`, or, if it begins with `*.`, for all names below the rest.
    pub fn insert(&mut self, name: &str, address: IpAddr) {
        let (table, name) = match name.strip_prefix("*.") {
            Some(rest) => (&mut self.below, rest),
            None => (&mut self.exact, name),
        };
        table.entry(normal(name).into_owned()).or_default().push(address);
    }

    /// The addresses of `name`: those of the name itself, or else of the longest wildcard above it.
    pub fn get(&self, name: &str) -> Option<&[IpAddr]> {
        if self.exact.is_empty() && self.below.is_empty() {
            return None;
        }
        let name = normal(name);
        if let Some(addresses) = self.exact.get(&*name) {
            return Some(addresses);
        }
        let mut rest = &*name;
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(addresses) = self.below.get(parent) {
                return Some(addresses);
            }
            rest = parent;
        }
        None
    }
}

fn normal(name: &str) -> std::borrow::Cow<'_, str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|b| b.is_ascii_uppercase()) { name.to_ascii_lowercase().into() } else { name.into() }
}

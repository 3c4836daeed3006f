//! Promises 2 and 6: each URL that can be reached has exactly one record, which says what became of it, and nothing else
//! has one.

use std::collections::BTreeMap;

use super::{Violation, violation};
use crate::sim::Expected;

const PROMISE: &str = "6: one record per URL";

/// Judges the records that are in a sink for good while the crawl goes on: none twice, none made up.
pub fn so_far(
    records: &[(String, Expected)],
    truth: &BTreeMap<String, Expected>,
) -> Result<BTreeMap<String, Expected>, Violation> {
    let mut found = BTreeMap::new();
    for (url, outcome) in records {
        if found.insert(url.clone(), *outcome).is_some() {
            return Err(violation(PROMISE, format!("{url} has two records")));
        }
        match truth.get(url) {
            Some(expected) if expected == outcome => {}
            expected => {
                return Err(violation(PROMISE, format!("{url} is {outcome:?} instead of {expected:?}")));
            }
        }
    }
    Ok(found)
}

/// Judges them when the crawl is over: none is missing either.
pub fn at_end(records: &[(String, Expected)], truth: &BTreeMap<String, Expected>) -> Result<(), Violation> {
    let found = so_far(records, truth)?;
    match truth.keys().find(|url| !found.contains_key(*url)) {
        Some(missing) => Err(violation(PROMISE, format!("{missing} has no record"))),
        None => Ok(()),
    }
}

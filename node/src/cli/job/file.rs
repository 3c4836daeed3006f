//! A job file: YAML with `name`, `seeds`, and the names of the flags as keys.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

use crate::config::{JobOptions, file::check_job_keys};

/// Largest job file that is read, in bytes: room for 100,000 seeds.
const MAX_FILE: u64 = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct JobFile {
    pub name: Option<String>,
    pub seeds: Vec<String>,
    pub options: JobOptions,
}

/// Reads the job file `path`.
pub(super) fn read(path: &Path) -> anyhow::Result<JobFile> {
    let place = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read the job file `{place}`"))?.len();
    if size > MAX_FILE {
        bail!("the job file `{place}` has {size} bytes; at most {MAX_FILE} are read");
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the job file `{place}`"))?;
    parse(&text).with_context(|| format!("in the job file `{place}`"))
}

fn parse(text: &str) -> anyhow::Result<JobFile> {
    let mut map: Map<String, Value> = serde_saphyr::from_str(text)?;
    let name = map.remove("name").map(serde_json::from_value).transpose().context("`name`")?;
    let seeds = map.remove("seeds").map(serde_json::from_value).transpose().context("`seeds`")?;
    check_job_keys(map.keys().map(String::as_str))?;
    let options = serde_json::from_value(Value::Object(map))?;
    Ok(JobFile { name, seeds: seeds.unwrap_or_default(), options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_file_has_a_name_seeds_and_the_names_of_the_flags() {
        let file = parse(
            "name: docs\nseeds:\n  - http://a/\n  - b.test\nmax-depth: 3\nexclude: ['\\.pdf$']\nwarc: true\n",
        )
        .unwrap();
        assert_eq!((file.name.as_deref(), file.seeds.len()), (Some("docs"), 2));
        assert_eq!((file.options.max_depth, file.options.warc), (Some(3), true));
        assert_eq!(file.options.exclude, [r"\.pdf$"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("max-dept: 3", "did you mean `max-depth`?"),
            ("out: x", "unknown key `out`"),
            ("seeds: 7", "`seeds`"),
            ("max-pages: many", "invalid type"),
            ("- a", "expected"),
            ("a: [", ""),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}

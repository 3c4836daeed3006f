//! Reads the options file: TOML with the flags' names as keys. An unknown key is an error with a hint, since a
//! misspelt budget that is silently ignored is the worst kind of configuration.

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args as _;

use super::options::{CrawlOptions, JobOptions};

/// Largest options file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Flags that make no sense in a file.
const FLAGS_ONLY: [&str; 5] = ["config", "fresh", "json", "quiet", "hosts"];

/// The options in the TOML file `path`.
pub fn read(path: &Path) -> anyhow::Result<CrawlOptions> {
    let place = path.display();
    let size =
        std::fs::metadata(path).with_context(|| format!("cannot read the options file `{place}`"))?.len();
    if size > MAX_FILE {
        bail!("the options file `{place}` has {size} bytes; at most {MAX_FILE} are read");
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the options file `{place}`"))?;
    parse(&text).with_context(|| format!("in the options file `{place}`"))
}

fn parse(text: &str) -> anyhow::Result<CrawlOptions> {
    let table: toml::Table = toml::from_str(text)?;
    let known = known_keys(CrawlOptions::augment_args(clap::Command::new("crawl")));
    for key in table.keys() {
        if known.iter().any(|name| name == key) {
            continue;
        }
        if FLAGS_ONLY.contains(&key.as_str()) {
            bail!("`{key}` can only be given as a flag, --{key}");
        }
        unknown(key, &known)?;
    }
    Ok(toml::from_str(text)?)
}

/// Refuses keys that are no options of a job.
pub fn check_job_keys<'k>(keys: impl Iterator<Item = &'k str>) -> anyhow::Result<()> {
    let known = known_keys(JobOptions::augment_args(clap::Command::new("job")));
    keys.filter(|key| !known.iter().any(|name| name == key)).try_for_each(|key| unknown(key, &known))
}

fn unknown(key: &str, known: &[String]) -> anyhow::Result<()> {
    let nearest = known
        .iter()
        .map(|name| (strsim::jaro_winkler(name, &key.replace('_', "-")), name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((_, name)) => bail!("unknown key `{key}`; did you mean `{name}`?"),
        None => bail!("unknown key `{key}`; the keys are: {}", known.join(", ")),
    }
}

fn known_keys(of: clap::Command) -> Vec<String> {
    of.get_arguments()
        .map(|arg| arg.get_long().map_or_else(|| arg.get_id().to_string(), str::to_owned))
        .filter(|name| !FLAGS_ONLY.contains(&name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::{JobOptions, OrElseFrom as _};

    #[test]
    fn reads_the_names_of_the_flags() {
        let options = parse("urls = ['http://a/']\nmax-pages = 7\nscope = 'domain'\nallow-net = ['10.0.0.0/8']\nhttp = '2'\nresolve = ['*.x=127.0.0.1']").unwrap();
        assert_eq!(options.job.max_pages, Some(7));
        assert_eq!(options.urls, ["http://a/"]);
        assert_eq!(options.job.network.resolve[0].pattern, "*.x");
    }

    #[test]
    fn unknown_keys_are_refused_with_a_hint() {
        for (text, hint) in [
            ("max-page = 1", "did you mean `max-pages`?"),
            ("max_pages = 1", "did you mean `max-pages`?"),
            ("zzz = 1", "the keys are: urls, data-dir"),
            ("fresh = true", "only be given as a flag"),
            ("max-pages = 'many'", "invalid type"),
            ("max-pages = -1", "invalid value"),
            ("= 3", "TOML parse error"),
        ] {
            let message = format!("{:#}", parse(text).unwrap_err());
            assert!(message.contains(hint), "{text}: {message}");
        }
    }

    #[test]
    fn flags_go_before_the_file() {
        let file = parse("max-pages = 7\nper-host = 3\ninclude = ['a']").unwrap();
        let job = JobOptions { max_pages: Some(1), include: vec!["b".into()], ..Default::default() };
        let both = CrawlOptions { job, ..Default::default() }.or_else_from(file).job;
        assert_eq!((both.max_pages, both.per_host, both.include), (Some(1), Some(3), vec!["b".to_owned()]));
    }
}

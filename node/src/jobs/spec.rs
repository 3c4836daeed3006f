//! What a job is, as the cluster keeps it with the job's queue: how it was submitted, and the key of its fingerprints. Each
//! node reads its own [`CrawlConfig`] out of that.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::{
    config::{CrawlConfig, JobOptions, file, resolve},
    crawl::random_seed,
};

/// What the names of jobs' queues begin with.
pub(crate) const PREFIX: &str = "job/";
/// Bytes of the certificates that come with a job.
const MOST_CA_BYTES: usize = 256 << 10;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Of this format.
    version: u32,
    /// Start URLs, parsed.
    pub seeds: Vec<String>,
    /// As written.
    pub options: JobOptions,
    /// PEM.
    pub ca: String,
    /// Key of the fingerprint hash.
    pub hash_seed: u64,
}

impl Spec {
    /// The spec of a job as it is submitted; everything about it is checked.
    pub(crate) fn new(seeds: &[String], options: JobOptions, ca: String) -> anyhow::Result<Self> {
        ensure!(
            options.network.ca_file.is_none(),
            "ca-file names a file of the submitting machine; pass the certificates themselves as `ca`"
        );
        ensure!(
            ca.len() <= MOST_CA_BYTES,
            "the certificates have {} bytes; at most {MOST_CA_BYTES} are taken",
            ca.len()
        );
        let seeds = resolve::seeds(seeds)?;
        resolve::job(seeds.clone(), &options, "/".into(), "/".into())?;
        Ok(Self { version: 1, seeds, options, ca, hash_seed: random_seed()? })
    }

    /// The options in a JSON object; unknown keys are refused.
    pub(crate) fn options(json: &str) -> anyhow::Result<JobOptions> {
        if json.is_empty() {
            return Ok(JobOptions::default());
        }
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(json).context("the options are not a JSON object")?;
        file::check_job_keys(object.keys().map(String::as_str))?;
        serde_json::from_value(object.into()).context("in the options")
    }

    /// The options as a JSON object, those that were left out left out.
    pub(crate) fn options_json(&self) -> anyhow::Result<String> {
        let mut value = serde_json::to_value(&self.options)?;
        if let Some(object) = value.as_object_mut() {
            object.retain(|_, value| {
                !(value.is_null()
                    || value == &serde_json::Value::Bool(false)
                    || value == &serde_json::json!([]))
            });
        }
        Ok(value.to_string())
    }

    /// Reads what [`bytes`](Self::bytes) wrote.
    pub(crate) fn read(bytes: &[u8]) -> anyhow::Result<Self> {
        let spec: Self = serde_json::from_slice(bytes)
            .context("the job has a description that this release cannot read")?;
        ensure!(
            spec.version == 1,
            "the job's description is of format {}; this release knows 1",
            spec.version
        );
        Ok(spec)
    }

    /// What is kept with the queue.
    pub(crate) fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Whether it is the same job, apart from what is drawn at random.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Self { hash_seed: 0, ..self.clone() } == Self { hash_seed: 0, ..other.clone() }
    }

    /// What it means on a node that keeps the job's files in `dir`. The certificates are written there.
    pub(crate) fn config(&self, dir: &Path) -> anyhow::Result<CrawlConfig> {
        let mut options = self.options.clone();
        if !self.ca.is_empty() {
            let path = dir.join("ca.pem");
            std::fs::write(&path, &self.ca).with_context(|| format!("cannot write `{}`", path.display()))?;
            options.network.ca_file = Some(path);
        }
        let mut config = resolve::job(self.seeds.clone(), &options, dir.to_owned(), dir.join("out"))?;
        config.job.hash_seed = self.hash_seed;
        Ok(config)
    }
}

/// Checks a job's name: it also names directories and files.
pub(crate) fn check_name(name: &str) -> anyhow::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    ensure!(
        name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain),
        "`{name}` cannot be a job's name: 1 to 64 letters, digits, dots, dashes and underscores are allowed, the first a \
         letter or digit"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_the_flags_of_crawl_and_others_are_refused() {
        let options =
            Spec::options(r#"{"max-depth": 3, "warc": true, "resolve": ["*.x=127.0.0.1"]}"#).unwrap();
        assert_eq!((options.max_depth, options.warc), (Some(3), true));
        let spec = Spec::new(&["http://a/".into()], options, String::new()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&spec.options_json().unwrap()).unwrap();
        assert_eq!(json, serde_json::json!({"max-depth": 3, "warc": true, "resolve": ["*.x=127.0.0.1"]}));
        for (json, says) in [
            (r#"{"max-dept": 3}"#, "did you mean `max-depth`?"),
            (r#"{"out": "x"}"#, "unknown key `out`"),
            (r#"{"max-depth": "x"}"#, "invalid type"),
            ("[]", "not a JSON object"),
        ] {
            let error = format!("{:#}", Spec::options(json).unwrap_err());
            assert!(error.contains(says), "{json}: {error}");
        }
    }

    #[test]
    fn a_spec_comes_back_and_is_the_same_job_under_another_seed() {
        let make = || Spec::new(&["http://a/".into()], JobOptions::default(), String::new()).unwrap();
        let (one, other) = (make(), make());
        assert_eq!(Spec::read(&one.bytes().unwrap()).unwrap(), one);
        assert!(one.is_same(&other) && one.hash_seed != other.hash_seed);
        assert!(Spec::new(&["ftp://a/".into()], JobOptions::default(), String::new()).is_err());
        assert!(Spec::read(b"{}").is_err());
    }

    #[test]
    fn names_are_plain() {
        for name in ["a", "Site.2-x_y", "0", &"x".repeat(64)] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "-a", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}

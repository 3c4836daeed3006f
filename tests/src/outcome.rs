//! An independent reader of pages.jsonl, and what has to hold for every such file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// Keys that every line has.
const KEYS: [&str; 9] =
    ["url", "status", "title", "depth", "content_type", "protocol", "digest", "attempt", "error"];

/// One line.
#[derive(Clone, Debug)]
pub struct Record(pub Value);

impl Record {
    /// A text of it, or empty.
    pub fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        self.text("url")
    }

    /// HTTP status.
    pub fn status(&self) -> Option<u64> {
        self.0["status"].as_u64()
    }

    /// Title.
    pub fn title(&self) -> &str {
        self.text("title")
    }

    /// Why it failed; empty if it did not.
    pub fn error(&self) -> &str {
        self.text("error")
    }

    /// What became of it.
    pub fn outcome(&self) -> &str {
        self.text("outcome")
    }

    /// Links from a seed.
    pub fn depth(&self) -> Option<u64> {
        self.0["depth"].as_u64()
    }

    /// Whether it says that something is missing or was cut, in any of the ways that it can say so.
    pub fn is_marked(&self) -> bool {
        !self.error().is_empty() || self.0["truncated"] == Value::Bool(true) || self.0["cap"].is_string()
    }
}

/// All lines of a pages.jsonl.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// In the order of the file.
    pub all: Vec<Record>,
}

impl Records {
    /// Reads `OUT/pages.jsonl`.
    ///
    /// # Errors
    /// If it is missing, a line is no JSON object or the last line is not complete.
    pub fn read(out: &Path) -> anyhow::Result<Self> {
        let path = out.join("pages.jsonl");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if !text.is_empty() && !text.ends_with('\n') {
            bail!("{} ends inside a line", path.display());
        }
        let mut all = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let value: Value = serde_json::from_str(line)
                .with_context(|| format!("line {} of {} is no JSON: {line}", n + 1, path.display()))?;
            ensure!(value.is_object(), "line {} of {} is no object", n + 1, path.display());
            all.push(Record(value));
        }
        Ok(Self { all })
    }

    /// The record of a URL.
    ///
    /// # Panics
    /// If there is none, or more than one.
    #[track_caller]
    pub fn at(&self, url: &str) -> &Record {
        let found: Vec<&Record> = self.all.iter().filter(|record| record.url() == url).collect();
        assert_eq!(found.len(), 1, "records of {url}: {found:?}, among {:?}", self.urls());
        found[0]
    }

    /// The record of a URL, if it has one.
    pub fn get(&self, url: &str) -> Option<&Record> {
        self.all.iter().find(|record| record.url() == url)
    }

    /// All URLs.
    pub fn urls(&self) -> BTreeSet<String> {
        self.all.iter().map(|record| record.url().to_owned()).collect()
    }

    /// URLs with status 200 and no error, sitemaps left out.
    pub fn pages(&self) -> BTreeSet<String> {
        let good = self.all.iter().filter(|record| {
            record.status() == Some(200) && record.error().is_empty() && record.outcome() != "sitemap"
        });
        good.map(|record| record.url().to_owned()).collect()
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What does not hold although it always has to: every URL once, every key there, values that make sense.
    pub fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for record in &self.all {
            *seen.entry(record.url()).or_default() += 1;
            let missing: Vec<&str> = KEYS.into_iter().filter(|key| record.0.get(key).is_none()).collect();
            let mut complain = |what: String| violations.push(format!("{}: {what}", record.url()));
            if !missing.is_empty() {
                complain(format!("has no {}", missing.join(", ")));
            }
            if url::Url::parse(record.url()).is_err() {
                complain("is no URL".to_owned());
            }
            if record.0["attempt"].as_u64().is_none_or(|attempt| attempt == 0) {
                complain(format!("attempt is {}", record.0["attempt"]));
            }
            if record.depth().is_none() {
                complain(format!("depth is {}", record.0["depth"]));
            }
            if record.status().is_none() && record.error().is_empty() {
                complain("has neither a status nor an error".to_owned());
            }
            if record.status() == Some(200) && record.error().is_empty() && record.text("digest").is_empty() {
                complain("is a page without a digest".to_owned());
            }
        }
        violations.extend(
            seen.into_iter()
                .filter(|(_, times)| *times > 1)
                .map(|(url, times)| format!("{url}: {times} records")),
        );
        violations
    }

    /// Itself, if all that always has to hold does.
    ///
    /// # Panics
    /// Otherwise.
    #[track_caller]
    pub fn checked(self) -> Self {
        let violations = self.violations();
        assert!(violations.is_empty(), "pages.jsonl: {violations:#?}");
        self
    }
}

/// The differences between two sets of URLs, for a message.
pub fn differences(wanted: &BTreeSet<String>, found: &BTreeSet<String>) -> Vec<String> {
    let missing = wanted.difference(found).map(|url| format!("missing {url}"));
    let extra = found.difference(wanted).map(|url| format!("extra {url}"));
    missing.chain(extra).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"url":"http://a.test/","status":200,"title":"A","depth":0,"content_type":"text/html","protocol":"HTTP/1.1","digest":"blake3:00","attempt":1,"error":null}"#;

    fn read(text: &str) -> anyhow::Result<Records> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("pages.jsonl"), text).unwrap();
        Records::read(dir.path())
    }

    #[test]
    fn a_good_file_has_no_violations() {
        let records = read(&format!("{GOOD}\n")).unwrap().checked();
        assert_eq!(records.at("http://a.test/").title(), "A");
        assert_eq!(records.pages().len(), 1);
    }

    #[test]
    fn what_is_wrong_is_found() {
        assert!(read(GOOD).is_err(), "a line that is not complete");
        assert!(read("{\n").is_err(), "no JSON");
        let twice = read(&format!("{GOOD}\n{GOOD}\n")).unwrap();
        assert_eq!(twice.violations(), ["http://a.test/: 2 records"]);
        let bare = read("{\"url\":\"http://a.test/\",\"attempt\":0,\"depth\":1}\n").unwrap().violations();
        assert_eq!(bare.len(), 3, "{bare:?}");
    }
}

//! A small independent reader of WARC 1.1 files, one gzip member per record, and what has to hold for them beside a
//! pages.jsonl (ISO 28500:2017).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use data_encoding::BASE32;
use flate2::bufread::GzDecoder;
use sha1::{Digest, Sha1};

use crate::outcome::Records;

/// A record of a WARC file.
#[derive(Clone, Debug)]
pub struct WarcRecord {
    /// The file it lies in.
    pub file: PathBuf,
    /// Where its gzip member begins.
    pub offset: u64,
    /// Header fields, names in lower case.
    pub fields: BTreeMap<String, String>,
    /// Its block.
    pub block: Vec<u8>,
}

impl WarcRecord {
    /// A header field, or empty.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// `response`, `request`, …
    pub fn kind(&self) -> &str {
        self.field("warc-type")
    }

    /// The URL that it is about.
    pub fn target(&self) -> &str {
        self.field("warc-target-uri")
    }
}

/// All files under a directory whose name ends in `.warc.gz`, sorted.
///
/// # Errors
/// If a directory cannot be read.
pub fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.to_string_lossy().ends_with(".warc.gz") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads all records of all WARC files under a directory.
///
/// # Errors
/// If a file is cut, a member holds anything but one record, or a header is malformed.
pub fn read(dir: &Path) -> anyhow::Result<Vec<WarcRecord>> {
    let mut records = Vec::new();
    for file in files(dir)? {
        let bytes = std::fs::read(&file)?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let offset = (bytes.len() - rest.len()) as u64;
            let place = || format!("{} at {offset}", file.display());
            let mut decoder = GzDecoder::new(rest);
            let mut member = Vec::new();
            decoder.read_to_end(&mut member).with_context(place)?;
            rest = decoder.into_inner();
            let (fields, block) = parse(&member).with_context(place)?;
            records.push(WarcRecord { file: file.clone(), offset, fields, block });
        }
    }
    Ok(records)
}

fn parse(member: &[u8]) -> anyhow::Result<(BTreeMap<String, String>, Vec<u8>)> {
    let end = member.windows(4).position(|window| window == b"\r\n\r\n").context("no end of the header")?;
    let head = std::str::from_utf8(&member[..end]).context("a header that is no UTF-8")?;
    let mut lines = head.split("\r\n");
    let version = lines.next().unwrap_or_default();
    ensure!(version == "WARC/1.1", "version is `{version}`");
    let mut fields = BTreeMap::new();
    for line in lines {
        let Some((name, value)) = line.split_once(": ") else { bail!("header line `{line}`") };
        fields.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length: usize = fields.get("content-length").context("no Content-Length")?.parse()?;
    let block = &member[end + 4..];
    ensure!(block.len() == length + 4, "block of {} bytes, {length} declared", block.len().saturating_sub(4));
    ensure!(block.ends_with(b"\r\n\r\n"), "a record that does not end in two line ends");
    Ok((fields, block[..length].to_vec()))
}

/// What does not hold although it has to: ids unique, mandatory fields there, digests right, one response or revisit for
/// every answer in `pages`, and a request for each of these.
pub fn violations(warc: &[WarcRecord], pages: &Records) -> Vec<String> {
    let mut violations = Vec::new();
    let mut ids = BTreeSet::new();
    let mut answers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut requests: BTreeMap<&str, usize> = BTreeMap::new();
    for record in warc {
        let mut complain = |what: &str| {
            violations.push(format!(
                "{} at {} ({}): {what}",
                record.file.display(),
                record.offset,
                record.kind()
            ));
        };
        for name in ["warc-type", "warc-record-id", "warc-date", "content-length"] {
            if record.field(name).is_empty() {
                complain(&format!("has no {name}"));
            }
        }
        if !ids.insert(record.field("warc-record-id")) {
            complain("its id is there already");
        }
        if let Some(claimed) = record.field("warc-block-digest").strip_prefix("sha1:") {
            let real = BASE32.encode(&Sha1::digest(&record.block));
            if claimed != real {
                complain(&format!("block digest {claimed}, is {real}"));
            }
        }
        match record.kind() {
            "response" | "revisit" => *answers.entry(record.target()).or_default() += 1,
            "request" => *requests.entry(record.target()).or_default() += 1,
            _ => {}
        }
    }
    for (url, times) in answers.iter().filter(|(_, times)| **times > 1) {
        violations.push(format!("{url}: {times} responses"));
    }
    if answers != requests {
        violations.push(format!("{} responses of URLs, {} requests", answers.len(), requests.len()));
    }
    for record in pages.all.iter().filter(|record| record.status().is_some()) {
        if !answers.contains_key(record.url()) {
            violations.push(format!("{}: in pages.jsonl, without a response", record.url()));
        }
    }
    let known = pages.urls();
    for url in answers.keys().filter(|url| !known.contains(**url) && !url.ends_with("/robots.txt")) {
        violations.push(format!("{url}: has a response, and is not in pages.jsonl"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Record;
    use crate::site::zoo::encodings::gzip;

    fn record(kind: &str, id: u32, url: &str, block: &str) -> Vec<u8> {
        let digest = BASE32.encode(&Sha1::digest(block.as_bytes()));
        gzip(
            format!(
                "WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:{id}>\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n\
                 WARC-Target-URI: {url}\r\nWARC-Block-Digest: sha1:{digest}\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
                block.len()
            )
            .as_bytes(),
        )
    }

    fn found(parts: &[Vec<u8>]) -> anyhow::Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("warc")).unwrap();
        std::fs::write(dir.path().join("warc/one.warc.gz"), parts.concat()).unwrap();
        let page = serde_json::json!({"url": "http://a.test/", "status": 200});
        Ok(violations(&read(dir.path())?, &Records { all: vec![Record(page)] }))
    }

    #[test]
    fn a_good_file_has_no_violations() {
        let good =
            [record("request", 1, "http://a.test/", "GET"), record("response", 2, "http://a.test/", "HTTP")];
        assert!(found(&good).unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_found() {
        let (request, response) =
            (record("request", 1, "http://a.test/", "GET"), record("response", 2, "http://a.test/", "HTTP"));
        assert_eq!(found(&[]).unwrap(), ["http://a.test/: in pages.jsonl, without a response"]);
        assert_eq!(found(&[request.clone(), response.clone(), response.clone()]).unwrap().len(), 3);
        assert!(found(&[request.clone(), response[..response.len() - 9].to_vec()]).is_err(), "a cut member");
        assert!(
            found(&[gzip(b"WARC/1.1\r\nContent-Length: 9\r\n\r\nhello\r\n\r\n")]).is_err(),
            "a wrong length"
        );
        let other = record("response", 3, "http://b.test/", "HTTP");
        assert_eq!(found(&[request, response, other]).unwrap().len(), 2);
    }
}

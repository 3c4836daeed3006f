//! Sinks and delivery together with a real spool, on real files.

mod crash;
mod files;
mod read;
mod warc;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use dolomedes_raft::command::{Consumer, LeaseRef, MessageId, Outcome};
use dolomedes_storage::spool::{Spool, SpoolOptions};
use http::{HeaderMap, HeaderValue, Method, Version};
use tempfile::TempDir;
use url::Url;

use super::*;
use crate::record::Exchange;

/// A data directory and an OUT.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        // In memory where that is possible: many small syncs are slow on disks, and crashes are played anyway.
        Self { dir: TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap() }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn pages(&self) -> PathBuf {
        self.out().join("pages.jsonl")
    }

    fn marks_dir(&self) -> PathBuf {
        self.dir.path().join("data/sinks")
    }

    fn spool_dir(&self) -> PathBuf {
        self.dir.path().join("data/spool")
    }

    fn marks(&self) -> Marks {
        Marks::open(&self.marks_dir()).unwrap()
    }

    fn spool(&self) -> Spool {
        let options = SpoolOptions { segment_bytes: 4_000, max_bytes: 1 << 20, buffer_bytes: 500 };
        Spool::open(&self.spool_dir(), options).unwrap().0
    }

    fn delivery(&self, spool: &Spool, with_warc: bool) -> Result<Delivery> {
        let marks = Marks::open(&self.marks_dir())?;
        let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(JsonLines::open(&self.out(), &marks)?)];
        if with_warc {
            let options = WarcOptions { rotate_bytes: 6_000, ..WarcOptions::default() };
            sinks.push(Box::new(Warc::open(&self.out(), &marks, options)?));
        }
        let options = DeliveryOptions { sync_after: Duration::from_secs(1), sync_bytes: 3_000 };
        Delivery::new(spool.reader(), sinks, &marks, options)
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.pages()).unwrap().lines().map(str::to_owned).collect()
    }

    fn warcs(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.out().join("warc"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_str().unwrap().ends_with(".warc.gz"))
            .collect();
        files.sort();
        files
    }
}

fn line(number: u64) -> String {
    format!("{{\"n\":{number}}}")
}

/// The record of page `number`, whose body is `body`.
fn envelope(number: u64, body: &[u8]) -> Envelope {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/html; charset=utf-8"));
    let url = format!("http://www.example.com/page/{number}?b=2&a=1");
    Envelope {
        queue: 3,
        consumer: Consumer { node: 1, epoch: 7 },
        lease: LeaseRef { key: Bytes::from_static(b"http://www.example.com"), fence: 11 },
        message: MessageId { index: number, ordinal: 0 },
        attempt: 1,
        class: crate::totals::Class::Ok,
        outcome: Outcome::Done { units: 1, bytes: body.len() as u64 },
        pace: None,
        line: line(number).into(),
        exchange: Some(exchange(&url, number, 200, &headers, body)),
    }
}

fn exchange(url: &str, number: u64, status: u16, headers: &HeaderMap, body: &[u8]) -> Exchange {
    let parsed = Url::parse(url).unwrap();
    Exchange {
        url: url.to_owned(),
        fetched_at_ms: 1_796_083_200_000 + number,
        took_ms: 12,
        remote_ip: Some([192, 0, 2, 1].into()),
        protocols: vec!["http/1.1".into()],
        request_head: request_head(&Method::GET, &parsed, Version::HTTP_11, &HeaderMap::new()).into(),
        response_head: response_head(Version::HTTP_11, status, None, headers).into(),
        body: Bytes::copy_from_slice(body),
        truncated: None,
        decoded_digest: Some(crate::record::blake3_digest(body)),
        via: Some("http://www.example.com/".into()),
        depth: 2,
    }
}

fn append(spool: &mut Spool, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        spool.append(&envelope(number, format!("body of {number}").as_bytes()).encode()).unwrap();
    }
    spool.sync().unwrap();
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

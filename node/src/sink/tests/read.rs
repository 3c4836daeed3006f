//! A small reader of WARC files, independent of the writer.

use std::{collections::HashMap, fs, io::Read, path::Path};

use flate2::bufread::GzDecoder;
use sha1::{Digest, Sha1};

/// A record and the gzip member that holds it.
pub(super) struct Found {
    pub(super) headers: HashMap<String, String>,
    pub(super) block: Vec<u8>,
    pub(super) offset: usize,
    pub(super) length: usize,
}

impl Found {
    pub(super) fn get(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(super) fn kind(&self) -> &str {
        self.get("warc-type")
    }

    /// The block behind the head of its HTTP message.
    pub(super) fn payload(&self) -> &[u8] {
        let end = self.block.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        &self.block[end + 4..]
    }
}

fn sha1(bytes: &[u8]) -> String {
    format!("sha1:{}", data_encoding::BASE32.encode(&Sha1::digest(bytes)))
}

/// All records of a file; panics where the file breaks a rule of the format.
pub(super) fn records(path: &Path) -> Vec<Found> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut found: Vec<Found> = Vec::new();
    while !rest.is_empty() {
        let offset = bytes.len() - rest.len();
        let mut member = Vec::new();
        GzDecoder::new(&mut rest).read_to_end(&mut member).unwrap();
        let length = bytes.len() - rest.len() - offset;
        let end = member.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&member[..end]).unwrap();
        let mut lines = head.split("\r\n");
        assert_eq!(lines.next(), Some("WARC/1.1"));
        let mut headers = HashMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let size: usize = headers["content-length"].parse().unwrap();
        let block = member[end + 4..end + 4 + size].to_vec();
        assert_eq!(&member[end + 4 + size..], b"\r\n\r\n");
        assert_eq!(headers["warc-block-digest"], sha1(&block));
        let record = Found { headers, block, offset, length };
        if record.kind() == "response" {
            assert_eq!(record.get("warc-payload-digest"), sha1(record.payload()));
        }
        if record.kind() == "warcinfo" {
            assert_eq!(offset, 0);
            assert_eq!(record.get("warc-filename"), path.file_name().unwrap().to_str().unwrap());
        }
        for name in ["warc-record-id", "warc-date", "warc-type", "content-type"] {
            assert!(record.headers.contains_key(name), "{name}");
        }
        found.push(record);
    }
    found
}

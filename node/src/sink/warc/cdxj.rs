//! The index: a line per response or revisit record with its sort key, 14-digit time and a JSON object, in the words of
//! cdxj-indexer. The sort key is the SURT of the URL as Internet Archive's tools make it, but for session ids in paths.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use super::super::{Result, SinkError, output::replace};
use crate::record::rfc3339_ms;

/// Sorted files merged at once.
const FAN_IN: usize = 64;

/// What the index says of a record.
pub(super) struct Entry<'a> {
    pub(super) url: String,
    pub(super) fetched_at_ms: u64,
    pub(super) response_head: &'a [u8],
    /// `sha1:` and base 32.
    pub(super) digest: String,
    pub(super) revisit: bool,
}

/// The line, with its line feed, of a record that takes `length` bytes from `offset` on in `file`.
pub(super) fn line(entry: &Entry<'_>, offset: u64, length: u64, file: &str) -> String {
    let time: String = rfc3339_ms(entry.fetched_at_ms)[..19].chars().filter(char::is_ascii_digit).collect();
    let mut fields = vec![("url", entry.url.clone())];
    let mime = if entry.revisit { Some("warc/revisit".into()) } else { content_type(entry.response_head) };
    fields.extend(mime.map(|mime| ("mime", mime)));
    fields.push(("status", status(entry.response_head)));
    fields.push(("digest", entry.digest.clone()));
    fields.push(("length", length.to_string()));
    fields.push(("offset", offset.to_string()));
    fields.push(("filename", file.to_owned()));
    let json: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| format!("\"{name}\": {}", serde_json::Value::from(value)))
        .collect();
    format!("{} {time} {{{}}}\n", surt(&entry.url), json.join(", "))
}

fn status(head: &[u8]) -> String {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or(head);
    let word = line.split(|&byte| byte == b' ').nth(1).unwrap_or(b"");
    String::from_utf8_lossy(word).into_owned()
}

/// The first `content-type` without its parameters.
fn content_type(head: &[u8]) -> Option<String> {
    head.split(|&byte| byte == b'\n').skip(1).find_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let value = line[..colon].eq_ignore_ascii_case(b"content-type").then(|| &line[colon + 1..])?;
        let value = value.trim_ascii();
        let text = match std::str::from_utf8(value) {
            Ok(text) => text.to_owned(),
            Err(_) => value.iter().map(|&byte| char::from(byte)).collect(),
        };
        let end = text.find(|c: char| c == ';' || c.is_whitespace()).unwrap_or(text.len());
        Some(text[..end].to_owned())
    })
}

/// The sort-friendly form of a URL: host reversed, then path and query, in lower case and without what rarely matters
/// (`www.`, default port, user, fragment, trailing slash, order of the query, common session ids).
pub(super) fn surt(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split('#').next().unwrap_or(rest);
    let (authority, path_query) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (path, query) = match path_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path_query, None),
    };
    let host_port = authority.rsplit('@').next().unwrap_or(authority);
    let (host, port) = split_port(host_port);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let mut parts: Vec<_> = without_www(&host).split('.').collect();
    parts.reverse();
    let mut key = parts.join(",");
    let default_port = if scheme.eq_ignore_ascii_case("https") { "443" } else { "80" };
    if let Some(port) = port.filter(|port| *port != default_port) {
        key.push(':');
        key.push_str(port);
    }
    key.push(')');
    let mut path = escape(&normal_path(&unescape(path))).to_ascii_lowercase();
    if path.len() > 1 && path.ends_with('/') {
        path.pop();
    }
    key.push_str(&path);
    if let Some(query) = query {
        let query = without_session(escape(&unescape(query)).to_ascii_lowercase());
        if !query.is_empty() {
            let mut arguments: Vec<_> = query
                .split('&')
                .map(|argument| match argument.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (argument, None),
                })
                .collect();
            arguments.sort_unstable();
            let arguments: Vec<_> = arguments
                .into_iter()
                .map(|(name, value)| value.map_or(name.to_owned(), |value| format!("{name}={value}")))
                .collect();
            key.push('?');
            key.push_str(&arguments.join("&"));
        }
    }
    key
}

fn split_port(host_port: &str) -> (&str, Option<&str>) {
    match host_port.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, Some(port))
        }
        _ => (host_port, None),
    }
}

fn without_www(host: &str) -> &str {
    host.strip_prefix("www")
        .and_then(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix('.'))
        .unwrap_or(host)
}

/// Percent-decodes until nothing changes any more.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    loop {
        let mut decoded = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let digit = |at: usize| bytes.get(at).and_then(|&byte| char::from(byte).to_digit(16));
            match (bytes[at], digit(at + 1), digit(at + 2)) {
                (b'%', Some(high), Some(low)) => {
                    decoded.push((high * 16 + low) as u8);
                    at += 3;
                }
                (byte, ..) => {
                    decoded.push(byte);
                    at += 1;
                }
            }
        }
        if decoded.len() == bytes.len() {
            return bytes;
        }
        bytes = decoded;
    }
}

/// Percent-encodes what is not printable ASCII, and `#` and `%`.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'#' | b'%' => text.push_str(&format!("%{byte:02X}")),
            0x21..=0x7e => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Resolves `.`, `..` and empty segments.
fn normal_path(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&byte| byte == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." if !kept.is_empty() => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let mut normal = vec![b'/'];
    if let Some((last, before)) = kept.split_last() {
        for segment in before.iter().filter(|segment| !segment.is_empty()) {
            normal.extend_from_slice(segment);
            normal.push(b'/');
        }
        normal.extend_from_slice(last);
    }
    normal
}

/// Takes the usual session ids out of a query in lower case.
fn without_session(mut query: String) -> String {
    let fixed = |value: &str, length: usize| {
        value.len() == length && value.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    for name in ["jsessionid=", "phpsessid=", "sid="] {
        query = take_out(query, name, |value| fixed(value, 32));
    }
    query = take_out(query, "aspsessionid", |value| {
        value.split_once('=').is_some_and(|(name, value)| fixed(name, 8) && fixed(value, 24))
    });
    if let Some(at) = query.rfind("cfid=") {
        let mut arguments = query[at..].splitn(3, '&');
        let id = arguments.next().is_some_and(|argument| argument.len() > 5);
        let token =
            arguments.next().is_some_and(|argument| argument.len() > 8 && argument.starts_with("cftoken="));
        if id && token {
            query = format!("{}{}", &query[..at], arguments.next().unwrap_or(""));
        }
    }
    query
}

/// Takes out the last `name` whose value, up to the next `&`, is a session id.
fn take_out(query: String, name: &str, is_session: impl Fn(&str) -> bool) -> String {
    for (at, _) in query.rmatch_indices(name) {
        let rest = &query[at + name.len()..];
        let (value, behind) = rest.split_once('&').unwrap_or((rest, ""));
        if is_session(value) {
            return format!("{}{behind}", &query[..at]);
        }
    }
    query
}

/// Sorts the indexes `parts`, those of them that exist, into one at `target`. Memory: one part, then a line of each.
pub(super) fn merge(parts: &[PathBuf], target: &Path) -> Result<()> {
    let mut runs = Vec::new();
    for part in parts {
        let mut lines = match std::fs::read(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|source| SinkError::io("read", part, source))?,
        };
        if lines.last().is_some_and(|&byte| byte != b'\n') {
            lines.push(b'\n');
        }
        let mut sorted: Vec<&[u8]> = lines.split_inclusive(|&byte| byte == b'\n').collect();
        sorted.sort_unstable();
        let run = part.with_extension("cdxj.sorted");
        replace(&run, |file| {
            let mut file = BufWriter::new(file);
            sorted.iter().try_for_each(|line| file.write_all(line))?;
            file.flush()
        })?;
        runs.push(run);
    }
    let mut pass = 0;
    while runs.len() > FAN_IN {
        pass += 1;
        let mut merged = Vec::new();
        for (number, group) in runs.chunks(FAN_IN).enumerate() {
            let run = target.with_extension(format!("cdxj.{pass}-{number}.sorted"));
            merge_runs(group, &run)?;
            merged.push(run);
        }
        runs = merged;
    }
    merge_runs(&runs, target)
}

/// Merges sorted files into one and removes them.
fn merge_runs(runs: &[PathBuf], target: &Path) -> Result<()> {
    let open = |run: &PathBuf| {
        let file = File::open(run).map_err(|source| SinkError::io("open", run, source))?;
        Ok(BufReader::new(file))
    };
    let mut readers = runs.iter().map(open).collect::<Result<Vec<_>>>()?;
    replace(target, |file| {
        let mut out = BufWriter::new(file);
        let mut heads = std::collections::BinaryHeap::new();
        for (number, reader) in readers.iter_mut().enumerate() {
            push_line(&mut heads, number, reader)?;
        }
        while let Some(std::cmp::Reverse((line, number))) = heads.pop() {
            out.write_all(&line)?;
            push_line(&mut heads, number, &mut readers[number])?;
        }
        out.flush()
    })?;
    for run in runs {
        std::fs::remove_file(run).map_err(|source| SinkError::io("remove", run, source))?;
    }
    Ok(())
}

type Heads = std::collections::BinaryHeap<std::cmp::Reverse<(Vec<u8>, usize)>>;

fn push_line(heads: &mut Heads, number: usize, reader: &mut impl BufRead) -> io::Result<()> {
    let mut line = Vec::new();
    if reader.read_until(b'\n', &mut line)? > 0 {
        heads.push(std::cmp::Reverse((line, number)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are those of the Python package surt 0.3.1.
    #[test]
    fn keys_are_those_of_the_archive_tools() {
        for (url, key) in [
            ("http://example.com/", "com,example)/"),
            ("https://WWW2.Example.com:443/A/./b/../C/?B=2&a=1&a", "com,example)/a/c?a&a=1&b=2"),
            ("http://example.com:8080", "com,example:8080)/"),
            ("http://user:pw@example.com//x///y/", "com,example)/x/y"),
            ("http://127.0.0.1:5000/p%2561th?", "1,0,0,127:5000)/path"),
            ("http://[::1]:81/v6#f", "::1:81)/v6"),
            ("http://www.com/%E4%20%23?q=%C3%A4", "com)/%e4%20%23?q=%c3%a4"),
            ("http://h.org/?sid=0123456789abcdef0123456789ABCDEF&z=1", "org,h)/?z=1"),
            ("http://h.org/?a=1&phpsessid=0123456789abcdef0123456789abcdef", "org,h)/?&a=1"),
            ("http://example.com/a//../b", "com,example)/a/b"),
            ("http://example.com/..", "com,example)/.."),
            ("http://e.com/a?b?c=1&&", "com,e)/a?&&b?c=1"),
            ("http://e.com/a%3Fb?x=a%26b", "com,e)/a?b?b&x=a"),
            ("http://h.org/?CFID=12&CFTOKEN=34&q", "org,h)/?q"),
            ("http://h.org/?x=2&ASPSESSIONIDabcdefgh=abcdefghijklmnopqrstuvwx", "org,h)/?&x=2"),
        ] {
            assert_eq!(surt(url), key, "{url}");
        }
    }

    #[test]
    fn many_parts_become_one_sorted_index() {
        let dir = tempfile::TempDir::new().unwrap();
        let parts: Vec<_> = (0..150).map(|number| dir.path().join(format!("p-{number}.cdxj"))).collect();
        let mut wanted = Vec::new();
        for (number, part) in parts.iter().enumerate().filter(|(number, _)| number % 10 != 3) {
            let lines: Vec<_> =
                (0..4).map(|line| format!("{:05}\n", (line * 7919 + number * 31) % 10_000)).collect();
            std::fs::write(part, lines.concat()).unwrap();
            wanted.extend(lines);
        }
        wanted.sort();
        let target = dir.path().join("index.cdxj");
        merge(&parts, &target).unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), wanted.concat());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 136, "nothing is left over");
        merge(&[], &target).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }
}

//! Measures extraction on HTML files and checks it against html5ever:
//! `scan_bench scan|assets|resolve|join|decode|html5ever|check FILE…`.
//! Speeds are MB (10^6 bytes) per second of one thread, best of five passes over all files.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::Instant;

use dolomedes::extract::element::{Element, ElementSet};
use dolomedes::extract::tokenizer::{Syntax, Tokenizer};
use dolomedes::extract::{ScanOptions, charset, resolve, scan};
use url::Url;

#[path = "../src/extract/tests/oracle.rs"]
mod oracle;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let files: Vec<(String, Vec<u8>)> =
        arguments.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect();
    let pages: Vec<(&str, String)> = files
        .iter()
        .map(|(path, body)| (path.as_str(), String::from_utf8_lossy(body).into_owned()))
        .collect();
    let bytes: usize = pages.iter().map(|(_, text)| text.len()).sum();
    if mode == "check" {
        return check(&pages);
    }

    let mut best = f64::MAX;
    let mut found = 0;
    for _ in 0..5 {
        found = 0;
        let begun = Instant::now();
        for ((path, text), (_, body)) in pages.iter().zip(&files) {
            found += match mode.as_str() {
                "scan" => scan(text, &ScanOptions::default()).links.len(),
                "assets" => scan(text, &ScanOptions { assets: true, ..ScanOptions::default() }).links.len(),
                "resolve" => {
                    let document = Url::parse(&format!("http://site.test{path}")).unwrap();
                    resolve(&scan(text, &ScanOptions::default()), &document, encoding_rs::UTF_8).len()
                }
                "join" => {
                    let document = Url::parse(&format!("http://site.test{path}")).unwrap();
                    let page = scan(text, &ScanOptions::default());
                    page.links.iter().filter(|link| document.join(&link.href).is_ok()).count()
                }
                "decode" => charset::decode(body, charset::CharsetHints::default()).text.len(),
                "html5ever" => oracle::start_tags(text).len(),
                _ => panic!(
                    "unknown mode {mode:?}: use scan, assets, resolve, join, decode, html5ever or check"
                ),
            };
        }
        best = best.min(begun.elapsed().as_secs_f64());
    }
    println!(
        "{mode}: {} files, {bytes} bytes, {} found, {:.0} MB/s, {:.1} us/page",
        pages.len(),
        black_box(found),
        bytes as f64 / best / 1e6,
        best * 1e6 / pages.len() as f64
    );
}

/// Compares all start tags and attributes of every file with html5ever's.
fn check(pages: &[(&str, String)]) {
    let mut tags = 0;
    for (path, text) in pages {
        let expected = oracle::start_tags(text);
        let mut tokenizer = Tokenizer::new(text, Syntax::Html, ElementSet::ALL, ElementSet::default());
        for wanted in &expected {
            let tag = tokenizer.next_tag().unwrap_or_else(|| panic!("{path}: ends before {wanted:?}"));
            assert_eq!(tokenizer.name(tag), wanted.name, "{path}");
            let mut attributes: Vec<(String, String)> = Vec::new();
            for attribute in tokenizer.attributes() {
                if attributes.iter().all(|(name, _)| *name != attribute.name()) {
                    attributes.push((attribute.name(), attribute.value().into_owned()));
                }
            }
            assert_eq!(attributes, wanted.attributes, "{path}");
            tags += 1;
        }
        assert_eq!(
            tokenizer.next_tag().map(|tag| tokenizer.name(tag)),
            None,
            "{path}: more tags than html5ever"
        );
        let mut anchors =
            Tokenizer::new(text, Syntax::Html, ElementSet::of(&[Element::A]), ElementSet::default());
        let expected = expected.iter().filter(|tag| tag.name == "a").count();
        assert_eq!(std::iter::from_fn(|| anchors.next_tag()).count(), expected, "{path}");
    }
    println!("check: {} files, {tags} start tags equal", pages.len());
}

//! E16 to E21: redirects, codings, bombs, framing.

use dolomedes_tests::outcome::{Record, Records};
use dolomedes_tests::process::Job;
use dolomedes_tests::site::{Reply, Request, Site};
use dolomedes_tests::wait::eventually;

use crate::mini::{DEADLINE, as_is, crawl, crawl_exhibits, exhibit, serve_zoo};

fn record<'a>(site: &Site, records: &'a Records, place: &str) -> &'a Record {
    records.at(&exhibit(site, place))
}

/// Requests of pages at an exhibit's host.
fn requests(site: &Site, place: &str) -> usize {
    let url = url::Url::parse(&exhibit(site, place)).unwrap();
    site.log().pages(url.host_str().unwrap())
}

#[test]
fn e16_redirects_to_nowhere_are_errors() {
    let site = Site::start();
    let broken = [
        "redirects/no-location",
        "redirects/empty-location",
        "redirects/bad-location",
        "redirects/to-file",
        "redirects/to-data",
        "redirects/to-javascript",
        "redirects/to-ftp",
    ];
    let odd = [
        "redirects/raw-utf8",
        "redirects/latin-1",
        "redirects/two-locations",
        "redirects/huge-location",
        "redirects/300",
    ];
    let done = crawl_exhibits(&site, &[broken.as_slice(), &odd].concat(), as_is);
    for place in broken {
        let record = record(&site, &done.records, place);
        assert_eq!(record.status(), Some(302), "{place}: {}", record.0);
        assert!(!record.error().is_empty(), "{place}: {}", record.0);
        assert_eq!(requests(&site, place), 1, "{place} is not worth another attempt");
    }
    assert!(done.records.all.iter().all(|record| record.url().starts_with("http://")));
    assert_eq!(site.log().hits("raw-utf8.redirects.zoo.test", "/redirects/raw-utf8/%C3%A9"), 1);
    assert_eq!(record(&site, &done.records, "redirects/300").status(), Some(300));
}

#[test]
fn e17_redirect_mazes_end() {
    let site = Site::start();
    let places = [
        "redirects/self",
        "redirects/loop",
        "redirects/self-with-cookie",
        "redirects/new-cookie-each-time",
        "redirects/three-hops",
        "redirects/thousand-hops",
        "redirects/endless-query",
    ];
    let done = crawl_exhibits(&site, &places, as_is);
    for place in places {
        assert!((1..=25).contains(&requests(&site, place)), "{place}: {} requests", requests(&site, place));
    }
    for place in ["redirects/self", "redirects/new-cookie-each-time"] {
        assert!(!record(&site, &done.records, place).error().is_empty(), "{place}");
    }
    let cookie = record(&site, &done.records, "redirects/self-with-cookie");
    assert_eq!((cookie.status(), cookie.title()), (Some(200), "self-with-cookie"));
    let end = done.records.at(&site.url("three-hops.redirects.zoo.test", "/redirects/three-hops/3"));
    assert_eq!((end.status(), end.depth()), (Some(200), Some(0)), "a redirect is no link");
    let ends: Vec<&Record> = done
        .records
        .all
        .iter()
        .filter(|record| record.url().contains("thousand-hops") && !record.error().is_empty())
        .collect();
    assert_eq!(ends.len(), 1, "one record says that the cap was reached: {ends:?}");
}

#[test]
fn e17_the_cap_on_hops_outlives_a_kill() {
    let site = Site::start();
    site.host("hops.test", |request: &Request| {
        let hop: u32 = request.path.trim_start_matches('/').parse().unwrap_or(0);
        match request.path.as_str() {
            "/robots.txt" => Reply::not_found(),
            _ => Reply::redirect(302, format!("/{}", hop + 1)).after(std::time::Duration::from_millis(100)),
        }
    });
    let mut job = Job::new(&site);
    job.seed(site.url("hops.test", "/0"));
    for hops in [3, 6] {
        let process = job.start();
        eventually("some hops", DEADLINE, || match site.log().paths("hops.test").len() {
            seen if seen >= hops => Ok(()),
            seen => Err((seen, process.stderr())),
        });
        process.kill();
    }
    job.complete(DEADLINE);
    job.records().checked();
    let hops = site.log().paths("hops.test").len();
    assert!(hops <= 25, "{hops} hops");
}

#[test]
fn e18_codings_are_undone_as_they_were_done() {
    let site = Site::start();
    let readable = [
        "encodings/gzip",
        "encodings/upper-case",
        "encodings/x-gzip",
        "encodings/plain-as-gzip",
        "encodings/identity",
        "encodings/stacked",
        "encodings/stacked-in-two-headers",
        "encodings/zlib-deflate",
        "encodings/raw-deflate",
    ];
    let odd = [
        "encodings/gzip-as-plain",
        "encodings/unknown",
        "encodings/archive.gz",
        "encodings/empty",
        "encodings/ten-layers",
    ];
    let done = crawl_exhibits(&site, &[readable.as_slice(), &odd].concat(), as_is);
    for place in readable {
        let record = record(&site, &done.records, place);
        assert_eq!(record.title(), &place["encodings/".len()..], "{}", record.0);
    }
    let archive = record(&site, &done.records, "encodings/archive.gz");
    let inner = dolomedes_tests::site::zoo::encodings::gzip(b"the content of a file");
    assert_eq!(archive.0["bytes_decoded"], inner.len(), "one layer is the file's own: {}", archive.0);
    assert!(record(&site, &done.records, "encodings/unknown").status().is_some());
}

#[test]
fn e19_broken_streams_keep_what_was_good() {
    let site = Site::start();
    let whole = ["encodings/two-members", "encodings/trailing-junk", "encodings/trailing-zeros"];
    let broken = ["encodings/cut-gzip", "encodings/wrong-crc"];
    let hopeless = ["encodings/noise", "encodings/cut-in-header"];
    let done = crawl_exhibits(&site, &[whole.as_slice(), &broken, &hopeless].concat(), as_is);
    for place in whole.into_iter().chain(broken) {
        let record = record(&site, &done.records, place);
        assert_eq!(record.title(), &place["encodings/".len()..], "{}", record.0);
    }
    for place in broken.into_iter().chain(hopeless) {
        let record = record(&site, &done.records, place);
        assert!(record.is_marked(), "{place}: {}", record.0);
    }
    let links = site.log().paths("two-members.encodings.zoo.test");
    assert!(links.contains("/good/two-members"), "the link is in the second member: {links:?}");
}

#[test]
fn e20_bombs_end_at_the_cap_with_constant_memory() {
    let site = Site::start();
    let places = [
        "bombs/brotli",
        "bombs/gzip",
        "bombs/gzip-in-gzip",
        "bombs/zstd",
        "bombs/zstd-window",
        "bombs/endless",
    ];
    let done = crawl_exhibits(&site, &places, |job| {
        job.set("--max-body", "8388608").set("--total-timeout", "20000").flag("--warc");
    });
    for place in places {
        let record = record(&site, &done.records, place);
        assert!(record.is_marked(), "{place}: {}", record.0);
        let decoded = record.0["bytes_decoded"].as_u64().unwrap_or(0);
        assert!(decoded <= 9 << 20, "{place}: {decoded} bytes decoded");
    }
    assert!(done.finished.peak_memory <= 400 << 20, "{} MiB", done.finished.peak_memory >> 20);
}

#[test]
fn e21_framing_is_taken_at_its_word() {
    let site = Site::start();
    let whole = [
        "chunking/well-formed",
        "chunking/extension",
        "chunking/trailer",
        "lengths/none",
        "lengths/two-that-agree",
    ];
    let cut = [
        "chunking/no-last-chunk",
        "chunking/bad-size",
        "lengths/too-long",
        "drops/in-body",
        "drops/in-chunk",
        "lengths/two-that-differ",
    ];
    let places = [whole.as_slice(), &cut, &["lengths/both"]].concat();
    serve_zoo(&site);
    let kept = ["lengths/smuggled", "lengths/zero-with-body", "lengths/too-short"];
    let mut seeds: Vec<String> = places.iter().map(|place| exhibit(&site, place)).collect();
    for place in kept {
        let url = url::Url::parse(&exhibit(&site, place)).unwrap();
        // More of the same host, for which excess bytes on the kept connection must not be taken.
        seeds.push(url.to_string());
        seeds.extend(["/good/1", "/good/2", "/good/3"].map(|path| url.join(path).unwrap().to_string()));
    }
    let done = crawl(&site, seeds, as_is);
    for place in whole {
        let record = record(&site, &done.records, place);
        assert!(record.status() == Some(200) && !record.is_marked(), "{place}: {}", record.0);
        assert!(!record.title().is_empty(), "{place}: {}", record.0);
    }
    for place in cut {
        let record = record(&site, &done.records, place);
        assert!(record.is_marked(), "{place}: {}", record.0);
    }
    // RFC 9112, section 6.1: chunked overrides the length. Refusing such an answer is right as well.
    let both = record(&site, &done.records, "lengths/both");
    assert!(both.title() == "lengths" || both.is_marked(), "{}", both.0);
    assert!(done.records.all.iter().all(|record| record.title() != "smuggled page"));
    for place in kept {
        let url = url::Url::parse(&exhibit(&site, place)).unwrap();
        for path in ["/good/1", "/good/2", "/good/3"] {
            let record = done.records.at(url.join(path).unwrap().as_str());
            assert_eq!(record.title(), "A good page", "{place}: {}", record.0);
        }
    }
}

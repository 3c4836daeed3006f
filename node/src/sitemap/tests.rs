use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn collect(file: &[u8], limits: &SitemapLimits) -> (Vec<SitemapEntry>, SitemapReport) {
    let mut entries = Vec::new();
    let report = read(file, limits, |entry| entries.push(entry));
    assert_eq!(entries.len(), report.entries as usize);
    (entries, report)
}

fn locs(file: &str) -> (Vec<String>, SitemapReport) {
    let (entries, report) = collect(file.as_bytes(), &SitemapLimits::default());
    (entries.into_iter().map(|entry| entry.loc).collect(), report)
}

fn urlset(count: usize) -> String {
    let urls: String = (0..count).map(|n| format!("<url><loc>http://a.test/{n}</loc></url>\n")).collect();
    format!("<urlset>{urls}</urlset>")
}

/// Case 24 of the crawler cases.
#[test]
fn forms() {
    use SitemapFormat::*;
    let namespace = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9""#;
    for (file, format, expected, errors) in [
        (format!("<?xml version='1.0'?><urlset {namespace}><url><loc> http://a.test/x\n</loc></url></urlset>"), UrlSet, &["http://a.test/x"][..], 0),
        (format!("\u{feff}\n <urlset {namespace}><url><loc>http://a.test/x</loc></url></urlset>"), UrlSet, &["http://a.test/x"], 0),
        ("<sitemapindex><sitemap><loc>http://a.test/1.xml.gz</loc><lastmod>2999-01-01</lastmod></sitemap><sitemap><loc>http://a.test/2.xml</loc></sitemap></sitemapindex>".into(), Index, &["http://a.test/1.xml.gz", "http://a.test/2.xml"], 0),
        ("<urlset><url><loc><![CDATA[http://a.test/?a=1&b=2]]></loc></url></urlset>".into(), UrlSet, &["http://a.test/?a=1&b=2"], 0),
        ("<urlset><url><loc>http://a.test/?a=1&amp;b=2&#x26;c=&#51;</loc></url></urlset>".into(), UrlSet, &["http://a.test/?a=1&b=2&c=3"], 0),
        ("<urlset><url><loc>http://a.test/?a=1&b=2&copy;</loc></url></urlset>".into(), UrlSet, &["http://a.test/?a=1&b=2&copy;"], 0),
        (r#"<s:urlset xmlns:s="x" xmlns:i="y"><s:url><i:image><i:loc>http://a.test/i.png</i:loc></i:image><s:loc>http://a.test/x</s:loc></s:url></s:urlset>"#.into(), UrlSet, &["http://a.test/x"], 0),
        ("<urlset><url><image:image><image:loc>http://a.test/i.png</image:loc></image:image></url><url><loc>http://a.test/x</loc></url></urlset>".into(), UrlSet, &["http://a.test/x"], 1),
        ("<urlset><url><loc>http://a.test/1</loc><url><loc>http://a.test/2</loc></url></urlset>".into(), UrlSet, &["http://a.test/1", "http://a.test/2"], 0),
        ("<urlset><url><loc></loc></url><url/><url><loc>http://a.test/x</loc></url>".into(), UrlSet, &["http://a.test/x"], 2),
        ("<urlset><url><loc>http://a.test/1</lco></url></oops><url><loc>http://a.test/2</loc></url></urlset>".into(), UrlSet, &["http://a.test/1", "http://a.test/2"], 0),
        ("<urlset><url><loc>http://a.test/&#xFFFFFFFF;</loc></url><url><loc>http://a.test/2</loc></url></urlset>".into(), UrlSet, &["http://a.test/2"], 1),
        (format!("<urlset><url><loc>http://a.test/{}</loc></url><url><loc>http://a.test/2</loc></url></urlset>", "x".repeat(9000)), UrlSet, &["http://a.test/2"], 1),
        ("<urlset><url><loc>http://a.test/1</loc></url><url><loc>http://a.test/cut".into(), UrlSet, &["http://a.test/1"], 1),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><urlset><url><loc>http://a.test/&a;</loc></url></urlset>".into(), UrlSet, &["http://a.test/&a;"], 0),
        (r#"<rss version="2.0"><channel><link>http://a.test/</link><atom:link href="http://a.test/self"/><item><link>http://a.test/1</link><pubDate>now</pubDate></item></channel></rss>"#.into(), Rss, &["http://a.test/1"], 0),
        (r#"<rdf:RDF><item rdf:about="x"><title>t</title><link>http://a.test/1</link></item></rdf:RDF>"#.into(), Rss, &["http://a.test/1"], 0),
        (r#"<feed xmlns="http://www.w3.org/2005/Atom"><link href="http://a.test/"/><entry><link rel="edit" href="http://a.test/e"/><link href="http://a.test/?a&amp;b"/><link rel="alternate" href="http://a.test/2"/></entry></feed>"#.into(), Atom, &["http://a.test/?a&b"], 0),
        ("\u{feff}http://a.test/1\r\nhttps://a.test/2\n\n# no URL\n  HTTP://a.test/3".into(), Text, &["http://a.test/1", "https://a.test/2", "HTTP://a.test/3"], 1),
        ("http://a.test/1\rhttp://a.test/2\r".into(), Text, &["http://a.test/1", "http://a.test/2"], 0),
        ("<!DOCTYPE html><html><body><url><loc>http://a.test/</loc></url>".into(), Unknown, &[], 0),
        ("Not found".into(), Unknown, &[], 1),
        (String::new(), Unknown, &[], 0),
    ] {
        let (found, report) = locs(&file);
        assert_eq!(found, expected, "{file}");
        assert_eq!((report.format, report.errors, report.cap, report.broken), (format, errors, None, false), "{file}");
    }
}

#[test]
fn fields() {
    let file = "<urlset><url><lastmod> 2024-01-02 </lastmod><loc>a</loc><priority>0.5</priority></url>\
                <url><loc>b</loc><priority>7</priority></url></urlset>";
    let (entries, _) = collect(file.as_bytes(), &SitemapLimits::default());
    let full = SitemapEntry { loc: "a".into(), lastmod: Some("2024-01-02".into()), priority: Some(0.5) };
    assert_eq!(entries, [full, SitemapEntry { loc: "b".into(), ..SitemapEntry::default() }]);
}

#[test]
fn bytes_that_are_no_text_cost_their_entry_only() {
    let file =
        b"<urlset><url><loc>http://a.test/\xff</loc></url><url><loc>http://a.test/2</loc></url></urlset>";
    let (entries, report) = collect(file, &SitemapLimits::default());
    assert_eq!((entries.len(), entries[0].loc.as_str(), report.errors), (1, "http://a.test/2", 1));
    let wide: Vec<u8> = "\u{feff}<urlset><url><loc>http://a.test/ü</loc></url></urlset>"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(collect(&wide, &SitemapLimits::default()).0[0].loc, "http://a.test/ü");
    let (entries, report) = collect(b"http://a.test/\xff\nhttp://a.test/2\n", &SitemapLimits::default());
    assert_eq!((entries.len(), report.errors), (1, 1));
}

#[test]
fn gzip_is_known_by_its_magic() {
    let (found, report) = collect(&gzip(urlset(10).as_bytes()), &SitemapLimits::default());
    assert_eq!((found.len(), report.broken), (10, false));
    let two = [gzip(b"http://a.test/1\n"), gzip(b"http://a.test/2\n")].concat();
    assert_eq!(collect(&two, &SitemapLimits::default()).0.len(), 2);

    let cut = gzip(urlset(5000).as_bytes());
    let (found, report) = collect(&cut[..cut.len() / 2], &SitemapLimits::default());
    assert!(report.broken && !found.is_empty() && found.len() < 5000);
    let mut wrong = gzip(b"http://a.test/1\n");
    let checksum = wrong.len() - 8;
    wrong[checksum] ^= 1;
    let (found, report) = collect(&wrong, &SitemapLimits::default());
    assert!(report.broken && found.len() == 1);
}

#[test]
fn caps() {
    let limits = SitemapLimits { max_bytes: 10_000, max_entries: 50, ..SitemapLimits::default() };
    let (found, report) = collect(urlset(50).as_bytes(), &limits);
    assert_eq!((found.len(), report.cap), (50, None));
    let (found, report) = collect(urlset(51).as_bytes(), &limits);
    assert_eq!((found.len(), report.cap), (50, Some(SitemapCap::Entries)));

    let many = SitemapLimits { max_entries: 1_000_000, ..limits };
    let list: String = (0..2000).map(|n| format!("http://a.test/{n:06}\n")).collect();
    for (file, each) in [(urlset(2000), 36), (list, 21)] {
        for file in [file.as_bytes(), &gzip(file.as_bytes())] {
            let (found, report) = collect(file, &many);
            assert_eq!(report.cap, Some(SitemapCap::Bytes));
            assert!(found.len() * each <= 10_100 && found.len() > 200, "{}", found.len());
            assert!(found.iter().all(|entry| entry.loc.starts_with("http://a.test/")));
        }
    }
    let exact = SitemapLimits { max_bytes: urlset(5).len() as u64, ..SitemapLimits::default() };
    assert_eq!(collect(urlset(5).as_bytes(), &exact).1.cap, None);

    let bomb = gzip(&vec![b' '; 20 << 20]);
    assert_eq!(collect(&bomb, &limits_of(1 << 20)).1.cap, Some(SitemapCap::Bytes));
    let faulty = "<url><loc></loc></url>".repeat(20_000);
    let report = collect(format!("<urlset>{faulty}").as_bytes(), &SitemapLimits::default()).1;
    assert_eq!((report.cap, report.errors), (Some(SitemapCap::Errors), 10_000));
}

fn limits_of(max_bytes: u64) -> SitemapLimits {
    SitemapLimits { max_bytes, ..SitemapLimits::default() }
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_an_end(
        pieces in prop::collection::vec(prop_oneof![
            Just(b"<urlset>".to_vec()), Just(b"<url>".to_vec()), Just(b"<loc>".to_vec()), Just(b"</loc>".to_vec()),
            Just(b"</url>".to_vec()), Just(b"<![CDATA[".to_vec()), Just(b"]]>".to_vec()), Just(b"<!--".to_vec()),
            Just(b"&#".to_vec()), Just(b"&amp;".to_vec()), Just(b"<feed><entry><link href='x'/>".to_vec()),
            Just(b"http://a.test/\n".to_vec()), Just(vec![0x1f, 0x8b, 8, 0]),
            prop::collection::vec(any::<u8>(), 0..8),
        ], 0..24),
        max_bytes in 0_u64..200,
    ) {
        let file = pieces.concat();
        let (_, report) = collect(&file, &limits_of(max_bytes));
        prop_assert!(report.entries as usize <= file.len());
        collect(&gzip(&file), &limits_of(max_bytes));
    }
}

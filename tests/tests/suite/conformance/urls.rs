//! E01 to E05: from what stands in a page to a URL.

use std::collections::BTreeSet;

use dolomedes_tests::site::{Reply, Request, Site};

use crate::mini::{as_is, crawl, page, serve};

/// The paths of a host that were asked for, robots.txt left out.
fn paths(site: &Site, host: &str) -> BTreeSet<String> {
    let mut paths = site.log().paths(host);
    paths.remove("/robots.txt");
    paths
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

#[test]
fn e01_base_is_resolved_and_only_the_first_counts() {
    let site = Site::start();
    let html = "<html><head><base href=\"../x/\"><title>Base</title><base href=\"/wrong/\"></head>\
                <body><a href=\"y\">y</a><base href=\"/late/\"><a href=\"z\">z</a></body></html>";
    serve(
        &site,
        "e01.test",
        [
            ("/a/b/", html.to_owned()),
            ("/a/x/y", page("Right", "")),
            ("/a/x/z", page("Right", "")),
            // A base without href is none (HTML standard, "document base URL").
            ("/t/", "<base target=_blank><base href='/a/x/'><a href='w'>w</a>".to_owned()),
        ],
    );
    crawl(&site, ["/a/b/", "/t/"].map(|path| site.url("e01.test", path)), as_is);
    assert_eq!(paths(&site, "e01.test"), set(&["/a/b/", "/a/x/y", "/a/x/z", "/t/", "/a/x/w"]));
}

#[test]
fn e02_links_are_resolved_against_the_end_of_a_redirect() {
    let site = Site::start();
    site.host("e02.test", |request: &Request| match request.path.as_str() {
        "/" => Reply::page("Front", ["/old", "/inside"]),
        "/old" => Reply::redirect(301, format!("{}/new/", request.origin_of("other.e02.test"))),
        "/inside" => Reply::redirect(301, "/folder/"),
        "/folder/" => Reply::page("Here", ["rel"]),
        "/robots.txt" => Reply::not_found(),
        _ => Reply::page("A page", [""; 0]),
    });
    site.host("other.e02.test", |request: &Request| match request.path.as_str() {
        "/new/" => Reply::page("New", ["rel"]),
        "/robots.txt" => Reply::not_found(),
        _ => Reply::page("A page", [""; 0]),
    });
    let seed = site.url("e02.test", "/");
    crawl(&site, [seed.as_str()], as_is);
    assert_eq!(paths(&site, "e02.test"), set(&["/", "/old", "/inside", "/folder/", "/folder/rel"]));
    assert_eq!(paths(&site, "other.e02.test"), set(&[]), "the end of the redirect is out of scope");
    crawl(&site, [seed], |job| {
        job.set("--scope", "any");
    });
    assert_eq!(paths(&site, "other.e02.test"), set(&["/new/", "/new/rel"]));
}

#[test]
fn e03_links_are_read_as_the_url_standard_says() {
    let site = Site::start();
    let port = site.port();
    let body = format!(
        "<a href=\"//cdn.e03.test:{port}/x\">1</a><a href=\" \n/p\t \">2</a><A HREF=/q>3</A>\
         <a href=\"\\\\cdn.e03.test:{port}\\back\\slash\">4</a><a href='/t\tw\no'>5</a>\
         <a href=\"HTTP://E03.TEST:{port}/upper\">6</a><a href=\"http:/one-slash\">7</a><a href=''>8</a><a>9</a>\
         <a href=\"?q=1\">10</a><a href=\"./dot/../dots\">11</a><area href=/area><iframe src=/frame></iframe>"
    );
    serve(&site, "e03.test", [("/", page("Links", &body))]);
    serve(&site, "cdn.e03.test", [("/x", page("X", ""))]);
    crawl(&site, [site.url("e03.test", "/")], |job| {
        job.set("--scope", "domain");
    });
    assert_eq!(
        paths(&site, "e03.test"),
        set(&["/", "/p", "/q", "/two", "/upper", "/one-slash", "/?q=1", "/dots", "/area", "/frame"])
    );
    assert_eq!(paths(&site, "cdn.e03.test"), set(&["/x", "/back/slash"]));
}

#[test]
fn e04_percent_encoding_has_one_spelling_and_does_not_grow() {
    let site = Site::start();
    let body = "<a href='/%7Euser'>1</a><a href='/~user'>2</a><a href='/x%2fy'>3</a><a href='/x%2Fy'>4</a>\
                <a href='/a b'>5</a><a href='/a%20b'>6</a><a href='/ü'>7</a><a href='/%c3%bc'>8</a><a href='/%zz'>9</a>";
    serve(&site, "e04.test", [("/", page("Encodings", body))]);
    // Each page links to itself as it was asked for, five times over if each hop made it longer.
    site.host("grow.e04.test", |request: &Request| match request.path.as_str() {
        "/robots.txt" => Reply::not_found(),
        "/" => Reply::page("Front", ["/deep/%25252525", "/stray/%zz", "/utf/ü"]),
        path => Reply::page("Again", [path.to_owned(), format!("{path}#part")]),
    });
    crawl(&site, ["e04.test", "grow.e04.test"].map(|host| site.url(host, "/")), |job| {
        job.set("--max-pages-per-host", "50");
    });
    let found = paths(&site, "e04.test");
    let stray: Vec<&String> = found.iter().filter(|path| path.contains("zz")).collect();
    assert!(stray == ["/%zz"] || stray == ["/%25zz"], "{found:?}");
    let others: BTreeSet<String> = found.iter().filter(|path| !path.contains("zz")).cloned().collect();
    assert_eq!(others, set(&["/", "/~user", "/x%2Fy", "/a%20b", "/%C3%BC"]));
    let grown = paths(&site, "grow.e04.test");
    assert_eq!(grown.len(), 4, "{grown:?}");
    assert!(grown.contains("/deep/%25252525"), "{grown:?}");
}

#[test]
fn e05_hosts_have_one_identity() {
    let site = Site::start();
    let port = site.port();
    let hosts = [
        ("BÜCHER.e05.test", "xn--bcher-kva.e05.test"),
        ("xn--bcher-kva.e05.test", "xn--bcher-kva.e05.test"),
        ("faß.e05.test", "xn--fa-hia.e05.test"),
        ("dot.e05.test.", "dot.e05.test"),
        ("DOT.e05.test", "dot.e05.test"),
        ("_dmarc.e05.test", "_dmarc.e05.test"),
        ("☃.e05.test", "xn--n3h.e05.test"),
    ];
    let links: String =
        hosts.iter().map(|(written, _)| format!("<a href='http://{written}:{port}/p'>x</a>")).collect();
    serve(&site, "www.e05.test", [("/", page("Hosts", &links))]);
    site.hosts_under(".e05.test", |request: &Request| match request.path.as_str() {
        "/robots.txt" => Reply::not_found(),
        _ => Reply::page("A page", [""; 0]),
    });
    site.hosts_under(".e05.test.", |_: &Request| Reply::page("The dot was not folded", [""; 0]));
    crawl(&site, [site.url("www.e05.test", "/")], |job| {
        job.set("--scope", "domain");
    });
    for (written, real) in hosts {
        assert_eq!(site.log().hits(real, "/p"), 1, "{written}: {:?}", site.log().all());
    }
    assert_eq!(site.log().all().iter().filter(|seen| seen.path == "/p").count(), 5);
}

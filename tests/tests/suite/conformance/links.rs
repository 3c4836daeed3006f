//! E06 to E09: where links stand, and which of them count.

use dolomedes_tests::site::{Reply, Request, Site};

use crate::mini::{as_is, crawl, page, serve};

#[test]
fn e06_srcset_is_split_as_the_html_standard_says() {
    let site = Site::start();
    let body = "<img srcset=\"a.jpg 1x, b,c.jpg 2x, data:image/png;base64,AA== 3x\">\
                <picture><source SRCSET='d.webp 100w,\n e.webp 200w' imagesizes='f.jpg 1x'></picture>\
                <link rel=preload as=image IMAGESRCSET='g.png 1x' href='h.png'><img src=i.png>";
    serve(&site, "e06.test", [("/", page("Images", body))]);
    crawl(&site, [site.url("e06.test", "/")], |job| {
        job.flag("--assets");
    });
    let found = site.log().paths("e06.test");
    for path in ["/a.jpg", "/b,c.jpg", "/d.webp", "/e.webp", "/i.png"] {
        assert!(found.contains(path), "{path} in {found:?}");
    }
    for path in ["/f.jpg", "/b", "/c.jpg"] {
        assert!(!found.contains(path), "{path} in {found:?}");
    }
    assert!(!found.iter().any(|path| path.contains("base64")), "{found:?}");

    let plain = Site::start();
    serve(&plain, "e06.test", [("/", page("Images", body))]);
    crawl(&plain, [plain.url("e06.test", "/")], as_is);
    assert_eq!(plain.log().pages("e06.test"), 1, "images only where they are wanted");
}

#[test]
fn e07_nofollow_counts_where_it_is_said() {
    let site = Site::start();
    site.host("e07.test", |request: &Request| match request.path.as_str() {
        "/" => Reply::page("Front", ["/meta", "/header", "/agent", "/other", "/links", "/none"]),
        "/meta" => Reply::html(
            "<title>m</title><meta name=ROBOTS content=\"NoFollow, NoArchive\"><a href='/no/meta'>x</a>",
        ),
        "/header" => Reply::page("h", ["/no/header"]).header("X-Robots-Tag", "noarchive, NOFOLLOW"),
        "/agent" => Reply::page("a", ["/no/agent"]).header("X-Robots-Tag", "dolomedes: nofollow"),
        "/other" => Reply::page("o", ["/yes/other"]).header("X-Robots-Tag", "otherbot: nofollow"),
        "/links" => Reply::html(
            "<title>l</title><a rel='ugc nofollow' href='/no/link'>x</a><a rel=UGC href='/yes/link'>x</a>",
        ),
        "/none" => Reply::html("<title>n</title><meta name=robots content=none><a href='/no/none'>x</a>"),
        "/robots.txt" => Reply::not_found(),
        _ => Reply::page("A page", [""; 0]),
    });
    crawl(&site, [site.url("e07.test", "/")], as_is);
    let found = site.log().paths("e07.test");
    let followed: Vec<&String> =
        found.iter().filter(|path| path.starts_with("/yes/") || path.starts_with("/no/")).collect();
    assert_eq!(followed, ["/yes/link", "/yes/other"]);
}

#[test]
fn e08_meta_refresh_leads_on() {
    let site = Site::start();
    let refresh = |content: &str| format!("<meta http-equiv=refresh content=\"{content}\">");
    serve(
        &site,
        "e08.test",
        [
            (
                "/",
                page(
                    "Front",
                    "<a href=/quoted>1</a><a href=/bare>2</a><a href=/comment>3</a><a href=/plain>4</a>",
                ),
            ),
            ("/quoted", format!("<title>q</title>{}", refresh("0; URL='/n'"))),
            ("/plain", format!("<title>p</title>{}", refresh("3;url=/m"))),
            ("/bare", format!("<title>b</title>{}", refresh("5"))),
            ("/comment", format!("<title>c</title><!-- {} -->", refresh("0;url=/no"))),
            ("/n", page("N", "")),
            ("/m", page("M", "")),
        ],
    );
    crawl(&site, [site.url("e08.test", "/")], as_is);
    let found = site.log().paths("e08.test");
    let wanted = ["/", "/bare", "/comment", "/m", "/n", "/plain", "/quoted", "/robots.txt"];
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
}

#[test]
fn e09_link_headers_are_lists_and_canonical_is_a_hint() {
    let site = Site::start();
    site.host("e09.test", |request: &Request| match request.path.as_str() {
        "/" => Reply::page("Front", ["/page"])
            .header("Link", "</n>; rel=\"next\", </c>; rel=canonical")
            .header("Link", "</p,q>;rel=prev;title=\"a, b; c\"")
            .header("Content-Location", "elsewhere/"),
        "/page" => Reply::html(
            "<title>Page</title><link rel=canonical href='http://thief.invalid/page'><a href='/after'>x</a>",
        ),
        "/robots.txt" => Reply::not_found(),
        _ => Reply::page("A page", [""; 0]),
    });
    let done = crawl(&site, [site.url("e09.test", "/")], as_is);
    let found = site.log().paths("e09.test");
    for path in ["/n", "/p,q", "/page", "/after"] {
        assert!(found.contains(path), "{path} in {found:?}");
    }
    assert!(!found.iter().any(|path| path.contains("title") || path.contains(';')), "{found:?}");
    let record = done.records.at(&site.url("e09.test", "/page"));
    assert_eq!((record.status(), record.title()), (Some(200), "Page"));
    assert_eq!(record.text("canonical"), "http://thief.invalid/page");
}

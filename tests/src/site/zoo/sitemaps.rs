//! Hosts whose pages are only known from a sitemap, of every kind. The host `NAME.sitemaps.test` names its sitemap in
//! its robots.txt, and has a front page without links.

use super::encodings::gzip;
use crate::site::{Answer, Reply, Request, Site};

/// A host with a sitemap.
#[derive(Clone, Copy, Debug)]
pub struct SitemapHost {
    /// First label of its name.
    pub name: &'static str,
    /// Where its sitemap is.
    pub path: &'static str,
    /// Answers the sitemap, and the parts of it.
    pub answer: fn(&Request) -> Option<Answer>,
    /// Paths that a crawl that reads it has to fetch.
    pub reached: &'static [&'static str],
}

impl SitemapHost {
    /// Its host name.
    pub fn host(&self) -> String {
        format!("{}.sitemaps.test", self.name)
    }
}

const XMLNS: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"";

/// A sitemap of these paths of the host.
fn urls(request: &Request, paths: &[&str]) -> String {
    let locations: String =
        paths.iter().map(|path| format!("<url><loc>{}{path}</loc></url>\n", request.origin())).collect();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset {XMLNS}>\n{locations}</urlset>\n")
}

/// An index of sitemaps at these paths of the host.
fn index(request: &Request, paths: &[&str]) -> String {
    let locations: String = paths
        .iter()
        .map(|path| format!("<sitemap><loc>{}{path}</loc></sitemap>", request.origin()))
        .collect();
    format!("<?xml version=\"1.0\"?><sitemapindex {XMLNS}>{locations}</sitemapindex>")
}

fn xml(body: impl Into<bytes::Bytes>) -> Option<Answer> {
    Some(Reply::with("application/xml", body).into())
}

/// A gzip file, not a coding.
fn gz(body: &str) -> Option<Answer> {
    Some(Reply::with("application/gzip", gzip(body.as_bytes())).into())
}

const TWO: &[&str] = &["/one.html", "/two.html"];

/// Every kind.
pub const HOSTS: &[SitemapHost] = &[
    SitemapHost {
        name: "plain",
        path: "/sitemap.xml",
        answer: |request| xml(urls(request, TWO)),
        reached: TWO,
    },
    SitemapHost {
        name: "deep",
        path: "/index.xml",
        answer: |request| match request.path.as_str() {
            "/index.xml" => xml(index(request, &["/level2.xml.gz", "/one.xml.gz"])),
            "/level2.xml.gz" => gz(&index(request, &["/two.xml.gz"])),
            "/one.xml.gz" => gz(&urls(request, &["/one.html"])),
            "/two.xml.gz" => gz(&urls(request, &["/two.html"])),
            _ => None,
        },
        reached: TWO,
    },
    SitemapHost {
        name: "self",
        path: "/index.xml",
        answer: |request| match request.path.as_str() {
            "/index.xml" => xml(index(request, &["/index.xml", "/other.xml", "/urls.xml"])),
            "/other.xml" => xml(index(request, &["/index.xml", "/other.xml"])),
            "/urls.xml" => xml(urls(request, TWO)),
            _ => None,
        },
        reached: TWO,
    },
    SitemapHost {
        name: "foreign",
        path: "/sitemap.xml",
        answer: |request| {
            let foreign = format!("<loc>{}/stolen.html</loc>", request.origin_of("victim.sitemaps.test"));
            xml(urls(request, TWO).replace("</urlset>", &format!("<url>{foreign}</url></urlset>")))
        },
        reached: TWO,
    },
    SitemapHost {
        name: "large",
        path: "/sitemap.xml",
        answer: |request| {
            let whole = urls(request, TWO);
            let (head, tail) = whole.split_at(whole.find("</urlset>").unwrap_or(0));
            let filler = format!("<!-- {} -->\n", "60 MB of nothing ".repeat(60));
            let reply = Reply::with("application/xml", head.to_owned())
                .repeated(filler, 60_000)
                .body(tail.to_owned());
            Some(reply.into())
        },
        reached: TWO,
    },
    SitemapHost {
        name: "many",
        path: "/sitemap.xml",
        answer: |request| {
            let mut paths = vec!["/one.html"; 50_000];
            paths[1] = "/two.html";
            paths.push("/beyond.html");
            xml(urls(request, &paths))
        },
        reached: TWO,
    },
    SitemapHost {
        name: "bom",
        path: "/sitemap.xml",
        answer: |request| xml(format!("\u{feff}{}", urls(request, TWO))),
        reached: TWO,
    },
    SitemapHost {
        name: "text",
        path: "/sitemap.txt",
        answer: |request| {
            let origin = request.origin();
            Some(Reply::text(format!("\u{feff}{origin}/one.html\r\n\nnot a url\n{origin}/two.html\n")).into())
        },
        reached: TWO,
    },
    SitemapHost {
        name: "cdata",
        path: "/sitemap.xml",
        answer: |request| {
            let origin = request.origin();
            xml(format!(
                "<urlset {XMLNS}><url><loc><![CDATA[{origin}/one.html?a=1&b=2]]></loc></url><url><loc>\n {origin}/two.html?a=1&amp;b=&#x33; \n</loc></url></urlset>"
            ))
        },
        reached: &["/one.html?a=1&b=2", "/two.html?a=1&b=3"],
    },
    SitemapHost {
        name: "bad-entries",
        path: "/sitemap.xml",
        answer: |request| {
            let odd = "<url><loc>http://[bad</loc></url><url></url><url><loc></loc></url><url><loc>ftp://x/</loc></url>\
                       <url><lastmod>2999-01-01</lastmod><priority>99</priority></url>";
            xml(urls(request, TWO).replacen("<url>", &format!("{odd}<url><lastmod>2999-12-31</lastmod>"), 1))
        },
        reached: TWO,
    },
    SitemapHost {
        name: "cut",
        path: "/sitemap.xml",
        answer: |request| xml(urls(request, TWO).replace("</urlset>", "<url><loc>http://cu")),
        reached: TWO,
    },
    SitemapHost {
        name: "prefixed",
        path: "/sitemap.xml",
        answer: |request| {
            let whole =
                urls(request, TWO).replace("xmlns=", "xmlns:s=").replace("</", "</s:").replace("<u", "<s:u");
            xml(whole.replace("<loc", "<s:loc"))
        },
        reached: TWO,
    },
    SitemapHost {
        name: "html",
        path: "/sitemap.xml",
        answer: |_| Some(Reply::page("There is no sitemap", [""; 0]).into()),
        reached: &[],
    },
    SitemapHost {
        name: "entity-bomb",
        path: "/sitemap.xml",
        answer: |_| {
            let levels: String = (1..12)
                .map(|n| format!("<!ENTITY l{n} \"{}\">", format!("&l{};", n - 1).repeat(10)))
                .collect();
            xml(format!(
                "<!DOCTYPE urlset [<!ENTITY l0 \"ha\">{levels}]><urlset {XMLNS}><url><loc>&l11;</loc></url></urlset>"
            ))
        },
        reached: &[],
    },
];

/// Serves all of them.
pub fn install(site: &Site) {
    for kind in HOSTS {
        site.host(&kind.host(), move |request: &Request| -> Answer {
            match request.path.as_str() {
                "/robots.txt" => Reply::text(format!("Sitemap: {}{}\n", request.origin(), kind.path)).into(),
                "/" => Reply::page("Front", [""; 0]).into(),
                _ => (kind.answer)(request)
                    .filter(|_| request.path.contains(".xml") || request.path == kind.path)
                    .unwrap_or_else(|| Reply::page("A page", [""; 0]).into()),
            }
        });
    }
    site.host("victim.sitemaps.test", |_: &Request| Reply::page("Stolen", [""; 0]));
}

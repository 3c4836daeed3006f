use crate::extract::links::{Capped, Link, LinkKind, MAX_TITLE, MAX_VALUE, Rel, ScanOptions, scan};
use crate::extract::{MetaRobots, PageScan, Syntax, refresh, srcset};

fn page(html: &str) -> PageScan<'_> {
    scan(html, &ScanOptions::default())
}

fn with_assets(html: &str) -> Vec<(LinkKind, String)> {
    let page = scan(html, &ScanOptions { assets: true, ..ScanOptions::default() });
    page.links.into_iter().map(|link| (link.kind, link.href.into_owned())).collect()
}

fn hrefs(html: &str) -> Vec<String> {
    page(html).links.into_iter().map(|link| link.href.into_owned()).collect()
}

#[test]
fn links_come_in_order_with_their_kind() {
    let html = "<link rel=canonical href=/c><LINK REL='alternate' HREF=/alt><link rel=next href=2><link rel=prev href=0>\
        <link rel=amphtml href=amp><link rel=stylesheet href=s><a href=a>x</a><area href=b><iframe src=f></iframe>\
        <frame src=g><a name=x><a href><img src=i><script src=j></script>";
    let found: Vec<(LinkKind, String)> =
        page(html).links.into_iter().map(|l| (l.kind, l.href.into_owned())).collect();
    let expected = [
        (LinkKind::Canonical, "/c"),
        (LinkKind::Alternate, "/alt"),
        (LinkKind::Next, "2"),
        (LinkKind::Prev, "0"),
        (LinkKind::Amp, "amp"),
        (LinkKind::Anchor, "a"),
        (LinkKind::Area, "b"),
        (LinkKind::Frame, "f"),
        (LinkKind::Frame, "g"),
        (LinkKind::Anchor, ""),
    ];
    assert_eq!(found, expected.map(|(kind, href)| (kind, href.to_owned())));
    assert_eq!(page(html).canonical.as_deref(), Some("/c"));
}

#[test]
fn references_in_hrefs_are_decoded_and_ends_stripped() {
    for (html, expected) in [
        ("<a href=' \n/p\t '>", "/p"),
        ("<a HREF=/p>", "/p"),
        ("<a href='?a=1&amp;b=2&copy=3'>", "?a=1&b=2&copy=3"),
        ("<a href='a&#x2F;b'>", "a/b"),
        ("<a href='a\nb'>", "a\nb"),
        ("<a href=x href=y>", "x"),
        ("<a href='&#32;x&nbsp;'>", "x\u{a0}"),
    ] {
        assert_eq!(hrefs(html), [expected], "for {html:?}");
    }
}

#[test]
fn the_first_base_with_a_href_counts() {
    assert_eq!(page("<base target=x><base href='../x/'><base href=y>").base.as_deref(), Some("../x/"));
    assert_eq!(page("<!--<base href=x>--><p>").base, None);
}

#[test]
fn rel_is_kept_per_link() {
    let page = page("<a rel='ugc NoFollow' href=a><a href=b rel=sponsored><a href=c rel=nofollowx>");
    let rels: Vec<Rel> = page.links.iter().map(|link| link.rel).collect();
    let none = Rel::default();
    assert_eq!(rels, [Rel { nofollow: true, ugc: true, ..none }, Rel { sponsored: true, ..none }, none]);
    assert!(!page.robots.nofollow);
}

#[test]
fn robots_meta_adds_up_without_regard_to_case() {
    let all =
        page("<meta name=ROBOTS content='NoFollow, NoArchive'><meta content=noindex name=Dolomedes>").robots;
    assert_eq!(all, MetaRobots { noindex: true, nofollow: true, noarchive: true, ..MetaRobots::default() });
    assert_eq!(
        page("<meta name=otherbot content=none><meta name=robots content='index,follow'>").robots,
        MetaRobots::default()
    );
    let none = page("<meta name=robots content=none>").robots;
    assert!(none.noindex && none.nofollow && !none.noarchive);
}

#[test]
fn refresh_values() {
    for (value, expected) in [
        ("0; URL='/n'", Some((0, Some("/n")))),
        ("5", Some((5, None))),
        ("5;", Some((5, None))),
        (" 3.7 ; url = \"a b\" junk", Some((3, Some("a b")))),
        ("0;/n", Some((0, Some("/n")))),
        ("0,url=/n", Some((0, Some("/n")))),
        ("0 url=/n", Some((0, Some("/n")))),
        ("0;url=/n'x", Some((0, Some("/n'x")))),
        ("0;url='/n", Some((0, Some("/n")))),
        ("0;'/n'", Some((0, Some("/n")))),
        (".5;url=x", Some((0, Some("x")))),
        ("0;urn:x", Some((0, Some("urn:x")))),
        ("0;url", Some((0, Some("url")))),
        ("99999999999;url=x", Some((u32::MAX, Some("x")))),
        ("0x;url=/n", None),
        ("url=/n", None),
        ("-1;url=/n", None),
        ("", None),
    ] {
        assert_eq!(refresh::parse(value), expected, "for {value:?}");
    }
}

#[test]
fn the_first_refresh_counts() {
    let refresh = page("<meta http-equiv=Refresh content=\"0; URL='/n'\">").refresh.expect("a refresh");
    assert_eq!((refresh.delay, refresh.href.as_ref(), refresh.in_noscript), (0, "/n", false));
    assert_eq!(page("<meta http-equiv=refresh content=5>").refresh, None);
    assert_eq!(page("<!--<meta http-equiv=refresh content='0;url=x'>-->").refresh, None);
    assert_eq!(
        page("<meta http-equiv=refresh content=5><meta http-equiv=refresh content='0;url=x'>").refresh,
        None
    );
    let noscript = "<noscript><meta http-equiv=refresh content='0;url=x&amp;y'></noscript>";
    let refresh = page(noscript).refresh.expect("a refresh");
    assert!(refresh.in_noscript);
    assert_eq!(refresh.href, "x&y");
}

#[test]
fn titles_are_decoded_collapsed_and_capped() {
    for (html, expected) in [
        ("<title> A\n &amp; <b>B</b>\t</title>", Some("A & <b>B</b>")),
        ("<svg><title>icon</title></svg><title>page</title>", Some("page")),
        ("<title>one</title><title>two</title>", Some("one")),
        ("<title></title>", None),
        ("<p>", None),
        ("<title>unclosed <p>", Some("unclosed <p>")),
    ] {
        assert_eq!(page(html).title.as_deref(), expected, "for {html:?}");
    }
    for unit in ["ü", "word "] {
        let html = format!("<title>{}</title>", unit.repeat(100_000));
        let page = page(&html);
        assert!(page.capped.title);
        assert!(page.title.is_some_and(|title| title.len() <= MAX_TITLE && title.len() > MAX_TITLE - 10));
    }
}

#[test]
fn lang_is_of_the_first_html_that_has_one() {
    assert_eq!(page("<html class=x><html lang=' de-AT '><html lang=en>").lang.as_deref(), Some("de-AT"));
}

#[test]
fn assets_come_when_wanted() {
    let html = "<img src=a srcset='b 1x, c 2x'><source src=d srcset=e><video src=f poster=g></video><audio src=h></audio>\
        <track src=i><script src=j></script><link rel='shortcut icon' href=k><link rel=stylesheet href=l><object data=m>\
        <embed src=n><input type=image src=o><input type=text src=p><image src=q><img src>";
    use LinkKind::*;
    let expected = [
        (Image, "a"),
        (Image, "b"),
        (Image, "c"),
        (Media, "d"),
        (Image, "e"),
        (Media, "f"),
        (Image, "g"),
        (Media, "h"),
        (Media, "i"),
        (Script, "j"),
        (Icon, "k"),
        (Stylesheet, "l"),
        (Object, "m"),
        (Object, "n"),
        (Image, "o"),
        (Image, "q"),
    ];
    assert_eq!(with_assets(html), expected.map(|(kind, href)| (kind, href.to_owned())));
    assert_eq!(hrefs(html), Vec::<String>::new());
}

#[test]
fn srcset_candidates() {
    for (set, expected) in [
        (
            "a.jpg 1x, b,c.jpg 2x, data:image/png;base64,AA== 3x",
            vec!["a.jpg", "b,c.jpg", "data:image/png;base64,AA=="],
        ),
        ("a, b", vec!["a", "b"]),
        ("a,b", vec!["a,b"]),
        (" , a 100w , b 200w 50h,", vec!["a", "b"]),
        ("a 1x 2x, b", vec!["b"]),
        ("a 1.5x, b 1e3x, c -1x, d 0w, e 3q, f 3h", vec!["a", "b"]),
        ("a (x, y), b", vec!["b"]),
        ("a,,, b", vec!["a", "b"]),
        ("", vec![]),
        (",", vec![]),
    ] {
        assert_eq!(srcset::urls(set).collect::<Vec<_>>(), expected, "for {set:?}");
    }
}

#[test]
fn what_is_too_much_is_dropped_and_flagged() {
    let html = "<a href=x>".repeat(30);
    let page = scan(&html, &ScanOptions { max_links: 10, ..ScanOptions::default() });
    assert_eq!((page.links.len(), page.links_seen), (10, 30));
    assert_eq!(page.capped, Capped { links: true, ..Capped::default() });

    let html = format!("<a href={}><a href=y>", "x".repeat(MAX_VALUE + 1));
    let page = self::page(&html);
    assert_eq!(page.links.iter().map(|l| l.href.as_ref()).collect::<Vec<_>>(), ["y"]);
    assert!(page.capped.values);
}

#[test]
fn plain_values_are_borrowed() {
    let page = page("<a href=' /plain '>");
    assert!(matches!(page.links.as_slice(), [Link { href: std::borrow::Cow::Borrowed("/plain"), .. }]));
}

#[test]
fn xlink_counts_inside_svg_only() {
    assert_eq!(hrefs("<a xlink:href=x><svg><a xlink:href=y></a></svg><a xlink:href=z>"), ["y"]);
}

#[test]
fn xhtml_scripts_may_be_closed_at_once() {
    let html = "<script src='a'/><a href='b'/>";
    let options = ScanOptions { syntax: Syntax::Xml, ..ScanOptions::default() };
    assert_eq!(scan(html, &options).links.len(), 1);
    assert_eq!(page(html).links.len(), 0);
}

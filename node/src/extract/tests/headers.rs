use crate::extract::MetaRobots;
use crate::extract::link_header::parse;

#[test]
fn x_robots_tag_is_scoped_to_the_agent_it_names() {
    let nofollow = MetaRobots { nofollow: true, ..MetaRobots::default() };
    for (value, expected) in [
        ("nofollow", nofollow),
        ("NOFOLLOW", nofollow),
        ("otherbot: nofollow", MetaRobots::default()),
        ("otherbot: noindex, nofollow", MetaRobots::default()),
        ("otherbot: noindex, dolomedes: nofollow", nofollow),
        ("Dolomedes: nofollow", nofollow),
        ("unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow", nofollow),
        ("max-snippet:-1, nofollow", nofollow),
        ("none", MetaRobots { noindex: true, ..nofollow }),
        ("", MetaRobots::default()),
    ] {
        let mut robots = MetaRobots::default();
        robots.add_header(value, "dolomedes");
        assert_eq!(robots, expected, "for {value:?}");
    }
}

#[test]
fn link_header_lists() {
    let links = parse(
        "</n>; rel=\"next\", </c>; rel=canonical,, <a,b;c>; title=\"x, <y>; rel=z\" ;REL=\"prev  Up\"; rel=later",
    );
    let found: Vec<(&str, &str)> = links.iter().map(|link| (link.target, link.rel.as_str())).collect();
    assert_eq!(found, [("/n", "next"), ("/c", "canonical"), ("a,b;c", "prev  Up")]);
    assert!(links[2].is("up") && !links[2].is("later"));
}

#[test]
fn anchored_links_are_about_other_pages() {
    let links = parse("</x>; rel=canonical; anchor=\"#foo\"");
    assert!(!links[0].is("canonical"));
}

#[test]
fn junk_in_a_link_header_ends_it() {
    for (value, targets) in [
        ("", vec![]),
        ("junk", vec![]),
        ("<unclosed", vec![]),
        ("<a>", vec!["a"]),
        ("<a>; rel=\"open", vec!["a"]),
        ("<a> junk, <b>", vec!["a", "b"]),
        ("<a>;;rel=x, <b>", vec!["a", "b"]),
        ("<ü>; rel=ü\\", vec!["ü"]),
    ] {
        assert_eq!(parse(value).iter().map(|link| link.target).collect::<Vec<_>>(), targets, "for {value:?}");
    }
}

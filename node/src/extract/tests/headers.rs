use crate::extract::MetaRobots;

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

//! The assertions of Google's robots.txt parser (github.com/google/robotstxt, robots_test.cc at commit 21fc90b3) as
//! tables, in the order of that file. Three kinds of assertion have no counterpart, and are listed at the end with what
//! happens here instead.

use url::Url;

use super::rules::{RobotsRules, product_token};

fn allows(file: &str, agent: &str, url: &str) -> bool {
    RobotsRules::parse(file.as_bytes(), false, agent).allows(&Url::parse(url).unwrap())
}

/// Checks URLs, or paths at foo.bar, that are allowed and disallowed to FooBot.
fn check(file: &str, allowed: &[&str], disallowed: &[&str]) {
    check_as("FooBot", file, allowed, disallowed);
}

fn check_as(agent: &str, file: &str, allowed: &[&str], disallowed: &[&str]) {
    for (paths, expected) in [(allowed, true), (disallowed, false)] {
        for path in paths {
            assert_eq!(
                allows(file, agent, &format!("http://foo.bar{path}")),
                expected,
                "{file:?} {agent} {path}"
            );
        }
    }
}

#[test]
fn system_test() {
    let file = "user-agent: FooBot\ndisallow: /\n";
    check("", &["/"], &[]);
    check_as("", file, &["/"], &[]);
    check(file, &[], &["/"]);
    check_as("", "", &["/"], &[]);
}

#[test]
fn line_syntax() {
    check("user-agent: FooBot\ndisallow: /\n", &[], &["/x/y"]);
    check("foo: FooBot\nbar: /\n", &["/x/y"], &[]);
    check("user-agent FooBot\ndisallow /\n", &[], &["/x/y"]);
}

#[test]
fn groups() {
    let file = "allow: /foo/bar/\n\nuser-agent: FooBot\ndisallow: /\nallow: /x/\nuser-agent: BarBot\ndisallow: /\n\
                allow: /y/\n\n\nallow: /w/\nuser-agent: BazBot\n\nuser-agent: FooBot\nallow: /z/\ndisallow: /\n";
    check_as("FooBot", file, &["/x/b", "/z/d"], &["/y/c", "/foo/bar/"]);
    check_as("BarBot", file, &["/y/c", "/w/a"], &["/z/d", "/foo/bar/"]);
    check_as("BazBot", file, &["/z/d"], &["/foo/bar/"]);
}

#[test]
fn line_names_ignore_case() {
    for file in [
        "USER-AGENT: FooBot\nALLOW: /x/\nDISALLOW: /\n",
        "user-agent: FooBot\nallow: /x/\ndisallow: /\n",
        "uSeR-aGeNt: FooBot\nAlLoW: /x/\ndIsAlLoW: /\n",
    ] {
        check(file, &["/x/y"], &["/a/b"]);
    }
}

#[test]
fn valid_user_agents() {
    for (agent, valid) in [
        ("Foobot", true),
        ("Foobot-Bar", true),
        ("Foo_Bar", true),
        ("", false),
        ("ツ", false),
        ("Foobot*", false),
        (" Foobot ", false),
        ("Foobot/2.1", false),
        ("Foobot Bar", false),
    ] {
        assert_eq!(!agent.is_empty() && product_token(agent) == agent, valid, "{agent:?}");
    }
}

#[test]
fn agent_values_ignore_case_and_end_at_a_space() {
    for file in ["User-Agent: FOO BAR", "User-Agent: foo bar", "User-Agent: FoO bAr"] {
        let file = format!("{file}\nAllow: /x/\nDisallow: /\n");
        for agent in ["Foo", "foo"] {
            check_as(agent, &file, &["/x/y"], &["/a/b"]);
        }
    }
    let file = "User-Agent: *\nDisallow: /\nUser-Agent: Foo Bar\nAllow: /x/\nDisallow: /\n";
    check_as("Foo", file, &["/x/y"], &[]);
    check_as("Foo Bar", file, &[], &["/x/y"]);
}

#[test]
fn global_groups_are_secondary() {
    let global = "user-agent: *\nallow: /\nuser-agent: FooBot\ndisallow: /\n";
    let specific =
        "user-agent: FooBot\nallow: /\nuser-agent: BarBot\ndisallow: /\nuser-agent: BazBot\ndisallow: /\n";
    check("", &["/x/y"], &[]);
    check(global, &[], &["/x/y"]);
    check_as("BarBot", global, &["/x/y"], &[]);
    check_as("QuxBot", specific, &["/x/y"], &[]);
}

#[test]
fn values_regard_case() {
    check("user-agent: FooBot\ndisallow: /x/\n", &[], &["/x/y"]);
    check("user-agent: FooBot\ndisallow: /X/\n", &["/x/y"], &[]);
}

#[test]
fn the_longest_match_wins() {
    let page = "/x/page.html";
    for (rules, allowed, disallowed) in [
        ("disallow: /x/page.html\nallow: /x/", &[][..], &[page][..]),
        ("allow: /x/page.html\ndisallow: /x/", &[page], &["/x/"]),
        ("disallow: \nallow: ", &[page], &[]),
        ("disallow: /\nallow: /", &[page], &[]),
        ("disallow: /x\nallow: /x/", &["/x/"], &["/x"]),
        ("disallow: /x/page.html\nallow: /x/page.html", &[page], &[]),
        ("allow: /page\ndisallow: /*.html", &["/page"], &["/page.html"]),
        ("allow: /x/page.\ndisallow: /*.html", &[page], &["/x/y.html"]),
    ] {
        check(&format!("user-agent: FooBot\n{rules}\n"), allowed, disallowed);
    }
    check("User-agent: *\nDisallow: /x/\nUser-agent: FooBot\nDisallow: /y/\n", &["/x/page"], &["/y/page"]);
}

#[test]
fn encoding() {
    for (rule, allowed) in [
        ("/foo/bar?qux=taz&baz=http://foo.bar?tar&par", "/foo/bar?qux=taz&baz=http://foo.bar?tar&par"),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%62%61%7A", "/foo/bar/%62%61%7A"),
    ] {
        check(&format!("User-agent: FooBot\nDisallow: /\nAllow: {rule}\n"), &[allowed], &[]);
    }
}

#[test]
fn special_characters() {
    for (rules, allowed, disallowed) in [
        (
            "Disallow: /foo/bar/quz\nAllow: /foo/*/qux",
            &["/foo/quz", "/foo//quz", "/foo/bax/quz"][..],
            &["/foo/bar/quz"][..],
        ),
        (
            "Disallow: /foo/bar$\nAllow: /foo/bar/qux",
            &["/foo/bar/qux", "/foo/bar/", "/foo/bar/baz"],
            &["/foo/bar"],
        ),
        ("# Disallow: /\nDisallow: /foo/quz#qux\nAllow: /", &["/foo/bar"], &["/foo/quz"]),
    ] {
        check(&format!("User-agent: FooBot\n{rules}\n"), allowed, disallowed);
    }
}

#[test]
fn index_pages() {
    let file = "User-Agent: *\nAllow: /allowed-slash/index.html\nDisallow: /\n";
    check(file, &["/allowed-slash/index.html"], &["/allowed-slash/index.htm", "/anyother-url"]);
}

#[test]
fn long_lines_are_cut() {
    let max = 2083 * 8;
    let path = |letter: &str, key: &str| format!("/x/{}", letter.repeat(max - 3 - key.len() + 1 - 3));
    let long = path("a", "disallow: ");
    check(&format!("user-agent: FooBot\ndisallow: {long}/qux\n"), &["/fux"], &[&format!("{long}/fux")]);
    let (a, b) = (path("a", "allow: "), path("b", "allow: "));
    check(
        &format!("user-agent: FooBot\ndisallow: /\nallow: {a}/qux\nallow: {b}/qux\n"),
        &[&format!("{a}/qux"), &format!("{b}/fux")],
        &["/"],
    );
}

#[test]
fn documentation() {
    let fish = [
        "/fish",
        "/fish.html",
        "/fish/salmon.html",
        "/fishheads",
        "/fishheads/yummy.html",
        "/fish.html?id=anything",
    ];
    let below = ["/fish/", "/fish/salmon", "/fish/?salmon", "/fish/salmon.html", "/fish/?id=anything"];
    let php = [
        "/filename.php",
        "/folder/filename.php",
        "/folder/filename.php?parameters",
        "//folder/any.php.file.html",
        "/filename.php/",
        "/index?f=filename.php/",
    ];
    let not_php = [
        "/bar",
        "/filename.php?parameters",
        "/filename.php/",
        "/filename.php5",
        "/php/",
        "/filename?php",
        "/aaaphpaaa",
        "//windows.PHP",
    ];
    for (pattern, allowed, disallowed) in [
        ("/fish", &fish[..], &["/bar", "/Fish.asp", "/catfish", "/?id=fish"][..]),
        ("/fish*", &fish, &["/bar", "/Fish.bar", "/catfish", "/?id=fish"]),
        ("/fish/", &below, &["/bar", "/fish", "/fish.html", "/Fish/Salmon.html"]),
        ("/*.php", &php, &["/bar", "/php/", "/index?php", "/windows.PHP"]),
        ("/*.php$", &php[..2], &not_php),
        ("/fish*.php", &["/fish.php", "/fishheads/catfish.php?parameters"], &["/bar", "/Fish.PHP"]),
    ] {
        check(&format!("user-agent: FooBot\ndisallow: /\nallow: {pattern}\n"), allowed, disallowed);
    }
    for (rules, allowed, disallowed) in [
        ("allow: /p\ndisallow: /", &["/page"][..], &[][..]),
        ("allow: /folder\ndisallow: /folder", &["/folder/page"], &[]),
        ("allow: /page\ndisallow: /*.htm", &[], &["/page.htm"]),
        ("allow: /$\ndisallow: /", &["/"], &["/page.html"]),
    ] {
        check(&format!("user-agent: FooBot\n{rules}\n"), allowed, disallowed);
    }
}

/// The original counts lines; here the rules have to come out the same.
#[test]
fn line_ends() {
    for file in [
        "User-Agent: foo\nAllow: /some/path\nUser-Agent: bar\n\n\nDisallow: /\n",
        "User-Agent: foo\r\nAllow: /some/path\r\nUser-Agent: bar\r\n\r\n\r\nDisallow: /\r\n",
        "User-Agent: foo\rAllow: /some/path\rUser-Agent: bar\r\r\rDisallow: /\r",
        "User-Agent: foo\nAllow: /some/path\nUser-Agent: bar\n\n\nDisallow: /",
        "User-Agent: foo\nAllow: /some/path\r\nUser-Agent: bar\n\r\n\nDisallow: /",
    ] {
        check_as("foo", file, &["/some/path", "/other"], &[]);
        check_as("bar", file, &[], &["/some/path", "/other"]);
    }
}

#[test]
fn byte_order_marks() {
    let counts = |start: &[u8], middle: &[u8]| {
        let file = [start, b"User-Agent: foo\n", middle, b"Disallow: /AnyValue\n"].concat();
        let url = Url::parse("http://foo.bar/AnyValue").unwrap();
        !RobotsRules::parse(&file, false, "foo").allows(&url)
    };
    assert!(counts(b"\xEF\xBB\xBF", b""));
    assert!(counts(b"\xEF\xBB", b""));
    assert!(counts(b"\xEF", b""));
    assert!(!counts(b"\xEF\x11\xBF", b""));
    assert!(!counts(b"", b"\xEF\xBB\xBF"));
}

#[test]
fn sitemaps() {
    let group = "User-Agent: foo\nAllow: /some/path\nUser-Agent: bar\n\n\n";
    let line = "Sitemap: http://foo.bar/sitemap.xml\n";
    for file in [format!("{group}{line}"), format!("{line}{group}")] {
        let rules = RobotsRules::parse(file.as_bytes(), false, "other");
        assert_eq!(rules.sitemaps()[0].as_str(), "http://foo.bar/sitemap.xml");
    }
}

/// Where the outcome is another than in the original, on purpose.
#[test]
fn deviations() {
    // Google alone reads `…/index.html` as `…/` too.
    check("User-Agent: *\nAllow: /allowed-slash/index.html\nDisallow: /\n", &[], &["/allowed-slash/"]);
    // A URL that is not percent-encoded does not match there; here it cannot exist, as the URL parser encodes it.
    check("User-agent: FooBot\nDisallow: /\nAllow: /foo/bar/ツ\n", &["/foo/bar/ツ"], &[]);
    check("User-agent: FooBot\nDisallow: /\nAllow: /foo/bar/%E3%83%84\n", &["/foo/bar/ツ"], &[]);
    // Escaped unreserved characters equal the plain ones (RFC 9309 section 2.2.2, RFC 3986 section 6.2.2.2).
    check("User-agent: FooBot\nDisallow: /\nAllow: /foo/bar/%62%61%7A\n", &["/foo/bar/baz"], &[]);
}

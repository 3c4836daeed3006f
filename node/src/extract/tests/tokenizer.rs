use proptest::prelude::*;

use super::oracle::{OracleTag, start_tags};
use crate::extract::char_ref::{Context, decode};
use crate::extract::element::{Element, ElementSet};
use crate::extract::tokenizer::{MAX_ATTRIBUTES, Syntax, Tokenizer};

/// Our start tags in the oracle's form. Text is filled in for titles only.
fn ours(text: &str, starts: ElementSet) -> Vec<OracleTag> {
    let mut tokenizer = Tokenizer::new(text, Syntax::Html, starts, ElementSet::default());
    let mut tags = Vec::new();
    while let Some(tag) = tokenizer.next_tag() {
        let mut attributes: Vec<(String, String)> = Vec::new();
        for attribute in tokenizer.attributes() {
            let name = attribute.name();
            if attributes.iter().all(|(known, _)| *known != name) {
                attributes.push((name, attribute.value().into_owned()));
            }
        }
        let name = tokenizer.name(tag);
        let text = match tag.element {
            Element::Title => decode(tokenizer.raw_text(), Context::Text).into_owned(),
            _ => String::new(),
        };
        tags.push(OracleTag { name, attributes, text });
    }
    tags
}

fn oracle(text: &str) -> Vec<OracleTag> {
    let mut tags = start_tags(text);
    for tag in &mut tags {
        if tag.name != "title" {
            tag.text.clear();
        }
    }
    tags
}

fn names(text: &str) -> Vec<String> {
    ours(text, ElementSet::ALL).into_iter().map(|tag| tag.name).collect()
}

#[track_caller]
fn check(text: &str) {
    assert_eq!(ours(text, ElementSet::ALL), oracle(text), "for {text:?}");
}

const FRAGMENTS: &[&str] = &[
    "<",
    ">",
    "/",
    "!",
    "-",
    "--",
    "=",
    "\"",
    "'",
    "&",
    ";",
    "#",
    " ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\x0c",
    "\0",
    "?",
    "]",
    "a",
    "A",
    "x",
    "ü",
    "\u{feff}",
    "1",
    "<a",
    "<A ",
    "<a href=",
    "<b/",
    "</",
    "</a>",
    "</a x='>'>",
    "</ >",
    "</>",
    "<3",
    "href",
    "href=x",
    " href = \"",
    " href='",
    "='",
    "=\"",
    "=>",
    "= >",
    "/>",
    " / >",
    "/=x",
    "\"x=",
    "HREF=1 href=2",
    "\0=\0",
    "é=é",
    "<!",
    "<!>",
    "<!->",
    "<!-->",
    "<!--->",
    "<!--",
    "-->",
    "--!>",
    "--!",
    "->",
    "<!--a--!>",
    "<!-- <!-- -->",
    "<!doctype html>",
    "<!DOCTYPE html PUBLIC \"a>b\">",
    "<![CDATA[",
    "]]>",
    "<?",
    "<?xml ?>",
    "<title>",
    "</title>",
    "</TITLE ",
    "</titlex>",
    "<textarea>",
    "</textarea/>",
    "<style>",
    "</style>",
    "<xmp>",
    "</xmp\n>",
    "<iframe src=a>",
    "</iframe>",
    "<noembed>",
    "</noembed>",
    "<noframes>",
    "</noframes x=\">\">",
    "<noscript>",
    "</noscript>",
    "<script>",
    "<script src='x'>",
    "</script>",
    "</script ",
    "</SCRIPT\t>",
    "</scrip>",
    "<scriptx>",
    "<script ",
    "script",
    "<plaintext>",
    "<plaintexts>",
    "&amp",
    "&amp;",
    "&AMP;",
    "&not",
    "&notit;",
    "&notin;",
    "&copy=",
    "&copy1",
    "&copy;",
    "&#65;",
    "&#x41",
    "&#x;",
    "&#",
    "&#0;",
    "&#128;",
    "&#x10FFFF;",
    "&#x110000;",
    "&#xD800;",
    "&#99999999999;",
    "&#13;\n",
    "&CounterClockwiseContourIntegral;",
    "&CounterClockwise",
    "&acE;",
    "&nosuch;",
    "<img src=x/>",
    "<img src=a>b>",
    "<title/>",
    "<script/>",
    "<svg>",
    "</svg>",
    "<image x>",
    "<noframesx>",
    "<textareas>",
    "=a=b=\"c>d\">",
    "a=\"b\"c='d'>",
];

fn html() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(FRAGMENTS), 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    /// The main proof: on any soup of tags, the start tags and attributes are html5ever's.
    #[test]
    fn start_tags_are_html5evers(text in html()) {
        prop_assert_eq!(ours(&text, ElementSet::ALL), oracle(&text));
    }

    /// Skipping what is not asked for changes nothing about what is.
    #[test]
    fn a_selection_is_a_filter(text in html()) {
        let selection = ElementSet::of(&[Element::A, Element::Img, Element::Title]);
        let mut expected = oracle(&text);
        expected.retain(|tag| matches!(tag.name.as_str(), "a" | "img" | "image" | "title"));
        prop_assert_eq!(ours(&text, selection), expected);
    }

    /// Inside a script, where the escapes are.
    #[test]
    fn script_data_ends_where_html5evers_does(
        parts in prop::collection::vec(
            prop::sample::select(&["<!--", "-->", "--", "-", ">", "<", "!", "/", "<script", "</script", "script", " ", "\0",
                "x", "<a>", "</x>", "<!-", "--!>", "</SCRIPT>", "<scripty>", "\r\n", "<script/", "</script/"][..]), 0..30),
    ) {
        let text = format!("<script>{}</script><p><a href=x>", parts.concat());
        prop_assert_eq!(ours(&text, ElementSet::ALL), oracle(&text));
    }

    #[test]
    fn references_decode_as_html5evers(
        parts in prop::collection::vec(
            prop::sample::select(&["&", "#", "x", "X", ";", "=", "amp", "lt", "not", "it", "in", "copy", "1", "0", "f", "80",
                "\r", "\n", "\0", "ü", "NotEqualTilde", "&GT", "&#x", "&#"][..]), 0..20),
    ) {
        let value = parts.concat();
        let text = format!("<a href=\"{value}\"><title>{value}</title>");
        prop_assert_eq!(ours(&text, ElementSet::ALL), oracle(&text));
    }

    #[test]
    fn any_text_at_all(text in any::<String>()) {
        prop_assert_eq!(ours(&text, ElementSet::ALL), oracle(&text));
    }
}

#[test]
fn comments_end_where_the_standard_says() {
    for (text, expected) in [
        ("<!--><a>", vec!["a"]),
        ("<!---><a>", vec!["a"]),
        ("<!----><a>", vec!["a"]),
        ("<!-- > <b> --><a>", vec!["a"]),
        ("<!-- --!><a>", vec!["a"]),
        ("<!-- -- ><b>--><a>", vec!["a"]),
        ("<!----!><a>", vec!["a"]),
        ("<!-- <!-- --><a>--><b>", vec!["a", "b"]),
        ("<!-- unclosed <a>", vec![]),
        ("<!-x><a>", vec!["a"]),
        ("<![CDATA[ <b> ]]><a>", vec!["a"]),
        ("<!DOCTYPE html PUBLIC \"x><b>\"><a>", vec!["b", "a"]),
        ("<?php echo '<b>' ?><a>", vec!["a"]),
    ] {
        assert_eq!(names(text), expected, "for {text:?}");
        check(text);
    }
}

#[test]
fn raw_content_holds_no_tags() {
    for (text, expected) in [
        ("<title><b></title><a>", vec!["title", "a"]),
        ("<textarea></textareas><b></TextArea ><a>", vec!["textarea", "a"]),
        ("<style><b></style x='>'><a>", vec!["style", "a"]),
        ("<script><b></script><a>", vec!["script", "a"]),
        ("<script><!-- <script> </script> <b> --> </script><a>", vec!["script", "a"]),
        ("<script><!-- </script><a>", vec!["script", "a"]),
        ("<script>if (a<b) { '<!--' }</script><a>", vec!["script", "a"]),
        ("<noscript><a></noscript>", vec!["noscript", "a"]),
        ("<plaintext><a></plaintext><a>", vec!["plaintext"]),
        ("<script>unclosed <a>", vec!["script"]),
        ("<iframe><a></iframe><b>", vec!["iframe", "b"]),
        ("<title>x</title", vec!["title"]),
    ] {
        assert_eq!(names(text), expected, "for {text:?}");
        check(text);
    }
}

#[test]
fn a_tag_cut_off_by_the_end_is_none() {
    for text in [
        "<",
        "<a",
        "<a ",
        "<a href",
        "<a href=",
        "<a href=x",
        "<a href='x",
        "<a href='x'",
        "<a /",
        "</",
        "</a",
        "<!",
        "<!-",
    ] {
        assert_eq!(names(text), Vec::<String>::new(), "for {text:?}");
        check(text);
    }
}

#[test]
fn xml_has_cdata_sections_and_elements_closed_at_once() {
    let text = "<script src='a'/><title/><![CDATA[ > <b> ]]><a>";
    let collect = |syntax| {
        let mut tokenizer = Tokenizer::new(text, syntax, ElementSet::ALL, ElementSet::default());
        let mut names = Vec::new();
        while let Some(tag) = tokenizer.next_tag() {
            names.push(tokenizer.name(tag));
        }
        names
    };
    assert_eq!(collect(Syntax::Xml), ["script", "title", "a"]);
    assert_eq!(collect(Syntax::Html), ["script"]);
}

#[test]
fn attributes_are_capped_and_flagged() {
    let mut text = String::from("<a ");
    for i in 0..50_000 {
        text.push_str(&format!("a{i}=x "));
    }
    text.push_str("><b>");
    let mut tokenizer = Tokenizer::new(&text, Syntax::Html, ElementSet::ALL, ElementSet::default());
    assert_eq!(tokenizer.next_tag().map(|tag| tag.element), Some(Element::A));
    assert_eq!(tokenizer.attributes().count(), MAX_ATTRIBUTES);
    assert!(tokenizer.attributes_capped());
    assert_eq!(tokenizer.next_tag().map(|tag| tag.element), Some(Element::Other));
}

/// Time of one pass, the least of a few.
fn cost(text: &str) -> std::time::Duration {
    (0..5)
        .map(|_| {
            let begun = std::time::Instant::now();
            std::hint::black_box(ours(text, ElementSet::of(&[Element::A, Element::Title])));
            begun.elapsed()
        })
        .min()
        .unwrap_or_default()
}

/// Sixteen times the input may cost sixteen times as much, not 256 times: the bound lies between with room
/// for noise.
#[test]
fn cost_is_linear_on_hostile_input() {
    for unit in [
        "<",
        "<a",
        "<a ",
        "</",
        "<!",
        "<!--",
        "<!-",
        "<!-->",
        "<!--<!--",
        "-->",
        "<?",
        "<script>",
        "<script><!--<script>",
        "<script></script",
        "<title>",
        "<title></titl",
        "<a href='",
        "<a href=\"",
        "&",
        "<a b=&amp",
        "<div>",
        "<ul><li>",
        "a=",
        "<svg>",
        "<a =",
        "<![CDATA[",
        "]]>",
        "<textarea></",
        "<style><",
    ] {
        let small = unit.repeat(64 * 1024 / unit.len());
        let large = small.repeat(16);
        let (small, large) = (cost(&small), cost(&large));
        let floor = std::time::Duration::from_micros(200);
        assert!(large < small.max(floor) * 80, "{unit:?}: {small:?} for 64 KiB, {large:?} for 1 MiB");
    }
}

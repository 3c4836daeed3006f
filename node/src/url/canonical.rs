//! One spelling per URL: the WHATWG parser, then a short ordered list of rewrites. Idempotent, so a URL that comes
//! back over any number of hops does not grow or change. Not here: resolving against a page's base (the link scanner
//! does that with [`join`]) and anything that needs the network (`www.`, http against https, index pages).
//!
//! What the parser does (URL Standard): scheme and host in lower case, IDNA by UTS 46 non-transitional, IPv4 in any
//! spelling, default port dropped, dot segments resolved, `\` as `/`, tab and newline removed, non-ASCII and unsafe
//! characters percent-encoded. Then, in this order:
//!
//! 1. the fragment is dropped;
//! 2. user name and password are dropped;
//! 3. one trailing dot of the host is dropped (`example.com.` is the same name);
//! 4. percent-encoding (RFC 3986 section 6.2.2): hex digits in upper case, unreserved characters decoded, everything
//!    else kept encoded (`%2F` is not `/`), a `%` that begins no escape becomes `%25`;
//! 5. session ids are dropped ([`CanonicalRules::strip_session_ids`]);
//! 6. tracking parameters are dropped ([`CanonicalRules::strip_tracking`]);
//! 7. the query is sorted by parameter ([`CanonicalRules::sort_query`], off by default: order can matter);
//! 8. an empty query loses its `?`;
//! 9. dot segments that came up in step 4 or 5 are resolved;
//! 10. what is longer than [`CanonicalRules::max_bytes`] is refused.

use memchr::{memchr, memchr3_iter};
use url::{Position, Url};

/// Which of the optional rewrites are done, and the length limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalRules {
    /// Drops `;jsessionid=…` from the path, and from the query `PHPSESSID`, `jsessionid`, `ASPSESSIONID…`, and `sid`,
    /// `sessid`, `sessionid`, `session_id` where the value is 32 or more hex digits.
    pub strip_session_ids: bool,
    /// Drops parameters that only tell the site where a visitor came from: `utm_…`, `gclid`, `fbclid` and their like.
    pub strip_tracking: bool,
    /// Sorts the parameters of the query by their bytes.
    pub sort_query: bool,
    /// The longest canonical URL, in bytes. A raw URL may be four times as long.
    pub max_bytes: usize,
}

impl Default for CanonicalRules {
    fn default() -> Self {
        Self { strip_session_ids: true, strip_tracking: true, sort_query: false, max_bytes: 4096 }
    }
}

/// Why a URL has no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// The URL Standard's parser refuses it.
    #[error("`{url}` is not a URL: {why}")]
    Parse {
        /// Its beginning.
        url: String,
        /// The parser's reason.
        why: url::ParseError,
    },
    /// Neither http nor https.
    #[error("`{url}` has the scheme `{scheme}`, but only http and https can be crawled")]
    Scheme {
        /// Its beginning.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// The host name has an empty label at its end.
    #[error("the host name of `{url}` ends in more than one dot")]
    Host {
        /// Its beginning.
        url: String,
    },
    /// Over the length limit.
    #[error("`{url}` has {bytes} bytes, which is over the limit of {limit}")]
    TooLong {
        /// Its beginning.
        url: String,
        /// Its length.
        bytes: usize,
        /// The limit that it exceeds.
        limit: usize,
    },
}

/// Characters of a URL shown in errors.
const SHOWN_CHARS: usize = 120;

/// How many times [`CanonicalRules::max_bytes`] a URL may measure before parsing.
const RAW_LENGTH_FACTOR: usize = 4;

fn shown(url: &str) -> String {
    match url.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &url[..end]),
        None => url.to_owned(),
    }
}

/// Parses an absolute URL into its canonical form.
pub fn parse(text: &str, rules: &CanonicalRules) -> Result<Url, CanonicalError> {
    check_length(text, rules.max_bytes.saturating_mul(RAW_LENGTH_FACTOR))?;
    let url = Url::parse(text).map_err(|why| CanonicalError::Parse { url: shown(text), why })?;
    canonicalize(url, rules)
}

/// Resolves a reference (the value of an `href`, a `Location`) against `base`, into its canonical form.
pub fn join(base: &Url, reference: &str, rules: &CanonicalRules) -> Result<Url, CanonicalError> {
    check_length(reference, rules.max_bytes.saturating_mul(RAW_LENGTH_FACTOR))?;
    let url = base.join(reference).map_err(|why| CanonicalError::Parse { url: shown(reference), why })?;
    canonicalize(url, rules)
}

/// Brings a parsed URL into its canonical form. One that is canonical already (most are) is handed back as it is,
/// after one pass over its bytes.
pub fn canonicalize(mut url: Url, rules: &CanonicalRules) -> Result<Url, CanonicalError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(CanonicalError::Scheme { url: shown(url.as_str()), scheme: url.scheme().to_owned() });
    }
    if url.fragment().is_some() {
        url.set_fragment(None);
    }
    if !url.username().is_empty() || url.password().is_some() {
        // Neither can fail on an http URL, which always has a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
    }
    if let Some(host) = url.host_str().and_then(|host| host.strip_suffix('.')) {
        if host.is_empty() || host.ends_with('.') {
            return Err(CanonicalError::Host { url: shown(url.as_str()) });
        }
        let host = host.to_owned();
        url.set_host(Some(&host)).map_err(|why| CanonicalError::Parse { url: shown(url.as_str()), why })?;
    }
    if let Some(tail) = rewrite(&url[Position::BeforePath..Position::AfterQuery], rules) {
        let text = format!("{}{tail}", &url[..Position::BeforePath]);
        url = Url::parse(&text).map_err(|why| CanonicalError::Parse { url: shown(&text), why })?;
    }
    check_length(url.as_str(), rules.max_bytes)?;
    Ok(url)
}

fn check_length(text: &str, limit: usize) -> Result<(), CanonicalError> {
    if text.len() <= limit {
        return Ok(());
    }
    Err(CanonicalError::TooLong { url: shown(text), bytes: text.len(), limit })
}

/// Rewrites path and query; `None` where nothing changes.
fn rewrite(tail: &str, rules: &CanonicalRules) -> Option<String> {
    if is_canonical(tail, rules) {
        return None;
    }
    let (path, query) = match tail.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (tail, None),
    };
    let mut out = String::with_capacity(tail.len() + 16);
    push_normal_escapes(path, &mut out);
    if rules.strip_session_ids && out.contains(';') {
        out = without_session_parameters(&out);
    }
    if let Some(query) = query {
        let mut normal = String::with_capacity(query.len() + 16);
        push_normal_escapes(query, &mut normal);
        let mut kept: Vec<&str> =
            normal.split('&').filter(|parameter| !is_dropped(parameter, rules)).collect();
        if rules.sort_query {
            kept.sort_unstable();
        }
        if kept.iter().any(|parameter| !parameter.is_empty()) {
            for (place, parameter) in kept.iter().enumerate() {
                out.push(if place == 0 { '?' } else { '&' });
                out.push_str(parameter);
            }
        }
    }
    (out != tail).then_some(out)
}

/// One pass that finds out whether [`rewrite`] has anything to do. May say no for nothing, never yes for nothing.
fn is_canonical(tail: &str, rules: &CanonicalRules) -> bool {
    let bytes = tail.as_bytes();
    let mut in_query = false;
    for at in memchr3_iter(b'%', b'?', b';', bytes) {
        match bytes[at] {
            b'%' => match escape(&bytes[at..]) {
                Some((byte, upper)) if upper && !is_unreserved(byte) => {}
                _ => return false,
            },
            b'?' if !in_query => {
                in_query = true;
                let query = &tail[at + 1..];
                if query.is_empty() || rules.sort_query {
                    return false;
                }
                let strips = rules.strip_session_ids || rules.strip_tracking;
                if query.starts_with('&') || strips && query.split('&').any(|text| is_dropped(text, rules)) {
                    return false;
                }
            }
            b';' if !in_query && rules.strip_session_ids && is_session_parameter(&tail[at + 1..]) => {
                return false;
            }
            _ => {}
        }
    }
    true
}

/// The byte that the escape at the start of `bytes` stands for, and whether its digits are in upper case.
fn escape(bytes: &[u8]) -> Option<(u8, bool)> {
    let [b'%', high, low, ..] = *bytes else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let byte = digit(high)? << 4 | digit(low)?;
    Some((byte, !high.is_ascii_lowercase() && !low.is_ascii_lowercase()))
}

/// RFC 3986 section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn push_normal_escapes(mut text: &str, out: &mut String) {
    while let Some(at) = memchr(b'%', text.as_bytes()) {
        out.push_str(&text[..at]);
        text = &text[at..];
        match escape(text.as_bytes()) {
            Some((byte, _)) => {
                if is_unreserved(byte) {
                    out.push(char::from(byte));
                } else {
                    out.extend(text[..3].chars().map(|digit| digit.to_ascii_uppercase()));
                }
                text = &text[3..];
            }
            None => {
                out.push_str("%25");
                text = &text[1..];
            }
        }
    }
    out.push_str(text);
}

/// Whether `text`, which follows a `;` of a path, begins with a session parameter.
fn is_session_parameter(text: &str) -> bool {
    text.as_bytes().get(..11).is_some_and(|name| name.eq_ignore_ascii_case(b"jsessionid="))
}

fn without_session_parameters(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for (place, segment) in path.split('/').enumerate() {
        if place > 0 {
            out.push('/');
        }
        for (place, parameter) in segment.split(';').enumerate() {
            if place == 0 {
                out.push_str(parameter);
            } else if !is_session_parameter(parameter) {
                out.push(';');
                out.push_str(parameter);
            }
        }
    }
    out
}

/// Whether a parameter of the query is one that the rules drop.
fn is_dropped(parameter: &str, rules: &CanonicalRules) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    let (name, value) = (name.as_bytes(), value.as_bytes());
    rules.strip_tracking && is_tracking(name) || rules.strip_session_ids && is_session(name, value)
}

fn starts_with_ignoring_case(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Click and campaign identifiers of advertisers, mailers and social networks.
fn is_tracking(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 17] = [
        b"gclid",
        b"fbclid",
        b"dclid",
        b"gbraid",
        b"wbraid",
        b"msclkid",
        b"yclid",
        b"ttclid",
        b"twclid",
        b"li_fat_id",
        b"igshid",
        b"mc_cid",
        b"mc_eid",
        b"_ga",
        b"_gl",
        b"gclsrc",
        b"srsltid",
    ];
    starts_with_ignoring_case(name, b"utm_") || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn is_session(name: &[u8], value: &[u8]) -> bool {
    const ALWAYS: [&[u8]; 2] = [b"phpsessid", b"jsessionid"];
    const WITH_TOKEN: [&[u8]; 4] = [b"sid", b"sessid", b"sessionid", b"session_id"];
    ALWAYS.iter().any(|known| name.eq_ignore_ascii_case(known))
        || starts_with_ignoring_case(name, b"aspsessionid")
        || value.len() >= 32
            && value.iter().all(u8::is_ascii_hexdigit)
            && WITH_TOKEN.iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> String {
        parse(text, &CanonicalRules::default()).unwrap().into()
    }

    #[test]
    fn rewrites() {
        let hex = "0123456789abcdef0123456789ABCDEF";
        for (raw, expected) in [
            ("http://Example.COM", "http://example.com/"),
            ("HTTP://example.com:80/a", "http://example.com/a"),
            ("https://example.com:443/", "https://example.com/"),
            ("http://example.com:443/", "http://example.com:443/"),
            ("http://example.com/a#b", "http://example.com/a"),
            ("http://example.com/#", "http://example.com/"),
            ("http://me:secret@example.com/", "http://example.com/"),
            ("http://:secret@example.com/", "http://example.com/"),
            ("http://example.com./", "http://example.com/"),
            ("http://example.com.:8080/", "http://example.com:8080/"),
            ("http://example.com/?", "http://example.com/"),
            ("http://example.com/?#x", "http://example.com/"),
            ("http://example.com/a/./b/../c", "http://example.com/a/c"),
            (r"http:\\example.com\a", "http://example.com/a"),
            ("http://example.com/\ta\nb", "http://example.com/ab"),
            // Percent-encoding: case 4 of the crawler cases.
            ("http://example.com/%7Euser", "http://example.com/~user"),
            ("http://example.com/%2f", "http://example.com/%2F"),
            ("http://example.com/%zz", "http://example.com/%25zz"),
            ("http://example.com/a%", "http://example.com/a%25"),
            ("http://example.com/%%41", "http://example.com/%25A"),
            ("http://example.com/%25%34%31", "http://example.com/%2541"),
            ("http://example.com/a b", "http://example.com/a%20b"),
            ("http://example.com/ü", "http://example.com/%C3%BC"),
            ("http://example.com/%c3%bc", "http://example.com/%C3%BC"),
            ("http://example.com/%25252525", "http://example.com/%25252525"),
            ("http://example.com/?q=%7e%2f%", "http://example.com/?q=~%2F%25"),
            ("http://example.com/%2e%2E/x", "http://example.com/x"),
            // Hosts: case 5.
            ("http://BÜCHER.example/", "http://xn--bcher-kva.example/"),
            ("http://xn--bcher-kva.example/", "http://xn--bcher-kva.example/"),
            ("http://faß.de/", "http://xn--fa-hia.de/"),
            ("http://_dmarc.x.test/", "http://_dmarc.x.test/"),
            ("http://0x7f.1/", "http://127.0.0.1/"),
            ("http://[::0001]/", "http://[::1]/"),
            // Session ids and tracking.
            ("http://example.com/a;jsessionid=1A2B?x=1", "http://example.com/a?x=1"),
            ("http://example.com/a;JSESSIONID=1;v=2/b", "http://example.com/a;v=2/b"),
            ("http://example.com/a/..;jsessionid=1", "http://example.com/"),
            ("http://example.com/;jsessioni%64=1", "http://example.com/"),
            ("http://example.com/?PHPSESSID=abc", "http://example.com/"),
            (&format!("http://example.com/?sid={hex}&a=1"), "http://example.com/?a=1"),
            ("http://example.com/?sid=42", "http://example.com/?sid=42"),
            ("http://example.com/?a=1&utm_source=x&b=2&fbclid=y", "http://example.com/?a=1&b=2"),
            ("http://example.com/?UTM_medium=x", "http://example.com/"),
            ("http://example.com/?utm=x&b=2&a=1", "http://example.com/?utm=x&b=2&a=1"),
        ] {
            assert_eq!(canonical(raw), expected, "{raw}");
            assert_eq!(canonical(expected), expected, "{expected} is not stable");
        }
    }

    #[test]
    fn rules_can_be_chosen() {
        let keep =
            CanonicalRules { strip_session_ids: false, strip_tracking: false, ..CanonicalRules::default() };
        let text = "http://example.com/a;jsessionid=1?PHPSESSID=2&utm_source=3";
        assert_eq!(parse(text, &keep).unwrap().as_str(), text);
        let sorted = CanonicalRules { sort_query: true, ..CanonicalRules::default() };
        assert_eq!(
            parse("http://a.test/?b=2&a=1&a=0", &sorted).unwrap().as_str(),
            "http://a.test/?a=0&a=1&b=2"
        );
    }

    #[test]
    fn refusals_name_their_cause() {
        let rules = CanonicalRules::default();
        let error = |text: &str| parse(text, &rules).unwrap_err();
        assert!(
            matches!(error("mailto:me@example.com"), CanonicalError::Scheme { scheme, .. } if scheme == "mailto")
        );
        assert!(matches!(error("file:///etc/passwd"), CanonicalError::Scheme { .. }));
        assert!(matches!(error("http://[bad"), CanonicalError::Parse { .. }));
        assert!(matches!(error("/relative"), CanonicalError::Parse { .. }));
        assert!(matches!(error("http://a../"), CanonicalError::Host { .. }));
        assert!(matches!(error("http://./"), CanonicalError::Host { .. } | CanonicalError::Parse { .. }));
        let long = format!("http://a.test/{}", "x".repeat(4096));
        assert!(matches!(error(&long), CanonicalError::TooLong { limit: 4096, .. }));
        assert!(matches!(error(&"x".repeat(20_000)), CanonicalError::TooLong { limit: 16_384, .. }));
        assert!(error(&long).to_string().len() < 300);
        let dropped = format!("http://a.test/#{}", "x".repeat(8000));
        assert_eq!(canonical(&dropped), "http://a.test/");
    }

    #[test]
    fn references_resolve_as_in_browsers() {
        let base = Url::parse("https://a.test/x/y?z").unwrap();
        for (reference, expected) in [
            ("//cdn.test/x", "https://cdn.test/x"),
            (" \n/p\t ", "https://a.test/p"),
            (r"\\host\p", "https://host/p"),
            ("?q", "https://a.test/x/y?q"),
            ("", "https://a.test/x/y?z"),
            ("#top", "https://a.test/x/y?z"),
        ] {
            let url = join(&base, reference, &CanonicalRules::default()).unwrap();
            assert_eq!(url.as_str(), expected, "{reference:?}");
        }
    }

    /// Pieces that the rewrites care about, strung together.
    fn tail() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("%".to_owned()),
            Just("/".to_owned()),
            Just("..".to_owned()),
            Just("?".to_owned()),
            Just("&".to_owned()),
            Just(";".to_owned()),
            Just(";jsessionid=".to_owned()),
            Just("utm_a=1".to_owned()),
            Just("PHPSESSID=x".to_owned()),
            Just("#".to_owned()),
            Just("%25".to_owned()),
            "%[0-9a-fA-F]{2}",
            "[a-z=.%ü\\\\]{1,4}",
        ];
        prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn canonical_is_idempotent(tail in tail(), sort_query: bool, strip: bool) {
            let rules = CanonicalRules { sort_query, strip_session_ids: strip, strip_tracking: strip, max_bytes: 4096 };
            let once = parse(&format!("http://a.test/{tail}"), &rules).unwrap();
            let again = canonicalize(once.clone(), &rules).unwrap();
            prop_assert_eq!(&again, &once);
            prop_assert_eq!(parse(once.as_str(), &rules).unwrap(), once);
        }

        #[test]
        fn any_text_parses_or_is_refused(text in "\\PC{0,64}", host in "[a-z0-9.%ß_-]{1,12}") {
            let rules = CanonicalRules::default();
            for text in [text.clone(), format!("http://{host}/{text}")] {
                if let Ok(url) = parse(&text, &rules) {
                    prop_assert_eq!(parse(url.as_str(), &rules).unwrap(), url);
                }
            }
        }
    }
}

//! The `Link` header field. Targets are given as written; they resolve against the URL of the response, not
//! against the page's `<base>`.
//!
//! Source: RFC 8288 section 3 and appendix B.2.

/// Links of one field value that are looked at.
pub const MAX_LINKS: usize = 256;

/// One link of the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderLink<'a> {
    /// Between `<` and `>`.
    pub target: &'a str,
    /// The first `rel` parameter: relation types separated by spaces, as written. Empty without one.
    pub rel: String,
    /// Whether the link has an `anchor`: then it is about another resource, and is no link of this page.
    pub anchored: bool,
}

impl HeaderLink<'_> {
    /// Whether the link is about this page and has this relation type, in any case.
    pub fn is(&self, rel: &str) -> bool {
        !self.anchored && self.rel.split_ascii_whitespace().any(|token| token.eq_ignore_ascii_case(rel))
    }
}

/// Parses one field value. Several fields are parsed one by one. Reading stops at what is not a link.
pub fn parse(value: &str) -> Vec<HeaderLink<'_>> {
    let mut links = Vec::new();
    let mut rest = value;
    while links.len() < MAX_LINKS {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        let Some((target, after)) = rest.strip_prefix('<').and_then(|inner| inner.split_once('>')) else {
            break;
        };
        let mut link = HeaderLink { target: target.trim(), rel: String::new(), anchored: false };
        let mut has_rel = false;
        rest = after.trim_start();
        while let Some(parameter) = rest.strip_prefix(';') {
            let parameter = parameter.trim_start();
            let name_end = parameter.find(['=', ';', ',', ' ', '\t']).unwrap_or(parameter.len());
            let (name, after) = parameter.split_at(name_end);
            let (text, after) = match after.trim_start().strip_prefix('=') {
                Some(after) => parameter_value(after.trim_start()),
                None => (String::new(), after),
            };
            if name.eq_ignore_ascii_case("rel") && !has_rel {
                has_rel = true;
                link.rel = text;
            } else if name.eq_ignore_ascii_case("anchor") {
                link.anchored = true;
            }
            rest = after.trim_start();
        }
        links.push(link);
        // Junk up to the next comma costs only itself.
        rest = rest.find(',').map_or("", |comma| &rest[comma..]);
    }
    links
}

/// A quoted string or a token, and what follows it.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(inner) = text.strip_prefix('"') else {
        let end = text.find([';', ',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &inner[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => value.push(c),
        }
    }
    (value, "")
}

//! The value of `<meta http-equiv=refresh>` and of a `Refresh` header. It says where a page wants to go; it
//! does not go there.
//!
//! Source: WHATWG HTML, "shared declarative refresh steps".

/// Parses `5; url='/n'`: the delay in whole seconds and the URL as written. A bare number has no URL and
/// reloads the page. `None` when the value is not a refresh at all. A delay beyond `u32` is the largest
/// `u32`.
pub fn parse(value: &str) -> Option<(u32, Option<&str>)> {
    let rest = value.trim_start_matches(is_space);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 && !rest.starts_with('.') {
        return None;
    }
    let delay = rest[..digits]
        .bytes()
        .fold(0u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    let rest = rest[digits..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    if rest.is_empty() {
        return Some((delay, None));
    }
    // The number must end in a separator or white space.
    let trimmed = rest.trim_start_matches(is_space);
    if trimmed.len() == rest.len() && !rest.starts_with([';', ',']) {
        return None;
    }
    let target = trimmed.strip_prefix([';', ',']).unwrap_or(trimmed).trim_start_matches(is_space);
    if target.is_empty() {
        return Some((delay, None));
    }
    let target = after_url_equals(target).unwrap_or(target);
    let target = match target.chars().next() {
        Some(quote @ ('"' | '\'')) => target[1..].split(quote).next().unwrap_or_default(),
        _ => target,
    };
    Some((delay, Some(target)))
}

/// What follows a leading `url =`, in any case and spacing.
fn after_url_equals(target: &str) -> Option<&str> {
    let head = target.get(..3)?;
    let rest = head.eq_ignore_ascii_case("url").then(|| target[3..].trim_start_matches(is_space))?;
    rest.strip_prefix('=').map(|rest| rest.trim_start_matches(is_space))
}

fn is_space(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ')
}

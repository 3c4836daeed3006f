//! The URLs of a `srcset` attribute. Which of them a browser would pick is not decided here.
//!
//! Source: WHATWG HTML, "parse a srcset attribute".

/// The candidates' URLs, in order, as written. A comma inside a URL belongs to it, one at its end does not; a
/// comma inside parentheses of a descriptor separates nothing. Candidates whose descriptors are wrong are
/// left out, as browsers do.
pub fn urls(value: &str) -> impl Iterator<Item = &str> {
    let mut rest = value;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches(|c| is_space(c) || c == ',');
            if rest.is_empty() {
                return None;
            }
            let (url, after) = rest.split_at(rest.find(is_space).unwrap_or(rest.len()));
            let bare = url.trim_end_matches(',');
            if bare.len() < url.len() {
                rest = after;
                return Some(bare);
            }
            let end = descriptors_end(after);
            let descriptors = &after[..end];
            rest = &after[end..];
            if descriptors_are_valid(descriptors) {
                return Some(url);
            }
        }
    })
}

/// Where the descriptors end: at the first comma outside parentheses, or with the input.
fn descriptors_end(text: &str) -> usize {
    let mut in_parentheses = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => in_parentheses = true,
            b')' => in_parentheses = false,
            b',' if !in_parentheses => return at,
            _ => {}
        }
    }
    text.len()
}

/// At most one width or one density, and a height only beside a width.
fn descriptors_are_valid(text: &str) -> bool {
    let (mut width, mut density, mut height) = (false, false, false);
    for descriptor in text.split(is_space).filter(|d| !d.is_empty()) {
        let Some((last, unit)) = descriptor.char_indices().next_back() else { return false };
        let number = &descriptor[..last];
        let whole = || {
            !number.is_empty()
                && number.bytes().all(|b| b.is_ascii_digit())
                && !number.trim_start_matches('0').is_empty()
        };
        match unit {
            'w' if whole() && !width && !density => width = true,
            'x' if is_float(number) && !width && !density && !height => density = true,
            'h' if whole() && !height && !density => height = true,
            _ => return false,
        }
    }
    !height || width
}

/// A valid, not negative floating-point number of HTML.
fn is_float(number: &str) -> bool {
    number.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && !number.starts_with('+')
        && !number.ends_with('.')
        && number.parse::<f64>().is_ok_and(|n| n >= 0.0)
}

fn is_space(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ')
}

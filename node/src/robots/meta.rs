//! Wishes about one page: `X-Robots-Tag` headers and `<meta name="robots">`. Not links' own `rel=nofollow`, which the
//! link scanner sees. The grammar is that of Google's "Robots meta tag, data-nosnippet, and X-Robots-Tag" page, there
//! being no standard.

/// What a page asks of crawlers. Everything is allowed by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MetaRobots {
    /// Keep the page out of indexes (`noindex`, `none`).
    pub noindex: bool,
    /// Follow none of its links (`nofollow`, `none`).
    pub nofollow: bool,
    /// Show no copy of it (`noarchive`).
    pub noarchive: bool,
    /// From this moment on, in seconds since 1970, as `noindex` (`unavailable_after`).
    pub unavailable_after: Option<u64>,
}

/// Directives with a value behind a colon. Their names begin no agent's scope.
const VALUED: [&str; 4] = ["unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"];

impl MetaRobots {
    /// Reads the `content` of a meta element that is meant for us ([`is_for`]).
    pub fn from_content(content: &str) -> Self {
        let mut wishes = Self::default();
        let mut rest = content;
        while !rest.is_empty() {
            rest = wishes.take_directive(rest);
        }
        wishes
    }

    /// Reads all `X-Robots-Tag` headers of a response. A value, or a part of it, that begins with another agent's name
    /// is not for the crawler with the product token `token`.
    pub fn from_headers<'a>(values: impl IntoIterator<Item = &'a str>, token: &str) -> Self {
        let mut wishes = Self::default();
        for value in values {
            let (mut rest, mut for_us) = (value, true);
            while !rest.is_empty() {
                if let Some((agent, behind)) = scope(rest) {
                    for_us = agent == "*" || agent.eq_ignore_ascii_case(token);
                    rest = behind;
                }
                let mut read = Self::default();
                rest = read.take_directive(rest);
                if for_us {
                    wishes = wishes.merge(read);
                }
            }
        }
        wishes
    }

    /// Both wishes together: the stricter one of each.
    pub fn merge(self, other: Self) -> Self {
        Self {
            noindex: self.noindex || other.noindex,
            nofollow: self.nofollow || other.nofollow,
            noarchive: self.noarchive || other.noarchive,
            unavailable_after: match (self.unavailable_after, other.unavailable_after) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            },
        }
    }

    /// Whether the page is to be kept out of indexes at `now`, in seconds since 1970.
    pub fn is_noindex_at(&self, now: u64) -> bool {
        self.noindex || self.unavailable_after.is_some_and(|end| end <= now)
    }

    /// Reads one directive and returns what follows its comma.
    fn take_directive<'a>(&mut self, text: &'a str) -> &'a str {
        let (directive, rest) = text.split_once(',').unwrap_or((text, ""));
        let directive = directive.trim();
        match directive.to_ascii_lowercase().as_str() {
            "noindex" => self.noindex = true,
            "nofollow" => self.nofollow = true,
            "noarchive" => self.noarchive = true,
            "none" => (self.noindex, self.nofollow) = (true, true),
            _ => {
                let is_end = |(name, _): &(&str, &str)| name.trim().eq_ignore_ascii_case(VALUED[0]);
                if let Some((_, value)) = directive.split_once(':').filter(is_end) {
                    return self.take_end(value.trim(), rest);
                }
            }
        }
        rest
    }

    /// Reads the date `value`; an HTTP date has a comma behind its day of the week, so it may go on in `rest`.
    fn take_end<'a>(&mut self, value: &str, rest: &'a str) -> &'a str {
        if value.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            let (date, behind) = rest.split_once(',').unwrap_or((rest, ""));
            if let Some(end) = date::parse(date.trim()) {
                self.unavailable_after = Some(end);
                return behind;
            }
            return rest;
        }
        self.unavailable_after = date::parse(value).or(self.unavailable_after);
        rest
    }
}

/// Whether a meta element of this `name` is for the crawler with the product token `token`.
pub fn is_for(name: &str, token: &str) -> bool {
    let name = name.trim();
    name.eq_ignore_ascii_case("robots") || !token.is_empty() && name.eq_ignore_ascii_case(token)
}

/// The agent that the text is addressed to, and what follows.
fn scope(text: &str) -> Option<(&str, &str)> {
    let (agent, behind) = text.split_once(':')?;
    let agent = agent.trim();
    let is_name = !agent.is_empty() && !agent.contains([',', ' ']);
    let is_valued = VALUED.iter().any(|name| agent.eq_ignore_ascii_case(name));
    (is_name && !is_valued).then_some((agent, behind))
}

/// Dates as they occur in `unavailable_after`: `2025-12-31`, `2025-12-31T10:00:00Z`, `25 Jun 2010 15:00:00 GMT`,
/// `25-Jun-2010 15:00:00 PST`. The zone is not looked at beyond UTC: at most half a day off.
mod date {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

    pub(super) fn parse(text: &str) -> Option<u64> {
        let mut parts = text.split([' ', 'T', 't']).filter(|part| !part.is_empty());
        let first = parts.next()?;
        let (year, month, day) = if first.contains('-') {
            let mut pieces = first.splitn(3, '-');
            let (one, month, three) = (pieces.next()?, month(pieces.next()?)?, pieces.next()?);
            if one.len() == 4 {
                (number(one)?, month, number(three)?)
            } else {
                (number(three)?, month, number(one)?)
            }
        } else {
            let (day, month) = (number(first)?, month(parts.next()?)?);
            (number(parts.next()?)?, month, day)
        };
        if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) {
            return None;
        }
        let seconds = parts.next().map_or(Some(0), time)?;
        Some(days(year, month, day) * 86_400 + seconds)
    }

    fn number(text: &str) -> Option<u64> {
        let digits = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    }

    fn month(text: &str) -> Option<u64> {
        let named = |name: &&str| text.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(name));
        match MONTHS.iter().position(|name| named(name)) {
            Some(place) => u64::try_from(place + 1).ok(),
            None => number(text).filter(|month| (1..=12).contains(month)),
        }
    }

    /// `15:00:00`, with anything behind that is no digit.
    fn time(text: &str) -> Option<u64> {
        let end = text.bytes().position(|byte| !byte.is_ascii_digit() && byte != b':').unwrap_or(text.len());
        let mut seconds = 0;
        for (piece, unit) in text[..end].split(':').zip([3600, 60, 1]) {
            seconds += number(piece)?.min(60) * unit;
        }
        Some(seconds)
    }

    /// Days from 1970-01-01 in the Gregorian calendar, counting years from March so that the leap day comes last.
    fn days(year: u64, month: u64, day: u64) -> u64 {
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let leap_days = year / 4 - year / 100 + year / 400;
        year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wishes(noindex: bool, nofollow: bool, noarchive: bool) -> MetaRobots {
        MetaRobots { noindex, nofollow, noarchive, unavailable_after: None }
    }

    /// Case 7 of the crawler cases.
    #[test]
    fn contents() {
        for (content, expected) in [
            ("NoFollow, NoArchive", wishes(false, true, true)),
            ("noindex,nofollow", wishes(true, true, false)),
            (" NONE ", wishes(true, true, false)),
            ("all", wishes(false, false, false)),
            ("index, follow, max-snippet:20, noarchive", wishes(false, false, true)),
            ("", wishes(false, false, false)),
            (",,noindex,", wishes(true, false, false)),
            ("noindexing", wishes(false, false, false)),
        ] {
            assert_eq!(MetaRobots::from_content(content), expected, "{content:?}");
        }
        assert!(is_for("ROBOTS", "dolomedes") && is_for(" Dolomedes", "dolomedes"));
        assert!(!is_for("googlebot", "dolomedes") && !is_for("", ""));
    }

    #[test]
    fn headers() {
        for (values, expected) in [
            (&["noindex"][..], wishes(true, false, false)),
            (&["otherbot: nofollow"], wishes(false, false, false)),
            (&["otherbot: noindex, nofollow"], wishes(false, false, false)),
            (&["Dolomedes: nofollow"], wishes(false, true, false)),
            (&["*: none"], wishes(true, true, false)),
            (&["noarchive", "otherbot: none", "dolomedes: noindex"], wishes(true, false, true)),
            (&["noarchive, otherbot: none, dolomedes: noindex"], wishes(true, false, true)),
            (&["max-image-preview: large, nofollow"], wishes(false, true, false)),
        ] {
            assert_eq!(MetaRobots::from_headers(values.iter().copied(), "dolomedes"), expected, "{values:?}");
        }
    }

    #[test]
    fn pages_run_out() {
        for (value, seconds) in [
            ("unavailable_after: 25 Jun 2010 15:00:00 PST", Some(1_277_478_000)),
            ("unavailable_after: 25-Jun-2010 15:00:00", Some(1_277_478_000)),
            ("unavailable_after: Friday, 25 Jun 2010 15:00:00 GMT, noindex", Some(1_277_478_000)),
            ("unavailable_after: 2010-06-25T15:00:00+00:00", Some(1_277_478_000)),
            ("unavailable_after: 2010-06-25", Some(1_277_424_000)),
            ("unavailable_after: 1970-01-01", Some(0)),
            ("unavailable_after: 29 Feb 2024", Some(1_709_164_800)),
            ("unavailable_after: soon", None),
            ("unavailable_after: 99 Foo 2010", None),
            ("unavailable_after:", None),
        ] {
            let wishes = MetaRobots::from_headers([value], "dolomedes");
            assert_eq!(wishes.unavailable_after, seconds, "{value}");
            assert_eq!(wishes.noindex, value.ends_with("noindex"), "{value}");
            assert_eq!(MetaRobots::from_content(value).unavailable_after, seconds, "{value}");
        }
        let wishes = MetaRobots { unavailable_after: Some(10), ..MetaRobots::default() };
        assert!(!wishes.is_noindex_at(9) && wishes.is_noindex_at(10));
        let sooner = MetaRobots { unavailable_after: Some(5), ..MetaRobots::default() };
        assert_eq!(wishes.merge(sooner).unavailable_after, Some(5));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(unavailable_after: ?|[a-z]{0,3}|[0-9T:-]{0,6}|[,: ]|\\PC){0,12}") {
            let _ = MetaRobots::from_content(&text);
            let _ = MetaRobots::from_headers([text.as_str()], "dolomedes");
        }
    }
}

//! What a single URL shows by itself. Stateless; one pass over the path, one over the query.

use url::Url;

use super::{Suspicion, TrapKind, TrapRules};

/// The longest group of segments whose repetition is looked for.
const MAX_GROUP: usize = 3;

/// Segments looked at, whatever the rules say.
const MAX_SEGMENTS: usize = 64;

/// Looks at the shape of a canonical URL.
pub fn suspect(url: &Url, rules: &TrapRules) -> Option<Suspicion> {
    let path = url.path();
    // A path without a second slash can neither repeat, nor be deep, nor hold a date.
    if memchr::memchr(b'/', path.get(1..).unwrap_or("").as_bytes()).is_some()
        && let Some(suspicion) = suspect_path(path, rules)
    {
        return Some(suspicion);
    }
    url.query().and_then(|query| suspect_query(query, rules))
}

fn suspect_path(path: &str, rules: &TrapRules) -> Option<Suspicion> {
    let mut found = [""; MAX_SEGMENTS];
    let mut count = 0;
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        if count == rules.max_segments.min(MAX_SEGMENTS) {
            return Some(Suspicion::new(TrapKind::PathDepth, path));
        }
        found[count] = segment;
        count += 1;
    }
    let segments = &found[..count];
    for group in 1..=MAX_GROUP {
        let limit = if group == 1 { rules.max_repeats } else { rules.max_repeats.saturating_sub(1) }.max(2);
        if let Some(at) = repetition(segments, group, limit) {
            let pattern = format!("/{}/…", segments[at..at + group * 2].join("/"));
            return Some(Suspicion::new(TrapKind::PathRepetition, &pattern));
        }
    }
    if segments.len() >= rules.max_occurrences {
        let often = |segment: &&&str| segments.iter().filter(|other| other == segment).count();
        if let Some(segment) = segments.iter().find(|segment| often(segment) >= rules.max_occurrences) {
            return Some(Suspicion::new(TrapKind::PathRepetition, &format!("/{segment}/… …/{segment}/…")));
        }
    }
    far_date(segments, rules).map(|date| Suspicion::new(TrapKind::Calendar, &format!("/{date}")))
}

/// Words in paths and names of parameters that go with dates.
const DATE_WORDS: [&str; 14] = [
    "calendar", "cal", "event", "events", "archive", "archives", "agenda", "schedule", "date", "day", "week",
    "month", "start", "end",
];

/// Finds a date far away. Numbers alone are no date: `/topic/7749/2` is the second page of a topic. It takes a day, a
/// month of two digits with a 0 (`/7749/03`), or a word that speaks of dates.
fn far_date(segments: &[&str], rules: &TrapRules) -> Option<String> {
    for (place, segment) in segments.iter().enumerate() {
        if !segment.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        let speaks_of_dates = || segments.iter().any(|segment| is_date_word(segment));
        if let Some((year, is_full)) = written_date(segment)
            && is_far(year, rules)
            && (is_full || speaks_of_dates())
        {
            return Some((*segment).to_owned());
        }
        let Some(year) = number(segment).filter(|year| segment.len() >= 4 && is_far(*year, rules)) else {
            continue;
        };
        let Some(month) = segments.get(place + 1).filter(|month| is_within(month, 12)) else { continue };
        let has_day = segments.get(place + 2).is_some_and(|day| is_within(day, 31));
        if has_day || month.len() == 2 && month.starts_with('0') || speaks_of_dates() {
            return Some(format!("{year}/{month}"));
        }
    }
    None
}

fn is_date_word(text: &str) -> bool {
    DATE_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// A number of one or two digits from 1 to `last`.
fn is_within(text: &str, last: u32) -> bool {
    text.len() <= 2 && number(text).is_some_and(|number| (1..=last).contains(&number))
}

/// Where a group of `group` segments comes `times` times in a row.
fn repetition(segments: &[&str], group: usize, times: usize) -> Option<usize> {
    let needed = group * (times - 1);
    let mut run = 0;
    for at in group..segments.len() {
        run = if segments[at] == segments[at - group] { run + 1 } else { 0 };
        if run == needed {
            return Some(at + 1 - group * times);
        }
    }
    None
}

fn suspect_query(query: &str, rules: &TrapRules) -> Option<Suspicion> {
    if query.len() > rules.max_query_bytes {
        return Some(Suspicion::new(TrapKind::Query, &format!("{} bytes in ?{query}", query.len())));
    }
    let mut parameters: Vec<(&str, &str)> = Vec::with_capacity(8);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        if parameters.len() == rules.max_parameters {
            return Some(Suspicion::new(
                TrapKind::Query,
                &format!("over {} parameters in ?{query}", parameters.len()),
            ));
        }
        parameters.push(parameter.split_once('=').unwrap_or((parameter, "")));
    }
    if parameters.len() > rules.max_same_parameter {
        let often = |name: &str| parameters.iter().filter(|(other, _)| *other == name).count();
        if let Some((name, _)) = parameters.iter().find(|(name, _)| often(name) > rules.max_same_parameter) {
            return Some(Suspicion::new(TrapKind::Query, &format!("?{name}=…&{name}=…")));
        }
    }
    let has_x = parameters.iter().any(|(name, _)| *name == "x");
    let dated = parameters.iter().find(|(name, value)| {
        let year = match *name {
            // With an x beside it, y is a coordinate.
            "y" if has_x => None,
            "y" | "yr" | "year" if value.len() >= 4 => number(value),
            _ => written_date(value)
                .filter(|(_, is_full)| *is_full || is_date_word(name))
                .map(|(year, _)| year),
        };
        year.is_some_and(|year| is_far(year, rules))
    });
    dated.map(|(name, value)| Suspicion::new(TrapKind::Calendar, &format!("?{name}={value}")))
}

fn is_far(year: u32, rules: &TrapRules) -> bool {
    let now = u32::from(rules.year);
    year > now + u32::from(rules.years_ahead) || year < now.saturating_sub(u32::from(rules.years_back))
}

/// A number of one to five digits and nothing else.
fn number(text: &str) -> Option<u32> {
    let fits = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

/// The year of a text that begins with an ISO date, and whether that has a day (`2024-05-01T…`). Without a day it has
/// to be the whole text (`2024-05`): `1042-10-ways-to-…` is a title.
fn written_date(text: &str) -> Option<(u32, bool)> {
    let (year, rest) = text.split_once('-')?;
    let year = number(year).filter(|_| year.len() >= 4)?;
    let (month, rest) = rest.split_at_checked(2)?;
    if !is_within(month, 12) {
        return None;
    }
    let Some(rest) = rest.strip_prefix('-') else { return rest.is_empty().then_some((year, false)) };
    let (day, behind) = rest.split_at_checked(2)?;
    let ends = !behind.starts_with(|next: char| next.is_ascii_digit());
    (is_within(day, 31) && ends).then_some((year, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(url: &str) -> Option<TrapKind> {
        suspect(&Url::parse(url).unwrap(), &TrapRules::new(2026)).map(|suspicion| suspicion.kind)
    }

    #[test]
    fn traps() {
        let deep = format!("http://a.test/{}", (0..33).map(|n| format!("s{n}/")).collect::<String>());
        let long = format!("http://a.test/?q={}", "x".repeat(2050));
        let many = format!("http://a.test/?{}", (0..33).map(|n| format!("p{n}=1&")).collect::<String>());
        let same = format!("http://a.test/?{}", (0..11).map(|n| format!("f[]={n}&")).collect::<String>());
        use TrapKind::*;
        for (url, expected) in [
            ("http://a.test/a/a/a/a", PathRepetition),
            ("http://a.test/x/a/a/a/a/y", PathRepetition),
            ("http://a.test/x//a/b//a/b/a/b/y", PathRepetition),
            ("http://a.test/a/b/c/a/b/c/a/b/c", PathRepetition),
            ("http://a.test/x/1/x/2/x/3/x/4/x/5/x", PathRepetition),
            (&deep, PathDepth),
            (&long, Query),
            (&many, Query),
            (&same, Query),
            ("http://a.test/calendar/7749/03/", Calendar),
            ("http://a.test/calendar/12026/3/", Calendar),
            ("http://a.test/events/2044-05-01/", Calendar),
            ("http://a.test/x/7749/03/", Calendar),
            ("http://a.test/x/7749/3/17", Calendar),
            ("http://a.test/events/7749-03", Calendar),
            ("http://a.test/x?on=7749-03-01T00:00", Calendar),
            ("http://a.test/cal?date=1215-06", Calendar),
            ("http://a.test/cal?y=7749", Calendar),
            ("http://a.test/cal?m=5&year=2032", Calendar),
        ] {
            assert_eq!(kind(url), Some(expected), "{url}");
        }
    }

    #[test]
    fn real_sites() {
        for url in [
            "http://a.test/",
            "http://a.test/docs/html/driver-api/usb/usb.html",
            "http://a.test/java.base/java/util/concurrent/locks/ReentrantLock.html",
            "http://a.test/core/core_arch/x86/fn._mm256_add_epi8.html",
            "http://a.test/tiles/0/0/0.png",
            "http://a.test/2011/11/11/11",
            "http://a.test/wiki/Bora_Bora/Bora_Bora",
            "http://a.test/1789/07/14/bastille",
            "http://a.test/products/9001",
            "http://a.test/topic/7749/2",
            "http://a.test/topic/1042/11",
            "http://a.test/blog/1042-10-ways-to-rest",
            "http://a.test/p?id=7749-03",
            "http://a.test/2031-12-01/",
            "http://a.test/calendar/2026/12/01",
            "http://a.test/map?x=1200&y=7749",
            "http://a.test/p?id=7749-33",
            "http://a.test/2031/12/",
            "http://a.test/cal?year=2031&date=2026-12-01",
            "http://a.test/search?q=1&f[]=a&f[]=b&f[]=c",
            "http://a.test/a/b/a/b",
        ] {
            assert_eq!(kind(url), None, "{url}");
        }
    }

    #[test]
    fn the_record_says_what_and_where() {
        let suspicion =
            suspect(&Url::parse("http://a.test/cal?y=7749").unwrap(), &TrapRules::new(2026)).unwrap();
        assert_eq!(suspicion.to_string(), "trap suspected: calendar: ?y=7749");
        let url = Url::parse(&format!("http://a.test/?q={}", "ü".repeat(1500))).unwrap();
        assert!(suspect(&url, &TrapRules::new(2026)).unwrap().to_string().chars().count() < 160);
    }
}

//! The `Retry-After` header (RFC 9110 section 10.2.3), both forms. What is done with it: [`super::pace`].

use std::time::{Duration, UNIX_EPOCH};

/// How long to wait, in milliseconds from `now_ms` (since 1970). A date in the past is 0. `None` where the value is
/// neither a number of seconds nor an HTTP date; the caller then treats the header as missing.
pub fn retry_after(value: &str, now_ms: u64) -> Option<u64> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are still a number, and a long time.
        return Some(value.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let date_ms = date.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis();
    Some(u64::try_from(date_ms).unwrap_or(u64::MAX).saturating_sub(now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 23 of the crawler cases.
    #[test]
    fn forms() {
        let now = 946_684_800_000; // 2000-01-01 00:00:00 GMT
        for (value, expected) in [
            ("120", Some(120_000)),
            (" 0 ", Some(0)),
            ("Fri, 31 Dec 1999 23:59:59 GMT", Some(0)),
            ("Sat, 01 Jan 2000 00:01:00 GMT", Some(60_000)),
            ("Saturday, 01-Jan-00 00:01:00 GMT", Some(60_000)),
            ("315360000", Some(315_360_000_000)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value, now), expected, "{value:?}");
        }
    }
}

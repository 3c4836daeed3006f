//! The `Retry-After` header (RFC 9110 10.2.3). Pure: the time is an argument.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

/// However long a server asks to be left alone, one day is the most that is granted.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the server asks to wait, at most [`MAX_RETRY_AFTER`]. Both forms are read: seconds, and a date in any of the
/// three HTTP formats, of which a past one means "now" (zero). `None` if there is no header or it says nothing
/// (negative, fractional, garbage). Of several headers the first counts.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    parse(headers.get(header::RETRY_AFTER)?.to_str().ok()?, now)
}

fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // Too many digits for u64 is still a number, and longer than any cap.
        let seconds = value.parse::<u64>().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    Some(until.duration_since(now).unwrap_or_default().min(MAX_RETRY_AFTER))
}

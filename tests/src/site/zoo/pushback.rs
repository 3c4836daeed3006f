//! Hosts that ask to be left alone: 429 and 503, with and without Retry-After in both of its forms. Right: the whole
//! host waits as long as it asked for, within a cap, also across a restart.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::site::{Reply, Request, Site};

/// Serves a host whose `/` links to `pages` pages, and whose page `/1` answers the first request with `refusal`.
pub fn install(site: &Site, host: &str, pages: usize, refusal: impl Fn() -> Reply + Send + Sync + 'static) {
    site.host(host, move |request: &Request| match request.path.as_str() {
        "/robots.txt" => Reply::not_found(),
        "/" => Reply::page("Front", (1..=pages).map(|n| format!("/{n}"))),
        "/1" if request.visit == 1 => refusal(),
        _ => Reply::page("A page", [""; 0]),
    });
}

/// Serves a host that answers every page with this status.
pub fn always(site: &Site, host: &str, status: u16) {
    site.host(host, move |request: &Request| match request.path.as_str() {
        "/robots.txt" => Reply::not_found(),
        _ => Reply::page("Go away", [""; 0]).code(status),
    });
}

/// A refusal with Retry-After in seconds.
pub fn in_seconds(status: u16, seconds: &str) -> Reply {
    Reply::page("Later", [""; 0]).code(status).header("Retry-After", seconds)
}

/// A refusal with Retry-After as a date, so far from now.
pub fn at_date(status: u16, from_now: Duration) -> Reply {
    Reply::page("Later", [""; 0]).code(status).header("Retry-After", http_date(SystemTime::now() + from_now))
}

/// A date in the form of RFC 9110, section 5.6.7.
pub fn http_date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days, for dates after 1970.
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let week = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][usize::try_from(days % 7).unwrap_or(0)];
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = names[usize::try_from(month - 1).unwrap_or(0)];
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{week}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_standard() {
        let at = |seconds| http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(at(946_684_799), "Fri, 31 Dec 1999 23:59:59 GMT");
    }
}

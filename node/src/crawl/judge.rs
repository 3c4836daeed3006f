//! What an exchange means for its URL: a page, a redirect, another try, or the end of it. A pure core; what a page
//! contains is [`super::harvest`]'s business.

use std::time::{Duration, SystemTime};

use dolomedes_netproto::fetch::{
    Cut, FetchFailure, Fetched,
    redirect::{self, RedirectError},
    retry_after::retry_after,
};
use url::Url;

use crate::politeness::FetchResult;

/// What an exchange means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A response to keep, whatever its status.
    Page,
    /// A page whose end did not arrive, though the server meant to send it.
    Incomplete,
    /// A response that leads elsewhere.
    Redirect(Url),
    /// A redirect that leads nowhere, with the word for the record.
    BrokenRedirect(&'static str),
    /// Worth another try; the word says why.
    Retry(String),
    /// Not worth another try; the word says why.
    Failed(&'static str),
}

/// Judges an exchange of `url`.
pub(crate) fn meaning(url: &Url, exchange: &Result<Fetched, FetchFailure>) -> Meaning {
    let response = match exchange {
        Ok(response) => response,
        Err(failure) if failure.kind.is_retryable() => {
            return Meaning::Retry(failure.kind.as_str().to_owned());
        }
        Err(failure) => return Meaning::Failed(failure.kind.as_str()),
    };
    match redirect::location(url, response.status, &response.headers) {
        Ok(Some(target)) => return Meaning::Redirect(target),
        Ok(None) => {}
        Err(RedirectError::Missing) => return Meaning::BrokenRedirect("redirect_without_location"),
        Err(RedirectError::Empty) => return Meaning::BrokenRedirect("redirect_without_location"),
        Err(RedirectError::Invalid { .. }) => return Meaning::BrokenRedirect("redirect_invalid"),
        Err(RedirectError::Scheme(_)) => return Meaning::BrokenRedirect("redirect_scheme"),
    }
    match response.status.as_u16() {
        // RFC 9110 15.5.9, RFC 8470 5.2, RFC 6585 4, and what gateways say of a server in trouble.
        status @ (408 | 425 | 429 | 500 | 502 | 503 | 504) => Meaning::Retry(format!("status_{status}")),
        200..=299 if response.truncated == Some(Cut::Incomplete) => Meaning::Incomplete,
        _ => Meaning::Page,
    }
}

/// What the exchange says about its host, for pacing.
pub(super) fn host_result(exchange: &Result<Fetched, FetchFailure>, now: SystemTime) -> FetchResult {
    match exchange {
        Ok(response) => FetchResult::Response {
            status: response.status.as_u16(),
            retry_after_ms: retry_after(&response.headers, now).map(millis),
        },
        Err(failure) if failure.kind.counts_against_host() => FetchResult::Failed,
        Err(_) => FetchResult::Abandoned,
    }
}

/// How long to wait before the next attempt after `failures` earlier failed ones: the first delay, tripled each time,
/// varied by up to a fifth by `salt` so that what failed together does not come back together.
pub(super) fn retry_delay_ms(first_ms: u64, failures: u32, salt: u64) -> u64 {
    /// Longest wait between two attempts.
    const MOST: u64 = 3_600_000;
    let base = first_ms.saturating_mul(3u64.saturating_pow(failures.min(20))).min(MOST);
    let spread = base / 5;
    base - spread + salt % (2 * spread + 1)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_triple_and_vary_within_a_fifth() {
        for (failures, base) in [(0, 2_000), (1, 6_000), (2, 18_000), (3, 54_000), (60, 3_600_000)] {
            let waits: Vec<u64> =
                (0..1_000).map(|salt| retry_delay_ms(2_000, failures, salt * 7_919)).collect();
            assert!(waits.iter().all(|&wait| wait >= base * 4 / 5 && wait <= base * 6 / 5), "{failures}");
            assert!(waits.iter().any(|&wait| wait < base) && waits.iter().any(|&wait| wait > base));
        }
        assert_eq!(retry_delay_ms(0, 3, 12_345), 0);
    }
}

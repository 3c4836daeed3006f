//! Where a response sends its reader. Pure. Following is left to the caller, for whom the target is a new URL to be
//! checked, paced and deduplicated like every other.

use http::{HeaderMap, StatusCode, header};
use url::Url;

/// Why a redirect leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// The status asks for a `Location` and there is none.
    #[error("a redirect without a Location header")]
    Missing,
    /// The header is there and has no value.
    #[error("a redirect with an empty Location header")]
    Empty,
    /// The value is not a URL.
    #[error("a redirect to {location:?}, which is not a URL: {reason}")]
    Invalid {
        /// As received; bytes that are not UTF-8 are replaced.
        location: String,
        /// What the URL parser says.
        reason: url::ParseError,
    },
    /// The target is not a web page: `file:`, `data:`, `javascript:`, an app's own scheme.
    #[error("a redirect to the scheme {0:?}; only http and https are followed")]
    Scheme(String),
}

/// The target of a redirect; `None` if the response is none. `base` is the URL that was fetched.
///
/// 301, 302, 303, 307 and 308 redirect. 300 is not followed: its `Location` is only the server's preference among
/// choices in the body (RFC 9110 15.4.1), which is a page with links. 304, 305 and 306 are no redirects.
///
/// Bytes outside of ASCII are taken as UTF-8, as browsers do, and end up percent-encoded. A target without a fragment
/// inherits the one of `base` (RFC 9110 10.2.2). Of several `Location` headers the first counts.
///
/// # Errors
/// The response is a redirect, but leads nowhere.
pub fn location(base: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Option<Url>, RedirectError> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let value = headers.get(header::LOCATION).ok_or(RedirectError::Missing)?;
    let text = String::from_utf8_lossy(value.as_bytes());
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c.is_control());
    if text.is_empty() {
        return Err(RedirectError::Empty);
    }
    let mut target = base
        .join(text)
        .map_err(|reason| RedirectError::Invalid { location: text.chars().take(200).collect(), reason })?;
    if !matches!(target.scheme(), "http" | "https") {
        return Err(RedirectError::Scheme(target.scheme().to_owned()));
    }
    if target.fragment().is_none() {
        target.set_fragment(base.fragment());
    }
    Ok(Some(target))
}

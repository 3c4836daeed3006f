//! The unit of politeness (scheme and authority) and the registrable domain of a URL. Purely textual; no DNS.

use std::borrow::Cow;

use url::{Host, Position, Url};

/// Scheme and authority, as in `http://example.com:8080`: the key under which a URL is queued, leased and paced.
/// Borrowed for every canonical URL; user name and password never become part of it.
pub fn host_key(url: &Url) -> Cow<'_, str> {
    if url.username().is_empty() && url.password().is_none() {
        return Cow::Borrowed(&url[..Position::BeforePath]);
    }
    let authority = &url[Position::BeforeHost..Position::AfterPort];
    Cow::Owned(format!("{}://{authority}", url.scheme()))
}

/// The registrable domain (public suffix and one label more, by the Public Suffix List): `example.co.uk` for
/// `www.example.co.uk`. `None` for IP addresses, single labels and public suffixes themselves.
pub fn registrable_domain(url: &Url) -> Option<&str> {
    match url.host()? {
        // The list would take the last two numbers of an address for a domain.
        Host::Ipv4(_) | Host::Ipv6(_) => None,
        Host::Domain(name) => psl::domain_str(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for (url, key, domain) in [
            ("http://example.com/a?b", "http://example.com", Some("example.com")),
            ("https://www.example.co.uk:8443/", "https://www.example.co.uk:8443", Some("example.co.uk")),
            ("http://me:pw@a.b.example.org:80/", "http://a.b.example.org", Some("example.org")),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080", None),
            ("http://[::1]:8080/", "http://[::1]:8080", None),
            ("http://localhost/", "http://localhost", None),
            ("http://co.uk/", "http://co.uk", None),
            ("http://me.github.io/", "http://me.github.io", Some("me.github.io")),
            ("http://www.site.test/", "http://www.site.test", Some("site.test")),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(host_key(&url), key);
            assert_eq!(registrable_domain(&url), domain, "{url}");
        }
    }
}

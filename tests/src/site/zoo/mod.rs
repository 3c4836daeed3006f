//! The zoo of bad pages: named resources, each with one thing wrong with it, by theme. A crawler has to survive each
//! of them with a record that says what was wrong.
//!
//! Everything is bounded: no exhibit sends for ever, none hangs longer than [`HANG`](super::HANG), and the large ones are
//! made of repeated pieces. Hosts that are odd as a whole (their robots.txt, their sitemaps, their push-back) are in
//! [`robots`], [`sitemaps`] and [`pushback`].

pub mod bombs;
mod charsets;
mod chunking;
mod drops;
pub mod encodings;
mod floods;
mod headers;
mod lengths;
mod markup;
pub mod pushback;
mod redirects;
pub mod robots;
pub mod sitemaps;
mod stalls;
mod traps;

use super::{Answer, Reply, Request, Site};

/// A resource of the zoo.
#[derive(Clone, Copy, Debug)]
pub struct Exhibit {
    /// What kind of trouble it is.
    pub theme: &'static str,
    /// Its name, unique in its theme.
    pub name: &'static str,
    /// What is wrong with it.
    pub about: &'static str,
    /// What it answers. Paths below its own are its too.
    pub answer: fn(&Request) -> Answer,
}

impl Exhibit {
    /// Where it stands: `/THEME/NAME`.
    pub fn path(&self) -> String {
        format!("/{}/{}", self.theme, self.name)
    }
}

/// All themes.
const THEMES: [&[Exhibit]; 11] = [
    bombs::EXHIBITS,
    charsets::EXHIBITS,
    chunking::EXHIBITS,
    drops::EXHIBITS,
    encodings::EXHIBITS,
    floods::EXHIBITS,
    headers::EXHIBITS,
    lengths::EXHIBITS,
    markup::EXHIBITS,
    redirects::EXHIBITS,
    stalls::EXHIBITS,
];

/// Every exhibit. Those of the theme `traps` lead to endlessly many pages; all others to a few.
pub fn exhibits() -> impl Iterator<Item = &'static Exhibit> {
    THEMES.iter().copied().chain([traps::EXHIBITS]).flatten()
}

/// The exhibits of one theme.
pub fn theme(name: &str) -> impl Iterator<Item = &'static Exhibit> {
    exhibits().filter(move |exhibit| exhibit.theme == name)
}

/// Serves all of them on one host. Its `/` links to each, `/THEME` to those of one theme.
pub fn install(site: &Site, host: &str) {
    site.host(host, answer);
}

/// The answer of a zoo host.
pub fn answer(request: &Request) -> Answer {
    let mut parts = request.path_only().splitn(4, '/').skip(1);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if first.is_empty() {
        return Reply::page("The zoo", exhibits().map(Exhibit::path)).into();
    }
    if first == "good" {
        return Reply::page("A good page", [""; 0]).into();
    }
    match exhibits().find(|exhibit| exhibit.theme == first && exhibit.name == second) {
        Some(exhibit) => (exhibit.answer)(request),
        None if second.is_empty() && theme(first).next().is_some() => {
            Reply::page(first, theme(first).map(Exhibit::path)).into()
        }
        None => Reply::not_found().into(),
    }
}

/// A small HTML page as bytes.
fn page(title: &str) -> String {
    format!(
        "<!doctype html><html><head><title>{title}</title></head><body><a href=\"/good/{title}\">on</a></body></html>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_exhibits_share_a_place() {
        let places: Vec<String> = exhibits().map(Exhibit::path).collect();
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
        assert!(places.len() > 80, "{} exhibits", places.len());
    }
}

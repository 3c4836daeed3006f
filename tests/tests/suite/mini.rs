//! Small sites and whole crawls in a line, for the suites.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dolomedes_tests::outcome::Records;
use dolomedes_tests::process::{Finished, Job};
use dolomedes_tests::site::zoo::{self, Exhibit};
use dolomedes_tests::site::{Answer, Reply, Request, Site, Web, WebShape};

/// Longest time of a crawl of a small site.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A crawl that has ended, and all that can be looked at.
pub(crate) struct Crawled {
    pub(crate) records: Records,
    pub(crate) finished: Finished,
    pub(crate) job: Job,
}

/// Crawls to the end, and checks what always has to hold.
#[track_caller]
pub(crate) fn crawl<S: Into<String>>(
    site: &Site,
    seeds: impl IntoIterator<Item = S>,
    tweak: impl FnOnce(&mut Job),
) -> Crawled {
    let mut job = Job::new(site);
    for seed in seeds {
        job.seed(seed);
    }
    tweak(&mut job);
    let finished = job.complete(DEADLINE);
    Crawled { records: job.records().checked(), finished, job }
}

/// Leaves a job as it is.
pub(crate) fn as_is(_: &mut Job) {}

/// Serves pages of HTML by path; everything else, robots.txt included, is not there.
pub(crate) fn serve<S: Into<String>>(
    site: &Site,
    host: &str,
    pages: impl IntoIterator<Item = (&'static str, S)>,
) {
    let pages: BTreeMap<&str, String> = pages.into_iter().map(|(path, html)| (path, html.into())).collect();
    site.host(host, move |request: &Request| {
        pages.get(request.path.as_str()).map_or_else(Reply::not_found, |html| Reply::html(html.clone()))
    });
}

/// A page with a title, and a body as it stands.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!("<!doctype html><html><head><title>{title}</title></head><body>{body}</body></html>")
}

/// A generated web of one host, served.
pub(crate) fn one_host(site: &Site, seed: u64, pages: usize, think: Duration) -> Arc<Web> {
    let shape = WebShape { pages_per_host: pages, delay: think, ..WebShape::default() };
    let web = Arc::new(Web::generate(seed, &shape));
    site.web(&web);
    web
}

/// Serves the zoo on every host under `.zoo.test`, so that each exhibit can have a host to itself: what one does to its
/// host's pace does not delay the others.
pub(crate) fn serve_zoo(site: &Site) {
    site.hosts_under(".zoo.test", |request: &Request| -> Answer { zoo::answer(request) });
}

/// The URL of an exhibit on its own host.
pub(crate) fn exhibit_url(site: &Site, exhibit: &Exhibit) -> String {
    let label = exhibit.name.replace('.', "-");
    site.url(&format!("{label}.{}.zoo.test", exhibit.theme), &exhibit.path())
}

/// The URL of an exhibit by its place, `THEME/NAME`, on its own host.
#[track_caller]
pub(crate) fn exhibit(site: &Site, place: &str) -> String {
    let found = zoo::exhibits().find(|exhibit| exhibit.path()[1..] == *place);
    exhibit_url(site, found.unwrap_or_else(|| panic!("there is no exhibit {place}")))
}

/// Crawls exhibits, each on its own host.
#[track_caller]
pub(crate) fn crawl_exhibits(site: &Site, places: &[&str], tweak: impl FnOnce(&mut Job)) -> Crawled {
    serve_zoo(site);
    let seeds: Vec<String> = places.iter().map(|place| exhibit(site, place)).collect();
    crawl(site, seeds, tweak)
}

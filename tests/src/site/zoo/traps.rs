//! Endless spaces of pages. Right: the crawl ends inside its budgets, other hosts do not notice, and the record says
//! that a trap is suspected.

use super::{Answer, Exhibit, Request};
use crate::site::Reply;

const fn trap(name: &'static str, about: &'static str, answer: fn(&Request) -> Answer) -> Exhibit {
    Exhibit { theme: "traps", name, about, answer }
}

/// The value of a number in the query.
fn number(request: &Request, name: &str) -> Option<i64> {
    let pairs = request.query().split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse().ok())
}

/// The same bits for the same place and visit, different otherwise.
fn mixed(request: &Request) -> u128 {
    let mut seed = request.visit;
    for byte in request.path.bytes() {
        seed = seed.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte);
    }
    let mut random = crate::site::Random::new(seed);
    (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64())
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    trap("calendar", "next and previous month, for ever", |request| {
        let (year, month) = (number(request, "y").unwrap_or(2026), number(request, "m").unwrap_or(1));
        let at = |months: i64| {
            format!("/traps/calendar?y={}&m={}", months.div_euclid(12), months.rem_euclid(12) + 1)
        };
        let now = year * 12 + month - 1;
        Reply::page("A month", [at(now + 1), at(now - 1), at(now + 12)]).into()
    }),
    trap("path", "a relative link that makes the path longer", |request| {
        Reply::page("Deeper", [format!("{}/a", request.path_only().trim_end_matches('/'))]).into()
    }),
    trap("session-path", ";jsessionid= with a new number each time", |request| {
        let id = mixed(request);
        let links =
            ["one", "two", "three"].map(|name| format!("/traps/session-path/{name};jsessionid={id:032X}"));
        Reply::page("A session", links).into()
    }),
    trap("session-query", "?sid= with a new number each time", |request| {
        let id = mixed(request);
        let links = ["one", "two", "three"].map(|name| format!("/traps/session-query/{name}?sid={id:032x}"));
        Reply::page("A session", links).into()
    }),
    trap("facets", "every order of every choice", |request| {
        let chosen = request.query();
        let links = ["colour=red", "size=4", "brand=x", "price=low", "sort=up", "page=2", "view=list"]
            .into_iter()
            .filter(|facet| !chosen.contains(facet))
            .map(|facet| {
                if chosen.is_empty() {
                    format!("/traps/facets?{facet}")
                } else {
                    format!("/traps/facets?{chosen}&{facet}")
                }
            });
        Reply::page("Facets", links).into()
    }),
    trap("soft-404", "whatever is asked for is there, and leads on", |request| {
        let id = mixed(request);
        Reply::page("Sorry", (0..5).map(|n| format!("/traps/soft-404/{:x}", (id >> (n * 20)) & 0xf_ffff)))
            .into()
    }),
];

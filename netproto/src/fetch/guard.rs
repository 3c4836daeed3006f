//! Which addresses, ports and schemes may be dialled. Pure: it is asked with a URL or an address and answers. Who
//! asks, and when, is in [`super::names`] (every resolved name) and [`super::Fetcher`] (every URL, every connection).
//!
//! A crawler follows links that strangers write; without this guard, a page could make it fetch the cloud's metadata
//! service, a router's admin page or a database on the same machine (server-side request forgery).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use url::{Host, Url};

use super::failure::FailureKind;

/// Refuses private and special addresses, except in the networks that were allowed by name.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    allowed: Vec<IpNet>,
}

/// Why a URL or an address is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Only `http` and `https` are fetched.
    #[error("scheme {0:?} is not fetched; only http and https are")]
    Scheme(String),
    /// The URL has no host.
    #[error("the URL has no host")]
    NoHost,
    /// The port belongs to another protocol (WHATWG Fetch, "bad port").
    #[error("port {0} belongs to another protocol and is not fetched")]
    Port(u16),
    /// The address is private or special.
    #[error("address {address} is {what}; allow its network by name to fetch from it")]
    Address {
        /// As it was asked for.
        address: IpAddr,
        /// What it is.
        what: &'static str,
    },
}

impl Refused {
    /// The kind of failure that this refusal is.
    pub fn kind(&self) -> FailureKind {
        match self {
            Refused::Scheme(_) | Refused::NoHost => FailureKind::InvalidUrl,
            Refused::Port(_) => FailureKind::RefusedPort,
            Refused::Address { .. } => FailureKind::RefusedAddress,
        }
    }
}

impl AddressGuard {
    /// A guard that lets the networks `allowed` pass, whatever they are. An IPv4 network also covers its addresses
    /// written as IPv4-mapped IPv6.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }

    /// Judges everything that can be seen in a URL: scheme, port, and the address if the host is one. A host name is
    /// judged later by the addresses that it resolves to.
    ///
    /// # Errors
    /// Says why the URL is refused.
    pub fn check_url(&self, url: &Url) -> Result<(), Refused> {
        self.check_scheme_and_port(url)?;
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => self.check(IpAddr::V6(address)),
            Some(Host::Domain(_)) => Ok(()),
            None => Err(Refused::NoHost),
        }
    }

    fn check_scheme_and_port(&self, url: &Url) -> Result<(), Refused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused::Scheme(url.scheme().to_owned()));
        }
        // `port` is None for the scheme's own port, which is the usual case.
        match url.port() {
            Some(port) if is_bad_port(port) => Err(Refused::Port(port)),
            _ => Ok(()),
        }
    }

    /// Judges an address.
    ///
    /// # Errors
    /// Says what the address is if it may not be dialled.
    pub fn check(&self, address: IpAddr) -> Result<(), Refused> {
        let Some(what) = special(address) else { return Ok(()) };
        let canonical = address.to_canonical();
        if self.allowed.iter().any(|net| net.contains(&address) || net.contains(&canonical)) {
            return Ok(());
        }
        Err(Refused::Address { address, what })
    }
}

/// What a special address is; `None` for a public one. After the IANA special-purpose address registries for IPv4 and
/// IPv6 (RFC 6890, as updated), multicast, and what is not allocated for global unicast.
pub fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "of \"this network\" (0.0.0.0/8)",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "private",
        [100, 64..=127, ..] => "shared with a carrier (100.64.0.0/10)",
        [127, ..] => "loopback",
        [169, 254, ..] => "link-local (and the cloud metadata service)",
        // Azure's metadata and wire server; in public address space, but answered by the host of the machine.
        [168, 63, 129, 16] => "a cloud metadata service",
        [192, 0, 0, 9 | 10] => return None,
        [192, 0, 0, _] => "for protocol assignments (192.0.0.0/24)",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "for documentation",
        [192, 88, 99, _] => "a 6to4 relay",
        [198, 18 | 19, ..] => "for benchmarks",
        [224..=239, ..] => "multicast",
        [255, 255, 255, 255] => "the broadcast address",
        [240..=255, ..] => "reserved",
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(v4) = address.to_ipv4_mapped() {
        return special_v4(v4);
    }
    let s = address.segments();
    Some(match s {
        [0, 0, 0, 0, 0, 0, 0, 0] => "the unspecified address",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        [0, 0, 0, 0, 0, 0, ..] => "IPv4-compatible (deprecated)",
        // Behind NAT64 every IPv4 host has such an address: it is as good as the IPv4 address inside.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            return special_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
        }
        [0x64, 0xff9b, 1, ..] => "local NAT64",
        [0x2001, 0, ..] => "Teredo",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "for documentation",
        [0x2001, 0..=0x1ff, ..] => "for protocol assignments (2001::/23)",
        [0x2002, ..] => "6to4",
        [0x2000..=0x3fff, ..] => return None,
        [0xfc00..=0xfdff, ..] => "private (unique local)",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xfec0..=0xfeff, ..] => "site-local (deprecated)",
        [0xff00..=0xffff, ..] => "multicast",
        _ => "outside of the global unicast space",
    })
}

/// WHATWG Fetch, section "port blocking".
fn is_bad_port(port: u16) -> bool {
    matches!(
        port,
        0 | 1
            | 7
            | 9
            | 11
            | 13
            | 15
            | 17
            | 19
            | 20
            | 21
            | 22
            | 23
            | 25
            | 37
            | 42
            | 43
            | 53
            | 69
            | 77
            | 79
            | 87
            | 95
            | 101
            | 102
            | 103
            | 104
            | 109
            | 110
            | 111
            | 113
            | 115
            | 117
            | 119
            | 123
            | 135
            | 137
            | 139
            | 143
            | 161
            | 179
            | 389
            | 427
            | 465
            | 512
            | 513
            | 514
            | 515
            | 526
            | 530
            | 531
            | 532
            | 540
            | 548
            | 554
            | 556
            | 563
            | 587
            | 601
            | 636
            | 989
            | 990
            | 993
            | 995
            | 1719
            | 1720
            | 1723
            | 2049
            | 3659
            | 4045
            | 4190
            | 5060
            | 5061
            | 6000
            | 6566
            | 6665..=6669 | 6679 | 6697 | 10080
    )
}

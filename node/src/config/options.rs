//! What a user can write: the flags of `crawl`, and a TOML file with the same names. Meaning is given in
//! [`super::resolve`]; here a value is only read.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::url::scope::ScopeKind;

/// Which HTTP versions to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum HttpChoice {
    /// HTTP/2 where TLS negotiates it, else HTTP/1.1.
    #[value(name = "auto")]
    #[serde(rename = "auto")]
    Auto,
    /// HTTP/1.1 only.
    #[value(name = "1")]
    #[serde(rename = "1")]
    Http1,
    /// HTTP/2 only, also without TLS (prior knowledge).
    #[value(name = "2")]
    #[serde(rename = "2")]
    Http2,
}

/// A static answer to a name: `NAME=ADDR`, where NAME may begin with `*.`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StaticName {
    /// The name or pattern.
    pub pattern: String,
    /// Its address.
    pub address: IpAddr,
}

impl std::str::FromStr for StaticName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pattern, address) =
            text.split_once('=').ok_or_else(|| format!("`{text}` is not of the form NAME=ADDRESS"))?;
        let address = address.parse().map_err(|_| format!("`{address}` is not an IP address"))?;
        if pattern.is_empty() {
            return Err(format!("`{text}` names no host"));
        }
        Ok(Self { pattern: pattern.to_ascii_lowercase(), address })
    }
}

impl TryFrom<String> for StaticName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<StaticName> for String {
    fn from(name: StaticName) -> Self {
        format!("{}={}", name.pattern, name.address)
    }
}

macro_rules! options {
    ($(#[$about:meta])* $group:ident { $($(#[$attr:meta])* $name:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", default)]
        pub struct $group {
            $($(#[$attr])* pub $name: $type,)*
        }

        impl OrElseFrom for $group {
            fn or_else_from(self, other: Self) -> Self {
                Self { $($name: self.$name.or_else_from(other.$name),)* }
            }
        }
    };
}

/// How a missing value is recognised and filled in. Lists and switches that are set replace the other ones.
pub trait OrElseFrom {
    /// This value, or `other` where this one is missing.
    fn or_else_from(self, other: Self) -> Self;
}

impl<T> OrElseFrom for Option<T> {
    fn or_else_from(self, other: Self) -> Self {
        self.or(other)
    }
}

impl<T> OrElseFrom for Vec<T> {
    fn or_else_from(self, other: Self) -> Self {
        if self.is_empty() { other } else { self }
    }
}

impl OrElseFrom for bool {
    fn or_else_from(self, other: Self) -> Self {
        self || other
    }
}

options! {
    /// Options about reaching the network as written.
    NetworkOptions {
    /// Name sent as User-Agent; its first word, up to a `/`, is also looked for in robots.txt
    #[arg(long, value_name = "TEXT", help_heading = "Politeness")]
    user_agent: Option<String>,
    /// Allow addresses of this range although it is private or special (repeatable), e.g. 127.0.0.0/8
    #[arg(long, value_name = "CIDR", help_heading = "Network")]
    allow_net: Vec<IpNet>,
    /// Trust the certificates in this PEM file as well
    #[arg(long, value_name = "PEM", help_heading = "Network")]
    ca_file: Option<PathBuf>,
    /// Fetch through this proxy (http, https or socks5h URL)
    #[arg(long, value_name = "URL", help_heading = "Network")]
    proxy: Option<String>,
    /// Answer this name, or `*.` pattern, with this address (repeatable)
    #[arg(long, value_name = "NAME=ADDR", help_heading = "Network")]
    resolve: Vec<StaticName>,
    /// HTTP versions to speak [default: auto]
    #[arg(long, value_name = "VERSION", help_heading = "Network")]
    http: Option<HttpChoice>,
    /// Send this header with every request (repeatable), e.g. "Accept-Language: de"
    #[arg(long, value_name = "NAME: VALUE", help_heading = "Network")]
    header: Vec<String>,

    /// Longest time to resolve a name [default: 5000]
    #[arg(long, value_name = "MS", help_heading = "Deadlines and caps")]
    dns_timeout: Option<u64>,
    /// Longest time to connect [default: 10000]
    #[arg(long, value_name = "MS", help_heading = "Deadlines and caps")]
    connect_timeout: Option<u64>,
    /// Longest TLS handshake [default: 10000]
    #[arg(long, value_name = "MS", help_heading = "Deadlines and caps")]
    tls_timeout: Option<u64>,
    /// Longest wait for the response's head [default: 20000]
    #[arg(long, value_name = "MS", help_heading = "Deadlines and caps")]
    first_byte_timeout: Option<u64>,
    /// Longest pause within a body [default: 20000]
    #[arg(long, value_name = "MS", help_heading = "Deadlines and caps")]
    idle_timeout: Option<u64>,
    /// Longest time for one request altogether [default: 120000]
    #[arg(long, value_name = "MS", help_heading = "Deadlines and caps")]
    total_timeout: Option<u64>,
    /// Least bytes per second of a body, over 10 s [default: 64]
    #[arg(long, value_name = "BYTES", help_heading = "Deadlines and caps")]
    min_rate: Option<u64>,
    /// Cut bodies off behind so many decoded bytes [default: 16777216]
    #[arg(long, value_name = "BYTES", help_heading = "Deadlines and caps")]
    max_body: Option<u64>,
    }
}

options! {
    /// What a crawl is to do, wherever it runs: every option may be missing.
    JobOptions {
    /// Also write WARC 1.1 files with an index to OUT/warc
    #[arg(long, help_heading = "Files")]
    warc: bool,
    /// Begin a new WARC file after so many MiB [default: 1024]
    #[arg(long, value_name = "MIB", help_heading = "Files")]
    warc_size: Option<u64>,

    /// Milliseconds between two requests to a host; 0 for none [default: 1000]
    #[arg(long, value_name = "MS", help_heading = "Politeness")]
    delay: Option<u64>,
    /// Requests to one host at the same time [default: 1]
    #[arg(long, value_name = "N", help_heading = "Politeness")]
    per_host: Option<u32>,
    /// Requests at the same time over all hosts [default: 64]
    #[arg(long, value_name = "N", help_heading = "Politeness")]
    concurrency: Option<u32>,
    /// Do not fetch or obey robots.txt, meta robots and nofollow: for sites of your own
    #[arg(long, help_heading = "Politeness")]
    ignore_robots: bool,
    /// Obey a Crawl-delay in robots.txt up to so many milliseconds [default: 60000]
    #[arg(long, value_name = "MS", help_heading = "Politeness")]
    max_crawl_delay: Option<u64>,

    /// How far to go from the seeds [default: host]
    #[arg(long, value_name = "KIND", help_heading = "Scope")]
    scope: Option<ScopeKind>,
    /// Only URLs that match one of these regular expressions
    #[arg(long, value_name = "RE", help_heading = "Scope")]
    include: Vec<String>,
    /// No URLs that match one of these regular expressions
    #[arg(long, value_name = "RE", help_heading = "Scope")]
    exclude: Vec<String>,
    /// Also follow images, style sheets, scripts and media
    #[arg(long, help_heading = "Scope")]
    assets: bool,
    /// Do not read the sitemaps that robots.txt names
    #[arg(long, help_heading = "Scope")]
    no_sitemaps: bool,
    /// Keep query parameters that only carry sessions or tracking
    #[arg(long, help_heading = "Scope")]
    keep_tracking: bool,
    /// Treat URLs as equal that differ only in the order of their query parameters
    #[arg(long, help_heading = "Scope")]
    sort_query: bool,

    /// Stop after so many pages (responses that are not redirects)
    #[arg(long, value_name = "N", help_heading = "Budgets")]
    max_pages: Option<u64>,
    /// Follow at most so many links from a seed
    #[arg(long, value_name = "N", help_heading = "Budgets")]
    max_depth: Option<u32>,
    /// Stop after so many bytes of decoded bodies
    #[arg(long, value_name = "BYTES", help_heading = "Budgets")]
    max_bytes: Option<u64>,
    /// At most so many pages of one host
    #[arg(long, value_name = "N", help_heading = "Budgets")]
    max_pages_per_host: Option<u64>,
    /// At most so many bytes of decoded bodies from one host
    #[arg(long, value_name = "BYTES", help_heading = "Budgets")]
    max_bytes_per_host: Option<u64>,
    /// Attempts before a URL is given up [default: 5]
    #[arg(long, value_name = "N", help_heading = "Budgets")]
    max_attempts: Option<u32>,
    /// First wait before a URL is tried again, tripled each time [default: 2000]
    #[arg(long, value_name = "MS", help_heading = "Budgets")]
    retry_delay: Option<u64>,

    /// How to reach the network.
    #[command(flatten)]
    #[serde(flatten)]
    network: NetworkOptions,
    }
}

options! {
    /// Options of a crawl on this machine as written: every one may be missing.
    CrawlOptions {
    /// Where to start: one or more http or https URLs. Without a scheme, https is assumed
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// Where the crawl's state lives; the same directory resumes the crawl [default: dolomedes-data]
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    data_dir: Option<PathBuf>,
    /// Where pages.jsonl and WARC files go [default: dolomedes-out]
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    out: Option<PathBuf>,
    /// Delete this crawl's state and output first, and start over
    #[arg(long, help_heading = "Files")]
    #[serde(skip)]
    fresh: bool,

    /// What to do.
    #[command(flatten)]
    #[serde(flatten)]
    job: JobOptions,

    /// Print one JSON object with the results on standard output
    #[arg(long, help_heading = "Output")]
    #[serde(skip)]
    json: bool,
    /// Print no progress
    #[arg(long, short, help_heading = "Output")]
    #[serde(skip)]
    quiet: bool,
    /// Show the state of the busiest hosts with the progress (SIGUSR1 prints it once, too)
    #[arg(long, help_heading = "Output")]
    #[serde(skip)]
    hosts: bool,
    /// Read options from this TOML file; keys are the names of the flags, and flags go first
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    #[serde(skip)]
    config: Option<PathBuf>,
    }
}

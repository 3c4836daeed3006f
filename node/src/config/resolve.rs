//! What the options mean: defaults filled in, bounds checked, paths made absolute. A mistake is reported with the flag
//! that it is about, before anything is touched.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use url::Url;

use super::options::{CrawlOptions, HttpChoice, JobOptions, NetworkOptions, OrElseFrom as _};
use crate::url::scope::ScopeKind;

/// Sent as User-Agent unless told otherwise. Its first word is looked for in robots.txt.
pub const USER_AGENT: &str = concat!("dolomedes/", env!("CARGO_PKG_VERSION"));

/// Seeds taken at most; longer lists belong into a sitemap.
const MAX_SEEDS: usize = 100_000;
const MAX_CONCURRENCY: u32 = 4_096;

/// Everything that a crawl needs to know.
#[derive(Clone, Debug)]
pub struct CrawlConfig {
    /// Where the state lives.
    pub data_dir: PathBuf,
    /// Delete state and output first.
    pub fresh: bool,
    /// What is crawled; stored with the job and compared when it is resumed.
    pub job: JobSpec,
    /// How it is crawled this time.
    pub run: RunConfig,
    /// How to reach the network.
    pub network: NetworkConfig,
    /// What to print.
    pub output: OutputConfig,
}

/// The lasting part of a crawl: what decides which URLs belong to it and where they go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Start URLs, as parsed.
    pub seeds: Vec<String>,
    /// How far from them.
    pub scope: ScopeKind,
    /// Patterns of which one must match, if there are any.
    pub include: Vec<String>,
    /// Patterns of which none may match.
    pub exclude: Vec<String>,
    /// Links followed from a seed at most: decided page by page, so it cannot change later.
    #[serde(default)]
    pub max_depth: Option<u32>,
    /// Follow embedded resources, too.
    pub assets: bool,
    /// Read the sitemaps that robots.txt names.
    pub sitemaps: bool,
    /// Keep session and tracking parameters.
    pub keep_tracking: bool,
    /// Sort query parameters.
    pub sort_query: bool,
    /// Disregard robots.txt, meta robots and nofollow.
    pub ignore_robots: bool,
    /// Output directory, absolute.
    pub out: PathBuf,
    /// Write WARC files.
    pub warc: bool,
    /// Key of the fingerprint hash: unpredictable, so that no site can craft URLs that collide with another's.
    #[serde(default)]
    pub hash_seed: u64,
}

/// Limits and pace, free to change from run to run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Milliseconds between requests to a host.
    pub delay_ms: u64,
    /// Requests to one host at once.
    pub per_host: u32,
    /// Requests at once.
    pub concurrency: u32,
    /// Longest Crawl-delay that is obeyed, in milliseconds.
    pub max_crawl_delay_ms: u64,
    /// Pages of the whole job.
    pub max_pages: Option<u64>,
    /// Decoded bytes of the whole job.
    pub max_bytes: Option<u64>,
    /// Pages of a host.
    pub max_pages_per_host: Option<u64>,
    /// Decoded bytes of a host.
    pub max_bytes_per_host: Option<u64>,
    /// Failed attempts before a URL is given up.
    pub max_attempts: u32,
    /// First wait before another attempt, in milliseconds.
    pub retry_delay_ms: u64,
    /// Rotate WARC files at so many bytes.
    pub warc_size: u64,
}

/// How to reach the network.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// User-Agent.
    pub user_agent: String,
    /// Private ranges that are allowed.
    pub allow_nets: Vec<IpNet>,
    /// More trusted certificates.
    pub ca_file: Option<PathBuf>,
    /// Proxy.
    pub proxy: Option<Url>,
    /// Static names.
    pub resolve: Vec<(String, IpAddr)>,
    /// HTTP versions.
    pub http: HttpChoice,
    /// Headers sent with each request.
    pub headers: Vec<(String, String)>,
    /// Resolving a name.
    pub dns_timeout: Duration,
    /// Connecting.
    pub connect_timeout: Duration,
    /// TLS handshake.
    pub tls_timeout: Duration,
    /// Until the response's head.
    pub first_byte_timeout: Duration,
    /// Between two reads of the body.
    pub idle_timeout: Duration,
    /// The whole exchange.
    pub total_timeout: Duration,
    /// Least bytes per second of a body.
    pub min_rate: u64,
    /// Decoded bytes of a body.
    pub max_body: u64,
}

/// What to print.
#[derive(Clone, Copy, Debug)]
pub struct OutputConfig {
    /// A JSON object at the end.
    pub json: bool,
    /// No progress.
    pub quiet: bool,
    /// Per-host state with the progress.
    pub hosts: bool,
}

/// Reads the options file, if one is named, and gives all options their meaning.
pub fn resolve(flags: CrawlOptions) -> anyhow::Result<CrawlConfig> {
    let options = match &flags.config {
        Some(path) => {
            let file = super::file::read(path)?;
            flags.or_else_from(file)
        }
        None => flags,
    };
    let seeds = seeds(&options.urls)?;
    let out = absolute(options.out.as_deref().unwrap_or(Path::new("dolomedes-out")))?;
    let data_dir = absolute(options.data_dir.as_deref().unwrap_or(Path::new("dolomedes-data")))?;
    ensure!(
        out != data_dir,
        "--out and --data-dir must be different directories; both are `{}`",
        out.display()
    );
    Ok(CrawlConfig {
        fresh: options.fresh,
        output: OutputConfig { json: options.json, quiet: options.quiet, hosts: options.hosts },
        ..job(seeds, &options.job, data_dir, out)?
    })
}

/// Gives the options of a job their meaning, for a crawl from `seeds`.
pub fn job(
    seeds: Vec<String>,
    options: &JobOptions,
    data_dir: PathBuf,
    out: PathBuf,
) -> anyhow::Result<CrawlConfig> {
    let options = options.clone();
    Ok(CrawlConfig {
        data_dir,
        fresh: false,
        job: JobSpec {
            seeds,
            scope: options.scope.unwrap_or(ScopeKind::Host),
            include: options.include,
            exclude: options.exclude,
            max_depth: options.max_depth,
            assets: options.assets,
            sitemaps: !options.no_sitemaps,
            keep_tracking: options.keep_tracking,
            sort_query: options.sort_query,
            ignore_robots: options.ignore_robots,
            out,
            warc: options.warc,
            hash_seed: 0,
        },
        run: RunConfig {
            delay_ms: options.delay.unwrap_or(1_000),
            per_host: bounded("--per-host", options.per_host, 1, MAX_CONCURRENCY)?,
            concurrency: bounded("--concurrency", options.concurrency, 64, MAX_CONCURRENCY)?,
            max_crawl_delay_ms: options.max_crawl_delay.unwrap_or(60_000),
            max_pages: positive("--max-pages", options.max_pages)?,
            max_bytes: positive("--max-bytes", options.max_bytes)?,
            max_pages_per_host: positive("--max-pages-per-host", options.max_pages_per_host)?,
            max_bytes_per_host: positive("--max-bytes-per-host", options.max_bytes_per_host)?,
            max_attempts: bounded("--max-attempts", options.max_attempts, 5, 100)?,
            retry_delay_ms: options.retry_delay.unwrap_or(2_000),
            warc_size: positive("--warc-size", options.warc_size)?.unwrap_or(1_024).saturating_mul(1 << 20),
        },
        network: network(&options.network)?,
        output: OutputConfig { json: false, quiet: true, hosts: false },
    })
}

/// Parses the start URLs of a crawl.
pub fn seeds(urls: &[String]) -> anyhow::Result<Vec<String>> {
    ensure!(
        !urls.is_empty(),
        "no URL to start from; give one or more, e.g. `dolomedes crawl https://example.com/`"
    );
    ensure!(urls.len() <= MAX_SEEDS, "{} start URLs are too many; at most {MAX_SEEDS}", urls.len());
    urls.iter().map(|text| Ok(seed(text)?.into())).collect()
}

/// Parses a URL that a person typed.
pub fn seed(text: &str) -> anyhow::Result<Url> {
    let trimmed = text.trim();
    let full = if trimmed.contains("://") { trimmed.to_owned() } else { format!("https://{trimmed}") };
    let url = Url::parse(&full).with_context(|| format!("`{text}` is not a URL"))?;
    ensure!(
        matches!(url.scheme(), "http" | "https"),
        "`{text}` has scheme `{}`; only http and https can be crawled",
        url.scheme()
    );
    ensure!(url.host_str().is_some_and(|host| !host.is_empty()), "`{text}` names no host");
    Ok(url)
}

/// Gives the network options their meaning.
pub fn network(options: &NetworkOptions) -> anyhow::Result<NetworkConfig> {
    let user_agent = options.user_agent.clone().unwrap_or_else(|| USER_AGENT.to_owned());
    ensure!(
        !user_agent.is_empty() && user_agent.bytes().all(|byte| (0x20..0x7f).contains(&byte)),
        "--user-agent must be printable ASCII"
    );
    let mut headers = Vec::new();
    for line in &options.header {
        let Some((name, value)) = line.split_once(':') else {
            bail!("--header `{line}` is not of the form `Name: value`");
        };
        http::HeaderName::try_from(name.trim())
            .with_context(|| format!("--header `{line}`: `{name}` is no header name"))?;
        http::HeaderValue::try_from(value.trim())
            .with_context(|| format!("--header `{line}`: the value cannot be sent"))?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let proxy = match &options.proxy {
        None => None,
        Some(text) => {
            let url = Url::parse(text).with_context(|| format!("--proxy `{text}` is not a URL"))?;
            ensure!(
                matches!(url.scheme(), "http" | "https" | "socks5h"),
                "--proxy `{text}`: the scheme must be http, https or socks5h (names are resolved by the proxy)"
            );
            Some(url)
        }
    };
    if let Some(path) = &options.ca_file {
        std::fs::metadata(path).with_context(|| format!("--ca-file: cannot read `{}`", path.display()))?;
    }
    Ok(NetworkConfig {
        user_agent,
        allow_nets: options.allow_net.clone(),
        ca_file: options.ca_file.clone(),
        proxy,
        resolve: options.resolve.iter().map(|name| (name.pattern.clone(), name.address)).collect(),
        http: options.http.unwrap_or(HttpChoice::Auto),
        headers,
        dns_timeout: deadline("--dns-timeout", options.dns_timeout, 5_000)?,
        connect_timeout: deadline("--connect-timeout", options.connect_timeout, 10_000)?,
        tls_timeout: deadline("--tls-timeout", options.tls_timeout, 10_000)?,
        first_byte_timeout: deadline("--first-byte-timeout", options.first_byte_timeout, 20_000)?,
        idle_timeout: deadline("--idle-timeout", options.idle_timeout, 20_000)?,
        total_timeout: deadline("--total-timeout", options.total_timeout, 120_000)?,
        min_rate: options.min_rate.unwrap_or(64),
        max_body: positive("--max-body", options.max_body)?.unwrap_or(16 << 20),
    })
}

/// Longest deadline that can be set, in milliseconds: a day.
const MAX_DEADLINE: u64 = 86_400_000;

fn deadline(flag: &str, value: Option<u64>, default: u64) -> anyhow::Result<Duration> {
    let value = value.unwrap_or(default);
    ensure!((1..=MAX_DEADLINE).contains(&value), "{flag} must be 1 to {MAX_DEADLINE} ms, not {value}");
    Ok(Duration::from_millis(value))
}

fn positive(flag: &str, value: Option<u64>) -> anyhow::Result<Option<u64>> {
    ensure!(value != Some(0), "{flag} must be at least 1");
    Ok(value)
}

fn bounded(flag: &str, value: Option<u32>, default: u32, most: u32) -> anyhow::Result<u32> {
    let value = value.unwrap_or(default);
    ensure!((1..=most).contains(&value), "{flag} must be 1 to {most}, not {value}");
    Ok(value)
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    ensure!(!path.as_os_str().is_empty(), "a directory's name cannot be empty");
    std::path::absolute(path).with_context(|| format!("cannot tell where `{}` is", path.display()))
}

impl JobSpec {
    /// Checks that a job can go on under the description `wanted`; what must not change is named in the error.
    pub fn check_resumable(&self, wanted: &JobSpec) -> anyhow::Result<()> {
        let changed = [
            ("--scope", self.scope != wanted.scope),
            ("--include", self.include != wanted.include),
            ("--exclude", self.exclude != wanted.exclude),
            ("--max-depth", self.max_depth != wanted.max_depth),
            ("--assets", self.assets != wanted.assets),
            ("--keep-tracking", self.keep_tracking != wanted.keep_tracking),
            ("--sort-query", self.sort_query != wanted.sort_query),
            ("--ignore-robots", self.ignore_robots != wanted.ignore_robots),
            ("--no-sitemaps", self.sitemaps != wanted.sitemaps),
            ("--warc", self.warc != wanted.warc),
        ];
        let changed: Vec<&str> =
            changed.iter().filter(|(_, differs)| *differs).map(|(flag, _)| *flag).collect();
        ensure!(
            changed.is_empty(),
            "the data directory holds a crawl that was started with another {}; run it with the same, use --fresh to \
             start over, or another --data-dir",
            changed.join(", ")
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_urls(urls: &[&str]) -> CrawlOptions {
        CrawlOptions { urls: urls.iter().map(|&url| url.to_owned()).collect(), ..Default::default() }
    }

    fn with_job(change: impl FnOnce(&mut JobOptions)) -> CrawlOptions {
        let mut options = with_urls(&["a"]);
        change(&mut options.job);
        options
    }

    fn with_network(change: impl FnOnce(&mut NetworkOptions)) -> CrawlOptions {
        with_job(|job| change(&mut job.network))
    }

    #[test]
    fn seeds_are_urls_a_person_may_type() {
        for (typed, meant) in [
            ("http://a.test", "http://a.test/"),
            ("a.test/x", "https://a.test/x"),
            ("localhost:8080/x", "https://localhost:8080/x"),
            (" http://BÜCHER.example/ ", "http://xn--bcher-kva.example/"),
            ("http://[::1]:80/", "http://[::1]/"),
        ] {
            assert_eq!(resolve(with_urls(&[typed])).unwrap().job.seeds, [meant], "{typed}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let cases: Vec<(CrawlOptions, &str)> = vec![
            (with_urls(&[]), "no URL to start from"),
            (with_urls(&["ftp://a/"]), "scheme `ftp`"),
            (with_urls(&["http://"]), "is not a URL"),
            (with_urls(&["http://a:99999/"]), "is not a URL"),
            (with_urls(&["http://[bad/"]), "is not a URL"),
            (with_urls(&["javascript:alert(1)"]), "is not a URL"),
            (with_job(|job| job.concurrency = Some(0)), "--concurrency must be 1 to 4096"),
            (with_job(|job| job.max_pages = Some(0)), "--max-pages must be at least 1"),
            (with_network(|network| network.header = vec!["x".into()]), "not of the form"),
            (with_network(|network| network.header = vec!["a b: x".into()]), "no header name"),
            (with_network(|network| network.proxy = Some("ftp://x".into())), "the scheme must be"),
            (with_network(|network| network.ca_file = Some("/nonexistent".into())), "--ca-file"),
            (with_network(|network| network.total_timeout = Some(0)), "--total-timeout"),
            (
                CrawlOptions { out: Some("x".into()), data_dir: Some("x".into()), ..with_urls(&["a"]) },
                "different directories",
            ),
        ];
        for (options, expected) in cases {
            let message = format!("{:#}", resolve(options).unwrap_err());
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }

    #[test]
    fn a_resumed_job_may_change_pace_but_not_scope() {
        let one = resolve(with_urls(&["http://a/"])).unwrap().job;
        let mut other = one.clone();
        other.seeds.push("http://b/".into());
        one.check_resumable(&other).unwrap();
        other.scope = ScopeKind::Any;
        other.warc = true;
        let message = one.check_resumable(&other).unwrap_err().to_string();
        assert!(message.contains("--scope, --warc"), "{message}");
    }
}

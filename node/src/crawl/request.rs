//! Making the requests of a crawl: the fetcher built from the configuration, cookies, robots.txt with its redirects.
//! What an answer means is decided in [`super::judge`].

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use dolomedes_netproto::fetch::{
    Deadlines, FetchFailure, Fetched, Fetcher, FetcherConfig, HttpVersions, Limits, MinRate, Request,
    StaticNames, cookies::CookieJar, redirect,
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use url::Url;

use super::judge;
use crate::{
    clock::Clock,
    config::{HttpChoice, resolve::NetworkConfig},
    politeness::FetchResult,
    robots::{self, RobotsAnswer, RobotsPolicy, RobotsVerdict},
};

/// Sites whose cookies are kept at the same time.
const COOKIE_SITES: usize = 10_000;
/// The window over which a body's least rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// Makes requests.
pub(crate) struct Requester {
    fetcher: Fetcher,
    deadlines: Deadlines,
    limits: Limits,
    keep_wire: bool,
    cookies: CookieJar,
    robots: RobotsPolicy,
    clock: Clock,
}

/// The single partition of the jar: one process crawls one job.
const JOB: u64 = 0;

impl Requester {
    /// A requester for the network that `config` describes. `robots_retry_ms`: first wait before a robots.txt that could
    /// not be reached is asked for again.
    pub(crate) fn new(
        config: &NetworkConfig,
        keep_wire: bool,
        robots_retry_ms: u64,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            headers.append(HeaderName::try_from(name.as_str())?, HeaderValue::try_from(value.as_str())?);
        }
        let ca_pem = match &config.ca_file {
            None => None,
            Some(path) => Some(
                std::fs::read(path)
                    .with_context(|| format!("--ca-file: cannot read `{}`", path.display()))?,
            ),
        };
        let mut static_names = StaticNames::default();
        for (pattern, address) in &config.resolve {
            static_names.insert(pattern, *address);
        }
        let deadlines = Deadlines {
            dns: config.dns_timeout,
            connect: config.connect_timeout,
            tls: config.tls_timeout,
            first_byte: config.first_byte_timeout,
            idle: config.idle_timeout,
            total: config.total_timeout,
            min_rate: (config.min_rate > 0).then(|| MinRate {
                bytes: config.min_rate.saturating_mul(RATE_WINDOW.as_secs()),
                window: RATE_WINDOW,
            }),
        };
        let fetcher = Fetcher::new(FetcherConfig {
            user_agent: config.user_agent.clone(),
            headers,
            ca_pem,
            proxy: config.proxy.clone(),
            allow_nets: config.allow_nets.clone(),
            static_names,
            http: match config.http {
                HttpChoice::Auto => HttpVersions::Auto,
                HttpChoice::Http1 => HttpVersions::Http1,
                HttpChoice::Http2 => HttpVersions::Http2,
            },
            connect_bound: config.dns_timeout + config.connect_timeout + config.tls_timeout,
            ..FetcherConfig::default()
        })
        .with_context(|| match &config.ca_file {
            Some(path) => format!("cannot set up the network (--ca-file `{}`)", path.display()),
            None => "cannot set up the network".to_owned(),
        })?;
        Ok(Self {
            fetcher,
            deadlines,
            limits: Limits {
                wire_bytes: config.max_body,
                decoded_bytes: config.max_body,
                ..Limits::default()
            },
            keep_wire,
            cookies: CookieJar::new(COOKIE_SITES),
            robots: RobotsPolicy {
                token: robots::product_token(&config.user_agent).to_owned(),
                forbidden_disallows: false,
                retry_min_ms: robots_retry_ms,
            },
            clock,
        })
    }

    /// One exchange, with the site's cookies. The flag says whether the response changed them.
    pub(crate) async fn get(&self, url: &Url) -> (Result<Fetched, FetchFailure>, bool) {
        let mut request = self.request(url.clone(), self.keep_wire);
        if let Some(cookie) = self.cookies.header(JOB, url) {
            request.headers.insert(header::COOKIE, cookie);
        }
        let exchange = self.fetcher.fetch(request).await;
        let changed = exchange.as_ref().is_ok_and(|response| self.cookies.store(JOB, url, &response.headers));
        (exchange, changed)
    }

    fn request(&self, url: Url, keep_wire: bool) -> Request {
        Request { deadlines: self.deadlines, limits: self.limits, keep_wire, ..Request::get(url) }
    }

    /// Fetches the robots.txt of a host key and judges it, and says what that shows of the host. Redirects are followed
    /// after `pause` each.
    pub(crate) async fn robots(
        &self,
        host_key: &str,
        previous: Option<Arc<RobotsVerdict>>,
        pause: Duration,
    ) -> RobotsFetched {
        let mut redirected = false;
        let answer = match Url::parse(host_key).and_then(|host| host.join("/robots.txt")) {
            Ok(url) => self.follow_robots(url, pause, &mut redirected).await,
            Err(_) => (None, FetchResult::Abandoned),
        };
        let now = self.clock.now_ms();
        let judge = |answer| RobotsVerdict::judge(answer, &self.robots, previous.as_deref(), now);
        let verdict = match &answer.0 {
            Some(Hop::Response(response)) => judge(RobotsAnswer::Response {
                status: response.status.as_u16(),
                body: &response.body,
                truncated: response.truncated.is_some(),
            }),
            Some(Hop::Lost) => judge(RobotsAnswer::RedirectsExceeded),
            None => judge(RobotsAnswer::Unreachable),
        };
        RobotsFetched { verdict, result: answer.1, redirected }
    }

    async fn follow_robots(
        &self,
        mut url: Url,
        pause: Duration,
        redirected: &mut bool,
    ) -> (Option<Hop>, FetchResult) {
        let mut first = None;
        for hop in 0..=robots::MAX_REDIRECTS {
            if hop > 0 {
                *redirected = true;
                tokio::time::sleep(pause).await;
            }
            let mut request = self.request(url.clone(), false);
            request.limits = Limits {
                wire_bytes: robots::BYTE_LIMIT as u64 + 1,
                decoded_bytes: robots::BYTE_LIMIT as u64 + 1,
                ..self.limits
            };
            let exchange = self.fetcher.fetch(request).await;
            // Only the first hop is an answer of the host itself.
            let result =
                *first.get_or_insert_with(|| judge::host_result(&exchange, std::time::SystemTime::now()));
            let Ok(response) = exchange else { return (None, result) };
            match redirect::location(&url, response.status, &response.headers) {
                Ok(Some(target)) => url = target,
                Ok(None) => return (Some(Hop::Response(Box::new(response))), result),
                Err(_) => return (Some(Hop::Lost), result),
            }
        }
        (Some(Hop::Lost), first.unwrap_or(FetchResult::Abandoned))
    }
}

/// What asking for a robots.txt came to.
pub(crate) struct RobotsFetched {
    pub verdict: RobotsVerdict,
    /// What it shows of the host.
    pub result: FetchResult,
    /// Whether further requests followed the first.
    pub redirected: bool,
}

enum Hop {
    Response(Box<Fetched>),
    Lost,
}

//! One exchange from beginning to end: the checks before, the deadlines of each phase, the body under its caps. Policy
//! (what to fetch, how often, what to do with a redirect) is the caller's.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{HeaderMap, Method};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};
use url::Url;

use super::body::{Cut, Intake};
use super::config::{ConfigError, Deadlines, FetcherConfig, HttpVersions};
use super::dns::SystemResolver;
use super::exchange::{self, Fetched, Request};
use super::failure::{FailureKind, FetchFailure, classify, walk};
use super::guard::AddressGuard;
use super::names::{Names, Resolve};
use super::phase::{Phase, PhaseLayer, Progress};
use super::timings::Timings;
use super::tls;

/// Header fields of a response that are taken; more make the exchange fail.
const MAX_HEADERS: usize = 256;
/// Size of an HTTP/2 response head that is taken, decompressed, each field counted with 32 bytes more (RFC 9113 6.5.2).
const MAX_HEADER_LIST: u32 = 64 * 1024;
/// What an HTTP/2 server may send ahead of being read, per stream and per connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// A quiet HTTP/2 connection with requests on it is asked for a sign of life this often, and is given up after this long.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Fetches over HTTP/1.1 and HTTP/2. Keeps connections open between fetches. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    shared: Arc<Shared>,
}

struct Shared {
    client: reqwest::Client,
    guard: AddressGuard,
    headers: HeaderMap,
    via_proxy: bool,
    large_bodies: Arc<Semaphore>,
}

/// Bodies over [`LARGE_BODY`] that are in memory at the same time; further ones wait for their turn, which counts against
/// none of their deadlines. It bounds memory whatever the servers send: with the default caps to some 300 MiB.
pub const LARGE_BODIES: usize = 8;
/// Bytes, as received or decoded, from which on a body is large.
const LARGE_BODY: u64 = 1 << 20;

impl Fetcher {
    /// Sets up a fetcher; nothing is sent yet, and no name server is looked for.
    ///
    /// # Errors
    /// Names the part of the configuration that is not usable.
    pub fn new(config: FetcherConfig) -> Result<Self, ConfigError> {
        let guard = AddressGuard::new(config.allow_nets);
        let headers = default_headers(&config.user_agent, config.headers)?;
        let resolver: Arc<dyn Resolve> = match config.resolver {
            Some(resolver) => resolver,
            None => Arc::new(SystemResolver::new(config.dns.clone())),
        };
        let (proxy, proxy_host) = match &config.proxy {
            Some(url) => {
                let (proxy, host) = proxy(url)?;
                (Some(proxy), Some(host))
            }
            None => (None, None),
        };
        let via_proxy = proxy.is_some();
        let names =
            Names::new(config.static_names, resolver, guard.clone(), proxy_host, config.dns.concurrency);
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client_config(config.ca_pem.as_deref(), config.http)?)
            .dns_resolver(Arc::new(names))
            .connector_layer(PhaseLayer)
            .connect_timeout(config.connect_bound)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // Else the proxies of the environment are used.
            .no_proxy()
            .tcp_nodelay(true)
            .pool_max_idle_per_host(config.idle_per_host)
            .pool_idle_timeout(config.idle_timeout)
            .http1_max_headers(MAX_HEADERS)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .http1_ignore_invalid_headers_in_responses(true)
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http2_max_header_list_size(MAX_HEADER_LIST)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT);
        builder = match config.http {
            HttpVersions::Auto => builder,
            HttpVersions::Http1 => builder.http1_only(),
            HttpVersions::Http2 => builder.http2_prior_knowledge(),
        };
        if let Some(proxy) = proxy {
            builder = builder.proxy(proxy);
        }
        let large_bodies = Arc::new(Semaphore::new(LARGE_BODIES));
        let client = builder.build().map_err(|error| ConfigError::Client(error.to_string()))?;
        Ok(Self { shared: Arc::new(Shared { client, guard, headers, via_proxy, large_bodies }) })
    }

    /// Makes one exchange: one hop, no redirect is followed, and no failed one is tried again, but for one case: if a
    /// kept connection turns out to be closed by the server before any answer, the request is sent once more, as RFC
    /// 9112 9.3.1 lets idempotent requests be.
    ///
    /// Dropping the future ends the exchange. A user name and a password in the URL are not sent.
    ///
    /// # Errors
    /// There is no response, or its body did not arrive in time. A body that is cut by a cap, or broken, is no failure:
    /// see [`Fetched::truncated`].
    pub async fn fetch(&self, request: Request) -> Result<Fetched, FetchFailure> {
        let started = Instant::now();
        let Request { method, mut url, headers, conditional, deadlines, limits, keep_wire } = request;
        let fail =
            |kind: FailureKind, message: String, timings: Timings| FetchFailure { kind, message, timings };
        if let Err(refused) = self.shared.guard.check_url(&url) {
            return Err(fail(refused.kind(), refused.to_string(), Timings::default()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            // Both only fail for URLs without a host, which have been refused.
            let _ = url.set_username("");
            let _ = url.set_password(None);
        }
        let headers = exchange::request_headers(&self.shared.headers, headers, conditional.as_ref())
            .map_err(|message| fail(FailureKind::InvalidRequest, message, Timings::default()))?;
        let request_head = keep_wire.then(|| exchange::request_head(&method, &url, &headers));

        let mut sleep = std::pin::pin!(sleep_until(started + deadlines.first_byte.min(deadlines.total)));
        let mut progress = Progress::new(started);
        let mut head =
            self.head(&method, &url, &headers, &deadlines, started, &progress, sleep.as_mut()).await;
        if matches!(head, Err((FailureKind::Reset, _)))
            && !progress.opened()
            && progress.phase().0 == Phase::Waiting
        {
            progress = Progress::new(Instant::now());
            head = self.head(&method, &url, &headers, &deadlines, started, &progress, sleep.as_mut()).await;
        }
        let mut response = head.map_err(|(kind, message)| {
            fail(kind, format!("{message} ({})", exchange::shown(&url)), progress.timings(started))
        })?;
        let mut timings = progress.timings(started);
        timings.first_byte = Some(progress.phase().1.elapsed());

        let remote_addr = response.remote_addr();
        if !self.shared.via_proxy
            && let Some(Err(refused)) = remote_addr.map(|addr| self.shared.guard.check(addr.ip()))
        {
            return Err(fail(FailureKind::RefusedAddress, refused.to_string(), timings));
        }
        let response_head = keep_wire.then(|| exchange::response_head(&response));
        let (status, version) = (response.status(), response.version());
        let headers = std::mem::take(response.headers_mut());
        let length = response.content_length();
        let mut intake = Intake::new(&headers, limits, keep_wire, length);
        let mut room = Room { places: &self.shared.large_bodies, taken: None };
        let cut = read_body(response, &mut intake, &mut room, &deadlines, started, sleep.as_mut()).await;
        timings.total = started.elapsed();
        let cut = cut.map_err(|kind| {
            let message =
                format!("after {} bytes of the body ({})", intake.wire_bytes(), exchange::shown(&url));
            fail(kind, message, timings)
        })?;
        let taken = intake.finish(cut);
        Ok(Fetched {
            status,
            version,
            headers,
            decoded_bytes: taken.body.len() as u64,
            body: taken.body,
            wire: taken.wire,
            wire_bytes: taken.wire_bytes,
            encodings: taken.codings,
            truncated: taken.cut,
            timings,
            remote_addr,
            tls: progress.take_tls(),
            request_head,
            response_head,
            room: room.taken.map(Arc::new),
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the state of one exchange, used in two places")]
    async fn head(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        deadlines: &Deadlines,
        started: Instant,
        progress: &Arc<Progress>,
        sleep: Pin<&mut Sleep>,
    ) -> Result<reqwest::Response, (FailureKind, String)> {
        let mut request = reqwest::Request::new(method.clone(), url.clone());
        *request.headers_mut() = headers.clone();
        let mut sending = std::pin::pin!(self.shared.client.execute(request));
        let end = started + deadlines.total;
        let due = |now: Instant| {
            let (phase, since) = progress.phase();
            let (limit, kind) = match phase {
                Phase::Dns => (deadlines.dns, FailureKind::DnsTimeout),
                Phase::Connect => (deadlines.connect, FailureKind::ConnectTimeout),
                Phase::Tls => (deadlines.tls, FailureKind::TlsTimeout),
                Phase::Waiting => (deadlines.first_byte, FailureKind::FirstByteTimeout),
            };
            earliest(now, [(since + limit, kind), (end, FailureKind::TotalTimeout)])
        };
        let sent = within(sleep, due, |cx| progress.poll(|| sending.as_mut().poll(cx)))
            .await
            .map_err(|kind| (kind, format!("{} took too long", name_of(progress.phase().0))))?;
        sent.map_err(|error| {
            let (phase, _) = progress.phase();
            classify(&error, phase, self.shared.via_proxy)
        })
    }
}

fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Dns => "resolving the name",
        Phase::Connect => "connecting",
        Phase::Tls => "the TLS handshake",
        Phase::Waiting => "the response",
    }
}

/// A large body's place in memory.
struct Room<'a> {
    places: &'a Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

impl Room<'_> {
    /// Waits for a place and returns how long that took. It ends: whoever has a place has deadlines.
    async fn wait(&mut self) -> Duration {
        let since = Instant::now();
        // It is never closed; if it were, there would be no bound to keep.
        self.taken = self.places.clone().acquire_owned().await.ok();
        since.elapsed()
    }
}

/// Reads the body to its end or to a cap. `Ok(Some)`: it ended too early or is broken.
async fn read_body(
    mut response: reqwest::Response,
    intake: &mut Intake,
    room: &mut Room<'_>,
    deadlines: &Deadlines,
    started: Instant,
    mut sleep: Pin<&mut Sleep>,
) -> Result<Option<Cut>, FailureKind> {
    let mut end = started + deadlines.total;
    let mut last = Instant::now();
    let mut window_end = last;
    let mut window_bytes = 0;
    if let Some(rate) = deadlines.min_rate {
        window_end += rate.window;
    }
    loop {
        let received = intake.wire_bytes();
        let due = |now: Instant| {
            let next = earliest(
                now,
                [(last + deadlines.idle, FailureKind::IdleTimeout), (end, FailureKind::TotalTimeout)],
            )?;
            let Some(rate) = deadlines.min_rate else { return Ok(next) };
            if now >= window_end {
                if received - window_bytes < rate.bytes {
                    return Err(FailureKind::TooSlow);
                }
                window_bytes = received;
                window_end = now + rate.window;
            }
            Ok(next.min(window_end))
        };
        let mut chunk = std::pin::pin!(response.chunk());
        match within(sleep.as_mut(), due, |cx| chunk.as_mut().poll(cx)).await? {
            Ok(Some(bytes)) => {
                if !intake.push(bytes) {
                    return Ok(None);
                }
                if intake.held_bytes() > LARGE_BODY && room.taken.is_none() {
                    // Our own waiting is not the server's slowness.
                    let waited = room.wait().await;
                    end += waited;
                    window_end += waited;
                }
            }
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(cut_of(&error))),
        }
        last = Instant::now();
    }
}

/// Polls until there is a result or `due` fails. `due` says when it must be asked again at the latest; it is not asked
/// more often than the polling goes on, so that a body that flows costs no timer operations.
async fn within<T>(
    mut sleep: Pin<&mut Sleep>,
    mut due: impl FnMut(Instant) -> Result<Instant, FailureKind>,
    mut poll: impl FnMut(&mut std::task::Context<'_>) -> Poll<T>,
) -> Result<T, FailureKind> {
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = poll(cx) {
            return Poll::Ready(Ok(value));
        }
        let mut next = match due(Instant::now()) {
            Ok(next) => next,
            Err(kind) => return Poll::Ready(Err(kind)),
        };
        loop {
            if next < sleep.deadline() || sleep.is_elapsed() {
                sleep.as_mut().reset(next);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            next = match due(Instant::now()) {
                Ok(next) => next,
                Err(kind) => return Poll::Ready(Err(kind)),
            };
        }
    })
    .await
}

fn earliest(now: Instant, ends: [(Instant, FailureKind); 2]) -> Result<Instant, FailureKind> {
    let [(first, _), (second, _)] = ends;
    match ends.into_iter().find(|(end, _)| *end <= now) {
        Some((_, kind)) => Err(kind),
        None => Ok(first.min(second)),
    }
}

/// What an error while reading the body says about the body.
fn cut_of(error: &reqwest::Error) -> Cut {
    let mut cut = Cut::Incomplete;
    walk(error, &mut |error| {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            use std::io::ErrorKind as K;
            if matches!(error.kind(), K::InvalidInput | K::InvalidData) && error.raw_os_error().is_none() {
                cut = Cut::Framing;
            }
        }
        if let Some(error) = error.downcast_ref::<h2::Error>()
            && error.reason() == Some(h2::Reason::PROTOCOL_ERROR)
        {
            cut = Cut::Framing;
        }
    });
    cut
}

fn default_headers(user_agent: &str, mut headers: HeaderMap) -> Result<HeaderMap, ConfigError> {
    let agent =
        HeaderValue::from_str(user_agent).map_err(|_| ConfigError::UserAgent(user_agent.to_owned()))?;
    headers.insert(header::USER_AGENT, agent);
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static(
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    ));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate, br, zstd"));
    Ok(headers)
}

/// The proxy, and its name as the resolver will see it.
fn proxy(url: &Url) -> Result<(reqwest::Proxy, String), ConfigError> {
    // No password in the message.
    let bad = || ConfigError::Proxy(format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default()));
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(bad)?;
    if !matches!(url.scheme(), "http" | "https" | "socks5h") {
        return Err(bad());
    }
    let proxy = reqwest::Proxy::all(url.as_str()).map_err(|_| bad())?;
    Ok((proxy, host.to_ascii_lowercase()))
}

//! One visit of a URL, from the request to the result that can be finished: fetch, meaning, content, record. A shell
//! around [`super::judge`] and [`super::harvest`].

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use bytes::Bytes;
use dolomedes_netproto::fetch::{Cut, FetchFailure, Fetched};
use dolomedes_raft::command::{NewMessage, Outcome};
use http::Version;
use tracing::Instrument as _;
use url::Url;

use super::{
    finish::Recorded,
    harvest::harvest,
    judge::{self, Meaning},
    request::Requester,
    rules::{LinkVerdict, Rules},
    stats::Stats,
    task::{MAX_HOPS, TaskKind},
    watch::Watch,
    window::Work,
};
use crate::{
    clock::Clock,
    politeness::FetchResult,
    record::{Exchange, PageRecord, Timings, Truncated, millis, rfc3339_ms},
    totals::Class,
    trap::{HostTraps, Suspicion},
};

/// Bodies up to this size are read where they were received; larger ones would hold up the other requests of the thread
/// and go to a thread of their own.
const INLINE_BODY: usize = 256 << 10;
/// Hosts whose URL statistics are kept; one more makes all begin anew, which only makes the trap defence more lenient.
const TRAP_HOSTS: usize = 4_096;

/// Attempts of a page that keeps ending too early, before what there is of it is taken. A connection that broke is worth
/// another try; a server that is wrong about its lengths is so every time, and browsers show such pages.
const INCOMPLETE_ATTEMPTS: u32 = 3;

/// What a visit came to.
pub(super) struct Visited {
    pub outcome: Outcome,
    pub outlinks: Vec<NewMessage>,
    pub record: Option<Recorded>,
    /// What it shows of the host; `None`: no request was made.
    pub host: Option<FetchResult>,
}

impl Visited {
    /// A visit that was broken off because the crawl stops.
    pub(super) fn given_back() -> Self {
        let outcome = Outcome::Retry { after_ms: 0, reason: "given_back".into(), free: true };
        Self { outcome, outlinks: Vec::new(), record: None, host: Some(FetchResult::Abandoned) }
    }
}

/// What visits share.
pub(super) struct Visitor {
    pub requester: Requester,
    pub rules: Arc<Rules>,
    pub watch: Arc<Watch>,
    pub clock: Clock,
    pub job: String,
    pub max_attempts: u32,
    pub retry_delay_ms: u64,
    pub traps: Mutex<std::collections::HashMap<String, HostTraps>>,
}

impl Visitor {
    /// Visits the URL of `work`.
    pub(super) async fn visit(&self, work: Work) -> Visited {
        let mut record = self.blank_record(&work);
        // Sitemaps and second attempts are no new URLs of the site.
        let counts = work.attempt == 1 && work.task.kind == TaskKind::Page;
        if let Some(suspicion) = counts.then(|| self.suspect(&work.url)).flatten() {
            record.notes.push(suspicion.to_string());
            let refused = self.refuse(&work, record, "trap");
            return Visited { host: Some(FetchResult::Abandoned), ..refused };
        }
        let trace_id = record.trace_id.clone();
        let span = tracing::debug_span!("http.request", trace_id, url = %work.url, attempt = work.attempt);
        async {
            let download = tracing::debug_span!("http.download");
            let (exchange, cookies_changed) = self.requester.get(&work.url).instrument(download).await;
            let host = Some(judge::host_result(&exchange, SystemTime::now()));
            let meaning = judge::meaning(&work.url, &exchange);
            describe(&mut record, &exchange);
            if let Ok(response) = &exchange {
                Stats::add(&self.watch.stats.bytes_wire, response.wire_bytes);
                Stats::add(&self.watch.stats.bytes_decoded, response.decoded_bytes);
            }
            let visited = match meaning {
                Meaning::Page => self.page(&work, record, exchange).await,
                Meaning::Incomplete if work.failures + 1 < self.max_attempts.min(INCOMPLETE_ATTEMPTS) => {
                    self.retry(&work, record, exchange, Cut::Incomplete.as_str().into())
                }
                Meaning::Incomplete => self.page(&work, record, exchange).await,
                Meaning::Redirect(target) => self.redirect(&work, record, exchange, target, cookies_changed),
                Meaning::BrokenRedirect(word) => {
                    self.settle(&work, record, exchange, "failed", Some(word.into()))
                }
                Meaning::Retry(reason) => self.retry(&work, record, exchange, reason),
                // Not sent at all, by a guard of our own, or refused for good.
                Meaning::Failed(word) => self.lost(&work, record, exchange, "refused", word.into()),
            };
            Visited { host, ..visited }
        }
        .instrument(span)
        .await
    }

    /// Settles a URL that is not to be requested, because of robots.txt or of its host.
    pub(super) fn settle_unvisited(&self, work: Work, reason: &'static str) -> Visited {
        let record = self.blank_record(&work);
        match reason {
            "robots" => self.refuse(&work, record, reason),
            _ => self.give_up(&work, record, None, "failed", reason.into()),
        }
    }

    fn blank_record(&self, work: &Work) -> PageRecord {
        let task = &work.task;
        PageRecord {
            url: task.url.clone(),
            attempt: work.attempt,
            depth: task.depth,
            hops: u32::try_from(task.via.len()).unwrap_or(u32::MAX),
            referrer: task.referrer.clone(),
            fetched_at: rfc3339_ms(self.clock.now_ms()),
            job: self.job.clone(),
            trace_id: format!("{:032x}", self.rules.fingerprint(&task.url)),
            ..PageRecord::default()
        }
    }

    fn suspect(&self, url: &Url) -> Option<Suspicion> {
        let mut traps = self.traps.lock().unwrap_or_else(PoisonError::into_inner);
        let host = crate::url::host_key::host_key(url);
        if !traps.contains_key(host.as_ref()) && traps.len() >= TRAP_HOSTS {
            traps.clear();
        }
        match traps.get_mut(host.as_ref()) {
            Some(host) => host.on_fetch(url, &self.rules.traps),
            None => traps.entry(host.into_owned()).or_default().on_fetch(url, &self.rules.traps),
        }
    }

    fn content_seen(&self, url: &Url, digest: &str) {
        let mut traps = self.traps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = traps.get_mut(crate::url::host_key::host_key(url).as_ref()) {
            host.on_content(url, xxhash_rust::xxh3::xxh3_64(digest.as_bytes()));
        }
    }

    async fn page(
        &self,
        work: &Work,
        mut record: PageRecord,
        exchange: Result<Fetched, FetchFailure>,
    ) -> Visited {
        let response = match exchange {
            Ok(response) => response,
            Err(_) => return self.lost(work, record, exchange, "failed", "protocol".into()),
        };
        let inline = response.body.len() <= INLINE_BODY;
        let read = |response: &Fetched, record: &mut PageRecord| {
            let _span = tracing::debug_span!("html.parse", bytes = response.body.len()).entered();
            harvest(&self.rules, &work.url, &work.task, response, record)
        };
        let outlinks = if inline {
            read(&response, &mut record)
        } else {
            tokio::task::block_in_place(|| read(&response, &mut record))
        };
        if let Some(digest) = record.digest.as_deref().filter(|_| work.task.kind == TaskKind::Page) {
            self.content_seen(&work.url, digest);
        }
        let status = response.status;
        let error = (!status.is_success() && status != http::StatusCode::NOT_MODIFIED)
            .then(|| Cow::from(format!("status_{}", status.as_u16())));
        let outcome = if work.task.kind == TaskKind::Page { "fetched" } else { "sitemap" };
        let mut visited = self.settle(work, record, Ok(response), outcome, error);
        visited.outlinks = outlinks;
        visited
    }

    fn redirect(
        &self,
        work: &Work,
        mut record: PageRecord,
        exchange: Result<Fetched, FetchFailure>,
        target: Url,
        cookies_changed: bool,
    ) -> Visited {
        let task = &work.task;
        let (url, verdict) = match self.rules.judge_redirect(target, task) {
            Ok(judged) => judged,
            Err(error) => {
                record.notes.push(error.to_string());
                return self.settle(work, record, exchange, "failed", Some("redirect_invalid".into()));
            }
        };
        let to_itself = url.as_str() == task.url;
        if to_itself && cookies_changed && work.failures + 1 < self.max_attempts {
            // The usual cookie check: the same URL again, now with the cookie.
            let outcome = Outcome::Retry { after_ms: 0, reason: "cookie".into(), free: false };
            return Visited { outcome, outlinks: Vec::new(), record: None, host: None };
        }
        let identity = self.rules.fingerprint(url.as_str());
        record.redirect_to = Some(url.into());
        if to_itself || task.via.contains(&identity) {
            return self.settle(work, record, exchange, "failed", Some("redirect_loop".into()));
        }
        if task.via.len() >= MAX_HOPS {
            return self.settle(work, record, exchange, "failed", Some("too_many_redirects".into()));
        }
        let mut outlinks = Vec::new();
        match verdict {
            LinkVerdict::New(message) => {
                record.links.followed += 1;
                outlinks.push(message);
            }
            LinkVerdict::OutOfScope => {
                record.links.out_of_scope += 1;
                if task.referrer.is_none() {
                    record
                        .notes
                        .push("the redirect leaves the crawl's scope; name its target as a URL, too".into());
                }
            }
            LinkVerdict::Known | LinkVerdict::Trap(_) | LinkVerdict::Unusable => {}
        }
        let mut visited = self.settle(work, record, exchange, "redirected", None);
        visited.outlinks = outlinks;
        visited
    }

    /// Another attempt, or, after the last one, the end.
    fn retry(
        &self,
        work: &Work,
        record: PageRecord,
        exchange: Result<Fetched, FetchFailure>,
        reason: String,
    ) -> Visited {
        self.watch.stats.error(&reason);
        if work.failures + 1 >= self.max_attempts {
            return self.lost(work, record, exchange, "failed", reason.into());
        }
        Stats::add(&self.watch.stats.retries, 1);
        let salt = self.rules.fingerprint(&work.task.url) as u64;
        let after_ms = judge::retry_delay_ms(self.retry_delay_ms, work.failures, salt);
        let outcome = Outcome::Retry { after_ms, reason, free: false };
        Visited { outcome, outlinks: Vec::new(), record: None, host: None }
    }

    /// The end of a URL that was requested and answered, or leads nowhere.
    fn settle(
        &self,
        work: &Work,
        record: PageRecord,
        exchange: Result<Fetched, FetchFailure>,
        outcome: &'static str,
        error: Option<Cow<'static, str>>,
    ) -> Visited {
        let is_page = outcome == "fetched";
        if let Some(error) = error.as_deref().filter(|_| outcome != "sitemap") {
            self.watch.stats.error(error);
        }
        if is_page {
            Stats::add(&self.watch.stats.pages, 1);
            Stats::add(&self.watch.stats.ok, u64::from(error.is_none()));
        }
        let done = Outcome::Done { units: u32::from(is_page), bytes: record.bytes_decoded };
        self.recorded(work, record, exchange.ok(), outcome, error, done)
    }

    fn refuse(&self, work: &Work, record: PageRecord, word: &'static str) -> Visited {
        self.watch.stats.error(word);
        let done = Outcome::Done { units: 0, bytes: 0 };
        self.recorded(work, record, None, "refused", Some(word.into()), done)
    }

    /// Gives a URL up after an exchange.
    fn lost(
        &self,
        work: &Work,
        mut record: PageRecord,
        exchange: Result<Fetched, FetchFailure>,
        outcome: &'static str,
        word: Cow<'static, str>,
    ) -> Visited {
        let response = match exchange {
            Ok(response) => Some(response),
            Err(failure) => {
                record.notes.push(failure.message);
                None
            }
        };
        self.give_up(work, record, response, outcome, word)
    }

    fn give_up(
        &self,
        work: &Work,
        record: PageRecord,
        response: Option<Fetched>,
        outcome: &'static str,
        word: Cow<'static, str>,
    ) -> Visited {
        Stats::add(&self.watch.stats.failed, 1);
        let dead = Outcome::Dead { reason: word.to_string(), units: 0, bytes: 0 };
        self.recorded(work, record, response, outcome, Some(word), dead)
    }

    fn recorded(
        &self,
        work: &Work,
        mut record: PageRecord,
        response: Option<Fetched>,
        outcome: &'static str,
        error: Option<Cow<'static, str>>,
        result: Outcome,
    ) -> Visited {
        let class = match (outcome, &error) {
            ("fetched", None) => Class::Ok,
            ("fetched", Some(_)) => Class::ErrorStatus,
            ("redirected", _) => Class::Redirect,
            ("refused", _) => Class::Refused,
            ("sitemap", _) => Class::Sitemap,
            _ => Class::Failed,
        };
        record.outcome = outcome.into();
        record.error = error;
        let line = match record.to_line() {
            Ok(line) => line,
            Err(reason) => {
                tracing::error!(url = record.url, %reason, "a record cannot be written as JSON");
                let reduced =
                    PageRecord { url: record.url.clone(), outcome: "failed".into(), ..PageRecord::default() };
                reduced.to_line().unwrap_or_default()
            }
        };
        let _room = response.as_ref().and_then(|response| response.room.clone());
        let exchange = response.and_then(|response| self.exchange(work, &record, response));
        let recorded = Recorded { class, line: Bytes::from(line), exchange, _room };
        Visited { outcome: result, outlinks: Vec::new(), record: Some(recorded), host: None }
    }

    /// What an archive keeps, if it is wanted.
    fn exchange(&self, work: &Work, record: &PageRecord, response: Fetched) -> Option<Exchange> {
        let protocol = response.protocol().to_owned();
        let tls = response.tls.as_ref().and_then(|tls| tls.version).and_then(|version| match version {
            "TLSv1.2" => Some("tls/1.2".to_owned()),
            "TLSv1.3" => Some("tls/1.3".to_owned()),
            _ => None,
        });
        Some(Exchange {
            url: work.task.url.clone(),
            fetched_at_ms: self
                .clock
                .now_ms()
                .saturating_sub(u64::try_from(response.timings.total.as_millis()).unwrap_or(0)),
            took_ms: u64::try_from(response.timings.total.as_millis()).unwrap_or(u64::MAX),
            remote_ip: response.remote_addr.map(|address| address.ip()),
            protocols: std::iter::once(protocol).chain(tls).collect(),
            request_head: response.request_head?,
            response_head: response.response_head?,
            body: response.wire?,
            truncated: response.truncated.map(|cut| match cut {
                Cut::WireSize | Cut::DecodedSize | Cut::Ratio => Truncated::Length,
                Cut::Incomplete => Truncated::Disconnect,
                _ => Truncated::Unspecified,
            }),
            decoded_digest: record.digest.clone(),
            via: work.task.referrer.clone(),
            depth: work.task.depth,
        })
    }
}

/// Fills in what the exchange itself shows.
fn describe(record: &mut PageRecord, exchange: &Result<Fetched, FetchFailure>) {
    let timings = match exchange {
        Ok(response) => {
            record.status = Some(response.status.as_u16());
            record.protocol = Some(Cow::Borrowed(match response.version {
                Version::HTTP_2 => "HTTP/2",
                Version::HTTP_10 => "HTTP/1.0",
                _ => "HTTP/1.1",
            }));
            record.bytes_wire = response.wire_bytes;
            record.bytes_decoded = response.decoded_bytes;
            record.truncated = response.truncated.is_some();
            record.cap = response.truncated.map(|cut| cut.as_str().into());
            record.remote_addr = response.remote_addr.map(|address| address.to_string());
            &response.timings
        }
        Err(failure) => &failure.timings,
    };
    record.timings = Timings {
        dns: timings.dns.map(millis),
        connect: timings.connect.map(millis),
        tls: timings.tls.map(millis),
        first_byte: timings.first_byte.map(millis),
        total: Some(millis(timings.total)),
    };
}

//! What a crawl writes down about a URL: the line of pages.jsonl ([`PageRecord`]) and the envelope in which it lies in the
//! spool ([`Envelope`]), together with what a WARC needs ([`Exchange`]) and with what is needed to hand its completion in
//! again after a crash. Bytes only; where they go is the business of [`crate::sink`].

use std::{borrow::Cow, net::IpAddr, time::Duration};

use bytes::Bytes;
use dolomedes_raft::command::{
    Completion, Consumer, LeaseRef, MessageId, MessageResult, Outcome, Pace, QueueId,
};
use dolomedes_storage::codec::{DecodeError, Decoder, Encoder};
use serde::{Deserialize, Serialize};

use crate::totals::Class;

/// A short stable word that scripts may compare.
pub type Word = Cow<'static, str>;

/// One line of pages.jsonl. Keys are always present; what is not known is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageRecord {
    /// The canonical URL that was asked for.
    pub url: String,
    /// HTTP status; null where there was no response.
    pub status: Option<u16>,
    /// What became of the URL in the end: `fetched`, `redirected`, `failed`, `refused_robots`, `skipped` …
    pub outcome: Word,
    /// Why it failed, a short stable word; null if it did not.
    pub error: Option<Word>,
    /// 1 for the first try.
    pub attempt: u32,
    /// Links between it and a seed.
    pub depth: u32,
    /// Redirects between it and the link that led here.
    pub hops: u32,
    /// Text of the first title element, white space collapsed.
    pub title: Option<String>,
    /// As the server said, without parameters, in lower case.
    pub content_type: Option<String>,
    /// WHATWG name of the encoding that the page was decoded with.
    pub charset: Option<String>,
    /// Language that the page declares.
    pub lang: Option<String>,
    /// URL that the page names as its canonical one.
    pub canonical: Option<String>,
    /// `HTTP/1.1`, `HTTP/2` …
    pub protocol: Option<Word>,
    /// `blake3:` and the hexadecimal digest of the decoded body.
    pub digest: Option<String>,
    /// Target of the redirect.
    pub redirect_to: Option<String>,
    /// Body bytes received, content codings in place.
    pub bytes_wire: u64,
    /// Body bytes after content codings were undone.
    pub bytes_decoded: u64,
    /// Whether less than the whole body was taken.
    pub truncated: bool,
    /// The limit that was reached, a short stable word.
    pub cap: Option<Word>,
    /// Where the time went.
    pub timings: Timings,
    /// What was found in it.
    pub links: LinkCounts,
    /// What the page asks of robots.
    pub robots: RobotsFlags,
    /// Header `etag`.
    pub etag: Option<String>,
    /// Header `last-modified`.
    pub last_modified: Option<String>,
    /// Anything else worth telling a person, such as `trap suspected: …`.
    pub notes: Vec<String>,
    /// URL of the page with the first link to it; null for seeds.
    pub referrer: Option<String>,
    /// Address and port of the server.
    pub remote_addr: Option<String>,
    /// When the request began, RFC 3339 in UTC with milliseconds; see [`rfc3339_ms`].
    pub fetched_at: String,
    /// Name of the job.
    pub job: String,
    /// 32 hexadecimal digits, the same for every try of a URL.
    pub trace_id: String,
}

/// Milliseconds spent on each phase; null where it did not happen (a reused connection has no `connect`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Name look-up.
    pub dns: Option<f64>,
    /// TCP connect.
    pub connect: Option<f64>,
    /// TLS handshake.
    pub tls: Option<f64>,
    /// Request sent to first byte of the response.
    pub first_byte: Option<f64>,
    /// All of it.
    pub total: Option<f64>,
}

/// A duration as [`Timings`] have it: milliseconds with three decimals.
pub fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

/// Links of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounts {
    /// All links.
    pub found: u32,
    /// Those handed to the frontier.
    pub followed: u32,
    /// Left out because the page or the link says nofollow.
    pub nofollow: u32,
    /// Left out by scope or patterns.
    pub out_of_scope: u32,
    /// Left out by the trap defence.
    pub trap: u32,
}

/// What meta robots and X-Robots-Tag say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RobotsFlags {
    /// `noindex` or `none`.
    pub noindex: bool,
    /// `nofollow` or `none`.
    pub nofollow: bool,
    /// `noarchive`.
    pub noarchive: bool,
}

impl PageRecord {
    /// The line, without its line feed. Made once, when the record goes into the spool.
    pub fn to_line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = Vec::with_capacity(1024);
        serde_json::to_writer(&mut line, self)?;
        Ok(line)
    }
}

/// The value of [`PageRecord::digest`] for a decoded body.
pub fn blake3_digest(body: &[u8]) -> String {
    format!("blake3:{}", blake3::hash(body).to_hex())
}

/// Milliseconds since the UNIX epoch as RFC 3339 (2006-01-02T15:04:05.678Z).
pub fn rfc3339_ms(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The Gregorian date so many days after 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A record as it lies in the spool: everything that its completion and its sinks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The queue of the job.
    pub queue: QueueId,
    /// The incarnation that did the work.
    pub consumer: Consumer,
    /// The lease that it worked under.
    pub lease: LeaseRef,
    /// The message that was worked off.
    pub message: MessageId,
    /// Its attempt, from 1.
    pub attempt: u32,
    /// What the record counts as.
    pub class: Class,
    /// What was, or would have been, reported of it.
    pub outcome: Outcome,
    /// What was learnt about the host.
    pub pace: Option<Pace>,
    /// The line of pages.jsonl, without its line feed.
    pub line: Bytes,
    /// What went over the wire, if it is to be archived.
    pub exchange: Option<Exchange>,
}

/// One HTTP exchange as a WARC describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The URL asked for.
    pub url: String,
    /// When the request began, milliseconds since the UNIX epoch.
    pub fetched_at_ms: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The server.
    pub remote_ip: Option<IpAddr>,
    /// Protocols of the exchange, in the words of the WARC-Protocol proposal: `h2`, `http/1.1`, `tls/1.3`.
    pub protocols: Vec<String>,
    /// Request line and headers, made by [`crate::sink::request_head`].
    pub request_head: Bytes,
    /// Status line and headers, made by [`crate::sink::response_head`].
    pub response_head: Bytes,
    /// The body as received: transfer codings undone, content codings in place.
    pub body: Bytes,
    /// Why the body is not whole.
    pub truncated: Option<Truncated>,
    /// [`PageRecord::digest`].
    pub decoded_digest: Option<String>,
    /// URL of the page that led here.
    pub via: Option<String>,
    /// Links between it and a seed.
    pub depth: u32,
}

/// Reasons of a partial body, as WARC 1.1 section 5.13 words them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncated {
    /// A limit on its size.
    Length,
    /// A limit on its time.
    Time,
    /// The connection ended early.
    Disconnect,
    /// Another one.
    Unspecified,
}

impl Truncated {
    /// The value of WARC-Truncated.
    pub fn word(self) -> &'static str {
        match self {
            Truncated::Length => "length",
            Truncated::Time => "time",
            Truncated::Disconnect => "disconnect",
            Truncated::Unspecified => "unspecified",
        }
    }
}

const FORMAT: u8 = 1;

impl Envelope {
    /// What to hand in, for the record with sequence number `sequence`, if its completion was never judged.
    pub fn completion(&self, sequence: u64) -> Completion {
        let result = MessageResult { id: self.message, outcome: self.outcome.clone(), sequence };
        Completion {
            lease: self.lease.clone(),
            results: vec![result],
            pace: self.pace.clone(),
            release: false,
        }
    }

    /// The bytes of the spool record.
    pub fn encode(&self) -> Vec<u8> {
        let archived = self
            .exchange
            .as_ref()
            .map_or(0, |it| it.body.len() + it.request_head.len() + it.response_head.len() + it.url.len());
        let mut out = Encoder::with_capacity(256 + self.line.len() + archived);
        out.u8(FORMAT).uint(self.queue).uint(self.consumer.node).uint(self.consumer.epoch);
        out.bytes(&self.lease.key).uint(self.lease.fence);
        out.uint(self.message.index).uint(self.message.ordinal.into()).uint(self.attempt.into());
        out.u8(self.class.number());
        encode_outcome(&mut out, &self.outcome);
        out.option(self.pace.as_ref(), |out, pace| {
            out.uint(pace.hold_ms).uint(pace.delay_ms);
            out.option(pace.note.as_ref(), |out, note| {
                out.bytes(note);
            });
        });
        out.bytes(&self.line);
        out.option(self.exchange.as_ref(), encode_exchange);
        out.finish()
    }

    /// Reads the bytes of a spool record. Shares them; nothing large is copied.
    pub fn decode(bytes: &Bytes) -> dolomedes_storage::Result<Self> {
        if let Some(&found) = bytes.first()
            && found > FORMAT
        {
            return Err(dolomedes_storage::Error::UnknownFormat {
                place: "a record of the spool".into(),
                found: found.into(),
                known: FORMAT.into(),
            });
        }
        Ok(Self::decode_current(bytes)?)
    }

    fn decode_current(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut from = Decoder::new("spool record", bytes);
        if from.u8()? != FORMAT {
            return Err(from.error("there is no such format"));
        }
        let share = |part: &[u8]| bytes.slice_ref(part);
        let envelope = Self {
            queue: from.uint()?,
            consumer: Consumer { node: from.uint()?, epoch: from.uint()? },
            lease: LeaseRef { key: share(from.bytes()?), fence: from.uint()? },
            message: MessageId { index: from.uint()?, ordinal: from.uint32()? },
            attempt: from.uint32()?,
            class: Class::from_number(from.u8()?).ok_or_else(|| from.error("there is no such class"))?,
            outcome: decode_outcome(&mut from)?,
            pace: from.option(|from| {
                Ok(Pace {
                    hold_ms: from.uint()?,
                    delay_ms: from.uint()?,
                    note: from.option(|from| Ok(share(from.bytes()?)))?,
                })
            })?,
            line: share(from.bytes()?),
            exchange: from.option(|from| decode_exchange(from, share))?,
        };
        from.finish()?;
        Ok(envelope)
    }
}

fn encode_outcome(out: &mut Encoder, outcome: &Outcome) {
    match outcome {
        Outcome::Done { units, bytes } => out.u8(0).uint((*units).into()).uint(*bytes),
        Outcome::Retry { after_ms, reason, free } => out.u8(1).uint(*after_ms).str(reason).bool(*free),
        Outcome::Dead { reason, units, bytes } => out.u8(2).str(reason).uint((*units).into()).uint(*bytes),
    };
}

fn decode_outcome(from: &mut Decoder<'_>) -> Result<Outcome, DecodeError> {
    Ok(match from.u8()? {
        0 => Outcome::Done { units: from.uint32()?, bytes: from.uint()? },
        1 => Outcome::Retry { after_ms: from.uint()?, reason: from.str()?.to_owned(), free: from.bool()? },
        2 => Outcome::Dead { reason: from.str()?.to_owned(), units: from.uint32()?, bytes: from.uint()? },
        _ => return Err(from.error("there is no such outcome")),
    })
}

fn encode_exchange(out: &mut Encoder, exchange: &Exchange) {
    out.str(&exchange.url).uint(exchange.fetched_at_ms).uint(exchange.took_ms);
    out.option(exchange.remote_ip, |out, ip| {
        match ip {
            IpAddr::V4(ip) => out.bytes(&ip.octets()),
            IpAddr::V6(ip) => out.bytes(&ip.octets()),
        };
    });
    out.list(&exchange.protocols, |out, protocol| {
        out.str(protocol);
    });
    out.bytes(&exchange.request_head).bytes(&exchange.response_head).bytes(&exchange.body);
    out.u8(match exchange.truncated {
        None => 0,
        Some(Truncated::Length) => 1,
        Some(Truncated::Time) => 2,
        Some(Truncated::Disconnect) => 3,
        Some(Truncated::Unspecified) => 4,
    });
    for text in [&exchange.decoded_digest, &exchange.via] {
        out.option(text.as_deref(), |out, text| {
            out.str(text);
        });
    }
    out.uint(exchange.depth.into());
}

fn decode_exchange(from: &mut Decoder<'_>, share: impl Fn(&[u8]) -> Bytes) -> Result<Exchange, DecodeError> {
    Ok(Exchange {
        url: from.str()?.to_owned(),
        fetched_at_ms: from.uint()?,
        took_ms: from.uint()?,
        remote_ip: from.option(|from| {
            let bytes = from.bytes()?;
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
                .map_err(|_| from.error("an address has neither 4 nor 16 bytes"))
        })?,
        protocols: from.list(|from| Ok(from.str()?.to_owned()))?,
        request_head: share(from.bytes()?),
        response_head: share(from.bytes()?),
        body: share(from.bytes()?),
        truncated: match from.u8()? {
            0 => None,
            1 => Some(Truncated::Length),
            2 => Some(Truncated::Time),
            3 => Some(Truncated::Disconnect),
            4 => Some(Truncated::Unspecified),
            _ => return Err(from.error("there is no such reason of truncation")),
        },
        decoded_digest: from.option(|from| Ok(from.str()?.to_owned()))?,
        via: from.option(|from| Ok(from.str()?.to_owned()))?,
        depth: from.uint32()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (1_796_083_200_000, "2026-12-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339_ms(ms), text);
        }
    }

    #[test]
    fn a_line_has_all_keys_and_no_line_feed() {
        let record = PageRecord {
            url: "http://h/\u{7}".into(),
            outcome: "failed".into(),
            title: Some("two\nlines".into()),
            timings: Timings { total: Some(millis(Duration::from_nanos(1_234_567))), ..Timings::default() },
            ..PageRecord::default()
        };
        let line = record.to_line().unwrap();
        assert!(!line.contains(&b'\n'));
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        for key in [
            "url",
            "status",
            "title",
            "depth",
            "content_type",
            "charset",
            "protocol",
            "digest",
            "attempt",
            "error",
            "outcome",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(value["status"], serde_json::Value::Null);
        assert_eq!(value["timings"]["total"], 1.234);
        assert_eq!(serde_json::from_slice::<PageRecord>(&line).unwrap(), record);
    }

    fn outcomes() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            (any::<u32>(), any::<u64>()).prop_map(|(units, bytes)| Outcome::Done { units, bytes }),
            (any::<u64>(), ".*", any::<bool>()).prop_map(|(after_ms, reason, free)| Outcome::Retry {
                after_ms,
                reason,
                free
            }),
            (".*", any::<u32>(), any::<u64>()).prop_map(|(reason, units, bytes)| Outcome::Dead {
                reason,
                units,
                bytes
            }),
        ]
    }

    fn blobs() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..50).prop_map(Bytes::from)
    }

    fn exchanges() -> impl Strategy<Value = Exchange> {
        let truncated = prop::option::of(prop::sample::select(vec![
            Truncated::Length,
            Truncated::Time,
            Truncated::Disconnect,
            Truncated::Unspecified,
        ]));
        let small =
            (".*", any::<u64>(), any::<u64>(), any::<Option<IpAddr>>(), any::<Vec<String>>(), any::<u32>());
        let optional = (any::<Option<String>>(), any::<Option<String>>(), truncated);
        (small, blobs(), blobs(), blobs(), optional).prop_map(
            |(small, request_head, response_head, body, optional)| {
                let (url, fetched_at_ms, took_ms, remote_ip, protocols, depth) = small;
                let (decoded_digest, via, truncated) = optional;
                Exchange {
                    url,
                    fetched_at_ms,
                    took_ms,
                    remote_ip,
                    protocols,
                    request_head,
                    response_head,
                    body,
                    truncated,
                    decoded_digest,
                    via,
                    depth,
                }
            },
        )
    }

    fn envelopes() -> impl Strategy<Value = Envelope> {
        let pace = (any::<u64>(), any::<u64>(), prop::option::of(blobs()))
            .prop_map(|(hold_ms, delay_ms, note)| Pace { hold_ms, delay_ms, note });
        let numbers = (any::<[u64; 5]>(), any::<u32>(), any::<u32>(), 0u8..6);
        (numbers, blobs(), outcomes(), prop::option::of(pace), blobs(), prop::option::of(exchanges()))
            .prop_map(|((numbers, ordinal, attempt, class_number), key, outcome, pace, line, exchange)| {
                Envelope {
                    queue: numbers[0],
                    consumer: Consumer { node: numbers[1], epoch: numbers[2] },
                    lease: LeaseRef { key, fence: numbers[3] },
                    message: MessageId { index: numbers[4], ordinal },
                    attempt,
                    class: Class::from_number(class_number).unwrap(),
                    outcome,
                    pace,
                    line,
                    exchange,
                }
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn envelopes_come_back_as_they_were(envelope in envelopes(), cut in any::<prop::sample::Index>()) {
            let bytes = Bytes::from(envelope.encode());
            prop_assert_eq!(&Envelope::decode(&bytes).unwrap(), &envelope);
            let short = bytes.slice(..cut.index(bytes.len()));
            prop_assert!(Envelope::decode(&short).is_err());
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            bytes.insert(0, FORMAT);
            let _ = Envelope::decode(&Bytes::from(bytes));
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let error = Envelope::decode(&Bytes::from_static(&[9, 1])).unwrap_err();
        assert!(matches!(error, dolomedes_storage::Error::UnknownFormat { found: 9, known: 1, .. }));
    }
}

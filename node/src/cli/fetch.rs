//! `dolomedes fetch`: one URL, with everything that can be seen of it: hops, protocol, TLS, timings, headers, robots verdict.

use std::{io::Write as _, time::Duration};

use anyhow::Context as _;
use clap::Args;
use dolomedes_netproto::fetch::{FetchFailure, Fetched, Timings};
use serde_json::{Value, json};
use url::Url;

use super::{Ending, Usage};
use crate::{
    clock::Clock,
    config::{self, NetworkOptions},
    crawl::{Meaning, Requester, meaning},
    record::{blake3_digest, millis},
    robots::VerdictKind,
    url::host_key::host_key,
};

/// Redirects followed at most.
const MAX_HOPS: usize = 10;

#[derive(Args)]
pub(super) struct FetchArgs {
    /// The URL. Without a scheme, https is assumed
    url: String,
    #[command(flatten)]
    network: NetworkOptions,
    /// Print the decoded body of the last hop instead of what is known about it
    #[arg(long)]
    body: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "body")]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: FetchArgs) -> anyhow::Result<Ending> {
    let url = config::resolve::seed(&args.url).map_err(Usage)?;
    let network = config::resolve::network(&args.network).map_err(Usage)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let requester = Requester::new(&network, false, 2_000, Clock::start())?;
        fetch(&requester, url, &args).await
    })
}

struct Hop {
    url: Url,
    robots: Option<Value>,
    exchange: Result<Fetched, FetchFailure>,
    note: Option<String>,
}

async fn fetch(requester: &Requester, mut url: Url, args: &FetchArgs) -> anyhow::Result<Ending> {
    let mut hops: Vec<Hop> = Vec::new();
    let mut host = String::new();
    loop {
        let key = host_key(&url).into_owned();
        let robots = if key == host || args.body {
            None
        } else {
            let verdict = requester.robots(&key, None, Duration::ZERO).await.verdict;
            let kind = match verdict.kind() {
                VerdictKind::Rules => "rules",
                VerdictKind::Unavailable => "no robots.txt",
                VerdictKind::Forbidden => "robots.txt is forbidden",
                VerdictKind::Unreachable => "robots.txt cannot be reached",
                VerdictKind::Stale => "an older robots.txt",
            };
            Some(json!({
                "allowed": verdict.allows(&url),
                "why": kind,
                "crawl_delay_ms": verdict.crawl_delay().map(millis),
                "sitemaps": verdict.sitemaps().iter().map(Url::as_str).collect::<Vec<_>>(),
            }))
        };
        host = key;
        let (exchange, _) = requester.get(&url).await;
        let next = match meaning(&url, &exchange) {
            Meaning::Redirect(target) => Ok(Some(target)),
            Meaning::BrokenRedirect(word) => Err(word),
            Meaning::Page | Meaning::Incomplete | Meaning::Retry(_) | Meaning::Failed(_) => Ok(None),
        };
        hops.push(Hop { url: url.clone(), robots, exchange, note: None });
        let end = match next {
            Ok(Some(target)) if hops.len() > MAX_HOPS => {
                Some(format!("not followed to {target}: {MAX_HOPS} redirects"))
            }
            Ok(Some(target)) if hops.iter().any(|hop| hop.url == target) && hops.len() > 2 => {
                Some(format!("not followed to {target}: a loop"))
            }
            Ok(Some(target)) => {
                url = target;
                None
            }
            Ok(None) => Some(String::new()),
            Err(word) => Some(word.to_owned()),
        };
        if let Some(note) = end {
            if let Some(last) = hops.last_mut().filter(|_| !note.is_empty()) {
                last.note = Some(note);
            }
            break;
        }
    }
    let good = hops.last().is_some_and(|hop| {
        hop.note.is_none() && hop.exchange.as_ref().is_ok_and(|response| !response.status.is_server_error())
    });
    print(&hops, args).context("cannot write to standard output")?;
    Ok(if good { Ending::Done } else { Ending::Failed })
}

fn print(hops: &[Hop], args: &FetchArgs) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        let hops: Vec<Value> = hops.iter().map(hop_json).collect();
        return writeln!(out, "{}", json!({ "hops": hops }));
    }
    if args.body {
        return match hops.last().map(|hop| &hop.exchange) {
            Some(Ok(response)) => out.write_all(&response.body),
            Some(Err(failure)) => {
                eprintln!("dolomedes: {failure}");
                Ok(())
            }
            None => Ok(()),
        };
    }
    for hop in hops {
        let json = hop_json(hop);
        writeln!(out, "{}", hop.url)?;
        for key in
            ["error", "note", "status", "protocol", "remote_addr", "tls", "robots", "timings_ms", "body"]
        {
            if let Some(value) = json.get(key).filter(|value| !value.is_null()) {
                writeln!(out, "  {key:<12}{}", for_people(value))?;
            }
        }
        if let Ok(response) = &hop.exchange {
            for (name, value) in &response.headers {
                writeln!(out, "  > {name}: {}", String::from_utf8_lossy(value.as_bytes()))?;
            }
        }
    }
    Ok(())
}

fn for_people(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let known = fields.iter().filter(|(_, value)| !value.is_null());
            known.map(|(name, value)| format!("{name} {}", for_people(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => items.iter().map(for_people).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn hop_json(hop: &Hop) -> Value {
    let mut json = json!({ "url": hop.url.as_str(), "note": hop.note, "robots": hop.robots });
    let fields = match &hop.exchange {
        Ok(response) => json!({
            "status": response.status.as_u16(),
            "protocol": response.protocol(),
            "remote_addr": response.remote_addr.map(|address| address.to_string()),
            "tls": response.tls.as_ref().map(|tls| json!({ "version": tls.version, "key_exchange": tls.key_exchange })),
            "timings_ms": timings(&response.timings),
            "body": {
                "bytes_wire": response.wire_bytes,
                "bytes_decoded": response.decoded_bytes,
                "encodings": response.encodings.iter().map(|coding| coding.as_str()).collect::<Vec<_>>(),
                "truncated": response.truncated.map(|cut| cut.as_str()),
                "digest": blake3_digest(&response.body),
            },
            "headers": response.headers.iter().map(|(name, value)| {
                json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())])
            }).collect::<Vec<_>>(),
        }),
        Err(failure) => json!({
            "error": failure.kind.as_str(),
            "note": failure.message,
            "timings_ms": timings(&failure.timings),
        }),
    };
    if let (Some(json), Value::Object(fields)) = (json.as_object_mut(), fields) {
        json.extend(fields.into_iter().filter(|(key, _)| key != "note" || hop.note.is_none()));
    }
    json
}

fn timings(timings: &Timings) -> Value {
    json!({
        "dns": timings.dns.map(millis),
        "connect": timings.connect.map(millis),
        "tls": timings.tls.map(millis),
        "first_byte": timings.first_byte.map(millis),
        "total": millis(timings.total),
        "reused": timings.reused,
    })
}

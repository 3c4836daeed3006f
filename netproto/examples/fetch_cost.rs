//! What one fetch costs: CPU time per page of 20 KB over kept connections, from a server in another process.
//!
//!     cargo run --release --workspace --example fetch_cost [URL [FETCHES [CONCURRENCY]]]
//!
//! Without a URL it starts itself a second time as the server and measures plain, gzip, brotli and zstd pages. The CPU
//! time is that of this process alone.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dolomedes_netproto::fetch::{Fetcher, FetcherConfig, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if arguments.first().is_some_and(|first| first == "serve") {
        return runtime.block_on(serve());
    }
    let fetches = arguments.get(1).map_or(Ok(20_000), |n| n.parse())?;
    let concurrency = arguments.get(2).map_or(Ok(32), |n| n.parse())?;
    if let Some(url) = arguments.first() {
        return runtime.block_on(measure(url, fetches, concurrency));
    }
    let mut server = Server::start()?;
    for coding in ["plain", "gzip", "br", "zstd"] {
        let url = format!("http://{}/{coding}", server.addr);
        runtime.block_on(measure(&url, fetches, concurrency))?;
    }
    server.process.kill()?;
    Ok(())
}

async fn measure(url: &str, fetches: usize, concurrency: usize) -> Result<(), Failure> {
    let config = FetcherConfig { allow_nets: vec!["127.0.0.0/8".parse()?], ..FetcherConfig::default() };
    let fetcher = Fetcher::new(config)?;
    let url = Url::parse(url)?;
    let left = Arc::new(AtomicUsize::new(fetches));
    let before = cpu_micros()?;
    let tasks: Vec<_> = (0..concurrency)
        .map(|_| {
            let (fetcher, url, left) = (fetcher.clone(), url.clone(), Arc::clone(&left));
            tokio::spawn(async move {
                let mut bytes = 0;
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    bytes += fetcher.fetch(Request::get(url.clone())).await?.decoded_bytes;
                }
                Ok::<u64, Failure>(bytes)
            })
        })
        .collect();
    let mut bytes = 0;
    for task in tasks {
        bytes += task.await??;
    }
    let cost = (cpu_micros()? - before) / fetches as f64;
    writeln!(std::io::stdout(), "{url}: {cost:.1} µs of CPU per fetch of {} bytes", bytes / fetches as u64)?;
    Ok(())
}

/// User and system time of this process, from /proc, in ticks of 1/100 s.
fn cpu_micros() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit_once(')').ok_or("no stat")?.1;
    let ticks: u64 =
        after.split_ascii_whitespace().skip(11).take(2).map_while(|n| n.parse::<u64>().ok()).sum();
    Ok(ticks as f64 * 10_000.0)
}

struct Server {
    process: Child,
    addr: String,
}

impl Server {
    fn start() -> Result<Self, Failure> {
        let mut process =
            Command::new(std::env::current_exe()?).arg("serve").stdout(Stdio::piped()).spawn()?;
        let mut addr = String::new();
        BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut addr)?;
        Ok(Self { process, addr: addr.trim().to_owned() })
    }
}

/// Answers by path from ready responses, with as little work as can be.
async fn serve() -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    let responses = Arc::new(responses()?);
    loop {
        let (mut stream, _) = listener.accept().await?;
        let responses = Arc::clone(&responses);
        tokio::spawn(async move {
            let mut request = vec![0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut request).await {
                let found = responses.iter().find(|(path, _)| request[..read].starts_with(path.as_bytes()));
                let Some((_, response)) = found else { return };
                if stream.write_all(response).await.is_err() {
                    return;
                }
            }
        });
    }
}

fn responses() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut page = String::from("<!doctype html><title>A page</title><ul>");
    for i in 0_u32.. {
        if page.len() >= 20_000 {
            break;
        }
        page += &format!(
            "<li><a href=\"/item/{i}/{}\">Item {i} of a list</a>, which is described here.",
            i * 7919
        );
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(page.as_bytes())?;
    let mut br = Vec::new();
    brotli::CompressorWriter::new(&mut br, 4096, 5, 22).write_all(page.as_bytes())?;
    let zstd = zstd::stream::encode_all(page.as_bytes(), 3)?;
    let bodies = [("plain", page.into_bytes()), ("gzip", gzip.finish()?), ("br", br), ("zstd", zstd)];
    let response = |(name, body): (&str, Vec<u8>)| {
        let coding = if name == "plain" { "identity" } else { name };
        let head = "HTTP/1.1 200 OK\r\nServer: test\r\nDate: Tue, 01 Dec 2026 00:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\n\
                    Last-Modified: Mon, 30 Nov 2026 00:00:00 GMT\r\nETag: \"abc-123\"\r\nAccept-Ranges: bytes\r\n";
        let mut all = format!("{head}Content-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n", body.len())
            .into_bytes();
        all.extend(body);
        (format!("GET /{name} "), all)
    };
    Ok(bodies.into_iter().map(response).collect())
}

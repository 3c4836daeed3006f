//! `dolomedes crawl`: options in, crawl, progress, summary and exit code out.

use std::{io::Write as _, sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Ending, Usage, progress};
use crate::{
    config::{self, CrawlConfig, CrawlOptions},
    crawl::{self, End, Summary, Watch},
};

/// Runs the command.
pub(super) fn run(options: CrawlOptions) -> anyhow::Result<Ending> {
    let config = config::resolve::resolve(options).map_err(Usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("crawl")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ending = runtime.block_on(crawl_and_report(config));
    // Tasks may still hold the engine, whose threads must end before the process does.
    runtime.shutdown_timeout(Duration::from_secs(2));
    ending
}

async fn crawl_and_report(config: CrawlConfig) -> anyhow::Result<Ending> {
    let watch = Arc::new(Watch::default());
    let stop = CancellationToken::new();
    let signalled = tokio::spawn(signals(stop.clone(), watch.clone())?);
    let output = config.output;
    let shown = (!output.quiet).then(|| tokio::spawn(progress::show(watch.clone(), output.hosts)));
    let result = crawl::run(config, watch.clone(), stop.clone()).await;
    if let Some(shown) = shown {
        shown.abort();
    }
    let signal = if stop.is_cancelled() { signalled.await.ok() } else { None };
    let summary = result?;
    print(&summary, output.json)?;
    Ok(match (summary.end, signal) {
        (End::Stopped, Some(number)) => Ending::Stopped(number),
        (End::Stopped, None) => Ending::Failed,
        _ => Ending::Done,
    })
}

/// A future that ends with the number of the first signal to stop. A second one ends the process at once, which is
/// as safe as a crash: nothing acknowledged is lost.
fn signals(
    stop: CancellationToken,
    watch: Arc<Watch>,
) -> anyhow::Result<impl Future<Output = i32> + Send + 'static> {
    let listen = |kind: SignalKind| signal(kind).context("cannot listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut show_hosts = listen(SignalKind::user_defined1())?;
    Ok(async move {
        let number = loop {
            tokio::select! {
                _ = interrupt.recv() => break libc::SIGINT,
                _ = terminate.recv() => break libc::SIGTERM,
                _ = show_hosts.recv() => progress::print_hosts(&watch),
            }
        };
        eprintln!("stopping: waiting a moment for running requests; once more to stop at once");
        stop.cancel();
        tokio::spawn(second(interrupt, terminate));
        number
    })
}

async fn second(mut interrupt: Signal, mut terminate: Signal) {
    let number = tokio::select! {
        _ = interrupt.recv() => libc::SIGINT,
        _ = terminate.recv() => libc::SIGTERM,
    };
    eprintln!("stopped at once; run the same command to go on");
    std::process::exit(128 + number);
}

fn print(summary: &Summary, json: bool) -> anyhow::Result<()> {
    let text = if json { serde_json::to_string(summary)? } else { summary.to_string() };
    writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")
}

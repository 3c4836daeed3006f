//! Brings accepted records from the spool to the sinks. [`Delivery`] decides what to write, sync and release when, with the
//! time as an argument; [`DeliveryHandle`] runs it on a thread of its own, since sinks block on the disk.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dolomedes_storage::{Error, spool::SpoolReader};

use super::{Marks, Result, Sink, SinkError};
use crate::{record::Envelope, totals::Totals};

/// Verdicts may run so far ahead of the oldest record without one. More than a full spool can hold of small records.
const MOST_AHEAD: u64 = 8 << 20;
/// Bytes of records read from the spool at once.
const READ_BYTES: usize = 1 << 20;

/// When sinks are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryOptions {
    /// So long after the first record that was not synced yet. Default 1 s.
    pub sync_after: Duration,
    /// Or once so many bytes were written. Default 32 MiB.
    pub sync_bytes: u64,
}

impl Default for DeliveryOptions {
    fn default() -> Self {
        Self { sync_after: Duration::from_secs(1), sync_bytes: 32 << 20 }
    }
}

/// Joins a spool to its sinks.
pub struct Delivery {
    reader: SpoolReader,
    sinks: Vec<Box<dyn Sink>>,
    options: DeliveryOptions,
    /// What is known of records from `next` on.
    verdicts: VecDeque<Option<bool>>,
    /// The first record that the sinks were not given yet.
    next: u64,
    released: u64,
    unsynced_since: Option<Duration>,
    unsynced_bytes: u64,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sinks: Vec<_> = self.sinks.iter().map(|sink| sink.name()).collect();
        f.debug_struct("Delivery")
            .field("sinks", &sinks)
            .field("next", &self.next)
            .field("released", &self.released)
            .finish_non_exhaustive()
    }
}

impl Delivery {
    /// Joins them. The marks of sinks that take no part are set aside.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if spool and marks cannot belong together: a sink has records that the spool never had, or the
    /// spool has lost records that a sink still needs.
    pub fn new(
        reader: SpoolReader,
        sinks: Vec<Box<dyn Sink>>,
        marks: &Marks,
        options: DeliveryOptions,
    ) -> Result<Self> {
        for sink in &sinks {
            let (name, delivered) = (sink.name(), sink.delivered_upto());
            if delivered > reader.synced_upto() || delivered + 1 < reader.first_seq() {
                let detail = format!(
                    "the sink {name} has delivered up to record {delivered}, but the spool holds {} to {}",
                    reader.first_seq(),
                    reader.synced_upto()
                );
                return Err(Error::corrupt("the data directory", detail).into());
            }
        }
        let names: Vec<_> = sinks.iter().map(|sink| sink.name()).collect();
        marks.retire_others(&names)?;
        let released =
            sinks.iter().map(|sink| sink.delivered_upto()).min().unwrap_or_else(|| reader.synced_upto());
        Ok(Self {
            reader,
            sinks,
            options,
            verdicts: VecDeque::new(),
            next: released + 1,
            released,
            unsynced_since: None,
            unsynced_bytes: 0,
        })
    }

    /// The first record whose verdict is wanted. After a start, all from here on have to be judged again.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// Every record up to this one is durable in every sink, or was refused. The spool has released them.
    pub fn released(&self) -> u64 {
        self.released
    }

    /// What the records delivered so far count up to.
    pub fn totals(&self) -> Totals {
        self.sinks.iter().find_map(|sink| sink.totals()).unwrap_or_default()
    }

    /// Says whether record `seq` is real. In any order, but records are written in theirs, so one without a verdict holds
    /// up those behind it. A verdict on a record that was delivered already changes nothing.
    pub fn judge(&mut self, seq: u64, accepted: bool) -> Result<()> {
        let Some(at) = seq.checked_sub(self.next) else { return Ok(()) };
        if at >= MOST_AHEAD {
            return Err(SinkError::Gap { waiting: self.next, ahead: seq });
        }
        let at = at as usize;
        if at >= self.verdicts.len() {
            self.verdicts.resize(at + 1, None);
        }
        self.verdicts[at] = Some(accepted);
        Ok(())
    }

    /// Writes what has its verdict, and syncs if it is time to. Returns how long it may wait until the next call if no
    /// verdict comes; `None`: for ever.
    pub fn poll(&mut self, now: Duration) -> Result<Option<Duration>> {
        self.write_judged(now)?;
        let Some(since) = self.unsynced_since else { return Ok(None) };
        let due = since + self.options.sync_after;
        if now >= due || self.unsynced_bytes >= self.options.sync_bytes {
            self.sync()?;
            return Ok(None);
        }
        Ok(Some(due - now))
    }

    /// Writes and syncs everything that has its verdict.
    pub fn flush(&mut self, now: Duration) -> Result<()> {
        self.write_judged(now)?;
        if self.unsynced_since.is_some() { self.sync() } else { Ok(()) }
    }

    /// Lets the sinks complete what needs the whole job. After [`flush`](Self::flush).
    pub fn finish(&mut self) -> Result<()> {
        self.sinks.iter_mut().try_for_each(|sink| sink.finish())
    }

    fn write_judged(&mut self, now: Duration) -> Result<()> {
        loop {
            self.skip_refused(now);
            let run = self.verdicts.iter().take_while(|verdict| verdict.is_some()).count() as u64;
            if run == 0 {
                return Ok(());
            }
            let entries = self.reader.read(self.next, self.next + run - 1, READ_BYTES)?;
            if entries.is_empty() {
                // Judged before it was synced: by a machine that has seen more than this spool has.
                let detail = format!("record {} was judged, but the spool does not have it", self.next);
                return Err(Error::corrupt("the data directory", detail).into());
            }
            for entry in entries {
                if self.verdicts.pop_front() == Some(Some(true)) {
                    let record = Envelope::decode(&entry.body)?;
                    for sink in &mut self.sinks {
                        if entry.seq > sink.delivered_upto() {
                            self.unsynced_bytes += sink.write(entry.seq, &record)?;
                        }
                    }
                }
                self.advance(now);
                if self.unsynced_bytes >= self.options.sync_bytes {
                    self.sync()?;
                }
            }
        }
    }

    /// Refused records need not be read.
    fn skip_refused(&mut self, now: Duration) {
        while self.verdicts.front() == Some(&Some(false)) {
            self.verdicts.pop_front();
            self.advance(now);
        }
    }

    fn advance(&mut self, now: Duration) {
        self.next += 1;
        self.unsynced_since.get_or_insert(now);
    }

    fn sync(&mut self) -> Result<()> {
        let upto = self.next - 1;
        for sink in &mut self.sinks {
            sink.sync(upto)?;
        }
        self.unsynced_since = None;
        self.unsynced_bytes = 0;
        self.released = upto;
        self.reader.release(upto)?;
        Ok(())
    }
}

/// What the callers tell the delivery thread, and what it tells them.
#[derive(Debug, Default)]
struct Inbox {
    verdicts: Vec<(u64, bool)>,
    /// Flushes asked for and done, counted.
    flushes_wanted: u64,
    flushes_done: u64,
    /// No more calls; `Some(true)`: the job is finished.
    closing: Option<bool>,
    ended: bool,
    failure: Option<Arc<SinkError>>,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Desk {
    inbox: Mutex<Inbox>,
    to_thread: Condvar,
    to_callers: Condvar,
    released: AtomicU64,
}

impl Desk {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`Delivery`] on its own thread. Dropping the handle stops the thread as it is, as a crash would;
/// [`close`](Self::close) ends it in order.
#[derive(Debug)]
pub struct DeliveryHandle {
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl DeliveryHandle {
    /// Starts the thread.
    pub fn spawn(delivery: Delivery) -> Result<Self> {
        let inbox = Mutex::new(Inbox { totals: delivery.totals(), ..Inbox::default() });
        let desk = Arc::new(Desk { inbox, released: delivery.released().into(), ..Desk::default() });
        let thread = {
            let desk = Arc::clone(&desk);
            std::thread::Builder::new()
                .name("delivery".into())
                .spawn(move || run(delivery, &desk))
                .map_err(|source| SinkError::io("start a thread for", "delivery", source))?
        };
        Ok(Self { desk, thread: Mutex::new(Some(thread)) })
    }

    /// Hands verdicts over: sequence numbers with whether the record is real; see [`Delivery::judge`]. Never blocks on the
    /// disk. What waits here is bounded by what the spool holds.
    ///
    /// # Errors
    /// Why the delivery has failed; it is over then, the crawl has to stop.
    pub fn judge(&self, verdicts: impl IntoIterator<Item = (u64, bool)>) -> Result<(), Arc<SinkError>> {
        let mut inbox = self.desk.inbox();
        check(&inbox)?;
        inbox.verdicts.extend(verdicts);
        drop(inbox);
        self.desk.to_thread.notify_one();
        Ok(())
    }

    /// Record `seq` is real.
    pub fn accept(&self, seq: u64) -> Result<(), Arc<SinkError>> {
        self.judge([(seq, true)])
    }

    /// Record `seq` is not: its completion was refused.
    pub fn refuse(&self, seq: u64) -> Result<(), Arc<SinkError>> {
        self.judge([(seq, false)])
    }

    /// See [`Delivery::released`].
    pub fn released(&self) -> u64 {
        self.desk.released.load(Ordering::Acquire)
    }

    /// What the records delivered so far count up to.
    pub fn totals(&self) -> Totals {
        self.desk.inbox().totals
    }

    /// Why the delivery has failed, if it has.
    pub fn failure(&self) -> Option<Arc<SinkError>> {
        check(&self.desk.inbox()).err()
    }

    /// Blocks until all that was judged is durable in all sinks. Returns [`released`](Self::released).
    pub fn flush(&self) -> Result<u64, Arc<SinkError>> {
        let mut inbox = self.desk.inbox();
        inbox.flushes_wanted += 1;
        let ticket = inbox.flushes_wanted;
        self.desk.to_thread.notify_one();
        loop {
            if inbox.flushes_done >= ticket {
                return Ok(self.released());
            }
            check(&inbox)?;
            inbox = self.desk.to_callers.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Flushes, lets the sinks complete their files if the job is `finished`, and ends the thread. Blocks. Returns
    /// [`released`](Self::released).
    pub fn close(&self, finished: bool) -> Result<u64, Arc<SinkError>> {
        let flushed = self.flush();
        self.end(finished && flushed.is_ok());
        let released = flushed?;
        match &self.desk.inbox().failure {
            Some(failure) => Err(Arc::clone(failure)),
            None => Ok(released),
        }
    }

    fn end(&self, finished: bool) {
        self.desk.inbox().closing = Some(finished);
        self.desk.to_thread.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the delivery thread has panicked");
        }
    }
}

impl Drop for DeliveryHandle {
    fn drop(&mut self) {
        self.end(false);
    }
}

fn check(inbox: &Inbox) -> Result<(), Arc<SinkError>> {
    match &inbox.failure {
        Some(failure) => Err(Arc::clone(failure)),
        None if inbox.ended => Err(Arc::new(SinkError::Stopped)),
        None => Ok(()),
    }
}

/// Marks the thread as ended even if it panics, so that nobody waits for it.
struct Ending<'a>(&'a Desk);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.inbox().ended = true;
        self.0.to_callers.notify_all();
    }
}

fn run(mut delivery: Delivery, desk: &Desk) {
    let _ending = Ending(desk);
    if let Err(error) = serve(&mut delivery, desk) {
        tracing::error!(%error, "records cannot be delivered");
        desk.inbox().failure = Some(Arc::new(error));
    }
}

fn serve(delivery: &mut Delivery, desk: &Desk) -> Result<()> {
    let started = Instant::now();
    let mut wait = None;
    loop {
        let (verdicts, flush, closing) = {
            let mut inbox = desk.inbox();
            let idle = |inbox: &mut Inbox| {
                inbox.verdicts.is_empty()
                    && inbox.flushes_wanted == inbox.flushes_done
                    && inbox.closing.is_none()
            };
            inbox = match wait {
                Some(wait) => {
                    let woken = desk.to_thread.wait_timeout_while(inbox, wait, idle);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = desk.to_thread.wait_while(inbox, idle);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
            (std::mem::take(&mut inbox.verdicts), inbox.flushes_wanted, inbox.closing)
        };
        if let Some(finished) = closing {
            return if finished { delivery.finish() } else { Ok(()) };
        }
        for (seq, accepted) in verdicts {
            delivery.judge(seq, accepted)?;
        }
        wait = delivery.poll(started.elapsed())?;
        let flushed = flush > desk.inbox().flushes_done;
        if flushed {
            delivery.flush(started.elapsed())?;
            wait = None;
        }
        desk.released.store(delivery.released(), Ordering::Release);
        desk.inbox().totals = delivery.totals();
        if flushed {
            desk.inbox().flushes_done = flush;
            desk.to_callers.notify_all();
        }
    }
}

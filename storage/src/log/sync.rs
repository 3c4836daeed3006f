//! One thread that makes everybody's log writes durable: takes all that wait, syncs the engine once, completes them in
//! the order in which they were submitted. One sync serves all groups of a node, and its width adapts to the disk.
//!
//! What is written does not pass through here: callers write first (unsynced), then submit.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
};

use crate::{
    engine::Engine,
    error::{Error, Result},
};

/// Called once, when what was written before its submission is durable or will never be known to be.
pub type Completion = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// How many completions may wait before [`LogSync::submit`] blocks its caller.
const MAX_PENDING: usize = 16_384;

struct Pending {
    done: Completion,
    /// An error that hit only this one.
    refused: Option<Error>,
}

#[derive(Default)]
struct Queue {
    pending: Vec<Pending>,
    /// The first failure of a write or a sync. Sticky: after it nothing is ever reported as durable.
    failed: Option<Error>,
    closed: bool,
}

struct Shared {
    engine: Arc<dyn Engine>,
    queue: Mutex<Queue>,
    /// Something is pending, or the queue was closed.
    filled: Condvar,
    /// The queue was taken.
    emptied: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: &Error) {
        self.queue().failed.get_or_insert_with(|| error.clone());
    }

    fn run(&self) {
        loop {
            let (batch, failed) = {
                let mut queue = self.queue();
                while queue.pending.is_empty() {
                    if queue.closed {
                        return;
                    }
                    queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
                (mem::take(&mut queue.pending), queue.failed.clone())
            };
            self.emptied.notify_all();
            // After a failure no further sync is tried: the kernel may have dropped the dirty pages and would say yes.
            let mut outcome = match failed {
                Some(error) => Err(error),
                None => catch_unwind(AssertUnwindSafe(|| self.engine.sync()))
                    .unwrap_or_else(|_| Err(Error::Engine("the engine panicked in a sync".into()))),
            };
            if let Err(error) = &outcome {
                self.fail(error);
            }
            for Pending { done, refused } in batch {
                let result = match refused {
                    Some(error) => Err(error),
                    None => outcome.clone(),
                };
                if catch_unwind(AssertUnwindSafe(|| done(result))).is_err() {
                    let error = Error::Engine("a completion of the log panicked".into());
                    self.fail(&error);
                    outcome = Err(error);
                }
            }
        }
    }
}

/// The sync thread of a node. Ends, after completing what is pending, when the last handle is dropped.
pub struct LogSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LogSync {
    /// Starts the thread for `engine`.
    pub fn start(engine: Arc<dyn Engine>) -> Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            engine,
            queue: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        });
        let thread = std::thread::Builder::new()
            .name("log-sync".into())
            .spawn({
                let shared = shared.clone();
                move || shared.run()
            })
            .map_err(|error| Error::Engine(format!("cannot start the log-sync thread: {error}")))?;
        Ok(Arc::new(Self { shared, thread: Some(thread) }))
    }

    /// Calls `done` once everything written so far is durable, after all completions submitted earlier. It runs on the
    /// sync thread: it must not block, and must not submit and wait. Blocks while too many are waiting already.
    pub fn submit(&self, done: Completion) {
        self.wait_for_room();
        self.push(done, None);
    }

    /// Returns when everything written so far is durable. Not to be called from a [`Completion`].
    pub fn wait(&self) -> Result<()> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit(Box::new(move |result| {
            // The receiver lives until the answer is there.
            let _ = sender.send(result);
        }));
        receiver.recv().unwrap_or_else(|_| Err(Error::Engine("the log-sync thread has ended".into())))
    }

    /// The failure after which nothing is reported as durable any more. The process has to end.
    pub fn failure(&self) -> Option<Error> {
        self.shared.queue().failed.clone()
    }

    pub(super) fn engine(&self) -> &Arc<dyn Engine> {
        &self.shared.engine
    }

    /// Blocks while the bound of pending completions is reached. Apart from [`push`](Self::push), so that a caller can
    /// wait without holding a lock which a completion may want.
    pub(super) fn wait_for_room(&self) {
        let mut queue = self.shared.queue();
        while queue.pending.len() >= MAX_PENDING {
            queue = self.shared.emptied.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Queues `done`; with `refused` it gets that error in its turn.
    pub(super) fn push(&self, done: Completion, refused: Option<Error>) {
        let mut queue = self.shared.queue();
        queue.pending.push(Pending { done, refused });
        // With more than one pending the thread is awake already, or has been told to wake.
        if queue.pending.len() == 1 {
            self.shared.filled.notify_one();
        }
    }

    /// Records that a write failed: from here on nothing is known to be durable.
    pub(super) fn fail(&self, error: &Error) {
        self.shared.fail(error);
    }
}

impl Drop for LogSync {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take()
            // A completion may own the last handle; the thread cannot wait for itself.
            && thread.thread().id() != std::thread::current().id()
        {
            // The thread catches the panics of completions; a panic of its own has been printed already.
            let _ = thread.join();
        }
    }
}

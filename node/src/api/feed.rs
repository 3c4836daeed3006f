//! Follows the feed of group 0 while this node leads it, for those who wait for something in it: sessions in line for a
//! lock, and watches. One task reads it once, however many wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dolomedes_raft::{
    cluster::{ClusterNode, META},
    command::{Change, Fence, SessionId},
    group::Group,
    machine::read::{Events, Feed, State},
};
use tokio::sync::{oneshot, watch};

/// Events read in one look.
const AT_ONCE: usize = 1_024;
/// How long a read that failed is not repeated; the group itself reports a broken engine.
const PAUSE: Duration = Duration::from_millis(100);

/// Who waits for which lock. A session waits for a lock once; asking again replaces who is told.
type Waiting = HashMap<(SessionId, String), oneshot::Sender<Option<Fence>>>;

/// See the module.
pub(super) struct Feeds {
    /// As many as there are calls that wait; each ends with its own patience.
    waiting: Mutex<Waiting>,
    /// The newest revision that was read here.
    newest: watch::Sender<u64>,
}

impl Feeds {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), newest: watch::Sender::new(0) })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells when a session is granted a lock: its fence, or `None` if the feed can say no more and one has to look.
    pub(super) fn grant_of(&self, session: SessionId, lock: &str) -> oneshot::Receiver<Option<Fence>> {
        let (sender, receiver) = oneshot::channel();
        self.waiting().insert((session, lock.to_owned()), sender);
        receiver
    }

    /// Nobody waits any more.
    pub(super) fn forget(&self, session: SessionId, lock: &str) {
        let mut waiting = self.waiting();
        let key = (session, lock.to_owned());
        if waiting.get(&key).is_some_and(oneshot::Sender::is_closed) {
            waiting.remove(&key);
        }
    }

    /// Tells of new revisions.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Follows until the node closes.
    pub(super) async fn run(self: Arc<Self>, node: Arc<ClusterNode>) {
        let Some(group) = node.group(META) else { return };
        let mut status = group.watch();
        loop {
            if status.wait_for(|status| status.leads).await.is_err() {
                return;
            }
            let mut next = match revision(&group).await {
                Some(revision) => revision + 1,
                None => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            self.look_all();
            while status.borrow_and_update().leads {
                let (read, on) = self.read_on(&group, next).await;
                next = on;
                if read == AT_ONCE {
                    continue;
                }
                if status.changed().await.is_err() {
                    return;
                }
            }
            self.look_all();
        }
    }

    /// Everybody has to look: events may have been missed.
    fn look_all(&self) {
        for (_, sender) in self.waiting().drain() {
            let _ = sender.send(None);
        }
    }

    async fn read_on(&self, group: &Group, from: u64) -> (usize, u64) {
        let reading = group.clone();
        let read = tokio::task::spawn_blocking(move || {
            reading.view(|reader, generation| {
                State::new(reader, META, generation).events(from, &Feed::All, AT_ONCE)
            })
        });
        match read.await {
            Ok(Ok(Events::Events { events, next, .. })) => {
                for event in &events {
                    if let Change::Granted { lock, session, fence } = &event.change
                        && let Some(sender) = self.waiting().remove(&(*session, lock.clone()))
                    {
                        let _ = sender.send(Some(*fence));
                    }
                }
                if next > from {
                    self.newest.send_replace(next - 1);
                }
                (events.len(), next)
            }
            Ok(Ok(Events::Compacted { oldest })) => {
                self.look_all();
                self.newest.send_replace(oldest.saturating_sub(1));
                (0, oldest)
            }
            Ok(Err(_)) | Err(_) => {
                tokio::time::sleep(PAUSE).await;
                (0, from)
            }
        }
    }
}

async fn revision(group: &Group) -> Option<u64> {
    let group = group.clone();
    let read = tokio::task::spawn_blocking(move || {
        group.view(|reader, generation| State::new(reader, META, generation).revision())
    });
    read.await.ok()?.ok()
}

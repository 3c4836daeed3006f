//! The services for the registry and for checkpoints, kept by group 0.

use std::sync::Arc;

use bytes::Bytes;
use dolomedes_netproto::wire::v1::{
    self, checkpoints_client::CheckpointsClient, checkpoints_server::Checkpoints,
    registry_client::RegistryClient, registry_server::Registry,
};
use dolomedes_raft::{
    cluster::META,
    command::{self, Command, Compare, Guard, RegistryOp, Reply},
    group::Group,
    machine::read::{Events, Feed, KeyEntry, State},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{Api, feed::Feeds, read, submit, unexpected};

/// Keys of one page at most.
const MOST_KEYS: u32 = 1_000;
/// Versions of one page at most: each may have 64 KiB and more.
const MOST_VERSIONS: u32 = 100;
/// Changes in one message of a watch at most; each has 64 KiB at most.
const CHANGES: usize = 64;
/// Messages of a watch that wait to be sent; whoever does not take them is read no further for.
const AHEAD: usize = 4;

pub(super) struct RegistryService {
    pub(super) api: Api,
    pub(super) feeds: Arc<Feeds>,
}

pub(super) struct CheckpointService(pub(super) Api);

#[tonic::async_trait]
impl Registry for RegistryService {
    async fn txn(&self, request: Request<v1::TxnRequest>) -> Result<Response<v1::TxnReply>, Status> {
        let there = |channel, request| async move { RegistryClient::new(channel).txn(request).await };
        self.api.serve(META, request, txn, there).await
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetReply>, Status> {
        let here = |group: Group, request: v1::GetRequest| async move {
            let found = read(&group, move |state| state.registry_key(&request.key)).await?;
            Ok(v1::GetReply { key: found.map(key) })
        };
        let there = |channel, request| async move { RegistryClient::new(channel).get(request).await };
        self.api.serve(META, request, here, there).await
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListReply>, Status> {
        let here = |group: Group, request: v1::ListRequest| async move {
            let limit = if request.limit == 0 { MOST_KEYS } else { request.limit.min(MOST_KEYS) };
            let page = read(&group, move |state| {
                let after = (!request.after.is_empty()).then_some(&request.after[..]);
                state.registry(&request.prefix, after, limit as usize)
            })
            .await?;
            let keys = page.keys.into_iter().map(key).collect();
            Ok(v1::ListReply { revision: page.revision, keys, more: page.more })
        };
        let there = |channel, request| async move { RegistryClient::new(channel).list(request).await };
        self.api.serve(META, request, here, there).await
    }

    type WatchStream = ReceiverStream<Result<v1::WatchReply, Status>>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let feeds = self.feeds.clone();
        let here = |group: Group, request: v1::WatchRequest| async move {
            let from = match request.from {
                0 => read(&group, |state| state.revision()).await? + 1,
                from => from,
            };
            let (sender, receiver) = mpsc::channel(AHEAD);
            // Ends with the leadership, or with whoever listens.
            tokio::spawn(tell(group, feeds, Feed::Registry(request.prefix), from, sender));
            Ok(ReceiverStream::new(receiver))
        };
        let there = |channel, request| async move {
            let stream = RegistryClient::new(channel).watch(request).await?.into_inner();
            Ok(Response::new(super::pass_stream_on(stream, AHEAD)))
        };
        self.api.serve(META, request, here, there).await
    }
}

/// Tells a watch every change from `from` on.
async fn tell(
    group: Group,
    feeds: Arc<Feeds>,
    feed: Feed,
    mut from: u64,
    to: mpsc::Sender<Result<v1::WatchReply, Status>>,
) {
    let (mut newest, mut status) = (feeds.newest(), group.watch());
    loop {
        newest.borrow_and_update();
        let (reading, wanted) = (group.clone(), feed.clone());
        let read = tokio::task::spawn_blocking(move || {
            reading.view(|reader, generation| {
                State::new(reader, META, generation).events(from, &wanted, CHANGES)
            })
        });
        let (message, more) = match read.await {
            Ok(Ok(Events::Events { events, next, newest })) => {
                let changes = events.into_iter().filter_map(change).collect::<Vec<_>>();
                from = next;
                let more = next <= newest;
                (Ok(v1::WatchReply { changes, next }), more)
            }
            Ok(Ok(Events::Compacted { oldest })) => {
                let text = format!("compacted: changes before revision {oldest} are not kept any more");
                (Err(Status::out_of_range(text)), false)
            }
            Ok(Err(error)) => (Err(Status::internal(error.to_string())), false),
            Err(_) => (Err(Status::unavailable("the node is stopping")), false),
        };
        let last = message.is_err();
        if to.send(message).await.is_err() || last {
            return;
        }
        if more {
            continue;
        }
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            () = async { let _ = status.wait_for(|status| !status.leads).await; } => {
                let _ = to.send(Err(Status::unavailable("this node leads no more; watch on elsewhere"))).await;
                return;
            }
            () = to.closed() => return,
        }
    }
}

async fn txn(group: Group, request: v1::TxnRequest) -> Result<v1::TxnReply, Status> {
    use v1::{condition::Condition, operation::Operation};
    let missing = || Status::invalid_argument("a condition or operation is empty");
    let mut compare = Vec::with_capacity(request.conditions.len());
    for condition in request.conditions {
        compare.push(match condition.condition.ok_or_else(missing)? {
            Condition::Revision(v1::RevisionIs { key, revision }) => Compare::Revision { key, revision },
            Condition::Value(v1::ValueIs { key, value }) => Compare::Value { key, value },
            Condition::Held(held) => Compare::Held(guard(held)),
        });
    }
    let mut ops = Vec::with_capacity(request.operations.len());
    for operation in request.operations {
        ops.push(match operation.operation.ok_or_else(missing)? {
            Operation::Set(v1::SetKey { key, value, expect, session }) => {
                RegistryOp::Set { key, value, expect, session: (session != 0).then_some(session) }
            }
            Operation::Delete(v1::DeleteKey { key, expect }) => RegistryOp::Delete { key, expect },
        });
    }
    let reply = submit(&group, Command::Txn { compare, ops }, request.operation).await?;
    match reply {
        Reply::Txn(command::TxnReply::Written(revisions)) => {
            Ok(v1::TxnReply { written: true, revisions, ..v1::TxnReply::default() })
        }
        Reply::Txn(command::TxnReply::Failed { at, found }) => {
            Ok(v1::TxnReply { failed: at, found, ..v1::TxnReply::default() })
        }
        reply => Err(unexpected(&reply)),
    }
}

fn guard(held: v1::LockHeld) -> Guard {
    Guard { lock: held.lock, fence: held.fence }
}

fn key(entry: KeyEntry) -> v1::Key {
    let KeyEntry { key, value, created, revision, session } = entry;
    v1::Key { key, value, created, revision, session: session.unwrap_or(0) }
}

fn change(event: command::Event) -> Option<v1::Change> {
    let revision = event.revision;
    let (key, value, session): (Bytes, _, _) = match event.change {
        command::Change::Set { key, value, session } => (key, Some(value), session),
        command::Change::Deleted { key, session } => (key, None, session),
        _ => return None,
    };
    Some(v1::Change { revision, key, value, session: session.unwrap_or(0) })
}

#[tonic::async_trait]
impl Checkpoints for CheckpointService {
    async fn set_checkpoint(
        &self,
        request: Request<v1::SetCheckpointRequest>,
    ) -> Result<Response<v1::SetCheckpointReply>, Status> {
        let here = |group: Group, request: v1::SetCheckpointRequest| async move {
            let command = Command::SetCheckpoint {
                name: request.name,
                expect: request.expect,
                value: request.value,
                keep: request.keep,
                guard: request.guard.map(guard),
            };
            let reply = submit(&group, command, request.operation).await?;
            let Reply::Checkpoint { written, version } = reply else { return Err(unexpected(&reply)) };
            Ok(v1::SetCheckpointReply { written, version })
        };
        let there =
            |channel, request| async move { CheckpointsClient::new(channel).set_checkpoint(request).await };
        self.0.serve(META, request, here, there).await
    }

    async fn get_checkpoint(
        &self,
        request: Request<v1::GetCheckpointRequest>,
    ) -> Result<Response<v1::GetCheckpointReply>, Status> {
        let here = |group: Group, request: v1::GetCheckpointRequest| async move {
            let found = read(&group, move |state| state.checkpoint(&request.name)).await?;
            Ok(found.map_or_else(v1::GetCheckpointReply::default, |found| v1::GetCheckpointReply {
                version: found.version,
                value: found.value,
                oldest: found.oldest,
            }))
        };
        let there =
            |channel, request| async move { CheckpointsClient::new(channel).get_checkpoint(request).await };
        self.0.serve(META, request, here, there).await
    }

    async fn checkpoint_history(
        &self,
        request: Request<v1::CheckpointHistoryRequest>,
    ) -> Result<Response<v1::CheckpointHistoryReply>, Status> {
        let here = |group: Group, request: v1::CheckpointHistoryRequest| async move {
            let limit = if request.limit == 0 { MOST_VERSIONS } else { request.limit.min(MOST_VERSIONS) };
            let found = read(&group, move |state| {
                state.checkpoint_history(&request.name, request.after, limit as usize)
            })
            .await?;
            let version = |past: dolomedes_raft::machine::read::PastVersion| v1::CheckpointVersion {
                version: past.version,
                value: past.value,
            };
            Ok(v1::CheckpointHistoryReply { versions: found.into_iter().map(version).collect() })
        };
        let there = |channel, request| async move {
            CheckpointsClient::new(channel).checkpoint_history(request).await
        };
        self.0.serve(META, request, here, there).await
    }
}

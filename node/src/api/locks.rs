//! The service for sessions and locks, kept by group 0.

use std::{sync::Arc, time::Duration};

use dolomedes_netproto::wire::v1::{self, locks_client::LocksClient, locks_server::Locks};
use dolomedes_raft::{
    cluster::META,
    command::{Acquired, Command, Reply},
    group::Group,
};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{Api, feed::Feeds, read, submit, unexpected};

const DEFAULT_TTL_MS: u64 = 10_000;
/// Longest wait of one Acquire.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub(super) struct LockService {
    pub(super) api: Api,
    pub(super) feeds: Arc<Feeds>,
}

/// Passes a call on as it is.
macro_rules! there {
    ($method:ident) => {
        |channel, request| async move { LocksClient::new(channel).$method(request).await }
    };
}

#[tonic::async_trait]
impl Locks for LockService {
    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionReply>, Status> {
        let here = |group: Group, request: v1::OpenSessionRequest| async move {
            let ttl_ms = if request.ttl_ms == 0 { DEFAULT_TTL_MS } else { request.ttl_ms };
            let reply = submit(&group, Command::OpenSession { ttl_ms }, request.operation).await?;
            let Reply::Session(session) = reply else { return Err(unexpected(&reply)) };
            Ok(v1::OpenSessionReply { session, ttl_ms })
        };
        self.api.serve(META, request, here, there!(open_session)).await
    }

    async fn keep_alive(
        &self,
        request: Request<v1::KeepAliveRequest>,
    ) -> Result<Response<v1::KeepAliveReply>, Status> {
        let here = |group: Group, request: v1::KeepAliveRequest| async move {
            let reply = submit(&group, Command::KeepAlive { sessions: request.sessions }, None).await?;
            let Reply::Kept(alive) = reply else { return Err(unexpected(&reply)) };
            Ok(v1::KeepAliveReply { alive })
        };
        self.api.serve(META, request, here, there!(keep_alive)).await
    }

    async fn close_session(
        &self,
        request: Request<v1::CloseSessionRequest>,
    ) -> Result<Response<v1::CloseSessionReply>, Status> {
        let here = |group: Group, request: v1::CloseSessionRequest| async move {
            submit(&group, Command::CloseSession { session: request.session }, None).await?;
            Ok(v1::CloseSessionReply {})
        };
        self.api.serve(META, request, here, there!(close_session)).await
    }

    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> Result<Response<v1::AcquireReply>, Status> {
        let feeds = self.feeds.clone();
        let here = |group: Group, request| async move { acquire(&group, request, &feeds).await };
        self.api.serve(META, request, here, there!(acquire)).await
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseReply>, Status> {
        let here = |group: Group, request: v1::ReleaseRequest| async move {
            let fence = (request.fence != 0).then_some(request.fence);
            let command = Command::Release { lock: request.lock, session: request.session, fence };
            let reply = submit(&group, command, None).await?;
            let Reply::Released(released) = reply else { return Err(unexpected(&reply)) };
            Ok(v1::ReleaseReply { released })
        };
        self.api.serve(META, request, here, there!(release)).await
    }

    async fn describe_lock(
        &self,
        request: Request<v1::DescribeLockRequest>,
    ) -> Result<Response<v1::LockDescription>, Status> {
        let here = |group: Group, request: v1::DescribeLockRequest| async move {
            let found = read(&group, move |state| state.lock(&request.lock)).await?;
            Ok(found.map_or_else(v1::LockDescription::default, |lock| v1::LockDescription {
                holder: lock.session,
                fence: lock.fence,
                waiters: lock.waiters,
            }))
        };
        self.api.serve(META, request, here, there!(describe_lock)).await
    }
}

async fn acquire(
    group: &Group,
    request: v1::AcquireRequest,
    feeds: &Feeds,
) -> Result<v1::AcquireReply, Status> {
    let v1::AcquireRequest { lock, session, wait, wait_ms } = request;
    let end = Instant::now() + Duration::from_millis(wait_ms).min(LONGEST_WAIT);
    let command = Command::Acquire { lock: lock.clone(), session, wait };
    loop {
        // Known as waiting before the command, so that no grant comes between.
        let granted = feeds.grant_of(session, &lock);
        let asked = submit(group, command.clone(), None).await;
        let reply = match asked {
            Ok(Reply::Acquired(Acquired::Queued { .. })) => {
                let mut status = group.watch();
                let waited = tokio::select! {
                    fence = granted => Ok(fence.ok().flatten()),
                    _ = status.wait_for(|status| !status.leads) => {
                        Err(Status::unavailable("this node leads no more; ask again to go on waiting"))
                    }
                    () = tokio::time::sleep_until(end) => Ok(None),
                };
                match waited {
                    Ok(Some(fence)) => Ok(v1::AcquireReply { fence, holder: session, in_line: false }),
                    Ok(None) if Instant::now() < end => continue,
                    Ok(None) => Ok(v1::AcquireReply { fence: 0, holder: 0, in_line: true }),
                    Err(status) => Err(status),
                }
            }
            Ok(Reply::Acquired(Acquired::Granted { fence })) => {
                drop(granted);
                Ok(v1::AcquireReply { fence, holder: session, in_line: false })
            }
            Ok(Reply::Acquired(Acquired::Taken { session: holder, .. })) => {
                drop(granted);
                Ok(v1::AcquireReply { fence: 0, holder, in_line: false })
            }
            Ok(reply) => Err(unexpected(&reply)),
            Err(status) => Err(status),
        };
        feeds.forget(session, &lock);
        return reply;
    }
}

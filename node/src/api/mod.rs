//! The public API over gRPC: what `netproto/proto` describes, carried out by the node that leads the group concerned. A
//! node that does not lead passes the call on as it is, once.

mod cluster;
mod feed;
mod gate;
mod jobs;
mod locks;
mod queues;
mod registry;
mod tokens;

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dolomedes_netproto::{
    peer::{Member, Security},
    wire::{self, CALLING_NODE, node_channel, v1},
};
use dolomedes_raft::{
    cluster::ClusterNode,
    command::{Command, Refusal, Reply},
    group::{Group, SubmitError},
    machine::read::State,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status,
    metadata::{MetadataMap, MetadataValue},
    service::Routes,
    transport::Channel,
};

use crate::{jobs::Jobs, keys::Authority};

/// Bytes of a message, either way: a put or a grant of 1 MiB, with room for what frames it.
const MESSAGE_BYTES: usize = 8 << 20;
/// Marks a call that was passed on: it is not passed on again.
const PASSED_ON: &str = "dolomedes-passed-on";
/// How long a call waits for a leader to be known.
const LEADER_PATIENCE: Duration = Duration::from_secs(3);
/// How long connecting to the leader may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// What the services share.
#[derive(Clone)]
pub(crate) struct Api {
    node: Arc<ClusterNode>,
    wakes: Arc<queues::Wakes>,
    channels: Arc<Mutex<HashMap<u64, (String, Channel)>>>,
    security: Security,
    /// The cluster's CA; `None` in an insecure cluster.
    authority: Option<Arc<Authority>>,
}

/// All services of the node: the API, health and reflection, and what other nodes ask. In a secure cluster, which is one
/// with an `authority`, they are behind a gate. `process`: a random number of this process.
///
/// # Errors
/// If the descriptions of the services cannot be read.
pub(crate) async fn services(
    node: Arc<ClusterNode>,
    jobs: Arc<Jobs>,
    process: u128,
    security: Security,
    authority: Option<Arc<Authority>>,
) -> anyhow::Result<Routes> {
    let gate = authority.as_ref().map(|own| Arc::new(gate::Gate::new(node.clone(), *own.fingerprint())));
    let peers = node.peer_service();
    let wakes = Arc::new(queues::Wakes::new(process));
    let api = Api { node, wakes, channels: Arc::default(), security, authority };
    let queues = v1::queues_server::QueuesServer::new(queues::QueueService(api.clone()))
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let cluster = cluster::ClusterService { api: api.clone(), jobs: jobs.clone() };
    let cluster = v1::cluster_server::ClusterServer::new(cluster);
    let feeds = feed::Feeds::new();
    tokio::spawn(feeds.clone().run(api.node.clone()));
    let locks = locks::LockService { api: api.clone(), feeds: feeds.clone() };
    let locks = v1::locks_server::LocksServer::new(locks);
    let registry = registry::RegistryService { api: api.clone(), feeds };
    let registry = v1::registry_server::RegistryServer::new(registry)
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let checkpoints = registry::CheckpointService(api.clone());
    let checkpoints = v1::checkpoints_server::CheckpointsServer::new(checkpoints)
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let jobs = v1::jobs_server::JobsServer::new(jobs::JobService { api, jobs })
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let (health, served) = tonic_health::server::health_reporter();
    health.set_serving::<v1::queues_server::QueuesServer<queues::QueueService>>().await;
    health.set_serving::<v1::locks_server::LocksServer<locks::LockService>>().await;
    health.set_serving::<v1::registry_server::RegistryServer<registry::RegistryService>>().await;
    health.set_serving::<v1::checkpoints_server::CheckpointsServer<registry::CheckpointService>>().await;
    health.set_serving::<v1::jobs_server::JobsServer<jobs::JobService>>().await;
    health.set_serving::<v1::cluster_server::ClusterServer<cluster::ClusterService>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
        .build_v1()?;
    let routes = Routes::new(queues)
        .add_service(cluster)
        .add_service(jobs)
        .add_service(locks)
        .add_service(registry)
        .add_service(checkpoints)
        .add_service(served)
        .add_service(reflection);
    let routes = routes.add_service(peers);
    Ok(match gate {
        Some(gate) => routes.into_axum_router().layer(gate::Gated(gate)).into(),
        None => routes,
    })
}

impl Api {
    /// Carries a call out here, if this node leads `group`, or passes it on to who does.
    async fn serve<Q, T, L, P>(
        &self,
        group: u32,
        request: Request<Q>,
        here: impl FnOnce(Group, Q) -> L,
        there: impl FnOnce(Channel, Request<Q>) -> P,
    ) -> Result<Response<T>, Status>
    where
        L: Future<Output = Result<T, Status>>,
        P: Future<Output = Result<Response<T>, Status>>,
    {
        let leader = tokio::time::timeout(LEADER_PATIENCE, self.node.known_leader(group))
            .await
            .map_err(|_| Status::unavailable(format!("group {group} has no leader at present")))?;
        if leader == self.node.number() {
            let own = self.node.group(group).ok_or_else(|| Status::unavailable("this node is stopping"))?;
            return here(own, request.into_inner()).await.map(Response::new);
        }
        if request.metadata().contains_key(PASSED_ON) {
            return Err(Status::unavailable(format!(
                "node {} does not lead group {group}",
                self.node.number()
            )));
        }
        let address = self.node.address(leader).ok_or_else(|| {
            Status::unavailable(format!(
                "the address of node {leader}, which leads group {group}, is not known yet"
            ))
        })?;
        let (mut metadata, extensions, message) = request.into_parts();
        self.vouch(&mut metadata);
        there(self.channel(leader, &address)?, Request::from_parts(metadata, extensions, message)).await
    }

    /// Carries a call out here, if it is about this node, or passes it on to the one that it is about.
    async fn serve_on<Q, T, L, P>(
        &self,
        node: u64,
        request: Request<Q>,
        here: impl FnOnce(Q) -> L,
        there: impl FnOnce(Channel, Request<Q>) -> P,
    ) -> Result<Response<T>, Status>
    where
        L: Future<Output = Result<T, Status>>,
        P: Future<Output = Result<Response<T>, Status>>,
    {
        if node == self.node.number() {
            return here(request.into_inner()).await.map(Response::new);
        }
        let address = self.node.address(node);
        let address = address.ok_or_else(|| Status::not_found(format!("there is no node {node}")))?;
        if request.metadata().contains_key(PASSED_ON) {
            return Err(Status::unavailable(format!("this is node {}, not {node}", self.node.number())));
        }
        let (mut metadata, extensions, message) = request.into_parts();
        self.vouch(&mut metadata);
        there(self.channel(node, &address)?, Request::from_parts(metadata, extensions, message)).await
    }

    /// Marks a call that is passed on: the caller was let in here, and the other node takes this one's word for it.
    fn vouch(&self, metadata: &mut MetadataMap) {
        metadata.insert(PASSED_ON, MetadataValue::from(self.node.number()));
        metadata.insert(CALLING_NODE, MetadataValue::from(self.node.number()));
    }

    /// The connection to a node; made when it is first used, and anew if the node has another address.
    fn channel(&self, node: u64, address: &str) -> Result<Channel, Status> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, channel)) = channels.get(&node).filter(|(known, _)| known == address) {
            return Ok(channel.clone());
        }
        let to = Member { cluster: self.node.cluster(), node };
        let channel = node_channel(address, to, &self.security, CONNECT_PATIENCE)
            .ok_or_else(|| Status::internal(format!("`{address}` of node {node} is not an address")))?;
        // As many as there are members.
        channels.insert(node, (address.to_owned(), channel.clone()));
        Ok(channel)
    }
}

/// A stream of another node's, passed on as it is, `ahead` messages of it at once.
fn pass_stream_on<T: Send + 'static>(
    mut stream: tonic::Streaming<T>,
    ahead: usize,
) -> ReceiverStream<Result<T, Status>> {
    let (sender, receiver) = mpsc::channel(ahead);
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                next = stream.message() => next,
                () = sender.closed() => return,
            };
            let next = match next {
                Ok(None) => return,
                Ok(Some(message)) => Ok(message),
                Err(status) => Err(status),
            };
            let last = next.is_err();
            if sender.send(next).await.is_err() || last {
                return;
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// Submits `command`, wrapped so that it happens once if the call carries an operation id.
async fn submit(
    group: &Group,
    command: Command,
    operation: Option<v1::OperationId>,
) -> Result<Reply, Status> {
    let opening = operation.as_ref().is_some_and(|operation| operation.opening);
    let command = match operation {
        None => command,
        Some(operation) => {
            let client = <[u8; 16]>::try_from(operation.client.as_ref())
                .map_err(|_| Status::invalid_argument("operation.client has to be 16 bytes"))?;
            let client = u128::from_be_bytes(client);
            Command::Once { client, sequence: operation.sequence, command: Box::new(command) }
        }
    };
    let reply = group.submit(command.clone()).await.map_err(failed)?;
    match (reply, command) {
        // The first operations of a client make it known.
        (Reply::Refused(Refusal::NoClient(_)), Command::Once { client, sequence, command }) if opening => {
            let opened = group.submit(Command::OpenClient { client }).await.map_err(failed)?;
            if let Reply::Refused(refusal) = opened {
                return Err(refused(&refusal));
            }
            let again = Command::Once { client, sequence, command };
            judge(group.submit(again).await.map_err(failed)?)
        }
        (reply, _) => judge(reply),
    }
}

fn judge(reply: Reply) -> Result<Reply, Status> {
    match reply {
        Reply::Refused(refusal) => Err(refused(&refusal)),
        reply => Ok(reply),
    }
}

fn failed(error: SubmitError) -> Status {
    let text = error.to_string();
    match error {
        SubmitError::Closed | SubmitError::NotLeader { .. } => Status::unavailable(text),
        SubmitError::Unknown => Status::unknown(text),
        SubmitError::Overloaded => Status::resource_exhausted(text),
        SubmitError::TooLarge { .. } => Status::invalid_argument(text),
    }
}

fn refused(refusal: &Refusal) -> Status {
    let text = refusal.to_string();
    match refusal {
        Refusal::NoQueue(_) | Refusal::NoNode(_) => Status::not_found(text),
        Refusal::Invalid(_) => Status::invalid_argument(text),
        Refusal::Full(_) => Status::resource_exhausted(text),
        Refusal::BadToken | Refusal::NodeRemoved(_) => Status::permission_denied(text),
        _ => Status::failed_precondition(text),
    }
}

/// Reads what was committed before the call.
async fn read<T: Send + 'static>(
    group: &Group,
    read: impl FnOnce(&State<'_>) -> dolomedes_storage::Result<T> + Send + 'static,
) -> Result<T, Status> {
    group.linearizable().await.map_err(failed)?;
    let group = group.clone();
    let reading = tokio::task::spawn_blocking(move || {
        group.view(|reader, generation| read(&State::new(reader, group.number(), generation)))
    });
    match reading.await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(Status::internal(error.to_string())),
        Err(_) => Err(Status::unavailable("the node is stopping")),
    }
}

fn unexpected(reply: &Reply) -> Status {
    Status::internal(format!("unexpected answer of the state machine: {reply:?}"))
}

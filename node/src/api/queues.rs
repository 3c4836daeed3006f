//! The service for named queues. A queue lives in the group that its name falls to.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use dolomedes_netproto::wire::v1::{self, queues_client::QueuesClient, queues_server::Queues};
use dolomedes_raft::{
    command::{
        Claimed, Command, Completion, Consumer, LeaseRef, MessageId, MessageResult, NewMessage, Outcome,
        Pace, PutStatus, QueueConfig, QueueId, QueueState, Reply,
    },
    group::Group,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::Notify, time::Instant};
use tonic::{Request, Response, Status};

use super::{Api, MESSAGE_BYTES, read, submit, unexpected};

const DEFAULT_ATTEMPTS: u32 = 5;
const DEFAULT_CAPACITY: u64 = 1_000_000_000;
const DEFAULT_RETRY_MS: u64 = 2_000;
const DEFAULT_LEASE_MS: u64 = 60_000;
const DEFAULT_PRIORITY: u32 = 5;
/// Longest wait between two attempts of a message.
const LONGEST_RETRY_MS: u64 = 3_600_000;
/// Crashes of consumers that a message survives.
const MAX_LOST: u32 = 100;
/// Longest wait of one Claim.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Keys and messages of one Claim at most.
const MOST_KEYS: u32 = 4_096;
const MOST_PER_KEY: u32 = 4_096;
/// Rows of one page of a listing at most.
const MOST_ROWS: u32 = 1_000;
/// Queues whose waiting claims can be woken; beyond that they look again by themselves.
const MOST_WAKES: usize = 10_000;
/// How often a waiting claim looks again without being woken.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What a queue of the API keeps with its rules.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Spec {
    retry_ms: u64,
}

impl Default for Spec {
    fn default() -> Self {
        Self { retry_ms: DEFAULT_RETRY_MS }
    }
}

/// Wakes claims that wait when there is something new; and makes keys.
pub(super) struct Wakes {
    queues: Mutex<HashMap<(u32, QueueId), Arc<Notify>>>,
    /// Of this process alone; begins the keys of messages that came without.
    process: u128,
    keys: AtomicU64,
}

impl Wakes {
    pub(super) fn new(process: u128) -> Self {
        Self { queues: Mutex::default(), process, keys: AtomicU64::new(0) }
    }

    /// A key that no other message has.
    fn own_key(&self) -> Bytes {
        let mut key = Vec::with_capacity(24);
        key.extend_from_slice(&self.process.to_be_bytes());
        key.extend_from_slice(&self.keys.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        key.into()
    }

    fn of(&self, group: u32, queue: QueueId) -> Option<Arc<Notify>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if !queues.contains_key(&(group, queue)) && queues.len() >= MOST_WAKES {
            return None;
        }
        Some(queues.entry((group, queue)).or_default().clone())
    }

    fn wake(&self, group: u32, queue: QueueId) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = queues.get(&(group, queue)) {
            notify.notify_waiters();
        }
    }
}

pub(super) struct QueueService(pub(super) Api);

/// A client for passing calls on.
fn client(channel: tonic::transport::Channel) -> QueuesClient<tonic::transport::Channel> {
    QueuesClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES)
}

/// Passes a call on as it is.
macro_rules! there {
    ($method:ident) => {
        |channel, request| async move { client(channel).$method(request).await }
    };
}

#[tonic::async_trait]
impl Queues for QueueService {
    async fn create_queue(
        &self,
        request: Request<v1::CreateQueueRequest>,
    ) -> Result<Response<v1::CreateQueueReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().name);
        self.0.serve(group, request, create_queue, there!(create_queue)).await
    }

    async fn configure_queue(
        &self,
        request: Request<v1::ConfigureQueueRequest>,
    ) -> Result<Response<v1::ConfigureQueueReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        self.0.serve(group, request, configure_queue, there!(configure_queue)).await
    }

    async fn describe_queue(
        &self,
        request: Request<v1::DescribeQueueRequest>,
    ) -> Result<Response<v1::QueueDescription>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        self.0.serve(group, request, describe_queue, there!(describe_queue)).await
    }

    async fn list_queues(
        &self,
        request: Request<v1::ListQueuesRequest>,
    ) -> Result<Response<v1::ListQueuesReply>, Status> {
        // Every group keeps its own queues, so each is asked, wherever it is led.
        let (metadata, _, v1::ListQueuesRequest { group: only }) = request.into_parts();
        let mut queues = Vec::new();
        for group in self.0.node.queue_groups().filter(|group| only == 0 || only == *group) {
            let here = |group: Group, _: v1::ListQueuesRequest| async move {
                let found = read(&group, |state| {
                    let mut found = Vec::new();
                    for info in state.queues()? {
                        let spec = state.spec(info.id)?;
                        found.push(describe(info, spec.as_ref()));
                    }
                    Ok(found)
                })
                .await?;
                Ok(v1::ListQueuesReply { queues: found })
            };
            let mut one = Request::new(v1::ListQueuesRequest { group });
            *one.metadata_mut() = metadata.clone();
            queues.extend(self.0.serve(group, one, here, there!(list_queues)).await?.into_inner().queues);
        }
        Ok(Response::new(v1::ListQueuesReply { queues }))
    }

    async fn set_queue_state(
        &self,
        request: Request<v1::SetQueueStateRequest>,
    ) -> Result<Response<v1::SetQueueStateReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        let wakes = self.0.wakes.clone();
        let here = |group: Group, request: v1::SetQueueStateRequest| async move {
            let state = match request.state() {
                v1::QueueState::Running => QueueState::Running,
                v1::QueueState::Paused => QueueState::Paused,
                v1::QueueState::Cancelled => QueueState::Cancelled,
                other => {
                    return Err(Status::invalid_argument(format!(
                        "state cannot be set to {}; expected RUNNING, PAUSED or CANCELLED",
                        other.as_str_name()
                    )));
                }
            };
            let queue = queue_id(&group, &request.queue).await?;
            submit(&group, Command::SetQueueState { queue, state }, request.operation).await?;
            wakes.wake(group.number(), queue);
            Ok(v1::SetQueueStateReply {})
        };
        self.0.serve(group, request, here, there!(set_queue_state)).await
    }

    async fn drop_queue(
        &self,
        request: Request<v1::DropQueueRequest>,
    ) -> Result<Response<v1::DropQueueReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        let here = |group: Group, request: v1::DropQueueRequest| async move {
            let queue = queue_id(&group, &request.queue).await?;
            submit(&group, Command::DropQueue { queue }, request.operation).await?;
            Ok(v1::DropQueueReply {})
        };
        self.0.serve(group, request, here, there!(drop_queue)).await
    }

    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        let wakes = self.0.wakes.clone();
        let here = |group: Group, request| async move { put(&group, request, &wakes).await };
        self.0.serve(group, request, here, there!(put)).await
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> Result<Response<v1::AttachReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        let here = |group: Group, request: v1::AttachRequest| async move {
            let reply = submit(&group, Command::Attach { node: request.number }, None).await?;
            let Reply::Attached(attached) = reply else { return Err(unexpected(&reply)) };
            let Consumer { node: number, epoch } = attached.consumer;
            Ok(v1::AttachReply {
                consumer: Some(v1::Consumer { number, epoch }),
                leases_ended: attached.leases_ended,
            })
        };
        self.0.serve(group, request, here, there!(attach)).await
    }

    async fn claim(&self, request: Request<v1::ClaimRequest>) -> Result<Response<v1::ClaimReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        let wakes = self.0.wakes.clone();
        let here = |group: Group, request| async move { claim(&group, request, &wakes).await };
        self.0.serve(group, request, here, there!(claim)).await
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::RenewReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        let here = |group: Group, request: v1::RenewRequest| async move {
            let command = Command::Renew {
                queue: queue_id(&group, &request.queue).await?,
                consumer: consumer(request.consumer)?,
                leases: request.leases.into_iter().map(lease).collect(),
                ttl_ms: or(request.lease_ms, DEFAULT_LEASE_MS),
            };
            let reply = submit(&group, command, None).await?;
            let Reply::Renewed(stands) = reply else { return Err(unexpected(&reply)) };
            Ok(v1::RenewReply { stands })
        };
        self.0.serve(group, request, here, there!(renew)).await
    }

    async fn complete(
        &self,
        request: Request<v1::CompleteRequest>,
    ) -> Result<Response<v1::CompleteReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        let wakes = self.0.wakes.clone();
        let here = |group: Group, request| async move { complete(&group, request, &wakes).await };
        self.0.serve(group, request, here, there!(complete)).await
    }

    async fn dead(&self, request: Request<v1::DeadRequest>) -> Result<Response<v1::DeadReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        self.0.serve(group, request, dead, there!(dead)).await
    }

    async fn redrive(
        &self,
        request: Request<v1::RedriveRequest>,
    ) -> Result<Response<v1::RedriveReply>, Status> {
        let group = self.0.node.group_of(&request.get_ref().queue);
        let wakes = self.0.wakes.clone();
        let here = |group: Group, request: v1::RedriveRequest| async move {
            let queue = queue_id(&group, &request.queue).await?;
            let limit = or(request.limit.into(), u64::from(MOST_ROWS)) as u32;
            let command = Command::Redrive { queue, key: request.key, reason: request.reason, limit };
            let reply = submit(&group, command, request.operation).await?;
            let Reply::Redriven(redriven) = reply else { return Err(unexpected(&reply)) };
            wakes.wake(group.number(), queue);
            Ok(v1::RedriveReply { redriven })
        };
        self.0.serve(group, request, here, there!(redrive)).await
    }
}

async fn create_queue(group: Group, request: v1::CreateQueueRequest) -> Result<v1::CreateQueueReply, Status> {
    let (config, spec) = rules(request.rules.unwrap_or_default())?;
    let command = Command::CreateQueue { name: request.name, config, spec };
    let reply = submit(&group, command, request.operation).await?;
    let Reply::Queue { created, .. } = reply else { return Err(unexpected(&reply)) };
    Ok(v1::CreateQueueReply { created })
}

async fn configure_queue(
    group: Group,
    request: v1::ConfigureQueueRequest,
) -> Result<v1::ConfigureQueueReply, Status> {
    let (config, spec) = rules(request.rules.unwrap_or_default())?;
    let queue = queue_id(&group, &request.queue).await?;
    let command = Command::ConfigureQueue { queue, config, spec: Some(spec) };
    submit(&group, command, request.operation).await?;
    Ok(v1::ConfigureQueueReply {})
}

async fn describe_queue(
    group: Group,
    request: v1::DescribeQueueRequest,
) -> Result<v1::QueueDescription, Status> {
    let name = request.queue.clone();
    let found = read(&group, move |state| {
        let Some(id) = state.queue_by_name(&name)? else { return Ok(None) };
        let spec = state.spec(id)?;
        Ok(state.queue(id)?.map(|info| describe(info, spec.as_ref())))
    });
    found.await?.ok_or_else(|| no_queue(&request.queue))
}

async fn put(group: &Group, request: v1::PutRequest, wakes: &Wakes) -> Result<v1::PutReply, Status> {
    let queue = queue_id(group, &request.queue).await?;
    let mut messages = Vec::with_capacity(request.messages.len());
    for (n, message) in request.messages.into_iter().enumerate() {
        let fingerprint = match message.dedup_id.len() {
            0 => None,
            16 => <[u8; 16]>::try_from(message.dedup_id.as_ref()).ok().map(u128::from_be_bytes),
            other => {
                return Err(Status::invalid_argument(format!(
                    "dedup_id of message {n} has {other} bytes; expected 16 or none"
                )));
            }
        };
        let priority = message.priority.unwrap_or(DEFAULT_PRIORITY);
        messages.push(NewMessage {
            key: if message.key.is_empty() { wakes.own_key() } else { message.key },
            // Out of bounds as it is, it is refused for itself.
            priority: u8::try_from(priority).unwrap_or(u8::MAX),
            delay_ms: message.delay_ms,
            fingerprint,
            payload: message.payload,
        });
    }
    let reply = submit(group, Command::Put { queue, messages }, request.operation).await?;
    let Reply::Put(statuses) = reply else { return Err(unexpected(&reply)) };
    wakes.wake(group.number(), queue);
    let status = |status| match status {
        PutStatus::Accepted => v1::PutStatus::Accepted,
        PutStatus::Duplicate => v1::PutStatus::Duplicate,
        PutStatus::Full => v1::PutStatus::Full,
        PutStatus::Invalid => v1::PutStatus::Invalid,
    };
    Ok(v1::PutReply { statuses: statuses.into_iter().map(|one| status(one) as i32).collect() })
}

async fn claim(group: &Group, request: v1::ClaimRequest, wakes: &Wakes) -> Result<v1::ClaimReply, Status> {
    let queue = queue_id(group, &request.queue).await?;
    let command = Command::Claim {
        queue,
        consumer: consumer(request.consumer)?,
        keys: request.keys.clamp(1, MOST_KEYS),
        per_key: request.per_key.clamp(1, MOST_PER_KEY),
        more: Vec::new(),
        ttl_ms: or(request.lease_ms, DEFAULT_LEASE_MS),
    };
    let end = Instant::now() + Duration::from_millis(request.wait_ms).min(LONGEST_WAIT);
    let wake = wakes.of(group.number(), queue);
    loop {
        let mut woken = std::pin::pin!(async {
            match &wake {
                Some(wake) => wake.notified().await,
                None => std::future::pending().await,
            }
        });
        // Registered before the claim, so that nothing that comes between is missed.
        let _ = futures_util::poll!(woken.as_mut());
        let reply = submit(group, command.clone(), None).await?;
        let Reply::Claimed(Claimed { grants, next_due_ms, .. }) = reply else {
            return Err(unexpected(&reply));
        };
        if !grants.is_empty() || Instant::now() >= end {
            return Ok(v1::ClaimReply { grants: grants.into_iter().map(grant).collect() });
        }
        let due = Duration::from_millis(next_due_ms.unwrap_or(u64::MAX).max(1)).min(LOOK_AGAIN);
        let until = end.min(Instant::now() + due);
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

async fn complete(
    group: &Group,
    request: v1::CompleteRequest,
    wakes: &Wakes,
) -> Result<v1::CompleteReply, Status> {
    let (queue, retry_ms) = queue_and_retry(group, &request.queue).await?;
    let mut completions = Vec::with_capacity(request.completions.len());
    for completion in request.completions {
        let lease = completion.lease.ok_or_else(|| Status::invalid_argument("a completion has no lease"))?;
        let mut results = Vec::with_capacity(completion.results.len());
        for result in completion.results {
            results.push(message_result(result, retry_ms)?);
        }
        let pace = completion.hold_ms.map(|hold_ms| Pace { hold_ms, delay_ms: 0, note: None });
        completions.push(Completion {
            lease: self::lease(lease),
            results,
            pace,
            release: completion.release,
        });
    }
    let command =
        Command::Complete { queue, consumer: consumer(request.consumer)?, completions, released_upto: 0 };
    let reply = submit(group, command, request.operation).await?;
    let Reply::Completed(verdicts) = reply else { return Err(unexpected(&reply)) };
    wakes.wake(group.number(), queue);
    let verdict = |verdict: dolomedes_raft::command::CompletionVerdict| v1::Verdict {
        accepted: verdict.accepted,
        dead: verdict.dead,
    };
    Ok(v1::CompleteReply { verdicts: verdicts.into_iter().map(verdict).collect() })
}

fn message_result(result: v1::Result, retry_ms: u64) -> Result<MessageResult, Status> {
    let id = result.id.ok_or_else(|| Status::invalid_argument("a result has no message id"))?;
    let outcome = match result.outcome {
        Some(v1::result::Outcome::Done(_)) => Outcome::Done { units: 1, bytes: 0 },
        Some(v1::result::Outcome::Retry(retry)) => {
            let after_ms = retry.after_ms.unwrap_or_else(|| {
                spread(tripled(retry_ms, result.attempt), id.index ^ u64::from(id.ordinal).rotate_left(32))
            });
            Outcome::Retry { after_ms, reason: retry.reason, free: false }
        }
        Some(v1::result::Outcome::Dead(dead)) => Outcome::Dead { reason: dead.reason, units: 0, bytes: 0 },
        None => return Err(Status::invalid_argument("a result has no outcome")),
    };
    Ok(MessageResult { id: MessageId { index: id.index, ordinal: id.ordinal }, outcome, sequence: 0 })
}

/// The wait after attempt number `attempt`: 2, 6, 18 … seconds with the usual rules.
fn tripled(first_ms: u64, attempt: u32) -> u64 {
    let factor = 3_u64.saturating_pow(attempt.saturating_sub(1).min(20));
    first_ms.saturating_mul(factor).min(LONGEST_RETRY_MS)
}

/// Varies a wait by up to a fifth, so that what failed together does not come back together.
fn spread(wait_ms: u64, salt: u64) -> u64 {
    let fifth = wait_ms / 5;
    let mixed = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    wait_ms - fifth + mixed % (2 * fifth + 1)
}

async fn dead(group: Group, request: v1::DeadRequest) -> Result<v1::DeadReply, Status> {
    let queue = queue_id(&group, &request.queue).await?;
    let limit = or(request.limit.into(), u64::from(MOST_ROWS)).min(MOST_ROWS.into()) as usize;
    let after = request.after.map(|id| MessageId { index: id.index, ordinal: id.ordinal });
    let letters = read(&group, move |state| state.dead_letters(queue, after, limit)).await?;
    let letters = letters.into_iter().map(|letter| v1::DeadLetter {
        id: Some(v1::MessageId { index: letter.id.index, ordinal: letter.id.ordinal }),
        key: letter.key,
        reason: letter.reason,
        attempts: letter.attempts,
        payload: letter.payload,
    });
    Ok(v1::DeadReply { letters: letters.collect() })
}

fn grant(grant: dolomedes_raft::command::Grant) -> v1::Grant {
    let message = |message: dolomedes_raft::command::Message| v1::Message {
        id: Some(v1::MessageId { index: message.id.index, ordinal: message.id.ordinal }),
        attempt: message.attempt,
        priority: message.priority.into(),
        payload: message.payload,
    };
    v1::Grant {
        lease: Some(v1::Lease { key: grant.lease.key, fence: grant.lease.fence }),
        lease_ms: grant.ttl_ms,
        messages: grant.messages.into_iter().map(message).collect(),
        ready_left: grant.ready_left,
    }
}

fn lease(lease: v1::Lease) -> LeaseRef {
    LeaseRef { key: lease.key, fence: lease.fence }
}

fn consumer(consumer: Option<v1::Consumer>) -> Result<Consumer, Status> {
    let consumer =
        consumer.ok_or_else(|| Status::invalid_argument("consumer is missing; call Attach first"))?;
    Ok(Consumer { node: consumer.number, epoch: consumer.epoch })
}

/// A queue's id. It never changes while the queue is there, so what this node has applied is good enough to find it; only
/// if it is not found, the whole truth is asked for.
async fn queue_id(group: &Group, name: &str) -> Result<QueueId, Status> {
    queue_and_retry(group, name).await.map(|(queue, _)| queue)
}

async fn queue_and_retry(group: &Group, name: &str) -> Result<(QueueId, u64), Status> {
    let look = |name: String| {
        move |state: &dolomedes_raft::machine::read::State<'_>| {
            let Some(queue) = state.queue_by_name(&name)? else { return Ok(None) };
            let spec = state.spec(queue)?;
            Ok(Some((queue, parsed(spec.as_ref()).retry_ms)))
        }
    };
    let number = group.number();
    let near = group.view(|reader, generation| {
        look(name.to_owned())(&dolomedes_raft::machine::read::State::new(reader, number, generation))
    });
    if let Some(found) = near.map_err(|error| Status::internal(error.to_string()))? {
        return Ok(found);
    }
    read(group, look(name.to_owned())).await?.ok_or_else(|| no_queue(name))
}

fn no_queue(name: &str) -> Status {
    Status::not_found(format!("there is no queue `{name}`; create it first"))
}

fn parsed(spec: Option<&Bytes>) -> Spec {
    spec.and_then(|spec| serde_json::from_slice(spec).ok()).unwrap_or_default()
}

fn rules(rules: v1::QueueRules) -> Result<(QueueConfig, Bytes), Status> {
    let config = QueueConfig {
        max_attempts: or(rules.max_attempts.into(), DEFAULT_ATTEMPTS.into()) as u32,
        max_lost: MAX_LOST,
        capacity: or(rules.capacity, DEFAULT_CAPACITY),
        key_delay_ms: rules.key_delay_ms,
        retention_ms: rules.retention_ms,
        unit_budget: None,
        byte_budget: None,
        key_unit_budget: None,
        key_byte_budget: None,
        finishes: false,
    };
    let spec = Spec { retry_ms: or(rules.retry_ms, DEFAULT_RETRY_MS) };
    let spec = serde_json::to_vec(&spec).map_err(|error| Status::internal(error.to_string()))?;
    Ok((config, spec.into()))
}

fn describe(info: dolomedes_raft::machine::read::QueueInfo, spec: Option<&Bytes>) -> v1::QueueDescription {
    let state = match info.state {
        QueueState::Running => v1::QueueState::Running,
        QueueState::Paused => v1::QueueState::Paused,
        QueueState::Cancelled => v1::QueueState::Cancelled,
        QueueState::Finished => v1::QueueState::Finished,
        QueueState::BudgetReached => v1::QueueState::BudgetReached,
    };
    let counters = info.counters;
    v1::QueueDescription {
        name: info.name,
        rules: Some(v1::QueueRules {
            max_attempts: info.config.max_attempts,
            capacity: info.config.capacity,
            retry_ms: parsed(spec).retry_ms,
            key_delay_ms: info.config.key_delay_ms,
            retention_ms: info.config.retention_ms,
        }),
        state: state as i32,
        counts: Some(v1::QueueCounts {
            accepted: counters.accepted,
            ready: counters.ready,
            delayed: counters.delayed,
            leased: counters.leased,
            done: counters.done,
            dead: counters.dead,
            duplicates: counters.duplicates,
        }),
    }
}

/// `value`, or `default` for the 0 of a field that was left out.
fn or(value: u64, default: u64) -> u64 {
    if value == 0 { default } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_2_6_and_18_seconds_and_vary_by_a_fifth() {
        for (attempt, wait) in [(1, 2_000), (2, 6_000), (3, 18_000), (50, LONGEST_RETRY_MS)] {
            assert_eq!(tripled(2_000, attempt), wait);
            let waits: Vec<u64> = (0..1_000).map(|salt| spread(wait, salt)).collect();
            assert!(waits.iter().all(|one| *one >= wait * 4 / 5 && *one <= wait * 6 / 5));
            assert!(waits.iter().any(|one| *one < wait) && waits.iter().any(|one| *one > wait));
        }
        assert_eq!(spread(0, 17), 0);
    }
}

//! A client of the public API. It knows several members, goes on with the next when one does not answer, and gives every
//! write an operation id, so that a write that is repeated happens once.

use std::{
    collections::HashSet,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Code, Request, Status, service::interceptor::InterceptedService, transport::Channel};

use super::{
    access::{Access, Credentials},
    dial,
    v1::{
        self, AttachReply, ClaimReply, CompleteReply, Completion, Consumer, OperationId, PutReply, PutStatus,
        QueueDescription, QueueRules, cluster_client::ClusterClient, queues_client::QueuesClient,
    },
};
use crate::peer::SecurityError;

/// First pause after all members have failed; doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(20);
/// An election is over by then, as a rule; until then pauses are short, so that a client is not late for the new leader.
const ELECTION: Duration = Duration::from_secs(2);
/// Longest pause until then.
const ELECTION_PAUSE: Duration = Duration::from_millis(40);
/// Longest pause between two rounds.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Bytes of a message, either way.
const MESSAGE_BYTES: usize = 8 << 20;
/// Queues of which a client remembers that it is known there.
const QUEUES_NOTED: usize = 10_000;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How long one operation may take with all its repetitions.
    pub deadline: Duration,
    /// How long connecting to one member may take.
    pub connect: Duration,
    /// As whom it calls, and how it recognises the cluster.
    pub access: Access,
}

/// A connection to a member, for the generated clients.
pub type Connection = InterceptedService<Channel, Credentials>;

impl Default for ClientOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(15), connect: Duration::from_secs(1), access: Access::default() }
    }
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// An address makes no sense.
    #[error("`{0}` is not an address; expected HOST:PORT")]
    Address(String),
    /// The system's random numbers cannot be read.
    #[error("cannot draw a random number: {0}")]
    Random(std::io::Error),
    /// The certificates or keys cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// What was reached is not what the token or the certificate is of.
    #[error("{0}")]
    Distrusted(String),
    /// The cluster refuses.
    #[error("{}", .0.message())]
    Refused(Status),
    /// No member gave an answer in time. A write may have been applied or not.
    #[error("no answer from {members} within {} s; last: {last}", .deadline.as_secs())]
    NoAnswer {
        /// Who was asked.
        members: String,
        /// How long.
        deadline: Duration,
        /// What the last one said.
        last: String,
    },
}

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    members: Vec<(String, Connection)>,
    /// The member that answered last.
    favourite: AtomicUsize,
    id: [u8; 16],
    sequence: AtomicU64,
    /// Queues on which the cluster has answered an operation of this client, and so knows it.
    known: Mutex<HashSet<String>>,
    options: ClientOptions,
}

impl Client {
    /// A client of the cluster that these members (`HOST:PORT`) belong to. Connects when it is first used.
    ///
    /// # Errors
    /// [`ClientError::Address`], [`ClientError::Random`] or [`ClientError::Security`].
    pub fn new(members: &[String], options: ClientOptions) -> Result<Self, ClientError> {
        let (tls, credentials) = (options.access.tls()?, options.access.credentials());
        let endpoint = |address: &String| {
            let channel = dial::channel(address, tls.clone(), options.connect)
                .ok_or_else(|| ClientError::Address(address.clone()))?;
            Ok::<_, ClientError>((address.clone(), InterceptedService::new(channel, credentials.clone())))
        };
        let members = members.iter().map(endpoint).collect::<Result<Vec<_>, _>>()?;
        if members.is_empty() {
            return Err(ClientError::Address(String::new()));
        }
        let mut id = [0; 16];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut id))
            .map_err(ClientError::Random)?;
        Ok(Self {
            shared: Arc::new(Shared {
                members,
                favourite: AtomicUsize::new(0),
                id,
                sequence: AtomicU64::new(1),
                known: Mutex::default(),
                options,
            }),
        })
    }

    /// The id of the next operation, which is on `queue`.
    pub fn operation(&self, queue: &str) -> OperationId {
        let sequence = self.shared.sequence.fetch_add(1, Ordering::Relaxed);
        let opening = !self.known().contains(queue);
        OperationId { client: self.shared.id.to_vec().into(), sequence, opening }
    }

    /// Runs `call` against one member after the other until one answers or the deadline is over. `call` has to be
    /// repeatable: a read, or a write with an operation id of its own.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for what repeating does not change, [`ClientError::Distrusted`] if all members are, else
    /// [`ClientError::NoAnswer`].
    pub async fn with_members<T, F>(&self, call: impl Fn(Connection) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let Shared { members, favourite, options, .. } = &*self.shared;
        let begun = Instant::now();
        let end = begun + options.deadline;
        let mut pause = PAUSE;
        let mut last = "nobody was asked".to_owned();
        let first = favourite.load(Ordering::Relaxed);
        // Members of this round that are not what they should be.
        let mut distrusted = 0;
        for tried in 0_usize.. {
            let at = first.wrapping_add(tried);
            let (address, channel) = &members[at % members.len()];
            match timeout_at(end, call(channel.clone())).await {
                Ok(Ok(answer)) => {
                    favourite.store(at % members.len(), Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(status)) if is_final(status.code()) => return Err(ClientError::Refused(status)),
                Ok(Err(status)) => {
                    if let Some(reason) = dial::distrust(&status) {
                        distrusted += 1;
                        if distrusted == members.len() {
                            return Err(ClientError::Distrusted(reason));
                        }
                    }
                    last = format!("{address}: {}", status.message());
                }
                Err(_) => {
                    last = format!("{address}: no answer");
                    break;
                }
            }
            if (tried + 1).is_multiple_of(members.len()) {
                distrusted = 0;
                if Instant::now() + pause >= end {
                    break;
                }
                sleep(pause).await;
                let longest = if begun.elapsed() < ELECTION { ELECTION_PAUSE } else { LONGEST_PAUSE };
                pause = (pause * 2).min(longest);
            }
        }
        let members: Vec<&str> = members.iter().map(|(address, _)| address.as_str()).collect();
        Err(ClientError::NoAnswer { members: members.join(", "), deadline: options.deadline, last })
    }

    fn known(&self) -> MutexGuard<'_, HashSet<String>> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the cluster knows this client where it keeps `queue`.
    pub(super) fn note_known(&self, queue: &str) {
        let mut known = self.known();
        // Of more queues it only tells again what is known.
        if known.len() < QUEUES_NOTED && !known.contains(queue) {
            known.insert(queue.to_owned());
        }
    }

    async fn queues<Q: Clone, T, F>(
        &self,
        request: Q,
        call: impl Fn(QueuesClient<Connection>, Q) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let answered = self
            .with_members(|channel| {
                let client = QueuesClient::new(channel)
                    .max_decoding_message_size(MESSAGE_BYTES)
                    .max_encoding_message_size(MESSAGE_BYTES);
                call(client, request.clone())
            })
            .await;
        answered.map(tonic::Response::into_inner)
    }

    /// Creates a queue unless there is one of that name; returns whether it was created.
    ///
    /// # Errors
    /// See [`with_members`](Self::with_members); likewise below.
    pub async fn create_queue(&self, name: &str, rules: QueueRules) -> Result<bool, ClientError> {
        let request = v1::CreateQueueRequest {
            name: name.to_owned(),
            rules: Some(rules),
            operation: Some(self.operation(name)),
        };
        let reply = self
            .queues(request, |mut client, request| async move { client.create_queue(request).await })
            .await?;
        self.note_known(name);
        Ok(reply.created)
    }

    /// Removes a queue with all that it holds.
    pub async fn drop_queue(&self, queue: &str) -> Result<(), ClientError> {
        let request =
            v1::DropQueueRequest { queue: queue.to_owned(), operation: Some(self.operation(queue)) };
        self.queues(request, |mut client, request| async move { client.drop_queue(request).await })
            .await
            .map(drop)
    }

    /// Rules, state and numbers of a queue.
    pub async fn describe_queue(&self, queue: &str) -> Result<QueueDescription, ClientError> {
        let request = v1::DescribeQueueRequest { queue: queue.to_owned() };
        self.queues(request, |mut client, request| async move { client.describe_queue(request).await }).await
    }

    /// Adds messages; one status for each.
    pub async fn put(
        &self,
        queue: &str,
        messages: Vec<v1::NewMessage>,
    ) -> Result<Vec<PutStatus>, ClientError> {
        let request =
            v1::PutRequest { queue: queue.to_owned(), messages, operation: Some(self.operation(queue)) };
        let reply: PutReply =
            self.queues(request, |mut client, request| async move { client.put(request).await }).await?;
        self.note_known(queue);
        Ok(reply.statuses().collect())
    }

    /// Begins an incarnation of the consumer `number`.
    pub async fn attach(&self, queue: &str, number: u64) -> Result<Consumer, ClientError> {
        let request = v1::AttachRequest { queue: queue.to_owned(), number };
        let reply: AttachReply =
            self.queues(request, |mut client, request| async move { client.attach(request).await }).await?;
        Ok(reply.consumer.unwrap_or_default())
    }

    /// Leases keys with messages; waits up to `request.wait_ms` for something to become due. A claim whose answer was
    /// lost leaves leases that end by themselves, or with the consumer's next [`attach`](Self::attach).
    pub async fn claim(&self, request: v1::ClaimRequest) -> Result<ClaimReply, ClientError> {
        let wait = Duration::from_millis(request.wait_ms);
        self.queues(request, move |mut client, request| async move {
            let mut request = Request::new(request);
            request.set_timeout(wait + Duration::from_secs(5));
            client.claim(request).await
        })
        .await
    }

    /// Hands results in.
    pub async fn complete(
        &self,
        queue: &str,
        consumer: Consumer,
        completions: Vec<Completion>,
    ) -> Result<CompleteReply, ClientError> {
        let request = v1::CompleteRequest {
            queue: queue.to_owned(),
            consumer: Some(consumer),
            completions,
            operation: Some(self.operation(queue)),
        };
        self.queues(request, |mut client, request| async move { client.complete(request).await }).await
    }

    async fn cluster<Q: Clone, T, F>(
        &self,
        request: Q,
        call: impl Fn(ClusterClient<Connection>, Q) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let answered = self.with_members(|channel| call(ClusterClient::new(channel), request.clone())).await;
        answered.map(tonic::Response::into_inner)
    }

    /// Who belongs to the cluster, who votes and who leads.
    pub async fn status(&self) -> Result<v1::StatusReply, ClientError> {
        let request = v1::StatusRequest {};
        self.cluster(request, |mut client, request| async move { client.status(request).await }).await
    }

    /// Gives a new node its number; the same one for the same uuid.
    pub async fn enrol(&self, request: v1::EnrolRequest) -> Result<v1::EnrolReply, ClientError> {
        self.cluster(request, |mut client, request| async move { client.enrol(request).await }).await
    }

    /// Makes a token, of which the cluster is told no more than the hash.
    pub async fn create_token(&self, request: v1::CreateTokenRequest) -> Result<(), ClientError> {
        self.cluster(request, |mut client, request| async move { client.create_token(request).await })
            .await
            .map(drop)
    }

    /// All tokens that are good.
    pub async fn list_tokens(&self) -> Result<Vec<v1::TokenInfo>, ClientError> {
        let request = v1::ListTokensRequest {};
        let reply = self
            .cluster(request, |mut client, request| async move { client.list_tokens(request).await })
            .await?;
        Ok(reply.tokens)
    }

    /// Makes a token good for nothing, within two seconds.
    pub async fn revoke_token(&self, hash: [u8; 32]) -> Result<(), ClientError> {
        let request = v1::RevokeTokenRequest { hash: hash.to_vec().into() };
        self.cluster(request, |mut client, request| async move { client.revoke_token(request).await })
            .await
            .map(drop)
    }

    /// Takes a node out for good; returns how many pages are fetched again because only it had their records.
    pub async fn remove_node(&self, node: u64) -> Result<u64, ClientError> {
        let request = v1::RemoveNodeRequest { node };
        let reply = self
            .cluster(request, |mut client, request| async move { client.remove_node(request).await })
            .await?;
        Ok(reply.recalled)
    }

    /// Gives a node's votes and leaderships to others, or lets it have them again.
    pub async fn drain_node(&self, node: u64, undo: bool) -> Result<(), ClientError> {
        let request = v1::DrainNodeRequest { node, undo };
        self.cluster(request, |mut client, request| async move { client.drain_node(request).await })
            .await
            .map(drop)
    }

    /// Lets another voter lead a group.
    pub async fn transfer_leader(&self, group: u32, to: u64) -> Result<(), ClientError> {
        let request = v1::TransferLeaderRequest { group, to };
        self.cluster(request, |mut client, request| async move { client.transfer_leader(request).await })
            .await
            .map(drop)
    }
}

/// Whether asking again, or somebody else, is in vain.
fn is_final(code: Code) -> bool {
    !matches!(
        code,
        Code::Unavailable
            | Code::Unknown
            | Code::Aborted
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Cancelled
    )
}

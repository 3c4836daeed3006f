//! The client's calls about the registry and checkpoints.

use bytes::Bytes;
use tonic::{Response, Status, Streaming};

use super::{
    Client, ClientError, Connection,
    session::META,
    v1::{
        Change, CheckpointHistoryRequest, CheckpointVersion, Condition, GetCheckpointReply,
        GetCheckpointRequest, GetRequest, Key, ListReply, ListRequest, LockHeld, Operation,
        SetCheckpointReply, SetCheckpointRequest, TxnReply, TxnRequest, WatchReply, WatchRequest,
        checkpoints_client::CheckpointsClient, registry_client::RegistryClient,
    },
};

/// Bytes of a message: a page of keys with values of 64 KiB does not fit, and has to be asked for in smaller ones.
const MESSAGE_BYTES: usize = 8 << 20;

/// The changes of keys under a prefix, in order and without gaps, over the deaths of members.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    prefix: Bytes,
    next: u64,
    stream: Option<Streaming<WatchReply>>,
}

impl Watch {
    /// The next changes. They are told once, however often the watch has to begin anew.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `OUT_OF_RANGE` if they are not kept any more; or as with any call.
    pub async fn changes(&mut self) -> Result<Vec<Change>, ClientError> {
        loop {
            let stream = match &mut self.stream {
                Some(stream) => stream,
                None => {
                    let stream = self.client.watch_stream(self.prefix.clone(), self.next).await?;
                    self.stream.insert(stream)
                }
            };
            match stream.message().await {
                Ok(Some(reply)) => {
                    self.next = reply.next;
                    if !reply.changes.is_empty() {
                        return Ok(reply.changes);
                    }
                }
                Err(status) if status.code() == tonic::Code::OutOfRange => {
                    return Err(ClientError::Refused(status));
                }
                // The member is gone, or leads no more: another one goes on.
                Ok(None) | Err(_) => self.stream = None,
            }
        }
    }

    /// The revision from which it goes on.
    pub fn next(&self) -> u64 {
        self.next
    }
}

impl Client {
    async fn registry<Q: Clone, T, F>(
        &self,
        request: Q,
        call: impl Fn(RegistryClient<Connection>, Q) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let answered = self
            .with_members(|channel| {
                call(RegistryClient::new(channel).max_decoding_message_size(MESSAGE_BYTES), request.clone())
            })
            .await;
        answered.map(Response::into_inner)
    }

    async fn checkpoints<Q: Clone, T, F>(
        &self,
        request: Q,
        call: impl Fn(CheckpointsClient<Connection>, Q) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let answered = self
            .with_members(|channel| {
                call(
                    CheckpointsClient::new(channel).max_decoding_message_size(MESSAGE_BYTES),
                    request.clone(),
                )
            })
            .await;
        answered.map(Response::into_inner)
    }

    /// Changes keys of the registry, all or none, if all conditions hold.
    ///
    /// # Errors
    /// See [`with_members`](Self::with_members); likewise below.
    pub async fn txn(
        &self,
        conditions: Vec<Condition>,
        operations: Vec<Operation>,
    ) -> Result<TxnReply, ClientError> {
        let request = TxnRequest { conditions, operations, operation: Some(self.operation(META)) };
        let reply =
            self.registry(request, |mut client, request| async move { client.txn(request).await }).await?;
        self.note_known(META);
        Ok(reply)
    }

    /// A key of the registry.
    pub async fn get_key(&self, key: impl Into<Bytes>) -> Result<Option<Key>, ClientError> {
        let request = GetRequest { key: key.into() };
        let reply =
            self.registry(request, |mut client, request| async move { client.get(request).await }).await?;
        Ok(reply.key)
    }

    /// A page of the keys that begin with a prefix.
    pub async fn list_keys(&self, request: ListRequest) -> Result<ListReply, ClientError> {
        self.registry(request, |mut client, request| async move { client.list(request).await }).await
    }

    /// Watches the keys that begin with `prefix`, from revision `from` on; 0: from now on.
    pub async fn watch_keys(&self, prefix: impl Into<Bytes>, from: u64) -> Result<Watch, ClientError> {
        let prefix = prefix.into();
        let next = match from {
            0 => {
                let request = ListRequest { prefix: prefix.clone(), limit: 1, ..ListRequest::default() };
                self.list_keys(request).await?.revision + 1
            }
            from => from,
        };
        Ok(Watch { client: self.clone(), prefix, next, stream: None })
    }

    async fn watch_stream(&self, prefix: Bytes, from: u64) -> Result<Streaming<WatchReply>, ClientError> {
        let request = WatchRequest { prefix, from };
        self.registry(request, |mut client, request| async move { client.watch(request).await }).await
    }

    /// Sets a checkpoint, or removes it, if its version is `expect`; keeps `keep` versions.
    pub async fn set_checkpoint(
        &self,
        name: &str,
        value: Option<Bytes>,
        expect: Option<u64>,
        keep: u32,
        guard: Option<LockHeld>,
    ) -> Result<SetCheckpointReply, ClientError> {
        let operation = Some(self.operation(META));
        let request = SetCheckpointRequest { name: name.to_owned(), expect, value, keep, guard, operation };
        let reply = self
            .checkpoints(request, |mut client, request| async move { client.set_checkpoint(request).await })
            .await?;
        self.note_known(META);
        Ok(reply)
    }

    /// A checkpoint; version 0: there is none.
    pub async fn get_checkpoint(&self, name: &str) -> Result<GetCheckpointReply, ClientError> {
        let request = GetCheckpointRequest { name: name.to_owned() };
        self.checkpoints(request, |mut client, request| async move { client.get_checkpoint(request).await })
            .await
    }

    /// Earlier versions of a checkpoint behind version `after`, the oldest first.
    pub async fn checkpoint_history(
        &self,
        name: &str,
        after: u64,
    ) -> Result<Vec<CheckpointVersion>, ClientError> {
        let request = CheckpointHistoryRequest { name: name.to_owned(), after, limit: 0 };
        let call = |mut client: CheckpointsClient<Connection>, request| async move {
            client.checkpoint_history(request).await
        };
        Ok(self.checkpoints(request, call).await?.versions)
    }
}

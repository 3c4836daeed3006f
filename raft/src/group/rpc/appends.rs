//! Entries to one follower: pipelined over one stream, a few requests ahead of the answers. The stream outlives the
//! sessions that openraft cuts replication into; any error ends it, and the next request opens another.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use dolomedes_netproto::peer::{PeerError, PeerStream, Transport};
use futures_util::{Stream, StreamExt, stream};
use openraft::{
    base::{BoxFuture, BoxStream},
    errors::{NetworkError, RPCError},
    raft::{AppendEntriesRequest, StreamAppendResult},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use super::{super::types::Types, peer::failed, wire};

/// Requests on their way to a follower at most: enough to hide the round trip; more would only be sent in vain when the
/// stream breaks.
const IN_FLIGHT: usize = 4;
/// No further request is sent while so many bytes are on their way.
const IN_FLIGHT_BYTES: usize = 4 << 20;
/// How long a follower may take to make a request durable. Far more than a heartbeat: a slow disk is no reason to send
/// everything again.
const DEADLINE: Duration = Duration::from_secs(2);

type Answer = Result<StreamAppendResult<Types>, RPCError<Types>>;

/// The stream to one follower; `None` while there is none.
#[derive(Debug)]
pub(super) struct Appends {
    pub(super) group: u32,
    pub(super) target: u64,
    pub(super) transport: Arc<dyn Transport>,
    stream: Option<PeerStream>,
}

impl Appends {
    pub(super) fn new(group: u32, target: u64, transport: Arc<dyn Transport>) -> Self {
        Self { group, target, transport, stream: None }
    }

    async fn open(&self) -> Result<PeerStream, RPCError<Types>> {
        let opening = self.transport.open(self.target, wire::encode_opening(self.group));
        match timeout(DEADLINE, opening).await {
            Ok(opened) => opened.map_err(failed),
            Err(_) => Err(self.broken("no stream could be opened in time")),
        }
    }

    fn broken(&self, detail: &str) -> RPCError<Types> {
        NetworkError::from_string(format!("appends to node {}: {detail}", self.target)).into()
    }

    /// Sends what `input` gives and yields the answers in order. Ends with `input`, or with the first error.
    pub(super) fn run<'s, S>(
        &'s mut self,
        input: S,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Answer>, RPCError<Types>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        Box::pin(async move {
            // Until the session has ended in good order, the stream is not there for another one.
            let pipe = match self.stream.take().filter(usable) {
                Some(stream) => stream,
                None => self.open().await?,
            };
            let session =
                Session { home: self, pipe, input, ended: false, flights: VecDeque::new(), bytes: 0 };
            let answers: BoxStream<'s, Answer> =
                Box::pin(stream::unfold(Some(session), |session| async move {
                    let mut session = session?;
                    match session.next().await {
                        Some(Ok(Ok(upto))) => Some((Ok(Ok(upto)), Some(session))),
                        Some(last) => Some((last, None)),
                        None => {
                            session.home.stream = Some(session.pipe);
                            None
                        }
                    }
                }));
            Ok(answers)
        })
    }
}

fn usable(stream: &PeerStream) -> bool {
    !stream.sender.is_closed() && !stream.frames.is_closed() && stream.frames.is_empty()
}

struct Session<'s, S> {
    home: &'s mut Appends,
    pipe: PeerStream,
    input: S,
    /// Whether `input` has ended.
    ended: bool,
    /// When each request that has no answer yet has to have one, and its bytes.
    flights: VecDeque<(Instant, usize)>,
    bytes: usize,
}

impl<S> Session<'_, S>
where
    S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
{
    async fn next(&mut self) -> Option<Answer> {
        loop {
            let Some((due, _)) = self.flights.front().copied() else {
                if self.ended {
                    return None;
                }
                if let Err(error) = self.send_next().await {
                    return Some(Err(error));
                }
                continue;
            };
            let room = !self.ended && self.flights.len() < IN_FLIGHT && self.bytes < IN_FLIGHT_BYTES;
            tokio::select! {
                biased;
                frame = self.pipe.frames.recv() => return Some(self.answered(frame)),
                () = sleep_until(due) => return Some(Err(self.home.broken("no answer in time"))),
                request = self.input.next(), if room => {
                    if let Err(error) = self.send(request).await {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    async fn send_next(&mut self) -> Result<(), RPCError<Types>> {
        let request = self.input.next().await;
        if request.is_some() && !usable(&self.pipe) {
            // It broke while nothing was on its way.
            self.pipe = self.home.open().await?;
        }
        self.send(request).await
    }

    async fn send(&mut self, request: Option<AppendEntriesRequest<Types>>) -> Result<(), RPCError<Types>> {
        let Some(request) = request else {
            self.ended = true;
            return Ok(());
        };
        let frame = wire::encode_append(&request);
        let bytes = frame.len();
        match timeout(DEADLINE, self.pipe.sender.send(frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(mpsc::error::SendError(_))) => return Err(self.home.broken("the stream has ended")),
            Err(_) => return Err(self.home.broken("the stream takes nothing")),
        }
        self.flights.push_back((Instant::now() + DEADLINE, bytes));
        self.bytes += bytes;
        Ok(())
    }

    fn answered(&mut self, frame: Option<Result<Bytes, PeerError>>) -> Answer {
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Err(failed(error)),
            None => return Err(self.home.broken("the stream has ended")),
        };
        let answer = wire::decode_appended(&frame).map_err(|error| self.home.broken(&error.to_string()))?;
        if let Some((_, bytes)) = self.flights.pop_front() {
            self.bytes -= bytes;
        }
        Ok(answer)
    }
}

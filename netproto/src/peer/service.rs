//! The answering side: takes requests and streams through the [`Gate`] to a [`Handler`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::mpsc;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status, Streaming};

use super::bounds::{FRAME_OVERHEAD, MAX_FRAME};
use super::gate::{Admitted, Gate, Membership};
use super::hello::{Line, Member};
use super::stream::{self, End, Fate, Outgoing};
use super::wire::Frame;
use super::wire::peer_server::{Peer, PeerServer};
use super::{Handler, Lane, PeerStream, STREAM_DEPTH, Security, frame, verdict};

/// Time for the first frame of a stream, which says what it is for.
const OPENING_DEADLINE: Duration = Duration::from_secs(5);

/// The gRPC service `dolomedes.peer.v1.Peer`; goes into [`tonic::service::Routes`] beside others.
pub type PeerService = InterceptedService<PeerServer<Answering>, Gate>;

/// Makes the service that lets `handler` answer the peers of `local`.
///
/// Every request must carry a [`super::PeerConnection`] in its extensions, as [`super::serve`] sees to. Whoever is removed
/// from the membership is refused from the next request on; streams that are open go on until their handler ends them.
pub fn service(
    local: Member,
    security: &Security,
    membership: Arc<dyn Membership>,
    handler: Arc<dyn Handler>,
) -> PeerService {
    let server = PeerServer::new(Answering { handler }).max_decoding_message_size(MAX_FRAME + FRAME_OVERHEAD);
    InterceptedService::new(server, Gate::new(local, security, membership))
}

/// The service behind the [`Gate`].
pub struct Answering {
    handler: Arc<dyn Handler>,
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").finish_non_exhaustive()
    }
}

#[tonic::async_trait]
impl Peer for Answering {
    type StreamStream = Answers;

    async fn call(&self, request: Request<Frame>) -> Result<Response<Frame>, Status> {
        let admitted = admitted(&request)?;
        let lane = match admitted.line {
            Line::Control => Lane::Control,
            Line::Snapshot => Lane::Snapshot,
            Line::Append => return Err(verdict::refused("the append lane is for streams, not for calls")),
        };
        let payload = frame::open(request.into_inner()).map_err(verdict::unusable)?;
        let answer = self.handler.call(admitted.from, lane, payload).await;
        let answer = answer.map_err(|reason| verdict::refused(&reason))?;
        // Not a refusal: the request was handled.
        let answer = frame::seal(answer).map_err(|error| Status::internal(format!("the answer: {error}")))?;
        Ok(Response::new(answer))
    }

    async fn stream(&self, request: Request<Streaming<Frame>>) -> Result<Response<Answers>, Status> {
        let admitted = admitted(&request)?;
        if admitted.line != Line::Append {
            return Err(verdict::refused("streams are for the append lane only"));
        }
        let mut incoming = request.into_inner();
        let opening = tokio::time::timeout(OPENING_DEADLINE, incoming.message()).await;
        let opening =
            opening.map_err(|_| verdict::refused("the stream was not opened by a first frame"))??;
        let opening =
            opening.ok_or_else(|| verdict::refused("the stream has ended before its first frame"))?;
        let opening = frame::open(opening).map_err(verdict::unusable)?;

        let fate = Fate::default();
        let (sender, outgoing) = Outgoing::new(admitted.from, None, &fate);
        let (inbox, frames) = mpsc::channel(STREAM_DEPTH);
        let stream = PeerStream { sender, frames };
        self.handler.accept(admitted.from, opening, stream).map_err(|reason| verdict::refused(&reason))?;
        let held = admitted.clone();
        tokio::spawn(stream::pump(incoming, inbox, admitted.from, fate, End::Accepter, held));
        Ok(Response::new(Answers { outgoing, _admitted: admitted }))
    }
}

/// What goes back on a stream; the stream counts for its peer until this has ended, too.
pub struct Answers {
    outgoing: Outgoing,
    _admitted: Admitted,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}

impl Stream for Answers {
    type Item = Result<Frame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.outgoing).poll_next(cx)
    }
}

fn admitted<T>(request: &Request<T>) -> Result<Admitted, Status> {
    let admitted = request.extensions().get::<Admitted>();
    admitted.cloned().ok_or_else(|| verdict::refused("the request has not come through the gate"))
}

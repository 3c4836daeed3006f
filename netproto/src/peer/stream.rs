//! Both directions of a stream, the same at either end: what the owner sends goes out as frames, what comes in is opened
//! and handed to the owner.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, Streaming};

use super::wire::Frame;
use super::{NodeNumber, PeerError, STREAM_DEPTH, frame, verdict};

/// Time for the other side to end its direction, too, after this one was ended; then the stream is reset.
const FAREWELL: Duration = Duration::from_secs(1);

/// Who ends a stream tells the other direction here.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate {
    ended: CancellationToken,
    reason: Arc<OnceLock<PeerError>>,
}

impl Fate {
    /// Ends both directions. The first reason counts.
    fn end(&self, reason: Option<PeerError>) {
        if let Some(reason) = reason {
            // A second reason would only describe what the first has caused.
            let _ = self.reason.set(reason);
        }
        self.ended.cancel();
    }
}

/// What the owner sends, as frames. Ends when the owner drops its sender or the stream has ended otherwise; an error in it
/// is the reason, for the other side.
pub(super) struct Outgoing {
    peer: NodeNumber,
    first: Option<Frame>,
    over: bool,
    queue: mpsc::Receiver<Bytes>,
    fate: Fate,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Outgoing {
    /// The stream, and the end that its owner gets.
    pub(super) fn new(peer: NodeNumber, first: Option<Frame>, fate: &Fate) -> (mpsc::Sender<Bytes>, Self) {
        let (sender, queue) = mpsc::channel(STREAM_DEPTH);
        let ended = Box::pin(fate.ended.clone().cancelled_owned());
        (sender, Self { peer, first, over: false, queue, fate: fate.clone(), ended })
    }
}

impl Stream for Outgoing {
    type Item = Result<Frame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if self.ended.as_mut().poll(cx).is_ready() {
            self.queue.close();
            // What was queued is dropped, so that whoever waits for its room learns of the end at once.
            while self.queue.try_recv().is_ok() {}
            let reason = self.fate.reason.get().cloned();
            self.over = true;
            return match reason {
                None => Poll::Ready(Some(Ok(frame::last(true)))),
                Some(reason) => Poll::Ready(Some(Err(Status::data_loss(reason.to_string())))),
            };
        }
        match self.queue.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                self.over = true;
                Poll::Ready(Some(Ok(frame::last(false))))
            }
            Poll::Ready(Some(payload)) => match frame::seal(payload) {
                Ok(frame) => Poll::Ready(Some(Ok(frame))),
                Err(error) => {
                    let reason = PeerError::Refused { node: self.peer, detail: error.to_string() };
                    self.fate.end(Some(reason));
                    self.over = true;
                    Poll::Ready(Some(Err(verdict::unusable(error))))
                }
            },
        }
    }
}

/// The same for a client, whose requests can end but not fail.
pub(super) struct Requests(pub(super) Outgoing);

impl Stream for Requests {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        Pin::new(&mut self.0).poll_next(cx).map(|next| next.and_then(Result::ok))
    }
}

/// Which end of a stream this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// For the one that has opened it, the end of the answers is the end of it all.
    Opener,
    /// The one that has accepted it may still have things to say after the last request.
    Accepter,
}

/// Hands what comes in to the owner, until either is at its end. `held` is whatever has to live as long as the stream.
pub(super) async fn pump<H: Send>(
    mut incoming: Streaming<Frame>,
    inbox: mpsc::Sender<Result<Bytes, PeerError>>,
    peer: NodeNumber,
    fate: Fate,
    end: End,
    held: H,
) {
    let error = loop {
        let next = tokio::select! {
            biased;
            () = fate.ended.cancelled() => break fate.reason.get().cloned(),
            () = inbox.closed() => break None,
            next = incoming.message() => next,
        };
        match next {
            Ok(Some(frame)) if frame.last && !frame.gone && end == End::Accepter => return,
            Ok(Some(frame)) if frame.last => break None,
            Ok(Some(frame)) => match frame::open(frame) {
                // Waits while the owner does not read; then the windows fill and the other side waits.
                Ok(payload) => {
                    if inbox.send(Ok(payload)).await.is_err() {
                        break None;
                    }
                }
                Err(error) => break Some(PeerError::Lost { node: peer, detail: error.to_string() }),
            },
            // HTTP/2 does not tell an end from a connection that was given up; the last frame does.
            Ok(None) => {
                let detail = "the stream was broken off".to_owned();
                break Some(PeerError::Lost { node: peer, detail });
            }
            Err(status) => break Some(verdict::peer_error(peer, &status)),
        }
    };
    fate.end(error.clone());
    if let Some(error) = error {
        drop(incoming);
        drop(held);
        // It may have gone; then nobody needs the reason.
        let _ = inbox.send(Err(error)).await;
        return;
    }
    drop(inbox);
    // To drop what comes in resets the stream, which would overtake the last frame that goes out.
    let rest = async { while let Ok(Some(_)) = incoming.message().await {} };
    let _ = tokio::time::timeout(FAREWELL, rest).await;
    drop(held);
}

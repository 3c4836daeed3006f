//! Refusals and failures as gRPC statuses, and back into what a sender is told.

use std::error::Error;

use tonic::{Code, Status};

use super::bounds::MAX_REASON;
use super::frame::FrameError;
use super::link::SendError;
use super::{NodeNumber, PeerError};

/// The sender will not get what it wants, however often it asks.
pub(super) fn refused(reason: &str) -> Status {
    Status::failed_precondition(shortened(reason))
}

/// The request was not looked at; later it may be.
pub(super) fn busy(reason: &str) -> Status {
    Status::resource_exhausted(shortened(reason))
}

/// A frame that cannot be opened.
pub(super) fn unusable(error: FrameError) -> Status {
    match error {
        FrameError::TooLarge(_) => refused(&error.to_string()),
        FrameError::Damaged { .. } => Status::data_loss(error.to_string()),
    }
}

/// What a status from `node`, or one made here because nothing came from it, means.
pub(super) fn peer_error(node: NodeNumber, status: &Status) -> PeerError {
    if let Some(cause) = status.source() {
        // Made here: the connection failed.
        return match cause.downcast_ref::<SendError>() {
            Some(SendError::Unsent(detail)) => PeerError::Unreachable { node, detail: detail.clone() },
            Some(SendError::Refused(detail)) => PeerError::Refused { node, detail: detail.clone() },
            Some(SendError::Broken(detail)) => PeerError::Lost { node, detail: detail.clone() },
            None => PeerError::Lost { node, detail: chain(cause) },
        };
    }
    let detail = status.message().to_owned();
    match status.code() {
        Code::FailedPrecondition | Code::PermissionDenied | Code::Unauthenticated => {
            PeerError::Refused { node, detail }
        }
        Code::Unimplemented => {
            PeerError::Refused { node, detail: "what listens there does not speak as a node".to_owned() }
        }
        Code::ResourceExhausted => PeerError::Unreachable { node, detail },
        _ => PeerError::Lost { node, detail },
    }
}

/// An error with its causes.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// A reason travels in a header: it has to stay small.
fn shortened(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(MAX_REASON)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let reason = "ä".repeat(MAX_REASON);
        let status = refused(&format!("x{reason}"));
        assert!(status.message().len() <= MAX_REASON && status.message().ends_with('ä'));
    }

    #[test]
    fn statuses_mean_what_the_protocol_says() {
        let lost = |detail: &str| PeerError::Lost { node: 3, detail: detail.to_owned() };
        let refusal = |detail: &str| PeerError::Refused { node: 3, detail: detail.to_owned() };
        for (status, expected) in [
            (refused("no"), refusal("no")),
            (busy("later"), PeerError::Unreachable { node: 3, detail: "later".to_owned() }),
            (Status::data_loss("bits"), lost("bits")),
            (Status::internal("gone"), lost("gone")),
            (Status::cancelled("gone"), lost("gone")),
            (Status::unimplemented(""), refusal("what listens there does not speak as a node")),
        ] {
            assert_eq!(peer_error(3, &status), expected);
        }
    }
}

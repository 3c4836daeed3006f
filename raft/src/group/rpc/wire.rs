//! Bytes of what the nodes of a group say to each other. Own formats with a version byte, as for what is stored. Total:
//! no bytes make a decoder panic, or allocate more than a small multiple of their length.

use bytes::Bytes;
use dolomedes_storage::codec::{DecodeError, Decoder, Encoder};
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};

use super::super::{
    format::{decode_entry, encode_entry, put_log_id, put_stored, take_log_id, take_stored},
    types::{SnapshotMeta, Types, Vote},
};

/// The first byte of everything.
const VERSION: u8 = 1;

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const TRANSFER: u8 = 4;
const OFFER: u8 = 5;
const PIECE: u8 = 6;
const INSTALL: u8 = 7;
const APPEND_STREAM: u8 = 8;

/// What one node asks of another, on behalf of a group.
#[derive(Clone, Debug)]
pub enum Request {
    /// A heartbeat, or entries outside of a stream.
    Append(AppendEntriesRequest<Types>),
    /// A vote is asked for.
    Vote(VoteRequest<Types>),
    /// Whether a vote would be granted.
    PreVote(VoteRequest<Types>),
    /// Leadership is handed over.
    Transfer(TransferLeaderRequest<Types>),
    /// A snapshot is offered: how far has it been received?
    Offer(Offer),
    /// A piece of the snapshot that was offered.
    Piece(Piece),
    /// All pieces have been sent; they are to be installed.
    Install(Install),
}

/// Offers a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The leader's vote.
    pub vote: Vote,
    /// What the snapshot covers. Its last log id names it: rows are the same on every node that has applied so far.
    pub meta: SnapshotMeta,
}

/// A piece of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The leader's vote.
    pub vote: Vote,
    /// Index of the last entry that the snapshot covers.
    pub last: u64,
    /// Counts the pieces from 0.
    pub number: u64,
    /// CRC-32 of `rows`.
    pub checksum: u32,
    /// Rows in order; see [`super::super::pieces`].
    pub rows: Bytes,
}

/// Ends a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// The leader's vote.
    pub vote: Vote,
    /// Index of the last entry that the snapshot covers.
    pub last: u64,
    /// How many pieces there are.
    pub pieces: u64,
}

/// How far a snapshot was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The receiver's vote; a greater one than the sender's ends the transfer.
    pub vote: Vote,
    /// The piece that it wants next.
    pub next: u64,
    /// The last row that it has: family and key. The next piece begins behind it.
    pub after: Option<(u8, Bytes)>,
    /// Nothing more is needed: the receiver has applied as much as the snapshot covers.
    pub done: bool,
}

fn start(kind: u8) -> Encoder {
    let mut encoder = Encoder::versioned(VERSION);
    encoder.u8(kind);
    encoder
}

fn versioned<'a>(what: &'static str, bytes: &'a [u8]) -> Result<Decoder<'a>, DecodeError> {
    let mut decoder = Decoder::new(what, bytes);
    if decoder.u8()? == VERSION {
        Ok(decoder)
    } else {
        Err(decoder.error("its version is not known to this program"))
    }
}

fn put_vote(encoder: &mut Encoder, vote: &Vote) {
    encoder.uint(vote.leader_id.term).uint(vote.leader_id.voted_for).bool(vote.committed);
}

fn take_vote(decoder: &mut Decoder<'_>) -> Result<Vote, DecodeError> {
    let (term, node) = (decoder.uint()?, decoder.uint()?);
    Ok(if decoder.bool()? { Vote::new_committed(term, node) } else { Vote::new(term, node) })
}

/// A slice of `whole` that shares its memory.
fn share(whole: &Bytes, part: &[u8]) -> Bytes {
    whole.slice_ref(part)
}

fn put_append(encoder: &mut Encoder, request: &AppendEntriesRequest<Types>) {
    put_vote(encoder, &request.vote);
    encoder.option(request.prev_log_id.as_ref(), put_log_id);
    encoder.option(request.leader_commit.as_ref(), put_log_id);
    encoder.list(&request.entries, |encoder, entry| {
        encoder.uint(entry.log_id.index).bytes(&encode_entry(entry));
    });
}

fn take_append(decoder: &mut Decoder<'_>, whole: &Bytes) -> Result<AppendEntriesRequest<Types>, DecodeError> {
    let vote = take_vote(decoder)?;
    let prev_log_id = decoder.option(take_log_id)?;
    let leader_commit = decoder.option(take_log_id)?;
    let entries = decoder.list(|decoder| {
        let index = decoder.uint()?;
        decode_entry(index, share(whole, decoder.bytes()?))
    })?;
    let mut next = prev_log_id.map_or(Some(0), |id| id.index.checked_add(1));
    for entry in &entries {
        if next != Some(entry.log_id.index) {
            return Err(decoder.error("its entries do not follow on each other"));
        }
        next = entry.log_id.index.checked_add(1);
    }
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

fn put_vote_request(encoder: &mut Encoder, request: &VoteRequest<Types>) {
    put_vote(encoder, &request.vote);
    encoder.option(request.last_log_id.as_ref(), put_log_id).bool(request.leadership_transfer);
}

fn take_vote_request(decoder: &mut Decoder<'_>) -> Result<VoteRequest<Types>, DecodeError> {
    let mut request = VoteRequest::new(take_vote(decoder)?, decoder.option(take_log_id)?);
    request.leadership_transfer = decoder.bool()?;
    Ok(request)
}

/// The bytes of a request of `group`.
pub fn encode_request(group: u32, request: &Request) -> Bytes {
    let kind = match request {
        Request::Append(_) => APPEND,
        Request::Vote(_) => VOTE,
        Request::PreVote(_) => PRE_VOTE,
        Request::Transfer(_) => TRANSFER,
        Request::Offer(_) => OFFER,
        Request::Piece(_) => PIECE,
        Request::Install(_) => INSTALL,
    };
    let mut encoder = start(kind);
    encoder.uint(u64::from(group));
    match request {
        Request::Append(request) => put_append(&mut encoder, request),
        Request::Vote(request) | Request::PreVote(request) => put_vote_request(&mut encoder, request),
        Request::Transfer(request) => {
            put_vote(&mut encoder, request.from_leader());
            encoder.uint(*request.to_node_id()).option(request.last_log_id(), put_log_id);
        }
        Request::Offer(offer) => {
            put_vote(&mut encoder, &offer.vote);
            encoder.option(offer.meta.last_log_id.as_ref(), put_log_id);
            put_stored(&mut encoder, &offer.meta.last_membership);
        }
        Request::Piece(piece) => {
            put_vote(&mut encoder, &piece.vote);
            encoder.uint(piece.last).uint(piece.number).uint(u64::from(piece.checksum)).bytes(&piece.rows);
        }
        Request::Install(install) => {
            put_vote(&mut encoder, &install.vote);
            encoder.uint(install.last).uint(install.pieces);
        }
    }
    encoder.finish().into()
}

/// Reads what [`encode_request`] wrote: the group and the request.
pub fn decode_request(bytes: &Bytes) -> Result<(u32, Request), DecodeError> {
    let mut decoder = versioned("a request of a group", bytes)?;
    let (kind, group) = (decoder.u8()?, decoder.uint32()?);
    let request = match kind {
        APPEND => Request::Append(take_append(&mut decoder, bytes)?),
        VOTE => Request::Vote(take_vote_request(&mut decoder)?),
        PRE_VOTE => Request::PreVote(take_vote_request(&mut decoder)?),
        TRANSFER => {
            let (from, to) = (take_vote(&mut decoder)?, decoder.uint()?);
            Request::Transfer(TransferLeaderRequest::new(from, to, decoder.option(take_log_id)?))
        }
        OFFER => {
            let vote = take_vote(&mut decoder)?;
            let last_log_id = decoder.option(take_log_id)?;
            let last_membership = take_stored(&mut decoder)?;
            Request::Offer(Offer { vote, meta: SnapshotMeta { last_log_id, last_membership } })
        }
        PIECE => Request::Piece(Piece {
            vote: take_vote(&mut decoder)?,
            last: decoder.uint()?,
            number: decoder.uint()?,
            checksum: decoder.uint32()?,
            rows: share(bytes, decoder.bytes()?),
        }),
        INSTALL => Request::Install(Install {
            vote: take_vote(&mut decoder)?,
            last: decoder.uint()?,
            pieces: decoder.uint()?,
        }),
        _ => return Err(decoder.error("this kind of request is not known to this program")),
    };
    decoder.finish()?;
    Ok((group, request))
}

/// What opens a stream of appends of `group`.
pub fn encode_opening(group: u32) -> Bytes {
    let mut encoder = start(APPEND_STREAM);
    encoder.uint(u64::from(group));
    encoder.finish().into()
}

/// Reads what [`encode_opening`] wrote: the group.
pub fn decode_opening(bytes: &[u8]) -> Result<u32, DecodeError> {
    let mut decoder = versioned("the opening of a stream", bytes)?;
    if decoder.u8()? != APPEND_STREAM {
        return Err(decoder.error("this kind of stream is not known to this program"));
    }
    let group = decoder.uint32()?;
    decoder.finish()?;
    Ok(group)
}

/// A frame of a stream of appends.
pub fn encode_append(request: &AppendEntriesRequest<Types>) -> Bytes {
    let mut encoder = Encoder::versioned(VERSION);
    put_append(&mut encoder, request);
    encoder.finish().into()
}

/// Reads what [`encode_append`] wrote.
pub fn decode_append(bytes: &Bytes) -> Result<AppendEntriesRequest<Types>, DecodeError> {
    let mut decoder = versioned("appended entries", bytes)?;
    let request = take_append(&mut decoder, bytes)?;
    decoder.finish()?;
    Ok(request)
}

/// The answer to an append, in a stream or not.
pub fn encode_appended(result: &StreamAppendResult<Types>) -> Bytes {
    let mut encoder = Encoder::versioned(VERSION);
    match result {
        Ok(upto) => {
            encoder.u8(0).option(upto.as_ref(), put_log_id);
        }
        Err(StreamAppendError::Conflict(at)) => put_log_id(encoder.u8(1), at),
        Err(StreamAppendError::HigherVote(vote)) => put_vote(encoder.u8(2), vote),
    }
    encoder.finish().into()
}

/// Reads what [`encode_appended`] wrote.
pub fn decode_appended(bytes: &[u8]) -> Result<StreamAppendResult<Types>, DecodeError> {
    let mut decoder = versioned("the answer to an append", bytes)?;
    let result = match decoder.u8()? {
        0 => Ok(decoder.option(take_log_id)?),
        1 => Err(StreamAppendError::Conflict(take_log_id(&mut decoder)?)),
        2 => Err(StreamAppendError::HigherVote(take_vote(&mut decoder)?)),
        _ => return Err(decoder.error("this kind of answer is not known to this program")),
    };
    decoder.finish()?;
    Ok(result)
}

/// The answer to a vote or a pre-vote.
pub fn encode_voted(response: &VoteResponse<Types>) -> Bytes {
    let mut encoder = Encoder::versioned(VERSION);
    put_vote(&mut encoder, &response.vote);
    encoder.bool(response.vote_granted).option(response.last_log_id.as_ref(), put_log_id);
    encoder.finish().into()
}

/// Reads what [`encode_voted`] wrote.
pub fn decode_voted(bytes: &[u8]) -> Result<VoteResponse<Types>, DecodeError> {
    let mut decoder = versioned("the answer to a vote", bytes)?;
    let (vote, vote_granted) = (take_vote(&mut decoder)?, decoder.bool()?);
    let last_log_id = decoder.option(take_log_id)?;
    decoder.finish()?;
    Ok(VoteResponse { vote, vote_granted, last_log_id })
}

/// The answer to a transfer of leadership.
pub fn encode_transferred(response: &TransferLeaderResponse<Types>) -> Bytes {
    let mut encoder = Encoder::versioned(VERSION);
    match response {
        Ok(()) => {
            encoder.u8(0);
        }
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            put_vote(encoder.u8(1), expected);
            put_vote(&mut encoder, actual);
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            encoder.u8(2).option(expected.as_ref(), put_log_id).option(actual.as_ref(), put_log_id);
        }
    }
    encoder.finish().into()
}

/// Reads what [`encode_transferred`] wrote.
pub fn decode_transferred(bytes: &[u8]) -> Result<TransferLeaderResponse<Types>, DecodeError> {
    let mut decoder = versioned("the answer to a transfer", bytes)?;
    let response = match decoder.u8()? {
        0 => Ok(()),
        1 => Err(TransferLeaderError::VoteChanged {
            expected: take_vote(&mut decoder)?,
            actual: take_vote(&mut decoder)?,
        }),
        2 => Err(TransferLeaderError::LogNotFlushed {
            expected: decoder.option(take_log_id)?,
            actual: decoder.option(take_log_id)?,
        }),
        _ => return Err(decoder.error("this kind of answer is not known to this program")),
    };
    decoder.finish()?;
    Ok(response)
}

/// The answer to an offer, a piece, or an installation.
pub fn encode_received(received: &Received) -> Bytes {
    let mut encoder = Encoder::versioned(VERSION);
    put_vote(&mut encoder, &received.vote);
    encoder.uint(received.next).bool(received.done);
    encoder.option(received.after.as_ref(), |encoder, (family, key)| {
        encoder.u8(*family).bytes(key);
    });
    encoder.finish().into()
}

/// Reads what [`encode_received`] wrote.
pub fn decode_received(bytes: &Bytes) -> Result<Received, DecodeError> {
    let mut decoder = versioned("the progress of a snapshot", bytes)?;
    let (vote, next, done) = (take_vote(&mut decoder)?, decoder.uint()?, decoder.bool()?);
    let after = decoder.option(|decoder| Ok((decoder.u8()?, share(bytes, decoder.bytes()?))))?;
    decoder.finish()?;
    Ok(Received { vote, next, after, done })
}

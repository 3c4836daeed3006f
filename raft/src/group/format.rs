//! Bytes of what Raft keeps on disk: votes, log entries, and the applied position with its membership. Own formats with
//! a version byte, so that a new release of openraft is never a migration of data.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dolomedes_storage::codec::{DecodeError, Decoder, Encoder};
use openraft::{EmptyNode, EntryPayload};

use super::types::{LeaderTerm, LogEntry, LogId, Membership, Proposal, StoredMembership, Vote};

const VOTE: u8 = 1;
const ENTRY: u8 = 1;
const MARK: u8 = 1;
const POSITION: u8 = 1;

const BLANK: u8 = 0;
const COMMANDS: u8 = 1;
const MEMBERS: u8 = 2;

fn version(decoder: &mut Decoder<'_>, known: u8) -> Result<(), DecodeError> {
    if decoder.u8()? == known {
        Ok(())
    } else {
        Err(decoder.error("its format is not known to this program"))
    }
}

pub(super) fn put_log_id(encoder: &mut Encoder, id: &LogId) {
    encoder.uint(id.leader_id.term).uint(id.index);
}

pub(super) fn take_log_id(decoder: &mut Decoder<'_>) -> Result<LogId, DecodeError> {
    Ok(LogId::new(LeaderTerm::new(decoder.uint()?), decoder.uint()?))
}

fn put_membership(encoder: &mut Encoder, membership: &Membership) {
    encoder.list(membership.get_joint_config(), |encoder, voters| {
        encoder.uint(voters.len() as u64);
        for voter in voters {
            encoder.uint(*voter);
        }
    });
    let nodes: Vec<u64> = membership.nodes().map(|(id, _)| *id).collect();
    encoder.list(&nodes, |encoder, id| {
        encoder.uint(*id);
    });
}

fn take_membership(decoder: &mut Decoder<'_>) -> Result<Membership, DecodeError> {
    let configs =
        decoder.list(|decoder| Ok(decoder.list(Decoder::uint)?.into_iter().collect::<BTreeSet<u64>>()))?;
    let nodes: BTreeMap<u64, EmptyNode> =
        decoder.list(Decoder::uint)?.into_iter().map(|id| (id, EmptyNode::new())).collect();
    if configs.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes)
        .map_err(|_| decoder.error("a voter of the membership is not among its nodes"))
}

/// A membership behind the log id that brought it.
pub(super) fn put_stored(encoder: &mut Encoder, membership: &StoredMembership) {
    encoder.option(membership.log_id().as_ref(), put_log_id);
    put_membership(encoder, membership.membership());
}

pub(super) fn take_stored(decoder: &mut Decoder<'_>) -> Result<StoredMembership, DecodeError> {
    let since = decoder.option(take_log_id)?;
    Ok(StoredMembership::new(since, take_membership(decoder)?))
}

/// A vote: term, candidate, and whether a quorum granted it.
pub fn encode_vote(vote: &Vote) -> Vec<u8> {
    let mut encoder = Encoder::versioned(VOTE);
    encoder.uint(vote.leader_id.term).uint(vote.leader_id.voted_for).bool(vote.committed);
    encoder.finish()
}

/// Reads what [`encode_vote`] wrote.
pub fn decode_vote(bytes: &[u8]) -> Result<Vote, DecodeError> {
    let mut decoder = Decoder::new("a vote", bytes);
    version(&mut decoder, VOTE)?;
    let (term, node) = (decoder.uint()?, decoder.uint()?);
    let vote = if decoder.bool()? { Vote::new_committed(term, node) } else { Vote::new(term, node) };
    decoder.finish()?;
    Ok(vote)
}

/// A log id of its own: the mark of what was purged.
pub fn encode_log_id(id: &LogId) -> Vec<u8> {
    let mut encoder = Encoder::versioned(MARK);
    put_log_id(&mut encoder, id);
    encoder.finish()
}

/// Reads what [`encode_log_id`] wrote.
pub fn decode_log_id(bytes: &[u8]) -> Result<LogId, DecodeError> {
    let mut decoder = Decoder::new("a log id", bytes);
    version(&mut decoder, MARK)?;
    let id = take_log_id(&mut decoder)?;
    decoder.finish()?;
    Ok(id)
}

/// A log entry without its index, which is part of its key.
pub fn encode_entry(entry: &LogEntry) -> Vec<u8> {
    let payload = if let EntryPayload::Normal(proposal) = &entry.payload { proposal.0.len() } else { 64 };
    let mut encoder = Encoder::with_capacity(16 + payload);
    encoder.u8(ENTRY).uint(entry.log_id.leader_id.term);
    match &entry.payload {
        EntryPayload::Blank => encoder.u8(BLANK),
        EntryPayload::Normal(proposal) => encoder.u8(COMMANDS).raw(&proposal.0),
        EntryPayload::Membership(membership) => {
            put_membership(encoder.u8(MEMBERS), membership);
            &mut encoder
        }
    };
    encoder.finish()
}

/// Reads what [`encode_entry`] wrote; `index` is the one of its key.
pub fn decode_entry(index: u64, value: Bytes) -> Result<LogEntry, DecodeError> {
    let mut decoder = Decoder::new("a log entry", &value);
    version(&mut decoder, ENTRY)?;
    let log_id = LogId::new(LeaderTerm::new(decoder.uint()?), index);
    let payload = match decoder.u8()? {
        BLANK => {
            decoder.finish()?;
            EntryPayload::Blank
        }
        COMMANDS => EntryPayload::Normal(Proposal(value.slice(value.len() - decoder.remaining()..))),
        MEMBERS => {
            let membership = take_membership(&mut decoder)?;
            decoder.finish()?;
            EntryPayload::Membership(membership)
        }
        _ => return Err(decoder.error("a log entry is neither blank, commands nor membership")),
    };
    Ok(LogEntry { log_id, payload })
}

/// Where a group's machine stands. Written in the same batch as the rows that it describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Which generation of the group's rows is the valid one.
    pub generation: u64,
    /// The last entry whose effects the rows hold.
    pub applied: Option<LogId>,
    /// The last membership among the applied entries.
    pub membership: StoredMembership,
}

impl Position {
    /// The bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::versioned(POSITION);
        encoder.uint(self.generation);
        encoder.option(self.applied.as_ref(), put_log_id);
        put_stored(&mut encoder, &self.membership);
        encoder.finish()
    }

    /// Reads what [`Position::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new("the applied position", bytes);
        version(&mut decoder, POSITION)?;
        let generation = decoder.uint()?;
        let applied = decoder.option(take_log_id)?;
        let membership = take_stored(&mut decoder)?;
        decoder.finish()?;
        Ok(Self { generation, applied, membership })
    }
}

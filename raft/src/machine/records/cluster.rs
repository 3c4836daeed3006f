//! Records of the cluster, its nodes and tokens.

use dolomedes_storage::{Result, codec::Encoder};

use super::{Record, VERSION, open};
use crate::command::{LogTime, NodeId, NodeWish, TokenKind};

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) struct Cluster {
    pub(in crate::machine) id: u128,
    pub(in crate::machine) groups: u32,
    /// Slot → group.
    pub(in crate::machine) map: Vec<u32>,
}

impl Record for Cluster {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.u128(self.id).uint(self.groups.into()).list(&self.map, |to, group| _ = to.uint((*group).into()));
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("cluster record", bytes)?;
        let (id, groups) = (from.u128()?, from.uint32()?);
        let map = from.list(|from| from.uint32())?;
        from.finish()?;
        Ok(Self { id, groups, map })
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) struct Node {
    pub(in crate::machine) uuid: u128,
    pub(in crate::machine) address: String,
    pub(in crate::machine) version: String,
    pub(in crate::machine) wish: NodeWish,
    pub(in crate::machine) since: LogTime,
}

impl Record for Node {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.u128(self.uuid).str(&self.address).str(&self.version);
        to.u8(crate::codec::encode_wish(self.wish)).uint(self.since);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("node record", bytes)?;
        let node = Self {
            uuid: from.u128()?,
            address: from.str()?.to_owned(),
            version: from.str()?.to_owned(),
            wish: crate::codec::decode_wish(&mut from)?,
            since: from.uint()?,
        };
        from.finish()?;
        Ok(node)
    }
}

/// What is remembered of a node that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) struct RemovedNode {
    pub(in crate::machine) uuid: u128,
    pub(in crate::machine) at: LogTime,
}

impl Record for RemovedNode {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.u128(self.uuid).uint(self.at);
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("removed node's record", bytes)?;
        let node = Self { uuid: from.u128()?, at: from.uint()? };
        from.finish()?;
        Ok(node)
    }
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) struct Token {
    pub(in crate::machine) kind: TokenKind,
    pub(in crate::machine) label: String,
    pub(in crate::machine) made_at: LogTime,
    /// `None`: never.
    pub(in crate::machine) expires_at: Option<LogTime>,
    /// `None`: any number.
    pub(in crate::machine) uses_left: Option<u32>,
}

impl Record for Token {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.u8(crate::codec::encode_kind(self.kind)).str(&self.label).uint(self.made_at);
        to.option(self.expires_at, |to, end| _ = to.uint(end));
        to.option(self.uses_left, |to, uses| _ = to.uint(uses.into()));
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("token's record", bytes)?;
        let token = Self {
            kind: crate::codec::decode_kind(&mut from)?,
            label: from.str()?.to_owned(),
            made_at: from.uint()?,
            expires_at: from.option(|from| from.uint())?,
            uses_left: from.option(|from| from.uint32())?,
        };
        from.finish()?;
        Ok(token)
    }
}

/// The nodes that shall vote in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) struct VotersRow(pub(in crate::machine) Vec<NodeId>);

impl Record for VotersRow {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::versioned(VERSION);
        to.list(&self.0, |to, node| _ = to.uint(*node));
        to.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open("plan of voters", bytes)?;
        let nodes = from.list(|from| from.uint())?;
        from.finish()?;
        Ok(Self(nodes))
    }
}

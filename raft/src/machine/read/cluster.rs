//! Looking at the cluster's own rows, in group 0.

use dolomedes_storage::{Error, Result};

use super::State;
use crate::{
    command::{LogTime, NodeId, NodeWish, TokenHash, TokenKind},
    machine::{
        records::{Cluster, Node, NumberRow, Record, RemovedNode, Token, VotersRow},
        tables::Table,
    },
};

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Its id.
    pub id: u128,
    /// Groups beside group 0.
    pub groups: u32,
    /// For each of the [`SLOTS`](crate::command::SLOTS) slots its group.
    pub map: Vec<u32>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its number.
    pub node: NodeId,
    /// Its own id.
    pub uuid: u128,
    /// Where others reach it.
    pub address: String,
    /// Its release.
    pub version: String,
    /// What it is wanted for.
    pub wish: NodeWish,
    /// Log time at which it was enrolled.
    pub since: LogTime,
}

/// A node that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedInfo {
    /// Its number.
    pub node: NodeId,
    /// Its own id, which is refused for ever.
    pub uuid: u128,
    /// Log time of its removal.
    pub at: LogTime,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// Its hash.
    pub hash: TokenHash,
    /// What it is good for.
    pub kind: TokenKind,
    /// What people call it.
    pub label: String,
    /// Log time at which it was made.
    pub made_at: LogTime,
    /// Log time of its end; `None`: it has none.
    pub expires_at: Option<LogTime>,
    /// How many nodes may still enrol with it; `None`: any number.
    pub uses_left: Option<u32>,
}

impl State<'_> {
    /// The cluster; `None`: it has not begun.
    pub fn cluster(&self) -> Result<Option<ClusterInfo>> {
        let found = self.record::<Cluster>(&self.tables.single(Table::Cluster))?;
        Ok(found.map(|Cluster { id, groups, map }| ClusterInfo { id, groups, map }))
    }

    /// A node that is not removed.
    pub fn node(&self, node: NodeId) -> Result<Option<NodeInfo>> {
        let found = self.record::<Node>(&self.tables.numbered(Table::Node, node))?;
        Ok(found.map(|found| node_info(node, found)))
    }

    /// The number that a node's own id has or had.
    pub fn node_by_uuid(&self, uuid: u128) -> Result<Option<NodeId>> {
        Ok(self.record::<NumberRow>(&self.tables.node_uuid(uuid))?.map(|NumberRow(node)| node))
    }

    /// All nodes that are not removed, by number.
    pub fn nodes(&self) -> Result<Vec<NodeInfo>> {
        self.list(self.tables.all(Table::Node), usize::MAX, |mut parts, value| {
            Ok(node_info(parts.u64()?, Node::decode(&value)?))
        })
    }

    /// Whether and when a node was removed.
    pub fn removed_node(&self, node: NodeId) -> Result<Option<RemovedInfo>> {
        let found = self.record::<RemovedNode>(&self.tables.numbered(Table::RemovedNode, node))?;
        Ok(found.map(|RemovedNode { uuid, at }| RemovedInfo { node, uuid, at }))
    }

    /// The nodes that were removed, by number, at most `limit`.
    pub fn removed_nodes(&self, limit: usize) -> Result<Vec<RemovedInfo>> {
        self.list(self.tables.all(Table::RemovedNode), limit, |mut parts, value| {
            let RemovedNode { uuid, at } = RemovedNode::decode(&value)?;
            Ok(RemovedInfo { node: parts.u64()?, uuid, at })
        })
    }

    /// All tokens, also those whose end nobody has noticed yet.
    pub fn tokens(&self) -> Result<Vec<TokenInfo>> {
        self.list(self.tables.all(Table::Token), usize::MAX, |mut parts, value| {
            let hash = TokenHash::try_from(parts.bytes()?)
                .map_err(|_| Error::corrupt("token's record", "its hash has another length"))?;
            Ok(token_info(hash, Token::decode(&value)?))
        })
    }

    /// A token, also if nobody has noticed its end yet.
    pub fn token(&self, hash: &TokenHash) -> Result<Option<TokenInfo>> {
        let found = self.record::<Token>(&self.tables.keyed(Table::Token, hash))?;
        Ok(found.map(|found| token_info(*hash, found)))
    }

    /// The nodes that shall vote in a group, ascending; `None`: nothing was said.
    pub fn voters(&self, group: u32) -> Result<Option<Vec<NodeId>>> {
        let found = self.record::<VotersRow>(&self.tables.numbered(Table::Voters, group.into()))?;
        Ok(found.map(|VotersRow(nodes)| nodes))
    }
}

fn token_info(hash: TokenHash, found: Token) -> TokenInfo {
    let Token { kind, label, made_at, expires_at, uses_left } = found;
    TokenInfo { hash, kind, label, made_at, expires_at, uses_left }
}

fn node_info(node: NodeId, found: Node) -> NodeInfo {
    let Node { uuid, address, version, wish, since } = found;
    NodeInfo { node, uuid, address, version, wish, since }
}

//! The cluster's own rows, in group 0: its map, its nodes for ever and ever, tokens, and who shall vote.

use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    records::{Cluster, Node, NumberRow, Record, RemovedNode, Token, VotersRow, take},
    tables::Table,
    work::Work,
};
use crate::command::{
    Bootstrapped, Enrolled, FirstNode, LogTime, MAX_VOTERS, NodeId, NodeWish, Refusal, Reply, SLOTS,
    TokenHash, TokenKind,
};

/// The label of the token that a cluster begins with.
const FIRST_ACCESS: &str = "made with the cluster";

fn refuse(why: Refusal) -> Result<Reply> {
    Ok(Reply::Refused(why))
}

/// What is wrong with what a node says of itself.
fn fault(address: Option<&str>, version: Option<&str>) -> Option<Refusal> {
    let allowed = 1..=limits::NAME_BYTES;
    let texts = [("address", address), ("version", version)];
    let (what, text) =
        texts.into_iter().find(|(_, text)| text.is_some_and(|t| !allowed.contains(&t.len())))?;
    Some(Refusal::Invalid(format!(
        "the {what} of a node has {} bytes, 1 to {} are allowed",
        text.map_or(0, str::len),
        limits::NAME_BYTES
    )))
}

/// What is wrong with a token that is wanted.
fn token_fault(kind: TokenKind, label: &str, ttl_ms: Option<u64>, uses: Option<u32>) -> Option<Refusal> {
    let most = limits::TOKEN_TTL_MS;
    let fault = if ttl_ms.is_some_and(|ttl| !(1..=most).contains(&ttl)) {
        format!("a token lasts 1 to {most} ms, not {}", ttl_ms.unwrap_or(0))
    } else if kind == TokenKind::Join && ttl_ms.is_none() {
        format!("a join token has to have an end: 1 to {most} ms from now")
    } else if kind == TokenKind::Access && uses.is_some() {
        "uses are counted of join tokens only".to_owned()
    } else if uses == Some(0) {
        "a join token has at least one use".to_owned()
    } else if label.len() > limits::NAME_BYTES {
        format!("the label of a token has {} bytes, at most {} are allowed", label.len(), limits::NAME_BYTES)
    } else {
        return None;
    };
    Some(Refusal::Invalid(fault))
}

impl Work<'_, '_> {
    pub(super) fn bootstrap(
        &mut self,
        id: u128,
        groups: u32,
        first: &FirstNode,
        access: Option<&TokenHash>,
    ) -> Result<Reply> {
        if let Some(cluster) = self.cluster()? {
            return match cluster.id == id {
                true => Ok(Reply::Bootstrapped(Bootstrapped { groups: cluster.groups, created: false })),
                false => refuse(Refusal::OtherCluster(cluster.id)),
            };
        }
        if !(1..=limits::GROUPS).contains(&groups) {
            let most = limits::GROUPS;
            return refuse(Refusal::Invalid(format!("{groups} groups; 1 to {most} are allowed")));
        }
        if let Some(fault) = fault(Some(&first.address), Some(&first.version)) {
            return refuse(fault);
        }
        let facts = self.facts()?;
        if facts.nodes_ever > 0 {
            return refuse(Refusal::Invalid("nodes were enrolled before the cluster was begun".to_owned()));
        }
        facts.nodes = 1;
        facts.nodes_ever = 1;
        facts.last_node = first.node;
        let FirstNode { node, uuid, address, version } = first;
        self.store_node(*node, *uuid, address, version);
        if let Some(hash) = access {
            self.facts()?.tokens.added(LogTime::MAX);
            let label = FIRST_ACCESS.to_owned();
            let token = Token {
                kind: TokenKind::Access,
                label,
                made_at: self.now,
                expires_at: None,
                uses_left: None,
            };
            self.store.rows.put(Family::State, self.tables.keyed(Table::Token, hash), token.encode());
        }
        let map = (0..groups).map(|group| group + 1).cycle().take(SLOTS).collect();
        let cluster = Cluster { id, groups, map };
        self.store.rows.put(Family::State, self.tables.single(Table::Cluster), cluster.encode());
        Ok(Reply::Bootstrapped(Bootstrapped { groups, created: true }))
    }

    pub(super) fn enrol_node(
        &mut self,
        uuid: u128,
        address: &str,
        version: &str,
        token: Option<&TokenHash>,
    ) -> Result<Reply> {
        if let Some(fault) = fault(Some(address), Some(version)) {
            return refuse(fault);
        }
        if self.cluster()?.is_none() {
            return refuse(Refusal::NoCluster);
        }
        if let Some(value) = self.store.rows.get(Family::State, &self.tables.node_uuid(uuid))? {
            let NumberRow(node) = NumberRow::decode(&value)?;
            return match self.node(node)? {
                Some(_) => Ok(Reply::Enrolled(Enrolled { node, created: false })),
                None => refuse(Refusal::NodeRemoved(node)),
            };
        }
        let facts = self.known_facts()?;
        if facts.nodes >= limits::NODES || facts.nodes_ever >= limits::NODES_EVER {
            return refuse(Refusal::Full(format!(
                "the cluster has {} nodes and had {} ever, of at most {} and {}; remove some first",
                facts.nodes,
                facts.nodes_ever,
                limits::NODES,
                limits::NODES_EVER
            )));
        }
        if let Some(hash) = token
            && !self.use_token(hash)?
        {
            return refuse(Refusal::BadToken);
        }
        let index = self.index;
        let facts = self.facts()?;
        let node = index.max(facts.last_node.saturating_add(1));
        facts.last_node = node;
        facts.nodes += 1;
        facts.nodes_ever += 1;
        self.store_node(node, uuid, address, version);
        Ok(Reply::Enrolled(Enrolled { node, created: true }))
    }

    pub(super) fn set_node(
        &mut self,
        id: NodeId,
        address: Option<&str>,
        version: Option<&str>,
        wish: Option<NodeWish>,
    ) -> Result<Reply> {
        if let Some(fault) = fault(address, version) {
            return refuse(fault);
        }
        let Some(mut node) = self.node(id)? else { return refuse(self.missing(id)?) };
        if let Some(address) = address {
            node.address = address.to_owned();
        }
        if let Some(version) = version {
            node.version = version.to_owned();
        }
        node.wish = wish.unwrap_or(node.wish);
        self.store.rows.put(Family::State, self.tables.numbered(Table::Node, id), node.encode());
        Ok(Reply::Done)
    }

    pub(super) fn remove_node(&mut self, id: NodeId) -> Result<Reply> {
        let Some(node) = self.node(id)? else {
            return match self.missing(id)? {
                Refusal::NodeRemoved(_) => Ok(Reply::Done),
                other => refuse(other),
            };
        };
        take(&mut self.facts()?.nodes, 1, "nodes")?;
        let removed = RemovedNode { uuid: node.uuid, at: self.now };
        let rows = &mut self.store.rows;
        rows.delete(Family::State, self.tables.numbered(Table::Node, id));
        rows.put(Family::State, self.tables.numbered(Table::RemovedNode, id), removed.encode());
        Ok(Reply::Done)
    }

    pub(super) fn make_token(
        &mut self,
        hash: &TokenHash,
        kind: TokenKind,
        label: &str,
        ttl_ms: Option<u64>,
        uses: Option<u32>,
    ) -> Result<Reply> {
        if let Some(fault) = token_fault(kind, label, ttl_ms, uses) {
            return refuse(fault);
        }
        self.end_tokens()?;
        let row = self.tables.keyed(Table::Token, hash);
        let expires_at = ttl_ms.map(|ttl| self.now.saturating_add(ttl));
        let known = self.store.rows.get(Family::State, &row)?.is_some();
        let tokens = &mut self.facts()?.tokens;
        let end = expires_at.unwrap_or(LogTime::MAX);
        if known {
            tokens.from = tokens.from.min(end);
        } else if tokens.count >= limits::TOKENS {
            return refuse(Refusal::Full(format!(
                "there are {} tokens, which is the most; revoke some first",
                limits::TOKENS
            )));
        } else {
            tokens.added(end);
        }
        let token = Token { kind, label: label.to_owned(), made_at: self.now, expires_at, uses_left: uses };
        self.store.rows.put(Family::State, row, token.encode());
        Ok(Reply::Done)
    }

    pub(super) fn revoke_token(&mut self, hash: &TokenHash) -> Result<Reply> {
        let row = self.tables.keyed(Table::Token, hash);
        if self.store.rows.get(Family::State, &row)?.is_some() {
            self.facts()?.tokens.removed()?;
            self.store.rows.delete(Family::State, row);
        }
        Ok(Reply::Done)
    }

    pub(super) fn set_voters(&mut self, group: u32, nodes: &[NodeId]) -> Result<Reply> {
        let Some(cluster) = self.cluster()? else { return refuse(Refusal::NoCluster) };
        if group > cluster.groups {
            let groups = cluster.groups;
            return refuse(Refusal::Invalid(format!("there is no group {group}, the last one is {groups}")));
        }
        let mut sorted = nodes.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if nodes.is_empty() || nodes.len() > MAX_VOTERS || sorted.len() != nodes.len() {
            return refuse(Refusal::Invalid(format!(
                "{} voters are named, of which {} differ; 1 to {MAX_VOTERS} different ones are allowed",
                nodes.len(),
                sorted.len()
            )));
        }
        for &node in nodes {
            if self.node(node)?.is_none() {
                return refuse(self.missing(node)?);
            }
        }
        let row = self.tables.numbered(Table::Voters, group.into());
        self.store.rows.put(Family::State, row, VotersRow(sorted).encode());
        Ok(Reply::Done)
    }

    /// Takes one use of a join token, if it is still good.
    fn use_token(&mut self, hash: &TokenHash) -> Result<bool> {
        self.end_tokens()?;
        let row = self.tables.keyed(Table::Token, hash);
        let found = self.store.rows.get(Family::State, &row)?;
        let found = found.map(|bytes| Token::decode(&bytes)).transpose()?;
        let Some(mut token) = found.filter(|token| token.kind == TokenKind::Join) else { return Ok(false) };
        match token.uses_left.as_mut() {
            None => {}
            Some(1) => {
                self.facts()?.tokens.removed()?;
                self.store.rows.delete(Family::State, row);
            }
            Some(left) => {
                *left = left.saturating_sub(1);
                self.store.rows.put(Family::State, row, token.encode());
            }
        }
        Ok(true)
    }

    /// Removes tokens whose term is over. All are looked at: there are few, and it is seldom.
    pub(super) fn end_tokens(&mut self) -> Result<()> {
        let (tokens, now) = (self.known_facts()?.tokens, self.now);
        if tokens.count == 0 || tokens.from > now {
            return Ok(());
        }
        let mut next = LogTime::MAX;
        for (row, token) in self.tokens()? {
            let end = token.expires_at.unwrap_or(LogTime::MAX);
            if end <= now {
                self.store.rows.delete(Family::State, row);
                self.facts()?.tokens.removed()?;
            } else {
                next = next.min(end);
            }
        }
        self.facts()?.tokens.from = next;
        Ok(())
    }

    /// When the first token ends.
    pub(super) fn first_token_end(&mut self) -> Result<Option<LogTime>> {
        if self.known_facts()?.tokens.count == 0 {
            return Ok(None);
        }
        Ok(self.tokens()?.into_iter().filter_map(|(_, token)| token.expires_at).min())
    }

    fn tokens(&self) -> Result<Vec<(Vec<u8>, Token)>> {
        let (from, to) = self.tables.all(Table::Token);
        let limit = usize::try_from(limits::TOKENS).unwrap_or(usize::MAX);
        let found = self.store.rows.first(Family::State, (&from, &to), limit)?;
        found.into_iter().map(|(row, value)| Ok((row, Token::decode(&value)?))).collect()
    }

    fn cluster(&self) -> Result<Option<Cluster>> {
        let found = self.store.rows.get(Family::State, &self.tables.single(Table::Cluster))?;
        found.map(|bytes| Cluster::decode(&bytes)).transpose()
    }

    fn node(&self, id: NodeId) -> Result<Option<Node>> {
        let found = self.store.rows.get(Family::State, &self.tables.numbered(Table::Node, id))?;
        found.map(|bytes| Node::decode(&bytes)).transpose()
    }

    fn store_node(&mut self, id: NodeId, uuid: u128, address: &str, version: &str) {
        let node = Node {
            uuid,
            address: address.to_owned(),
            version: version.to_owned(),
            wish: NodeWish::Any,
            since: self.now,
        };
        let rows = &mut self.store.rows;
        rows.put(Family::State, self.tables.numbered(Table::Node, id), node.encode());
        rows.put(Family::State, self.tables.node_uuid(uuid), NumberRow(id).encode());
    }

    /// Why there is no such node.
    fn missing(&self, id: NodeId) -> Result<Refusal> {
        let removed = self.store.rows.get(Family::State, &self.tables.numbered(Table::RemovedNode, id))?;
        Ok(if removed.is_some() { Refusal::NodeRemoved(id) } else { Refusal::NoNode(id) })
    }
}

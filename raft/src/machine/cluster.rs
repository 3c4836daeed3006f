//! The cluster's own rows, in group 0: its map, its nodes for ever and ever, join tokens, and who shall vote.

use dolomedes_storage::{Result, engine::Family};

use super::{
    limits,
    records::{Cluster, Node, NumberRow, Record, RemovedNode, Token, VotersRow, take},
    tables::Table,
    work::Work,
};
use crate::command::{
    Bootstrapped, Enrolled, FirstNode, LogTime, MAX_VOTERS, NodeId, NodeWish, Refusal, Reply, SLOTS,
    TokenHash,
};

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

impl Work<'_, '_> {
    pub(super) fn bootstrap(&mut self, id: u128, groups: u32, first: &FirstNode) -> Result<Reply> {
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

    pub(super) fn join_token(&mut self, hash: &TokenHash, ttl_ms: u64, uses: Option<u32>) -> Result<Reply> {
        if ttl_ms == 0 || ttl_ms > limits::TOKEN_TTL_MS || uses == Some(0) {
            return refuse(Refusal::Invalid(format!(
                "a join token for {ttl_ms} ms and {} uses; 1 to {} ms and at least one use are allowed",
                uses.map_or("any number of".to_owned(), |uses| uses.to_string()),
                limits::TOKEN_TTL_MS
            )));
        }
        self.end_tokens()?;
        let row = self.tables.keyed(Table::Token, hash);
        let expires_at = self.now.saturating_add(ttl_ms);
        let known = self.store.rows.get(Family::State, &row)?.is_some();
        let tokens = &mut self.facts()?.tokens;
        if known {
            tokens.from = tokens.from.min(expires_at);
        } else if tokens.count >= limits::TOKENS {
            return refuse(Refusal::Full(format!(
                "there are {} join tokens, which is the most; revoke some first",
                limits::TOKENS
            )));
        } else {
            tokens.added(expires_at);
        }
        self.store.rows.put(Family::State, row, Token { expires_at, uses_left: uses }.encode());
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
        let Some(mut token) = found.map(|bytes| Token::decode(&bytes)).transpose()? else { return Ok(false) };
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

    /// Removes join tokens whose term is over. All are looked at: there are few, and it is seldom.
    pub(super) fn end_tokens(&mut self) -> Result<()> {
        let (tokens, now) = (self.known_facts()?.tokens, self.now);
        if tokens.count == 0 || tokens.from > now {
            return Ok(());
        }
        let mut next = LogTime::MAX;
        for (row, token) in self.tokens()? {
            if token.expires_at <= now {
                self.store.rows.delete(Family::State, row);
                self.facts()?.tokens.removed()?;
            } else {
                next = next.min(token.expires_at);
            }
        }
        self.facts()?.tokens.from = next;
        Ok(())
    }

    /// When the first join token ends.
    pub(super) fn first_token_end(&mut self) -> Result<Option<LogTime>> {
        if self.known_facts()?.tokens.count == 0 {
            return Ok(None);
        }
        Ok(self.tokens()?.into_iter().map(|(_, token)| token.expires_at).min())
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

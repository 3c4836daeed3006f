//! Tokens, and what a new node has to show before it is enrolled in a secure cluster.

use dolomedes_netproto::{
    peer::identity::{check_proof, node_uuid},
    wire::{self, v1},
};
use dolomedes_raft::{
    cluster::ClusterNode,
    command::{Command, TokenHash, TokenKind},
    group::Group,
};
use tonic::Status;

use super::{read, submit};
use crate::keys::Authority;

/// Looks at what a node shows that wants to be enrolled; returns the hash of its join token, which the state machine looks
/// at for good. Runs on the leader of group 0.
pub(super) async fn check_enrolment(
    node: &ClusterNode,
    group: &Group,
    authority: &Authority,
    request: &v1::EnrolRequest,
    uuid: u128,
) -> Result<TokenHash, Status> {
    if request.token.is_empty() {
        return Err(Status::unauthenticated(
            "a node joins with a token; `dolomedes cluster token create --join` makes one",
        ));
    }
    let token: wire::Token = request
        .token
        .parse()
        .map_err(|error: wire::TokenError| Status::invalid_argument(error.to_string()))?;
    if token.kind() != wire::TokenKind::Join {
        return Err(Status::invalid_argument("this is an access token; a node joins with a join token"));
    }
    if token.ca() != authority.fingerprint() {
        return Err(Status::permission_denied("the join token is of another cluster"));
    }
    check_proof(&request.public_key, authority.fingerprint(), &request.address, &request.proof)
        .map_err(|error| Status::permission_denied(error.to_string()))?;
    if node_uuid(&request.public_key) != uuid {
        return Err(Status::invalid_argument("the node's own id is not that of its public key"));
    }
    let hash = token.hash();
    let (known, found) =
        read(group, move |state| Ok((state.node_by_uuid(uuid)?.is_some(), state.token(&hash)?))).await?;
    let good = found.is_some_and(|found| {
        found.kind == TokenKind::Join && found.expires_at.is_none_or(|end| end > node.now_ms())
    });
    // Who has proved to be known gets its number again, whatever has become of the token. Anybody else with a token that is
    // not good leaves no trace in the log.
    if known || good { Ok(hash) } else { Err(super::refused(&dolomedes_raft::command::Refusal::BadToken)) }
}

pub(super) async fn create(
    group: Group,
    request: v1::CreateTokenRequest,
) -> Result<v1::CreateTokenReply, Status> {
    let kind = match request.kind() {
        v1::TokenKind::Join => TokenKind::Join,
        v1::TokenKind::Access => TokenKind::Access,
        v1::TokenKind::Unspecified => return Err(Status::invalid_argument("kind is missing")),
    };
    let command = Command::MakeToken {
        hash: hash(&request.hash)?,
        kind,
        label: request.label,
        ttl_ms: Some(request.ttl_ms).filter(|ttl| *ttl > 0),
        uses: Some(request.uses).filter(|uses| *uses > 0),
    };
    submit(&group, command, None).await?;
    Ok(v1::CreateTokenReply {})
}

pub(super) async fn list(node: &ClusterNode, group: Group) -> Result<v1::ListTokensReply, Status> {
    let tokens = read(&group, |state| state.tokens()).await?;
    let now = node.now_ms();
    let good = tokens.into_iter().filter(|token| token.expires_at.is_none_or(|end| end > now));
    let tokens = good.map(|token| v1::TokenInfo {
        hash: token.hash.to_vec().into(),
        kind: match token.kind {
            TokenKind::Join => v1::TokenKind::Join,
            TokenKind::Access => v1::TokenKind::Access,
        } as i32,
        label: token.label,
        age_ms: now.saturating_sub(token.made_at),
        left_ms: token.expires_at.map(|end| end.saturating_sub(now)),
        uses_left: token.uses_left,
    });
    Ok(v1::ListTokensReply { tokens: tokens.collect() })
}

pub(super) async fn revoke(
    group: Group,
    request: v1::RevokeTokenRequest,
) -> Result<v1::RevokeTokenReply, Status> {
    submit(&group, Command::RevokeToken { hash: hash(&request.hash)? }, None).await?;
    Ok(v1::RevokeTokenReply {})
}

fn hash(bytes: &[u8]) -> Result<TokenHash, Status> {
    bytes.try_into().map_err(|_| Status::invalid_argument("the hash of a token has 32 bytes"))
}

//! The service about the cluster itself. Answered by the leader of group 0, which also runs the controller.

use std::{collections::BTreeMap, sync::Arc};

use dolomedes_netproto::wire::v1::{self, cluster_client::ClusterClient, cluster_server::Cluster};
use dolomedes_raft::{
    cluster::{META, plan::GroupState},
    command::{Command, Enrolled, NodeWish, Reply},
    group::Group,
    machine::read::NodeInfo,
};
use tonic::{Request, Response, Status};

use super::{Api, read, submit, tokens, unexpected};
use crate::jobs::{Jobs, recall};

pub(super) struct ClusterService {
    pub(super) api: Api,
    pub(super) jobs: Arc<Jobs>,
}

/// Passes a call on as it is.
macro_rules! there {
    ($method:ident) => {
        |channel, request| async move { ClusterClient::new(channel).$method(request).await }
    };
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        let node = self.api.node.clone();
        let here = |group: Group, _| async move {
            let nodes = read(&group, |state| state.nodes()).await?;
            let picture = node.picture();
            let silent = |number| u64::try_from(node.silent(number).as_millis()).unwrap_or(u64::MAX);
            Ok(v1::StatusReply {
                cluster: format!("{:032x}", node.cluster()),
                nodes: nodes.iter().map(|info| describe_node(info, &picture, silent(info.node))).collect(),
                groups: picture.iter().map(|(number, state)| describe_group(*number, state)).collect(),
                answered_by: node.number(),
            })
        };
        self.api.serve(META, request, here, there!(status)).await
    }

    async fn enrol(&self, request: Request<v1::EnrolRequest>) -> Result<Response<v1::EnrolReply>, Status> {
        let (node, authority) = (self.api.node.clone(), self.api.authority.clone());
        let here = |group: Group, request: v1::EnrolRequest| async move {
            let uuid = <[u8; 16]>::try_from(request.uuid.as_ref())
                .map_err(|_| Status::invalid_argument("uuid has to be 16 bytes"))?;
            let uuid = u128::from_be_bytes(uuid);
            let (mut token, mut ca) = (None, None);
            if let Some(authority) = &authority {
                token = Some(tokens::check_enrolment(&node, &group, authority, &request, uuid).await?);
                // Before a use of the token is taken.
                ca = Some(authority.ca().ok_or_else(|| {
                    Status::unavailable(format!("node {} has not got the CA's key yet", node.number()))
                })?);
            }
            let command =
                Command::EnrolNode { uuid, address: request.address, version: request.version, token };
            let reply = submit(&group, command, None).await?;
            let Reply::Enrolled(Enrolled { node: number, .. }) = reply else {
                return Err(unexpected(&reply));
            };
            let nodes = read(&group, |state| state.nodes()).await?;
            let (mut ca_certificate, mut certificate) = (String::new(), String::new());
            if let Some(ca) = ca {
                ca.certificate().clone_into(&mut ca_certificate);
                let issued = ca.certify(number, &request.public_key);
                certificate = issued.map_err(|error| Status::internal(error.to_string()))?;
            }
            Ok(v1::EnrolReply {
                ca: ca_certificate,
                certificate,
                cluster: node.cluster().to_be_bytes().to_vec().into(),
                node: number,
                groups: u32::try_from(node.queue_groups().count()).unwrap_or(u32::MAX),
                members: nodes.iter().map(|info| describe_node(info, &BTreeMap::new(), 0)).collect(),
            })
        };
        self.api.serve(META, request, here, there!(enrol)).await
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenReply>, Status> {
        if self.api.authority.is_none() {
            return Err(Status::failed_precondition("this cluster is insecure: it asks for no tokens"));
        }
        self.api.serve(META, request, tokens::create, there!(create_token)).await
    }

    async fn list_tokens(
        &self,
        request: Request<v1::ListTokensRequest>,
    ) -> Result<Response<v1::ListTokensReply>, Status> {
        let node = self.api.node.clone();
        let here = |group: Group, _| async move { tokens::list(&node, group).await };
        self.api.serve(META, request, here, there!(list_tokens)).await
    }

    async fn revoke_token(
        &self,
        request: Request<v1::RevokeTokenRequest>,
    ) -> Result<Response<v1::RevokeTokenReply>, Status> {
        self.api.serve(META, request, tokens::revoke, there!(revoke_token)).await
    }

    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeReply>, Status> {
        let jobs = self.jobs.clone();
        let here = |group: Group, request: v1::RemoveNodeRequest| async move {
            let nodes = read(&group, |state| state.nodes()).await?;
            let left = nodes.iter().filter(|info| info.node != request.node).count();
            if left == 0 {
                return Err(Status::failed_precondition("the last node cannot be removed"));
            }
            submit(&group, Command::RemoveNode { node: request.node }, None).await?;
            let recalled = recall(&jobs, request.node).await.map_err(|error| {
                Status::unavailable(format!(
                    "node {} is removed, but not all pages that it had are queued again; repeat the call: {error:#}",
                    request.node
                ))
            })?;
            Ok(v1::RemoveNodeReply { recalled })
        };
        self.api.serve(META, request, here, there!(remove_node)).await
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeReply>, Status> {
        let here = |group: Group, request: v1::DrainNodeRequest| async move {
            let wish = if request.undo { NodeWish::Any } else { NodeWish::Drain };
            let command =
                Command::SetNode { node: request.node, address: None, version: None, wish: Some(wish) };
            submit(&group, command, None).await?;
            Ok(v1::DrainNodeReply {})
        };
        self.api.serve(META, request, here, there!(drain_node)).await
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderReply>, Status> {
        let node = self.api.node.clone();
        let here = |_: Group, request: v1::TransferLeaderRequest| async move {
            let moved = node.move_leader(request.group, request.to).await;
            moved.map_err(Status::failed_precondition)?;
            Ok(v1::TransferLeaderReply {})
        };
        self.api.serve(META, request, here, there!(transfer_leader)).await
    }
}

fn describe_node(info: &NodeInfo, picture: &BTreeMap<u32, GroupState>, silent_ms: u64) -> v1::Node {
    let votes = picture.values().any(|group| group.voters.contains(&info.node));
    let learns = picture.values().any(|group| group.learners.contains(&info.node));
    let role = match (votes, learns) {
        (true, _) => v1::Role::Voter,
        (false, true) => v1::Role::Learner,
        (false, false) => v1::Role::Worker,
    };
    v1::Node {
        id: info.node,
        address: info.address.clone(),
        role: role as i32,
        version: info.version.clone(),
        silent_ms,
        draining: info.wish == NodeWish::Drain,
    }
}

fn describe_group(number: u32, state: &GroupState) -> v1::Group {
    let members = state.voters.union(&state.learners).map(|node| v1::Member {
        node: *node,
        votes: state.voters.contains(node),
        behind: state.behind.get(node).copied().unwrap_or(state.last),
    });
    v1::Group {
        group: number,
        leader: state.leader.unwrap_or(0),
        term: state.term,
        last_index: state.last,
        applied_index: state.applied,
        members: members.collect(),
    }
}

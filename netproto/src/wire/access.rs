//! As whom a client calls, and how it recognises the cluster.

use std::sync::Arc;

use rustls::ClientConfig;
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;

use super::{Token, TokenKind};
use crate::peer::identity::{NodeIdentity, fingerprint_of};
use crate::peer::{Member, SecurityError, pinned};

/// With a call of a node to the API: its number, which its certificate has to confirm.
pub const CALLING_NODE: &str = "dolomedes-node";

/// As whom a client calls.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// As anybody, without TLS: for clusters that are insecure, which are on loopback.
    #[default]
    Insecure,
    /// As who has this token, over TLS with the cluster that the token is of. A join token is shown in the call that
    /// enrols and nowhere else.
    Token(Token),
    /// As a node, with its certificate: for who may read its data directory.
    Node(Box<NodeAccess>),
}

/// What a node knows of itself.
#[derive(Clone, Debug)]
pub struct NodeAccess {
    /// Who it is.
    pub member: Member,
    /// The certificate of its cluster's CA, PEM.
    pub ca: String,
    /// Its own certificate and key.
    pub identity: NodeIdentity,
}

impl Access {
    /// The client's side of TLS; `None`: there is none.
    pub(super) fn tls(&self) -> Result<Option<Arc<ClientConfig>>, SecurityError> {
        match self {
            Self::Insecure => Ok(None),
            Self::Token(token) => pinned::client_config(*token.ca(), None).map(Some),
            Self::Node(node) => {
                let ca = fingerprint_of(&node.ca).map_err(|error| SecurityError::Tls(error.to_string()))?;
                pinned::client_config(ca, Some(&node.identity)).map(Some)
            }
        }
    }

    /// What goes with every call.
    pub(super) fn credentials(&self) -> Credentials {
        let header = match self {
            Self::Insecure => None,
            Self::Token(token) if token.kind() == TokenKind::Join => None,
            // Letters and digits are always a valid value.
            Self::Token(token) => {
                MetadataValue::try_from(format!("Bearer {}", token.reveal())).ok().map(|mut value| {
                    value.set_sensitive(true);
                    ("authorization", value)
                })
            }
            Self::Node(node) => Some((CALLING_NODE, MetadataValue::from(node.member.node))),
        };
        Credentials { header }
    }
}

/// Says with every call as whom it is made.
#[derive(Clone, Debug)]
pub struct Credentials {
    header: Option<(&'static str, MetadataValue<Ascii>)>,
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        if let Some((name, value)) = &self.header {
            request.metadata_mut().insert(*name, value.clone());
        }
        Ok(request)
    }
}

//! Whom a client of the API takes for the cluster of its token.

use std::time::Duration;

use dolomedes_netproto::peer::identity::{ClusterCa, fingerprint_of};
use dolomedes_netproto::peer::{Member, Security};
use dolomedes_netproto::wire::{Access, Client, ClientError, ClientOptions, NodeAccess, Token, TokenKind};
use tonic::Code;

use crate::peer_support::{CLUSTER, Node, member, soon};

fn token(ca: &ClusterCa, kind: TokenKind) -> Access {
    Access::Token(Token::draw(kind, fingerprint_of(ca.certificate()).unwrap()).unwrap())
}

async fn ask(node: &Node, access: Access) -> Result<(), ClientError> {
    let options = ClientOptions { access, deadline: Duration::from_secs(30), ..ClientOptions::default() };
    let client = Client::new(&[node.address.to_string()], options).unwrap();
    soon("a call ends", client.status()).await.map(drop)
}

#[track_caller]
fn distrusted(answer: Result<(), ClientError>, says: &str) {
    match answer {
        Err(ClientError::Distrusted(reason)) => assert!(reason.contains(says), "{reason}"),
        other => panic!("not distrusted: {other:?}"),
    }
}

#[tokio::test]
async fn a_client_trusts_nodes_of_the_ca_that_its_token_names_and_no_others() {
    let (ca, foreign) = (ClusterCa::generate(CLUSTER).unwrap(), ClusterCa::generate(CLUSTER).unwrap());
    let security = |shown: &ClusterCa, issuer: &ClusterCa| {
        Security::mutual(shown.certificate(), &issuer.issue(2).unwrap()).unwrap()
    };
    let own = NodeAccess {
        member: Member { cluster: CLUSTER, node: 1 },
        ca: ca.certificate().to_owned(),
        identity: ca.issue(1).unwrap(),
    };
    let right = Node::start(member(2), security(&ca, &ca)).await;
    for access in
        [token(&ca, TokenKind::Access), token(&ca, TokenKind::Join), Access::Node(Box::new(own.clone()))]
    {
        // It is trusted as far as to be asked for what it does not have.
        match ask(&right, access).await {
            Err(ClientError::Refused(status)) => assert_eq!(status.code(), Code::Unimplemented),
            other => panic!("not refused: {other:?}"),
        }
    }
    distrusted(ask(&right, token(&foreign, TokenKind::Access)).await, "another cluster");
    // The CA's certificate is no secret: to show it proves nothing.
    let forged = Node::start(member(2), security(&ca, &foreign)).await;
    for access in [token(&ca, TokenKind::Access), token(&ca, TokenKind::Join), Access::Node(Box::new(own))] {
        distrusted(ask(&forged, access).await, "not valid");
    }
    let plain = Node::start(member(2), Security::Insecure).await;
    distrusted(ask(&plain, token(&ca, TokenKind::Access)).await, "does not speak TLS");
    match ask(&right, Access::Insecure).await {
        Err(ClientError::Refused(status)) => {
            assert_eq!(status.code(), Code::Unauthenticated);
            assert!(status.message().contains("TLS only"), "{status}");
        }
        other => panic!("not refused: {other:?}"),
    }
}

//! Who may call the API of a secure cluster: nodes, by the certificate of their connection, and whoever has an access token.
//! Everything that is not named here as open is closed. Tokens are asked for at the leader of group 0 and remembered for a
//! second, so that revoking takes effect at once and calls cost no second one.

use std::{
    collections::HashMap,
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use dolomedes_netproto::{
    peer::{Member, PeerConnection, identity::Fingerprint},
    wire::{CALLING_NODE, Token, TokenKind},
};
use dolomedes_raft::{
    cluster::{ClusterNode, META},
    command,
};
use tokio::{sync::Semaphore, time::Instant};
use tonic::Status;

use super::{LEADER_PATIENCE, failed};

/// What anybody may call: what tells nothing, and what asks for credentials of its own. A name that ends with a slash is a
/// whole service.
const OPEN: [&str; 4] = [
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1.ServerReflection/",
    "/dolomedes.peer.v1.Peer/",
    "/dolomedes.v1.Cluster/Enrol",
];
/// How long a token is good without asking for it again.
const FRESH: Duration = Duration::from_secs(1);
/// How long it is good if nobody can be asked: about as long as it takes to notice that group 0 has no majority.
const STALE: Duration = Duration::from_secs(60);
/// Tokens that are remembered: as many as there can be.
const MOST_KNOWN: usize = dolomedes_raft::machine::limits::TOKENS as usize;
/// Questions about tokens that are under way at once; others wait for their turn.
const MOST_QUESTIONS: usize = 16;

/// See the module.
pub(super) struct Gate {
    node: Arc<ClusterNode>,
    ca: Fingerprint,
    known: Mutex<HashMap<[u8; 32], Known>>,
    questions: Semaphore,
}

#[derive(Clone, Copy)]
struct Known {
    expires_at: Option<u64>,
    confirmed: Instant,
    /// When somebody began to ask for it last; one question at a time is enough.
    asked: Instant,
}

/// What a call says of who makes it.
struct Caller {
    path: String,
    authorization: Option<String>,
    node: Option<String>,
    connection: Option<PeerConnection>,
}

impl Gate {
    pub(super) fn new(node: Arc<ClusterNode>, ca: Fingerprint) -> Self {
        Self { node, ca, known: Mutex::default(), questions: Semaphore::new(MOST_QUESTIONS) }
    }

    async fn admit(&self, caller: Caller) -> Result<(), Status> {
        if is_open(&caller.path) {
            return Ok(());
        }
        if let Some(node) = &caller.node {
            return self.admit_node(node, caller.connection.as_ref());
        }
        let authorization = caller.authorization.ok_or_else(|| {
            Status::unauthenticated(
                "this call needs an access token (`authorization: Bearer …`); `dolomedes cluster token create` makes one",
            )
        })?;
        self.admit_token(&token(&authorization, &self.ca)?).await
    }

    fn admit_node(&self, node: &str, connection: Option<&PeerConnection>) -> Result<(), Status> {
        let number = node.parse().map_err(|_| Status::unauthenticated("the node's number is none"))?;
        let connection =
            connection.ok_or_else(|| Status::unauthenticated("this server does not know its connections"))?;
        let member = Member { cluster: self.node.cluster(), node: number };
        connection.is_of(member).map_err(Status::unauthenticated)?;
        self.node.admits(number).map_err(Status::permission_denied)
    }

    async fn admit_token(&self, token: &Token) -> Result<(), Status> {
        let hash = token.hash();
        let Some(before) = self.look(hash)? else { return Ok(()) };
        // In turn: strings that are no tokens must not keep the leader busy.
        let turn = tokio::time::timeout(LEADER_PATIENCE, self.questions.acquire()).await;
        let _turn = turn.map_err(|_| {
            Status::resource_exhausted("too many unknown tokens are being looked for; try again")
        })?;
        // Somebody may have asked for it meanwhile.
        if before.is_none() && self.look(hash)?.is_none() {
            return Ok(());
        }
        match (self.ask(hash).await, before) {
            (Ok(Some(expires_at)), _) => {
                self.note(hash, expires_at);
                self.in_time(expires_at)
            }
            (Ok(None), _) => {
                self.known().remove(&hash);
                Err(refused())
            }
            // It was good a moment ago.
            (Err(_), Some(known)) => self.in_time(known.expires_at),
            (Err(status), None) => Err(status),
        }
    }

    /// Whether a token has to be asked for: `None` if it is known to be good, else what was known of it before. Who is told
    /// to ask is the only one for as long as an answer is fresh.
    fn look(&self, hash: [u8; 32]) -> Result<Option<Option<Known>>, Status> {
        let now = Instant::now();
        let mut known = self.known();
        let Some(found) = known.get_mut(&hash).filter(|found| now - found.confirmed < STALE) else {
            return Ok(Some(None));
        };
        if now - found.asked < FRESH {
            return self.in_time(found.expires_at).map(|()| None);
        }
        found.asked = now;
        Ok(Some(Some(*found)))
    }

    /// When the token ends, if it is one for access; `None`: it is not good.
    async fn ask(&self, hash: [u8; 32]) -> Result<Option<Option<u64>>, Status> {
        tokio::time::timeout(LEADER_PATIENCE, self.node.known_leader(META))
            .await
            .map_err(|_| Status::unavailable("group 0, which knows the tokens, has no leader at present"))?;
        let found = self.node.token(hash).await.map_err(|error| match failed(error) {
            // Nothing was changed: it may be asked again.
            status if status.code() == tonic::Code::Unknown => Status::unavailable(status.message()),
            status => status,
        })?;
        let found = found.filter(|found| found.kind == command::TokenKind::Access);
        Ok(found.map(|found| found.expires_at))
    }

    fn in_time(&self, expires_at: Option<u64>) -> Result<(), Status> {
        match expires_at {
            Some(end) if end <= self.node.now_ms() => Err(refused()),
            _ => Ok(()),
        }
    }

    fn note(&self, hash: [u8; 32], expires_at: Option<u64>) {
        let now = Instant::now();
        let mut known = self.known();
        if known.len() >= MOST_KNOWN {
            known.retain(|_, known| now - known.confirmed < FRESH);
        }
        if known.len() < MOST_KNOWN {
            known.insert(hash, Known { expires_at, confirmed: now, asked: now });
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<[u8; 32], Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_open(path: &str) -> bool {
    OPEN.iter().any(|open| if open.ends_with('/') { path.starts_with(open) } else { path == *open })
}

fn refused() -> Status {
    Status::unauthenticated("the access token is not known: it was revoked or has expired; make a new one")
}

/// The access token of this cluster in a header.
fn token(authorization: &str, ca: &Fingerprint) -> Result<Token, Status> {
    let (scheme, text) = authorization.split_once(' ').unwrap_or((authorization, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Status::unauthenticated("`authorization` has to be `Bearer` and an access token"));
    }
    let token: Token = text
        .parse()
        .map_err(|error: dolomedes_netproto::wire::TokenError| Status::unauthenticated(error.to_string()))?;
    if token.kind() != TokenKind::Access {
        return Err(Status::unauthenticated("this is a join token; calls need an access token"));
    }
    if token.ca() != ca {
        return Err(Status::unauthenticated("the access token is of another cluster"));
    }
    Ok(token)
}

/// Puts the gate in front of all services.
#[derive(Clone)]
pub(super) struct Gated(pub(super) Arc<Gate>);

impl<S> tower::Layer<S> for Gated {
    type Service = Behind<S>;

    fn layer(&self, inner: S) -> Behind<S> {
        Behind { inner, gate: self.0.clone() }
    }
}

/// A service behind the gate.
#[derive(Clone)]
pub(super) struct Behind<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S, B, R> tower::Service<http::Request<B>> for Behind<S>
where
    S: tower::Service<http::Request<B>, Response = http::Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let header = |name: &str| {
            // What is not ASCII is no token and no number.
            request.headers().get(name).map(|value| value.to_str().unwrap_or_default().to_owned())
        };
        let caller = Caller {
            path: request.uri().path().to_owned(),
            authorization: header("authorization"),
            node: header(CALLING_NODE),
            connection: request.extensions().get::<PeerConnection>().cloned(),
        };
        let gate = self.gate.clone();
        // The one that was found ready has to be used.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        Box::pin(async move {
            match gate.admit(caller).await {
                Ok(()) => inner.call(request).await,
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_as_open_is_closed() {
        for open in [
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/dolomedes.peer.v1.Peer/Call",
            "/dolomedes.v1.Cluster/Enrol",
        ] {
            assert!(is_open(open), "{open}");
        }
        for closed in [
            "",
            "/",
            "/dolomedes.v1.Cluster/EnrolAll",
            "/dolomedes.v1.Cluster/Status",
            "/dolomedes.v1.Queues/Put",
            "//grpc.health.v1.Health/Check",
            "/grpc.health.v1.HealthMore/Check",
        ] {
            assert!(!is_open(closed), "{closed}");
        }
    }

    #[test]
    fn only_access_tokens_of_the_cluster_pass() {
        let access = Token::draw(TokenKind::Access, [7; 32]).unwrap();
        let join = Token::draw(TokenKind::Join, [7; 32]).unwrap().reveal();
        let foreign = Token::draw(TokenKind::Access, [8; 32]).unwrap().reveal();
        let text = access.reveal();
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert_eq!(token(&format!("{scheme} {text}"), &[7; 32]).unwrap(), access);
        }
        for (header, says) in [
            (text.clone(), "`Bearer`"),
            (format!("Basic {text}"), "`Bearer`"),
            (String::new(), "`Bearer`"),
            ("Bearer".to_owned(), "begins with"),
            (format!("Bearer {}", &text[..50]), "damaged"),
            (format!("Bearer {join}"), "join token"),
            (format!("Bearer {foreign}"), "another cluster"),
        ] {
            let status = token(&header, &[7; 32]).unwrap_err();
            assert_eq!(status.code(), tonic::Code::Unauthenticated);
            assert!(status.message().contains(says) && !status.message().contains(&text), "{status:?}");
        }
    }
}

//! Who is let in: what a request says of itself, what its connection's certificate says, and what the membership says,
//! before a byte of its payload is looked at. Also counts what each peer has under way.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustls::pki_types::CertificateDer;
use tonic::service::Interceptor;
use tonic::{Request, Status};

use super::bounds::{CONNECTIONS_PER_PEER, CONTROL_CALLS, SERVER_SLACK, SNAPSHOT_CALLS, STREAMS_PER_PEER};
use super::hello::{Hello, Line, Member};
use super::{NodeNumber, Security, security, verdict};

/// Says which nodes belong to the cluster. Asked for every request and every opening of a stream, so it must be quick and
/// must not wait.
pub trait Membership: Send + Sync + 'static {
    /// Whether `node` is let in.
    ///
    /// # Errors
    /// The reason why not; it reaches the node.
    fn admits(&self, node: NodeNumber) -> Result<(), String>;
}

impl<F: Fn(NodeNumber) -> Result<(), String> + Send + Sync + 'static> Membership for F {
    fn admits(&self, node: NodeNumber) -> Result<(), String> {
        self(node)
    }
}

/// What a server knows of a connection. Whoever accepts connections puts one of these into the extensions of every
/// request that comes in on it; without it no request of a peer is answered.
#[derive(Clone, Debug)]
pub struct PeerConnection(Arc<Known>);

#[derive(Debug)]
struct Known {
    /// Under TLS, what the client has shown, verified up to the CA.
    certificate: Option<CertificateDer<'static>>,
    /// Whose certificate it has been seen to be.
    shown: OnceLock<Member>,
    /// The node whose connection it has turned out to be, and its place among that node's connections.
    owner: Mutex<Option<(NodeNumber, Seat)>>,
}

impl PeerConnection {
    /// A connection whose client has shown this certificate, whose chain up to the cluster's CA was verified by TLS.
    /// `None` if it has shown none, or there is no TLS.
    pub fn new(certificate: Option<CertificateDer<'static>>) -> Self {
        Self(Arc::new(Known { certificate, shown: OnceLock::new(), owner: Mutex::new(None) }))
    }

    /// Whether the client has shown the certificate of `member`.
    ///
    /// # Errors
    /// What it has shown instead, if anything.
    pub fn is_of(&self, member: Member) -> Result<(), String> {
        if self.0.shown.get() == Some(&member) {
            return Ok(());
        }
        let certificate = self.0.certificate.as_ref().ok_or("the client has shown no certificate")?;
        security::names(certificate, member)?;
        // A certificate names one member only.
        let _ = self.0.shown.set(member);
        Ok(())
    }
}

/// A request that was let in; while it lives, it counts.
#[derive(Clone, Debug)]
pub(super) struct Admitted {
    pub(super) from: NodeNumber,
    pub(super) line: Line,
    _seat: Arc<Seat>,
}

/// Checks every request before it is read.
#[derive(Clone)]
pub struct Gate {
    local: Member,
    mutual: bool,
    membership: Arc<dyn Membership>,
    table: Table,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("local", &self.local)
            .field("mutual", &self.mutual)
            .finish_non_exhaustive()
    }
}

impl Gate {
    pub(super) fn new(local: Member, security: &Security, membership: Arc<dyn Membership>) -> Self {
        let mutual = matches!(security, Security::Mutual(_));
        Self { local, mutual, membership, table: Table::default() }
    }

    fn admit(&self, request: &Request<()>) -> Result<Admitted, Status> {
        let refused = |reason: String| verdict::refused(&reason);
        let hello = Hello::read(request.metadata()).map_err(refused)?;
        hello.check(self.local).map_err(refused)?;
        let connection = request.extensions().get::<PeerConnection>();
        let connection =
            connection.ok_or_else(|| verdict::refused("this server does not know its connections"))?;
        let mut owner = connection.0.owner.lock().unwrap_or_else(PoisonError::into_inner);
        match &*owner {
            Some((node, _)) if *node == hello.from => {}
            Some((node, _)) => {
                return Err(refused(format!(
                    "this is a connection of node {node}, not of node {}",
                    hello.from
                )));
            }
            None => self.identify(connection, hello.from)?,
        }
        self.membership.admits(hello.from).map_err(refused)?;
        if owner.is_none() {
            *owner = Some((hello.from, self.table.take(hello.from, Counted::Connection)?));
        }
        drop(owner);
        let seat = self.table.take(hello.from, Counted::On(hello.line))?;
        Ok(Admitted { from: hello.from, line: hello.line, _seat: Arc::new(seat) })
    }

    /// Whether the connection's certificate is that of `from`.
    fn identify(&self, connection: &PeerConnection, from: NodeNumber) -> Result<(), Status> {
        if !self.mutual {
            return Ok(());
        }
        let Some(certificate) = &connection.0.certificate else {
            return Err(verdict::refused(
                "the client has shown no certificate; nodes need one of the cluster's CA",
            ));
        };
        let member = Member { cluster: self.local.cluster, node: from };
        security::names(certificate, member).map_err(|reason| verdict::refused(&reason))
    }
}

impl Interceptor for Gate {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let admitted = self.admit(&request)?;
        request.extensions_mut().insert(admitted);
        Ok(request)
    }
}

/// What is counted per peer.
#[derive(Clone, Copy, Debug)]
enum Counted {
    Connection,
    On(Line),
}

impl Counted {
    fn limit(self) -> usize {
        match self {
            Self::Connection => CONNECTIONS_PER_PEER,
            Self::On(Line::Control) => CONTROL_CALLS * SERVER_SLACK,
            Self::On(Line::Append) => STREAMS_PER_PEER * SERVER_SLACK,
            Self::On(Line::Snapshot) => SNAPSHOT_CALLS * SERVER_SLACK,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Connection => "connections",
            Self::On(Line::Control) => "control calls",
            Self::On(Line::Append) => "streams",
            Self::On(Line::Snapshot) => "snapshot calls",
        }
    }

    fn slot(self) -> usize {
        match self {
            Self::Connection => 0,
            Self::On(Line::Control) => 1,
            Self::On(Line::Append) => 2,
            Self::On(Line::Snapshot) => 3,
        }
    }
}

/// What each peer has under way: as many rows as members that are connected.
#[derive(Clone, Debug, Default)]
struct Table(Arc<Mutex<HashMap<NodeNumber, [usize; 4]>>>);

impl Table {
    fn rows(&self) -> MutexGuard<'_, HashMap<NodeNumber, [usize; 4]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, node: NodeNumber, what: Counted) -> Result<Seat, Status> {
        let mut rows = self.rows();
        let row = rows.entry(node).or_default();
        if row[what.slot()] >= what.limit() {
            let reason = format!("node {node} has {} {} here already", what.limit(), what.name());
            return Err(verdict::busy(&reason));
        }
        row[what.slot()] += 1;
        Ok(Seat { node, what, table: self.clone() })
    }
}

/// One that is counted, until it is dropped.
#[derive(Debug)]
struct Seat {
    node: NodeNumber,
    what: Counted,
    table: Table,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut rows = self.table.rows();
        if let Some(row) = rows.get_mut(&self.node) {
            row[self.what.slot()] = row[self.what.slot()].saturating_sub(1);
            if *row == [0; 4] {
                rows.remove(&self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const CLUSTER: u128 = 9;

    fn gate() -> Gate {
        let membership = |node| if node < 10 { Ok(()) } else { Err(format!("node {node} was removed")) };
        Gate::new(Member { cluster: CLUSTER, node: 1 }, &Security::Insecure, Arc::new(membership))
    }

    fn request(connection: &PeerConnection, from: NodeNumber, line: Line) -> Request<()> {
        let hello = Hello::new(Member { cluster: CLUSTER, node: from }, 1, line);
        let mut request = Request::from_parts(hello.metadata(), tonic::Extensions::new(), ());
        request.extensions_mut().insert(connection.clone());
        request
    }

    #[test]
    fn a_connection_stays_that_of_the_node_that_used_it_first() {
        let gate = gate();
        let connection = PeerConnection::new(None);
        gate.admit(&request(&connection, 2, Line::Control)).unwrap();
        gate.admit(&request(&connection, 2, Line::Control)).unwrap();
        let other = gate.admit(&request(&connection, 3, Line::Control)).unwrap_err();
        assert!(other.message().contains("a connection of node 2, not of node 3"), "{other}");
    }

    #[test]
    fn one_that_is_not_a_member_is_refused_and_leaves_no_trace() {
        let gate = gate();
        let refused = gate.admit(&request(&PeerConnection::new(None), 11, Line::Append)).unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, "node 11 was removed"));
        assert!(gate.table.rows().is_empty());
    }

    #[test]
    fn a_request_of_an_unknown_connection_is_refused() {
        let mut request = request(&PeerConnection::new(None), 2, Line::Append);
        request.extensions_mut().clear();
        assert_eq!(gate().admit(&request).unwrap_err().code(), Code::FailedPrecondition);
    }

    #[test]
    fn connections_calls_and_streams_of_a_peer_are_bounded_each_for_itself() {
        let gate = gate();
        let connections: Vec<_> = (0..CONNECTIONS_PER_PEER).map(|_| PeerConnection::new(None)).collect();
        let mut held = Vec::new();
        for connection in &connections {
            held.push(gate.admit(&request(connection, 2, Line::Control)).unwrap());
        }
        let busy = gate.admit(&request(&PeerConnection::new(None), 2, Line::Control)).unwrap_err();
        assert_eq!(busy.code(), Code::ResourceExhausted, "{busy}");
        held.clear();

        for (line, limit) in [(Line::Control, 256), (Line::Append, 128), (Line::Snapshot, 8)] {
            let mut held = Vec::new();
            for _ in 0..limit {
                held.push(gate.admit(&request(&connections[0], 2, line)).unwrap());
            }
            let busy = gate.admit(&request(&connections[0], 2, line)).unwrap_err();
            assert_eq!(busy.code(), Code::ResourceExhausted, "{busy}");
            // Another peer is not held up by it, and an end makes room.
            let other = PeerConnection::new(None);
            gate.admit(&request(&other, 3, line)).unwrap();
            held.pop();
            gate.admit(&request(&connections[0], 2, line)).unwrap();
        }
        drop(connections);
        assert!(gate.table.rows().is_empty());
    }
}

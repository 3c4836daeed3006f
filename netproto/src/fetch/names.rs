//! From a host name to the addresses that may be dialled: the static table first, then the resolver, then the guard. It
//! is what the HTTP library is given as its resolver, and only addresses returned here are ever dialled for a name, so
//! that no second look-up can slip another address past the guard. The look-up itself is in [`super::dns`].

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::failing_names::FailingNames;
use super::guard::AddressGuard;
use super::phase::{self, Phase};
use super::static_names::StaticNames;

/// Addresses of one name that are tried at most.
const MAX_ADDRESSES: usize = 8;

/// What [`Resolve::resolve`] returns.
pub type Resolving = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send>>;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `name` (lower case, ASCII, without a trailing dot), best first. Must not take forever; the
    /// DNS deadline of the request that asks drops the future.
    fn resolve(&self, name: &str) -> Resolving;
}

/// A name without usable addresses.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ResolveError {
    /// What kind of trouble.
    pub kind: ResolveErrorKind,
    /// For people; names the name.
    pub message: String,
}

/// Kinds of [`ResolveError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolveErrorKind {
    /// There is no such name, or it has no address.
    NoAddress,
    /// The name servers failed, or there are none.
    Failed,
    /// The name servers did not answer in time.
    Timeout,
    /// All its addresses are refused by the guard.
    Refused,
}

/// The resolver that the HTTP library gets.
pub(super) struct Names {
    shared: Arc<Shared>,
}

struct Shared {
    table: StaticNames,
    resolver: Arc<dyn Resolve>,
    guard: AddressGuard,
    /// The proxy's name: the operator chose it, so it may be anywhere.
    unguarded: Option<String>,
    failing: Mutex<FailingNames>,
    /// Bounds look-ups in flight.
    permits: Semaphore,
}

impl Names {
    pub(super) fn new(
        table: StaticNames,
        resolver: Arc<dyn Resolve>,
        guard: AddressGuard,
        unguarded: Option<String>,
        concurrency: usize,
    ) -> Self {
        let failing = Mutex::default();
        let permits = Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS));
        Self { shared: Arc::new(Shared { table, resolver, guard, unguarded, failing, permits }) }
    }
}

impl reqwest::dns::Resolve for Names {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            phase::enter(Phase::Dns);
            let addresses = shared.addresses(name.as_str()).await?;
            phase::enter(Phase::Connect);
            // Port 0 stands for the port of the URL.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as reqwest::dns::Addrs)
        })
    }
}

impl Shared {
    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let found = match self.table.get(name) {
            Some(addresses) => addresses.to_vec(),
            None => self.look_up(name).await?,
        };
        self.permitted(name, found)
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        if let Some(message) = self.failing().get(name, Instant::now()) {
            let message = format!("{message} (remembered)");
            return Err(ResolveError { kind: ResolveErrorKind::Failed, message });
        }
        let failed = || ResolveError {
            kind: ResolveErrorKind::Failed,
            message: format!("cannot resolve {name}: the resolver is shut down"),
        };
        let _permit = self.permits.acquire().await.map_err(|_| failed())?;
        let answer = self.resolver.resolve(name).await;
        let mut failing = self.failing();
        match &answer {
            Err(error) if matches!(error.kind, ResolveErrorKind::Failed | ResolveErrorKind::Timeout) => {
                failing.failed(name, &error.message, Instant::now());
            }
            _ => failing.answered(name),
        }
        answer
    }

    fn failing(&self) -> MutexGuard<'_, FailingNames> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permitted(&self, name: &str, mut found: Vec<IpAddr>) -> Result<Vec<IpAddr>, ResolveError> {
        let mut refusal = None;
        if self.unguarded.as_deref() != Some(name) {
            found.retain(|address| match self.guard.check(*address) {
                Ok(()) => true,
                Err(refused) => {
                    refusal = Some(refused);
                    false
                }
            });
        }
        found.truncate(MAX_ADDRESSES);
        if !found.is_empty() {
            return Ok(found);
        }
        Err(match refusal {
            Some(refused) => {
                ResolveError { kind: ResolveErrorKind::Refused, message: format!("{name}: {refused}") }
            }
            None => {
                ResolveError { kind: ResolveErrorKind::NoAddress, message: format!("{name} has no address") }
            }
        })
    }
}

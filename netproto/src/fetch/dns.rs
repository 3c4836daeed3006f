//! Look-ups in the DNS with the system's configuration: `/etc/hosts` first, then the name servers of
//! `/etc/resolv.conf`. Made at the first look-up, so that fetching from addresses needs no configuration at all.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolveHosts, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;

use super::names::{Resolve, ResolveError, ResolveErrorKind, Resolving};

/// How the DNS is used.
#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// Look-ups in flight at most; more wait, within their DNS deadline.
    pub concurrency: usize,
    /// Answers kept.
    pub cache: u64,
    /// Answers are kept at least this long, whatever their TTL says.
    pub min_ttl: Duration,
    /// Answers are kept at most this long.
    pub max_ttl: Duration,
    /// "No such name" is kept at most this long.
    pub negative_max_ttl: Duration,
    /// How long one name server has for one answer; each query is sent twice at most.
    pub attempt_timeout: Duration,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            concurrency: 256,
            cache: 65_536,
            min_ttl: Duration::from_secs(60),
            max_ttl: Duration::from_secs(60 * 60),
            negative_max_ttl: Duration::from_secs(5 * 60),
            attempt_timeout: Duration::from_secs(3),
        }
    }
}

/// The system's resolver.
pub(super) struct SystemResolver {
    config: DnsConfig,
    resolver: OnceLock<Result<Arc<System>, ResolveError>>,
}

struct System {
    resolver: TokioResolver,
    /// Why there are no name servers, if so.
    without_servers: Option<String>,
}

impl SystemResolver {
    pub(super) fn new(config: DnsConfig) -> Self {
        Self { config, resolver: OnceLock::new() }
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, name: &str) -> Resolving {
        let system = self.resolver.get_or_init(|| System::new(&self.config).map(Arc::new)).clone();
        let name = name.to_owned();
        Box::pin(async move { system?.look_up(&name).await })
    }
}

impl System {
    fn new(config: &DnsConfig) -> Result<Self, ResolveError> {
        let (mut builder, without_servers) = match TokioResolver::builder_tokio() {
            Ok(builder) => (builder, None),
            // The hosts file still works without name servers.
            Err(error) => {
                let runtime = TokioRuntimeProvider::default();
                let builder = TokioResolver::builder_with_config(ResolverConfig::default(), runtime);
                (builder, Some(error.to_string()))
            }
        };
        let options = builder.options_mut();
        options.use_hosts_file = ResolveHosts::Always;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.cache_size = config.cache;
        options.positive_min_ttl = Some(config.min_ttl);
        options.positive_max_ttl = Some(config.max_ttl);
        options.negative_max_ttl = Some(config.negative_max_ttl);
        options.timeout = config.attempt_timeout;
        options.attempts = 1;
        options.max_active_requests = config.concurrency.saturating_mul(2);
        let resolver = builder.build().map_err(|error| ResolveError {
            kind: ResolveErrorKind::Failed,
            message: format!("cannot set up the resolver: {error}"),
        })?;
        Ok(Self { resolver, without_servers })
    }

    async fn look_up(&self, name: &str) -> Result<Vec<std::net::IpAddr>, ResolveError> {
        // With the root named, search domains of the system are not tried: the web knows only full names.
        let query = Name::from_ascii(name).map(|mut query| {
            query.set_fqdn(true);
            query
        });
        let query = query.map_err(|error| ResolveError {
            kind: ResolveErrorKind::NoAddress,
            message: format!("{name} is not a name of the DNS: {error}"),
        })?;
        match self.resolver.lookup_ip(query).await {
            Ok(found) => Ok(found.iter().collect()),
            Err(error) => Err(self.explain(name, &error)),
        }
    }

    fn explain(&self, name: &str, error: &NetError) -> ResolveError {
        if let Some(reason) = &self.without_servers {
            let message = format!(
                "cannot resolve {name}: it is not in the hosts file, and there are no name servers ({reason}); \
                 write them to /etc/resolv.conf, or name the address by hand"
            );
            return ResolveError { kind: ResolveErrorKind::Failed, message };
        }
        if error.is_nx_domain() {
            return ResolveError {
                kind: ResolveErrorKind::NoAddress,
                message: format!("there is no {name} in the DNS"),
            };
        }
        let kind = match error {
            NetError::Timeout => ResolveErrorKind::Timeout,
            _ if is_empty_answer(error) => ResolveErrorKind::NoAddress,
            _ => ResolveErrorKind::Failed,
        };
        ResolveError { kind, message: format!("cannot resolve {name}: {error}") }
    }
}

/// NOERROR without records; the library reports SERVFAIL and REFUSED in the same variant.
fn is_empty_answer(error: &NetError) -> bool {
    use hickory_resolver::net::DnsError;
    use hickory_resolver::proto::op::ResponseCode;
    matches!(error, NetError::Dns(DnsError::NoRecordsFound(found)) if found.response_code == ResponseCode::NoError)
}

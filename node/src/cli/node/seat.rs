//! How a node comes to its place: from its directory, by beginning a cluster, or by joining one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use dolomedes_netproto::{
    peer::{
        Member, Security,
        identity::{NodeKey, fingerprint_of},
    },
    wire::{Access, Client, ClientOptions, Token, TokenKind, v1},
};
use dolomedes_raft::cluster::{ClusterStart, FIRST_NODE, Seat};
use dolomedes_storage::directory::DataDir;
use tokio::net::TcpListener;

use super::{NodeArgs, Usage};
use crate::keys::{Authority, Keys};

/// How long a node that joins keeps asking.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
/// Groups of a new cluster beside group 0, if nothing is said.
const DEFAULT_GROUPS: u32 = 4;

/// What a node starts with.
pub(super) struct Taken {
    pub(super) seat: Seat,
    pub(super) listener: TcpListener,
    pub(super) start: ClusterStart,
    pub(super) security: Security,
    /// `None` in an insecure cluster.
    pub(super) authority: Option<Arc<Authority>>,
    /// The hash of the access token that a new cluster begins with.
    pub(super) first_access: Option<[u8; 32]>,
}

fn usage(error: anyhow::Error) -> anyhow::Error {
    Usage(error).into()
}

pub(super) fn is_address(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

pub(super) fn random() -> anyhow::Result<u128> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .context("cannot draw a random number from /dev/urandom")?;
    Ok(u128::from_be_bytes(bytes))
}

/// Finds out who this node is and where it listens; enrols it if it is to join.
pub(super) async fn take_seat(args: &NodeArgs, dir: &DataDir) -> anyhow::Result<Taken> {
    let kept = Seat::load(dir.path())?;
    let keys = Keys::of(dir.path());
    if dir.identity().is_some() && kept.is_none() {
        bail!(
            "`{}` belongs to a crawl, not to a cluster's node; use another --data-dir",
            args.data_dir.display()
        );
    }
    let place = args.data_dir.display();
    match (args.insecure, keys.are_there()) {
        (true, true) => {
            return Err(usage(anyhow!(
                "`{place}` is of a node of a secure cluster, which does not speak without TLS: leave --insecure away, or use another --data-dir"
            )));
        }
        (false, false) if dir.identity().is_some() => {
            return Err(usage(anyhow!(
                "`{place}` is of a node of an insecure cluster: pass --insecure; to have it secure, begin a new cluster in another --data-dir"
            )));
        }
        _ => {}
    }
    if args.insecure && args.token.is_some() {
        return Err(usage(anyhow!("an insecure cluster takes no token: leave --token or --insecure away")));
    }
    let (listener, mut seat) = listen(args, kept).await?;
    let mut start = ClusterStart::Again;
    if dir.identity().is_some() {
        if !args.join.is_empty() {
            tracing::info!("--join is for new directories; this one belongs to a cluster already");
        }
        seat.save(dir.path())?;
    } else {
        start = first_start(args, dir, &keys, &mut seat).await?;
    }
    let (mut security, mut authority, mut first_access) = (Security::Insecure, None, None);
    if !args.insecure {
        let member = member(dir, start)?;
        let access = keys.access(member)?;
        security = Security::mutual(&access.ca, &access.identity)
            .with_context(|| format!("the certificates in `{place}` cannot be used"))?;
        authority = Some(Arc::new(keys.authority(member.cluster)?));
        if member.node == FIRST_NODE {
            first_access = keys.operator_hash()?;
        }
        if matches!(start, ClusterStart::Bootstrap { .. }) {
            eprintln!(
                "began a cluster; `{}` has an access token for it, and on this machine `--data-dir {place}` needs none",
                keys.operator_token().display()
            );
        }
    }
    Ok(Taken { seat, listener, start, security, authority, first_access })
}

fn member(dir: &DataDir, start: ClusterStart) -> anyhow::Result<Member> {
    Ok(match start {
        ClusterStart::Bootstrap { cluster } => Member { cluster, node: FIRST_NODE },
        ClusterStart::Enrolled { cluster, node } => Member { cluster, node },
        ClusterStart::Again => {
            let identity = dir.identity().context("the directory has no identity any more")?;
            Member { cluster: identity.cluster, node: identity.node_id }
        }
    })
}

/// Listens where it is told to or has listened before.
async fn listen(args: &NodeArgs, kept: Option<Seat>) -> anyhow::Result<(TcpListener, Seat)> {
    let listen = args.listen.clone().or_else(|| kept.as_ref().map(|seat| seat.listen.clone()));
    let listen = listen.ok_or_else(|| usage(anyhow!("--listen is needed for a new --data-dir")))?;
    let listener = TcpListener::bind(&listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let bound: SocketAddr = listener.local_addr().context("cannot tell the address that is listened on")?;
    ensure!(
        !args.insecure || bound.ip().is_loopback(),
        Usage(anyhow!("--insecure is for loopback addresses, and {bound} is not one"))
    );
    let advertise = args.advertise.clone().or_else(|| {
        let kept =
            kept.as_ref().filter(|seat| args.listen.as_ref().is_none_or(|listen| *listen == seat.listen));
        kept.map(|seat| seat.advertise.clone())
    });
    ensure!(
        advertise.is_some() || !bound.ip().is_unspecified(),
        Usage(anyhow!(
            "{bound} is every address of this machine: say with --advertise at which of them others reach it"
        ))
    );
    let advertise = advertise.unwrap_or_else(|| bound.to_string());
    // A port that the system chose stays the node's.
    let listen = if listen.ends_with(":0") { bound.to_string() } else { listen };
    let seat = match kept {
        Some(seat) => Seat { listen, advertise, ..seat },
        None => Seat {
            uuid: random()?,
            listen,
            advertise,
            groups: 0,
            joining: Vec::new(),
            members: Default::default(),
        },
    };
    Ok((listener, seat))
}

/// Begins a cluster or joins one.
async fn first_start(
    args: &NodeArgs,
    dir: &DataDir,
    keys: &Keys,
    seat: &mut Seat,
) -> anyhow::Result<ClusterStart> {
    let asked = match &args.join[..] {
        // A crash came between its number and its identity.
        [] if seat.joining.is_empty() => seat.members.values().cloned().collect(),
        [] => seat.joining.clone(),
        join => join.to_vec(),
    };
    if asked.is_empty() {
        ensure!(
            args.token.is_none(),
            Usage(anyhow!("--token is for joining: say with --join which member of the cluster to ask"))
        );
        seat.groups = args.groups.unwrap_or(DEFAULT_GROUPS);
        let cluster = random()?;
        if !args.insecure {
            seat.uuid = keys.key()?.uuid();
            keys.begin(cluster)?;
        }
        return Ok(ClusterStart::Bootstrap { cluster });
    }
    ensure!(args.groups.is_none(), Usage(anyhow!("--groups is for the node that begins a cluster")));
    for address in &asked {
        if !is_address(address) {
            return Err(usage(anyhow!("--join `{address}`: expected HOST:PORT")));
        }
        if *address == seat.advertise {
            return Err(usage(anyhow!("--join names this node itself; name a member of the cluster")));
        }
    }
    let shown = match (args.insecure, &args.token) {
        (true, _) => None,
        (false, Some(text)) => Some(join_token(text)?),
        (false, None) => {
            return Err(usage(anyhow!(
                "joining {} takes a token: pass --token; `dolomedes cluster token create --join` makes one",
                asked.join(", ")
            )));
        }
    };
    let key = match &shown {
        None => None,
        Some(_) => Some(keys.key()?),
    };
    if let Some(key) = &key {
        seat.uuid = key.uuid();
    }
    seat.joining.clone_from(&asked);
    // Before the cluster gives a number away: asking again must not be asking for a second one.
    seat.save(dir.path())?;
    enrol(seat, keys, &asked, shown.zip(key)).await
}

fn join_token(text: &str) -> anyhow::Result<Token> {
    let token: Token = text.parse().map_err(|error| usage(anyhow::Error::new(error).context("--token")))?;
    match token.kind() {
        TokenKind::Join => Ok(token),
        TokenKind::Access => Err(usage(anyhow!(
            "--token: this is an access token; `dolomedes cluster token create --join` makes one to join with"
        ))),
    }
}

async fn enrol(
    seat: &mut Seat,
    keys: &Keys,
    asked: &[String],
    shown: Option<(Token, NodeKey)>,
) -> anyhow::Result<ClusterStart> {
    let mut request = v1::EnrolRequest {
        uuid: seat.uuid.to_be_bytes().to_vec().into(),
        address: seat.advertise.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..v1::EnrolRequest::default()
    };
    let mut access = Access::Insecure;
    if let Some((token, key)) = &shown {
        request.token = token.reveal();
        request.public_key = key.public().to_vec().into();
        request.proof = key.prove(token.ca(), &seat.advertise)?.into();
        // The cluster is known by the token before the token is shown to it.
        access = Access::Token(token.clone());
    }
    let options = ClientOptions { deadline: JOIN_PATIENCE, access, ..ClientOptions::default() };
    let client = Client::new(asked, options)?;
    eprintln!("joining through {}", asked.join(", "));
    let reply = client.enrol(request).await.context("cannot join the cluster")?;
    let cluster = <[u8; 16]>::try_from(reply.cluster.as_ref())
        .map(u128::from_be_bytes)
        .ok()
        .context("the cluster's answer makes no sense: its id has not 16 bytes")?;
    if let Some((token, _)) = &shown {
        let issued_by = fingerprint_of(&reply.ca).context("the cluster's answer makes no sense")?;
        ensure!(issued_by == *token.ca(), "the cluster has sent another CA's certificate than its own");
        keys.enrolled(&reply.ca, &reply.certificate)?;
    }
    seat.groups = reply.groups;
    seat.joining.clear();
    seat.members = reply.members.into_iter().map(|member| (member.id, member.address)).collect();
    Ok(ClusterStart::Enrolled { cluster, node: reply.node })
}

//! Which cluster a command speaks to, and as whom.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use dolomedes_netproto::{
    peer::{
        Member,
        identity::{Fingerprint, fingerprint_of},
    },
    wire::{Access, Client, ClientOptions, NodeAccess, Token, TokenKind},
};
use dolomedes_raft::cluster::Seat;
use dolomedes_storage::directory::DataDir;

use super::Usage;
use crate::keys::Keys;

#[derive(Args)]
pub(super) struct To {
    /// Members of the cluster; the first that answers is used
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required_unless_present = "data_dir")]
    to: Vec<String>,
    /// An access token of the cluster, by which it is also recognised
    #[arg(long, value_name = "TOKEN", env = "DOLOMEDES_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Speak as the node of this directory, on its machine: needs neither --to nor a token
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Speak without TLS, with an insecure cluster
    #[arg(long)]
    insecure: bool,
}

impl To {
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let local = self.data_dir.as_deref().map(local).transpose()?;
        let members = match &local {
            Some((address, _)) if self.to.is_empty() => vec![address.clone()],
            _ => self.to.clone(),
        };
        let access = self.access(local)?;
        let options = ClientOptions { access, ..ClientOptions::default() };
        Ok(Client::new(&members, options).map_err(|error| Usage(error.into()))?)
    }

    /// Members to name to somebody else.
    pub(super) fn members(&self) -> anyhow::Result<String> {
        match &self.data_dir {
            Some(dir) if self.to.is_empty() => {
                let seat = Seat::load(dir)?.context("the directory has no node any more")?;
                Ok(seat.advertise)
            }
            _ => Ok(self.to.join(",")),
        }
    }

    /// The fingerprint of the cluster's CA.
    pub(super) fn ca(&self) -> anyhow::Result<Fingerprint> {
        match self.access(self.data_dir.as_deref().map(local).transpose()?)? {
            Access::Token(token) => Ok(*token.ca()),
            Access::Node(node) => Ok(fingerprint_of(&node.ca)?),
            Access::Insecure => {
                Err(Usage(anyhow!("an insecure cluster asks for no tokens, so it makes none")).into())
            }
        }
    }

    fn access(&self, local: Option<(String, Option<NodeAccess>)>) -> anyhow::Result<Access> {
        match (local, &self.token) {
            _ if self.insecure => Ok(Access::Insecure),
            (Some((_, Some(node))), _) => Ok(Access::Node(Box::new(node))),
            (Some((_, None)), _) => Ok(Access::Insecure),
            (None, Some(text)) => {
                let token: Token = text.parse().map_err(|error| Usage(anyhow::Error::new(error)))?;
                match token.kind() {
                    TokenKind::Access => Ok(Access::Token(token)),
                    TokenKind::Join => Err(Usage(anyhow!(
                        "--token: this is a join token, which is for `dolomedes node --join`; an access token is needed"
                    ))
                    .into()),
                }
            }
            (None, None) => Err(Usage(anyhow!(
                "an access token is needed: --token, or DOLOMEDES_TOKEN in the environment; on the machine of a node --data-dir does instead, and for an insecure cluster --insecure"
            ))
            .into()),
        }
    }
}

/// Where the node of a directory on this machine is reached, and what it knows of itself; `None` if it is insecure.
fn local(dir: &Path) -> anyhow::Result<(String, Option<NodeAccess>)> {
    let seat = Seat::load(dir)?;
    let (Some(seat), Some(identity)) = (seat, DataDir::look(dir)?) else {
        return Err(Usage(anyhow!("--data-dir `{}`: no node of a cluster has it", dir.display())).into());
    };
    let keys = Keys::of(dir);
    let member = Member { cluster: identity.cluster, node: identity.node_id };
    let access = if keys.are_there() { Some(keys.access(member)?) } else { None };
    Ok((near(&seat.listen), access))
}

/// Where who listens at `listen` is reached from this machine.
fn near(listen: &str) -> String {
    match listen.rsplit_once(':') {
        Some(("0.0.0.0", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        _ => listen.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_listens_everywhere_is_reached_on_loopback() {
        for (listen, reached) in [
            ("0.0.0.0:7001", "127.0.0.1:7001"),
            ("[::]:7001", "[::1]:7001"),
            ("10.0.0.7:7001", "10.0.0.7:7001"),
            ("crawl-1.example:7001", "crawl-1.example:7001"),
        ] {
            assert_eq!(near(listen), reached);
        }
    }
}

//! What every request says of itself in its metadata, and whether it is meant for this node.

use tonic::metadata::{AsciiMetadataValue, MetadataMap};

use super::NodeNumber;
use super::bounds::PROTOCOL_VERSION;

const VERSION: &str = "dolomedes-version";
const CLUSTER: &str = "dolomedes-cluster";
const FROM: &str = "dolomedes-from";
const TO: &str = "dolomedes-to";
const LANE: &str = "dolomedes-lane";

/// Which connection a request belongs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Control,
    Append,
    Snapshot,
}

impl Line {
    pub(super) const ALL: [Self; 3] = [Self::Control, Self::Append, Self::Snapshot];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Append => "append",
            Self::Snapshot => "snapshot",
        }
    }
}

/// A node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The cluster's id.
    pub cluster: u128,
    /// The node's number in it.
    pub node: NodeNumber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) cluster: u128,
    pub(super) from: NodeNumber,
    pub(super) to: NodeNumber,
    pub(super) line: Line,
}

impl Hello {
    pub(super) fn new(local: Member, to: NodeNumber, line: Line) -> Self {
        Self { version: PROTOCOL_VERSION, cluster: local.cluster, from: local.node, to, line }
    }

    pub(super) fn metadata(&self) -> MetadataMap {
        let mut metadata = MetadataMap::with_capacity(5);
        metadata.insert(VERSION, self.version.into());
        // Hexadecimal digits are always a valid value.
        if let Ok(cluster) = AsciiMetadataValue::try_from(format!("{:032x}", self.cluster)) {
            metadata.insert(CLUSTER, cluster);
        }
        metadata.insert(FROM, self.from.into());
        metadata.insert(TO, self.to.into());
        metadata.insert(LANE, AsciiMetadataValue::from_static(self.line.name()));
        metadata
    }

    /// Reads the metadata; the version first, because another one may have other fields.
    pub(super) fn read(metadata: &MetadataMap) -> Result<Self, String> {
        let version: u32 = number(metadata, VERSION)?;
        if version != PROTOCOL_VERSION {
            return Err(format!(
                "protocol version {version} is not known here, only {PROTOCOL_VERSION}; run the same release on all nodes"
            ));
        }
        let cluster = text(metadata, CLUSTER)?;
        let cluster = Some(cluster)
            .filter(|text| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|text| u128::from_str_radix(text, 16).ok())
            .ok_or_else(|| format!("{CLUSTER} is {cluster:?} and should be 32 hexadecimal digits"))?;
        let lane = text(metadata, LANE)?;
        let line = Line::ALL.into_iter().find(|line| line.name() == lane);
        Ok(Self {
            version,
            cluster,
            from: number(metadata, FROM)?,
            to: number(metadata, TO)?,
            line: line
                .ok_or_else(|| format!("{LANE} is {lane:?} and should be control, append or snapshot"))?,
        })
    }

    /// Whether this is for `local`.
    pub(super) fn check(&self, local: Member) -> Result<(), String> {
        if self.cluster != local.cluster {
            return Err(format!(
                "this is a node of cluster {:032x}, the sender is of cluster {:032x}",
                local.cluster, self.cluster
            ));
        }
        if self.from == local.node {
            return Err(format!(
                "node {} has reached itself, or another one runs under its number; check the addresses",
                local.node
            ));
        }
        if self.to != local.node {
            return Err(format!(
                "this is node {}, not node {}; its address has changed",
                local.node, self.to
            ));
        }
        Ok(())
    }
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> Result<&'a str, String> {
    let value = metadata.get(key).ok_or_else(|| format!("the request has no {key}; it is not of a node"))?;
    value.to_str().map_err(|_| format!("{key} is not ASCII"))
}

fn number<N: std::str::FromStr>(metadata: &MetadataMap, key: &str) -> Result<N, String> {
    let text = text(metadata, key)?;
    text.parse().map_err(|_| format!("{key} is {text:?} and should be a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Member = Member { cluster: 0xAB, node: 7 };

    #[test]
    fn a_hello_reads_as_it_was_written() {
        for line in Line::ALL {
            for number in [0, 7, u64::MAX] {
                let local = Member { cluster: u128::MAX - 1, node: number };
                let hello = Hello::new(local, u64::MAX - number, line);
                assert_eq!(Hello::read(&hello.metadata()), Ok(hello));
            }
        }
    }

    #[test]
    fn what_is_missing_or_malformed_is_named() {
        let good = Hello::new(LOCAL, 8, Line::Control).metadata();
        for (key, value, complaint) in [
            (VERSION, None, "has no dolomedes-version"),
            (VERSION, Some("2"), "version 2 is not known"),
            (VERSION, Some("-1"), "should be a number"),
            (CLUSTER, None, "has no dolomedes-cluster"),
            (CLUSTER, Some("ab"), "32 hexadecimal digits"),
            (CLUSTER, Some("+00000000000000000000000000000ab"), "32 hexadecimal digits"),
            (FROM, None, "has no dolomedes-from"),
            (FROM, Some("18446744073709551616"), "should be a number"),
            (TO, Some(""), "should be a number"),
            (LANE, Some("fast"), "control, append or snapshot"),
        ] {
            let mut metadata = good.clone();
            metadata.remove(key);
            if let Some(value) = value {
                metadata.insert(key, AsciiMetadataValue::from_static(value));
            }
            let error =
                Hello::read(&metadata).map(|hello| format!("{hello:?}")).unwrap_or_else(|error| error);
            assert!(error.contains(complaint), "{key} {value:?}: {error}");
        }
    }

    #[test]
    fn only_what_is_meant_for_this_node_passes() {
        for (cluster, from, to, complaint) in [
            (0xAB, 8, 7, None),
            (0xAC, 8, 7, Some("the sender is of cluster")),
            (0xAB, 8, 9, Some("this is node 7, not node 9")),
            (0xAB, 7, 7, Some("has reached itself")),
            (0xAB, 7, 8, Some("has reached itself")),
        ] {
            let hello = Hello::new(Member { cluster, node: from }, to, Line::Append);
            match (hello.check(LOCAL), complaint) {
                (Ok(()), None) => {}
                (Err(reason), Some(complaint)) => assert!(reason.contains(complaint), "{reason}"),
                (outcome, _) => panic!("{hello:?}: {outcome:?}"),
            }
        }
    }
}

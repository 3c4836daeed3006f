//! What a node has to remember beside its identity so that it starts again without flags: where it listens, how many
//! groups the cluster has, and through whom it gets back in. A text file, `NODE`, in the data directory.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use dolomedes_storage::{Error, Result, file};

/// The first line of the file.
const HEADER: &str = "dolomedes node 1";
/// Bytes of the file at most: some 10,000 members.
const MOST_BYTES: u64 = 1 << 20;

/// Why a seat cannot be read.
pub type SeatError = Error;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Drawn at random with the directory, before the node has a number: enrolling twice gives the same number.
    pub uuid: u128,
    /// Where the node listens, `host:port`.
    pub listen: String,
    /// Where others reach it, `host:port`.
    pub advertise: String,
    /// Groups beside group 0; 0 while that is not known yet.
    pub groups: u32,
    /// Through whom it was about to join when it was started last; empty once it has, or if it began the cluster.
    pub joining: Vec<String>,
    /// The members that were known last, and where they are reached. Only a hint: the truth is in group 0.
    pub members: BTreeMap<u64, String>,
}

impl Seat {
    /// The seat kept in a data directory; `None` in a new one.
    ///
    /// # Errors
    /// If the file cannot be read, or makes no sense.
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        let path = place(dir);
        let size = match fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", path, error)),
        };
        let bad = |why: &str| Error::corrupt(format!("`{}`", path.display()), why.to_owned());
        if size > MOST_BYTES {
            return Err(bad("it is too long"));
        }
        let text = fs::read_to_string(&path).map_err(|error| Error::io("read", &path, error))?;
        Self::parse(&text).map(Some).map_err(|why| bad(&why))
    }

    /// Keeps it. Durable on return.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        file::replace(&place(dir), self.text().as_bytes())
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{HEADER}\nuuid {:032x}\nlisten {}\nadvertise {}\ngroups {}\n",
            self.uuid, self.listen, self.advertise, self.groups
        );
        for address in &self.joining {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "joining {address}");
        }
        for (node, address) in &self.members {
            let _ = writeln!(text, "member {node} {address}");
        }
        text
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut lines = text.lines();
        match lines.next() {
            Some(HEADER) => {}
            Some(other) => return Err(format!("it begins with `{other}`, not with `{HEADER}`")),
            None => return Err("it is empty".to_owned()),
        }
        let (mut uuid, mut listen, mut advertise, mut groups) = (None, None, None, None);
        let (mut joining, mut members) = (Vec::new(), BTreeMap::new());
        for line in lines {
            let nonsense = || format!("`{line}` makes no sense");
            match line.split_once(' ').ok_or_else(nonsense)? {
                ("uuid", digits) => uuid = Some(u128::from_str_radix(digits, 16).map_err(|_| nonsense())?),
                ("listen", address) => listen = Some(address.to_owned()),
                ("advertise", address) => advertise = Some(address.to_owned()),
                ("groups", number) => groups = Some(number.parse().map_err(|_| nonsense())?),
                ("joining", address) => joining.push(address.to_owned()),
                ("member", rest) => {
                    let (node, address) = rest.split_once(' ').ok_or_else(nonsense)?;
                    members.insert(node.parse().map_err(|_| nonsense())?, address.to_owned());
                }
                _ => return Err(nonsense()),
            }
        }
        let missing = |what| move || format!("the line `{what} …` is missing");
        Ok(Self {
            uuid: uuid.ok_or_else(missing("uuid"))?,
            listen: listen.ok_or_else(missing("listen"))?,
            advertise: advertise.ok_or_else(missing("advertise"))?,
            groups: groups.ok_or_else(missing("groups"))?,
            joining,
            members,
        })
    }
}

fn place(dir: &Path) -> PathBuf {
    dir.join("NODE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found_again_and_nonsense_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Seat::load(dir.path()).unwrap(), None);
        let seat = Seat {
            uuid: 0xabc,
            listen: "0.0.0.0:7001".into(),
            advertise: "crawl-1.example:7001".into(),
            groups: 4,
            joining: vec!["c:1".into(), "d:1".into()],
            members: BTreeMap::from([(1, "a:1".into()), (17, "b:2".into())]),
        };
        seat.save(dir.path()).unwrap();
        assert_eq!(Seat::load(dir.path()).unwrap(), Some(seat.clone()));
        for (text, says) in [
            ("", "empty"),
            ("dolomedes node 2\n", "begins with"),
            ("dolomedes node 1\nuuid 1\nlisten a:1\n", "advertise"),
            ("dolomedes node 1\nmember x y\n", "makes no sense"),
        ] {
            fs::write(place(dir.path()), text).unwrap();
            let error = Seat::load(dir.path()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

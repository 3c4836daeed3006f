//! Clusters of real binaries on loopback: nodes that are started, killed, stopped and started again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Finished, Process, binary, run};
use crate::wait::eventually;

/// How long a cluster may take for what it is asked.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One node: a directory, and the process if it runs.
#[derive(Debug)]
pub struct Node {
    dir: PathBuf,
    process: Option<Process>,
    /// Where it is reached, `host:port`.
    pub address: String,
    /// Its number.
    pub id: u64,
}

/// Nodes of one cluster. The first one began it.
#[derive(Debug)]
pub struct Cluster {
    dir: TempDir,
    started: usize,
    insecure: bool,
    token: Option<String>,
    /// What nodes join with, once one has.
    join_token: Option<String>,
    /// In the order of joining.
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// Starts `nodes` of them and waits until as many vote as there are to be voters.
    ///
    /// # Panics
    /// If that does not come about.
    #[track_caller]
    pub fn start(nodes: usize) -> Self {
        Self::begin(nodes, false)
    }

    /// The same without TLS and tokens.
    ///
    /// # Panics
    /// If that does not come about.
    #[track_caller]
    pub fn insecure(nodes: usize) -> Self {
        Self::begin(nodes, true)
    }

    #[track_caller]
    fn begin(nodes: usize, insecure: bool) -> Self {
        let dir = tempfile::Builder::new().prefix("dolomedes-test-").tempdir().unwrap();
        let mut cluster =
            Self { dir, started: 0, insecure, token: None, join_token: None, nodes: Vec::new() };
        for _ in 0..nodes {
            cluster.join();
        }
        let voters = if nodes >= 3 { 3 } else { 1 };
        cluster.wait_for_voters(voters);
        cluster
    }

    /// Starts one more node.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn join(&mut self) -> &Node {
        let dir = self.dir.path().join(format!("n{}", self.started));
        self.started += 1;
        let mut command = self.node_command(&dir);
        command.args(["--listen", "127.0.0.1:0"]);
        if !self.nodes.is_empty() {
            if !self.insecure {
                command.args(["--token", &self.join_token()]);
            }
            for node in self.nodes.iter().filter(|node| node.process.is_some()) {
                command.args(["--join", &node.address]);
            }
        }
        let process = Process::start(command);
        let (id, address) = up(&process);
        if self.nodes.is_empty() && !self.insecure {
            let token = std::fs::read_to_string(dir.join("operator.token")).unwrap();
            self.token = Some(token.trim().to_owned());
        }
        self.nodes.push(Node { dir, process: Some(process), address, id });
        self.nodes.last().unwrap()
    }

    fn node_command(&self, dir: &Path) -> Command {
        let mut command = node_command(dir);
        if self.insecure {
            command.arg("--insecure");
        }
        command
    }

    /// A token with which nodes join, made when it is first asked for.
    ///
    /// # Panics
    /// If the cluster makes none.
    #[track_caller]
    pub fn join_token(&mut self) -> String {
        if self.join_token.is_none() {
            let made = self.command(&["cluster", "token", "create", "--join"]).expect_code(0);
            self.join_token = Some(made.stdout.trim().to_owned());
        }
        self.join_token.clone().unwrap_or_default()
    }

    /// The access token that the cluster began with; `None` if it is insecure.
    pub fn token(&self) -> Option<String> {
        self.token.clone()
    }

    /// Runs a command of the binary that speaks to the cluster.
    #[track_caller]
    pub fn command(&self, args: &[&str]) -> Finished {
        run(self.words(args))
    }

    /// That command, to be started.
    pub fn prepared(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(self.words(args));
        command
    }

    /// The words of a command with those that lead to the cluster, in front of a command of its own behind `--`.
    fn words(&self, args: &[&str]) -> Vec<String> {
        let at = args.iter().position(|word| *word == "--").unwrap_or(args.len());
        let mut words: Vec<String> = args[..at].iter().map(|word| (*word).to_owned()).collect();
        words.extend(["--to".to_owned(), self.addresses()]);
        match self.token() {
            Some(token) => words.extend(["--token".to_owned(), token]),
            None => words.push("--insecure".to_owned()),
        }
        words.extend(args[at..].iter().map(|word| (*word).to_owned()));
        words
    }

    /// All addresses, for `--to`.
    pub fn addresses(&self) -> String {
        let addresses: Vec<&str> = self.nodes.iter().map(|node| node.address.as_str()).collect();
        addresses.join(",")
    }

    /// What `cluster status --json` says.
    ///
    /// # Errors
    /// What it says instead.
    pub fn status(&self) -> Result<Value, String> {
        let finished = self.command(&["cluster", "status", "--json"]);
        if finished.code != Some(0) {
            return Err(finished.story());
        }
        serde_json::from_str(&finished.stdout).map_err(|error| format!("{error}: {}", finished.stdout))
    }

    /// Waits until every group has so many voters, no learners, a leader, and everybody is close behind.
    #[track_caller]
    pub fn wait_for_voters(&self, voters: usize) {
        eventually("the groups have their voters", PATIENCE, || {
            let status = self.status()?;
            let groups = status["groups"].as_array().cloned().unwrap_or_default();
            let settled = |group: &Value| {
                let members = group["members"].as_array().cloned().unwrap_or_default();
                let close = |member: &Value| {
                    member["votes"] == true && member["behind"].as_u64().is_some_and(|behind| behind < 100)
                };
                group["leader"].is_u64() && members.len() == voters && members.iter().all(close)
            };
            if !groups.is_empty() && groups.iter().all(settled) { Ok(()) } else { Err(format!("{status:#}")) }
        });
    }

    /// The place in `nodes` of the one that leads a group.
    #[track_caller]
    pub fn leader(&self, group: u64) -> usize {
        eventually("a leader", PATIENCE, || {
            let status = self.status()?;
            let groups = status["groups"].as_array().cloned().unwrap_or_default();
            let found = groups.iter().find(|found| found["group"] == group);
            let leader = found.and_then(|found| found["leader"].as_u64());
            let place = self.nodes.iter().position(|node| Some(node.id) == leader && node.process.is_some());
            place.ok_or_else(|| format!("{status:#}"))
        })
    }

    /// Kills a node as `kill -9` does.
    ///
    /// # Panics
    /// If it does not run.
    #[track_caller]
    pub fn kill(&mut self, place: usize) -> Finished {
        self.nodes[place].process.take().unwrap().kill()
    }

    /// Stops a node in good order.
    ///
    /// # Panics
    /// If it does not run.
    #[track_caller]
    pub fn stop(&mut self, place: usize) -> Finished {
        let process = self.nodes[place].process.take().unwrap();
        process.signal("TERM");
        process.wait(PATIENCE)
    }

    /// Starts a node again that was killed or stopped, with nothing but its directory.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn restart(&mut self, place: usize) {
        let process = Process::start(self.node_command(&self.nodes[place].dir));
        let (id, address) = up(&process);
        assert_eq!((id, &address), (self.nodes[place].id, &self.nodes[place].address));
        self.nodes[place].process = Some(process);
    }

    /// The process of a node.
    ///
    /// # Panics
    /// If it does not run.
    pub fn process(&mut self, place: usize) -> &mut Process {
        self.nodes[place].process.as_mut().unwrap()
    }

    /// Takes the process of a node, to wait for its end.
    ///
    /// # Panics
    /// If it does not run.
    pub fn take(&mut self, place: usize) -> Process {
        self.nodes[place].process.take().unwrap()
    }
}

impl Node {
    /// Its data directory.
    pub fn dir(&self) -> &PathBuf {
        &self.dir
    }
}

/// `dolomedes node` on a directory.
pub fn node_command(dir: &Path) -> Command {
    let mut command = Command::new(binary());
    command.args(["node", "--data-dir"]).arg(dir);
    command
}

/// Waits until a node says that it is up; returns its number and address.
#[track_caller]
pub fn up(process: &Process) -> (u64, String) {
    eventually("the node is up", PATIENCE, || {
        let said = process.stderr();
        // Whole lines only: the last one may still be on its way.
        let mut lines = said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let line = lines.find(|line| line.starts_with("node ")).ok_or_else(|| said.clone())?;
        let id = line.split(' ').nth(1).and_then(|id| id.parse().ok()).ok_or_else(|| said.clone())?;
        let address = line.rsplit(' ').next().unwrap_or_default().to_owned();
        Ok::<_, String>((id, address))
    })
}

//! The real `dolomedes` binary as a child process: started, watched, killed, waited for. Nothing here knows what is
//! inside of it; [`Job`] knows the names of its flags.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::outcome::Records;
use crate::site::Site;

/// Bytes of each output that are kept.
const OUTPUT_LIMIT: usize = 8 << 20;
/// How often a child is looked at while it is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where the binary is: `DOLOMEDES_BIN`, or beside the running test or program in the target directory.
///
/// # Panics
/// If it is not there, with what to do.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("DOLOMEDES_BIN") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "DOLOMEDES_BIN names `{}`, where there is no file", path.display());
        return path;
    }
    let own = std::env::current_exe().unwrap();
    // A program lies in `release/`, a test in `release/deps/`.
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join("dolomedes")).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "there is no `dolomedes` beside `{}`; build it with `cargo build --release --workspace --bins`, or name it in DOLOMEDES_BIN",
            own.display()
        )
    })
}

/// A crawl in directories of its own: flags, starts, and what came out. The defaults suit a site on loopback: no delay, short deadlines,
/// few attempts.
#[derive(Debug)]
pub struct Job {
    dir: TempDir,
    seeds: Vec<String>,
    options: BTreeMap<String, Vec<String>>,
    wrapper: Vec<OsString>,
}

impl Job {
    /// A crawl of hosts of a site.
    ///
    /// # Panics
    /// If no directory can be made.
    pub fn new(site: &Site) -> Self {
        let dir = tempfile::Builder::new().prefix("dolomedes-test-").tempdir().unwrap();
        let ca = dir.path().join("ca.pem");
        site.write_ca(&ca);
        let mut job = Self::bare(dir);
        job.set("--ca-file", ca.display().to_string())
            .set("--resolve", "*.test=127.0.0.1")
            .set("--allow-net", "127.0.0.0/8");
        job
    }

    /// A crawl that knows of no site.
    ///
    /// # Panics
    /// If no directory can be made.
    pub fn without_site() -> Self {
        Self::bare(tempfile::Builder::new().prefix("dolomedes-test-").tempdir().unwrap())
    }

    fn bare(dir: TempDir) -> Self {
        let mut job = Self { dir, seeds: Vec::new(), options: BTreeMap::new(), wrapper: Vec::new() };
        let (data, out) = (job.dir.path().join("data"), job.dir.path().join("out"));
        job.set("--data-dir", data.display().to_string())
            .set("--out", out.display().to_string())
            .set("--delay", "0")
            .set("--max-attempts", "2")
            .set("--retry-delay", "50")
            .set("--dns-timeout", "2000")
            .set("--connect-timeout", "3000")
            .set("--tls-timeout", "5000")
            .set("--first-byte-timeout", "1500")
            .set("--idle-timeout", "1500")
            .set("--total-timeout", "6000")
            .flag("--json");
        job
    }

    /// Adds a start URL.
    pub fn seed(&mut self, url: impl Into<String>) -> &mut Self {
        self.seeds.push(url.into());
        self
    }

    /// Sets an option, in place of what was there.
    pub fn set(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.options.insert(name.to_owned(), vec![value.into()]);
        self
    }

    /// Adds a value to an option that may be repeated.
    pub fn add(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.options.entry(name.to_owned()).or_default().push(value.into());
        self
    }

    /// Sets an option that has no value.
    pub fn flag(&mut self, name: &str) -> &mut Self {
        self.options.insert(name.to_owned(), Vec::new());
        self
    }

    /// Leaves an option out.
    pub fn unset(&mut self, name: &str) -> &mut Self {
        self.options.remove(name);
        self
    }

    /// Starts the binary through another program: this, its arguments, and then the binary and its.
    pub fn through<S: Into<OsString>>(&mut self, wrapper: impl IntoIterator<Item = S>) -> &mut Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    /// A directory that goes away with the job.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Value of an option that is a path.
    fn path_of(&self, name: &str) -> PathBuf {
        PathBuf::from(self.options.get(name).and_then(|values| values.first()).cloned().unwrap_or_default())
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.path_of("--data-dir")
    }

    /// The output directory.
    pub fn out(&self) -> PathBuf {
        self.path_of("--out")
    }

    /// Its arguments, from `crawl` on.
    pub fn args(&self) -> Vec<String> {
        let mut args = vec!["crawl".to_owned()];
        args.extend(self.seeds.iter().cloned());
        for (name, values) in &self.options {
            if values.is_empty() {
                args.push(name.clone());
            }
            for value in values {
                // One word, so that a value may begin with a dash.
                args.push(format!("{name}={value}"));
            }
        }
        args
    }

    /// Starts the binary.
    ///
    /// # Panics
    /// If there is none, or it cannot be started.
    pub fn start(&self) -> Process {
        let mut words: Vec<OsString> = self.wrapper.clone();
        words.push(binary().into());
        words.extend(self.args().into_iter().map(Into::into));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.dir.path());
        Process::start(command)
    }

    /// Runs the binary to its end.
    ///
    /// # Panics
    /// If it has not ended by itself at the deadline, with what it said.
    #[track_caller]
    pub fn run(&self, deadline: Duration) -> Finished {
        self.start().wait(deadline)
    }

    /// Runs it and expects exit code 0.
    ///
    /// # Panics
    /// If it fails or does not end, with what it said.
    #[track_caller]
    pub fn complete(&self, deadline: Duration) -> Finished {
        self.run(deadline).expect_code(0)
    }

    /// What is in pages.jsonl.
    ///
    /// # Panics
    /// If it cannot be read or is not well-formed.
    #[track_caller]
    pub fn records(&self) -> Records {
        Records::read(&self.out()).unwrap()
    }
}

/// Runs any command of the binary, without a job.
///
/// # Panics
/// If there is no binary or it does not end within a minute.
#[track_caller]
pub fn run<S: Into<OsString>>(args: impl IntoIterator<Item = S>) -> Finished {
    let mut command = Command::new(binary());
    command.args(args.into_iter().map(Into::into).collect::<Vec<OsString>>());
    Process::start(command).wait(Duration::from_secs(60))
}

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// When it was started.
    pub started: Instant,
    stdout: Capture,
    stderr: Capture,
    peak_memory: u64,
}

#[derive(Debug)]
struct Capture {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Capture {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(n) = pipe.read(&mut buffer) {
                if n == 0 {
                    break;
                }
                let mut kept = kept.lock().unwrap();
                let room = OUTPUT_LIMIT - kept.len();
                kept.extend_from_slice(&buffer[..n.min(room)]);
            }
        });
        Self { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.text()
    }
}

impl Process {
    /// Starts a command with its output captured.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdout = Capture::of(child.stdout.take().unwrap());
        let stderr = Capture::of(child.stderr.take().unwrap());
        Self { child, started, stdout, stderr, peak_memory: 0 }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// What it has written to stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Whether it is still there. Also takes a look at its memory.
    pub fn is_running(&mut self) -> bool {
        self.look().is_none()
    }

    fn look(&mut self) -> Option<ExitStatus> {
        if let Some(peak) = memory_of(self.child.id(), "VmHWM:") {
            self.peak_memory = self.peak_memory.max(peak);
        }
        self.child.try_wait().unwrap()
    }

    /// Resident memory now, in bytes; `None` once it has ended.
    pub fn memory(&self) -> Option<u64> {
        memory_of(self.child.id(), "VmRSS:")
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    pub fn kill(mut self) -> Finished {
        let _ = self.child.kill();
        let status = self.child.wait().unwrap();
        self.finished(status)
    }

    /// Sends a signal by its name (`INT`, `TERM`, `USR1`).
    ///
    /// # Panics
    /// If `kill` cannot be run.
    pub fn signal(&self, name: &str) {
        // The program, because the system call is unsafe code.
        let status =
            Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status().unwrap();
        assert!(status.success(), "kill -{name} {}: {status}", self.id());
    }

    /// Waits for it to end by itself.
    ///
    /// # Panics
    /// At the deadline, after killing it, with what it said.
    #[track_caller]
    pub fn wait(mut self, deadline: Duration) -> Finished {
        let until = Instant::now() + deadline;
        loop {
            if let Some(status) = self.look() {
                return self.finished(status);
            }
            if Instant::now() >= until {
                let finished = self.kill();
                panic!("it had not ended by itself after {deadline:?}; {}", finished.story());
            }
            sleep(LOOK_EVERY);
        }
    }

    fn finished(&mut self, status: ExitStatus) -> Finished {
        Finished {
            code: status.code(),
            signal: status.signal(),
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
            took: self.started.elapsed(),
            peak_memory: self.peak_memory,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A line of `/proc/PID/status` in bytes.
fn memory_of(id: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// A child that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// All that it wrote there, up to 8 MiB.
    pub stdout: String,
    /// Likewise.
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
    /// Most resident memory that was seen, in bytes.
    pub peak_memory: u64,
}

impl Finished {
    /// How it ended and what it said.
    pub fn story(&self) -> String {
        let tail = |text: &str| {
            let from = text.len().saturating_sub(4000);
            let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text[from..].to_owned()
        };
        format!(
            "code {:?}, signal {:?}, after {:?}\n--- stdout\n{}\n--- stderr\n{}",
            self.code,
            self.signal,
            self.took,
            tail(&self.stdout),
            tail(&self.stderr)
        )
    }

    /// Itself, if it ended with this code.
    ///
    /// # Panics
    /// Otherwise, with what it said.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}", self.story());
        self
    }

    /// Itself, if stderr has each of these words, in any case of letters.
    ///
    /// # Panics
    /// Otherwise, with what it said.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        let said = self.stderr.to_lowercase();
        for word in words {
            assert!(said.contains(&word.to_lowercase()), "it does not say {word:?}; {}", self.story());
        }
        self
    }

    /// The JSON object that `--json` prints last.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn summary(&self) -> serde_json::Value {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("no summary ({error}); {}", self.story()))
    }

    /// A number of the summary.
    ///
    /// # Panics
    /// If it is not there.
    #[track_caller]
    pub fn number(&self, key: &str) -> u64 {
        let summary = self.summary();
        summary[key].as_u64().unwrap_or_else(|| panic!("no number `{key}` in {summary}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command)
    }

    #[test]
    fn output_and_code_are_those_of_the_child() {
        let finished =
            shell("echo to-out; echo '{\"pages\":3}'; echo to-err >&2; exit 3").wait(Duration::from_secs(20));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(3), "to-err\n"));
        assert_eq!(finished.number("pages"), 3);
    }

    #[test]
    fn a_child_is_killed_or_signalled() {
        let mut process = shell("echo up; exec sleep 60");
        assert!(process.is_running());
        assert!(process.memory().is_some());
        assert_eq!(process.kill().signal, Some(9));
        let process = shell("trap 'exit 7' INT; echo up; while :; do sleep 0.05; done");
        crate::wait::eventually("the trap is set", Duration::from_secs(20), || {
            if process.stdout().contains("up") { Ok(()) } else { Err(process.stdout()) }
        });
        process.signal("INT");
        assert_eq!(process.wait(Duration::from_secs(20)).code, Some(7));
    }

    #[test]
    #[should_panic(expected = "had not ended by itself")]
    fn a_child_that_does_not_end_is_a_failure() {
        shell("exec sleep 60").wait(Duration::from_millis(50));
    }
}

//! Bad input from the person, the disk and the past: a clear message, exit code 1 or 2, nothing lost, and the crawl goes on
//! once the cause is gone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dolomedes_tests::process::{self, Finished, Job};
use dolomedes_tests::site::Site;
use dolomedes_tests::wait::eventually;

use crate::mini::{self, DEADLINE};

/// A failure that a person can do something about: a message, and no crash.
#[track_caller]
fn assert_clear(finished: &Finished, codes: &[i32]) {
    assert!(finished.code.is_some_and(|code| codes.contains(&code)), "{}", finished.story());
    assert!(!finished.stderr.trim().is_empty(), "it says nothing");
    for word in ["panicked", "RUST_BACKTRACE", "internal error"] {
        assert!(!finished.stderr.contains(word), "{}", finished.story());
    }
}

#[test]
fn garbage_on_the_command_line_is_wrong_usage() {
    let cases: [(&[&str], &str); 20] = [
        (&[], "url"),
        (&["http://"], "http://"),
        (&["http://[bad/"], "[bad"),
        (&["http://a.test:99999/"], "99999"),
        (&["http://a.test:port/"], "port"),
        (&["ftp://a.test/"], "ftp"),
        (&["file:///etc/passwd"], "file"),
        (&["http://a b/"], "a b"),
        (&[""], "url"),
        (&["\u{1}\u{2}"], "url"),
        (&["http://a.test/", "--include=("], "include"),
        (&["http://a.test/", "--exclude=[z-a]"], "exclude"),
        (&["http://a.test/", "--include=(a{1000}){1000}"], "include"),
        (&["http://a.test/", "--delay=soon"], "delay"),
        (&["http://a.test/", "--max-pages=-1"], "max-pages"),
        (&["http://a.test/", "--concurrency=0"], "concurrency"),
        (&["http://a.test/", "--scope=galaxy"], "scope"),
        (&["http://a.test/", "--allow-net=300.0.0.0/8"], "allow-net"),
        (&["http://a.test/", "--resolve=nonsense"], "resolve"),
        (&["http://a.test/", "--max-page=3"], "max-pages"),
    ];
    for (args, word) in cases {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| format!("{}={}", name, dir.path().join(&name[2..]).display());
        let mut words = vec!["crawl".to_owned()];
        words.extend(args.iter().map(|arg| (*arg).to_owned()));
        words.extend([place("--data-dir"), place("--out")]);
        let finished = process::run(words);
        assert_clear(&finished, &[2]);
        assert!(
            finished.stderr.to_lowercase().contains(word),
            "{args:?} does not name {word:?}: {}",
            finished.stderr
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{args:?} left something behind");
    }
}

#[test]
fn garbage_in_the_options_file_is_named() {
    let site = Site::start();
    let web = mini::one_host(&site, 70, 5, Duration::ZERO);
    let mut job = Job::new(&site);
    let file = job.dir().join("options.toml");
    job.seed(site.url(&web.hosts()[0], "/")).set("--config", file.display().to_string());
    for (text, word) in [
        ("max-page = 3\n", "max-pages"),
        ("max_pages = 3\n", "max-pages"),
        ("zebra = 3\n", "zebra"),
        ("max-pages = \"many\"\n", "max-pages"),
        ("max-pages = \n", "options.toml"),
        ("\u{0}\u{1}", "options.toml"),
    ] {
        fs::write(&file, text).unwrap();
        let finished = job.run(DEADLINE);
        assert_clear(&finished, &[2]);
        assert!(finished.stderr.contains(word), "{text:?}: {}", finished.stderr);
    }
    fs::remove_file(&file).unwrap();
    assert_clear(&job.run(DEADLINE), &[1, 2]);
    fs::write(&file, "max-pages = 3\n").unwrap();
    assert_eq!(job.complete(DEADLINE).number("pages"), 3);
}

#[test]
fn a_ca_file_that_is_none_is_named() {
    let site = Site::start();
    let web = mini::one_host(&site, 71, 3, Duration::ZERO);
    let mut job = Job::new(&site);
    let file = job.dir().join("not-a-ca.pem");
    job.seed(site.secure_url(&web.hosts()[0], "/")).set("--ca-file", file.display().to_string());
    assert_clear(&job.run(DEADLINE).says(&["not-a-ca.pem"]), &[1, 2]);
    fs::write(&file, "this is no certificate").unwrap();
    assert_clear(&job.run(DEADLINE).says(&["not-a-ca.pem"]), &[1, 2]);
}

/// A crawl that was killed in its middle.
fn half_done(site: &Site, seed: u64) -> (Job, String) {
    let web = mini::one_host(site, seed, 80, Duration::from_millis(10));
    let host = web.hosts()[0].clone();
    let mut job = Job::new(site);
    job.seed(site.url(&host, "/")).set("--per-host", "4").flag("--warc");
    let process = job.start();
    eventually("half of it", DEADLINE, || match site.log().pages(&host) {
        seen if seen >= 30 => Ok(()),
        seen => Err((seen, process.stderr())),
    });
    process.kill();
    (job, host)
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// Files under a directory that have bytes, largest first.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if fs::metadata(&path).unwrap().len() > 0 {
                found.push(path);
            }
        }
    }
    found.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().len()));
    found
}

/// Inverts some bytes in the middle of a file.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    let end = bytes.len().min(middle + 64);
    for byte in &mut bytes[middle..end] {
        *byte ^= 0xff;
    }
    fs::write(file, bytes).unwrap();
}

/// Puts a saved data directory and output back in place.
fn restore(job: &Job, saved: &Path) {
    for (dir, name) in [(job.data(), "data"), (job.out(), "out")] {
        fs::remove_dir_all(&dir).unwrap();
        copy(&saved.join(name), &dir);
    }
}

#[test]
fn damage_is_found_and_never_crawled_over() {
    let site = Site::start();
    let (job, _) = half_done(&site, 72);
    let saved = tempfile::tempdir().unwrap();
    copy(&job.data(), &saved.path().join("data"));
    copy(&job.out(), &saved.path().join("out"));

    let is = |path: &Path, words: &[&str]| {
        let path = path.strip_prefix(job.data()).unwrap().display().to_string();
        words.iter().all(|word| path.contains(word))
    };
    let all = files(&job.data());
    let victims = [
        all.iter().find(|path| is(path, &["IDENTITY"]) && !is(path, &["db"])),
        all.iter().find(|path| is(path, &["FLOOR"])),
        all.iter().find(|path| is(path, &["db", ".log"])),
        all.iter().find(|path| is(path, &["db", ".sst"])),
        all.iter().find(|path| is(path, &["db", "MANIFEST"])),
        all.iter().find(|path| is(path, &["db", "CURRENT"])),
        all.iter().find(|path| is(path, &["spool"])),
    ];
    for victim in victims.into_iter().flatten() {
        restore(&job, saved.path());
        damage(victim);
        let finished = job.run(DEADLINE);
        let name = victim.file_name().unwrap().to_string_lossy().into_owned();
        if finished.code == Some(0) {
            // Only right if what was damaged was not needed any more: then the result has to be complete.
            assert_eq!(job.records().checked().pages().len(), 80, "{name} was damaged");
        } else {
            assert_clear(&finished, &[1]);
        }
    }

    // With the undamaged copy in its place it goes on as if nothing had been.
    restore(&job, saved.path());
    job.complete(DEADLINE);
    assert_eq!(job.records().checked().pages().len(), 80);
}

#[test]
fn a_file_that_is_missing_is_found() {
    let site = Site::start();
    let (job, _) = half_done(&site, 73);
    let saved = tempfile::tempdir().unwrap();
    copy(&job.data(), &saved.path().join("data"));
    copy(&job.out(), &saved.path().join("out"));
    for name in ["IDENTITY", "FLOOR", "db/CURRENT"] {
        restore(&job, saved.path());
        let file = job.data().join(name);
        if !file.exists() {
            continue;
        }
        fs::remove_file(&file).unwrap();
        let finished = job.run(DEADLINE);
        assert_clear(&finished, &[1]);
    }
    restore(&job, saved.path());
    fs::remove_dir_all(job.data().join("db")).unwrap();
    assert_clear(&job.run(DEADLINE), &[1]);
    restore(&job, saved.path());
    job.complete(DEADLINE);
    assert_eq!(job.records().checked().pages().len(), 80);
}

/// CRC-32 of IEEE 802.3, bit by bit: for a few dozen bytes.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 },
        )
    })
}

#[test]
fn a_directory_of_a_newer_release_is_left_alone() {
    let site = Site::start();
    let (job, _) = half_done(&site, 74);
    let file = job.data().join("IDENTITY");
    let old = fs::read(&file).unwrap();
    // Magic, format, rest, checksum: the frame that every release keeps.
    let mut new = old[..old.len() - 4].to_vec();
    new[8] = 99;
    let sum = crc32(&new);
    new.extend_from_slice(&sum.to_le_bytes());
    fs::write(&file, &new).unwrap();
    let finished = job.run(DEADLINE);
    assert_clear(&finished.says(&["99", "newer"]), &[1]);
    fs::write(&file, old).unwrap();
    job.complete(DEADLINE);
    assert_eq!(job.records().checked().pages().len(), 80);
}

#[test]
fn a_data_directory_that_is_something_else_is_left_alone() {
    let site = Site::start();
    let web = mini::one_host(&site, 75, 3, Duration::ZERO);
    let mut job = Job::new(&site);
    job.seed(site.url(&web.hosts()[0], "/"));
    fs::write(job.data(), "a file, not a directory").unwrap();
    assert_clear(&job.run(DEADLINE), &[1, 2]);
    assert_eq!(fs::read_to_string(job.data()).unwrap(), "a file, not a directory");
}

/// A file system of its own, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where mounting is not allowed.
    fn mount(at: &Path, size: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let options = format!("size={size},mode=0777");
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output().ok()?;
        status.status.success().then(|| Self(at.to_owned()))
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        let status = Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_the_crawl_and_loses_nothing() {
    let site = Site::start();
    // Slow enough that the disk is full long before the end.
    let web = mini::one_host(&site, 76, 400, Duration::from_millis(50));
    let mut job = Job::new(&site);
    job.seed(site.url(&web.hosts()[0], "/")).set("--per-host", "8").flag("--warc");
    let disk_at = job.dir().join("disk");
    let disk = SmallDisk::mount(&disk_at, "64m");
    let filler = disk_at.join("filler");
    match &disk {
        Some(_) => {
            // Empty at first, so that it starts; then filled from outside.
            job.set("--data-dir", disk_at.join("data").display().to_string());
            job.set("--out", disk_at.join("out").display().to_string());
            let process = job.start();
            eventually("it crawls", DEADLINE, || match site.log().pages(&web.hosts()[0]) {
                seen if seen >= 20 => Ok(()),
                seen => Err((seen, process.stderr())),
            });
            let _ = Command::new("dd")
                .args(["if=/dev/zero", "bs=64k"])
                .arg(format!("of={}", filler.display()))
                .output();
            assert_clear(&process.wait(DEADLINE).says(&["space"]), &[1]);
        }
        None => {
            // No right to mount: a limit on the size of files stands in, with its signal ignored.
            job.through(["sh", "-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""]);
            assert_clear(&job.run(DEADLINE), &[1]);
            job.through([""; 0]);
        }
    }
    if let Some(disk) = &disk {
        let _ = fs::remove_file(&filler);
        disk.resize("512m");
    }
    job.complete(DEADLINE);
    let records = job.records().checked();
    assert_eq!(records.pages().len(), 400);
    let archive = dolomedes_tests::warc::read(&job.out()).unwrap();
    let violations = dolomedes_tests::warc::violations(&archive, &records);
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn an_output_directory_that_cannot_be_written_is_named() {
    let site = Site::start();
    let web = mini::one_host(&site, 77, 10, Duration::ZERO);
    let mut job = Job::new(&site);
    job.seed(site.url(&web.hosts()[0], "/"));
    let out = job.out();
    fs::write(&out, "a file, not a directory").unwrap();
    assert_clear(&job.run(DEADLINE).says(&["out"]), &[1, 2]);
    assert_eq!(site.log().pages(&web.hosts()[0]), 0, "nothing is fetched that cannot be kept");
    fs::remove_file(&out).unwrap();
    fs::create_dir(&out).unwrap();
    fs::create_dir(out.join("pages.jsonl")).unwrap();
    assert_clear(&job.run(DEADLINE).says(&["pages.jsonl"]), &[1]);
    fs::remove_dir(out.join("pages.jsonl")).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write everywhere.
    let allowed = fs::write(out.join("probe"), "").is_ok();
    let finished = job.run(DEADLINE);
    if !allowed {
        assert_clear(&finished.says(&["out"]), &[1]);
    }
    fs::set_permissions(&out, fs::Permissions::from_mode(0o755)).unwrap();
    job.complete(DEADLINE);
    assert_eq!(job.records().checked().pages().len(), 10);
}

#[test]
fn output_that_vanished_is_noticed() {
    let site = Site::start();
    let (job, _) = half_done(&site, 78);
    let saved = tempfile::tempdir().unwrap();
    copy(&job.data(), &saved.path().join("data"));
    copy(&job.out(), &saved.path().join("out"));
    fs::remove_dir_all(job.out()).unwrap();
    // Records that were delivered for good are gone: going on in silence would pass a part off as the whole. Before the
    // sink's first mark none are; then all of them come again from the spool.
    let finished = job.run(DEADLINE);
    if finished.code != Some(0) {
        assert_clear(&finished.says(&["pages.jsonl"]), &[1]);
        let _ = fs::create_dir(job.out());
        restore(&job, saved.path());
        job.complete(DEADLINE);
    }
    assert_eq!(job.records().checked().pages().len(), 80);
}

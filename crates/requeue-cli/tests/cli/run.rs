//! Runs the built binary, without any variable of the machine that tests it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use requeue_testkit::repository;

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The standard output of a run that went well, and had nothing to complain about. On a slow
    /// machine a simulation says how far it is.
    #[track_caller]
    pub(crate) fn succeeded(self) -> String {
        let counts = ["virtual s", "messages"];
        let is_progress =
            |line: &&str| counts.iter().any(|unit| line.contains(&format!(" {unit}, ")));
        let complaints: Vec<&str> = self.stderr.lines().filter(|line| !is_progress(line)).collect();
        assert_eq!((self.status, complaints), (0, Vec::new()), "{}", self.stdout);
        self.stdout
    }
}

pub(crate) fn requeue(arguments: &[&str]) -> Run {
    requeue_reading("", arguments)
}

/// With this on its standard input.
pub(crate) fn requeue_reading(input: &str, arguments: &[&str]) -> Run {
    run(input, arguments, &[])
}

/// With these variables.
pub(crate) fn requeue_with(variables: &[(&str, &str)], arguments: &[&str]) -> Run {
    run("", arguments, variables)
}

fn run(input: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_requeue"))
        .args(arguments)
        .env_clear()
        // Some networks respond for the address of the metadata service, and the SDK logs such a
        // response.
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .envs(variables.iter().copied())
        .current_dir(repository(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads nothing may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Run {
        status: output.status.code().expect("no signal ended it"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A path for a file of this test alone.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli");
    fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

/// Such a file with this text.
pub(crate) fn file(name: &str, text: &str) -> String {
    let path = scratch(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Whether a closed terminal reaches the programs that these tests start; not under `nohup`.
pub(crate) fn hangs_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_none_or(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 0)
}

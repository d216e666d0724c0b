//! A standard output that takes nothing: a disk that is full, and a pipe whose reader is gone.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use requeue_testkit::repository;

use crate::run::file;

/// Status and standard error of a run with this standard output.
fn run_into(output: impl Into<Stdio>, arguments: &[&str]) -> (Option<i32>, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_requeue"))
        .args(arguments)
        .env_clear()
        .current_dir(repository(""))
        .stdin(Stdio::null())
        .stdout(output)
        .output()
        .unwrap();
    (run.status.code(), String::from_utf8(run.stderr).unwrap())
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "there is no /dev/full")]
fn no_command_panics_when_its_output_cannot_be_written() {
    let policy =
        file("unwritable-policy.json", r#"{"sqsCalls": "off", "receiveCalls": {"maxDelay": 2}}"#);
    let outage = ["simulate", "outage", "--messages", "5", "--rate", "5", "--outage", "0"];
    let commands = [
        &["--help"][..],
        &["--version"],
        &["help", "work"],
        &["check", &policy],
        &["demo", "--messages", "5"],
        &["invoke", "events/single.json"],
        &["schedule"],
        &["schedule", "--json"],
        &outage,
        &[&outage[..], &["--json"]].concat(),
        &["simulate", "rate", "--messages", "5", "--environments", "1"],
    ];
    for arguments in commands {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (status, said) = run_into(full, arguments);
        let last = said.lines().last().unwrap_or_default();
        let reason = "error: the standard output cannot be written: No space left on device (os error 28); \
             redirect it to a file or pipe that takes it";
        assert_eq!((status, last), (Some(1), reason), "{arguments:?}: {said}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (status, said) = run_into(writer, arguments);
        // The shell's status for SIGPIPE.
        assert_eq!(status, Some(141), "{arguments:?}: {said}");
        assert!(!said.contains("error") && !said.contains("panic"), "{arguments:?}: {said}");
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "there is no /dev/full")]
fn what_is_told_beside_the_output_is_no_reason_to_fail() {
    for (arguments, status) in [
        (&["demo", "--messages", "5"][..], 0),
        (&["invoke", "events/single.json"], 0),
        (&["check", "none.json"], 1),
        (&["no-such-command"], 2),
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let run = Command::new(env!("CARGO_BIN_EXE_requeue"))
            .args(arguments)
            .env_clear()
            .current_dir(repository(""))
            .stdout(Stdio::null())
            .stderr(full)
            .status()
            .unwrap();
        assert_eq!(run.code(), Some(status), "{arguments:?}");
    }
}

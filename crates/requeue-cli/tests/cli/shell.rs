//! `requeue generate`.

use std::fs;
use std::process::Command;

use crate::run::{file, requeue, scratch};

#[test]
fn the_shells_accept_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = requeue(&["generate", shell]).succeeded();
        assert!(script.contains("redrive") && script.contains("simulate"), "{shell}");
        let path = file(&format!("completions.{shell}"), &script);
        match Command::new(shell).args(["-n", &path]).output() {
            Ok(checked) => assert!(checked.status.success(), "{shell}: {checked:?}"),
            Err(_) => eprintln!("SKIPPED {shell}: it is not installed"),
        }
    }
    assert_eq!(requeue(&["generate", "tcsh"]).status, 2);
}

#[test]
fn each_command_has_a_manual_page() {
    let directory = scratch("man");
    let _ = fs::remove_dir_all(&directory);
    let run = requeue(&["generate", "man", directory.to_str().unwrap()]);
    assert_eq!(run.status, 0, "{run:?}");
    for name in ["requeue", "requeue-dlq-import", "requeue-simulate-rate", "requeue-status"] {
        let page = fs::read_to_string(directory.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let page = fs::read_to_string(directory.join("requeue-dlq-import.1")).unwrap();
    assert!(page.contains("requeue dlq import dead.jsonl"), "it has the examples");
}

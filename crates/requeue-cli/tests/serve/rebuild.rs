//! A function that is rebuilt while it is served.

use std::fs;
use std::time::Duration;

use crate::served::{Served, bootstrap, program};

#[test]
fn a_new_build_takes_the_place_of_an_idle_one() {
    let path = bootstrap("rebuilt", "first");
    let mut served = Served::start(&["--function", &path], &[]);
    served.send(&["ok-1"]);
    served.line("1| starts first");
    served.line("#1 1 message: 1 deleted, ");
    // The state during linking.
    fs::remove_file(&path).unwrap();
    let meanwhile = served.rest(Duration::from_secs(1));
    assert!(meanwhile.is_empty(), "{meanwhile:?}");
    bootstrap("rebuilt", "second");
    served.line("function was rebuilt");
    served.line("2| starts second");
    served.send(&["ok-2"]);
    served.line("2| gets ok-2");
    served.line("#2 1 message: 1 deleted, ");
}

#[test]
fn a_busy_one_finishes_first() {
    let path = bootstrap("rebuilt-busy", "first");
    let options = ["--timeout", "3", "--maximum-concurrency", "1", "--function"];
    let mut served = Served::start(&[&options[..], &[&path]].concat(), &[]);
    served.send(&["hang"]);
    served.line("1| gets hang");
    bootstrap("rebuilt-busy", "second");
    served.line("function was rebuilt");
    served.line("#1 1 message: all kept, timed out after 3 s");
    served.line("2| starts second");
}

#[test]
fn a_broken_build_is_replaced_by_the_next_one_without_a_pause() {
    let path = bootstrap("rebuilt-broken", "first");
    let mut served = Served::start(&["--function", &path], &[]);
    served.line("function started");
    program("rebuilt-broken", "exit 9");
    served.line("function exited at its start (status 9); next start in 1 s");
    served.line("function exited at its start (status 9); next start in 2 s");
    bootstrap("rebuilt-broken", "third");
    served.line("| starts third");
    served.line("function started");
}

#[test]
fn a_build_that_hangs_at_its_start_is_replaced_by_the_next_one() {
    let path = program("rebuilt-hanging", "echo hangs; exec sleep 300");
    let mut served = Served::start(&["--function", &path], &[]);
    served.line("1| hangs");
    bootstrap("rebuilt-hanging", "second");
    served.line("function was rebuilt");
    served.line("2| starts second");
    // Also one that is started for a message.
    served.line("function started");
    let begins = "mkdir $0.begun 2>/dev/null || { echo hangs; exec sleep 300; }; exec";
    let _ = fs::remove_dir(format!("{path}.begun"));
    let script = fs::read_to_string(&path).unwrap().replace("exec", begins);
    program("rebuilt-hanging", &script);
    served.line("function started");
    served.send(&["exit"]);
    served.line(" #1 ");
    served.send(&["ok"]);
    served.line("| hangs");
    bootstrap("rebuilt-hanging", "fourth");
    served.line("#2 1 message: all kept, the function did not start, ");
    served.line("| starts fourth");
}

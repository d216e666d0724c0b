//! Ctrl-C ends all that was started.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use crate::served::{Served, program, requeue};

/// The process whose number comes after `name` in the function's lines.
fn process(served: &mut Served, name: &str) -> String {
    let line = served.line(name);
    line.split_whitespace().last().unwrap().to_owned()
}

fn runs(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn one_signal_ends_all_also_if_nobody_reads_the_output() {
    let path = program("unread", "echo $$ > $0.started; mv $0.started $0.pid; exec yes");
    let file = format!("{path}.pid");
    let _ = fs::remove_file(&file);
    let mut served = requeue(&["serve", "--sqs-port", "0", "--function", &path], &[]);
    let mut served = served.stdout(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !Path::new(&file).exists() && begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let function = fs::read_to_string(&file).unwrap();
    // The pipe is full long before.
    std::thread::sleep(Duration::from_secs(1));
    assert!(runs(function.trim()));
    let signalled = Instant::now();
    let id = served.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(served.wait().unwrap().code(), Some(143));
    assert!(signalled.elapsed() < Duration::from_secs(10), "{:?}", signalled.elapsed());
    while runs(function.trim()) && signalled.elapsed() < Duration::from_secs(15) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!runs(function.trim()), "{function}");
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn a_signal_ends_the_function_and_what_it_has_started() {
    const DEAF: &str = "trap '' TERM INT; sleep 301 & echo child $!; echo self $$; \
                        while :; do sleep 1; done";
    const HEARING: &str = "sleep 302 & echo child $!; echo self $$; wait";
    for (signal, status) in [("-INT", 130), ("-TERM", 143), ("-QUIT", 131)] {
        for lines in [HEARING, DEAF] {
            let path = program(&format!("ended{signal}{}", lines.len()), lines);
            let mut served = Served::start(&["--", "sh", "-c", &format!("{path} & wait")], &[]);
            let processes = [process(&mut served, "| child"), process(&mut served, "| self")];
            assert!(processes.iter().all(|process| runs(process)));
            let begun = Instant::now();
            served.signal(signal);
            assert_eq!(served.status(), Some(status));
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
            let left = || processes.iter().any(|process| runs(process));
            // Their new parent reaps them.
            while left() && begun.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(!left(), "{processes:?} after {signal}");
        }
    }
}

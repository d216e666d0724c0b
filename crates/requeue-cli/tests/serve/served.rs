//! A running `requeue serve`, its lines, and its queue.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use requeue_testkit::repository;
use serde_json::{Value, json};

/// How long a line may take: many times what it needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends, with all that it has started, with this value.
pub(crate) struct Served {
    child: Child,
    lines: Receiver<String>,
    pub(crate) seen: Vec<String>,
    pub(crate) port: String,
    queue: String,
}

/// The program with these variables and few others.
pub(crate) fn requeue(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    let path = std::env::var_os("PATH").unwrap();
    command
        .args(arguments)
        .env_clear()
        .env("PATH", path)
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    command
}

/// A file of this test alone that runs the function that speaks the Runtime API by itself.
pub(crate) fn bootstrap(name: &str, arguments: &str) -> String {
    let script = repository("crates/requeue-cli/tests/serve/bootstrap.py");
    program(name, &format!("exec python3 {} {arguments}", script.to_str().unwrap()))
}

/// Such a file with these lines for a shell. It takes the place of an earlier one as cargo's
/// programs do: in one step.
pub(crate) fn program(name: &str, lines: &str) -> String {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("serve");
    fs::create_dir_all(&directory).unwrap();
    let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
    fs::write(&new, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

impl Served {
    pub(crate) fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_in(&repository("."), arguments, variables)
    }

    /// In this directory.
    pub(crate) fn start_in(
        directory: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let all = [&["serve", "--sqs-port", "0"], arguments].concat();
        let mut serve = requeue(&all, variables);
        let mut child = serve.current_dir(directory).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let (seen, port, queue) = (Vec::new(), String::new(), String::new());
        let mut served = Self { child, lines, seen, port, queue };
        let line = served.line("queue  ");
        line.split_whitespace().last().unwrap().clone_into(&mut served.queue);
        let port = served.queue.split(['/', ':']).nth(4).unwrap();
        served.port = port.to_owned();
        served
    }

    /// The next line with this text in it.
    #[track_caller]
    pub(crate) fn line(&mut self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {text:?} after {:#?}", self.seen));
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// All lines until `pause` passes without one.
    pub(crate) fn rest(&mut self, pause: Duration) -> Vec<String> {
        std::iter::from_fn(|| self.lines.recv_timeout(pause).ok()).collect()
    }

    /// Sends messages in one request, so that they may come in one batch.
    pub(crate) fn send(&self, bodies: &[&str]) {
        self.send_to(&self.queue, bodies);
    }

    /// The URL of another queue.
    pub(crate) fn url_of(&self, queue: &str) -> String {
        let (base, _) = self.queue.rsplit_once('/').unwrap();
        format!("{base}/{queue}")
    }

    pub(crate) fn send_to(&self, queue: &str, bodies: &[&str]) {
        let entry = |(at, body): (usize, &&str)| {
            let mut entry = json!({ "Id": at.to_string(), "MessageBody": body });
            if queue.strip_suffix(".fifo").is_some() {
                entry["MessageGroupId"] = body.split('-').next().unwrap().into();
                entry["MessageDeduplicationId"] = (*body).into();
            }
            entry
        };
        let entries: Vec<Value> = bodies.iter().enumerate().map(entry).collect();
        let body = json!({ "QueueUrl": queue, "Entries": entries }).to_string();
        let address = format!("127.0.0.1:{}", self.port);
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(
            stream,
            "POST / HTTP/1.1\r\nhost: {address}\r\nx-amz-target: AmazonSQS.SendMessageBatch\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("\"Successful\"") && !answer.contains("\"Failed\""), "{answer}");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits until it ends by itself.
    pub(crate) fn status(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.signal("-TERM");
            let _ = self.child.wait();
        }
    }
}

/// A run that comes to its end.
pub(crate) fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    requeue(arguments, variables).output().unwrap()
}

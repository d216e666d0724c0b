//! A refusal names the rule and the remedy.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use requeue_testkit::repository;

use crate::served::{Served, bootstrap, program, run};

#[test]
fn a_function_that_cannot_be_started_is_refused_with_the_remedy() {
    let root = repository("");
    let (file, directory) = (root.join("Cargo.toml"), root.join("src"));
    let foreign = program("foreign", "");
    // The head of an ELF program for a machine that is not in use.
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(64, 0);
    elf[18] = 8;
    fs::write(&foreign, elf).unwrap();
    let orphan = program("orphan", "");
    fs::write(&orphan, "#!/no/such/interpreter\n").unwrap();
    let path = bootstrap("refused", "");
    let serve = ["serve", "--sqs-port", "0"];
    for (arguments, words) in [
        (vec!["--function", "/no/such/file"], "does not exist; build it first"),
        (vec!["--function", directory.to_str().unwrap()], "is a directory; name the program"),
        (vec!["--function", file.to_str().unwrap()], "is not executable; name the program"),
        (vec!["--function", &foreign], "is built for another architecture, and this machine is"),
        (vec!["--function", &orphan], "its interpreter or loader does not exist"),
        (vec!["--", "no-such-command"], "the command no-such-command does not exist"),
        (vec!["--function", &path, "--", &path], "remove one of them"),
        (vec!["--function", &path, "--timeout", "9"], "--timeout after --function would be"),
        (vec!["--function", &path, "--port=0"], "--port=0 after --function would be"),
        (vec!["--queue", "a b"], "--queue a b: "),
        (
            vec!["--timeout", "9", "--visibility-timeout", "8", "--function", &path],
            "is shorter than --timeout 9",
        ),
        (vec!["--queue", "a.fifo", "--batch-size", "11"], "choose at most 10"),
        (vec!["--queue", "a", "--queue", "b.fifo", "--batch-size", "11"], "choose at most 10"),
        (vec!["--queue", "a", "--queue", "a"], "--queue a stands twice; remove one of them"),
        (
            vec!["--queue", "a-dlq", "--queue", "a"],
            "--queue a-dlq is the dead-letter queue of --queue a; choose another name",
        ),
    ] {
        let output = run(&[&serve[..], &arguments].concat(), &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let path = bootstrap("port", "");
    let served = Served::start(&["--function", &path], &[]);
    let output = run(&["serve", "--sqs-port", &served.port, "--function", &path], &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("choose another one with --sqs-port"), "{said}");
}

#[test]
fn no_web_page_speaks_for_a_function() {
    let path = bootstrap("page", "");
    let mut served = Served::start(&["--function", &path], &[]);
    served.send(&["environment"]);
    let line = served.line("AWS_LAMBDA_RUNTIME_API=");
    let api = line.rsplit('=').next().unwrap();
    for (request, header) in [
        ("POST /2018-06-01/runtime/init/error", "origin: https://page.example"),
        ("POST /2018-06-01/runtime/init/error", "origin: null"),
        ("GET /2018-06-01/runtime/invocation/next", "sec-fetch-site: cross-site"),
    ] {
        let mut stream = TcpStream::connect(api).unwrap();
        write!(
            stream,
            "{request} HTTP/1.1\r\nhost: {api}\r\n{header}\r\ncontent-length: 0\r\n\r\n"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 403 "), "{request} {header}: {response}");
    }
    served.send(&["ok"]);
    served.line("1 message: 1 deleted");
}

//! Commands on a terminal: tables fit into it, waits say what they do, and Ctrl-C leaves no half
//! line.

#![allow(clippy::disallowed_methods, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use requeue::embedded::{Call, Fault};
use requeue_testkit::repository;
use requeue_testkit::terminal::{in_terminal, screen};
use serde_json::json;

use crate::dlq_world::{SEND, World, side_by_side};
use crate::run::file;

/// A command that was typed into a terminal, and its end.
pub(crate) struct Typed {
    pub(crate) status: Option<i32>,
    output: String,
}

/// Keys, and the text that is drawn before they are typed.
pub(crate) type Keys = (&'static str, &'static str);

const CTRL_C: &str = "\x03";

/// Runs `requeue` in a terminal of so many columns, and types these keys in their order.
pub(crate) fn typed(
    columns: usize,
    keys: &[Keys],
    variables: &[(&str, String)],
    line: &[&str],
) -> Typed {
    let columns = columns.to_string();
    let [program, words @ ..] = in_terminal(&columns);
    let inherited = ["PATH", "HOME"].map(|name| (name, std::env::var(name).unwrap_or_default()));
    let mut child = Command::new(program)
        .args(words)
        .arg(env!("CARGO_BIN_EXE_requeue"))
        .args(line)
        .env_clear()
        .envs(inherited)
        .env("TERM", "xterm")
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(repository(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut output, mut some, mut keys) = (Vec::new(), [0; 4_096], keys.iter().peekable());
    loop {
        let read = screen.read(&mut some).unwrap();
        output.extend_from_slice(&some[..read]);
        if read == 0 {
            break;
        }
        let is_drawn = |text: &str| String::from_utf8_lossy(&output).contains(text);
        if let Some((_, key)) = keys.next_if(|(text, _)| is_drawn(text)) {
            keyboard.write_all(key.as_bytes()).unwrap();
        }
    }
    let status = child.wait().unwrap().code();
    Typed { status, output: String::from_utf8_lossy(&output).into_owned() }
}

/// The same for a dead-letter queue on loopback.
async fn typed_at(world: &World, columns: usize, keys: &[Keys], line: &[&str]) -> Typed {
    let url = world.url(&world.dead_letters);
    let line: Vec<String> = line.iter().map(|word| word.replace("URL", &url)).collect();
    let (variables, keys) = (world.variables(), keys.to_vec());
    let run = move || {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        typed(columns, &keys, &variables, &line)
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

impl Typed {
    /// The lines that are left. Each fits, unless it is JSON or has a single word.
    #[track_caller]
    pub(crate) fn fitting(&self, columns: usize) -> Vec<String> {
        let lines = screen(&self.output);
        let words = |line: &String| {
            line.split_whitespace().filter(|word| !["\\", ">"].contains(word)).count()
        };
        for line in lines.iter().filter(|line| !line.starts_with('{') && words(line) > 1) {
            assert!(line.chars().count() <= columns, "{columns} columns: {line:?} in {lines:#?}");
        }
        lines
    }
}

/// The columns in which the numbers of a table end.
fn ends_of_numbers(lines: &[String]) -> Vec<Vec<usize>> {
    let rule = lines.iter().position(|line| line.starts_with('─')).unwrap();
    let rows = lines[rule + 1..].iter().take_while(|line| line.starts_with(' '));
    rows.map(|row| {
        let characters: Vec<char> = row.chars().chain([' ', ' ']).collect();
        let is_end = |at: &usize| {
            characters[*at].is_ascii_digit() && characters[at + 1..at + 3] == [' ', ' ']
        };
        (0..characters.len() - 2).filter(is_end).collect()
    })
    .collect()
}

const OUTAGE: [&str; 8] =
    ["simulate", "outage", "--messages", "2000", "--outage", "9", "--rate", "500"];
const RATE: [&str; 8] =
    ["simulate", "rate", "--messages", "2000", "--environments", "5", "--tenants", "5"];

#[test]
fn each_table_fits_into_its_terminal() {
    let policy = json!({
        "preset": "critical",
        "rateLimit": { "limit": 50, "periodSeconds": 1 },
        "queueConfig": { "visibilityTimeout": 60, "maxReceiveCount": 2 },
    });
    let policy = file("terminal.json", &policy.to_string());
    let commands: [&[&str]; 6] = [
        &["schedule"],
        &["check", &policy],
        &["demo", "--messages", "1200"],
        &["invoke", "events/every-class.json"],
        &OUTAGE,
        &RATE,
    ];
    let cases = [60, 80, 120].into_iter().flat_map(|columns| commands.map(|line| (columns, line)));
    side_by_side(cases, async |(columns, line)| {
        let typed = typed(columns, &[], &[], line);
        assert_eq!(typed.status, Some(0), "{line:?}: {}", typed.output);
        typed.fitting(columns);
    });
}

#[test]
fn numbers_end_in_one_column_and_have_groups_of_three_digits() {
    for (columns, line) in [(80, &OUTAGE[..]), (120, &OUTAGE), (120, &RATE)] {
        let lines = typed(columns, &[], &[], line).fitting(columns);
        let ends = ends_of_numbers(&lines);
        let all: Vec<usize> = ends.iter().filter_map(|row| row.last().copied()).collect();
        assert!(all.len() > 10 && all.iter().all(|end| *end == all[0]), "{line:?}: {lines:#?}");
        assert!(lines.iter().any(|line| line.contains("2,000")), "{lines:#?}");
    }
}

#[test]
fn dead_letters_are_shown_with_whole_ids_on_each_terminal() {
    side_by_side([60, 80, 160], async |columns| {
        let world = World::filled("annotate").await;
        // At 80 columns the table has no room for an example.
        for (command, expected) in [("list", if columns == 80 { 0 } else { 3 }), ("peek", 5)] {
            let line = ["dlq", command, "--queue-url", "URL"];
            let lines = typed_at(&world, columns, &[], &line).await.fitting(columns);
            let shown = lines.join("\n");
            let whole = world.dead().iter().filter(|dead| shown.contains(&dead.id)).count();
            assert_eq!(whole, expected, "{columns} columns: {shown}");
            let is_table = lines.iter().any(|line| line.ends_with("   failure"));
            assert_eq!(is_table, command == "list" && columns > 60, "{shown}");
        }
    });
}

#[test]
fn findings_fit_and_commands_stay_whole_for_a_shell() {
    side_by_side([60, 80, 120], async |columns| {
        let world = World::filled("annotate").await;
        let line = ["doctor", "--queue-url", &world.url(&world.queue)];
        let lines = typed_at(&world, columns, &[], &line).await.fitting(columns);
        let broken = |line: &&String| line.ends_with(" \\");
        let at = lines.iter().position(|line| line.trim_start().starts_with("aws ")).unwrap();
        assert_eq!(broken(&&lines[at]), lines[at + 1].starts_with("             "), "{lines:#?}");
        assert!(columns == 120 || lines.iter().any(|line| broken(&line)), "{lines:#?}");
    });
}

#[test]
fn a_wait_of_more_than_a_second_names_its_call() {
    side_by_side([()], async |()| {
        let world = World::filled("annotate").await;
        world.sqs.set_faults(|_| Fault::Hang);
        for (line, awaited) in [
            (["doctor", "--queue-url", "URL"].as_slice(), "waiting for sqs:GetQueueAttributes"),
            (&["doctor", "--queue", "orders"], "waiting for SQS to find orders"),
            (&["dlq", "list", "--queue-url", "URL"], "asking SQS for the queue"),
            (
                &["dlq", "discard", "none.jsonl", "--yes", "--queue-url", "URL"],
                "asking SQS for the queue",
            ),
            (&["ui", "--port", "0", "--queue-url", "URL"], "asking SQS for the queue"),
            (&["send", "{}", "--queue-url", "URL"], "sending to "),
        ] {
            let typed = typed_at(&world, 80, &[(awaited, CTRL_C)], line).await;
            let lines = typed.fitting(80);
            assert!(!lines.iter().any(|line| line.contains(awaited)), "{lines:#?}");
        }
    });
    // It accepts connections and never responds.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut variables =
        vec![("AWS_ENDPOINT_URL", endpoint), ("AWS_REGION", "eu-west-1".to_owned())];
    variables.extend(
        ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name, "any".to_owned())),
    );
    for line in [
        &["check", "--settings", "--function", "f"][..],
        &["status", "--function", "f"],
        &["ui", "--port", "0", "--function", "f"],
    ] {
        let keys = [("waiting for lambda:GetFunctionConfiguration", CTRL_C)];
        let typed = typed(80, &keys, &variables, line);
        assert_eq!(typed.status, Some(130), "{}", typed.output);
    }
}

#[test]
fn an_interrupted_command_leaves_no_half_line() {
    let long = ["simulate", "outage", "--messages", "3000"];
    let typed = typed(80, &[(" of 600 virtual s", CTRL_C)], &[], &long);
    assert_eq!(typed.status, Some(130), "{}", typed.output);
    let drawn = "without pause and circuit breaker";
    assert!(typed.output.contains(drawn), "{}", typed.output);
    let lines = typed.fitting(80);
    assert!(!lines.iter().any(|line| line.contains(drawn) || line.contains("^C")), "{lines:#?}");
    assert_eq!(lines.last().map(String::as_str), Some(""), "{lines:#?}");
}

#[test]
fn an_interrupted_redrive_says_how_much_is_done_and_how_much_remains() {
    side_by_side([()], async |()| {
        let world = World::filled("annotate").await;
        for number in 0..40 {
            world.send_dead(&format!("{number}")).await;
        }
        let to = world.url(&world.queue);
        let line =
            ["dlq", "redrive", "--queue-url", "URL", "--to", &to, "--rate", "2", "--copy", "--yes"];
        let typed = typed_at(&world, 80, &[(" of 45 messages, ", CTRL_C)], &line).await;
        assert_eq!(typed.status, Some(130), "{}", typed.output);
        let lines = typed.fitting(80);
        let (dead, back) = world.counts();
        assert_eq!(dead + back, 45);
        let said = |text: String| assert!(lines.contains(&text), "{text} in {lines:#?}");
        said(match back {
            0 => "no message copied".to_owned(),
            1 => "1 message copied to orders".to_owned(),
            _ => format!("{back} messages copied to orders"),
        });
        said(format!("about {dead} messages remain here after the interruption"));
        said("to go on, give the same command again".to_owned());
    });
}

#[test]
fn the_progress_of_chosen_messages_counts_them_alone() {
    side_by_side(["--class", "--limit"], async |option| {
        let world = World::filled("annotate").await;
        for number in 0..40 {
            world.send_dead(&format!("{number}")).await;
        }
        let value = if option == "--class" { "unknown" } else { "40" };
        let keys = [("[y/N] ", "y\n"), (" of 40 messages, ", CTRL_C)];
        let line = ["dlq", "redrive", "--queue", "URL", "--rate", "3", "--copy", option, value];
        let typed = typed_at(&world, 80, &keys, &line).await;
        assert_eq!(typed.status, Some(130), "{}", typed.output);
        let (dead, back) = world.counts();
        assert!((1..40).contains(&back), "{}", typed.output);
        let left = 40 - back;
        let (of, next) = match option {
            "--class" => (left, "to go on, give the same command again".to_owned()),
            _ => (left, format!("to go on, give the same command with --limit {left}")),
        };
        let remain = "messages remain here after the interruption";
        let lines = typed.fitting(80);
        for text in [format!("about {dead} {remain}, {of} of them chosen"), next] {
            assert!(lines.contains(&text), "{text} in {lines:#?}");
        }
    });
}

#[test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn a_command_that_cannot_stop_says_how_to_end_it() {
    let redrive = ["dlq", "redrive", "--queue", "URL", "--to", "orders", "--copy", "--yes"];
    let export = ["dlq", "export", "stuck.jsonl", "--queue", "URL"];
    let cases = [(SEND, &redrive[..]), ("ChangeMessageVisibilityBatch", &export)];
    side_by_side(cases, async |(stuck, line)| {
        let world = World::filled("annotate").await;
        let is_stuck = move |call: &Call| call.operation == stuck;
        world.sqs.set_faults(move |call| if is_stuck(call) { Fault::Hang } else { Fault::None });
        let keys =
            [("no response from SQS for 3 s", CTRL_C), ("a second Ctrl-C ends it at once", CTRL_C)];
        let typed = typed_at(&world, 80, &keys, line).await;
        assert_eq!(typed.status, Some(130), "{}", typed.output);
        let said = typed.fitting(80).join("\n").replace("\n  ", " ");
        assert!(said.contains("note: the command waits for its last requests"), "{said}");
        assert!(said.contains("ended at once: messages in flight stay hidden"), "{said}");
        let named = said.split_once("and the file ").and_then(|(_, rest)| rest.split_once(" has "));
        if let Some((partial, _)) = named {
            std::fs::remove_file(repository(partial)).unwrap();
        }
        assert_eq!(named.is_some(), line == export, "{said}");
    });
}

#[test]
fn an_interrupted_import_says_what_was_sent_and_how_to_go_on() {
    side_by_side([()], async |()| {
        let world = World::filled("annotate").await;
        let line = |number| format!("{{\"messageId\":\"m{number}\",\"body\":\"b\"}}\n");
        let lines: Vec<String> = (0..25).map(line).collect();
        let file = file("terminal-import.jsonl", &lines.concat());
        let _ = std::fs::remove_file(format!("{file}.report"));
        let queue = world.queue.name();
        let line = ["dlq", "import", &file, "--queue", queue, "--rate", "1", "--yes"];
        let typed = typed_at(&world, 80, &[("10 of 25 messages", CTRL_C)], &line).await;
        assert_eq!((typed.status, world.back().len()), (Some(130), 10), "{}", typed.output);
        let lines = typed.fitting(80).join("\n").replace("\n  ", " ");
        for told in [
            "10 messages sent to orders\n15 messages left, not sent yet\n",
            "terminal-import.jsonl.report has each message that was sent; run the same command again",
        ] {
            assert!(lines.contains(told), "{told} in {lines}");
        }
        let again = world.run(&["import", &file, "--queue", queue, "--yes"]).await.succeeded();
        assert!(
            again.starts_with("15 messages sent to orders\n10 messages sent before"),
            "{again}"
        );
    });
}

#[test]
fn a_terminal_that_cannot_rewrite_a_line_gets_none() {
    let with = |name, value: &str| typed(80, &[], &[(name, value.to_owned())], &OUTAGE);
    let dumb = with("TERM", "dumb");
    assert!(!dumb.output.contains('\u{1b}'), "{}", dumb.output);
    let plain = with("NO_COLOR", "1");
    assert!(plain.output.contains("\r\u{1b}[2K") && !plain.output.contains("\u{1b}[3"));
}

//! `requeue dlq import`: the way back of an export.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::time::Duration;

use requeue::embedded::{EntryFault, EntryOutcome, Fault};
use serde_json::{Value, json};

use crate::dlq_world::{SEND, World, payloads};
use crate::run::{Run, scratch};

/// An export of the whole dead-letter queue, which is empty afterwards.
async fn exported(world: &World, name: &str) -> String {
    let path = scratch(name);
    let file = path.to_str().unwrap().to_owned();
    let _ = (fs::remove_file(&file), fs::remove_file(format!("{file}.report")));
    let run = world.dlq(&["discard", &file, "--yes"]).await;
    assert_eq!((run.status, world.counts()), (0, (0, 0)), "{run:?}");
    file
}

async fn import(world: &World, file: &str, options: &[&str]) -> Run {
    let queue = world.queue.name();
    world.run(&[&["import", file, "--queue", queue], options].concat()).await
}

#[tokio::test]
async fn each_message_comes_back_as_it_was() {
    for name in ["orders", "orders.fifo"] {
        let mode = if name == "orders" { "annotate" } else { "direct" };
        let world = World::filled_with(mode, name, &crate::dlq_world::BODIES).await;
        let dead = world.dead();
        let file = exported(&world, &format!("import-{name}.jsonl")).await;
        let plan = import(&world, &file, &["--dry-run"]).await.succeeded();
        assert!(
            plan.starts_with("5 messages (1 non-retryable, 3 quota, 1 temporary) would"),
            "{plan}"
        );
        assert_eq!(world.counts(), (0, 0));

        let run = import(&world, &file, &["--yes", "--rate", "500"]).await;
        assert_eq!((run.status, run.stdout), (0, format!("5 messages sent to {name}\n")));
        let back = world.back();
        assert_eq!(payloads(&back), payloads(&dead), "{name}");
        for message in &back {
            let original = dead.iter().find(|dead| dead.body == message.body).expect("that body");
            assert_eq!(
                (&message.attributes, &message.group_id),
                (&original.attributes, &original.group_id)
            );
        }
        let again = import(&world, &file, &["--yes"]).await.succeeded();
        let nothing =
            format!("no message left to send to {name}\n5 messages sent before, by the report\n");
        assert_eq!((again, world.counts()), (nothing, (0, 5)));
    }
}

#[tokio::test]
async fn two_imports_of_one_file_at_once_send_each_message_once() {
    let world = World::filled_with("annotate", "orders", &crate::dlq_world::BODIES).await;
    let file = exported(&world, "import-twice.jsonl").await;
    // Each sees an empty report before the other one sends, which takes a while.
    world.sqs.set_faults(|call| match call.operation.as_str() {
        SEND => Fault::RespondAfter(Duration::from_secs(2)),
        _ => Fault::None,
    });
    let (one, other) = tokio::join!(import(&world, &file, &["--yes"]), async {
        import(&world, &file, &["--yes"]).await
    });
    let refused = if one.status == 0 { other } else { one };
    assert_eq!((refused.status, world.counts()), (1, (0, 5)), "{refused:?}");
    let words = "another import writes the report ";
    assert!(refused.stderr.contains(words), "{refused:?}");
    let again = import(&world, &file, &["--yes"]).await.succeeded();
    assert!(again.starts_with("no message left to send"), "{again}");
}

#[tokio::test]
async fn a_fifo_queue_drops_what_one_report_sends_twice_and_nothing_else() {
    let world = World::filled_with("direct", "orders.fifo", &crate::dlq_world::BODIES).await;
    let file = exported(&world, "import-fifo.jsonl").await;
    let import = async |options: &[&str]| {
        import(&world, &file, &[&["--yes"], options].concat()).await.succeeded();
        world.counts().1
    };
    assert_eq!(import(&[]).await, 5);
    fs::remove_file(format!("{file}.report")).unwrap();
    assert_eq!(import(&[]).await, 5, "as after a kill before the report had them");
    let lines = fs::read_to_string(&file).unwrap();
    fs::write(&file, lines.replace(r#""body":""#, r#""body":" "#)).unwrap();
    fs::remove_file(format!("{file}.report")).unwrap();
    assert_eq!(import(&[]).await, 10, "corrected");
    let other = format!("{file}.other");
    let _ = fs::remove_file(&other);
    assert_eq!(import(&["--report", &other]).await, 15);
}

#[tokio::test]
async fn a_second_run_sends_only_what_the_first_did_not() {
    let world = World::filled("annotate").await;
    let file = exported(&world, "import-resumed.jsonl").await;
    world.sqs.set_faults(|call| {
        let refused =
            EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault: true };
        if call.operation == SEND {
            Fault::Entries(vec![EntryFault::new(1, refused)])
        } else {
            Fault::None
        }
    });
    let run = import(&world, &file, &["--yes", "--json"]).await;
    let first: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.status, world.counts()), (1, (0, 4)), "{run:?}");
    let counts = ["sent", "failed", "left"].map(|name| first[name].clone());
    assert_eq!(json!(counts), json!([4, 1, 1]));
    let report = fs::read_to_string(format!("{file}.report")).unwrap();
    assert!(
        report.contains(r#""line":2,"#) && report.contains(r#""code":"InternalError""#),
        "{report}"
    );
    assert!(!report.contains("amount") && !report.contains("secret-tenant"), "{report}");

    world.sqs.clear_faults();
    // A run that was killed leaves an incomplete line.
    fs::write(format!("{file}.report"), format!("{report}{{\"line\":")).unwrap();
    let run = import(&world, &file, &["--yes"]).await;
    assert_eq!((run.status, world.counts()), (0, (0, 5)), "{run:?}");
    assert_eq!(run.stdout, "1 message sent to orders\n4 messages sent before, by the report\n");
    let run = import(&world, &file, &["--yes"]).await;
    assert_eq!((run.status, world.counts()), (0, (0, 5)), "{run:?}");
}

#[tokio::test]
async fn a_failure_has_its_code_and_only_one_that_can_pass_is_repeated() {
    let again = "has each message that was sent; run the same command again to send the others";
    for (code, advice) in [
        (
            "InvalidParameterValue",
            "correct the lines that it has with InvalidParameterValue, since SQS refuses them again \
             as they are; then run the same command again",
        ),
        ("InternalError", again),
    ] {
        let world = World::filled("annotate").await;
        let file = exported(&world, &format!("import-{code}.jsonl")).await;
        world.sqs.set_faults(move |call| {
            let refused = EntryOutcome::Refused { code: code.to_owned(), sender_fault: true };
            let faults = vec![EntryFault::new(0, refused)];
            if call.operation == SEND { Fault::Entries(faults) } else { Fault::None }
        });
        let run = import(&world, &file, &["--yes"]).await;
        let told = format!("4 messages sent to orders\n1 message not sent: {code}\n");
        assert_eq!((run.status, &run.stdout), (1, &told), "{run:?}");
        assert!(run.stderr.contains(advice), "{run:?}");
        let run = import(&world, &file, &["--yes", "--json"]).await;
        let result: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(json!([1, { code: 1 }]), json!([result["failed"], result["failedByCode"]]));
    }
}

#[tokio::test]
async fn a_message_that_stands_twice_in_the_file_is_sent_once_and_told() {
    for name in ["orders", "orders.fifo"] {
        let mode = if name == "orders" { "annotate" } else { "direct" };
        let world = World::filled_with(mode, name, &crate::dlq_world::BODIES).await;
        let file = exported(&world, &format!("import-joined-{name}.jsonl")).await;
        let text = fs::read_to_string(&file).unwrap();
        let first = text.lines().next().unwrap();
        // A later export may have another receive count.
        let again = first.replace(r#""receiveCount":"#, r#""receiveCount":1"#);
        assert_ne!(again, first);
        let other = first.replace(r#""messageId":""#, r#""messageId":"other-"#);
        fs::write(&file, format!("{first}\n{text}{again}\n{other}\n")).unwrap();
        let told = "2 messages left out, since an earlier line has the same message\n";
        let plan = import(&world, &file, &["--dry-run"]).await.succeeded();
        assert!(plan.starts_with("6 messages (") && plan.ends_with(told), "{plan}");
        let asked = import(&world, &file, &[]).await;
        assert!(asked.stderr.contains("; 2 left out, since an earlier"), "{asked:?}");
        let sent = import(&world, &file, &["--yes"]).await.succeeded();
        assert_eq!(sent, format!("6 messages sent to {name}\n{told}"));
        assert_eq!(world.counts(), (0, 6), "{name}");
        let report =
            crate::dlq_world::lines(&fs::read_to_string(format!("{file}.report")).unwrap());
        let numbers: Vec<&Value> = report.iter().map(|line| &line["line"]).collect();
        assert_eq!(json!(numbers), json!([1, 3, 4, 5, 6, 8]));
        let run = import(&world, &file, &["--yes", "--json"]).await;
        let counts: Value = serde_json::from_str(&run.stdout).unwrap();
        let counts = ["lines", "sentBefore", "repeated", "left"].map(|name| counts[name].clone());
        assert_eq!((json!(counts), world.counts()), (json!([8, 6, 2, 0]), (0, 6)));

        // Nobody knows which of two different messages is meant.
        let corrected = first.replace(r#""body":""#, r#""body":"s3cret "#);
        fs::write(&file, format!("{text}{corrected}\n")).unwrap();
        let run = import(&world, &file, &["--report", &format!("{file}.new"), "--yes"]).await;
        let words = format!("the lines 1 and 6 of {file} have one message id and two bodies; ");
        assert!(run.status == 1 && run.stderr.contains(&words), "{run:?}");
        assert!(!run.stderr.contains("s3cret") && world.counts() == (0, 6), "{run:?}");
    }
}

/// As when a disk is full: at most this many bytes fit into a file.
async fn import_with_room(world: &World, file: &str, bytes: u64) -> (Option<i32>, String) {
    let mut command = Command::new("/bin/sh");
    let limited = format!("trap '' XFSZ; exec prlimit --fsize={bytes} -- \"$@\"");
    command.args(["-c", &limited, "-", env!("CARGO_BIN_EXE_requeue"), "dlq", "import", file]);
    command.args(["--yes", "--queue", world.queue.name()]);
    command.env_clear().env("PATH", "/usr/bin:/bin").envs(world.variables());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
#[cfg_attr(not(target_os = "linux"), ignore = "there is no prlimit")]
async fn a_full_disk_loses_no_line_of_the_report_and_doubles_no_message() {
    let world = World::filled("annotate").await;
    let file = exported(&world, "import-full.jsonl").await;
    let report = format!("{file}.report");
    for (room, lacking) in [(0, "1, 2, 3, 4, 5"), (300, "3, 4, 5"), (600, "5")] {
        let _ = fs::remove_file(&report);
        let before = world.counts().1;
        let (status, said) = import_with_room(&world, &file, room).await;
        assert_eq!((status, world.counts().1), (Some(1), before + 5), "{room}: {said}");
        let words = format!(
            "free space first. The messages of these lines were sent, and the report lacks them: {lacking}. Add"
        );
        assert!(said.contains(&words) && !said.contains("--report"), "{room}: {said}");
        assert!(!said.contains("has each message"), "{room}: {said}");
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with('{')).collect();
        assert_eq!(lines.len(), lacking.split(' ').count(), "{room}: {said}");
        let written = fs::read_to_string(&report).unwrap();
        fs::write(&report, written + &lines.join("\n") + "\n").unwrap();
        let again = import(&world, &file, &["--yes"]).await.succeeded();
        assert!(again.starts_with("no message left to send"), "{room}: {again}");
    }
    // Nobody says to begin another report instead of one that exists.
    fs::write(&report, "{\"line\":").unwrap();
    fs::set_permissions(&report, fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().append(true).open(&report).is_err() {
        let run = import(&world, &file, &["--yes"]).await;
        assert!(run.status == 1 && run.stderr.contains("with another report"), "{run:?}");
    }
}

#[tokio::test]
async fn empty_lines_and_a_mark_of_the_encoding_are_no_messages() {
    let world = World::filled("annotate").await;
    let file = exported(&world, "import-blank.jsonl").await;
    let lines = fs::read_to_string(&file).unwrap().replace('\n', "\r\n\r\n  \n");
    fs::write(&file, format!("\u{feff}{lines}\n")).unwrap();
    let run = import(&world, &file, &["--yes"]).await;
    assert_eq!((run.status, world.counts()), (0, (0, 5)), "{run:?}");
    // The report has the numbers that an editor shows.
    let report = fs::read_to_string(format!("{file}.report")).unwrap();
    assert!(report.contains(r#""line":4,"#) && !report.contains(r#""line":2,"#), "{report}");
    let again = import(&world, &file, &["--yes"]).await.succeeded();
    assert!(again.starts_with("no message left to send"), "{again}");
}

#[tokio::test]
async fn what_sqs_may_have_stored_is_told_apart_from_what_was_not_sent() {
    let world = World::filled("annotate").await;
    let file = exported(&world, "import-doubt.jsonl").await;
    world.sqs.set_faults(
        |call| {
            if call.operation == SEND { Fault::LoseResponse } else { Fault::None }
        },
    );
    let run = import(&world, &file, &["--yes"]).await;
    assert_eq!((run.status, world.counts()), (1, (0, 5)), "{run:?}");
    let told = "5 messages without a confirmation, so SQS may have stored them: ConnectionLost\n";
    assert_eq!(run.stdout, format!("0 messages sent to orders\n{told}"));
    let advice = "those without a confirmation too: look for them in orders first, by the \
                  originalMessageId of their lines, or they may be there twice";
    assert!(run.stderr.contains(advice), "{run:?}");
    let plan = import(&world, &file, &["--dry-run"]).await.succeeded();
    let before = "\n5 messages of these without a confirmation in an earlier run: SQS may have \
                  stored them then\n";
    assert!(plan.ends_with(before), "{plan}");
    let run = import(&world, &file, &[]).await;
    assert!(run.stderr.contains("5 of them may be there already, as the report says"), "{run:?}");
    let run = import(&world, &file, &["--yes", "--json"]).await;
    let counts: Value = serde_json::from_str(&run.stdout).unwrap();
    let counts =
        ["sent", "failed", "inDoubt", "inDoubtBefore", "left"].map(|name| counts[name].clone());
    assert_eq!((json!(counts), world.counts()), (json!([0, 5, 5, 5, 5]), (0, 10)));
}

#[tokio::test]
async fn a_file_says_from_where_sqs_moved_what_a_sent_message_does_not_keep() {
    let world = World::filled("annotate").await;
    let file = exported(&world, "import-source.jsonl").await;
    let into =
        async |queue: &str| world.run(&["import", &file, "--queue", queue, "--dry-run"]).await;
    let run = into("orders-dlq").await;
    let words = "SQS moved messages of this file from orders. A sent message does not keep that: in \
                 orders-dlq nothing tells any longer to which queue it belongs";
    assert!(run.status == 0 && run.stderr.contains(words), "{run:?}");
    let run = into("orders").await;
    assert!(run.status == 0 && run.stderr.is_empty(), "{run:?}");
}

#[tokio::test]
async fn a_report_is_never_written_through_a_link() {
    let world = World::filled("annotate").await;
    let file = exported(&world, "import-link.jsonl").await;
    let (report, script) = (format!("{file}.report"), scratch("login-script"));
    for exists in [false, true] {
        let _ = fs::remove_file(&script);
        if exists {
            fs::write(&script, "").unwrap();
        }
        let _ = fs::remove_file(&report);
        symlink(&script, &report).unwrap();
        for options in [&[][..], &["--report", &report]] {
            let run = import(&world, &file, &[&["--yes"], options].concat()).await;
            let words =
                format!("the report {report} is a symbolic link; name another file with --report");
            assert!(run.status == 1 && run.stderr.contains(&words), "{run:?}");
        }
        assert_eq!(fs::read_to_string(&script).ok(), exists.then(String::new));
        assert_eq!(world.counts(), (0, 0));
    }
}

#[tokio::test]
async fn a_plan_shows_nothing_that_the_author_of_the_file_chose() {
    let world = World::filled("annotate").await;
    let line = |id: &str, class: &str, from: &str| {
        format!(r#"{{"messageId":"m{id}","class":"{class}","movedFrom":"{from}","body":"b"}}"#)
            + "\n"
    };
    let forged = r"quota) will be sent to nowhere\n\u001b[2Kerror: x";
    let many: String = (0..20)
        .map(|n| {
            let from = format!("arn:aws:sqs:us-east-1:000000000000:q{n}");
            line(&n.to_string(), "quota", &from)
        })
        .collect();
    let lines = [
        line("-1", forged, r"arn:aws:sqs:us-east-1:000000000000:q\u001b[2K\nnote: x"),
        line("-2", "quota", forged),
    ];
    let file = crate::run::file("import-forged.jsonl", &(lines.concat() + &many));
    let _ = fs::remove_file(format!("{file}.report"));
    let run = import(&world, &file, &["--dry-run"]).await;
    assert_eq!(
        run.stdout, "22 messages (21 quota, 1 unknown) would be sent to orders\n",
        "{run:?}"
    );
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    assert!(
        run.stderr.contains(" others. A sent message") && !run.stderr.contains('\u{1b}'),
        "{run:?}"
    );
}

const S3CRET: &str = r#"{"DataType":"String","StringValue":"s3cret"}"#;

fn with_attributes(attributes: &str) -> String {
    format!(r#"{{"messageId":"m","body":"b","messageAttributes":{{{attributes}}}}}"#) + "\n"
}

#[tokio::test]
async fn a_mistake_is_found_before_the_first_message_is_sent() {
    let world = World::filled("annotate").await;
    let file = exported(&world, "import-wrong.jsonl").await;
    let text = fs::read_to_string(&file).unwrap();
    for (last, words) in [
        ("s3cret\n", "line 6 of "),
        ("{\"messageId\":\"m\",\"body\":\"\"}\n", "has an empty body, which SQS refuses"),
        (
            "{\"messageId\":\"m\",\"body\":\"b\",\"messageAttributes\":{\"a\":{\"DataType\":\"String\"}}}\n",
            "has a message attribute without a value",
        ),
        (
            &with_attributes(
                &(0..11).map(|n| format!(r#""a{n}":{S3CRET}"#)).collect::<Vec<_>>().join(","),
            ),
            "has 11 messageAttributes, and SQS accepts 10; remove some; correct this line",
        ),
        (
            &with_attributes(&format!(r#""a":{S3CRET},"b":{}"#, S3CRET.replace("s3cret", ""))),
            "has an empty value of the message attribute b, which SQS refuses",
        ),
        (
            &with_attributes(r#""a":{"DataType":"Binary","BinaryValue":""}"#),
            "has an empty value of the message attribute a, which SQS refuses",
        ),
        (
            &with_attributes(&format!(r#""a\n":{}"#, S3CRET.replace("s3", r"s3\uffff"))),
            "has U+FFFF in the value of the message attribute a\u{FFFD}, which SQS",
        ),
        (
            "{\"messageId\":\"m\",\"body\":\"s3cret\\u0001\"}\n",
            "has U+0001 in the body, which SQS refuses; encode or remove it",
        ),
        ("{\"messageId\":\"$(id)\",\"body\":\"b\"}\n", "has a messageId that SQS cannot have"),
        ("{\"messageId\":\"\",\"body\":\"b\"}\n", "has a messageId that SQS cannot have"),
        (&format!("{{\"messageId\":\"{}\",\"body\":\"b\"}}\n", "m".repeat(101)), "has a messageId"),
        (
            "{\"messageId\":\"m\",\"body\":7}\n",
            "is not a message as `requeue dlq export` writes it",
        ),
    ] {
        fs::write(&file, format!("{text}{last}")).unwrap();
        let run = import(&world, &file, &["--yes"]).await;
        assert!(run.status == 1 && run.stderr.contains(words), "{last}: {run:?}");
        assert!(!run.stderr.contains("s3cret"), "{run:?}");
        assert_eq!(world.counts(), (0, 0));
    }
    fs::write(&file, &text).unwrap();
    let empty = crate::run::file("empty.jsonl", "");
    let run = import(&world, &empty, &["--yes"]).await;
    assert_eq!((run.status, run.stdout.as_str()), (0, "the file has no message\n"), "{run:?}");
    for (path, words) in [
        ("none.jsonl", "cannot be read"),
        ("/dev/null", "is not a regular file"),
        ("-", "the import reads its file twice"),
    ] {
        let run = import(&world, path, &["--yes"]).await;
        assert!(run.status == 1 && run.stderr.contains(words), "{run:?}");
    }
    let run = import(&world, &file, &[]).await;
    assert!(
        run.status == 1 && run.stderr.contains("will be sent to orders; there is no"),
        "{run:?}"
    );
    let run = import(&world, &file, &["--yes"]).await;
    assert_eq!((run.status, world.counts()), (0, (0, 5)), "{run:?}");
    let elsewhere = world.run(&["import", &file, "--queue", "orders-dlq", "--yes"]).await;
    assert!(
        elsewhere.status == 1 && elsewhere.stderr.contains("and not about arn:"),
        "{elsewhere:?}"
    );
    // A file of somebody else stays as it is.
    let queue = world.queue.name();
    for (text, words) in [("a,b\n1,2\n", "line 1 is not a line of a report"), (&text, "line 1 is")]
    {
        let taken = crate::run::file("import-taken", text);
        let run =
            world.run(&["import", &file, "--queue", queue, "--report", &taken, "--yes"]).await;
        assert!(run.status == 1 && run.stderr.contains(words), "{run:?}");
        assert_eq!(fs::read_to_string(&taken).unwrap(), text);
    }
    let run = import(&world, &file, &["--report", "/dev/null", "--yes"]).await;
    let words = "the report /dev/null is not a regular file; name another file with --report";
    assert!(run.status == 1 && run.stderr.contains(words), "{run:?}");
    let other: Vec<&str> = text.lines().rev().collect();
    fs::write(&file, other.join("\n") + "\n").unwrap();
    let run = import(&world, &file, &["--yes"]).await;
    assert!(run.status == 1 && run.stderr.contains("belongs to another export"), "{run:?}");
}

//! `requeue dlq` that is interrupted or killed, or whose reader goes away.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use requeue::embedded::Fault;
use tokio::time::{Instant, sleep};

use crate::dlq_world::{DELETE, SEND, World, originals, side_by_side};
use crate::run::{hangs_up, scratch};

fn signal(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

async fn ended(mut child: Child) -> (Option<i32>, String) {
    tokio::task::spawn_blocking(move || {
        let status = child.wait().unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said)
    })
    .await
    .unwrap()
}

async fn until(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not come to that");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn messages_that_came_after_a_signal_do_not_count_as_looked_at() {
    let world = World::filled("annotate").await;
    let file = scratch("dlq-not-discarded.jsonl");
    for (arguments, words) in [
        (&["list"][..], ""),
        (
            &["discard", file.to_str().unwrap(), "--yes"],
            "no file was written, and nothing was deleted",
        ),
    ] {
        let calls = world.sqs.call_count("ReceiveMessage");
        world.sqs.set_faults(|call| match call.operation.as_str() {
            "ReceiveMessage" => Fault::RespondAfter(Duration::from_millis(700)),
            _ => Fault::None,
        });
        let child = world.spawn(arguments);
        until(|| world.sqs.call_count("ReceiveMessage") > calls).await;
        signal(&child, "-INT");
        let (code, said) = ended(child).await;
        world.sqs.clear_faults();
        let looked =
            "note: interrupted: 0 messages looked at; those in the queue are visible again\n";
        assert!(code == Some(130) && said.contains(looked) && said.contains(words), "{said}");
        assert!(!file.exists() && world.counts() == (5, 0), "{said}");
        world.assert_all_visible();
    }
}

#[tokio::test]
async fn an_interrupted_send_tells_how_many_messages_were_sent() {
    let world = World::filled("annotate").await;
    let before = world.sqs.call_count("SendMessage");
    world.sqs.set_faults(move |call| match call.operation.as_str() {
        "SendMessage" if call.of_operation == before + 3 => Fault::Hang,
        _ => Fault::None,
    });
    let url = world.url(&world.queue);
    let child = Command::new(env!("CARGO_BIN_EXE_requeue"))
        .args(["send", "--queue", &url, "--count", "5", "{}"])
        .env_clear()
        .envs(world.variables())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until(|| world.sqs.call_count("SendMessage") >= before + 3).await;
    signal(&child, "-INT");
    let (code, said) = ended(child).await;
    let words = "note: interrupted after 2 of 5 messages; one more may have been sent, since SQS did \
                 not respond to its request\n";
    assert!(code == Some(130) && said.ends_with(words), "{said}");
    assert_eq!(said.lines().count(), 3, "an id for each: {said}");
}

#[test]
fn a_signal_before_the_first_response_is_told_to_have_changed_nothing() {
    let run = async |arguments: &[&str]| {
        let world = World::filled("annotate").await;
        world.sqs.set_faults(|_| Fault::Hang);
        let calls =
            || world.sqs.call_count("GetQueueUrl") + world.sqs.call_count("GetQueueAttributes");
        let before = calls();
        let child = world.spawn(arguments);
        until(|| calls() > before).await;
        signal(&child, "-INT");
        let (code, said) = ended(child).await;
        world.sqs.clear_faults();
        assert_eq!(code, Some(130), "{arguments:?}: {said}");
        assert!(said.ends_with("ended at once: nothing was changed\n"), "{arguments:?}: {said}");
    };
    side_by_side([&["redrive", "--yes"][..], &["discard", "gone.jsonl", "--yes"]], run);
}

#[test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn interrupted_it_leaves_everything_visible_and_nothing_lost() {
    let file = scratch("dlq-interrupted.jsonl");
    let _ = fs::remove_file(&file);
    let interrupted = [
        (&["list"][..], "ReceiveMessage", 2),
        (&["peek"], "ReceiveMessage", 2),
        (&["export", file.to_str().unwrap()], "ReceiveMessage", 2),
        (&["redrive", "--dry-run"], "ReceiveMessage", 2),
        (&["redrive", "--yes", "--copy"], SEND, 1),
        (&["redrive", "--yes", "--copy"], DELETE, 2),
    ];
    let interrupt = async |(arguments, operation, number): (&[&str], &'static str, u64)| {
        let world = World::filled("annotate").await;
        let all: BTreeSet<String> = world.ids.iter().cloned().collect();
        for (name, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
            if name == "-HUP" && !hangs_up() {
                continue;
            }
            let calls = world.sqs.call_count(operation);
            world.sqs.set_faults(move |call| {
                let late = call.operation == operation && call.of_operation == calls + number;
                if late { Fault::RespondAfter(Duration::from_millis(700)) } else { Fault::None }
            });
            let child = world.spawn(arguments);
            until(|| world.sqs.call_count(operation) >= calls + number).await;
            signal(&child, name);
            let (code, said) = ended(child).await;
            world.sqs.clear_faults();
            assert_eq!(code, Some(status), "{arguments:?}: {said}");
            world.assert_all_visible();
            assert!(!file.exists(), "{arguments:?}");
            let both = [world.dead(), world.back()].concat();
            assert_eq!(
                (both.len(), originals(&both).into_keys().collect()),
                (5, all.clone()),
                "{arguments:?}: {said}"
            );
            world.put_back().await;
        }
    };
    side_by_side(interrupted, interrupt);
    let beside =
        fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(beside.into_iter().all(|name| !name.to_string_lossy().contains("dlq-interrupted")));
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_reader_that_goes_away_leaves_everything_visible() {
    let world = World::filled("annotate").await;
    for arguments in [
        &["list"][..],
        &["list", "--json"],
        &["peek"],
        &["peek", "--json"],
        &["export", "-"],
        &["redrive", "--dry-run"],
        &["redrive", "--dry-run", "--json"],
    ] {
        let mut child = world.spawn(arguments);
        drop(child.stdout.take());
        let (status, said) = tokio::task::spawn_blocking(move || {
            let output = child.wait_with_output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        })
        .await
        .unwrap();
        assert_eq!((status, said.as_str()), (Some(141), ""), "{arguments:?}");
        world.assert_all_visible();
    }
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_full_disk_is_an_error_and_what_was_done_is_told_all_the_same() {
    let world = World::filled("annotate").await;
    let moved = "note: SQS moved the messages as they are: one that failed less than three minutes ago \
                 may come back without a call; --copy redrives such messages\n5 messages moved to their \
                 source queues\n";
    let copied = "5 messages copied to orders\n";
    let full = "error: the standard output cannot be written: No space left on device (os error 28); \
         redirect it to a file or pipe that takes it\n";
    for (arguments, done, is_done) in [
        (&["list"][..], "", false),
        (&["peek", "--json"], "", false),
        (&["export", "-"], "", false),
        (&["redrive", "--dry-run"], "", false),
        (&["redrive", "--yes"], moved, true),
        (&["redrive", "--yes", "--copy", "--json"], copied, true),
    ] {
        let (status, said) = world.dlq_writing_to("/dev/full", arguments).await;
        let is_done_so_far = |line: &&str| !line.starts_with("note: if the command is killed");
        let said: String = said.split_inclusive('\n').filter(is_done_so_far).collect();
        assert_eq!((status, said), (Some(1), format!("{done}{full}")), "{arguments:?}");
        assert_eq!(world.counts(), if is_done { (0, 5) } else { (5, 0) }, "{arguments:?}");
        world.assert_all_visible();
        if is_done {
            world.put_back().await;
        }
    }
    for (options, said) in
        [(&["--json"][..], "messages sent: "), (&[], "1 of 1 messages sent, at last ")]
    {
        let line = [&["send", "{}", "--queue", "orders"], options].concat();
        let (code, stderr) = world.writing_to("/dev/full", &line).await;
        assert!(code == Some(1) && stderr.starts_with(said) && stderr.ends_with(full), "{stderr}");
    }
    assert_eq!(world.counts(), (5, 2), "each was sent");
    let mut child = world.spawn(&["redrive", "--yes", "--copy"]);
    drop(child.stdout.take());
    let output =
        tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(141) && said.ends_with(&format!("UTC\n{copied}")),
        "{said}"
    );
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn killed_between_copy_and_deletion_it_leaves_a_copy_with_the_same_first_id() {
    let world = World::filled("annotate").await;
    let all: BTreeSet<String> = world.ids.iter().cloned().collect();
    for (operation, fault, number, copies) in [
        (SEND, Fault::RespondAfter(Duration::from_secs(9)), 2, 5),
        (SEND, Fault::Hang, 2, 1),
        (DELETE, Fault::Hang, 2, 5),
        (DELETE, Fault::Hang, 1, 1),
    ] {
        let calls = world.sqs.call_count(operation);
        world.sqs.set_faults(move |call| {
            let hit = call.operation == operation && call.of_operation == calls + number;
            if hit { fault.clone() } else { Fault::None }
        });
        let mut child = world.spawn(&["redrive", "--yes", "--copy"]);
        until(|| world.sqs.call_count(operation) >= calls + number && world.back().len() == copies)
            .await;
        child.kill().unwrap();
        ended(child).await;
        world.sqs.clear_faults();
        let both = [world.dead(), world.back()].concat();
        assert_eq!(
            originals(&both).into_keys().collect::<BTreeSet<_>>(),
            all,
            "{operation} {number}"
        );
        world.put_back().await;
    }
}

#[tokio::test]
async fn a_move_task_is_cancelled_by_ctrl_c_and_found_by_who_comes_later() {
    let world = World::filled("annotate").await;
    let child = world.spawn(&["redrive", "--yes", "--rate", "1"]);
    until(|| world.back().len() == 2).await;
    let second = world.dlq(&["redrive", "--yes"]).await;
    assert!(
        second.status == 1 && second.stderr.contains("follow it to its end with --follow"),
        "{second:?}"
    );
    signal(&child, "-INT");
    let (code, said) = ended(child).await;
    let moved = world.back().len();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains(&format!("{moved} messages moved to their source queues")), "{said}");
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(world.counts(), (5 - moved, moved), "nothing moves any more");

    let nothing = world.dlq(&["redrive", "--follow"]).await;
    assert!(
        nothing.status == 1 && nothing.stderr.contains("no move task of orders-dlq is running"),
        "{nothing:?}"
    );
    for options in [&["--class", "quota"][..], &["--limit", "1"], &["--rate", "5"], &["--copy"]] {
        let refused = world.dlq(&[&["redrive", "--follow"], options].concat()).await;
        let is_told = refused.stderr.contains("cannot be used with");
        assert!(refused.status == 2 && is_told, "a move task has no filter: {refused:?}");
    }
    let client = world.sqs.client();
    let task = client.start_message_move_task().source_arn(world.dead_letters.to_string());
    task.max_number_of_messages_per_second(1).send().await.unwrap();
    let followed = world.dlq(&["redrive", "--follow"]).await;
    assert_eq!((followed.status, world.counts()), (0, (0, 5)), "{followed:?}");
    assert_eq!(followed.stdout, format!("{} messages moved\n", 5 - moved));
}

#[tokio::test]
async fn a_move_task_that_cannot_be_cancelled_is_told_to_go_on() {
    let world = World::filled("annotate").await;
    world.sqs.set_faults(|call| match call.operation.as_str() {
        "CancelMessageMoveTask" => Fault::refuse(403, "AccessDenied"),
        _ => Fault::None,
    });
    let child = world.spawn(&["redrive", "--yes", "--rate", "1"]);
    until(|| world.back().len() == 2).await;
    signal(&child, "-INT");
    let (code, said) = ended(child).await;
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "this identity needs the permission sqs:CancelMessageMoveTask on arn:",
        "; SQS goes on with the move task; follow it, or cancel it, with --follow; ",
        " moved so far",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("--copy"), "it does not end the task: {said}");
    until(|| world.counts() == (0, 5)).await;
}

#[tokio::test]
async fn a_move_task_that_can_no_longer_be_followed_says_how_many_it_had_moved() {
    let world = World::filled("annotate").await;
    let child = world.spawn(&["redrive", "--yes", "--rate", "1"]);
    until(|| world.back().len() == 2).await;
    world.sqs.set_faults(|call| match call.operation.as_str() {
        "ListMessageMoveTasks" => Fault::refuse(403, "ExpiredToken"),
        _ => Fault::None,
    });
    let (code, said) = ended(child).await;
    assert_eq!(code, Some(1), "{said}");
    for words in ["credentials have expired", "or cancel it, with --follow; ", " moved so far"] {
        assert!(said.contains(words), "{said}");
    }
    until(|| world.counts() == (0, 5)).await;
}

#[tokio::test]
async fn a_move_task_that_another_command_cancels_says_so_and_what_remains() {
    let world = World::filled("annotate").await;
    let child = world.spawn(&["redrive", "--yes", "--rate", "1"]);
    until(|| world.back().len() == 1).await;
    let other = world.spawn(&["redrive", "--follow"]);
    until(|| world.back().len() == 2).await;
    signal(&other, "-INT");
    assert_eq!(ended(other).await.0, Some(130));
    let (code, said) = ended(child).await;
    let left = 5 - world.back().len();
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "note: another command cancelled the move task".to_owned(),
        format!("about {left} messages remain here after the interruption"),
        "to go on, give the same command again".to_owned(),
    ] {
        assert!(said.contains(&words), "{said}");
    }
}

//! `requeue dlq discard`: deletes only what a complete export has.

use std::fs;

use requeue::embedded::Fault;
use serde_json::{Value, json};

use crate::dlq_world::{DELETE, World, lines};
use crate::documents::shows;
use crate::run::scratch;

/// A path of this test alone, without a file.
fn export(name: &str) -> String {
    let path = scratch(name);
    let _ = fs::remove_file(&path);
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_chosen_messages_are_deleted_and_are_in_the_file() {
    let world = World::filled("annotate").await;
    let file = export("discard.jsonl");
    let plan = world.dlq(&["discard", &file, "--class", "quota", "--dry-run"]).await;
    assert!(
        plan.status == 0 && plan.stdout.ends_with("\n3 messages would be deleted\n"),
        "{plan:?}"
    );
    assert!(fs::metadata(&file).is_err(), "a dry run writes nothing");
    assert_eq!(world.counts(), (5, 0));

    let run = world.dlq(&["discard", &file, "--class", "quota", "--yes", "--json"]).await;
    let discarded: Value = serde_json::from_str(&run.stdout).unwrap();
    let counts = ["exported", "chosen", "deleted"].map(|name| discarded[name].clone());
    assert_eq!((run.status, json!(counts)), (0, json!([3, 3, 3])), "{run:?}");
    let exported = lines(&fs::read_to_string(&file).unwrap());
    assert!(exported.len() == 3 && exported.iter().all(|line| line["class"] == "quota"));
    assert!(exported.iter().all(|line| line["messageAttributes"]["tenant"].is_object()));
    assert_eq!(world.counts(), (2, 0));
    world.assert_all_visible();

    let there = &world.dead()[0].id;
    let ids = ["discard", "other.jsonl", "--dry-run", "--id", there, "--id", "a", "--id", "b"];
    let run = world.dlq(&ids).await;
    let missing = "note: no message with the id a or b in orders-dlq\n";
    assert!(
        run.status == 1
            && run.stdout.ends_with("1 message would be deleted\n")
            && run.stderr == missing,
        "{run:?}"
    );

    let run = world.dlq(&["export", "-", "--id", there, "--id", "a", "--id", "b"]).await;
    let has_one = run.stdout.lines().count() == 1;
    assert!(run.status == 1 && has_one && run.stderr.ends_with(missing), "{run:?}");
    for command in ["peek", "redrive --yes --to orders"] {
        let command: Vec<&str> = command.split(' ').chain(["--id", "a"]).collect();
        let run = world.dlq(&command).await;
        let missing = "note: no message with the id a in orders-dlq\n";
        assert!(run.status == 1 && run.stderr.contains(missing), "{run:?}");
    }
    assert_eq!(world.counts(), (2, 0));

    let again = world.dlq(&["discard", &file, "--yes"]).await;
    assert!(again.status == 1 && again.stderr.contains("exists already"), "{again:?}");
    assert_eq!(world.counts(), (2, 0));
}

#[tokio::test]
async fn without_a_complete_export_nothing_is_deleted() {
    let world = World::filled("annotate").await;
    let file = export("discard-partial.jsonl");
    for (arguments, words) in [
        (
            &["discard", &file, "--yes", "--max-messages", "2"][..],
            "the export would not be complete",
        ),
        (&["discard", "/dev/null", "--yes"], "/dev/null keeps no messages; name a regular file"),
        (&["discard", "-", "--yes"], "- keeps no messages; name a regular file"),
        (&["discard", &file], "there is no terminal for a question: add --yes"),
    ] {
        let run = world.dlq(arguments).await;
        assert!(run.status == 1 && run.stderr.contains(words), "{arguments:?}: {run:?}");
        assert!(fs::metadata(&file).is_err(), "{arguments:?}");
        assert_eq!(world.counts(), (5, 0));
        world.assert_all_visible();
    }
    let plan = world.dlq(&["discard", &file, "--dry-run", "--max-messages", "2"]).await;
    let refused = "note: a discard would now be refused: the export would not be complete; run this \
                   again when all messages are visible, or choose fewer with --limit\n";
    assert!(plan.status == 0 && plan.stderr.contains(refused), "{plan:?}");
    let limited = world.dlq(&["discard", &file, "--yes", "--limit", "2"]).await;
    assert_eq!(limited.status, 0, "{limited:?}");
    assert_eq!((lines(&fs::read_to_string(&file).unwrap()).len(), world.counts()), (2, (3, 0)));
}

#[tokio::test]
async fn a_refused_deletion_is_told_and_leaves_no_file() {
    let world = World::filled("annotate").await;
    let file = export("discard-refused.jsonl");
    world.sqs.set_faults(|call| {
        if call.operation == DELETE { Fault::refuse(403, "AccessDenied") } else { Fault::None }
    });
    let run = world.dlq(&["discard", &file, "--yes"]).await;
    let words = "SQS refuses DeleteMessageBatch on orders-dlq (AccessDenied); this identity needs \
                 the permission sqs:DeleteMessage on arn:";
    assert!(run.status == 1 && run.stderr.contains(words), "{run:?}");
    assert!(fs::metadata(&file).is_err(), "an import of it would double the messages");
    assert_eq!(world.counts(), (5, 0));
    world.assert_all_visible();
}

#[tokio::test]
async fn messages_that_stay_hidden_are_the_reason_why_none_is_deleted() {
    let world = World::filled("annotate").await;
    let file = export("discard-hidden.jsonl");
    world.sqs.set_faults(|call| match call.operation.as_str() {
        "ChangeMessageVisibilityBatch" => Fault::refuse(403, "AccessDenied"),
        _ => Fault::None,
    });
    let run = world.dlq(&["discard", &file, "--yes"]).await;
    for words in [
        "5 messages stay hidden until ",
        "before it deletes them, for the reason in the note above; remove the reason, and run this \
         again when they are visible; nothing was written, and nothing was deleted",
    ] {
        assert!(run.status == 1 && run.stderr.contains(words), "{run:?}");
    }
    assert!(!run.stderr.contains("would not be complete"), "{run:?}");
    assert!(fs::metadata(&file).is_err() && world.counts() == (5, 0), "{run:?}");
}

#[tokio::test]
async fn a_file_with_messages_that_may_be_deleted_is_named() {
    for options in [&["--json"][..], &[]] {
        let world = World::filled("annotate").await;
        let file = export("discard-doubt.jsonl");
        world.sqs.set_faults(|call| {
            if call.operation == DELETE { Fault::LoseResponse } else { Fault::None }
        });
        let run = world.dlq(&[&["discard", &file, "--yes"], options].concat()).await;
        let kept = lines(&fs::read_to_string(&file).unwrap()).len();
        assert!(run.status == 1 && kept > 0, "{run:?}");
        assert_eq!(world.counts(), (5 - kept, 0), "the only copies: {run:?}");
        if options.is_empty() {
            let told = format!(" may be deleted, kept in {file} too\n");
            assert!(run.stdout.contains(&told), "{run:?}");
            assert!(kept == 5 || run.stdout.contains("to go on, name a new file"), "{run:?}");
        } else {
            let result: Value = serde_json::from_str(&run.stdout).unwrap();
            let told = ["file", "exported", "deleted", "left"].map(|name| result[name].clone());
            assert_eq!(json!(told), json!([file, kept, 0, 5 - kept]));
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_rewritten_is_told_after_the_result() {
    let world = World::filled("annotate").await;
    let file = export("discard-unwritten.jsonl");
    let (removed, before) = (file.clone(), world.sqs.call_count(DELETE));
    world.sqs.set_faults(move |call| match call.operation.as_str() {
        DELETE if call.of_operation > before + 1 => {
            fs::remove_file(&removed).unwrap();
            Fault::refuse(403, "AccessDenied")
        }
        _ => Fault::None,
    });
    let run = world.dlq(&["discard", &file, "--yes"]).await;
    assert_eq!((run.status, world.counts()), (1, (4, 0)), "{run:?}");
    assert!(run.stdout.starts_with("1 message deleted and kept in "), "{run:?}");
    for words in ["(AccessDenied)", "cannot be read: No such file", "import no message of "] {
        assert!(run.stderr.contains(words), "{run:?}");
    }
}

#[tokio::test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs a terminal by python3")]
async fn the_question_has_the_counts_by_class() {
    let world = World::filled("annotate").await;
    for (keys, status, counts) in
        [(["", "n\n"], 1, (5, 0)), (["y\n", "n\n"], 1, (5, 0)), (["", "y\n"], 0, (0, 0))]
    {
        let file = export("discard-asked.jsonl");
        // A `y` that was typed before the question does not answer it.
        let (code, said) = world.typed(keys, &["discard", &file]).await;
        let question = "orders-dlq: 5 messages (1 non-retryable, 3 quota, 1 temporary) are in ";
        assert!(said.contains(question), "{said}");
        shows("will be deleted from the queue. Continue? [y/N]");
        assert_eq!((code, world.counts()), (Some(status), counts), "{said}");
        let exported = fs::read_to_string(&file).unwrap_or_default();
        let expected = if status == 0 { 5 } else { 0 };
        assert_eq!(exported.lines().count(), expected, "the file has only deleted messages");
    }
}

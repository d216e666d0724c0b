//! `requeue dlq` on a queue that is not a dead-letter queue: no live message is received or deleted.

use std::fs;

use requeue::embedded::Fault;

use crate::dlq_world::World;
use crate::run::scratch;

/// Receives so far: a refused command makes none.
fn receives(world: &World) -> u64 {
    world.sqs.call_count("ReceiveMessage")
}

#[tokio::test]
async fn live_messages_are_neither_received_nor_deleted_by_mistake() {
    let world = World::filled("annotate").await;
    let alone = world.sqs.create_queue("alone", []).unwrap();
    for queue in [&world.queue, &alone] {
        for body in ["a", "b", "c"] {
            let send = world.sqs.client().send_message().queue_url(queue.url());
            send.message_body(body).send().await.unwrap();
        }
    }
    let file = scratch("live.jsonl");
    let _ = fs::remove_file(&file);
    let file = file.to_str().unwrap();
    let has_own = "orders is not a dead-letter queue, and has one: orders-dlq; use --queue \
                   orders-dlq; --any-queue takes orders all the same";
    let is_named_by_none = "no queue names alone in its redrive policy, so it may be a queue in \
                            use; name a dead-letter queue; --any-queue takes alone all the same";
    let before = receives(&world);
    for (queue, why) in [("orders", has_own), ("alone", is_named_by_none)] {
        for command in [
            &["list"][..],
            &["peek"],
            &["export", file],
            &["discard", file, "--yes"],
            &["discard", file, "--dry-run"],
            &["redrive", "--yes", "--to", "orders-dlq"],
        ] {
            // The destination of a redrive may be named, since the source queue may be gone.
            if queue == "alone" && command[0] == "redrive" {
                continue;
            }
            let run = world.run(&[command, &["--queue", queue]].concat()).await;
            assert!(run.status == 1 && run.stderr.contains(why), "{command:?} {queue}: {run:?}");
            assert_eq!((run.stdout.as_str(), fs::exists(file).unwrap()), ("", false));
        }
    }
    let page = world.page(&["--queue", "orders", "--port", "0"]).await;
    assert!(page.status == 1 && page.stderr.contains(has_own), "{page:?}");
    assert_eq!((receives(&world), world.counts().1), (before, 3), "no message was received");

    let run = world.run(&["discard", file, "--yes", "--queue", "alone", "--any-queue"]).await;
    let warned = "note: no queue names alone in its redrive policy";
    assert!(run.status == 0 && run.stderr.contains(warned), "{run:?}");
    assert_eq!(world.sqs.message_count(&alone).unwrap(), 0, "{run:?}");
}

#[tokio::test]
async fn without_the_permission_to_ask_a_command_only_looks() {
    let world = World::filled("annotate").await;
    let refused = "ListDeadLetterSourceQueues";
    world.sqs.set_faults(move |call| {
        if call.operation == refused { Fault::refuse(403, "AccessDenied") } else { Fault::None }
    });
    let file = scratch("unknown.jsonl");
    let _ = fs::remove_file(&file);
    let file = file.to_str().unwrap();
    let unknown = "it is unknown whether orders-dlq is a dead-letter queue: SQS refuses \
                   ListDeadLetterSourceQueues on orders-dlq (AccessDenied)";
    let (dead, live) = (["--queue", "orders-dlq"], ["--queue", "orders"]);
    for (command, queue, status) in [
        (&["list"][..], dead, 0),
        (&["peek"], dead, 0),
        (&["discard", file, "--yes"], dead, 1),
        (&["list"], live, 1),
        (&["discard", file, "--yes", "--any-queue", "--class", "quota"], dead, 0),
    ] {
        let run = world.run(&[command, &queue].concat()).await;
        let words = unknown.replace("orders-dlq", queue[1]);
        assert!(run.status == status && run.stderr.contains(&words), "{command:?}: {run:?}");
    }
    assert_eq!(world.counts(), (2, 0));
    // Its redrive policy is the proof.
    let run = world.run(&["list", "--source-queue", "orders"]).await;
    assert!(run.status == 0 && !run.stderr.contains("unknown whether"), "{run:?}");
}

//! `requeue dlq redrive`: getting back what lies in a dead-letter queue.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use requeue::embedded::{Fault, MessageView};
use requeue::{Clock, DeadLetter};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::dlq_world::{BODIES, SEND, World, originals, payloads, side_by_side};
use crate::documents::shows;
use crate::run::requeue_with;

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_sqs_moved_it_moves_back_and_what_was_sent_is_copied() {
    for (mode, stray, moved, copied) in [
        ("annotate", false, 5, 0),
        ("redrive", false, 5, 0),
        ("direct", false, 0, 5),
        ("annotate", true, 5, 1),
    ] {
        let world = World::filled(mode).await;
        if stray {
            world.send_dead("stray").await;
        }
        let run = world.dlq(&["redrive", "--dry-run", "--json"]).await;
        let planned: Value = serde_json::from_str(&run.stdout).unwrap();
        let copies = if copied > 0 { json!({ "orders": copied }) } else { json!({}) };
        assert_eq!(
            (&planned["toMove"], &planned["toCopy"]),
            (&json!(moved), &copies),
            "{mode}: {run:?}"
        );
        if stray {
            let plan = world.dlq(&["redrive", "--dry-run"]).await.stdout;
            let most = "SQS would move at most 5 messages to their source queues\nit stops at the \
                        first message that was sent here, and the rest would be copied\n";
            assert!(plan.contains(most), "{plan}");
        }
        assert_eq!(world.counts().1, 0);
        let run = world.dlq(&["redrive", "--yes", "--json"]).await;
        let redriven: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(run.status, 0, "{run:?}");
        assert_eq!(
            (&redriven["moved"], &redriven["copied"]),
            (&json!(moved), &copies),
            "{mode}: {run:?}"
        );
        assert_eq!(
            (&redriven["complete"], &redriven["failed"]),
            (&json!(true), &json!({})),
            "{run:?}"
        );
        assert_eq!(world.counts(), (0, moved + copied), "{mode}");
        if stray {
            continue;
        }
        let mut expected = BODIES;
        expected.sort_unstable();
        let handled = world.handled().await;
        let bodies: Vec<&str> = handled.iter().map(|(body, ..)| body.as_str()).collect();
        assert_eq!(bodies, expected, "{mode}");
        for (body, original, retries) in &handled {
            assert_eq!(*retries, 0, "{mode} {body}: it starts afresh");
            // A final failure without a copy keeps its id no longer than SQS lets it.
            assert!(world.ids.contains(original) || mode == "redrive", "{mode} {body}");
        }
    }
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn the_copy_of_an_object_without_fields_keeps_its_idempotency_key() {
    let world = World::filled_with("annotate", "orders", &[]).await;
    for body in [r#"{"n":1.0}"#, "text"] {
        world.send_dead(body).await;
    }
    let dead = world.dead();
    let run = world.dlq(&["redrive", "--copy", "--yes"]).await;
    assert_eq!((run.status, world.counts()), (0, (0, 2)), "{run:?}");
    let of = |messages: &[MessageView], payload: &str| {
        let is_it = |message: &&MessageView| DeadLetter::read(&message.body).payload() == payload;
        messages.iter().find(is_it).expect("it is there").clone()
    };
    let (back, object) = (world.back(), of(&dead, r#"{"n":1.0}"#));
    let copy = of(&back, r#"{"n":1.0}"#);
    let read = DeadLetter::read(&copy.body);
    assert_eq!((read.original_message_id(), read.retry_count()), (Some(&*object.id), Some(0)));
    // A filter of its consumer may look at a body that is no object.
    assert_eq!(of(&back, "text").body, "text");
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_is_chosen_is_copied_with_all_that_belongs_to_it() {
    let world = World::filled("annotate").await;
    let dead: Vec<MessageView> = world.dead();
    let killed = "if the command is killed, its messages are visible again 2 min later: killed now";
    let plan = world.dlq(&["redrive", "--dry-run", "--class", "quota"]).await;
    assert!(plan.stdout.contains(killed), "{plan:?}");
    let run = world.dlq(&["redrive", "--yes", "--class", "quota"]).await;
    assert!(run.stderr.contains(killed), "{run:?}");
    assert_eq!(run.status, 0, "{run:?}");
    assert_eq!(run.stdout, "3 messages copied to orders\n2 messages left here, not chosen\n");
    shows(&run.stdout);
    assert_eq!(world.counts(), (2, 3));
    world.assert_all_visible();
    for copy in world.back() {
        let original =
            dead.iter().find(|message| message.body == copy.body).expect("the body as it lay");
        assert_eq!((&copy.attributes, &copy.group_id), (&original.attributes, &original.group_id));
        assert_ne!(copy.id, original.id);
    }
    let by_id = world
        .dlq(&["redrive", "--yes", "--id", &world.ids[3], "--to", &world.url(&world.queue)])
        .await;
    assert_eq!(
        (by_id.status, by_id.stdout.as_str()),
        (0, "1 message copied to orders\n1 message left here, not chosen\n"),
        "{by_id:?}"
    );
    let by_source = [
        "redrive",
        "--yes",
        "--reason",
        "retries-exhausted",
        "--source-queue-url",
        &world.url(&world.queue),
    ];
    let run = world.run(&by_source).await;
    assert_eq!((run.status, run.stdout.as_str()), (0, "1 message copied to orders\n"), "{run:?}");
    assert_eq!(world.counts(), (0, 5));
    for at in 0..4 {
        world.send_dead(&format!("{at}{}", "x".repeat(600_000))).await;
    }
    let run = world.dlq(&["redrive", "--yes", "--copy"]).await;
    assert_eq!(
        (run.status, world.counts()),
        (0, (0, 9)),
        "no request is larger than SQS takes: {run:?}"
    );
    let mut back = world.back();
    back.retain(|message| message.body.len() < 600_000);
    assert_eq!(
        originals(&back).into_keys().collect::<BTreeSet<_>>(),
        world.ids.iter().cloned().collect()
    );
}

#[tokio::test]
async fn from_a_dead_letter_queue_of_two_queues_each_copy_goes_to_its_own() {
    let world = World::filled("annotate").await;
    let bills = world.with_bill().await;
    assert_eq!(world.counts(), (6, 0));
    let stray = world.send_dead("stray").await;
    let run = world.dlq(&["redrive", "--yes", "--copy"]).await;
    assert_eq!(run.status, 1, "{run:?}");
    assert_eq!(
        run.stdout,
        "1 message copied to bills\n\
         5 messages copied to orders\n\
         1 message not copied, and still here: sent here without a source, and orders-dlq \
         belongs to bills and orders; --source-queue redrives those \
             that claim its queue, and --queue with --id and --to any\n"
    );
    assert_eq!(world.sqs.messages(&bills).unwrap()[0].body, "a bill");
    assert_eq!(world.dead()[0].id, stray);
    let run = world.dlq(&["redrive", "--yes", "--copy", "--to", &world.url(&world.queue)]).await;
    assert_eq!((run.status, world.counts()), (0, (0, 6)), "{run:?}");
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_fresh_budget_is_given_also_after_the_tenth_redrive() {
    let world = World::filled("annotate").await;
    let dead = world.dead().into_iter().find(|message| message.body.contains("amount")).unwrap();
    let worn =
        dead.body.replace(r#""retryState":{"v":1,"#, r#""retryState":{"v":1,"redrives":10,"#);
    assert_ne!(worn, dead.body);
    let id = world.send_dead(&worn).await;
    let run = world.dlq(&["redrive", "--yes", "--fresh-budget", "--id", &id]).await;
    assert_eq!(
        (run.status, run.stdout.as_str()),
        (0, "1 message copied to orders\n5 messages left here, not chosen\n"),
        "{run:?}"
    );
    assert!(world.back()[0].body.contains(r#""redrives":11"#), "{}", world.back()[0].body);
    assert_eq!(world.handled().await, [(BODIES[0].to_owned(), world.ids[0].clone(), 0)]);

    let id = world.send_dead(&worn).await;
    let run = world.dlq(&["redrive", "--yes", "--id", &id]).await;
    assert_eq!(run.status, 0, "{run:?}");
    assert_eq!(world.handled().await, [], "without it nothing restarts any more");
}

#[tokio::test]
async fn a_copy_that_comes_too_soon_to_be_taken_for_a_redrive_starts_afresh() {
    let world = World::filled_with("direct", "orders", &[]).await;
    let ours = |n: u64, ago: u64, redrives: u64| {
        let sent =
            jiff::Timestamp::try_from(Clock::system().now() - Duration::from_secs(ago)).unwrap();
        let dead = json!({ "class": "quota", "reason": "retries-exhausted" });
        let state = json!({ "v": 1, "redrives": redrives, "deadLetter": dead });
        let ours = json!({ "n": n, "retryCount": 2, "originalMessageId": "m", "retryTimestamp": sent.to_string(), "retryState": state });
        ours.to_string()
    };
    for (n, (ago, redrives)) in [(5, 0), (170, 9), (3_600, 0), (5, 10)].into_iter().enumerate() {
        world.send_dead(&ours(n as u64, ago, redrives)).await;
    }
    let run = world.dlq(&["redrive", "--copy", "--yes"]).await;
    assert_eq!((run.status, world.counts()), (0, (0, 4)), "{run:?}");
    let mut counts = world
        .back()
        .into_iter()
        .map(|message| {
            let body: Value = serde_json::from_str(&message.body).unwrap();
            json!([body["n"], body["retryCount"], body["retryState"]["redrives"]])
        })
        .collect::<Vec<_>>();
    counts.sort_by_key(Value::to_string);
    let kept = json!([[0, 0, 1], [1, 0, 10], [2, 2, 0], [3, 2, 10]]);
    assert_eq!(json!(counts), kept, "n, retries, redrives");
}

#[tokio::test]
async fn a_move_task_is_found_whose_start_has_no_response() {
    let world = World::filled("annotate").await;
    let before = world.sqs.call_count("StartMessageMoveTask");
    world.sqs.set_faults(|call| {
        if call.operation == "StartMessageMoveTask" { Fault::LoseResponse } else { Fault::None }
    });
    let run = world.dlq(&["redrive", "--yes", "--json"]).await;
    let redriven: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.status, world.counts()), (0, (0, 5)), "{run:?}");
    assert_eq!((&redriven["moved"], &redriven["complete"]), (&5.into(), &true.into()), "{run:?}");
    assert_eq!(world.sqs.call_count("StartMessageMoveTask"), before + 1, "sent once");
}

/// The move task of another person begins between the list of the tasks and the start.
#[tokio::test]
async fn the_move_task_of_another_person_is_never_taken_for_its_own() {
    let refused = |code: &str| Fault::refuse(400, code);
    let elsewhere = "elsewhere";
    for (fault, to, rate, words) in [
        (refused("InvalidParameterValue"), "", Some(1), RUNS_ALREADY),
        (refused("AWS.SimpleQueueService.UnsupportedOperation"), "", Some(1), RUNS_ALREADY),
        (Fault::None, "", Some(1), RUNS_ALREADY),
        (refused("InvalidParameterValue"), elsewhere, None, "SQS refuses StartMessageMoveTask on"),
        (Fault::LoseRequest, elsewhere, Some(1), RUNS_ALREADY),
        (Fault::LoseRequest, elsewhere, None, "broke during StartMessageMoveTask"),
        (Fault::LoseRequest, "", Some(1), RUNS_ALREADY),
    ] {
        let world = World::filled("annotate").await;
        world.sqs.create_queue(elsewhere, []).unwrap();
        let (begins, begun) = (Arc::new(Notify::new()), AtomicBool::new(false));
        let (told, late) = (Arc::clone(&begins), fault.clone());
        world.sqs.set_faults(move |call| {
            if call.operation != "StartMessageMoveTask" || begun.swap(true, Ordering::Relaxed) {
                return Fault::None;
            }
            told.notify_one();
            Fault::after(Duration::from_millis(500), late.clone())
        });
        let other = async {
            begins.notified().await;
            let client = world.sqs.client();
            let task = client.start_message_move_task().source_arn(world.dead_letters.to_string());
            let to = (!to.is_empty()).then(|| format!("arn:aws:sqs:us-east-1:000000000000:{to}"));
            let task = task.set_destination_arn(to).set_max_number_of_messages_per_second(rate);
            task.send().await.unwrap();
        };
        let (run, ()) = tokio::join!(world.dlq(&["redrive", "--yes"]), other);
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{fault:?} {to}: {run:?}");
        assert!(run.stderr.contains(words), "{fault:?} {to}: {run:?}");
    }
}

const RUNS_ALREADY: &str = "error: a move task of orders-dlq has been running since 2";

#[tokio::test]
async fn on_a_terminal_it_asks_first() {
    let world = World::filled("annotate").await;
    let question = "orders-dlq: 5 messages (1 non-retryable, 3 quota, 1 temporary) will be redriven \
                    to their source queues. Continue? [y/N]";
    for (keys, status, counts) in
        [(["", "n\n"], 1, (5, 0)), (["y\n", "\n"], 1, (5, 0)), (["", "yes\n"], 0, (0, 5))]
    {
        let (code, said) = world.typed(keys, &["redrive"]).await;
        assert!(said.contains(question), "{said}");
        shows(" will be redriven to their source queues. Continue? [y/N]");
        assert_eq!((code, world.counts()), (Some(status), counts), "{said}");
    }
}

#[tokio::test]
async fn copies_are_no_faster_than_the_rate_also_without_a_response() {
    for (fault, status, counts) in [(Fault::None, 0, (0, 5)), (Fault::LoseResponse, 1, (5, 5))] {
        let world = World::filled("direct").await;
        let sent: Arc<Mutex<Vec<(Instant, u32)>>> = Arc::default();
        let sends = Arc::clone(&sent);
        world.sqs.set_faults(move |call| {
            if call.operation != SEND {
                return Fault::None;
            }
            let entries = u32::try_from(call.entries).unwrap();
            sends.lock().unwrap().push((Instant::now(), entries));
            fault.clone()
        });
        let began = Instant::now();
        let run = world.dlq(&["redrive", "--yes", "--copy", "--rate", "2"]).await;
        assert_eq!((run.status, world.counts()), (status, counts), "{run:?}");
        // A request may arrive late, but none before it is sent.
        let mut earliest = began;
        for (arrived, entries) in sent.lock().unwrap().iter() {
            assert!(*arrived >= earliest, "{sent:?}");
            earliest += Duration::from_millis(500) * *entries;
        }
    }
}

#[test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn what_fails_again_at_once_does_not_go_round() {
    let bring_back = async |name: &str| {
        for options in [&[][..], &["--rate", "2"], &["--fresh-budget"]] {
            let world = World::filled_with("direct", name, &["0", "1", "2 quota"]).await;
            let command = [&["redrive", "--yes", "--copy", "--json"], options].concat();
            let run = tokio::select! {
                run = world.dlq(&command) => run,
                () = world.give_up_for_ever() => unreachable!("it goes on"),
            };
            assert_eq!(run.status, 0, "{run:?}");
            let redriven: Value = serde_json::from_str(&run.stdout).unwrap();
            assert_eq!(redriven["copied"][name], 3, "{name} {options:?}: {run:?}");
            world.assert_all_visible();
        }
    };
    side_by_side(["orders", "orders.fifo"], bring_back);
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn trouble_names_its_remedy_and_touches_nothing() {
    let world = World::filled("direct").await;
    let (queue, dead) = (world.url(&world.queue), world.url(&world.dead_letters));
    let nowhere = dead.replace("orders-dlq", "nowhere");
    for (arguments, words) in [
        (
            &["list", "--queue", "nowhere"][..],
            format!(
                "there is no queue arn:aws:sqs:us-east-1:*:nowhere at {}; check its name",
                world.server.url()
            )
            .as_str(),
        ),
        (&["list", "--queue", "a b"], "the name of a queue has at most 80 letters"),
        (
            &["list", "--queue-url", &nowhere],
            &format!(
                "there is no queue arn:aws:sqs:us-east-1:000000000000:nowhere at {}; ",
                world.server.url()
            ),
        ),
        (&["list", "--source-queue-url", &dead], "orders-dlq has no redrive policy"),
        (&["list"], "Usage: requeue dlq list <QUEUE>\n"),
        (
            &["redrive", "--queue-url", &dead, "--reason", "too_old", "--yes"],
            "a similar value exists: 'too-old'",
        ),
        (&["redrive", "--queue-url", &dead], "there is no terminal for a question: add --yes"),
        (
            &["redrive", "--queue-url", &dead, "--class", "quota"],
            "messages of class quota would be redriven from orders-dlq to their source queues; there is",
        ),
        (
            &["redrive", "--queue-url", &dead, "--to", &dead, "--yes"],
            "--to names the dead-letter queue itself",
        ),
        (
            &["redrive", "--queue-url", &queue, "--yes"],
            "orders is not a dead-letter queue, and has one: orders-dlq; use --queue orders-dlq",
        ),
        (&["peek", "--queue-url", &dead, "--class", "other"], "possible values: rate-limit, quota"),
    ] {
        let run = world.run(arguments).await;
        assert!(run.status != 0 && run.stderr.contains(words), "{arguments:?}: {run:?}");
        assert_eq!(run.stdout, "");
    }
    let run = requeue_with(&[("AWS_REGION", "us-east-1")], &["dlq", "list", "--queue-url", &dead]);
    let words = format!("set AWS_ENDPOINT_URL_SQS={}", world.server.url());
    assert!(run.status == 1 && run.stderr.contains(&words), "{run:?}");
    for operation in [
        "GetQueueAttributes",
        "ReceiveMessage",
        "ListDeadLetterSourceQueues",
        "StartMessageMoveTask",
    ] {
        world.sqs.set_faults(move |call| {
            if call.operation == operation {
                Fault::refuse(403, "AccessDenied")
            } else {
                Fault::None
            }
        });
        let run = world.dlq(&["redrive", "--yes"]).await;
        let words = format!(
            "SQS refuses {operation} on orders-dlq (AccessDenied); this identity needs the \
             permission sqs:{operation}"
        );
        assert!(run.status == 1 && run.stderr.contains(&words), "{run:?}");
    }
    for code in ["KmsAccessDenied", "KMS.AccessDeniedException"] {
        world.sqs.set_faults(move |call| {
            if call.operation == "ReceiveMessage" { Fault::refuse(400, code) } else { Fault::None }
        });
        let run = world.dlq(&["list"]).await;
        let words = format!(
            "({code}); this identity needs kms:Decrypt and kms:GenerateDataKey on the queue's key"
        );
        assert!(run.status == 1 && run.stderr.contains(&words), "{run:?}");
    }
    world.sqs.clear_faults();
    let policy =
        format!(r#"{{"deadLetterTargetArn":"{}","maxReceiveCount":2}}"#, world.dead_letters);
    world.sqs.create_queue("bills", [("RedrivePolicy", policy.as_str())]).unwrap();
    let run = world.dlq(&["redrive", "--yes"]).await;
    let words = "5 messages not copied, and still here: sent here without a source, and orders-dlq \
                 belongs to bills and orders; --source-queue redrives those";
    assert!(run.status == 1 && run.stdout.contains(words), "{run:?}");
    let run = world.dlq(&["redrive", "--dry-run"]).await;
    assert!(run.stdout.contains("5 of these claim to come from orders\n"), "{run:?}");
    assert_eq!((world.counts(), payloads(&world.dead()).len()), ((5, 0), 5));
    world.assert_all_visible();
}

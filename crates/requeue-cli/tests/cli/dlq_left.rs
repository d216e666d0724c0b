//! `requeue dlq` where messages stay out of reach, in FIFO groups and with other readers:
//! everything that SQS hands out is seen, and the rest is counted and told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use requeue::embedded::{EmbeddedSqs, Fault};
use requeue::{Clock, DeadLetter};
use serde_json::{Value, json};

use crate::dlq_world::{DELETE, SEND, World, lines};
use crate::run::{Run, scratch};

/// A dead-letter queue with these messages, by group and class, and the queue that it belongs to.
async fn world(suffix: &str, messages: impl IntoIterator<Item = (&str, &str)>) -> World {
    let sqs = EmbeddedSqs::new(Clock::system());
    let fifo: &[(&str, &str)] = if suffix.is_empty() { &[] } else { &[("FifoQueue", "true")] };
    let dead_letters = sqs.create_queue(&format!("m-dlq{suffix}"), fifo.iter().copied()).unwrap();
    let policy = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":2}}"#);
    let attributes = fifo.iter().copied().chain([("RedrivePolicy", policy.as_str())]);
    let queue = sqs.create_queue(&format!("m{suffix}"), attributes).unwrap();
    let server = sqs.serve(0).await.unwrap();
    let world = World { sqs, server, queue, dead_letters, ids: Vec::new() };
    for (at, (group, class)) in messages.into_iter().enumerate() {
        world.give_up(at, group, class).await;
    }
    world
}

impl World {
    /// A message that a function sent here itself.
    async fn give_up(&self, at: usize, group: &str, class: &str) {
        let why = json!({ "class": class, "reason": "retries-exhausted", "retryCount": 1 });
        let state = json!({ "v": 1, "source": self.queue.to_string(), "deadLetter": why });
        let (first, now) = (format!("first-{at}"), "2026-11-21T01:02:03.004Z");
        let body = json!({
            "at": at, "retryCount": 1, "originalMessageId": first, "retryTimestamp": now, "retryState": state,
        });
        let client = self.sqs.client();
        let message =
            client.send_message().queue_url(self.dead_letters.url()).message_body(body.to_string());
        let message = message.message_group_id(group);
        let deduplication = self.dead_letters.is_fifo().then(|| at.to_string());
        message.set_message_deduplication_id(deduplication).send().await.unwrap();
    }

    /// The redriven messages, by group and in order.
    fn back_by_group(&self) -> BTreeMap<String, Vec<u64>> {
        let mut groups: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for message in self.back() {
            let body: Value = serde_json::from_str(&message.body).unwrap();
            groups.entry(message.group_id.unwrap()).or_default().push(body["at"].as_u64().unwrap());
        }
        groups
    }

    /// Another reader takes so many.
    async fn hold(&self, count: usize) {
        for _ in 0..count {
            assert_eq!(
                self.sqs.receive(&self.dead_letters, 1, Duration::ZERO).await.unwrap().len(),
                1
            );
        }
    }

    async fn json(&self, arguments: &[&str]) -> (Run, Value) {
        let run = self.dlq(&[arguments, &["--json"]].concat()).await;
        let value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
        (run, value)
    }

    /// The exit status of an export, how many lines it has, and what is said.
    async fn exported(&self, name: &str) -> (i32, usize, String) {
        let file = scratch(name);
        let run = self.dlq(&["export", file.to_str().unwrap(), "--force"]).await;
        let lines = lines(&std::fs::read_to_string(&file).unwrap());
        let mut ids: Vec<&str> =
            lines.iter().map(|line| line["messageId"].as_str().unwrap()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), lines.len(), "each once: {run:?}");
        (run.status, lines.len(), run.stderr)
    }
}

/// So many messages, in turn of each of three groups.
fn three_groups(count: usize) -> impl Iterator<Item = (&'static str, &'static str)> {
    (0..count).map(|at| (["a", "b", "c"][at % 3], "temporary"))
}

const FIFO_GROUP: &str = "SQS hands out at most the first ten messages of a FIFO group";
const OTHER_READER: &str = "another reader holds them";

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_follows_an_unchosen_message_of_its_fifo_group_is_brought_back() {
    for rate in [&[][..], &["--rate", "1"], &["--rate", "50"]] {
        let world =
            world(".fifo", [("c1", "non-retryable")].into_iter().chain([("c1", "temporary"); 3]))
                .await;
        let (run, planned) = world.json(&["redrive", "--class", "temporary", "--dry-run"]).await;
        assert_eq!(
            (&planned["toCopy"], &planned["complete"]),
            (&json!({ "m.fifo": 3 }), &json!(true)),
            "{run:?}"
        );
        let run = world.dlq(&[&["redrive", "--class", "temporary", "--yes"], rate].concat()).await;
        assert_eq!(
            (run.status, run.stdout.as_str()),
            (0, "3 messages copied to m.fifo\n1 message left here, not chosen\n"),
            "{rate:?}: {run:?}"
        );
        assert_eq!(
            world.back_by_group(),
            BTreeMap::from([("c1".to_owned(), vec![1, 2, 3])]),
            "in order"
        );
        world.assert_all_visible();
    }
}

#[tokio::test]
async fn unchosen_messages_in_between_keep_back_nothing_as_long_as_they_are_fewer_than_ten() {
    // One of each four messages in a group stays: nine of 36.
    let class = |at: usize| if at % 12 < 3 { "non-retryable" } else { "temporary" };
    let world = world(".fifo", (0..108).map(|at| (["a", "b", "c"][at % 3], class(at)))).await;
    let (run, redriven) = world.json(&["redrive", "--class", "temporary", "--yes"]).await;
    assert_eq!((run.status, &redriven["copied"]), (0, &json!({ "m.fifo": 81 })), "{run:?}");
    assert_eq!(
        (&redriven["complete"], &redriven["notReached"]),
        (&json!(true), &json!({})),
        "{run:?}"
    );
    for (group, mut ats) in world.back_by_group() {
        assert!(ats.is_sorted() && ats.len() == 27, "{group}: {ats:?}");
        ats.dedup();
        assert_eq!(ats.len(), 27, "{group}");
    }
    world.assert_all_visible();
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_is_behind_ten_unchosen_messages_of_its_fifo_group_is_told() {
    let blocked = [("a", "non-retryable"); 10].into_iter().chain([("a", "temporary"); 4]);
    let world = world(".fifo", blocked.chain([("b", "temporary"); 2])).await;
    let (run, planned) = world.json(&["redrive", "--class", "temporary", "--dry-run"]).await;
    assert_eq!(
        (&planned["toCopy"], &planned["complete"]),
        (&json!({ "m.fifo": 2 }), &json!(false)),
        "{run:?}"
    );
    assert_eq!(planned["notReached"], json!({ "fifoGroup": 4 }), "{run:?}");
    let run = world.dlq(&["redrive", "--class", "temporary", "--yes"]).await;
    let said = "2 messages copied to m.fifo\n\
                10 messages left here, not chosen\n\
                about 4 messages not reached, and still here\n\
                ";
    assert_eq!((run.status, run.stdout.as_str()), (1, said), "{run:?}");
    assert!(run.stderr.contains("note: about 4 messages of m-dlq.fifo not reached: "), "{run:?}");
    assert!(run.stderr.contains(FIFO_GROUP) && run.stderr.contains("with --limit 10"), "{run:?}");
    let (run, redriven) = world.json(&["redrive", "--class", "temporary", "--yes"]).await;
    assert_eq!((run.status, &redriven["complete"]), (1, &json!(false)), "{run:?}");
    assert_eq!(redriven["notReached"], json!({ "fifoGroup": 4 }), "{run:?}");
    let (run, listed) = world.json(&["list"]).await;
    assert_eq!((&listed["lookedAt"], &listed["complete"]), (&json!(10), &json!(false)), "{run:?}");
    let peek = world.dlq(&["peek", "--class", "temporary"]).await;
    assert!(peek.stderr.contains(FIFO_GROUP) && peek.stdout.is_empty(), "{peek:?}");

    // The remedy in the note.
    let elsewhere = world.sqs.create_queue("elsewhere.fifo", [("FifoQueue", "true")]).unwrap();
    let to = world.url(&elsewhere);
    let run = world.dlq(&["redrive", "--class", "non-retryable", "--to", &to, "--yes"]).await;
    assert_eq!(run.status, 0, "{run:?}");
    let run = world.dlq(&["redrive", "--class", "temporary", "--yes"]).await;
    assert_eq!((run.status, world.counts()), (0, (0, 6)), "{run:?}");
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn of_a_fifo_queue_the_first_ten_of_each_group_are_looked_at_and_the_rest_is_told() {
    let world = world(".fifo", three_groups(20)).await;
    let (status, count, said) = world.exported("dlq-left-20.jsonl").await;
    assert_eq!((status, count), (0, 20), "{said}");
    for at in 20..60 {
        world.give_up(at, ["a", "b", "c"][at % 3], "temporary").await;
    }
    let (status, count, said) = world.exported("dlq-left-60.jsonl").await;
    assert_eq!((status, count), (1, 30), "a script must not go on: {said}");
    assert!(
        said.contains("about 30 messages of m-dlq.fifo not reached: ") && said.contains(FIFO_GROUP),
        "{said}"
    );
    let run = world.dlq(&["list"]).await;
    assert!(run.stdout.starts_with("m-dlq.fifo: 30 of about 60 messages\n"), "{run:?}");
    world.assert_all_visible();
    let (run, redriven) = world.json(&["redrive", "--copy", "--yes"]).await;
    assert_eq!(
        (run.status, &redriven["complete"]),
        (0, &json!(true)),
        "copied and deleted, they make room: {run:?}"
    );
    assert_eq!(world.counts(), (0, 60));
    assert!(world.back_by_group().values().all(|ats| ats.is_sorted()));
}

#[tokio::test]
async fn the_plan_of_a_fifo_redrive_names_those_that_it_goes_on_to() {
    let world = world(".fifo", [("a", "temporary"); 12]).await;
    let run = world.dlq(&["redrive", "--dry-run"]).await;
    for words in [
        "at least 10 messages would be copied to m.fifo and deleted here\n",
        "about 2 messages not in this plan, which a redrive reaches as those before them leave\n",
    ] {
        assert!(run.stdout.contains(words), "{run:?}");
    }
    let run = world.dlq(&["redrive", "--dry-run", "--limit", "3"]).await;
    for words in [
        "\n3 messages would be copied to m.fifo and deleted here\n",
        "about 2 messages not reached, and not in this plan\n",
    ] {
        assert!(run.stdout.contains(words), "{run:?}");
    }
    let run = world.dlq(&["redrive", "--yes"]).await;
    assert_eq!((run.status, run.stdout.as_str()), (0, "12 messages copied to m.fifo\n"), "{run:?}");
}

#[tokio::test]
async fn more_groups_than_a_receive_has_room_for_are_all_seen() {
    // From 1 to 13 messages, so that receives end everywhere.
    let groups: Vec<String> = (1..=13).map(|size| format!("g{size}")).collect();
    let each = groups
        .iter()
        .enumerate()
        .flat_map(|(at, group)| (0..=at).map(move |_| (group.as_str(), "quota")));
    let world = world(".fifo", each).await;
    let (run, listed) = world.json(&["list"]).await;
    assert_eq!(
        (&listed["lookedAt"], &listed["notReached"]),
        (&json!(85), &json!({ "fifoGroup": 6 })),
        "{run:?}"
    );
    let (run, listed) = world.json(&["list", "--max-messages", "50"]).await;
    assert_eq!(
        (&listed["lookedAt"], &listed["notReached"]),
        (&json!(50), &json!({ "maxMessages": 41 })),
        "{run:?}"
    );
    world.assert_all_visible();
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_another_reader_holds_is_told() {
    let world = world("", three_groups(60)).await;
    world.hold(20).await;
    let (run, planned) = world.json(&["redrive", "--copy", "--dry-run"]).await;
    assert_eq!(
        (&planned["complete"], &planned["notReached"]),
        (&json!(false), &json!({ "anotherReader": 20 })),
        "{run:?}"
    );
    let (status, count, said) = world.exported("dlq-left-held.jsonl").await;
    assert_eq!((status, count), (1, 40), "{said}");
    let run = world.dlq(&["redrive", "--copy", "--yes"]).await;
    let said = "40 messages copied to m\nabout 20 messages not reached, and still here\n";
    assert_eq!((run.status, run.stdout.as_str(), world.counts()), (1, said, (20, 40)), "{run:?}");
    assert!(
        run.stderr.contains("about 20 messages of m-dlq not reached: ")
            && run.stderr.contains(OTHER_READER)
    );
    let run = world.dlq(&["list"]).await;
    assert_eq!(
        (run.status, run.stdout.as_str()),
        (0, "m-dlq: 0 of about 20 messages\n"),
        "{run:?}"
    );
}

#[tokio::test]
async fn what_follows_a_message_that_another_reader_holds_in_its_fifo_group_is_told_with_it() {
    let world =
        world(".fifo", [("a", "temporary"); 3].into_iter().chain([("b", "temporary")])).await;
    world.hold(1).await;
    let (run, listed) = world.json(&["list"]).await;
    assert_eq!(
        (&listed["lookedAt"], &listed["notReached"]),
        (&json!(1), &json!({ "anotherReader": 3 })),
        "{run:?}"
    );
}

#[tokio::test]
async fn what_a_move_by_sqs_leaves_with_another_reader_is_told() {
    let world = World::filled("annotate").await;
    world.hold(2).await;
    let run = world.dlq(&["redrive", "--yes"]).await;
    let said =
        "3 messages moved to their source queues\nabout 2 messages not reached, and still here\n";
    assert_eq!((run.status, run.stdout.as_str(), world.counts()), (1, said, (2, 3)), "{run:?}");
    assert!(run.stderr.contains(OTHER_READER), "{run:?}");
}

#[tokio::test]
async fn no_more_than_max_messages_are_looked_at() {
    for suffix in ["", ".fifo"] {
        let world = world(suffix, three_groups(30)).await;
        let (run, listed) = world.json(&["list", "--max-messages", "15"]).await;
        assert_eq!(
            (&listed["lookedAt"], &listed["notReached"]),
            (&json!(15), &json!({ "maxMessages": 15 })),
            "{run:?}"
        );
        world.assert_all_visible();
        let (run, redriven) =
            world.json(&["redrive", "--copy", "--yes", "--max-messages", "15"]).await;
        assert_eq!((world.counts(), &redriven["complete"]), ((15, 15), &json!(false)), "{run:?}");
        world.assert_all_visible();
    }
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_breaks_off_is_not_complete() {
    for (operation, from, fault, left) in [
        (SEND, 2, Fault::refuse(403, "AccessDenied"), json!({ "brokenOff": 18 })),
        (DELETE, 2, Fault::refuse(500, "Gateway"), json!({ "brokenOff": 18 })),
        (DELETE, 2, Fault::refuse(503, "Gateway"), json!({ "brokenOff": 18 })),
        ("ReceiveMessage", 3, Fault::refuse(403, "AccessDenied"), json!({ "brokenOff": 58 })),
    ] {
        let world = world("", three_groups(59)).await;
        world.sqs.set_faults(move |call| {
            let hit = call.operation == operation && call.of_operation >= from;
            if hit { fault.clone() } else { Fault::None }
        });
        let (run, redriven) = world.json(&["redrive", "--copy", "--yes"]).await;
        assert_eq!((run.status, &redriven["complete"]), (1, &json!(false)), "{operation}: {run:?}");
        assert_eq!(redriven["notReached"], left, "{operation}: {run:?}");
        assert_eq!(run.stderr.contains("SQS refuses"), operation != DELETE, "{run:?}");
    }
}

#[tokio::test]
async fn without_the_counts_at_the_end_nothing_is_complete() {
    let world = world("", three_groups(5)).await;
    let has_deleted = AtomicBool::new(false);
    world.sqs.set_faults(move |call| {
        has_deleted.fetch_or(call.operation == DELETE, Ordering::Relaxed);
        let is_end = call.operation == "GetQueueAttributes" && has_deleted.load(Ordering::Relaxed);
        if is_end { Fault::refuse(403, "AccessDenied") } else { Fault::None }
    });
    let (run, redriven) = world.json(&["redrive", "--copy", "--yes"]).await;
    assert_eq!((run.status, &redriven["complete"]), (1, &json!(false)), "{run:?}");
    assert_eq!((&redriven["copied"], world.counts()), (&json!({ "m": 5 }), (0, 5)), "{run:?}");
}

#[tokio::test]
async fn of_two_commands_at_once_none_claims_more_than_is_true() {
    let world = world("", three_groups(60)).await;
    let both = ["redrive", "--copy", "--yes", "--rate", "20", "--json"];
    let (one, other) = tokio::join!(world.dlq(&both), world.dlq(&both));
    assert_eq!(world.counts(), (0, 60), "{one:?} {other:?}");
    for run in [&one, &other] {
        let redriven: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(run.status == 0, redriven["complete"] == true, "{run:?}");
        assert_eq!(run.status == 0, redriven["notReached"] == json!({}), "{run:?}");
    }
    // The command that ends last has seen an empty queue.
    assert!(one.status == 0 || other.status == 0, "{one:?} {other:?}");
    let held = world.sqs.messages(&world.queue).unwrap();
    let mut firsts: Vec<_> = held
        .iter()
        .map(|message| DeadLetter::read(&message.body).original_message_id().unwrap().to_owned())
        .collect();
    firsts.sort();
    firsts.dedup();
    assert_eq!(firsts.len(), 60, "each once");
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn messages_that_are_named_or_counted_need_no_others() {
    for (suffix, held) in [(".fifo", 0), ("", 1)] {
        let messages = (0..13).map(|_| ("a", "quota"));
        let world = world(suffix, messages).await;
        world.hold(held).await;
        let peeked = world.dlq(&["peek", "--json", "--limit", "2"]).await.stdout;
        let peeked = lines(&peeked);
        let id = peeked[1]["messageId"].as_str().unwrap();
        let file = scratch(&format!("named{suffix}.jsonl"));
        let gone = scratch(&format!("gone{suffix}.jsonl"));
        for (options, left) in [(&["--id", id][..], 12), (&["--limit", "2"], 10)] {
            let (file, _) = (file.to_str().unwrap(), std::fs::remove_file(&gone));
            let export = [&["export", file, "--force"], options].concat();
            let discard = [&["discard", gone.to_str().unwrap(), "--yes"], options].concat();
            for command in [export, discard] {
                let run = world.dlq(&command).await;
                assert_eq!(run.status, 0, "{command:?}: {run:?}");
            }
            assert_eq!(world.counts().0, left);
        }
    }
}

#[tokio::test]
async fn a_missing_reason_has_a_cause_that_fits_the_queue() {
    for (suffix, mode) in [("", "redrive"), (".fifo", "redrive or annotate")] {
        let world = world(suffix, []).await;
        let client = world.sqs.client();
        for (number, queue) in [&world.dead_letters, &world.queue].into_iter().enumerate() {
            let message = client.send_message().queue_url(queue.url()).message_body("{}");
            let deduplication = (!suffix.is_empty()).then(|| number.to_string());
            let message = message.message_group_id("a");
            message.set_message_deduplication_id(deduplication).send().await.unwrap();
        }
        // The third receive moves it.
        for _ in 0..3 {
            let receive = client.receive_message().queue_url(world.queue.url());
            receive.visibility_timeout(0).send().await.unwrap();
        }
        let run = world.dlq(&["list"]).await;
        let note = format!(
            "note: 1 message without a reason: sent to this queue, not moved by SQS\n\
             note: 1 message without a reason: SQS moved them before Requeue wrote one (mode {mode}; \
             crash, kill, timeout or throttle; another consumer): see docs/concepts/dead-letters.md\n"
        );
        assert!(run.status == 0 && run.stderr.contains(&note), "{run:?}");
    }
}

//! `requeue dlq list`, `peek` and `export`: what lies in a dead-letter queue.

use std::fs;
use std::time::Duration;

use requeue::embedded::Fault;
use serde_json::{Value, json};

use crate::dlq_world::{BODIES, GROUPS, World, lines, side_by_side};
use crate::documents::shows;
use crate::run::scratch;

const PAGE: &str = include_str!("../../../../docs/operate/dead-letter-tools.md");
const PICTURE: &str = include_str!("../../../../docs/pictures/dlq-list.svg");

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn messages_are_listed_by_class_and_reason_and_are_visible_afterwards() {
    for mode in ["annotate", "direct", "redrive"] {
        let world = World::filled(mode).await;
        let run = world.dlq(&["list", "--json"]).await;
        let listed: Value = serde_json::from_str(&run.succeeded()).unwrap();
        assert_eq!(
            (&listed["lookedAt"], &listed["complete"]),
            (&json!(5), &json!(true)),
            "{mode}: {listed:#}"
        );
        let groups = listed["groups"].as_array().unwrap();
        let of = |group: &Value| -> (String, String, u64) {
            let text = |name: &str| group[name].as_str().unwrap().to_owned();
            (text("class"), text("reason"), group["count"].as_u64().unwrap())
        };
        let mut found: Vec<_> = groups.iter().map(of).collect();
        let mut expected = GROUPS.map(|(class, reason, count)| match mode {
            // A final failure leaves no trace there; of the others only the class of the last retry
            // is known.
            "redrive" if class == "non-retryable" => {
                ("unknown".to_owned(), "unknown".to_owned(), count)
            }
            "redrive" => (class.to_owned(), "unknown".to_owned(), count),
            _ => (class.to_owned(), reason.to_owned(), count),
        });
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{mode}");
        assert!(groups.iter().all(|group| group["oldestFirstSent"].is_string()), "{listed:#}");
        let has_times = |group: &Value| {
            ["firstFailedAt", "lastFailedAt"].map(|time| group[time].is_string()) == [true; 2]
        };
        assert_eq!(groups.iter().all(has_times), mode != "redrive", "{listed:#}");
        assert_eq!(listed["sentDirectly"], if mode == "direct" { 5 } else { 0 });
        world.assert_all_visible();

        let run = world.dlq(&["list"]).await;
        assert!(run.status == 0 && run.stdout.starts_with("orders-dlq: 5 messages\n"), "{run:?}");
        assert_eq!(run.stdout.contains("status 403, quotaExceeded"), mode != "redrive", "{run:?}");
        let titles = run
            .stdout
            .lines()
            .nth(2)
            .unwrap()
            .split("   ")
            .map(str::trim)
            .filter(|title| !title.is_empty());
        for title in titles {
            let drawn = title.replace(' ', "&#160;");
            assert!(
                PICTURE.contains(&drawn) && PAGE.contains(title),
                "{title}: docs/pictures/dlq_list_svg.py draws it anew"
            );
        }
        assert_eq!(
            run.stderr.contains("SQS moved them before Requeue wrote one"),
            mode == "redrive",
            "{run:?}"
        );
        world.assert_all_visible();
    }
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_look_that_is_not_complete_says_so() {
    let world = World::filled("annotate").await;
    let run = world.dlq(&["list", "--max-messages", "2"]).await;
    assert!(run.stdout.starts_with("orders-dlq: 2 of about 5 messages\n"), "{run:?}");
    assert!(
        run.stderr.contains(
            "about 3 messages of orders-dlq not reached: --max-messages is too small; raise it"
        ),
        "{run:?}"
    );
    assert_eq!(run.status, 0);
    world.assert_all_visible();
    let file = scratch("dlq-partial.jsonl");
    let _ = fs::remove_file(&file);
    let run = world.dlq(&["export", file.to_str().unwrap(), "--max-messages", "2"]).await;
    assert_eq!(
        (run.status, fs::read_to_string(&file).unwrap().lines().count()),
        (1, 2),
        "a script must not go on: {run:?}"
    );
    let next = "dlq-partial.jsonl is incomplete; to replace it by a complete export, add --force\n";
    assert!(run.stderr.contains(next), "{run:?}");

    let received = world.sqs.receive(&world.dead_letters, 1, Duration::ZERO).await.unwrap();
    assert_eq!(received.len(), 1);
    let run = world.dlq(&["list"]).await;
    assert!(
        run.stderr.contains("about 1 message of orders-dlq not reached: another reader holds"),
        "{run:?}"
    );
    let (_, until) = run.stderr.split_once("holds them: until ").unwrap();
    let (until, _) = until.split_once(" UTC at the latest if it was a dlq command ").unwrap();
    let secs_of_day: Vec<u64> = until.split(':').map(|part| part.parse().unwrap()).collect();
    let [hours, minutes, secs] = secs_of_day[..] else { panic!("{run:?}") };
    let now = requeue::Clock::system().now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // The command ended a moment ago.
    let ago =
        120 - (hours * 3_600 + minutes * 60 + secs + 86_400 - now.as_secs() % 86_400) % 86_400;
    assert!(ago < 60, "{run:?}");
    assert!(run.stderr.contains("12 h at most otherwise; run this again then"), "{run:?}");

    let third = world.sqs.create_queue("third", []).unwrap();
    let policy = format!(r#"{{"deadLetterTargetArn":"{third}","maxReceiveCount":99}}"#);
    let client = world.sqs.client();
    let set = client.set_queue_attributes().queue_url(world.dead_letters.url());
    set.attributes("RedrivePolicy".into(), policy).send().await.unwrap();
    let run = world.dlq(&["list"]).await;
    assert!(run.stderr.contains("after 99 receives SQS moves it to third"), "{run:?}");
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_queue_without_messages_names_those_of_its_source_queue() {
    let world = World::filled("annotate").await;
    assert_eq!(world.dlq(&["redrive", "--yes"]).await.status, 0);
    assert_eq!(world.counts(), (0, 5));
    let file = scratch("dlq-empty.jsonl");
    let _ = fs::remove_file(&file);
    let file = file.to_str().unwrap();
    for command in [
        &["list"][..],
        &["peek"],
        &["export", file],
        &["discard", "--yes", file],
        &["redrive", "--dry-run"],
        &["redrive", "--yes"],
    ] {
        let run = world.dlq(command).await;
        let note = "note: 5 messages in orders: unless REQUEUE_DEAD_LETTER is direct, a dead-lettered \
                    one gets here only when it is received again, which an open circuit may \
                    defer; see `requeue status orders`\n";
        assert!(run.stderr.contains(note), "{command:?}: {run:?}");
        let _ = fs::remove_file(file);
    }
}

#[tokio::test]
async fn trouble_on_the_way_hides_nothing() {
    let world = World::filled("annotate").await;
    let before = world.sqs.call_count("ReceiveMessage");
    world.sqs.set_faults(move |call| match call.operation.as_str() {
        // After the first four, which are under way at once.
        "ReceiveMessage" if call.of_operation > before + 4 => Fault::refuse(403, "AccessDenied"),
        _ => Fault::None,
    });
    for command in [&["list"][..], &["redrive", "--dry-run"]] {
        let run = world.dlq(command).await;
        assert!(
            run.status == 1 && run.stderr.contains("the permission sqs:ReceiveMessage on"),
            "{run:?}"
        );
        world.assert_all_visible();
    }
    world.sqs.set_faults(|call| match call.operation.as_str() {
        "ChangeMessageVisibilityBatch" => Fault::refuse(403, "AccessDenied"),
        _ => Fault::None,
    });
    let run = world.dlq(&["list"]).await;
    assert!(run.status == 1 && run.stdout.contains("5 messages"), "{run:?}");
    let (before, after) =
        ("note: 5 messages stay hidden until ", " UTC at the latest, then visible again");
    let time = run.stderr.split_once(before).and_then(|(_, rest)| rest.split_once(after));
    assert!(time.is_some_and(|(time, _)| time.len() == "12:04:05".len()), "{run:?}");
    assert!(run.stderr.contains("the permission sqs:ChangeMessageVisibility on"), "{run:?}");
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn messages_are_shown_without_bodies_and_values_unless_bodies_are_asked_for() {
    let world = World::filled("direct").await;
    for arguments in [&["peek"][..], &["peek", "--json"]] {
        let shown = world.dlq(arguments).await.succeeded();
        for secret in ["amount", "lines", "mine", "secret-tenant"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(world.ids.iter().all(|id| shown.contains(id)), "the first ids: {shown}");
        assert!(shown.contains("quotaExceeded") && shown.contains("tenant"), "{shown}");
    }
    let shown = world.dlq(&["peek", "--json"]).await.succeeded();
    let quota = lines(&shown)
        .into_iter()
        .find(|line| line["originalMessageId"] == world.ids[0].as_str())
        .unwrap();
    let members =
        ["class", "reason", "detail", "retryCount", "redrives", "attributeNames", "groupId"];
    let values = members.map(|member| quota[member].clone());
    assert_eq!(
        json!(values),
        json!([
            "quota",
            "retries-exhausted",
            "status 403, quotaExceeded",
            1,
            0,
            ["print", "tenant"],
            "group-0"
        ])
    );
    assert!(
        quota["failedAt"].is_string()
            && quota["firstSent"].is_string()
            && quota["sizeBytes"].is_u64(),
        "{quota}"
    );

    let shown = world.dlq(&["peek", "--json", "--bodies"]).await.succeeded();
    let mut bodies: Vec<String> =
        lines(&shown).iter().map(|line| line["body"].as_str().unwrap().to_owned()).collect();
    bodies.sort();
    let mut expected = BODIES;
    expected.sort_unstable();
    assert_eq!(bodies, expected, "byte for byte as first delivered");
    let shown = world.dlq(&["peek", "--bodies", "--id", &world.ids[0]]).await.succeeded();
    assert!(shown.contains(BODIES[0]), "{shown}");
    assert!(shown.contains("  attribute       tenant = secret-tenant\n"), "{shown}");
    for name in shown.lines().filter_map(|line| line.strip_prefix("  ")?.split("  ").next()) {
        assert!(PAGE.contains(name), "the page lacks: {name}");
    }
    world.assert_all_visible();
}

#[test]
fn filters_choose() {
    // `{id}` stands for the id of the second message.
    let filters = [
        (&["--class", "quota"][..], 3),
        (&["--class", "quota", "--class", "temporary"], 4),
        (&["--class", "unknown"], 0),
        (&["--reason", "non-retryable"], 1),
        (&["--class", "quota", "--reason", "non-retryable"], 0),
        (&["--id", "{id}"], 1),
        (&["--id", "{id}", "--class", "temporary"], 0),
        (&["--limit", "2"], 2),
        (&["--class", "quota", "--limit", "1"], 1),
    ];
    let choose = async |(filter, count): (&[&str], usize)| {
        let world = World::filled("annotate").await;
        let id = world.ids[1].as_str();
        let filter: Vec<&str> =
            filter.iter().map(|word| if *word == "{id}" { id } else { word }).collect();
        for command in [&["peek", "--json"][..], &["export", "-"]] {
            let run = world.dlq(&[command, &filter].concat()).await;
            assert_eq!(
                (run.status, lines(&run.stdout).len()),
                (i32::from(count == 0), count),
                "{command:?} {filter:?}: {run:?}"
            );
        }
        world.assert_all_visible();
    };
    side_by_side(filters, choose);
}

#[tokio::test]
async fn an_export_has_all_that_is_needed_to_send_a_message_again() {
    let world = World::filled("annotate").await;
    let path = scratch("dlq-export.jsonl");
    let _ = fs::remove_file(&path);
    let file = path.to_str().unwrap();
    let run = world.dlq(&["export", file]).await;
    assert_eq!((run.status, run.stdout.as_str()), (0, ""), "{run:?}");
    assert!(run.stderr.contains("5 messages written; nothing was deleted"), "{run:?}");
    shows(&run.stderr);
    let exported = lines(&fs::read_to_string(&path).unwrap());
    let mut bodies: Vec<&str> =
        exported.iter().map(|line| line["body"].as_str().unwrap()).collect();
    let dead = world.dead();
    let mut expected: Vec<&str> = dead.iter().map(|message| message.body.as_str()).collect();
    bodies.sort_unstable();
    expected.sort_unstable();
    assert_eq!(bodies, expected, "as they lie in the queue");
    for line in &exported {
        assert_eq!(
            line["messageAttributes"],
            json!({
                "tenant": { "DataType": "String", "StringValue": "secret-tenant" },
                "print": { "DataType": "Binary.sha", "BinaryValue": "AP8H" },
            })
        );
        assert!(line["groupId"].as_str().unwrap().starts_with("group-"), "{line}");
        assert!(dead.iter().any(|message| line["messageId"] == message.id.as_str()), "{line}");
    }

    let refused = world.dlq(&["export", file]).await;
    assert_eq!(refused.status, 1);
    assert_eq!(
        refused.stderr,
        format!("error: {file} exists already; name another file, or replace it with --force\n")
    );
    assert_eq!(lines(&fs::read_to_string(&path).unwrap()), exported);
    let run = world.dlq(&["export", file, "--force", "--unwrap"]).await;
    assert_eq!(run.status, 0, "{run:?}");
    let exported = lines(&fs::read_to_string(&path).unwrap());
    let mut bodies: Vec<&str> =
        exported.iter().map(|line| line["body"].as_str().unwrap()).collect();
    let mut expected = BODIES;
    bodies.sort_unstable();
    expected.sort_unstable();
    assert_eq!(bodies, expected, "byte for byte as first delivered");
    assert_eq!(world.counts(), (5, 0));
    world.assert_all_visible();
}

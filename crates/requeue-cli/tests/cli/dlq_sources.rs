//! `requeue dlq` on a dead-letter queue of two queues: each message goes to its own or stays, and
//! what a message says of itself is shown as a claim that controls nothing.

use requeue::printable::is_printable;
use requeue::queue::QueueArn;
use serde_json::{Value, json};

use crate::dlq_world::{World, lines, side_by_side};

/// Five messages of `orders` in the dead-letter queue, and one that SQS moved there from `bills`.
struct Shared {
    world: World,
    bills: QueueArn,
}

impl Shared {
    /// How `orders` dead-lettered its messages, and whether it still has a redrive policy.
    async fn new(mode: &str, orders_has_policy: bool) -> Self {
        let world = World::filled(mode).await;
        if !orders_has_policy {
            let set = world.sqs.client().set_queue_attributes().queue_url(world.queue.url());
            set.attributes("RedrivePolicy".into(), "").send().await.unwrap();
        }
        let bills = world.with_bill().await;
        Self { world, bills }
    }

    /// How many are in the dead-letter queue, in `orders`, in `bills`.
    fn counts(&self) -> (usize, usize, usize) {
        let (dead, orders) = self.world.counts();
        (dead, orders, self.world.sqs.message_count(&self.bills).unwrap())
    }
}

/// Arguments, in which `{orders}`, `{bills}`, `{dead}` stand for URLs; how many are where then; the
/// status; what is said.
struct Story {
    mode: &'static str,
    orders_has_policy: bool,
    arguments: &'static [&'static str],
    counts: (usize, usize, usize),
    status: i32,
    said: &'static [&'static str],
}

const CLAIMED: &str = "5 messages left here, claiming to come from orders; redrive them with --queue, --source and --to";

const STORIES: [Story; 13] = [
    Story {
        mode: "direct",
        orders_has_policy: true,
        arguments: &["--source-queue-url", "{bills}"],
        counts: (5, 0, 1),
        status: 1,
        said: &["1 message copied to bills", CLAIMED],
    },
    Story {
        mode: "direct",
        orders_has_policy: false,
        arguments: &["--source-queue-url", "{bills}"],
        counts: (5, 0, 1),
        status: 1,
        said: &["1 message copied to bills", CLAIMED],
    },
    Story {
        mode: "direct",
        orders_has_policy: false,
        arguments: &["--queue-url", "{dead}"],
        counts: (5, 0, 1),
        status: 1,
        said: &["1 message copied to bills", CLAIMED],
    },
    Story {
        mode: "direct",
        orders_has_policy: false,
        arguments: &["--queue-url", "{dead}", "--copy"],
        counts: (5, 0, 1),
        status: 1,
        said: &["1 message copied to bills", CLAIMED],
    },
    Story {
        mode: "direct",
        orders_has_policy: true,
        arguments: &["--queue-url", "{dead}"],
        counts: (5, 0, 1),
        status: 1,
        said: &[
            "1 message copied to bills",
            "5 messages not copied, and still here: sent here without a source, and orders-dlq \
             belongs to bills and orders; --source-queue redrives those \
             that claim its queue, and --queue with --id and --to any",
        ],
    },
    Story {
        mode: "direct",
        orders_has_policy: true,
        arguments: &["--source-queue-url", "{orders}"],
        counts: (1, 5, 0),
        status: 1,
        said: &[
            "5 messages copied to orders",
            "1 message of bills left here; redrive them with --queue, --source and --to",
        ],
    },
    Story {
        mode: "direct",
        orders_has_policy: false,
        arguments: &["--queue-url", "{dead}", "--source", "orders", "--to", "{orders}"],
        counts: (1, 5, 0),
        status: 0,
        said: &["5 messages copied to orders", "1 message left here, not chosen"],
    },
    Story {
        mode: "direct",
        orders_has_policy: true,
        arguments: &["--source-queue-url", "{bills}", "--to", "{orders}"],
        counts: (5, 1, 0),
        status: 1,
        said: &["1 message copied to orders", CLAIMED],
    },
    Story {
        mode: "annotate",
        orders_has_policy: true,
        arguments: &["--source-queue-url", "{bills}", "--to", "{orders}"],
        counts: (5, 1, 0),
        status: 1,
        said: &[
            "1 message copied to orders",
            "5 messages of orders left here; redrive them with --queue, --source and --to",
        ],
    },
    Story {
        mode: "direct",
        orders_has_policy: true,
        arguments: &["--queue-url", "{dead}", "--to", "{orders}"],
        counts: (0, 6, 0),
        status: 0,
        said: &["6 messages moved to orders"],
    },
    Story {
        mode: "direct",
        orders_has_policy: true,
        arguments: &["--source-queue-url", "{bills}", "--limit", "1"],
        counts: (5, 0, 1),
        status: 1,
        said: &["1 message copied to bills", CLAIMED],
    },
    Story {
        mode: "annotate",
        orders_has_policy: false,
        arguments: &["--source-queue-url", "{bills}"],
        counts: (5, 0, 1),
        status: 1,
        said: &[
            "1 message copied to bills",
            "5 messages of orders left here; redrive them with --queue, --source and --to",
        ],
    },
    Story {
        mode: "annotate",
        orders_has_policy: false,
        arguments: &["--queue-url", "{dead}"],
        counts: (0, 5, 1),
        status: 0,
        said: &["6 messages moved to their source queues"],
    },
];

#[test]
fn no_message_is_brought_back_to_a_queue_that_it_did_not_come_from_unless_to_says_so() {
    let tell = async |story: Story| {
        let shared = Shared::new(story.mode, story.orders_has_policy).await;
        let Shared { world, bills } = &shared;
        let urls = [world.url(&world.queue), world.url(bills), world.url(&world.dead_letters)];
        let arguments: Vec<&str> = story
            .arguments
            .iter()
            .map(|argument| match *argument {
                "{orders}" => urls[0].as_str(),
                "{bills}" => urls[1].as_str(),
                "{dead}" => urls[2].as_str(),
                other => other,
            })
            .collect();
        let planned =
            world.run(&[&["redrive", "--dry-run", "--json"], &arguments[..]].concat()).await;
        let plan: Value = serde_json::from_str(&planned.stdout).unwrap();
        assert_eq!((planned.status, shared.counts()), (0, (6, 0, 0)), "{arguments:?}: {planned:?}");
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let kept = ["left", "leftByClaim", "notPossible"]
            .map(|name| plan[name].as_object().unwrap().values().map(number).sum::<u64>());
        let expected = u64::try_from(story.counts.0).unwrap();
        assert_eq!(
            kept.iter().sum::<u64>() + number(&plan["notChosen"]),
            expected,
            "{arguments:?}: {plan:#}"
        );

        let run = world.run(&[&["redrive", "--yes"], &arguments[..]].concat()).await;
        assert_eq!(
            (run.status, shared.counts()),
            (story.status, story.counts),
            "{arguments:?}: {run:?}"
        );
        for words in story.said {
            assert!(run.stdout.contains(words), "{arguments:?}: {words}: {run:?}");
        }
        world.assert_all_visible();
    };
    side_by_side(STORIES, tell);
}

#[tokio::test]
async fn a_list_counts_the_messages_of_each_source_queue_if_there_are_several() {
    let shared = Shared::new("redrive", true).await;
    let listed = shared.world.dlq(&["list"]).await;
    let note = "note: moved by SQS from bills (1), orders (5); choose with --source\n";
    assert!(listed.status == 0 && listed.stderr.contains(note), "{listed:?}");
    let listed = World::filled("redrive").await.dlq(&["list"]).await;
    assert!(!listed.stderr.contains("moved by SQS from"), "{listed:?}");
    for (arguments, words) in [
        (
            ["--queue", "orders-dlq", "--class", "quota"],
            "`dlq peek` shows those that options choose",
        ),
        (
            ["--queue", "orders-dlq", "--source-queue", "orders"],
            "names the dead-letter queue: remove",
        ),
    ] {
        let run = shared.world.run(&[&["list"][..], &arguments].concat()).await;
        assert!(run.status == 2 && run.stderr.contains(words), "{run:?}");
    }
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_stays_is_told_with_the_queue_by_whose_word() {
    let shared = Shared::new("direct", true).await;
    let Shared { world, bills } = &shared;
    let to_bills = ["redrive", "--dry-run", "--source-queue-url", &world.url(bills)];
    let run = world.run(&to_bills).await;
    let words = "5 messages would stay here, claiming to come from orders; redrive them with \
                 --queue, --source and --to\n";
    assert!(
        run.stdout.contains(words) && run.stdout.contains("1 message would be copied to bills"),
        "{run:?}"
    );
    let to_orders = ["redrive", "--yes", "--json", "--source-queue-url", &world.url(&world.queue)];
    let run = world.run(&to_orders).await;
    let redriven: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&redriven["left"], &redriven["leftByClaim"]),
        (&json!({ "bills": 1 }), &json!({})),
        "{run:?}"
    );
    let peeked = world.dlq(&["peek", "--json"]).await.succeeded();
    assert_eq!(
        (&lines(&peeked)[0]["movedFrom"], &lines(&peeked)[0]["claimedSource"]),
        (&json!(bills.to_string()), &Value::Null)
    );

    // What names no queue may belong to either of the two.
    world.send_dead("{}").await;
    let plan = world.run(&["redrive", "--dry-run", "--source-queue-url", &world.url(bills)]).await;
    let words = "1 message would stay here: sent here without a source, and orders-dlq belongs to";
    assert!(plan.stdout.contains(words), "{plan:?}");
    let run =
        world.run(&["redrive", "--yes", "--source-queue-url", &world.url(&world.queue)]).await;
    let words = "1 message not copied, and still here: sent here without a source, and orders-dlq";
    assert!(run.status == 1 && run.stdout.contains(words), "{run:?}");

    // Nothing is sent where a message wishes, be it even a queue that could be meant.
    let forged = |source: &str| {
        let state = json!({ "v": 1, "source": source });
        let body = json!({ "retryCount": 1, "originalMessageId": "m-1", "retryTimestamp": "2026-11-21T01:02:03.004Z", "retryState": state });
        body.to_string()
    };
    let far = "arn:aws:sqs:us-east-1:999999999999:bills";
    for source in [bills.to_string().as_str(), far, "nonsense"] {
        world.send_dead(&forged(source)).await;
    }
    let run = world
        .run(&["redrive", "--dry-run", "--json", "--source-queue-url", &world.url(&world.queue)])
        .await;
    let plan: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(plan["leftByClaim"], json!({ "bills": 1, far: 1, "nonsense": 1 }), "{run:?}");
    let run = world.dlq(&["redrive", "--dry-run"]).await;
    for words in ["1 of these claim to come from bills\n", "come from nonsense\n"] {
        assert!(run.stdout.contains(words), "{run:?}");
    }
    let run = world.run(&["redrive", "--yes", "--source-queue-url", &world.url(bills)]).await;
    assert_eq!(
        (run.status, shared.counts()),
        (1, (3, 5, 2)),
        "the bill, and what claims to be one: {run:?}"
    );
}

/// Every character that a terminal or a viewer obeys.
fn harmful() -> String {
    ('\0'..=char::MAX).filter(|c| !is_printable(*c)).collect()
}

#[tokio::test]
async fn the_own_words_of_a_service_are_shown_behind_its_code() {
    let world = World::filled_with("direct", "orders", &[]).await;
    let letter = |detail: &str, text: Option<&str>| {
        let why = json!({ "class": "non-retryable", "reason": "non-retryable", "detail": detail, "text": text });
        let state = json!({ "v": 1, "deadLetter": why });
        json!({ "retryCount": 0, "originalMessageId": "m", "retryTimestamp": "2026-11-21T01:02:03.004Z", "retryState": state })
            .to_string()
    };
    world.send_dead(&letter("status 422: no-seat", Some("no seat is left on …"))).await;
    world.send_dead(&letter("status 400", None)).await;
    let listed = world.dlq(&["list"]).await.succeeded();
    assert!(listed.contains("status 422: no-seat – no seat is left on …"), "{listed}");
    assert!(!listed.contains("status 400 –"), "{listed}");
    let peeked = world.dlq(&["peek"]).await.succeeded();
    assert!(peeked.contains("  text            no seat is left on …\n"), "{peeked}");
    assert_eq!(peeked.matches("  text  ").count(), 1, "{peeked}");
    let mut texts: Vec<Value> = lines(&world.dlq(&["peek", "--json"]).await.succeeded())
        .iter()
        .map(|line| line["text"].clone())
        .collect();
    texts.sort_by_key(Value::is_string);
    assert_eq!(texts, [Value::Null, json!("no seat is left on …")]);
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn nothing_that_a_message_says_controls_a_terminal() {
    let shared = Shared::new("direct", true).await;
    let Shared { world, bills } = &shared;
    let text = format!("x{}y", harmful());
    let why =
        json!({ "class": "quota", "reason": text, "detail": text, "text": text, "retryCount": 1 });
    let state = json!({ "v": 1, "source": text, "deadLetter": why, text.as_str(): text });
    let body = json!({ "retryCount": 1, "originalMessageId": text, "retryTimestamp": "2026-11-21T01:02:03.004Z", "retryState": state, text.as_str(): text });
    // As it may be in a queue: what SQS takes as it is stands there unescaped.
    let mut body = body.to_string();
    for c in harmful().chars().filter(|c| *c > '\u{9f}') {
        body = body.replace(&format!("\\u{:04x}", u32::from(c)), &c.to_string());
    }
    world.send_dead(&body).await;
    let bills = world.url(bills);
    let by_source = ["redrive", "--source-queue-url", &bills];
    for (arguments, is_json) in [
        (&["list"][..], false),
        (&["list", "--json"], true),
        (&["peek"], false),
        (&["peek", "--bodies"], false),
        (&["peek", "--json", "--bodies"], true),
        (&["export", "-"], true),
        (&["redrive", "--dry-run"], false),
        (&["redrive", "--dry-run", "--json"], true),
        (&["redrive", "--yes"], false),
        (&[&by_source[..], &["--dry-run", "--json"]].concat(), true),
        (&[&by_source[..], &["--yes", "--json"]].concat(), true),
        (&[&by_source[..], &["--yes"]].concat(), false),
    ] {
        let is_by_source = arguments.contains(&"--source-queue-url");
        let run =
            if is_by_source { world.run(arguments).await } else { world.dlq(arguments).await };
        for printed in [&run.stdout, &run.stderr] {
            let harmful: Vec<char> =
                printed.chars().filter(|c| !is_printable(*c) && *c != '\n').collect();
            assert!(harmful.is_empty(), "{arguments:?}: {harmful:?} in {printed}");
        }
        if is_json && ["peek", "export"].contains(&arguments[0]) {
            let ids: Vec<Value> =
                lines(&run.stdout).iter().map(|line| line["originalMessageId"].clone()).collect();
            assert!(ids.contains(&json!(text)), "the value survives: {ids:?}");
        }
    }
    // A value of several lines does not pass for lines of ours.
    let run = world.dlq(&["peek", "--bodies"]).await;
    assert!(
        run.stdout
            .lines()
            .all(|line| line.is_empty() || line.starts_with("  ") || line.len() == 36),
        "{run:?}"
    );
}

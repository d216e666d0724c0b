//! `requeue limits` beside a worker, by a table of DynamoDB.

use std::time::Duration;

use ::http::Response;
use aws_sdk_sqs::types::QueueAttributeName;
use http_body_util::Full;
use requeue::Clock;
use requeue::embedded::EmbeddedSqs;
use requeue_testkit::dynamodb::{config, create_table};
use requeue_testkit::http;
use requeue_testkit::tools::tool;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::shop::{Call, Shop};

const POLICY: &str = r#"{"limits": [
    {"limit": 20, "fairBy": "/tenant", "weights": {"acme": 2}},
    {"key": "/tenant", "limit": 10, "burst": 50}]}"#;

/// A new table of an emulator.
async fn create(url: &str) -> String {
    let table = format!("limits-{}", uuid::Uuid::new_v4());
    create_table(&config(url), &table).await;
    table
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_pauses_lowers_and_resumes_a_limit_while_a_worker_runs() {
    let Some(dynamodb) = tool("REQUEUE_TEST_MINISTACK") else { return };
    let table = create(&dynamodb).await;
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "limited").await;
    let tenant = |n| if n % 3 == 0 { "other" } else { "acme" };
    let body = |n| json!({ "n": n, "tenant": tenant(n) }).to_string();
    shop.send((0..200).map(body).collect()).await;
    let settings = [
        ("AWS_ENDPOINT_URL_DYNAMODB", &*dynamodb),
        ("REQUEUE_TABLE", &table),
        ("REQUEUE_POLICY", POLICY),
    ];
    let limits = async |arguments: &[&str]| {
        let command = [&[env!("CARGO_BIN_EXE_requeue"), "limits"], arguments].concat();
        let output = shop.command(&command, &settings).output().await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let noted = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said, noted)
    };
    let worker = shop.worker(&["--drain"], &settings);
    shop.called(10).await;

    let (status, said, noted) = limits(&["pause", "--key", "acme"]).await;
    assert_eq!(status, Some(0), "{noted}");
    assert!(said.contains("until it is resumed"), "{said}");
    // Calls with a reservation are made.
    sleep(Duration::from_secs(3)).await;
    let since = |at: Instant, n: fn(usize) -> bool| {
        shop.calls().iter().filter(|Call { at: then, n: of, .. }| *then >= at && n(*of)).count()
    };
    let (paused, is_acme): (_, fn(usize) -> bool) = (Instant::now(), |n| n % 3 != 0);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(since(paused, is_acme), 0);

    let (_, said, _) = limits(&["set", "--limit", "5", "--for", "1h", "--json"]).await;
    let set: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&set["limit"], &set["policy"]["limit"]), (&json!(5), &json!(20)), "{said}");
    assert!(set["setUntil"].is_string(), "{said}");
    let (_, said, noted) = limits(&["resume", "--key", "acme"]).await;
    assert!(!said.contains("paused"), "{said} {noted}");
    sleep(Duration::from_secs(3)).await;
    let lowered = Instant::now();
    sleep(Duration::from_secs(4)).await;
    let calls = since(lowered, |_| true);
    assert!(calls <= 5 * 4 + 5, "{calls}");
    let (_, said, _) = limits(&[]).await;
    assert!(said.contains("5 calls in 1 s, until "), "{said}");

    let (_, said, noted) = limits(&["pause", "--key", "ACME"]).await;
    assert!(said.contains("ACME") && noted.contains("no message of `ACME`"), "{said} {noted}");
    assert!(noted.contains(" lately without a namespace; check how"), "{noted}");
    limits(&["pause"]).await;
    let (_, said, _) = limits(&[]).await;
    let listed = said.lines().find(|line| line.contains("paused key"));
    assert!(listed.is_some_and(|line| line.contains("SHA-256 with ")), "{said}");
    let (_, said, _) = limits(&["resume", "--key", "ACME"]).await;
    assert!(!said.contains("paused"), "{said}");
    let (status, said, _) = limits(&["reset"]).await;
    assert_eq!((status, said.contains("until")), (Some(0), false), "{said}");
    assert!(said.contains("10 calls in 1 s; see one with --key"), "{said}");
    let (status, said) = worker.ended().await;
    assert_eq!((status, shop.calls().len()), (Some(0), 200), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_use_names_the_argument_and_the_remedy() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "limited-wrongly").await;
    let table = ("REQUEUE_TABLE", "requeue");
    let of = |policy| [table, ("REQUEUE_POLICY", policy)];
    let keys = r#"{"limits": [{"key": "/tenant", "limit": 5}, {"key": "region", "limit": 9}]}"#;
    for (arguments, settings, words) in [
        (&["set"][..], of(POLICY), "name the calls with --limit"),
        (&["pause", "--limit", "3"], of(POLICY), "--limit has an effect with set alone"),
        (&["resume", "--for", "1m"], of(POLICY), "--for has an effect with set and pause alone"),
        (&["set", "--limit", "0"], of(POLICY), "0 is not in 1.."),
        (&[], of("{}"), "the policy has no rate limit"),
        (&["--key", "acme"], of(r#"{"rateLimit": {"limit": 1}}"#), "leave --key out"),
        (&[], of(keys), "the policy has limits for /tenant and region alone"),
        (&["--key", "acme"], of(keys), "as in --key /tenant=acme"),
        (&["--key", "/region=eu"], of(POLICY), "as in --key /tenant=acme"),
        (&["--scope", "a"], of(POLICY), "leave --scope out"),
        (&[], of(""), "set REQUEUE_POLICY as the worker has it"),
        (&[], [("REQUEUE_TABLE", ""), ("REQUEUE_POLICY", POLICY)], "there is no table"),
    ] {
        let command = [&[env!("CARGO_BIN_EXE_requeue"), "limits"], arguments].concat();
        let output = shop.command(&command, &settings).output().await.unwrap();
        let noted = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && noted.contains(words), "{arguments:?}: {noted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_says_how_many_units_a_call_used() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "used").await;
    let target = http::Server::start(async |_| {
        Response::builder().header("Requeue-Units", "1").body(Full::default()).unwrap()
    })
    .await;
    let url = target.url();
    shop.send((0..40).map(|n| json!({ "n": n, "tokens": 40 }).to_string()).collect()).await;
    let settings = [
        ("REQUEUE_TARGET_URL", &*url),
        ("REQUEUE_POLICY", r#"{"rateLimit": {"limit": 40, "units": "/tokens"}}"#),
    ];
    let began = Instant::now();
    let (status, said) = shop.worker(&["--drain"], &settings).ended().await;
    assert_eq!(status, Some(0), "{said}");
    // At 40 of 40 units each, the last one would begin after 39 s.
    assert!(began.elapsed() < Duration::from_secs(30), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_at_its_start_that_the_retention_is_short() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "forgetful").await;
    for (seconds, is_told) in [("900", true), ("901", false)] {
        let set = shop.client.set_queue_attributes().queue_url(&shop.queue);
        set.attributes(QueueAttributeName::MessageRetentionPeriod, seconds).send().await.unwrap();
        let (status, said) = shop.worker(&["--drain"], &[]).ended().await;
        assert_eq!(status, Some(0), "{said}");
        let told = "MessageRetentionPeriod of 15 min is shorter than messages may wait";
        assert_eq!(said.contains(told), is_told, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_at_its_start_that_its_table_is_missing() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "tableless").await;
    let dynamodb = http::Server::start(async |_| {
        let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}"#;
        Response::builder().status(400).body(Full::from(body)).unwrap()
    })
    .await;
    let url = dynamodb.url();
    let settings = [("AWS_ENDPOINT_URL_DYNAMODB", &*url), ("REQUEUE_TABLE", "absent")];
    // No message comes.
    let (status, said) = shop.worker(&["--drain"], &settings).ended().await;
    assert_eq!(status, Some(0), "{said}");
    let told = "the table absent of REQUEUE_TABLE cannot be read (ResourceNotFoundException)";
    assert!(said.contains(told), "{said}");
}

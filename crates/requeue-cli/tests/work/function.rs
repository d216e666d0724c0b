//! `requeue work --target-function`: the worker invokes a function, which a server on loopback
//! stands in for.

use std::collections::BTreeMap;
use std::time::Duration;

use requeue::Clock;
use requeue::embedded::EmbeddedSqs;
use requeue_testkit::function::{Answer, FunctionApi, records};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::shop::{Shop, Worker};

/// The body of a record.
fn body(record: &Value) -> Value {
    serde_json::from_str(record["body"].as_str().unwrap()).unwrap()
}

/// How often the function got each message, by its number.
fn calls(api: &FunctionApi) -> BTreeMap<u64, usize> {
    let mut calls = BTreeMap::new();
    for record in api.records() {
        *calls.entry(body(&record)["n"].as_u64().unwrap()).or_default() += 1;
    }
    calls
}

/// Obeys the messages: `class` fails so until `times` attempts, `throw` throws, and `work` takes so
/// many milliseconds.
async fn obeying() -> FunctionApi {
    FunctionApi::start(async |event| -> Answer {
        let all = records(&event);
        if all.iter().any(|record| body(record)["throw"] == true) {
            return (200, "", json!({ "errorType": "ValueError", "errorMessage": "no" }));
        }
        let work = all.iter().filter_map(|record| body(record)["work"].as_u64()).max();
        sleep(Duration::from_millis(work.unwrap_or_default())).await;
        let failed = all.iter().filter_map(|record| {
            let body = body(record);
            let attempt: u64 =
                record["attributes"]["RequeueAttempt"].as_str().unwrap().parse().unwrap();
            let is_over = body["times"].as_u64().is_some_and(|times| attempt > times);
            let class = body["class"].as_str().filter(|_| !is_over)?;
            Some(json!({ "itemIdentifier": record["messageId"], "class": class }))
        });
        (200, "", json!({ "batchItemFailures": failed.collect::<Vec<_>>() }))
    })
    .await
}

/// A worker of the shop's queue, whose target is this function instead of the shop's URL.
fn worker(shop: &Shop, api: &FunctionApi, arguments: &[&str], settings: &[(&str, &str)]) -> Worker {
    let arguments = [&["--target-function", "orders:live"], arguments].concat();
    let url = api.url();
    let own = [
        ("AWS_ENDPOINT_URL_LAMBDA", &*url),
        ("REQUEUE_TIMEOUT_SECONDS", ""),
        // Without the waits of a message on its way.
        ("REQUEUE_DEAD_LETTER", "direct"),
        ("REQUEUE_DEAD_LETTER_QUEUE_URL", &shop.dead_letters),
    ];
    shop.worker(&arguments, &[&own, settings].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_gets_several_messages_in_a_call_until_the_queue_is_empty() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let (shop, api) = (Shop::open(&server.url(), "invoked").await, obeying().await);
    let body = |n: usize| match n {
        3 => json!({ "n": n, "class": "RATE_LIMIT", "times": 1 }).to_string(),
        4 => json!({ "n": n, "class": "TEMPORARY" }).to_string(),
        5 => json!({ "n": n, "class": "NON_RETRYABLE" }).to_string(),
        _ => json!({ "n": n }).to_string(),
    };
    shop.send((0..25).map(body).collect()).await;
    let settings = [("AWS_LAMBDA_LOG_FORMAT", "json")];
    let (status, said) = worker(&shop, &api, &["--drain"], &settings).ended().await;
    assert_eq!((status, shop.counts(&shop.queue).await), (Some(0), [0; 3]), "{said}");
    assert_eq!(shop.dead().await, BTreeMap::from([(4, 1), (5, 1)]), "{said}");
    // Four attempts of the policy, and one of a message that no retry can help.
    let calls = calls(&api);
    let of = |n| calls[&n];
    assert_eq!((calls.len(), of(3), of(4), of(5)), (25, 2, 4, 1), "{said}");
    assert!(calls.iter().all(|(n, count)| *count == 1 || [3, 4].contains(n)), "{calls:?}");
    let sizes: Vec<usize> = api.events().iter().map(|event| records(event).len()).collect();
    assert!(sizes.contains(&10) && sizes.iter().all(|size| *size <= 10), "{sizes:?}");
    assert!(shop.calls().is_empty(), "the option replaces the URL of the environment");
    // The function's own timeout of 3 s, and 15 s for its start.
    for words in [r#""targetFunction":"orders:live""#, r#""concurrency":"10, timeout 18 s""#] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("targetUrl"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn told_to_end_it_waits_for_the_function_and_leaves_the_other_messages() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let (shop, api) = (Shop::open(&server.url(), "invoked-ended").await, obeying().await);
    shop.send((0..4).map(|n| json!({ "n": n, "work": 1_500 }).to_string()).collect()).await;
    let settings = [("REQUEUE_CONCURRENCY", "1"), ("REQUEUE_MESSAGES_PER_CALL", "2")];
    let worker = worker(&shop, &api, &[], &settings);
    let begun = async {
        while api.events().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), begun).await.expect("an invocation");
    worker.signal("-TERM");
    let (status, said) = worker.ended().await;
    assert_eq!((status, shop.counts(&shop.queue).await), (Some(0), [2, 0, 0]), "{said}");
    assert_eq!(calls(&api).len(), 2, "{said}");
}

/// Of ten messages one always makes the function throw.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_makes_the_function_throw_is_the_only_dead_letter() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let (shop, api) = (Shop::open(&server.url(), "invoked-poison").await, obeying().await);
    let policy = r#"{"maxRetries": 0, "jitter": "none", "circuitBreaker": "off",
        "errorConfigs": {"DEFAULT": {"backoff": [1]}}}"#;
    shop.send((0..10).map(|n| json!({ "n": n, "throw": n == 4 }).to_string()).collect()).await;
    let settings = [("REQUEUE_POLICY", policy)];
    let (status, said) = worker(&shop, &api, &["--drain"], &settings).ended().await;
    assert_eq!((status, shop.counts(&shop.queue).await), (Some(0), [0; 3]), "{said}");
    assert_eq!(shop.dead().await, BTreeMap::from([(4, 1)]), "{said}");
    let calls = calls(&api);
    assert_eq!(calls.len(), 10, "{calls:?}");
    assert!(calls.values().all(|count| *count <= 3), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_worker_waits_for_the_port_of_a_function() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "invoked-at-once").await;
    let settings = [("REQUEUE_TARGET_URL", ""), ("REQUEUE_TARGET_FUNCTION", "orders")];
    let (status, said) = shop.worker(&["--wait-for-target", "5s"], &settings).ended().await;
    assert!(status == Some(1) && said.contains("names a function; remove the option"), "{said}");
}

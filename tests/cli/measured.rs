//! What `requeue schedule` foretells is what happens: a message that always fails is worked on by the processor itself, in an
//! embedded queue and in virtual time, and what SQS was asked is counted there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use requeue::embedded::{Answer, EmbeddedSqs, EventSourceMapping};
use requeue::policy::RetryPolicy;
use requeue::queue::SqsQueue;
use requeue::{BatchProcessor, Clock, DeadLetterMode, Failure, Message, Raw, Sampler, Settings, SqsEvent, respond};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::run::requeue_reading;

const VISIBILITY: Duration = Duration::from_secs(360);

/// What happened to one message of class quota, with the names of the JSON; and its age when it was last called, in seconds.
async fn live(document: &str, dead_letter: DeadLetterMode, max_receive_count: u64) -> (Value, u64) {
    let clock = Clock::starting_at(std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let sqs = EmbeddedSqs::new(clock.clone());
    let dead_letters = sqs.create_queue("dlq", []).unwrap();
    let redrive = json!({ "deadLetterTargetArn": dead_letters.to_string(), "maxReceiveCount": max_receive_count });
    let redrive = redrive.to_string();
    let visibility = VISIBILITY.as_secs().to_string();
    let queue = [("VisibilityTimeout", visibility.as_str()), ("RedrivePolicy", &redrive)];
    let queue = sqs.create_queue("orders", queue).unwrap();
    sqs.client().send_message().queue_url(queue.url()).message_body("{}").send().await.unwrap();

    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Message<Raw>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Err::<(), Failure>(Failure::quota("used up")) }
    };
    let policy: RetryPolicy = document.parse().unwrap();
    let settings = Settings { policy, clock, sampler: Sampler::always(0.5), dead_letter, ..Settings::default() };
    let processor = BatchProcessor::new(handler, SqsQueue::new(&sqs.client()), settings);
    let mapping = EventSourceMapping::new(sqs.clone(), queue.clone(), 1);
    let (started, mut last_call, mut receives) = (Instant::now(), 0, 0);
    while !sqs.messages(&queue).unwrap().is_empty() {
        let Some(batch) = mapping.poll(Duration::from_secs(20)).await.unwrap() else { continue };
        let (age, called) = (started.elapsed(), calls.load(Ordering::Relaxed));
        receives += 1;
        let event: SqsEvent = serde_json::from_value(batch.event(&queue)).unwrap();
        let report = processor.process(event.records.unwrap(), Instant::now() + Duration::from_secs(60)).await;
        if calls.load(Ordering::Relaxed) > called {
            last_call = age.as_secs();
        }
        let answer = Answer::Response(serde_json::to_vec(&respond(&report).unwrap()).unwrap());
        mapping.acknowledge(&batch, &answer).unwrap();
    }
    let happened = json!({
        "receives": receives,
        "sends": sqs.call_count("SendMessage") + sqs.call_count("SendMessageBatch"),
        "deletes": sqs.call_count("DeleteMessageBatch"),
        "visibilityChanges": sqs.call_count("ChangeMessageVisibilityBatch"),
        "handlerCalls": calls.load(Ordering::Relaxed),
    });
    (happened, last_call)
}

#[tokio::test(start_paused = true)]
async fn what_is_foretold_is_what_happens() {
    let documents = [
        r#"{"preset": "critical"}"#,
        r#"{"maxRetries": 3, "errorConfigs": {"QUOTA": {"backoff": [900, 901, 3600], "jitter": "none"}}}"#,
        r#"{"maxRetries": 9, "jitter": "decorrelated", "totalTimeoutSeconds": 4000}"#,
        r#"{"maxRetries": 0}"#,
        r#"{"messageTtlSeconds": 500}"#,
    ];
    let modes = [("redrive", DeadLetterMode::Redrive), ("annotate", DeadLetterMode::Annotate)];
    for document in documents {
        for (name, mode) in &modes {
            for max_receive_count in [1, 5, 12] {
                let count = max_receive_count.to_string();
                let options = ["schedule", "-", "--json", "--dead-letter", name, "--max-receive-count", &count];
                let schedule: Value = serde_json::from_str(&requeue_reading(document, &options).succeeded()).unwrap();
                let quota =
                    schedule["classes"].as_array().unwrap().iter().find(|class| class["class"] == "quota").unwrap();
                let foretold = &quota["requests"]["median"];
                let (happened, last_call) = live(document, mode.clone(), max_receive_count).await;
                let at = format!("{document} {name} {max_receive_count}");
                for (what, times) in happened.as_object().unwrap() {
                    assert_eq!(&foretold[what], times, "{at}: {what} of {happened} and {foretold}");
                }
                let end = &quota["end"]["median"];
                if end["reason"] != "expired" && end["afterRetries"] != 0 {
                    let foretold = end["ageSeconds"].as_u64().unwrap();
                    assert!(last_call.abs_diff(foretold) <= 1, "{at}: {last_call} {foretold}");
                }
            }
        }
    }
}

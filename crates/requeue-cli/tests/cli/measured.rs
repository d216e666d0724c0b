//! What `requeue schedule` foretells is what happens: a message that always fails is worked on by
//! the processor itself, in an embedded queue and in virtual time, and what SQS was asked is
//! counted there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use requeue::embedded::{EmbeddedSqs, EventSourceMapping, InvocationResult};
use requeue::queue::SqsQueue;
use requeue::{
    BatchProcessor, Clock, DeadLetterMode, Failure, Message, Raw, RecursiveLoop, Sampler, Settings,
    SqsEvent, Strategy, respond,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::run::requeue_reading;

const VISIBILITY: Duration = Duration::from_secs(360);
/// Shorter than any wait that it shall tell from none.
const POLL: Duration = Duration::from_secs(5);

/// The settings of the function and of the queue.
struct Setting<'a> {
    document: &'a str,
    strategy: Strategy,
    dead_letter: &'a str,
    max_receive_count: u64,
    failure: &'a Failure,
}

/// The counts of one message, with the names of the JSON, and its age in seconds at its end.
async fn live(setting: &Setting<'_>) -> (Value, u64, u64) {
    let Setting { document, strategy, max_receive_count, failure, .. } = *setting;
    let clock = Clock::starting_at(std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let sqs = EmbeddedSqs::new(clock.clone());
    let dead_letters = sqs.create_queue("dlq", []).unwrap();
    let redrive = json!({ "deadLetterTargetArn": dead_letters.to_string(), "maxReceiveCount": max_receive_count });
    let redrive = redrive.to_string();
    let visibility = VISIBILITY.as_secs().to_string();
    let queue = [("VisibilityTimeout", visibility.as_str()), ("RedrivePolicy", &redrive)];
    let queue = sqs.create_queue("orders", queue).unwrap();
    sqs.client().send_message().queue_url(queue.url()).message_body("{}").send().await.unwrap();

    let dead_letter = match setting.dead_letter {
        "redrive" => DeadLetterMode::Redrive,
        "annotate" => DeadLetterMode::Annotate,
        _ => DeadLetterMode::Direct(dead_letters.url().parse().unwrap()),
    };
    let (calls, failure) = (Arc::new(AtomicU64::new(0)), failure.clone());
    let counted = Arc::clone(&calls);
    let handler = move |_: Message<Raw>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let failure = failure.clone();
        async { Err::<(), Failure>(failure) }
    };
    let mut settings = Settings::default();
    settings.policy = document.parse().unwrap();
    // In an outage, a failure uses no retry.
    settings.policy.circuit_breaker = None;
    settings.sampler = Sampler::always(0.5);
    settings.strategy = strategy;
    settings.recursive_loop = RecursiveLoop::Allow;
    settings.dead_letter = Some(dead_letter);
    let processor = BatchProcessor::new(handler, SqsQueue::new(&sqs.client()), settings);
    let mapping = EventSourceMapping::new(sqs.clone(), queue.clone(), 1);
    let (started, mut last_call, mut receives) = (Instant::now(), 0, 0);
    while !sqs.messages(&queue).unwrap().is_empty() {
        let Some(batch) = mapping.poll(POLL).await.unwrap() else { continue };
        let (age, called) = (started.elapsed(), calls.load(Ordering::Relaxed));
        receives += 1;
        let event: SqsEvent = serde_json::from_value(batch.event(&queue)).unwrap();
        let report = processor
            .process(event.records.unwrap(), Instant::now() + Duration::from_secs(60))
            .await;
        if calls.load(Ordering::Relaxed) > called {
            last_call = age.as_secs();
        }
        let answer =
            InvocationResult::Response(serde_json::to_vec(&respond(&report).unwrap()).unwrap());
        mapping.acknowledge(&batch, &answer).unwrap();
    }
    let happened = json!({
        "receives": receives,
        "sends": sqs.call_count("SendMessage") + sqs.call_count("SendMessageBatch"),
        "deletes": sqs.call_count("DeleteMessageBatch"),
        "visibilityChanges": sqs.call_count("ChangeMessageVisibilityBatch"),
        "handlerCalls": calls.load(Ordering::Relaxed),
    });
    assert_eq!(sqs.messages(&dead_letters).unwrap().len(), 1);
    (happened, last_call, started.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_is_foretold_is_what_happens() {
    let documents = [
        r#"{"preset": "critical"}"#,
        r#"{"maxRetries": 3, "errorConfigs": {"QUOTA": {"backoff": [900, 901, 3600], "jitter": "none"}}}"#,
        r#"{"maxRetries": 9, "jitter": "decorrelated", "totalTimeoutSeconds": 4000}"#,
        r#"{"maxRetries": 6, "errorConfigs": {"QUOTA": {"maxRetries": 2}}}"#,
        r#"{"maxRetries": 1, "jitter": "none", "errorConfigs": {"QUOTA": {"backoff": [50000], "maxDelay": 50000}}}"#,
        r#"{"maxRetries": 0}"#,
        r#"{"maxRetries": 0, "messageTtlSeconds": 1000}"#,
        r#"{"messageTtlSeconds": 500}"#,
    ];
    let failures = [Failure::quota("used up"), Failure::non_retryable("no such account")];
    for document in documents {
        for (strategy, word) in [(Strategy::Copy, "copy"), (Strategy::Visibility, "visibility")] {
            for dead_letter in ["redrive", "annotate", "direct"] {
                for max_receive_count in [1, 5, 12] {
                    let count = max_receive_count.to_string();
                    let options = [
                        "--strategy",
                        word,
                        "--dead-letter",
                        dead_letter,
                        "--max-receive-count",
                        &count,
                    ];
                    let arguments = [&["schedule", "-", "--json"][..], &options].concat();
                    let schedule = requeue_reading(document, &arguments).succeeded();
                    let schedule: Value = serde_json::from_str(&schedule).unwrap();
                    for failure in &failures {
                        let setting =
                            Setting { document, strategy, dead_letter, max_receive_count, failure };
                        let at = format!("{document} {options:?} {}", failure.class());
                        compare(&schedule, &setting, &at).await;
                    }
                }
            }
        }
    }
}

async fn compare(schedule: &Value, setting: &Setting<'_>, at: &str) {
    let name = setting.failure.class().as_str();
    let class = schedule["classes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|class| class["class"] == name)
        .unwrap();
    let (happened, last_call, left) = live(setting).await;
    let foretold = &class["requests"]["median"];
    for (what, times) in happened.as_object().unwrap() {
        assert_eq!(&foretold[what], times, "{at}: {what} of {happened} and {foretold}");
    }
    let end = &class["end"]["median"];
    // Unless it has expired, or is called again after the end.
    if foretold["handlerCalls"].as_u64() == end["afterRetries"].as_u64().map(|retries| retries + 1)
    {
        let foretold = end["ageSeconds"].as_u64().unwrap();
        assert!(last_call.abs_diff(foretold) <= 1, "{at}: {last_call} {foretold}");
    }
    let foretold = end["ageInDeadLetterQueueSeconds"].as_u64().unwrap();
    assert!((foretold..=foretold + 1 + POLL.as_secs()).contains(&left), "{at}: {left} {foretold}");
}

//! What no client can make happen.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::retry::RetryConfig;
use requeue_sqs::Clock;

use http::{HeaderMap, header};
use requeue_sqs::Outgoing;

use crate::EmbeddedSqs;

#[tokio::test]
async fn a_clock_outside_of_what_a_date_header_can_say_ends_no_request() {
    let secs = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
    let early = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    for (time, said) in [
        (early, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (secs(253_402_300_800), "Fri, 31 Dec 9999 23:59:59 GMT"),
        (secs(u64::MAX / 1_000), "Fri, 31 Dec 9999 23:59:59 GMT"),
    ] {
        let sqs = EmbeddedSqs::new(Clock::starting_at(time));
        let refused = sqs.exchange(&HeaderMap::new(), b"", "").await.expect("it is answered");
        assert_eq!(refused.headers()[header::DATE], said, "{time:?}");
        let config = sqs.client_config().retry_config(RetryConfig::disabled()).build();
        let client = aws_sdk_sqs::Client::from_conf(config);
        client.list_queues().send().await.expect("it is answered");
    }
}

#[tokio::test]
async fn each_message_that_comes_into_a_queue_is_told_once() {
    let sqs = EmbeddedSqs::new(Clock::system());
    let dead_letters = sqs.create_queue("dlq.fifo", []).expect("a queue");
    let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":1}}"#);
    let attributes = [("RedrivePolicy", &*redrive), ("VisibilityTimeout", "0")];
    let queue = sqs.create_queue("jobs.fifo", attributes).expect("a queue");
    let (sender, told) = std::sync::mpsc::channel();
    sqs.on_arrival(move |queue, message| {
        sender.send(format!("{} to {queue}", message.body)).expect("the test listens");
    });
    for body in ["a", "a", "b"] {
        let attributes = BTreeMap::new();
        let mut message = Outgoing::new(body, &attributes);
        (message.group_id, message.deduplication_id) = (Some("g"), Some(body));
        sqs.put(&queue, &message).expect("a message");
    }
    let received = sqs.receive(&queue, 1, Duration::ZERO).await.expect("a message");
    assert_eq!(received[0].body.as_deref(), Some("a"));
    sqs.receive(&queue, 1, Duration::ZERO).await.expect("the next message");
    let told: Vec<String> = told.try_iter().collect();
    assert_eq!(told, ["a to jobs.fifo", "b to jobs.fifo", "a to dlq.fifo"]);
}

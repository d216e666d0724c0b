//! What no client can make happen.

use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::retry::RetryConfig;
use requeue_sqs::Clock;

use crate::EmbeddedSqs;
use crate::exchange::{ExchangeResult, Request};

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
        let refused =
            sqs.exchange(Request { target: "", trace: None, body: b"", endpoint: "" }).await;
        assert!(
            matches!(refused, ExchangeResult::Response(answer) if answer.date == said),
            "{time:?}"
        );
        let config = sqs.client_config().retry_config(RetryConfig::disabled()).build();
        let client = aws_sdk_sqs::Client::from_conf(config);
        client.list_queues().send().await.expect("it is answered");
    }
}

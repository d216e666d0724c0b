//! Events in the form of Lambda's poller.

use std::time::SystemTime;

use bytes::Bytes;

/// This many messages, sent now, each with a body of about this length.
pub fn event(count: usize, body_len: usize) -> Bytes {
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis();
    event_of(count, body_len, now)
}

/// As [`event`], sent at this time in milliseconds since the epoch.
pub fn event_of(count: usize, body_len: usize, sent: u128) -> Bytes {
    let records: Vec<String> = (0..count).map(|n| record(n, body_len, sent)).collect();
    Bytes::from(format!(r#"{{"Records":[{}]}}"#, records.join(",")))
}

/// The first digits of each message id.
const ID: &str = "059f36b4";

/// The same event with messages of other ids. A message that comes again is one that was settled.
pub fn renewed(event: &Bytes, round: u32) -> Bytes {
    let event = std::str::from_utf8(event).expect("the event is a text");
    Bytes::from(event.replace(ID, &format!("{round:08x}")))
}

fn record(n: usize, body_len: usize, sent: u128) -> String {
    let filler = "x".repeat(body_len.saturating_sub(20));
    let body = serde_json::Value::from(format!(r#"{{"n":{n},"text":"{filler}"}}"#));
    let receipt_handle = format!("{}{n:08}", "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a".repeat(5));
    format!(
        r#"{{"messageId":"{ID}-87a3-44ab-83d2-{n:012}","receiptHandle":"{receipt_handle}","body":{body},
"attributes":{{"ApproximateReceiveCount":"1","SentTimestamp":"{sent}","SenderId":"AIDAIENQZJOLO23YVJ4VO","ApproximateFirstReceiveTimestamp":"{sent}"}},
"messageAttributes":{{}},"md5OfBody":"e4e68fb7bd0e697a0ae8f1bb342846b3","eventSource":"aws:sqs",
"eventSourceARN":"arn:aws:sqs:us-east-1:123456789012:orders","awsRegion":"us-east-1"}}"#
    )
}

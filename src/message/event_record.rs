//! A message as a record of an SQS event, as if SQS had delivered it again. It edits the received
//! record, and without one uses the message's own fields.

use std::collections::BTreeMap;
use std::time::SystemTime;

use requeue_sqs::digest;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::Message;
use crate::clock::epoch_millis;
use crate::trace;

/// The members of a JSON object, with their values as they came.
type RecordMembers = BTreeMap<String, Box<RawValue>>;

pub(super) fn write<T>(message: &Message<T>) -> String {
    let delivery = &message.delivery;
    let mut record = delivery.event.as_deref().map(members).unwrap_or_default();
    let mut system =
        record.remove("attributes").map(|system| members(system.get())).unwrap_or_default();
    if delivery.state.original_message_id.is_some() {
        // The fields of the first delivery replace those of the copy.
        for name in ["body", "md5OfBody"] {
            record.remove(name);
        }
        for name in ["SentTimestamp", "ApproximateFirstReceiveTimestamp", "AWSTraceHeader"] {
            system.remove(name);
        }
        if let Some(header) = delivery.state.traceparent.as_deref().and_then(trace::to_header) {
            set(&mut system, "AWSTraceHeader", header);
        }
    }
    let receives = delivery.state.retry_count.saturating_add(delivery.receive_count);
    set(&mut system, "ApproximateReceiveCount", receives.to_string());
    set(&mut system, "RequeueMessageId", message.id().unwrap_or_default());
    set(&mut system, "RequeueAttempt", message.attempt().to_string());
    set(&mut system, "RequeueLastAttempt", message.is_last_attempt().to_string());
    add(&mut system, "SentTimestamp", || millis(delivery.first_sent));
    add(&mut system, "ApproximateFirstReceiveTimestamp", || millis(delivery.first_received));
    if let Some(group) = message.group_id() {
        add(&mut system, "MessageGroupId", || group);
    }

    set(&mut record, "messageId", message.idempotency_key());
    set(&mut record, "attributes", system);
    let handle = delivery.receipt_handles.first();
    set(&mut record, "receiptHandle", handle.map(String::as_str).unwrap_or_default());
    add(&mut record, "body", || delivery.payload());
    add(&mut record, "md5OfBody", || digest::of_body(delivery.payload()));
    add(&mut record, "messageAttributes", || {
        let attributes = message.attributes().iter();
        attributes.map(|(name, attribute)| (name, attribute.in_event())).collect::<BTreeMap<_, _>>()
    });
    add(&mut record, "eventSource", || "aws:sqs");
    if let Some(queue) = message.queue() {
        add(&mut record, "eventSourceARN", || queue.to_string());
        add(&mut record, "awsRegion", || queue.region());
    }
    serde_json::to_string(&record).expect("JSON values are JSON")
}

/// Empty if the text is no object.
fn members(json: &str) -> RecordMembers {
    serde_json::from_str(json).unwrap_or_default()
}

fn set(members: &mut RecordMembers, name: &str, value: impl Serialize) {
    let value = to_raw_value(&value).expect("texts and maps of texts are JSON");
    members.insert(name.to_owned(), value);
}

/// Sets a member that is missing.
fn add<V: Serialize>(members: &mut RecordMembers, name: &str, value: impl FnOnce() -> V) {
    if !members.contains_key(name) {
        set(members, name, value());
    }
}

fn millis(time: SystemTime) -> String {
    epoch_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use crate::SqsEvent;
    use crate::clock::from_epoch_millis;
    use crate::delivery::{Decoder, Delivery};
    use crate::message::Raw;
    use crate::queue::{Attribute, AttributeValue, Record};

    fn message(record: Record, max_retries: u32) -> Message {
        let received = from_epoch_millis(1_778_580_100_000);
        let delivery = Delivery::decode(0, record, received, &Decoder::default());
        let (deadline, sample) = (Instant::now(), 0.5);
        Message::<Raw>::new(&Arc::new(delivery), max_retries, deadline, sample).expect("a text")
    }

    fn written(record: &Value, max_retries: u32) -> Value {
        let event = json!({ "Records": [record] }).to_string();
        let [record] = <[Record; 1]>::try_from(
            SqsEvent::with_texts(&event).expect("JSON").records.expect("some"),
        )
        .expect("one record");
        serde_json::from_str(&message(record, max_retries).to_event_record()).expect("JSON")
    }

    /// The record with other values at these JSON pointers. A null removes the member.
    fn with(record: &Value, changes: &[(&str, Value)]) -> Value {
        let mut record = record.clone();
        for (pointer, value) in changes {
            let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
            let parent = record.pointer_mut(parent).and_then(Value::as_object_mut);
            let parent = parent.expect("an object");
            if value.is_null() {
                parent.remove(name);
            } else {
                parent.insert(name.to_owned(), value.clone());
            }
        }
        record
    }

    fn fresh() -> Value {
        json!({
            "messageId": "m-1",
            "receiptHandle": "handle",
            "body": "{\"id\":\"o-1\"}",
            "attributes": {
                "ApproximateReceiveCount": "1",
                "AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
                "SentTimestamp": "1778580000000",
                "SenderId": "AIDAEXAMPLEPRODUCER01:session",
                "ApproximateFirstReceiveTimestamp": "1778580000012",
                "NewAttribute": "new",
            },
            "messageAttributes": {
                "tenant": {
                    "stringValue": "acme", "stringListValues": [], "binaryListValues": [],
                    "dataType": "String",
                },
                "picture": {
                    "binaryValue": "AAEC/w==", "stringListValues": [], "binaryListValues": [],
                    "dataType": "Binary.png",
                },
            },
            "md5OfMessageAttributes": "kept",
            "md5OfBody": "a digest of SQS",
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:orders",
            "awsRegion": "eu-west-1",
            "newField": {"number": 1.0},
        })
    }

    /// The body and the attributes of a copy of [`fresh`], two retries later.
    const COPY: &str = r#"{"id":"o-1","retryCount":2,"originalMessageId":"m-1","retryTimestamp":"2026-05-12T10:01:00.000Z","retryState":{"v":1,"firstSent":1778580000000,"firstReceived":1778580000012,"class":"temporary","traceparent":"00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"}}"#;

    fn numbered(id: &str, attempt: &str, is_last: &str) -> [(&'static str, Value); 3] {
        [
            ("/attributes/RequeueMessageId", id.into()),
            ("/attributes/RequeueAttempt", attempt.into()),
            ("/attributes/RequeueLastAttempt", is_last.into()),
        ]
    }

    #[test]
    fn a_first_delivery_is_unchanged_but_for_its_attempt() {
        assert_eq!(written(&fresh(), 50), with(&fresh(), &numbered("m-1", "1", "false")));
        assert_eq!(written(&fresh(), 0), with(&fresh(), &numbered("m-1", "1", "true")));
    }

    #[test]
    fn a_copy_is_the_first_delivery_received_once_more_for_each_retry() {
        let copy = with(
            &fresh(),
            &[
                ("/messageId", "m-2".into()),
                ("/receiptHandle", "another handle".into()),
                ("/body", COPY.into()),
                ("/md5OfBody", "a digest of the copy".into()),
                ("/attributes/ApproximateReceiveCount", "2".into()),
                ("/attributes/SentTimestamp", "1778580060000".into()),
                ("/attributes/ApproximateFirstReceiveTimestamp", "1778580061000".into()),
                ("/attributes/AWSTraceHeader", "Root=1-of-the-copy".into()),
            ],
        );
        let expected = with(
            &fresh(),
            &[
                ("/receiptHandle", "another handle".into()),
                ("/md5OfBody", "8ee379cbdd0224058b41dced7896d834".into()),
                ("/attributes/ApproximateReceiveCount", "4".into()),
            ],
        );
        assert_eq!(written(&copy, 50), with(&expected, &numbered("m-2", "3", "false")));
        assert_eq!(
            written(&copy, 2)["attributes"]["RequeueLastAttempt"],
            "true",
            "by the policy's retries"
        );
    }

    #[test]
    fn receives_count_once_where_they_are_the_retries() {
        let fifo = with(
            &fresh(),
            &[
                ("/eventSourceARN", "arn:aws:sqs:eu-west-1:123456789012:orders.fifo".into()),
                ("/attributes/ApproximateReceiveCount", "3".into()),
                ("/attributes/MessageGroupId", "customer-7".into()),
                ("/attributes/MessageDeduplicationId", "d-1".into()),
                ("/attributes/SequenceNumber", "18".into()),
            ],
        );
        assert_eq!(written(&fifo, 2), with(&fifo, &numbered("m-1", "3", "true")));
    }

    #[test]
    fn what_a_record_lacks_comes_from_the_message() {
        let mut record = Record::default();
        record.message_id = Some("m-1".to_owned());
        record.receipt_handle = Some("handle".to_owned());
        record.body = Some("text".to_owned());
        record.queue = "arn:aws:sqs:eu-west-1:123456789012:orders".parse().ok().map(Arc::new);
        record.receive_count = Some(2);
        record.sent = Some(from_epoch_millis(1_778_580_000_000));
        record.first_received = Some(from_epoch_millis(1_778_580_000_012));
        record.group_id = Some("tenant-7".to_owned());
        let picture = Attribute {
            data_type: "Binary".to_owned(),
            value: AttributeValue::Binary(vec![0, 255]),
        };
        let attributes = [("tenant", Attribute::text("acme")), ("picture", picture)];
        record.attributes =
            Some(attributes.map(|(name, attribute)| (name.to_owned(), attribute)).into());
        let system = json!({"attributes": {"SenderId": "AIDAEXAMPLEPRODUCER01:session"}});
        record.event = Some(system.to_string().into());
        let written: Value =
            serde_json::from_str(&message(record, 50).to_event_record()).expect("JSON");
        let lists = json!({"stringListValues": [], "binaryListValues": []});
        let attribute = |own: Value| {
            let mut attribute = lists.clone();
            let members = own.as_object().expect("an object").clone();
            attribute.as_object_mut().expect("an object").extend(members);
            attribute
        };
        let expected = json!({
            "messageId": "m-1",
            "receiptHandle": "handle",
            "body": "text",
            "md5OfBody": "1cb251ec0d568de6a929b520c4aed8d1",
            "attributes": {
                "ApproximateReceiveCount": "2",
                "SentTimestamp": "1778580000000",
                "ApproximateFirstReceiveTimestamp": "1778580000012",
                "SenderId": "AIDAEXAMPLEPRODUCER01:session",
                "MessageGroupId": "tenant-7",
                "RequeueMessageId": "m-1",
                "RequeueAttempt": "1",
                "RequeueLastAttempt": "false",
            },
            "messageAttributes": {
                "tenant": attribute(json!({"stringValue": "acme", "dataType": "String"})),
                "picture": attribute(json!({"binaryValue": "AP8=", "dataType": "Binary"})),
            },
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:orders",
            "awsRegion": "eu-west-1",
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn a_record_without_an_id_gets_one_that_no_other_has() {
        let nameless = with(&fresh(), &[("/messageId", Value::Null)]);
        let written = written(&nameless, 50);
        let id = written["messageId"].as_str().expect("a text");
        assert!(id.starts_with("no-id-0-"), "{id}");
        assert_eq!(written["attributes"]["RequeueMessageId"], "");
    }

    #[test]
    fn an_event_of_a_pipe_and_a_strange_one_keep_their_records() {
        let records = json!([fresh(), with(&fresh(), &[("/messageId", "m-2".into())])]);
        let of_pipe = records.to_string();
        let twice = format!(r#"{{"Records": [], "Records": {records}}}"#);
        let spaced = format!("{{ \"other\": 1, \"Records\" :\n{records} }}");
        for (event, has_texts) in [(of_pipe, true), (spaced, true), (twice, false)] {
            let records = SqsEvent::with_texts(&event).expect("JSON").records.expect("some");
            assert_eq!(records.len(), 2, "{event}");
            for (record, id) in records.into_iter().zip(["m-1", "m-2"]) {
                assert_eq!(record.event.is_some(), has_texts, "{event}");
                let written = message(record, 50).to_event_record();
                let written: Value = serde_json::from_str(&written).expect("JSON");
                assert_eq!(written["messageId"], id);
                assert_eq!(written.get("newField").is_some(), has_texts);
                assert_eq!(written["messageAttributes"], fresh()["messageAttributes"]);
            }
        }
    }
}

//! Any bytes as an event: `tests/fuzz event`. Held against `serde_json`'s own values, and then
//! worked on as a batch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use tokio::runtime::Builder;

use super::*;
use crate::clock::{Clock, Sampler, from_epoch_millis};
use crate::failure::Failure;
use crate::message::Message;
use crate::queue::Record;
use crate::queue::{
    Attribute, AttributeValue, CallError, Confirmation, MAX_BATCH_ENTRIES, Outgoing, QueueArn,
};
use crate::report::{Outcome, Settlement};
use crate::settings::Settings;
use crate::wire;

const CAP: u32 = 50;

#[test]
fn any_event_is_read_as_by_others_and_every_record_accounted_for() {
    bolero::check!(name = "event").with_iterations(500).for_each(|input: &[u8]| {
        let event = serde_json::from_slice::<SqsEvent>(input);
        let text = String::from_utf8_lossy(input);
        // This name has a meaning of its own for `Value`.
        if let Ok(value) = serde_json::from_slice::<Value>(input)
            && !text.contains("$serde_json::private")
        {
            assert_read_as(event.as_ref().expect("others can read it"), &value);
        }
        if let Some(records) = event.ok().and_then(|event| event.records) {
            assert_accounted_for(records);
        }
    });
}

/// All that a record says.
#[derive(Debug, PartialEq)]
struct Facts {
    texts: [Option<String>; 5],
    receive_count: Option<u32>,
    times: [Option<SystemTime>; 2],
    was_dead_lettered: bool,
    attributes: Option<BTreeMap<String, Attribute>>,
}

impl Facts {
    fn of(record: Record) -> Self {
        let queue = record.queue.map(|queue| queue.to_string());
        Self {
            texts: [record.message_id, record.receipt_handle, record.body, record.group_id, queue],
            receive_count: record.receive_count,
            times: [record.sent, record.first_received],
            was_dead_lettered: record.was_dead_lettered,
            attributes: record.attributes,
        }
    }

    /// What is not there, or of another kind, is `null` here.
    fn expected(record: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let system = &record["attributes"];
        let millis = |name| {
            system[name].as_str().and_then(|millis| millis.parse().ok()).map(from_epoch_millis)
        };
        let arn = text(&record["eventSourceARN"]).filter(|arn| arn.parse::<QueueArn>().is_ok());
        let [id, handle, body] =
            ["messageId", "receiptHandle", "body"].map(|name| text(&record[name]));
        Self {
            texts: [id, handle, body, text(&system["MessageGroupId"]), arn],
            receive_count: system["ApproximateReceiveCount"]
                .as_str()
                .and_then(|count| count.parse().ok()),
            times: ["SentTimestamp", "ApproximateFirstReceiveTimestamp"].map(millis),
            was_dead_lettered: system["DeadLetterQueueSourceArn"].is_string(),
            attributes: match record.get("messageAttributes") {
                None | Some(Value::Null) => Some(BTreeMap::new()),
                Some(Value::Object(attributes)) => attributes
                    .iter()
                    .map(|(name, value)| Some((name.clone(), attribute(value)?)))
                    .collect(),
                Some(_) => None,
            },
        }
    }
}

fn attribute(value: &Value) -> Option<Attribute> {
    let data_type = value["dataType"].as_str()?;
    let value = match data_type.split('.').next() {
        Some("Binary") => {
            AttributeValue::Binary(BASE64.decode(value["binaryValue"].as_str()?).ok()?)
        }
        _ => AttributeValue::Text(value["stringValue"].as_str()?.to_owned()),
    };
    Some(Attribute { data_type: data_type.to_owned(), value })
}

fn facts(event: &SqsEvent) -> Option<Vec<Facts>> {
    Some(event.records.clone()?.into_iter().map(Facts::of).collect())
}

fn is_foreign(record: &Value) -> bool {
    let source = record.get("eventSource").or(record.get("EventSource")).and_then(Value::as_str);
    source.is_some_and(|source| {
        source == "SelfManagedKafka" || (source.starts_with("aws:") && source != "aws:sqs")
    })
}

fn assert_read_as(event: &SqsEvent, value: &Value) {
    let is_message =
        |record: &&Value| record["messageId"].is_string() || record["body"].is_string();
    let list = value.as_array().filter(|list| list.iter().any(|record| is_message(&record)));
    let expected = value["Records"]
        .as_array()
        .or(list)
        .filter(|records| records.is_empty() || !records.iter().all(is_foreign))
        .map(|records| records.iter().map(Facts::expected).collect::<Vec<_>>());
    let printed_anew: SqsEvent = serde_json::from_str(&value.to_string()).expect("it was JSON");
    assert_eq!(facts(&printed_anew), expected);
    // A broken attribute is not forgotten when its name occurs again, which a value does not tell.
    let mut found = facts(event);
    for (found, expected) in found.iter_mut().flatten().zip(expected.iter().flatten()) {
        if found.attributes.is_none() {
            found.attributes.clone_from(&expected.attributes);
        }
    }
    assert_eq!(found, expected);
}

/// A queue that confirms everything.
#[derive(Clone, Default)]
struct Willing {
    sent: Arc<Mutex<Vec<String>>>,
}

impl Queue for Willing {
    async fn send(
        &self,
        _: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        assert!((1..=MAX_BATCH_ENTRIES).contains(&entries.len()));
        assert!(entries.iter().all(|entry| entry.delay.as_secs() <= 900));
        self.sent
            .lock()
            .expect("no panic")
            .extend(entries.iter().map(|entry| entry.body.to_owned()));
        Ok(vec![Ok(()); entries.len()])
    }

    async fn delete(
        &self,
        _: &QueueArn,
        receipt_handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        assert!((1..=MAX_BATCH_ENTRIES).contains(&receipt_handles.len()));
        Ok(vec![Ok(()); receipt_handles.len()])
    }

    async fn change_visibility(
        &self,
        _: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        assert!((1..=MAX_BATCH_ENTRIES).contains(&entries.len()));
        Ok(vec![Ok(()); entries.len()])
    }
}

/// Does what the first letter of the body says, and notes the bodies of which it said that they are
/// done.
#[derive(Clone, Default)]
struct Moody {
    seen: Arc<Mutex<Vec<String>>>,
    done: Arc<Mutex<usize>>,
}

impl Handler for Moody {
    type Error = Failure;

    async fn handle(&self, message: Message) -> Result<(), Failure> {
        let body = message.body().to_string();
        let mood = body.bytes().find(u8::is_ascii_alphanumeric).unwrap_or_default() % 8;
        self.seen.lock().expect("no panic").push(body);
        match mood {
            0 => Err(Failure::temporary("down")),
            1 => Err(Failure::rate_limit("too fast").retry_after(Duration::from_secs(90))),
            2 => Err(Failure::quota("too much")),
            3 => Err(Failure::non_retryable("nonsense")),
            4 => Err(Failure::postpone(Duration::from_hours(1))),
            5 => panic!("a bug"),
            _ => {
                *self.done.lock().expect("no panic") += 1;
                Ok(())
            }
        }
    }
}

/// Each message is done, or sent again, or named in the response; and no body is told to the
/// handler, or sent, that was not delivered.
fn assert_accounted_for(records: Vec<Record>) {
    let of_record = |record: &Record| {
        Some((record.message_id.clone().filter(|id| !id.is_empty())?, record.queue.clone()))
    };
    let delivered: BTreeSet<(String, Option<Arc<QueueArn>>)> =
        records.iter().filter_map(of_record).collect();
    let bodies = records.iter().filter_map(|record| record.body.as_deref());
    let payloads: BTreeSet<String> =
        bodies.map(|body| wire::read(body, CAP).payload.into_owned()).collect();
    let (handler, queue) = (Moody::default(), Willing::default());
    let report = in_virtual_time(handler.clone(), queue.clone(), records);

    let sent = queue.sent.lock().expect("no panic");
    let count = |settled: fn(&Settlement) -> bool| {
        report.outcomes.iter().filter(|it| settled(&it.settlement)).count()
    };
    assert_eq!(
        count(|settlement| *settlement == Settlement::Done),
        *handler.done.lock().expect("no panic")
    );
    assert_eq!(
        count(|settlement| matches!(
            settlement,
            Settlement::Moved | Settlement::MovedNotDeleted { .. }
        )),
        sent.len()
    );
    let of_outcome = |outcome: &Outcome| Some((outcome.message_id.clone()?, outcome.queue.clone()));
    let reported: Vec<_> = report.outcomes.iter().filter_map(of_outcome).collect();
    assert_eq!(reported.iter().cloned().collect::<BTreeSet<_>>(), delivered);
    assert_eq!(reported.len(), delivered.len(), "each once");
    match respond(&report) {
        Ok(response) => {
            let named =
                response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str());
            let kept = report
                .outcomes
                .iter()
                .filter(|it| it.settlement.is_kept())
                .filter_map(|it| it.message_id.as_deref());
            assert!(named.eq(kept));
        }
        Err(_) => assert!(
            report.outcomes.iter().any(|it| it.settlement.is_kept() && it.message_id.is_none())
        ),
    }
    for body in sent.iter() {
        let read = wire::read(body, CAP);
        assert!(
            matches!(read.origin, wire::Origin::Ours(_)) && payloads.contains(&*read.payload),
            "{body:?}"
        );
    }
    assert!(handler.seen.lock().expect("no panic").iter().all(|body| payloads.contains(body)));
}

fn in_virtual_time(handler: Moody, queue: Willing, records: Vec<Record>) -> Report {
    let runtime =
        Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let clock = Clock::starting_at(from_epoch_millis(1_800_000_000_000));
        let settings =
            Settings { clock: Some(clock), sampler: Sampler::always(0.5), ..Settings::default() };
        let deadline = Instant::now() + Duration::from_secs(60);
        BatchProcessor::new(handler, queue, settings).process(records, deadline).await
    })
}

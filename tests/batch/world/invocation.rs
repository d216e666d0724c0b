//! Events, and the function's responses to them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use requeue::queue::{Attribute, AttributeValue};
use requeue::{InvocationError, Record, SqsBatchResponse, SqsEvent};
use serde_json::{Value, json};

/// The event as the library reads it.
pub fn records_of(event: &Value) -> Vec<Record> {
    serde_json::from_value::<SqsEvent>(event.clone()).unwrap().records.unwrap()
}

pub fn records(event: &Value) -> &[Value] {
    event["Records"].as_array().expect("an event")
}

/// One event of the records of several.
pub fn joined<const N: usize>(events: [&Value; N]) -> Value {
    json!({ "Records": events.map(records).concat() })
}

pub fn receive_count(record: &Value) -> Option<u32> {
    record["attributes"]["ApproximateReceiveCount"].as_str()?.parse().ok()
}

/// The message attributes of a record; what cannot be read is left out.
pub fn attributes(record: &Value) -> BTreeMap<String, Attribute> {
    let all = record["messageAttributes"].as_object().into_iter().flatten();
    let read = |(name, value): (&String, &Value)| {
        let data_type = value["dataType"].as_str()?.to_owned();
        let value = match value["binaryValue"].as_str() {
            Some(text) => {
                AttributeValue::Binary(base64::prelude::BASE64_STANDARD.decode(text).ok()?)
            }
            None => AttributeValue::Text(value["stringValue"].as_str()?.to_owned()),
        };
        Some((name.clone(), Attribute { data_type, value }))
    };
    all.filter_map(read).collect()
}

pub struct Invocation {
    pub answer: Result<SqsBatchResponse, InvocationError>,
    pub elapsed: Duration,
    /// The ids of the batch, each once.
    pub ids: Vec<String>,
    pub receipt_handles: Vec<String>,
}

impl Invocation {
    pub fn new(
        answer: Result<SqsBatchResponse, InvocationError>,
        elapsed: Duration,
        event: &Value,
    ) -> Self {
        let texts = |name: &str| -> Vec<String> {
            let texts = records(event).iter().filter_map(|record| record[name].as_str());
            texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
        };
        let mut ids = texts("messageId");
        let mut known = BTreeSet::new();
        ids.retain(|id| known.insert(id.clone()));
        let invocation = Self { answer, elapsed, ids, receipt_handles: texts("receiptHandle") };
        invocation.check();
        invocation
    }

    /// Every id is one of the batch, and occurs once.
    fn check(&self) {
        let Ok(response) = &self.answer else {
            return;
        };
        let batch: BTreeSet<&str> = self.ids.iter().map(String::as_str).collect();
        let mut listed = BTreeSet::new();
        for item in &response.batch_item_failures {
            assert!(batch.contains(item.item_identifier.as_str()), "a foreign id");
            assert!(listed.insert(&item.item_identifier), "an id occurs twice");
        }
    }

    /// The ids in `batchItemFailures`, in the order of the batch.
    pub fn failed(&self) -> Vec<&str> {
        let response = self.answer.as_ref().expect("the invocation succeeded");
        let listed: BTreeSet<&str> =
            response.batch_item_failures.iter().map(|item| item.item_identifier.as_str()).collect();
        let ids = self.ids.iter().map(String::as_str);
        ids.filter(|id| listed.contains(id)).collect()
    }

    /// The response as Lambda gets it.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let response = self.answer.as_ref().ok()?;
        Some(serde_json::to_vec(response).expect("JSON"))
    }
}

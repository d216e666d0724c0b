//! Reads the event of an SQS event source mapping, or of a pipe from a queue. It is lenient: a record
//! with a missing or broken field becomes a [`Record`] that lacks it, and never an error for the
//! other records.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::InvocationError;
use super::lenient::{Expected, InPlace, Lenient, LenientNumber, LenientText};
use crate::clock::from_epoch_millis;
use crate::queue::{Attribute, AttributeValue, QueueArn, Record};

/// Reads the members of an object by their names, and skips all others.
macro_rules! members {
    ($map:ident: $($member:ident $name:literal $($other_name:literal)* => $read:expr;)+) => {{
        #[derive(Deserialize)]
        enum Member {
            $(#[serde(rename = $name $(, alias = $other_name)*)] $member,)+
            #[serde(other)]
            Other,
        }
        while let Some(member) = $map.next_key()? {
            match member {
                $(Member::$member => $read,)+
                Member::Other => skip(&mut $map)?,
            }
        }
        Ok(())
    }};
}

/// The event that Lambda passes to a function for a batch of SQS messages. An event source mapping
/// sends an object with `Records`, and EventBridge Pipes sends the bare list of the records.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SqsEvent {
    /// The records; `None` if the event has none because it is of another kind.
    pub records: Option<Vec<Record>>,
    /// The service of an event that is not SQS's, by the names that only its events have.
    service: Option<&'static str>,
}

impl SqsEvent {
    /// The records.
    ///
    /// # Errors
    ///
    /// [`InvocationError::NoRecords`] if the event is not one of SQS, with its kind.
    pub fn into_records(self) -> Result<Vec<Record>, InvocationError> {
        self.records.ok_or(InvocationError::NoRecords { service: self.service })
    }

    /// Reads an event, and keeps the text of each record, for [`Message::to_event_record`] of a
    /// handler that [needs it](crate::Handler::needs_event).
    ///
    /// [`Message::to_event_record`]: crate::Message::to_event_record
    pub fn with_texts(event: &str) -> serde_json::Result<Self> {
        let mut read: Self = serde_json::from_str(event)?;
        let texts = texts(event);
        if let Some(records) = read.records.as_mut().filter(|records| records.len() == texts.len())
        {
            for (record, text) in records.iter_mut().zip(texts) {
                record.event = Some(text.get().into());
            }
        }
        Ok(read)
    }

    /// Notes the service of a member that only its events have.
    fn is_of<'de, A: MapAccess<'de>>(
        &mut self,
        service: &'static str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        self.service = self.service.or(Some(service));
        skip(map)
    }

    fn take(&mut self, Records { list, service }: Records) {
        self.records = list.filter(|_| service.is_none());
        self.service = self.service.or(service);
    }
}

impl<'de> Deserialize<'de> for SqsEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Lenient::<Self>::deserialize(deserializer).map(|event| event.0)
    }
}

impl Expected for SqsEvent {
    fn map<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        members! { map:
            Records "Records" => self.take(map.next_value::<Lenient<Records>>()?.0);
            // Of events that have their records elsewhere.
            EventSource "eventSource" => {
                let source = map.next_value::<Lenient<EventSource>>()?.0.0;
                self.service = self.service.or(source);
            };
            EventBridge "detail-type" => self.is_of("EventBridge", &mut map)?;
            Http "requestContext" "httpMethod" "routeKey" =>
                self.is_of("API Gateway, a load balancer or a function URL", &mut map)?;
            Logs "awslogs" => self.is_of("CloudWatch Logs", &mut map)?;
            Cognito "triggerSource" "identityPoolId" => self.is_of("Cognito", &mut map)?;
            Firehose "deliveryStreamArn" => self.is_of("Data Firehose", &mut map)?;
            Config "invokingEvent" => self.is_of("AWS Config", &mut map)?;
            CodePipeline "CodePipeline.job" => self.is_of("CodePipeline", &mut map)?;
            CloudFormation "ResourceProperties" => self.is_of("CloudFormation", &mut map)?;
        }
    }

    /// The form of EventBridge Pipes. Any list without a message is no event of SQS.
    fn list<'de, A: SeqAccess<'de>>(&mut self, list: A) -> Result<(), A::Error> {
        let mut records = Records::default();
        records.list(list)?;
        let is_message = |record: &Record| record.message_id.is_some() || record.body.is_some();
        if records.list.as_ref().is_some_and(|list| list.iter().any(is_message)) {
            self.take(records);
        } else {
            self.service = records.service;
        }
        Ok(())
    }
}

/// The text of each record; none of an event that names its records twice.
fn texts(event: &str) -> Vec<&RawValue> {
    #[derive(Deserialize)]
    struct Texts<'a> {
        #[serde(borrow, rename = "Records")]
        records: Vec<&'a RawValue>,
    }
    let of_object = serde_json::from_str(event).map(|Texts { records }| records);
    of_object.or_else(|_| serde_json::from_str(event)).unwrap_or_default()
}

/// A list of records. A value that is no object counts as a record without any field.
#[derive(Default)]
struct Records {
    list: Option<Vec<Record>>,
    /// Another service, if all of its records name it.
    service: Option<&'static str>,
}

impl Expected for Records {
    fn list<'de, A: SeqAccess<'de>>(&mut self, mut list: A) -> Result<(), A::Error> {
        let mut records = Vec::new();
        // All records of a batch come from one queue: its ARN is read and kept once.
        let mut known: Option<(String, Option<Arc<QueueArn>>)> = None;
        let mut service = None;
        loop {
            let mut loose = LooseRecord::default();
            if list.next_element_seed(InPlace(&mut loose))?.is_none() {
                break;
            }
            let LooseRecord { mut record, arn, source } = loose;
            service = Some(service.filter(Option::is_none).unwrap_or(source.0));
            if let Some(arn) = arn.0 {
                let queue = match &known {
                    Some((text, queue)) if *text == arn => queue.clone(),
                    _ => {
                        let queue = QueueArn::from_str(&arn).ok().map(Arc::new);
                        known = Some((arn, queue.clone()));
                        queue
                    }
                };
                record.queue = queue;
            }
            records.push(record);
        }
        (self.list, self.service) = (Some(records), service.flatten());
        Ok(())
    }
}

struct LooseRecord {
    record: Record,
    arn: LenientText,
    source: EventSource,
}

impl Default for LooseRecord {
    fn default() -> Self {
        Self {
            record: Record::empty(),
            arn: LenientText::default(),
            source: EventSource::default(),
        }
    }
}

impl Expected for LooseRecord {
    fn map<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        let record = &mut self.record;
        members! { map:
            MessageId "messageId" => record.message_id = text(&mut map)?;
            ReceiptHandle "receiptHandle" => record.receipt_handle = text(&mut map)?;
            Body "body" => record.body = text(&mut map)?;
            Attributes "attributes" => map.next_value_seed(InPlace(&mut SystemAttributes(record)))?;
            MessageAttributes "messageAttributes" =>
                record.attributes = map.next_value::<Lenient<MessageAttributes>>()?.0.0;
            EventSourceArn "eventSourceARN" => self.arn = map.next_value::<Lenient<LenientText>>()?.0;
            EventSource "eventSource" "EventSource" =>
                self.source = map.next_value::<Lenient<EventSource>>()?.0;
        }
    }
}

/// The attributes that SQS itself gives a message: all values are texts, times are milliseconds
/// since the epoch.
struct SystemAttributes<'a>(&'a mut Record);

impl Expected for SystemAttributes<'_> {
    fn map<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        members! { map:
            ReceiveCount "ApproximateReceiveCount" => self.0.receive_count = number(&mut map)?;
            Sender "SenderId" => self.0.sender = number(&mut map)?;
            Sent "SentTimestamp" => self.0.sent = number(&mut map)?.map(from_epoch_millis);
            FirstReceived "ApproximateFirstReceiveTimestamp" =>
                self.0.first_received = number(&mut map)?.map(from_epoch_millis);
            GroupId "MessageGroupId" => self.0.group_id = text(&mut map)?;
            TraceHeader "AWSTraceHeader" => self.0.trace_header = text(&mut map)?;
            DeadLetterSource "DeadLetterQueueSourceArn" => {
                let source = text(&mut map)?;
                self.0.was_dead_lettered = source.is_some();
                self.0.dead_letter_source = source.and_then(|arn| arn.parse().ok());
            };
        }
    }
}

/// All message attributes, or `None` when one of them cannot be read: a copy would lose it.
struct MessageAttributes(Option<BTreeMap<String, Attribute>>);

impl Default for MessageAttributes {
    fn default() -> Self {
        Self(Some(BTreeMap::new()))
    }
}

impl Expected for MessageAttributes {
    fn map<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, Lenient(loose))) =
            map.next_entry::<String, Lenient<LooseAttribute>>()?
        {
            match (loose.read(), &mut self.0) {
                (Some(attribute), Some(attributes)) => drop(attributes.insert(name, attribute)),
                _ => self.0 = None,
            }
        }
        Ok(())
    }

    fn other(&mut self) {
        self.0 = None;
    }
}

#[derive(Default)]
struct LooseAttribute {
    data_type: Option<String>,
    string_value: Option<String>,
    binary_value: Option<String>,
}

impl LooseAttribute {
    fn read(self) -> Option<Attribute> {
        let data_type = self.data_type?;
        let value = if data_type == "Binary" || data_type.starts_with("Binary.") {
            AttributeValue::Binary(BASE64.decode(self.binary_value?).ok()?)
        } else {
            AttributeValue::Text(self.string_value?)
        };
        Some(Attribute { data_type, value })
    }
}

impl Expected for LooseAttribute {
    fn map<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        members! { map:
            DataType "dataType" => self.data_type = text(&mut map)?;
            StringValue "stringValue" => self.string_value = text(&mut map)?;
            BinaryValue "binaryValue" => self.binary_value = text(&mut map)?;
        }
    }
}

fn text<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<String>, A::Error> {
    Ok(map.next_value::<Lenient<LenientText>>()?.0.0)
}

fn number<'de, N: FromStr, A: MapAccess<'de>>(map: &mut A) -> Result<Option<N>, A::Error> {
    Ok(map.next_value::<Lenient<LenientNumber<N>>>()?.0.0)
}

fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// The member `eventSource` of an event or of a record; SNS writes `EventSource`.
#[derive(Default)]
struct EventSource(Option<&'static str>);

/// Source: Lambda developer guide, the events of each service.
const SOURCES: [(&str, &str); 12] = [
    ("aws:sns", "SNS"),
    ("aws:s3", "S3"),
    ("aws:kinesis", "Kinesis"),
    ("aws:dynamodb", "DynamoDB Streams"),
    ("aws:ses", "SES"),
    ("aws:codecommit", "CodeCommit"),
    ("aws:cognito-sync", "Cognito"),
    ("aws:kafka", "Amazon MSK"),
    ("SelfManagedKafka", "Apache Kafka"),
    ("aws:mq", "Amazon MQ (ActiveMQ)"),
    ("aws:rmq", "Amazon MQ (RabbitMQ)"),
    ("aws:docdb", "DocumentDB"),
];

impl Expected for EventSource {
    fn text(&mut self, text: &str) {
        if text == "aws:sqs" {
            return;
        }
        let known = SOURCES.iter().find(|(source, _)| *source == text);
        let other = text.starts_with("aws:").then_some("another service of AWS");
        self.0 = known.map(|(_, service)| *service).or(other);
    }
}

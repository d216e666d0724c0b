//! The operations about messages, and the translation of messages from and to the wire.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use requeue_sqs::{Attribute, AttributeValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Answer, Context, Fields, with};
use crate::engine::batch::{Entry, EntryError, ReadEntry};
use crate::engine::error::SqsError;
use crate::engine::message::{Draft, Received, Sent, sequence_number};
use crate::engine::{Answered, Engine, Receive, digest, settings};
use crate::view::system_attributes;

/// The one system attribute that a sender may set. Source: reference, `SendMessage`.
const TRACE_HEADER: &str = "AWSTraceHeader";

/// The system attributes that a receive may ask for. Source: reference, `ReceiveMessage`.
const SYSTEM_ATTRIBUTES: &str = "\
    All ApproximateFirstReceiveTimestamp ApproximateReceiveCount AWSTraceHeader \
    DeadLetterQueueSourceArn MessageDeduplicationId MessageGroupId Policy SenderId SentTimestamp \
    SequenceNumber SqsManagedSseEnabled";

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct AttributeShape {
    data_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
}

/// `None` for an operation that SQS does not have.
pub(super) fn perform(
    operation: &str,
    engine: &mut Engine,
    mut asked: Fields,
    context: &Context<'_>,
) -> Result<Option<Value>, SqsError> {
    Ok(Some(match operation {
        "SendMessage" => {
            let queue = asked.queue()?;
            let draft = draft(asked, context)?;
            let digests = digests(&draft, context);
            sent(digests, engine.send(&queue, draft)?)
        }
        "SendMessageBatch" => send_batch(engine, asked, context)?,
        "DeleteMessage" => {
            let handle: String = asked.required("ReceiptHandle")?;
            engine.queue(&asked.queue()?)?.delete(&handle)?;
            json!({})
        }
        "DeleteMessageBatch" => batch(engine, operation, asked, context, |_, mut entry| {
            Ok(Entry::Delete { handle: entry.required("ReceiptHandle")? })
        })?,
        "ChangeMessageVisibility" => {
            let handle: String = asked.required("ReceiptHandle")?;
            let secs = asked.required("VisibilityTimeout")?;
            engine.queue(&asked.queue()?)?.change_visibility(&handle, secs)?;
            json!({})
        }
        "ChangeMessageVisibilityBatch" => {
            batch(engine, operation, asked, context, |_, mut entry| {
                let handle = entry.required("ReceiptHandle")?;
                Ok(Entry::ChangeVisibility { handle, secs: entry.required("VisibilityTimeout")? })
            })?
        }
        _ => return Ok(None),
    }))
}

fn send_batch(engine: &mut Engine, asked: Fields, context: &Context<'_>) -> Answer {
    let mut of_entries = BTreeMap::new();
    let read = |id: &str, fields| {
        let draft = draft(fields, context)?;
        of_entries.insert(id.to_owned(), digests(&draft, context));
        Ok(Entry::Send(draft))
    };
    batch(engine, "SendMessageBatch", asked, context, read).map(|mut answer| {
        for entry in answer["Successful"].as_array_mut().into_iter().flatten() {
            let digests = entry["Id"].as_str().and_then(|id| of_entries.remove(id));
            if let (Value::Object(entry), Some(Value::Object(digests))) = (entry, digests) {
                entry.extend(digests);
            }
        }
        answer
    })
}

pub(super) fn receive(
    engine: &mut Engine,
    mut asked: Fields,
) -> Result<Answered<Vec<u8>>, SqsError> {
    let how = Receive {
        max_messages: asked.optional("MaxNumberOfMessages")?,
        visibility_secs: asked.optional("VisibilityTimeout")?,
        wait_secs: asked.optional("WaitTimeSeconds")?,
    };
    let wanted = Wanted::of(&mut asked)?;
    let Answered { value, is_news, long_poll } = engine.receive(&asked.queue()?, how)?;
    let messages: Vec<Value> = value.into_iter().map(|received| wanted.shape(received)).collect();
    let messages = (!messages.is_empty()).then_some(Value::Array(messages));
    let value = with(json!({}), [("Messages", messages)]).to_string().into_bytes();
    Ok(Answered { value, is_news, long_poll })
}

fn batch(
    engine: &mut Engine,
    operation: &str,
    mut asked: Fields,
    context: &Context<'_>,
    mut read: impl FnMut(&str, Fields) -> Result<Entry, SqsError>,
) -> Answer {
    let queue = asked.queue()?;
    // Missing entries are refused like an empty batch.
    let entries: Vec<Map<String, Value>> = asked.optional("Entries")?.unwrap_or_default();
    let entries = entries.into_iter().map(|entry| {
        let mut entry = Fields(entry);
        let id: String = entry.required("Id")?;
        let read = read(&id, entry);
        Ok((id, read))
    });
    let entries = entries.collect::<Result<Vec<ReadEntry>, SqsError>>()?;
    let results = engine.batch((operation, &queue), entries, context.entry_faults)?;
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (id, result) in results {
        let entry = json!({ "Id": id });
        match result {
            Ok(None) => successful.push(entry),
            Ok(Some(one)) => successful.push(sent(entry, one)),
            Err(EntryError::Refused { code, message, sender_fault }) => failed.push(json!({
                "Id": id, "SenderFault": sender_fault, "Code": code, "Message": message,
            })),
            Err(EntryError::Unmentioned) => {}
        }
    }
    let failed = (!failed.is_empty()).then_some(Value::Array(failed));
    Ok(with(json!({ "Successful": successful }), [("Failed", failed)]))
}

fn draft(mut asked: Fields, context: &Context<'_>) -> Result<Draft, SqsError> {
    type Shapes = BTreeMap<String, AttributeShape>;
    let attributes: Shapes = asked.optional("MessageAttributes")?.unwrap_or_default();
    let attributes: Result<BTreeMap<String, Attribute>, SqsError> = attributes
        .into_iter()
        .map(|(name, shape)| attribute(&name, shape).map(|attribute| (name, attribute)))
        .collect();
    // The sender's own header wins over the one of the request.
    let own = trace_header(asked.optional("MessageSystemAttributes")?.unwrap_or_default())?;
    Ok(Draft {
        body: asked.optional("MessageBody")?.unwrap_or_default(),
        attributes: Arc::new(attributes?),
        delay_secs: asked.optional("DelaySeconds")?,
        group: asked.optional("MessageGroupId")?,
        deduplication: asked.optional("MessageDeduplicationId")?,
        trace: own.or_else(|| context.trace.map(str::to_owned)),
    })
}

fn attribute(name: &str, shape: AttributeShape) -> Result<Attribute, SqsError> {
    let data_type = shape.data_type.filter(|data_type| !data_type.is_empty()).ok_or_else(|| {
        SqsError::invalid(format!(
            "The message (user) attribute '{name}' must contain a non-empty attribute type."
        ))
    })?;
    let value = match (shape.string_value, shape.binary_value) {
        (Some(text), None) => AttributeValue::Text(text),
        (None, Some(base64)) => {
            STANDARD.decode(base64).map(AttributeValue::Binary).map_err(|_| {
                SqsError::new("SerializationException", "A binary value is not base64.")
            })?
        }
        // An absent value counts as an empty one, which the rules refuse.
        (None, None) if data_type.starts_with("Binary") => AttributeValue::Binary(Vec::new()),
        (None, None) => AttributeValue::Text(String::new()),
        (Some(_), Some(_)) => {
            return Err(SqsError::invalid(format!(
                "Message (user) attribute '{name}' has multiple values."
            )));
        }
    };
    Ok(Attribute { data_type, value })
}

fn trace_header(attributes: BTreeMap<String, AttributeShape>) -> Result<Option<String>, SqsError> {
    let mut header = None;
    for (name, shape) in attributes {
        if name != TRACE_HEADER {
            return Err(SqsError::invalid(format!(
                "Message system attribute name '{name}' is invalid."
            )));
        }
        let text = shape.string_value.filter(|text| !text.is_empty());
        if shape.data_type.as_deref() != Some("String") || text.is_none() {
            return Err(SqsError::invalid(format!(
                "Message system attribute '{name}' must contain a non-empty value of type 'String'."
            )));
        }
        header = text;
    }
    Ok(header)
}

fn digests(draft: &Draft, context: &Context<'_>) -> Value {
    // A header that came with the request is no system attribute of the sender.
    let own = draft.trace.clone().filter(|header| Some(header.as_str()) != context.trace);
    let system = own.map(|header| {
        let attribute =
            Attribute { data_type: "String".to_owned(), value: AttributeValue::Text(header) };
        (TRACE_HEADER.to_owned(), attribute)
    });
    let system = digest::of_attributes(system.iter().map(|(name, attribute)| (name, attribute)));
    let attributes = digest::of_attributes(draft.attributes.iter());
    with(
        json!({ "MD5OfMessageBody": digest::of_body(&draft.body) }),
        [
            ("MD5OfMessageAttributes", attributes.map(Value::from)),
            ("MD5OfMessageSystemAttributes", system.map(Value::from)),
        ],
    )
}

fn sent(answer: Value, Sent { id, sequence }: Sent) -> Value {
    let sequence = sequence.map(|sequence| sequence_number(sequence).into());
    with(answer, [("MessageId", Some(id.into())), ("SequenceNumber", sequence)])
}

struct Wanted {
    system: Vec<String>,
    attributes: Vec<String>,
}

impl Wanted {
    fn of(asked: &mut Fields) -> Result<Self, SqsError> {
        let mut names = |field| Ok(asked.optional::<Vec<String>>(field)?.unwrap_or_default());
        let mut system = names("MessageSystemAttributeNames")?;
        // The older name of this field.
        system.extend(names("AttributeNames")?);
        match system.iter().find(|name| !SYSTEM_ATTRIBUTES.split(' ').any(|known| known == *name)) {
            Some(name) => Err(settings::unknown(name)),
            None => Ok(Self { system, attributes: names("MessageAttributeNames")? }),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.attributes.iter().any(|wanted| match wanted.as_str() {
            // AWS was seen to take an asterisk alone, too.
            "All" | "*" | ".*" => true,
            wanted => match wanted.strip_suffix(".*") {
                Some(prefix) => name.starts_with(prefix),
                None => wanted == name,
            },
        })
    }

    fn shape(&self, Received { message, receipt_handle }: Received) -> Value {
        let mut system = system_attributes(&message);
        system.retain(|name, _| self.system.iter().any(|wanted| wanted == "All" || wanted == name));
        let wanted = || message.attributes.iter().filter(|(name, _)| self.wants(name));
        let attributes: BTreeMap<&String, AttributeShape> =
            wanted().map(|(name, attribute)| (name, shape_of(attribute))).collect();
        with(
            json!({
                "MessageId": message.id,
                "ReceiptHandle": receipt_handle,
                "MD5OfBody": digest::of_body(&message.body),
            }),
            [
                ("Attributes", (!system.is_empty()).then(|| json!(system))),
                ("MD5OfMessageAttributes", digest::of_attributes(wanted()).map(Value::from)),
                ("MessageAttributes", (!attributes.is_empty()).then(|| json!(attributes))),
                ("Body", Some(message.body.into())),
            ],
        )
    }
}

fn shape_of(attribute: &Attribute) -> AttributeShape {
    let (string_value, binary_value) = match &attribute.value {
        AttributeValue::Text(text) => (Some(text.clone()), None),
        AttributeValue::Binary(bytes) => (None, Some(STANDARD.encode(bytes))),
    };
    AttributeShape { data_type: Some(attribute.data_type.clone()), string_value, binary_value }
}

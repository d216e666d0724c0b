//! The operations about one message, and the translation of messages from and to the wire.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::shapes::{
    AttributeShape, ChangeMessageVisibility, DeleteMessage, MessageShape, MessageToSend, Messages,
    Nothing, ReceiveMessage, SendMessage, SentShape,
};
use super::{Context, LongPoll, Performed, queue_name, told};
use crate::engine::error::{ErrorCode, SqsError};
use crate::engine::message::{Draft, Received, Sent, sequence_number};
use crate::engine::{Engine, Receive, digest};
use crate::view::system_attributes;
use requeue_sqs::{Attribute, AttributeValue};

/// The one system attribute that a sender may set. Source: reference, `SendMessage`.
const TRACE_HEADER: &str = "AWSTraceHeader";

/// The system attributes that a receive may ask for. Source: reference, `ReceiveMessage`.
const SYSTEM_ATTRIBUTES: [&str; 12] = [
    "All",
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
    "MessageDeduplicationId",
    "MessageGroupId",
    "Policy",
    "SenderId",
    "SentTimestamp",
    "SequenceNumber",
    "SqsManagedSseEnabled",
];

pub(super) fn send(
    engine: &mut Engine,
    asked: SendMessage,
    context: &Context<'_>,
) -> Result<SentShape, SqsError> {
    let draft = draft(asked.message, context)?;
    let digests = Digests::of(&draft, context);
    let sent = engine.send(queue_name(&asked.queue_url), draft, context.now)?;
    Ok(digests.into_answer(None, sent))
}

pub(super) fn receive(
    engine: &mut Engine,
    asked: &ReceiveMessage,
    context: &Context<'_>,
) -> Result<Performed, SqsError> {
    let wanted = Wanted::of(asked)?;
    let how = Receive {
        max_messages: asked.max_number_of_messages,
        visibility_secs: asked.visibility_timeout,
        wait_secs: asked.wait_time_seconds,
    };
    let result = engine.receive(queue_name(&asked.queue_url), how, context.now)?;
    let long_poll = LongPoll { wait: result.wait, next_due: result.next_due };
    let empty = result.messages.is_empty();
    let messages = result.messages.into_iter().map(|received| wanted.shape(received)).collect();
    told(Messages { messages }).map(|performed| Performed {
        news: result.redrove,
        long_poll: empty.then_some(long_poll),
        ..performed
    })
}

pub(super) fn delete(
    engine: &mut Engine,
    asked: &DeleteMessage,
    context: &Context<'_>,
) -> Result<Nothing, SqsError> {
    let queue = engine.queue(queue_name(&asked.queue_url), context.now)?;
    queue.delete(&asked.receipt_handle)?;
    Ok(Nothing {})
}

pub(super) fn change_visibility(
    engine: &mut Engine,
    asked: &ChangeMessageVisibility,
    context: &Context<'_>,
) -> Result<Nothing, SqsError> {
    let queue = engine.queue(queue_name(&asked.queue_url), context.now)?;
    queue.change_visibility(&asked.receipt_handle, asked.visibility_timeout, context.now)?;
    Ok(Nothing {})
}

/// A message from the wire.
pub(super) fn draft(asked: MessageToSend, context: &Context<'_>) -> Result<Draft, SqsError> {
    let attributes = asked.message_attributes.unwrap_or_default();
    let attributes: Result<BTreeMap<String, Attribute>, SqsError> = attributes
        .into_iter()
        .map(|(name, shape)| attribute(&name, shape).map(|attribute| (name, attribute)))
        .collect();
    // The sender's own header wins over the one of the request, which holds for every message of
    // the request.
    let own = trace_header(asked.message_system_attributes.unwrap_or_default())?;
    Ok(Draft {
        body: asked.message_body.unwrap_or_default(),
        attributes: Arc::new(attributes?),
        delay_secs: asked.delay_seconds,
        group: asked.message_group_id,
        deduplication: asked.message_deduplication_id,
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
                SqsError::new(ErrorCode::MalformedInput, "A binary value is not base64.")
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

/// The digests of a draft, taken before it is given away.
pub(super) struct Digests {
    body: String,
    attributes: Option<String>,
    system: Option<String>,
}

impl Digests {
    pub(super) fn of(draft: &Draft, context: &Context<'_>) -> Self {
        // A header that came with the request is no system attribute of the sender.
        let own = draft.trace.clone().filter(|header| Some(header.as_str()) != context.trace);
        let system = own.map(|header| {
            let attribute =
                Attribute { data_type: "String".to_owned(), value: AttributeValue::Text(header) };
            (TRACE_HEADER.to_owned(), attribute)
        });
        Self {
            body: digest::of_body(&draft.body),
            attributes: digest::of_attributes(draft.attributes.iter()),
            system: digest::of_attributes(system.iter().map(|(name, attribute)| (name, attribute))),
        }
    }

    pub(super) fn into_answer(self, id: Option<String>, sent: Sent) -> SentShape {
        SentShape {
            id,
            message_id: sent.id,
            md5_of_body: self.body,
            md5_of_attributes: self.attributes,
            md5_of_system_attributes: self.system,
            sequence_number: sent.sequence.map(sequence_number),
        }
    }
}

/// The parts of a message that a receive asks for.
struct Wanted<'a> {
    system: Vec<&'a str>,
    attributes: &'a [String],
}

impl<'a> Wanted<'a> {
    fn of(asked: &'a ReceiveMessage) -> Result<Self, SqsError> {
        let older = asked.attribute_names.iter().flatten();
        let names = asked.message_system_attribute_names.iter().flatten().chain(older);
        let system: Vec<&str> = names.map(String::as_str).collect();
        match system.iter().find(|name| !SYSTEM_ATTRIBUTES.contains(name)) {
            Some(name) => Err(crate::engine::settings::unknown(name)),
            None => Ok(Self {
                system,
                attributes: asked.message_attribute_names.as_deref().unwrap_or_default(),
            }),
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

    fn shape(&self, received: Received) -> MessageShape {
        let message = received.message;
        let all = self.system.contains(&"All");
        let mut attributes = system_attributes(&message);
        attributes.retain(|name, _| all || self.system.contains(name));
        let wanted = || message.attributes.iter().filter(|(name, _)| self.wants(name));
        let message_attributes: BTreeMap<String, AttributeShape> =
            wanted().map(|(name, attribute)| (name.clone(), shape_of(attribute))).collect();
        MessageShape {
            message_id: message.id.clone(),
            receipt_handle: received.receipt_handle,
            md5_of_body: digest::of_body(&message.body),
            attributes,
            md5_of_attributes: digest::of_attributes(wanted()),
            message_attributes,
            body: message.body,
        }
    }
}

fn shape_of(attribute: &Attribute) -> AttributeShape {
    let (string_value, binary_value) = match &attribute.value {
        AttributeValue::Text(text) => (Some(text.clone()), None),
        AttributeValue::Binary(bytes) => (None, Some(STANDARD.encode(bytes))),
    };
    AttributeShape { data_type: Some(attribute.data_type.clone()), string_value, binary_value }
}

//! Message attributes, and the bytes that SQS counts of a message.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// A message attribute. SQS gives it a type and a value and nothing else, so write it as a literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// `String`, `Number` or `Binary`, perhaps with a label after a dot.
    pub data_type: String,
    /// The value.
    pub value: AttributeValue,
}

impl Attribute {
    /// An attribute of the type `String`.
    pub fn text(value: impl Into<String>) -> Self {
        Self { data_type: "String".to_owned(), value: AttributeValue::Text(value.into()) }
    }

    /// The value, unless it is binary.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Binary(_) => None,
        }
    }

    /// The attribute as Lambda's events have it. Source: Lambda developer guide, "Using Lambda with
    /// Amazon SQS", the example of an event.
    #[doc(hidden)]
    pub fn in_event(&self) -> Value {
        let (name, value) = match &self.value {
            AttributeValue::Text(text) => ("stringValue", text.clone()),
            AttributeValue::Binary(bytes) => ("binaryValue", BASE64_STANDARD.encode(bytes)),
        };
        json!({
            name: value,
            "stringListValues": [],
            "binaryListValues": [],
            "dataType": self.data_type,
        })
    }

    /// The bytes that SQS counts, without the name.
    pub fn size(&self) -> usize {
        let value = match &self.value {
            AttributeValue::Text(text) => text.len(),
            AttributeValue::Binary(bytes) => bytes.len(),
        };
        self.data_type.len() + value
    }
}

/// The value of a message attribute. SQS has these two, so a third would be a new major version.
#[derive(Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// The value of the types `String` and `Number`.
    Text(String),
    /// The value of the type `Binary`, decoded.
    Binary(Vec<u8>),
}

impl fmt::Debug for AttributeValue {
    /// Prints the kind and the length alone: values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Binary(bytes) => write!(f, "Binary({} bytes)", bytes.len()),
        }
    }
}

/// The bytes that SQS counts of a message: its body, and name, type and value of each attribute.
pub fn message_bytes(body: &str, attributes: &BTreeMap<String, Attribute>) -> usize {
    body.len()
        + attributes.iter().map(|(name, attribute)| name.len() + attribute.size()).sum::<usize>()
}

/// Whether SQS allows these characters in the name of a message attribute. Source: SQS developer
/// guide, "Amazon SQS message metadata".
pub fn is_attribute_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

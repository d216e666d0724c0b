//! awsJson1.0: from the bytes of a request to those of a response. It knows no transport.

mod messages;
mod queues;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::engine::error::SqsError;
use super::engine::{Answered, Engine};
use super::fault::EntryFault;

pub(crate) struct Context<'a> {
    /// The beginning of the URLs of queues.
    pub(crate) endpoint: &'a str,
    pub(crate) trace: Option<&'a str>,
    pub(crate) entry_faults: &'a [EntryFault],
}

/// The fields of a request, or of an entry of one. Each is taken once.
struct Fields(Map<String, Value>);

impl Fields {
    fn read(body: &[u8]) -> Result<Self, SqsError> {
        serde_json::from_slice(body).map(Self).map_err(malformed)
    }

    fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, SqsError> {
        let value = self.0.remove(name);
        value.map_or(Ok(None), |value| serde_json::from_value(value).map_err(malformed))
    }

    fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, SqsError> {
        self.optional(name)?.ok_or_else(|| SqsError::missing(name))
    }

    fn queue(&mut self) -> Result<String, SqsError> {
        Ok(queue_name(&self.required::<String>("QueueUrl")?).to_owned())
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is for `map_err`")]
fn malformed(_: serde_json::Error) -> SqsError {
    SqsError::new("SerializationException", "The request could not be read.")
}

type Answer = Result<Value, SqsError>;

fn with<const N: usize>(mut answer: Value, fields: [(&str, Option<Value>); N]) -> Value {
    for (name, value) in fields {
        if let Some(value) = value {
            answer[name] = value;
        }
    }
    answer
}

pub(crate) fn perform(
    engine: &mut Engine,
    operation: &str,
    body: &[u8],
    context: &Context<'_>,
) -> Result<Answered<Vec<u8>>, SqsError> {
    let mut asked = Fields::read(body)?;
    if operation == "ReceiveMessage" {
        return messages::receive(engine, asked);
    }
    let mut answer = queues::perform(operation, engine, &mut asked, context)?;
    if answer.is_none() {
        answer = messages::perform(operation, engine, asked, context)?;
    }
    let answer = answer.ok_or_else(|| {
        let message = format!("The action {operation} is not valid for this endpoint.");
        SqsError::new("InvalidAction", message)
    })?;
    let is_news = !operation.starts_with("Get") && !operation.starts_with("List");
    Ok(Answered { value: answer.to_string().into_bytes(), is_news, long_poll: None })
}

pub(crate) fn error_body(shape: &str, message: &str) -> Vec<u8> {
    let kind = format!("com.amazonaws.sqs#{shape}");
    json!({ "__type": kind, "message": message }).to_string().into_bytes()
}

/// The queue and the number of entries of a request, as far as any operation names them.
pub(crate) fn outline(body: &[u8]) -> (Option<String>, usize) {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Outline {
        queue_url: Option<String>,
        #[serde(default)]
        entries: Vec<serde::de::IgnoredAny>,
    }
    match serde_json::from_slice::<Outline>(body) {
        Ok(outline) => {
            let name = outline.queue_url.as_deref().map(queue_name).map(str::to_owned);
            (name, outline.entries.len())
        }
        Err(_) => (None, 0),
    }
}

/// There is one account and one region here, so the name in a URL is enough.
fn queue_name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

fn queue_url(engine: &Engine, context: &Context<'_>, name: &str) -> String {
    let endpoint = context.endpoint.trim_end_matches('/');
    format!("{endpoint}/{}/{name}", engine.account)
}

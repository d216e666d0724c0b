//! awsJson1.0: it takes the bytes of a request and returns the bytes of a response. It knows no
//! transport and reads no clock.

mod messages;
mod queues;

use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::engine::error::{SqsError, code};
use super::engine::{Engine, LongPoll};
use super::fault::EntryFault;

/// The parts of a request that are not in its body.
pub(crate) struct Context<'a> {
    pub(crate) now: SystemTime,
    /// The beginning of the URLs of queues.
    pub(crate) endpoint: &'a str,
    /// The header `x-amzn-trace-id`.
    pub(crate) trace: Option<&'a str>,
    pub(crate) entry_faults: &'a [EntryFault],
}

/// A response, and its consequences for waiting requests.
pub(crate) struct Performed {
    pub(crate) json: Vec<u8>,
    /// There may be news for long polls.
    pub(crate) news: bool,
    /// The response is empty, and its request would rather wait.
    pub(crate) long_poll: Option<LongPoll>,
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
    SqsError::new(code::MALFORMED_INPUT, "The request could not be read.")
}

type Answer = Result<Value, SqsError>;

/// An answer with those of these fields that have a value.
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
) -> Result<Performed, SqsError> {
    let carry_out: fn(&mut Engine, Fields, &Context<'_>) -> Answer = match operation {
        "CreateQueue" => queues::create,
        "GetQueueUrl" => queues::url,
        "ListQueues" => queues::list,
        "ListDeadLetterSourceQueues" => queues::dead_letter_sources,
        "GetQueueAttributes" => queues::attributes,
        "SetQueueAttributes" => queues::set_attributes,
        "DeleteQueue" => queues::delete,
        "PurgeQueue" => queues::purge,
        "ListQueueTags" => queues::tags,
        "TagQueue" => queues::tag,
        "UntagQueue" => queues::untag,
        "SendMessage" => messages::send,
        "SendMessageBatch" => messages::send_batch,
        "ReceiveMessage" => return messages::receive(engine, Fields::read(body)?, context),
        "DeleteMessage" => messages::delete,
        "DeleteMessageBatch" => messages::delete_batch,
        "ChangeMessageVisibility" => messages::change_visibility,
        "ChangeMessageVisibilityBatch" => messages::change_visibility_batch,
        "StartMessageMoveTask" => queues::start_move,
        "ListMessageMoveTasks" => queues::moves,
        "CancelMessageMoveTask" => queues::cancel_move,
        _ => {
            let message = format!("The action {operation} is not valid for this endpoint.");
            return Err(SqsError::new(code::INVALID_ACTION, message));
        }
    };
    let answer = carry_out(engine, Fields::read(body)?, context)?;
    let news = !operation.starts_with("Get") && !operation.starts_with("List");
    Ok(Performed { json: answer.to_string().into_bytes(), news, long_poll: None })
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

/// The queue's name in its URL. There is one account and one region here, so the name is enough for
/// any host and account in the URL.
fn queue_name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

fn queue_url(engine: &Engine, context: &Context<'_>, name: &str) -> String {
    let endpoint = context.endpoint.trim_end_matches('/');
    format!("{endpoint}/{}/{name}", engine.account())
}

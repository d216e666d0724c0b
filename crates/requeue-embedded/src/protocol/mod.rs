//! awsJson1.0: it takes the bytes of a request and returns the bytes of a response. It knows no
//! transport and reads no clock.

mod batches;
mod messages;
mod moves;
mod queues;
mod shapes;

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::engine::Engine;
use super::engine::error::{ErrorCode, SqsError};
use super::fault::EntryFaults;

/// The parts of a request that are not in its body.
pub(crate) struct Context<'a> {
    pub(crate) now: SystemTime,
    /// The beginning of the URLs of queues.
    pub(crate) endpoint: &'a str,
    /// The header `x-amzn-trace-id`.
    pub(crate) trace: Option<&'a str>,
    pub(crate) entry_faults: &'a EntryFaults,
}

/// A response, and its consequences for waiting requests.
pub(crate) struct Performed {
    pub(crate) json: Vec<u8>,
    /// There may be news for long polls.
    pub(crate) news: bool,
    /// The response is empty, and its request would rather wait.
    pub(crate) long_poll: Option<LongPoll>,
}

/// How long an empty receive waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongPoll {
    /// The whole wait, since the request arrived.
    pub(crate) wait: Duration,
    /// The next time at which another try may find something.
    pub(crate) next_due: Option<SystemTime>,
}

/// Carries out one request.
pub(crate) fn perform(
    engine: &mut Engine,
    operation: &str,
    body: &[u8],
    context: &Context<'_>,
) -> Result<Performed, SqsError> {
    match operation {
        "CreateQueue" => told(queues::create(engine, &parse(body)?, context)?),
        "GetQueueUrl" => told(queues::url(engine, &parse(body)?, context)?),
        "ListQueues" => told(queues::list(engine, &parse(body)?, context)?),
        "ListDeadLetterSourceQueues" => {
            told(queues::dead_letter_sources(engine, &parse(body)?, context)?)
        }
        "GetQueueAttributes" => told(queues::attributes(engine, &parse(body)?, context)?),
        "SetQueueAttributes" => changed(queues::set_attributes(engine, &parse(body)?, context)?),
        "DeleteQueue" => changed(queues::delete(engine, &parse(body)?, context)?),
        "PurgeQueue" => changed(queues::purge(engine, &parse(body)?, context)?),
        "ListQueueTags" => told(queues::tags(engine, &parse(body)?, context)?),
        "TagQueue" => told(queues::tag(engine, parse(body)?, context)?),
        "UntagQueue" => told(queues::untag(engine, &parse(body)?, context)?),
        "SendMessage" => changed(messages::send(engine, parse(body)?, context)?),
        "SendMessageBatch" => changed(batches::send(engine, parse(body)?, context)?),
        "ReceiveMessage" => messages::receive(engine, &parse(body)?, context),
        "DeleteMessage" => changed(messages::delete(engine, &parse(body)?, context)?),
        "DeleteMessageBatch" => changed(batches::delete(engine, parse(body)?, context)?),
        "ChangeMessageVisibility" => {
            changed(messages::change_visibility(engine, &parse(body)?, context)?)
        }
        "ChangeMessageVisibilityBatch" => {
            changed(batches::change_visibility(engine, parse(body)?, context)?)
        }
        "StartMessageMoveTask" => changed(moves::start(engine, &parse(body)?, context)?),
        "ListMessageMoveTasks" => told(moves::list(engine, &parse(body)?, context)?),
        "CancelMessageMoveTask" => told(moves::cancel(engine, &parse(body)?, context)?),
        _ => Err(SqsError::new(
            ErrorCode::InvalidAction,
            format!("The action {operation} is not valid for this endpoint."),
        )),
    }
}

/// The body of a refusal.
pub(crate) fn error_body(shape: &str, message: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        #[serde(rename = "__type")]
        kind: String,
        message: &'a str,
    }
    to_json(&Body { kind: format!("com.amazonaws.sqs#{shape}"), message })
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

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, SqsError> {
    serde_json::from_slice(body).map_err(|error| {
        // A missing field is distinguished from nonsense, as AWS does.
        match error.to_string() {
            text if text.starts_with("missing field `") => {
                let member = text.split('`').nth(1).unwrap_or_default().to_owned();
                SqsError::missing(&member)
            }
            _ => SqsError::new(ErrorCode::MalformedInput, "The request could not be read."),
        }
    })
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("an answer is made of strings and numbers")
}

#[allow(clippy::unnecessary_wraps, reason = "all arms of `perform` look alike")]
fn told(answer: impl Serialize) -> Result<Performed, SqsError> {
    Ok(Performed { json: to_json(&answer), news: false, long_poll: None })
}

fn changed(answer: impl Serialize) -> Result<Performed, SqsError> {
    told(answer).map(|performed| Performed { news: true, ..performed })
}

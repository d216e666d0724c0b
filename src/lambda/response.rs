//! How an invocation, or the function, ends: the batch response, which names the messages that stay in
//! the queue, and errors. It knows no event.

use std::any::Any;
use std::num::ParseIntError;

use lambda_runtime::Diagnostic;
use serde::{Deserialize, Serialize};

use crate::config::Error;
use crate::report::Unreportable;

/// The batch response. Lambda deletes all messages but those that are named here.
///
/// Source: Lambda developer guide, "Implementing partial batch responses".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SqsBatchResponse {
    /// The messages that stay in the queue.
    pub batch_item_failures: Vec<BatchItemFailure>,
}

/// A message that stays in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BatchItemFailure {
    /// Its message id.
    pub item_identifier: String,
}

impl SqsBatchResponse {
    /// The response that names these message ids.
    pub(super) fn of<I: Into<String>>(ids: impl IntoIterator<Item = I>) -> Self {
        let failure = |id: I| BatchItemFailure { item_identifier: id.into() };
        Self { batch_item_failures: ids.into_iter().map(failure).collect() }
    }
}

/// Why an invocation fails as a whole.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvocationError {
    /// The event is not one of SQS.
    #[error(
        "the event {}: this function is to be invoked by an SQS event source mapping, by a pipe from \
         a queue, or with an event of that shape",
        service.map_or("has no list `Records`".to_owned(), |service| format!("is one of {service}, not of SQS"))
    )]
    NoRecords {
        /// The service of the event, if it is known.
        service: Option<&'static str>,
    },
    /// A record without a message id must stay in the queue, and no response can name it.
    #[error("{Unreportable}")]
    Unreportable,
}

// `lambda_runtime` logs the `Debug` of an error too.
requeue_sqs::debug_as_display!(InvocationError);

impl From<Unreportable> for InvocationError {
    fn from(_: Unreportable) -> Self {
        Self::Unreportable
    }
}

impl From<InvocationError> for Diagnostic {
    fn from(error: InvocationError) -> Self {
        let error_type = match error {
            InvocationError::NoRecords { .. } => "Requeue.NoRecords",
            InvocationError::Unreportable => "Requeue.Unreportable",
        };
        Self { error_type: error_type.to_owned(), error_message: error.to_string() }
    }
}

/// The header that an emulator is most likely to leave out.
const DEADLINE: &str = "lambda-runtime-deadline-ms";

/// Why the loop of `lambda_runtime` panicked. It reads the headers of an invocation before Requeue sees
/// anything of it, and ends on one that it cannot read. Lambda sends them all; an emulator may not. Only
/// its own words are shown: those of a layer may be of a message.
pub(super) fn ended_by_panic(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    match text.and_then(|text| text.strip_prefix("missing ")?.strip_suffix(" header")) {
        Some(header) if header.starts_with("lambda-runtime-") => {
            unreadable(&format!("without the header {header}"))
        }
        _ => other("the Lambda loop panicked"),
    }
}

/// The loop returned an error.
pub(super) fn ended_by_error(error: lambda_runtime::Error) -> Error {
    if error.is::<ParseIntError>() {
        unreadable(&format!("whose header {DEADLINE} is no whole number"))
    } else if error.is::<serde_json::Error>() {
        unreadable("whose client context or Cognito identity is not the JSON that Lambda sends")
    } else {
        Error::of(error)
    }
}

fn unreadable(what: &str) -> Error {
    other(&format!(
        "the Runtime API sent an invocation {what}: Lambda names it for each invocation; use an \
         emulator that does, such as `requeue serve --function`"
    ))
}

fn other(what: &str) -> Error {
    Error::from(std::io::Error::other(what.to_owned()))
}

//! The errors with which a function ends, or an invocation fails. They know no event.

use std::fmt;

use lambda_runtime::Diagnostic;

use crate::config::InvalidConfig;
use crate::report::Unreportable;

/// Why the function cannot run. `Display` and `Debug` print the same readable text, since a `main`
/// that returns the error prints its `Debug`.
#[derive(thiserror::Error)]
#[error("{0}")]
pub struct Error(pub(super) lambda_runtime::Error);

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<InvalidConfig> for Error {
    fn from(error: InvalidConfig) -> Self {
        Self(error.into())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self(error.into())
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

/// As for a reader: `lambda_runtime` logs an error so.
impl fmt::Debug for InvocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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

//! The error with which an invocation fails. It knows no event.

use lambda_runtime::Diagnostic;

use crate::report::Unreportable;

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

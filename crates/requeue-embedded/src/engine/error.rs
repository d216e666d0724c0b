//! A refusal of SQS: its code and its sentence.

use std::fmt;

/// The error that SQS would have returned for a request, or for one entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
#[non_exhaustive]
pub struct SqsError {
    /// The error code, as in `AWS.SimpleQueueService.NonExistentQueue`: in the spelling of the older
    /// protocol, which clients still print, since SQS is an awsQuery-compatible service. Source: the
    /// `awsQueryError` traits of the service model.
    pub code: &'static str,
    /// The sentence.
    pub message: String,
}

impl SqsError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new("InvalidParameterValue", message)
    }

    pub(crate) fn invalid_value(
        value: impl fmt::Display,
        parameter: &str,
        reason: impl fmt::Display,
    ) -> Self {
        Self::invalid(format!(
            "Value {value} for parameter {parameter} is invalid. Reason: {reason}"
        ))
    }

    pub(crate) fn missing(parameter: &str) -> Self {
        Self::new(
            "MissingParameter",
            format!("The request must contain the parameter {parameter}."),
        )
    }

    pub(crate) fn shape(&self) -> &'static str {
        match self.code {
            "AWS.SimpleQueueService.NonExistentQueue" => "QueueDoesNotExist",
            "QueueAlreadyExists" => "QueueNameExists",
            code => code.rsplit('.').next().unwrap_or(code),
        }
    }

    pub(crate) fn no_queue() -> Self {
        Self::new("AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
    }
}

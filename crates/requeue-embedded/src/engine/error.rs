//! A refusal of SQS: its code and its sentence.

use std::fmt;

/// The error that SQS would have returned for a request, or for one entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
#[non_exhaustive]
pub struct SqsError {
    /// The error code, as in `AWS.SimpleQueueService.NonExistentQueue`.
    pub code: &'static str,
    /// The sentence.
    pub message: String,
}

impl SqsError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMETER_VALUE, message)
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
            code::MISSING_PARAMETER,
            format!("The request must contain the parameter {parameter}."),
        )
    }

    pub(crate) fn shape(&self) -> &'static str {
        match self.code {
            code::QUEUE_DOES_NOT_EXIST => "QueueDoesNotExist",
            code::QUEUE_NAME_EXISTS => "QueueNameExists",
            code => code.rsplit('.').next().unwrap_or(code),
        }
    }

    pub(crate) fn no_queue() -> Self {
        Self::new(code::QUEUE_DOES_NOT_EXIST, "The specified queue does not exist.")
    }
}

/// The codes of SQS that this engine can return, in the spelling of the older protocol, which clients
/// still print: SQS is an awsQuery-compatible service.
///
/// Source: the `awsQueryError` traits of the service model.
pub(crate) mod code {
    pub(crate) const BATCH_ENTRY_IDS_NOT_DISTINCT: &str =
        "AWS.SimpleQueueService.BatchEntryIdsNotDistinct";
    pub(crate) const BATCH_REQUEST_TOO_LONG: &str = "AWS.SimpleQueueService.BatchRequestTooLong";
    pub(crate) const EMPTY_BATCH_REQUEST: &str = "AWS.SimpleQueueService.EmptyBatchRequest";
    pub(crate) const INVALID_ACTION: &str = "InvalidAction";
    pub(crate) const INVALID_ATTRIBUTE_NAME: &str = "InvalidAttributeName";
    pub(crate) const INVALID_ATTRIBUTE_VALUE: &str = "InvalidAttributeValue";
    pub(crate) const INVALID_BATCH_ENTRY_ID: &str = "AWS.SimpleQueueService.InvalidBatchEntryId";
    pub(crate) const INVALID_MESSAGE_CONTENTS: &str = "InvalidMessageContents";
    pub(crate) const INVALID_PARAMETER_VALUE: &str = "InvalidParameterValue";
    pub(crate) const MALFORMED_INPUT: &str = "SerializationException";
    pub(crate) const MISSING_PARAMETER: &str = "MissingParameter";
    pub(crate) const OVER_LIMIT: &str = "OverLimit";
    pub(crate) const PURGE_QUEUE_IN_PROGRESS: &str = "AWS.SimpleQueueService.PurgeQueueInProgress";
    pub(crate) const QUEUE_DELETED_RECENTLY: &str = "AWS.SimpleQueueService.QueueDeletedRecently";
    pub(crate) const QUEUE_DOES_NOT_EXIST: &str = "AWS.SimpleQueueService.NonExistentQueue";
    pub(crate) const QUEUE_NAME_EXISTS: &str = "QueueAlreadyExists";
    pub(crate) const RECEIPT_HANDLE_IS_INVALID: &str = "ReceiptHandleIsInvalid";
    pub(crate) const RESOURCE_NOT_FOUND: &str = "ResourceNotFoundException";
    pub(crate) const TOO_MANY_ENTRIES_IN_BATCH_REQUEST: &str =
        "AWS.SimpleQueueService.TooManyEntriesInBatchRequest";
    pub(crate) const UNSUPPORTED_OPERATION: &str = "AWS.SimpleQueueService.UnsupportedOperation";
}

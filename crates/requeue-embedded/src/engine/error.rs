//! A refusal of SQS: the code in its modern and in its older spelling, and the sentence.

use std::fmt;

/// Why a request, or one entry of a batch, was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqsError {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl SqsError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidParameterValue, message)
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
            ErrorCode::MissingParameter,
            format!("The request must contain the parameter {parameter}."),
        )
    }

    pub(crate) fn no_queue() -> Self {
        Self::new(ErrorCode::QueueDoesNotExist, "The specified queue does not exist.")
    }
}

/// The codes of SQS that this engine can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    BatchEntryIdsNotDistinct,
    BatchRequestTooLong,
    EmptyBatchRequest,
    InvalidAction,
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidBatchEntryId,
    InvalidMessageContents,
    InvalidParameterValue,
    MalformedInput,
    MissingParameter,
    OverLimit,
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueDoesNotExist,
    QueueNameExists,
    ReceiptHandleIsInvalid,
    ResourceNotFound,
    TooManyEntriesInBatchRequest,
    UnsupportedOperation,
}

impl ErrorCode {
    /// The name of the error's shape, for `__type`.
    pub(crate) const fn shape(self) -> &'static str {
        match self {
            Self::BatchEntryIdsNotDistinct => "BatchEntryIdsNotDistinct",
            Self::BatchRequestTooLong => "BatchRequestTooLong",
            Self::EmptyBatchRequest => "EmptyBatchRequest",
            Self::InvalidAction => "InvalidAction",
            Self::InvalidAttributeName => "InvalidAttributeName",
            Self::InvalidAttributeValue => "InvalidAttributeValue",
            Self::InvalidBatchEntryId => "InvalidBatchEntryId",
            Self::InvalidMessageContents => "InvalidMessageContents",
            Self::InvalidParameterValue => "InvalidParameterValue",
            Self::MalformedInput => "SerializationException",
            Self::MissingParameter => "MissingParameter",
            Self::OverLimit => "OverLimit",
            Self::PurgeQueueInProgress => "PurgeQueueInProgress",
            Self::QueueDeletedRecently => "QueueDeletedRecently",
            Self::QueueDoesNotExist => "QueueDoesNotExist",
            Self::QueueNameExists => "QueueNameExists",
            Self::ReceiptHandleIsInvalid => "ReceiptHandleIsInvalid",
            Self::ResourceNotFound => "ResourceNotFoundException",
            Self::TooManyEntriesInBatchRequest => "TooManyEntriesInBatchRequest",
            Self::UnsupportedOperation => "UnsupportedOperation",
        }
    }

    /// The code of the older protocol, which clients still print: SQS is an awsQuery-compatible
    /// service.
    ///
    /// Source: the `awsQueryError` traits of the service model.
    pub(crate) const fn query(self) -> &'static str {
        match self {
            Self::BatchEntryIdsNotDistinct => "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
            Self::BatchRequestTooLong => "AWS.SimpleQueueService.BatchRequestTooLong",
            Self::EmptyBatchRequest => "AWS.SimpleQueueService.EmptyBatchRequest",
            Self::InvalidBatchEntryId => "AWS.SimpleQueueService.InvalidBatchEntryId",
            Self::PurgeQueueInProgress => "AWS.SimpleQueueService.PurgeQueueInProgress",
            Self::QueueDeletedRecently => "AWS.SimpleQueueService.QueueDeletedRecently",
            Self::QueueDoesNotExist => "AWS.SimpleQueueService.NonExistentQueue",
            Self::QueueNameExists => "QueueAlreadyExists",
            Self::TooManyEntriesInBatchRequest => {
                "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"
            }
            Self::UnsupportedOperation => "AWS.SimpleQueueService.UnsupportedOperation",
            other => other.shape(),
        }
    }
}

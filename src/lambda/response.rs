//! The batch response, which names the messages that stay in the queue.

use serde::{Deserialize, Serialize};

/// The batch response. Lambda deletes all messages but those that are named here.
///
/// Source: Lambda developer guide, "Implementing partial batch responses".
///
/// ```
/// let response = requeue::SqsBatchResponse::default();
/// assert_eq!(serde_json::to_string(&response)?, r#"{"batchItemFailures":[]}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SqsBatchResponse {
    /// The messages that stay in the queue.
    pub batch_item_failures: Vec<BatchItemFailure>,
}

/// A message that stays in the queue.
///
/// ```
/// let failure: requeue::BatchItemFailure = serde_json::from_str(r#"{"itemIdentifier":"id"}"#)?;
/// assert_eq!(failure.item_identifier, "id");
/// # Ok::<(), serde_json::Error>(())
/// ```
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

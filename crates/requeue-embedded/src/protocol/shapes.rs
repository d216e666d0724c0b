//! The requests and responses of awsJson1.0 on the wire. Field names follow the service model;
//! nothing here decides.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CreateQueue {
    pub(super) queue_name: String,
    #[serde(default)]
    pub(super) attributes: Option<BTreeMap<String, String>>,
    // The one field of the model that begins with a small letter.
    #[serde(default, rename = "tags")]
    pub(super) tags: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GetQueueUrl {
    pub(super) queue_name: String,
    #[serde(rename = "QueueOwnerAWSAccountId")]
    pub(super) owner: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListQueues {
    pub(super) queue_name_prefix: Option<String>,
    pub(super) max_results: Option<i64>,
    pub(super) next_token: Option<String>,
}

/// A request that names a queue and nothing else.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct OfQueue {
    pub(super) queue_url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GetQueueAttributes {
    pub(super) queue_url: String,
    #[serde(default)]
    pub(super) attribute_names: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SetQueueAttributes {
    pub(super) queue_url: String,
    pub(super) attributes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TagQueue {
    pub(super) queue_url: String,
    pub(super) tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct UntagQueue {
    pub(super) queue_url: String,
    pub(super) tag_keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SendMessage {
    pub(super) queue_url: String,
    #[serde(flatten)]
    pub(super) message: MessageToSend,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SendEntry {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) message: MessageToSend,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MessageToSend {
    pub(super) message_body: Option<String>,
    pub(super) delay_seconds: Option<i64>,
    pub(super) message_attributes: Option<BTreeMap<String, AttributeShape>>,
    pub(super) message_system_attributes: Option<BTreeMap<String, AttributeShape>>,
    pub(super) message_deduplication_id: Option<String>,
    pub(super) message_group_id: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AttributeShape {
    pub(super) data_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) string_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) binary_value: Option<String>,
}

/// A batch request with entries of any kind.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Batch<E> {
    pub(super) queue_url: String,
    // Missing entries are refused like an empty batch.
    #[serde(default = "Vec::new")]
    pub(super) entries: Vec<E>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ReceiveMessage {
    pub(super) queue_url: String,
    pub(super) max_number_of_messages: Option<i64>,
    pub(super) visibility_timeout: Option<i64>,
    pub(super) wait_time_seconds: Option<i64>,
    #[serde(default)]
    pub(super) attribute_names: Option<Vec<String>>,
    #[serde(default)]
    pub(super) message_system_attribute_names: Option<Vec<String>>,
    #[serde(default)]
    pub(super) message_attribute_names: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DeleteMessage {
    pub(super) queue_url: String,
    pub(super) receipt_handle: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DeleteEntry {
    pub(super) id: String,
    pub(super) receipt_handle: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ChangeMessageVisibility {
    pub(super) queue_url: String,
    pub(super) receipt_handle: String,
    pub(super) visibility_timeout: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct VisibilityEntry {
    pub(super) id: String,
    pub(super) receipt_handle: String,
    pub(super) visibility_timeout: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct StartMoveTask {
    pub(super) source_arn: String,
    pub(super) destination_arn: Option<String>,
    pub(super) max_number_of_messages_per_second: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListMoveTasks {
    pub(super) source_arn: String,
    pub(super) max_results: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CancelMoveTask {
    pub(super) task_handle: String,
}

/// A response without content.
#[derive(Serialize)]
pub(super) struct Nothing {}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct QueueUrl {
    pub(super) queue_url: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Queues {
    pub(super) queue_urls: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_token: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Sources {
    // This field is spelled differently from the one of `ListQueues`.
    #[serde(rename = "queueUrls")]
    pub(super) queue_urls: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Attributes {
    pub(super) attributes: BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Tags {
    pub(super) tags: BTreeMap<String, String>,
}

#[derive(Serialize)]
pub(super) struct SentShape {
    #[serde(rename = "Id", skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(rename = "MessageId")]
    pub(super) message_id: String,
    #[serde(rename = "MD5OfMessageBody")]
    pub(super) md5_of_body: String,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub(super) md5_of_attributes: Option<String>,
    #[serde(rename = "MD5OfMessageSystemAttributes", skip_serializing_if = "Option::is_none")]
    pub(super) md5_of_system_attributes: Option<String>,
    #[serde(rename = "SequenceNumber", skip_serializing_if = "Option::is_none")]
    pub(super) sequence_number: Option<String>,
}

/// An entry that was carried out, of a batch whose entries have no results.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Done {
    pub(super) id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BatchAnswer<T> {
    pub(super) successful: Vec<T>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failed: Vec<Failed>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Failed {
    pub(super) id: String,
    pub(super) sender_fault: bool,
    pub(super) code: String,
    pub(super) message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Messages {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<MessageShape>,
}

#[derive(Serialize)]
pub(super) struct MessageShape {
    #[serde(rename = "MessageId")]
    pub(super) message_id: String,
    #[serde(rename = "ReceiptHandle")]
    pub(super) receipt_handle: String,
    #[serde(rename = "MD5OfBody")]
    pub(super) md5_of_body: String,
    #[serde(rename = "Body")]
    pub(super) body: String,
    #[serde(rename = "Attributes", skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) attributes: BTreeMap<&'static str, String>,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub(super) md5_of_attributes: Option<String>,
    #[serde(rename = "MessageAttributes", skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) message_attributes: BTreeMap<String, AttributeShape>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TaskHandle {
    pub(super) task_handle: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MovedCount {
    pub(super) approximate_number_of_messages_moved: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MoveTasks {
    pub(super) results: Vec<MoveTaskShape>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MoveTaskShape {
    /// Only a running task has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task_handle: Option<String>,
    pub(super) status: &'static str,
    pub(super) source_arn: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) destination_arn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_number_of_messages_per_second: Option<u64>,
    pub(super) approximate_number_of_messages_moved: u64,
    pub(super) approximate_number_of_messages_to_move: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure_reason: Option<&'static str>,
    pub(super) started_timestamp: u64,
}

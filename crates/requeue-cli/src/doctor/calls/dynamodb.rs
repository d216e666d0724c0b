//! Operations of DynamoDB.

use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call_json};
use serde::Deserialize;
use serde_json::json;

/// A table.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct TableDescription {
    pub(crate) table_arn: Option<String>,
    /// `ACTIVE`, `UPDATING` and so on.
    pub(crate) table_status: Option<String>,
    pub(crate) key_schema: Vec<KeyElement>,
    pub(crate) attribute_definitions: Vec<AttributeDefinition>,
    /// Missing if the table has had provisioned capacity only.
    pub(crate) billing_mode_summary: Option<BillingMode>,
    pub(crate) provisioned_throughput: Option<Throughput>,
    #[serde(rename = "SSEDescription")]
    pub(crate) encryption: Option<Encryption>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct KeyElement {
    pub(crate) attribute_name: String,
    /// `HASH` or `RANGE`.
    pub(crate) key_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AttributeDefinition {
    pub(crate) attribute_name: String,
    /// `S`, `N` or `B`.
    pub(crate) attribute_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct BillingMode {
    pub(crate) billing_mode: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Throughput {
    pub(crate) write_capacity_units: Option<u64>,
}

/// Missing if DynamoDB owns the key.
#[derive(Deserialize)]
pub(crate) struct Encryption {
    #[serde(rename = "KMSMasterKeyArn")]
    pub(crate) key: Option<String>,
}

/// The table of this name or ARN.
pub(crate) async fn describe_table(
    sdk: &SdkConfig,
    table: &str,
) -> Result<TableDescription, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        table: TableDescription,
    }
    let parameters = json!({ "TableName": table });
    let operation = "DynamoDB_20120810.DescribeTable";
    let output = call_json(sdk, Service::DynamoDb, operation, &parameters).await;
    output.map(|output: Output| output.table)
}

/// The attribute by which items of the table expire; `None` if they stay.
pub(crate) async fn time_to_live(
    sdk: &SdkConfig,
    table: &str,
) -> Result<Option<String>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        time_to_live_description: Description,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Description {
        time_to_live_status: Option<String>,
        attribute_name: Option<String>,
    }
    let parameters = json!({ "TableName": table });
    let operation = "DynamoDB_20120810.DescribeTimeToLive";
    let output: Output = call_json(sdk, Service::DynamoDb, operation, &parameters).await?;
    let Description { time_to_live_status, attribute_name } = output.time_to_live_description;
    let is_on = matches!(time_to_live_status.as_deref(), Some("ENABLED" | "ENABLING"));
    Ok(attribute_name.filter(|_| is_on))
}

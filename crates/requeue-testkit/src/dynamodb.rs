//! A table of a DynamoDB emulator, as the deployments make it.

use std::time::Duration;

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use requeue_aws::{SdkConfig, Service, call_json};
use serde_json::{Value, json};

/// The configuration of clients of the emulator at this URL.
pub fn config(url: &str) -> SdkConfig {
    let credentials = Credentials::new("test", "test", None, None, "test");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(url)
        .build()
}

/// Makes the table, and waits until it is there.
///
/// # Panics
///
/// If the emulator does not do it.
pub async fn create_table(config: &SdkConfig, table: &str) {
    let create = json!({
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{ "AttributeName": "id", "AttributeType": "S" }],
        "KeySchema": [{ "AttributeName": "id", "KeyType": "HASH" }],
    });
    let call = async |operation, parameters| -> Value {
        let done = call_json(config, Service::DynamoDb, operation, parameters).await;
        done.expect("DynamoDB does it")
    };
    call("DynamoDB_20120810.CreateTable", &create).await;
    let describe = json!({ "TableName": table });
    while call("DynamoDB_20120810.DescribeTable", &describe).await["Table"]["TableStatus"]
        != "ACTIVE"
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

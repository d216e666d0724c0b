//! The secrets and the table in a function's settings, and the KMS keys of these and of queues.

use futures_util::future::join_all;
use requeue::queue::CallError;
use requeue_aws::Service::{DynamoDb, Kms, SecretsManager, Ssm};
use serde_json::{Value, json};

use super::super::arn::{Arn, is_alias, key_name, own_arn};
use super::super::calls::{list, text};
use super::super::checks::{KEY, NO_KEY, PARAMETER, USING, is_whole, reading};
use super::super::facts::{
    CustomerKey, FunctionSettings, Key, Known, Secret, Table, TableProperties, Unread,
};
use super::Clients;
use super::ask::Operation;

const DESCRIBE_KEY: Operation = (Kms, "kms:DescribeKey", "TrentService.DescribeKey", "KeyMetadata");
const KEY_POLICY: Operation = (Kms, "kms:GetKeyPolicy", "TrentService.GetKeyPolicy", "Policy");
const SECRET: Operation =
    (SecretsManager, "secretsmanager:DescribeSecret", "secretsmanager.DescribeSecret", "");
const PARAMETERS: Operation =
    (Ssm, "ssm:DescribeParameters", "AmazonSSM.DescribeParameters", "Parameters");
const TABLE: Operation =
    (DynamoDb, "dynamodb:DescribeTable", "DynamoDB_20120810.DescribeTable", "Table");
const EXPIRY: Operation = (
    DynamoDb,
    "dynamodb:DescribeTimeToLive",
    "DynamoDB_20120810.DescribeTimeToLive",
    "TimeToLiveDescription",
);
/// The aliases of the keys that AWS manages, one for each service, begin so.
const MANAGED: &str = "alias/aws/";

impl Clients {
    pub(super) async fn key(
        &self,
        name: String,
        of: &str,
        role: Option<&str>,
    ) -> Option<CustomerKey> {
        if name.starts_with(MANAGED) || name.contains(&format!(":{MANAGED}")) {
            return None;
        }
        let (sdk, name) = (self.at(of), key_name(&name, of));
        let described = self.ask_json(&sdk, DESCRIBE_KEY, &name, json!({ "KeyId": name })).await;
        let key = match described {
            Ok(key) if key["KeyManager"] == "AWS" => return None,
            Ok(key) => Ok(Key {
                arn: text(&key["Arn"]).unwrap_or_else(|| name.clone()),
                state: text(&key["KeyState"]).unwrap_or_default(),
            }),
            Err(unread) if unread.error.code == "NotFoundException" => {
                Ok(Key { arn: name.clone(), state: NO_KEY.to_owned() })
            }
            Err(unread) => Err(unread),
        };
        let arn = key.as_ref().map_or(&name, |key| &key.arn);
        let policy = match &key {
            // KMS knows a policy by its key only, not by an alias.
            Err(unread) if is_alias(arn) => Err(unread.clone()),
            _ => {
                let parameters = json!({ "KeyId": arn, "PolicyName": "default" });
                let policy = self.ask_json(&sdk, KEY_POLICY, arn, parameters).await;
                policy.map(|policy| text(&policy).unwrap_or_default())
            }
        };
        // Nor does IAM.
        let access = self.simulate(role.filter(|_| !is_alias(arn)), &KEY, arn).await;
        Some(CustomerKey { name, access, key, policy })
    }

    pub(super) async fn secrets(
        &self,
        role: &str,
        settings: &Known<FunctionSettings>,
    ) -> Vec<Secret> {
        let arns = settings.iter().flat_map(|settings| &settings.secrets);
        let asked = arns.map(async |arn| {
            let action = reading(arn);
            // A role may read any end of this ARN, so the real one does not matter.
            let resource = if is_whole(arn) { arn.clone() } else { format!("{arn}-XXXXXX") };
            let access = self.simulate(Some(role), &[action], &resource).await;
            Secret { arn: arn.clone(), access, key: self.key_of_secret(arn, role).await }
        });
        join_all(asked).await
    }

    async fn key_of_secret(&self, arn: &str, role: &str) -> Known<Option<CustomerKey>> {
        let sdk = self.at(arn);
        let key = async |name: &Value| self.key(text(name)?, arn, Some(role)).await;
        if reading(arn) != PARAMETER {
            let secret = self.ask_json(&sdk, SECRET, arn, json!({ "SecretId": arn })).await?;
            return Ok(key(&secret["KmsKeyId"]).await);
        }
        // Its name alone, since the operation finds no ARN. The ARN has one slash there, whether the
        // name begins with one or not.
        let name = Arn::of(arn).resource;
        let name = name.strip_prefix("parameter/").unwrap_or(name);
        let names = [name.to_owned(), format!("/{name}")];
        let filter = json!({ "Key": "Name", "Option": "Equals", "Values": names });
        let parameters = json!({ "ParameterFilters": [filter] });
        let found = self.ask_json(&sdk, PARAMETERS, arn, parameters).await?;
        let Some(parameter) = list(&found).first() else {
            let missing = CallError::responded(400, "ParameterNotFound");
            return Err(Unread::of(PARAMETERS.1, arn, missing));
        };
        Ok(key(&parameter["KeyId"]).await)
    }

    pub(super) async fn table(
        &self,
        settings: &Known<FunctionSettings>,
        role: Option<&str>,
    ) -> Option<Table> {
        let name = settings.as_ref().ok()?.table.clone()?;
        // The name may be an ARN.
        let (sdk, parameters) = (self.at(&name), json!({ "TableName": name }));
        let (described, expiry) = tokio::join!(
            self.ask_json(&sdk, TABLE, &name, parameters.clone()),
            self.ask_json(&sdk, EXPIRY, &name, parameters)
        );
        let expiry = expiry.map(|expiry| {
            let is_on = ["ENABLED", "ENABLING"].iter().any(|it| expiry["TimeToLiveStatus"] == *it);
            text(&expiry["AttributeName"]).filter(|_| is_on)
        });
        let mut arn = own_arn(&name, "dynamodb", &self.region, role.unwrap_or_default(), "table/");
        let mut key = None;
        let properties = match described {
            Ok(described) => {
                arn = text(&described["TableArn"]).unwrap_or(arn);
                if let Some(name) = text(&described["SSEDescription"]["KMSMasterKeyArn"]) {
                    key = self.key(name, &arn, role).await;
                }
                Ok(Some(properties(&described)))
            }
            Err(unread) if unread.error.code == "ResourceNotFoundException" => Ok(None),
            Err(unread) => Err(unread),
        };
        let access = self.simulate(role, &USING, &arn).await;
        Some(Table { name, arn, properties, expiry, access, key })
    }
}

fn properties(table: &Value) -> TableProperties {
    let kind = |name: &Value| {
        let mut definitions = list(&table["AttributeDefinitions"]).iter();
        let definition = definitions.find(|definition| definition["AttributeName"] == *name);
        definition.and_then(|definition| text(&definition["AttributeType"]))
    };
    // The partition key first.
    let mut key: Vec<&Value> = list(&table["KeySchema"]).iter().collect();
    key.sort_by_key(|element| element["KeyType"] != "HASH");
    let key = key.into_iter().map(|element| {
        let name = &element["AttributeName"];
        let kind = kind(name).unwrap_or_else(|| "?".to_owned());
        format!("{} ({kind})", name.as_str().unwrap_or_default())
    });
    let status = text(&table["TableStatus"]).unwrap_or_default();
    TableProperties { status, key: key.collect() }
}

//! The secrets and the table in a function's settings, and the KMS keys of these and of queues.

use futures_util::future::{OptionFuture, join_all};
use requeue::queue::CallError;
use requeue_aws::Service::{DynamoDb, Kms, SecretsManager, Ssm};
use serde_json::{Value, json};

use super::super::arn::{Arn, is_alias, key_name};
use super::super::calls::{list, text};
use super::super::checks::{KEY, NO_KEY, PARAMETER, USING, is_whole, reading};
use super::super::facts::{
    AccessDecision, CustomerKey, EncryptionKey, FunctionSettings, Key, Known, Secret, Table,
    TableProperties, Unread,
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
    /// The key by its name in the properties of the resource of this ARN, and the permissions of
    /// `role` with it.
    pub(super) async fn key(&self, name: String, of: &str, role: Option<&str>) -> EncryptionKey {
        if name.starts_with(MANAGED) || name.contains(&format!(":{MANAGED}")) {
            return EncryptionKey::ManagedByAws;
        }
        let (sdk, name) = (self.at(of), key_name(&name, of));
        let described = self.ask_json(&sdk, DESCRIBE_KEY, &name, json!({ "KeyId": name })).await;
        let key = match described {
            Ok(key) if key["KeyManager"] == "AWS" => return EncryptionKey::ManagedByAws,
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
        let resource = if is_alias(arn) { "*" } else { arn };
        let access = OptionFuture::from(role.map(|role| self.simulate(role, &KEY, resource))).await;
        EncryptionKey::Customer(Box::new(CustomerKey { name, access, key, policy }))
    }

    /// Asks whether `role` may read the secrets in the settings.
    pub(super) async fn secrets(&self, role: &str, settings: &FunctionSettings) -> Vec<Secret> {
        let arns = settings.valid().into_iter().flat_map(|valid| &valid.secrets);
        let asked = arns.map(async |arn| {
            let action = reading(arn);
            // A role may read any end of this ARN, so the real one does not matter.
            let resource = if is_whole(arn) { arn.clone() } else { format!("{arn}-XXXXXX") };
            let access = self.simulate(role, &[action], &resource).await;
            // IAM's response has a decision for each action.
            let decision =
                access.map(|access| access.get(action).copied().unwrap_or(AccessDecision::Depends));
            let key = self.key_of_secret(arn, role).await;
            Secret { arn: arn.clone(), decision, key }
        });
        join_all(asked).await
    }

    /// `None` for a parameter that is not encrypted.
    async fn key_of_secret(&self, arn: &str, role: &str) -> Known<Option<EncryptionKey>> {
        let sdk = self.at(arn);
        if reading(arn) != PARAMETER {
            let secret = self.ask_json(&sdk, SECRET, arn, json!({ "SecretId": arn })).await?;
            return Ok(Some(match text(&secret["KmsKeyId"]) {
                Some(name) => self.key(name, arn, Some(role)).await,
                None => EncryptionKey::ManagedByAws,
            }));
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
            let missing = CallError::answered(400, "ParameterNotFound");
            return Err(Unread::of(PARAMETERS.1, arn, missing));
        };
        let name = text(&parameter["KeyId"]);
        Ok(OptionFuture::from(name.map(|name| self.key(name, arn, Some(role)))).await)
    }

    /// The table in the settings, and the permissions of `role` on it.
    pub(super) async fn table(
        &self,
        settings: &FunctionSettings,
        role: Option<&str>,
    ) -> Option<Table> {
        let name = settings.valid()?.table.clone()?;
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
        let mut arn = self.arn_of_table(&name, role.unwrap_or_default());
        let mut key = None;
        let properties = match described {
            Ok(described) => {
                arn = text(&described["TableArn"]).unwrap_or(arn);
                if let Some(name) = text(&described["SSEDescription"]["KMSMasterKeyArn"]) {
                    key = Some(self.key(name, &arn, role).await);
                }
                Ok(Some(properties(&described)))
            }
            Err(unread) if unread.error.code == "ResourceNotFoundException" => Ok(None),
            Err(unread) => Err(unread),
        };
        let access = OptionFuture::from(role.map(|role| self.simulate(role, &USING, &arn))).await;
        Some(Table { name, arn, properties, expiry, access, key })
    }

    /// The ARN, if the table itself does not tell it.
    fn arn_of_table(&self, name: &str, role: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        let Arn { partition, account, .. } = Arn::of(role);
        format!("arn:{partition}:dynamodb:{}:{account}:table/{name}", self.region)
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
    // Missing if the table has had provisioned capacity only.
    let is_on_demand = table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST";
    let units = table["ProvisionedThroughput"]["WriteCapacityUnits"].as_u64();
    TableProperties {
        status: text(&table["TableStatus"]).unwrap_or_default(),
        key: key.collect(),
        provisioned: (!is_on_demand).then(|| units.unwrap_or_default()),
    }
}

//! The table that the execution environments share.

use super::super::access_policy::account;
use super::super::calls::dynamodb;
use super::super::checks::USING;
use super::super::facts::{FunctionSettings, Table, TableProperties};
use super::super::parse;
use super::{Clients, code, unread};

impl Clients {
    /// The table in the settings, and the permissions of `role` on it.
    pub(super) async fn table(
        &self,
        settings: &FunctionSettings,
        role: Option<&str>,
    ) -> Option<Table> {
        let FunctionSettings::Valid(valid) = settings else { return None };
        let name = valid.table.as_ref()?.clone();
        // The name may be an ARN.
        let sdk = self.at(&name);
        let (described, expiry) = tokio::join!(
            self.called("dynamodb:DescribeTable", dynamodb::describe_table(&sdk, &name)),
            self.called("dynamodb:DescribeTimeToLive", dynamodb::time_to_live(&sdk, &name))
        );
        let expiry = expiry.map_err(|error| unread("dynamodb:DescribeTimeToLive", &name, &error));
        let mut arn = self.arn_of_table(&name, role);
        let mut key = None;
        let properties: Result<Option<TableProperties>, _> = match described {
            Ok(described) => {
                arn = described.table_arn.clone().unwrap_or(arn);
                if let Some(name) = described.encryption.as_ref().and_then(|it| it.key.as_ref()) {
                    key = Some(self.key(name, &arn).await);
                }
                Ok(Some(parse::table(&described)))
            }
            Err(error) if code(&error) == "ResourceNotFoundException" => Ok(None),
            Err(error) => Err(unread("dynamodb:DescribeTable", &name, &error)),
        };
        let access = match role {
            Some(role) => {
                if let Some(key) = &mut key {
                    self.ask_of_key(key, role).await;
                }
                Some(self.simulate(role, &USING, &arn).await)
            }
            None => None,
        };
        Some(Table { name, arn, properties, expiry, access, key })
    }

    /// The ARN, if the table itself does not tell it.
    fn arn_of_table(&self, name: &str, role: Option<&str>) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        let role = role.unwrap_or_default();
        let partition = role.split(':').nth(1).unwrap_or("aws");
        format!("arn:{partition}:dynamodb:{}:{}:table/{name}", self.region, account(role))
    }
}

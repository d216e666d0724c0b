//! The KMS keys of queues and secrets.

use super::super::calls::kms::{self, KeyMetadata};
use super::super::checks::{KEY, NO_KEY, is_alias};
use super::super::facts::{CustomerKey, EncryptionKey, Key, Unread};
use super::super::parse;
use super::queue::SIMULATE;
use super::{Clients, code, unread};

/// The aliases of the keys that AWS manages, one for each service, begin so.
const MANAGED: &str = "alias/aws/";

impl Clients {
    /// The key by its name in the properties of the queue or the secret of this ARN.
    pub(super) async fn key(&self, name: &str, of: &str) -> EncryptionKey {
        if name.starts_with(MANAGED) || name.contains(&format!(":{MANAGED}")) {
            return EncryptionKey::ManagedByAws;
        }
        let (sdk, name) = (self.at(of), parse::key_name(name, of));
        let described = kms::describe_key(&sdk, &name);
        let key = match self.called("kms:DescribeKey", described).await {
            Ok(KeyMetadata { key_manager, .. }) if key_manager.as_deref() == Some("AWS") => {
                return EncryptionKey::ManagedByAws;
            }
            Ok(KeyMetadata { arn, key_state, .. }) => Ok(Key {
                arn: arn.unwrap_or_else(|| name.clone()),
                state: key_state.unwrap_or_default(),
            }),
            Err(error) if code(&error) == "NotFoundException" => {
                Ok(Key { arn: name.clone(), state: NO_KEY.to_owned() })
            }
            Err(error) => Err(unread("kms:DescribeKey", &name, &error)),
        };
        let arn = key.as_ref().map_or(&name, |key| &key.arn);
        let policy = match &key {
            // KMS knows a policy by its key only, not by an alias.
            Err(unread) if is_alias(arn) => Err(unread.clone()),
            _ => self
                .called("kms:GetKeyPolicy", kms::key_policy(&sdk, arn))
                .await
                .map_err(|error| unread("kms:GetKeyPolicy", arn, &error)),
        };
        let access = Err(Unread {
            permission: SIMULATE,
            resource: name.clone(),
            code: "NotAsked".to_owned(),
            is_answered: false,
        });
        EncryptionKey::Customer(Box::new(CustomerKey { name, access, key, policy }))
    }

    /// Asks for the permissions of the role with the key.
    pub(super) async fn ask_of_key(&self, key: &mut EncryptionKey, role: &str) {
        let EncryptionKey::Customer(customer) = key else { return };
        let CustomerKey { name, access, key, .. } = &mut **customer;
        let arn = key.as_ref().map_or(&*name, |key| &key.arn);
        let resource = if is_alias(arn) { "*" } else { arn };
        *access = self.simulate(role, &KEY, resource).await;
    }
}

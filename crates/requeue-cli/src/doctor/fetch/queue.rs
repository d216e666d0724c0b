//! The queues of a function, and the permissions of the function's role on them and on their keys.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName as Name;
use requeue::queue::{MAX_BATCH_BYTES, QueueArn};
use requeue_aws::{Service, call_query};
use serde_json::Value;

use super::super::calls::{access, list, simulation};
use super::super::checks::SENDING;
use super::super::facts::{
    Access, FunctionSettings, Known, Mapping, QueueAttributes, QueuePath, Reached, RedriveSettings,
};
use super::function::count;
use super::{ATTRIBUTES, Clients, mapping};
use crate::failed_call::Cause;

const SIMULATE: &str = "iam:SimulatePrincipalPolicy";
/// The default of a queue. Source: SQS API reference, `SetQueueAttributes`.
const DEFAULT_RECEIVES: u32 = 10;

impl Clients {
    /// Follows a queue to its dead-letter queues, and asks for the permissions of `role` on them.
    pub(super) async fn path(
        &self,
        mapping: Option<Mapping>,
        source: Reached,
        role: Option<&str>,
        settings: &Known<FunctionSettings>,
    ) -> QueuePath {
        let target = source.known().and_then(|queue| queue.redrive.as_ref()?.target.parse().ok());
        let direct = settings.as_ref().ok().and_then(|settings| {
            let own = settings.config.queues.get(source.arn.name());
            let own = own.and_then(|own| own.dead_letter.as_ref());
            own.or(settings.config.dead_letter.as_ref())?.queue()
        });
        let direct = direct.map(|url| url.arn(source.arn.partition(), &self.region));
        let dead_letters = async { Some(self.reached(target?, None, &[]).await) };
        let direct = async { Some(self.reached(direct?, role, &[SENDING]).await) };
        let (dead_letters, direct) = tokio::join!(dead_letters, direct);
        QueuePath { mapping, source, dead_letters, direct }
    }

    /// A queue, and whether this role may do this there and use its key.
    pub(super) async fn reached(
        &self,
        arn: QueueArn,
        role: Option<&str>,
        actions: &[&str],
    ) -> Reached {
        let name = arn.to_string();
        let request = self.sqs.get_queue_attributes().queue_url(arn.url());
        let request = request.attribute_names(Name::All);
        let (attributes, consumers) =
            tokio::join!(self.ask(ATTRIBUTES, &name, request.send()), self.consumers(&name));
        let attributes = match attributes {
            Ok(response) => Ok(Some(response.attributes.unwrap_or_default())),
            Err(unread) if Cause::of(&unread.error.code) == Cause::NoQueue => Ok(None),
            Err(unread) => Err(unread),
        };
        let attribute = |name| attributes.as_ref().ok()?.as_ref()?.get(&name);
        let key = match attribute(Name::KmsMasterKeyId).filter(|key| !key.is_empty()) {
            Some(key) => self.key(key.clone(), &name, role).await,
            None => None,
        };
        // A queue's ARN has its partition; the URL of an emulator has none.
        let own = attribute(Name::QueueArn).and_then(|own| own.parse().ok());
        let queue = attributes.map(|attributes| attributes.as_ref().map(queue));
        let is_of_function = |mapping: &&Value| mapping["FunctionArn"].is_string();
        let consumers =
            consumers.map(|mappings| mappings.iter().filter(is_of_function).map(mapping).collect());
        let arn = own.unwrap_or(arn);
        let access = self.simulate(role, actions, &arn.to_string()).await;
        Reached { arn, queue, access, key, consumers }
    }

    pub(super) async fn simulate(
        &self,
        role: Option<&str>,
        actions: &[&str],
        resource: &str,
    ) -> Known<Access> {
        let Some(role) = role.filter(|_| !actions.is_empty()) else { return Ok(Access::new()) };
        let simulation = simulation(role, actions, resource);
        let results = call_query(&self.sdk, Service::Iam, simulation, access);
        self.ask(SIMULATE, role, results).await
    }
}

fn queue(attributes: &HashMap<Name, String>) -> QueueAttributes {
    let text = |name| attributes.get(&name).filter(|text| !text.is_empty());
    let number = |name| text(name)?.parse::<u64>().ok();
    let secs = |name| Duration::from_secs(number(name).unwrap_or_default());
    let allow: Value = text(Name::RedriveAllowPolicy)
        .and_then(|policy| serde_json::from_str(policy).ok())
        .unwrap_or_default();
    let sources = list(&allow["sourceQueueArns"]).iter().filter_map(Value::as_str);
    QueueAttributes {
        visibility: secs(Name::VisibilityTimeout),
        delay: secs(Name::DelaySeconds),
        retention: secs(Name::MessageRetentionPeriod),
        maximum_message_size: number(Name::MaximumMessageSize).unwrap_or(MAX_BATCH_BYTES as u64),
        redrive: text(Name::RedrivePolicy).and_then(|policy| redrive(policy)),
        redrive_allow: match allow["redrivePermission"].as_str() {
            Some("denyAll") => Some(Vec::new()),
            Some("byQueue") => Some(sources.map(str::to_owned).collect()),
            _ => None,
        },
        policy: text(Name::Policy).cloned(),
    }
}

/// `None` if the policy names no dead-letter queue.
fn redrive(policy: &str) -> Option<RedriveSettings> {
    let policy: Value = serde_json::from_str(policy).ok()?;
    // SQS accepts a number or a text.
    let receives = &policy["maxReceiveCount"];
    let receives = count(receives).or_else(|| receives.as_str()?.parse().ok());
    let target = policy["deadLetterTargetArn"].as_str()?.to_owned();
    Some(RedriveSettings { target, max_receive_count: receives.unwrap_or(DEFAULT_RECEIVES) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_queue_says_is_read_in_each_of_its_forms() {
        let target = r#""deadLetterTargetArn": "arn:aws:sqs:r:1:dead""#;
        for (count, expected) in
            [(r#", "maxReceiveCount": 3"#, 3), (r#", "maxReceiveCount": "3""#, 3), ("", 10)]
        {
            let attributes = [(Name::RedrivePolicy, format!("{{{target}{count}}}"))].into();
            let redrive = queue(&attributes)
                .redrive
                .map(|redrive| (redrive.target, redrive.max_receive_count));
            assert_eq!(redrive, Some(("arn:aws:sqs:r:1:dead".to_owned(), expected)), "{count}");
        }
        for (policy, expected) in [
            ("", None),
            (r#"{"redrivePermission": "allowAll"}"#, None),
            (r#"{"redrivePermission": "denyAll"}"#, Some(Vec::new())),
            (
                r#"{"redrivePermission": "byQueue", "sourceQueueArns": ["a", "b"]}"#,
                Some(vec!["a".to_owned(), "b".to_owned()]),
            ),
        ] {
            let attributes = [(Name::RedriveAllowPolicy, policy.to_owned())].into();
            assert_eq!(queue(&attributes).redrive_allow, expected, "{policy}");
        }
    }
}

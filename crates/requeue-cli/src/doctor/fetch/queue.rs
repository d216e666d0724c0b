//! The queues of a function, their keys, and the permissions of the function's role on both.

use aws_sdk_sqs::operation::get_queue_attributes::GetQueueAttributesError;
use aws_sdk_sqs::types::QueueAttributeName;
use requeue::DeadLetterMode;
use requeue::queue::QueueArn;

use super::super::calls::{iam, lambda};
use super::super::checks::{SENDING, TAKING};
use super::super::facts::{
    Access, AccessDecision, FunctionSettings, Known, Limit, Mapping, QueuePath, Reached,
};
use super::super::parse;
use super::{Clients, MAPPINGS, unread};

pub(super) const SIMULATE: &str = "iam:SimulatePrincipalPolicy";

impl Clients {
    /// Follows a queue to its dead-letter queues, and asks for the permissions of `role` on them.
    pub(super) async fn path(
        &self,
        mapping: Option<Mapping>,
        mut source: Reached,
        role: Option<&str>,
        settings: &FunctionSettings,
    ) -> QueuePath {
        let target = source.known().and_then(|queue| queue.redrive.as_ref()?.target.parse().ok());
        let direct = match settings {
            FunctionSettings::Valid(valid) => {
                let queue = valid.config.dead_letter.as_ref().and_then(DeadLetterMode::queue);
                queue.map(|url| url.arn(source.arn.partition(), &self.region))
            }
            FunctionSettings::Invalid(_) | FunctionSettings::Unread(_) => None,
        };
        let dead_letters = async { Some(self.reached(target?).await) };
        let direct = async { Some(self.reached(direct?).await) };
        let (dead_letters, mut direct) = tokio::join!(dead_letters, direct);
        if let Some(role) = role {
            let taking: Vec<&str> = TAKING.into_iter().chain([SENDING]).collect();
            self.ask(&mut source, role, &taking).await;
            if let Some(direct) = &mut direct {
                self.ask(direct, role, &[SENDING]).await;
            }
        }
        QueuePath { mapping, source, dead_letters, direct }
    }

    pub(super) async fn reached(&self, arn: QueueArn) -> Reached {
        let request = self
            .sqs
            .get_queue_attributes()
            .queue_url(arn.url())
            .attribute_names(QueueAttributeName::All);
        let name = arn.to_string();
        let consumers = lambda::event_source_mappings(&self.sdk, "EventSourceArn", &name);
        let (attributes, consumers) = tokio::join!(
            self.called("sqs:GetQueueAttributes", request.send()),
            self.called(MAPPINGS, consumers)
        );
        let consumers = consumers
            .map(|mappings| mappings.iter().map(parse::consumer).collect())
            .map_err(|error| unread(MAPPINGS, &name, &error));
        let attributes = match attributes {
            Ok(answer) => Ok(Some(answer.attributes.unwrap_or_default())),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(GetQueueAttributesError::is_queue_does_not_exist) =>
            {
                Ok(None)
            }
            Err(error) => Err(unread("sqs:GetQueueAttributes", &arn, &error)),
        };
        let attribute = |name| attributes.as_ref().ok()?.as_ref()?.get(&name);
        let key = attribute(QueueAttributeName::KmsMasterKeyId).filter(|key| !key.is_empty());
        let key = match key {
            Some(key) => Some(self.key(key, &arn.to_string()).await),
            None => None,
        };
        // A queue's ARN has its partition; the URL of an emulator has none.
        let own = attribute(QueueAttributeName::QueueArn).and_then(|own| own.parse().ok());
        let queue = attributes.map(|attributes| attributes.as_ref().map(parse::queue));
        Reached { arn: own.unwrap_or(arn), queue, access: None, key, consumers }
    }

    /// Asks for the permissions of the role on an existing queue and its key.
    async fn ask(&self, reached: &mut Reached, role: &str, actions: &[&str]) {
        reached.access = Some(self.simulate(role, actions, &reached.arn.to_string()).await);
        if let Some(key) = &mut reached.key {
            self.ask_of_key(key, role).await;
        }
    }

    pub(super) async fn simulate(
        &self,
        role: &str,
        actions: &[&str],
        resource: &str,
    ) -> Known<Access> {
        let results = iam::simulate_principal_policy(&self.sdk, role, actions, resource);
        let results = self.called(SIMULATE, results).await;
        let results = results.map_err(|error| unread(SIMULATE, &role, &error))?;
        let decisions = results.into_iter().map(|result| {
            let decision = match result.decision.as_str() {
                "allowed" => AccessDecision::Allowed,
                _ if result.is_missing_context => AccessDecision::Depends,
                "explicitDeny" => AccessDecision::Denied,
                _ if !result.is_in_boundary => AccessDecision::Limited(Limit::Boundary),
                _ if !result.is_in_organization => AccessDecision::Limited(Limit::Organization),
                _ => AccessDecision::NotAllowed,
            };
            (result.action, decision)
        });
        Ok(decisions.collect())
    }
}

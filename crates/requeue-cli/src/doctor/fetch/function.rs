//! The properties of a function.

use std::time::Duration;

use requeue::RecursiveLoop;
use requeue::queue::CallError;
use requeue_aws::Service;
use serde_json::{Value, json};

use super::super::arn::Arn;
use super::super::calls::{list, text};
use super::super::checks::LOGGING;
use super::super::facts::{Function, FunctionSettings, Known, Unread};
use super::ask::Operation;
use super::{Clients, Named};
use crate::function::FunctionConfiguration;

const ACCOUNT: &str = "lambda:GetAccountSettings";
const RECURSION: &str = "lambda:GetFunctionRecursionConfig";
pub(super) const CONCURRENCY: &str = "lambda:GetFunctionConcurrency";
pub(super) const CONCURRENCY_PATH: &str = "2019-09-30/functions/{}/concurrency";
const LOG_GROUPS: Operation =
    (Service::Logs, "logs:DescribeLogGroups", "Logs_20140328.DescribeLogGroups", "logGroups");
/// In seconds. Source: Lambda API reference, `CreateFunction`.
pub(super) const DEFAULT_TIMEOUT: u64 = 3;

pub(super) fn count(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|count| u32::try_from(count).ok())
}

impl Clients {
    pub(super) async fn properties(
        &self,
        configuration: &FunctionConfiguration,
        Named { qualifier, mapped }: Named,
        settings: &FunctionSettings,
    ) -> Function {
        let name = configuration.function_name.clone().unwrap_or_default();
        let role = configuration.role.clone().unwrap_or_default();
        let logs = configuration.logging_config.clone().unwrap_or_default();
        let group = logs.group_of(&name);
        // The resource of an event is a log stream, and Lambda chooses its name.
        let Arn { partition, account, .. } = Arn::of(&role);
        let region = &self.region;
        let stream =
            format!("arn:{partition}:logs:{region}:{account}:log-group:{group}:log-stream:any");
        let (recursion, concurrency, account, log_group, log_access, secrets) = tokio::join!(
            self.get(RECURSION, &name, "2024-08-31/functions/{}/recursion-config"),
            self.get(CONCURRENCY, &name, CONCURRENCY_PATH),
            self.get(ACCOUNT, "*", "2016-08-19/account-settings"),
            self.log_group_class(&group),
            self.simulate(&role, &LOGGING, &stream),
            self.secrets(&role, settings)
        );
        let vpc = configuration.vpc_config.as_ref().and_then(|vpc| vpc.vpc_id.clone());
        Function {
            qualifier,
            mapped,
            timeout: Duration::from_secs(configuration.timeout.unwrap_or(DEFAULT_TIMEOUT)),
            state: configuration.state.clone(),
            vpc: vpc.filter(|id| !id.is_empty()),
            name,
            role,
            logs,
            log_group,
            log_access,
            recursive_loop: recursion.map(|recursion| match recursion["RecursiveLoop"].as_str() {
                Some("Allow") => RecursiveLoop::Allow,
                _ => RecursiveLoop::Terminate,
            }),
            reserved_concurrency: concurrency
                .map(|concurrency| count(&concurrency["ReservedConcurrentExecutions"])),
            unreserved_concurrency: account.and_then(|account| {
                let limit = &account["AccountLimit"]["UnreservedConcurrentExecutions"];
                count(limit)
                    .ok_or_else(|| Unread::of(ACCOUNT, "*", CallError::ambiguous("NoLimit")))
            }),
            secrets,
        }
    }

    /// The class of the log group of this name; `None` if there is none.
    async fn log_group_class(&self, name: &str) -> Known<Option<String>> {
        let parameters = json!({ "logGroupNamePrefix": name });
        let groups = self.ask_json(&self.sdk, LOG_GROUPS, name, parameters).await?;
        // Names are sorted, so the first page has it.
        let group = list(&groups).iter().find(|group| group["logGroupName"] == name);
        // Source: CloudWatch Logs API reference, `CreateLogGroup`.
        let class = |class| text(class).unwrap_or_else(|| "STANDARD".to_owned());
        Ok(group.map(|group| class(&group["logGroupClass"])))
    }
}

//! The properties of a function, and of the one that it invokes.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use requeue::RecursiveLoop;
use requeue::queue::CallError;
use requeue_aws::Service;
use requeue_lambda::call_limit;
use serde_json::{Value, json};

use super::super::arn::{function_name, own_arn};
use super::super::calls::{list, text};
use super::super::checks::{INVOKING, LOGGING};
use super::super::facts::{
    Function, FunctionSettings, InvokedFunction, Known, TargetProperties, Unread,
};
use super::ask::Operation;
use super::{CONFIGURATION, Clients, HOUR, Invoked, deployed};
use crate::failed_call::Cause;
use crate::observe::start_error;

const ACCOUNT: &str = "lambda:GetAccountSettings";
const RECURSION: &str = "lambda:GetFunctionRecursionConfig";
const LOG_GROUPS: Operation =
    (Service::Logs, "logs:DescribeLogGroups", "Logs_20140328.DescribeLogGroups", "logGroups");
/// In seconds. Source: Lambda API reference, `CreateFunction`.
const DEFAULT_TIMEOUT: u64 = 3;
/// Of a log, each with at most 1 MB.
const MOST_PAGES: u32 = 10;

pub(super) fn count(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|count| u32::try_from(count).ok())
}

impl Clients {
    pub(super) async fn properties(
        &self,
        Invoked { configuration, qualifier, mapped, .. }: &Invoked,
        settings: &Known<FunctionSettings>,
    ) -> Function {
        let name = configuration.function_name.clone().unwrap_or_default();
        let role = configuration.role.clone().unwrap_or_default();
        let logs = configuration.logging_config.clone().unwrap_or_default();
        let group = logs.group_of(&name);
        // The resource of an event is a log stream, and Lambda chooses its name.
        let stream = format!("{group}:log-stream:any");
        let stream = own_arn(&stream, "logs", &self.region, &role, "log-group:");
        let (recursion, reserved, account, log_group, log_access, secrets, start_failure) = tokio::join!(
            self.get(RECURSION, &name, "2024-08-31/functions/{}/recursion-config"),
            self.reserved_concurrency(&name),
            self.get(ACCOUNT, "*", "2016-08-19/account-settings"),
            self.log_group_class(&group),
            self.simulate(Some(&role), &LOGGING, &stream),
            self.secrets(&role, settings),
            self.start_failure(&group, configuration.last_modified.as_deref())
        );
        let vpc = configuration.vpc_config.as_ref().and_then(|vpc| vpc.vpc_id.clone());
        Function {
            qualifier: qualifier.clone(),
            mapped: mapped.clone(),
            timeout: Duration::from_secs(configuration.timeout.unwrap_or(DEFAULT_TIMEOUT)),
            state: configuration.state.clone(),
            start_failure,
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
            reserved_concurrency: reserved,
            unreserved_concurrency: account.and_then(|account| {
                let limit = &account["AccountLimit"]["UnreservedConcurrentExecutions"];
                count(limit)
                    .ok_or_else(|| Unread::of(ACCOUNT, "*", CallError::ambiguous("NoLimit")))
            }),
            secrets,
        }
    }

    /// The last failed start of this hour, unless an older configuration or a batch came later.
    async fn start_failure(
        &self,
        group: &str,
        modified: Option<&str>,
    ) -> Known<Option<(SystemTime, String)>> {
        let hour = Timestamp::now() - SignedDuration::from_secs(HOUR.into());
        let since = modified.and_then(|time| time.parse().ok()).max(Some(hour)).unwrap_or(hour);
        let since = u64::try_from(since.as_millisecond()).unwrap_or_default();
        let lines = match self.log_lines(group, since, Some(r#""cannot-start""#), MOST_PAGES).await
        {
            Err(unread) if Cause::of(&unread.error.code) == Cause::NotFound => return Ok(None),
            lines => lines?.0,
        };
        let errors = lines.iter().filter_map(|it| Some((it.timestamp, start_error(&it.message)?)));
        let Some((at, error)) = errors.max() else { return Ok(None) };
        let (batches, _) = self.log_lines(group, at + 1, Some(r#""batch""#), MOST_PAGES).await?;
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at);
        Ok(batches.is_empty().then_some((at, error)))
    }

    pub(crate) async fn reserved_concurrency(&self, function: &str) -> Known<Option<u32>> {
        let path = "2019-09-30/functions/{}/concurrency";
        let concurrency = self.get("lambda:GetFunctionConcurrency", function, path).await?;
        Ok(count(&concurrency["ReservedConcurrentExecutions"]))
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

    /// The target in the settings, and the permissions of `role` on it.
    pub(super) async fn target(
        &self,
        settings: &Known<FunctionSettings>,
        role: Option<&str>,
    ) -> Option<InvokedFunction> {
        let (name, messages_per_call) = settings.as_ref().ok()?.target_function.clone()?;
        let arn = own_arn(&name, "lambda", &self.region, role.unwrap_or_default(), "function:");
        let configuration = deployed::function_configuration(&self.sdk, &name);
        let (configuration, reserved_concurrency) = tokio::join!(
            self.ask(CONFIGURATION, &name, configuration),
            self.reserved_concurrency(function_name(&name))
        );
        let properties = match configuration {
            Ok(found) => Ok(Some(TargetProperties {
                timeout: found.longest_call(DEFAULT_TIMEOUT),
                state: found.state,
                isolates_tenants: found.tenancy_config.is_some(),
                is_durable: found.durable_config.is_some(),
            })),
            Err(unread) if unread.error.code == "ResourceNotFoundException" => Ok(None),
            Err(unread) => Err(unread),
        };
        let access = self.simulate(role, &INVOKING, &arn).await;
        Some(InvokedFunction {
            name,
            arn,
            messages_per_call,
            properties,
            reserved_concurrency,
            access,
        })
    }
}

/// The settings with the time limit of a call as the target's own timeout makes it.
pub(super) fn fitted(
    mut settings: Known<FunctionSettings>,
    target: Option<&InvokedFunction>,
) -> Known<FunctionSettings> {
    let found = target.and_then(|target| target.properties.as_ref().ok()?.as_ref());
    if let (Ok(read), Some(target)) = (&mut settings, found) {
        let requeue::Settings { limits, queues, .. } = &mut read.config;
        let own = queues.values_mut().filter_map(|queue| queue.timeout.as_mut());
        for limit in own.chain([&mut limits.timeout]) {
            *limit = call_limit(*limit, target.timeout);
        }
    }
    settings
}

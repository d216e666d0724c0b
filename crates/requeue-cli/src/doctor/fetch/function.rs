//! The properties of a function.

use futures_util::future::join_all;
use requeue::RecursiveLoop;

use super::super::access_policy::account as account_of;
use super::super::calls::lambda::{self, FunctionConfiguration};
use super::super::calls::logs;
use super::super::checks::{LOGGING, is_whole, reading};
use super::super::facts::{AccessDecision, Function, FunctionSettings, Secret, Unread};
use super::super::parse;
use super::{Clients, unread};

const ACCOUNT: &str = "lambda:GetAccountSettings";

impl Clients {
    pub(super) async fn properties(
        &self,
        configuration: &FunctionConfiguration,
        settings: &FunctionSettings,
    ) -> Function {
        let name = configuration.function_name.clone().unwrap_or_default();
        let recursion = lambda::recursive_loop(&self.sdk, &name);
        let concurrency = lambda::reserved_concurrency(&self.sdk, &name);
        let account = lambda::account_limit(&self.sdk);
        let role = configuration.role.clone().unwrap_or_default();
        let logging = parse::logs(configuration);
        let group = logging.group_of(&name);
        let has_group = logs::has_log_group(&self.sdk, &group);
        // The resource of an event is a log stream, and Lambda chooses its name.
        let partition = role.split(':').nth(1).unwrap_or("aws");
        let region = &self.region;
        let stream = format!(
            "arn:{partition}:logs:{region}:{}:log-group:{group}:log-stream:any",
            account_of(&role)
        );
        let log_access = self.simulate(&role, &LOGGING, &stream);
        let (recursion, concurrency, account, has_group, log_access) =
            tokio::join!(recursion, concurrency, account, has_group, log_access);
        let unreserved_concurrency =
            account.map_err(|error| unread(ACCOUNT, &"*", &error)).and_then(|limit| {
                limit.unreserved_concurrent_executions.ok_or_else(|| Unread {
                    permission: ACCOUNT,
                    resource: "*".to_owned(),
                    code: "NoLimit".to_owned(),
                    is_answered: false,
                })
            });
        let log_group = has_group.map_err(|error| unread("logs:DescribeLogGroups", &group, &error));
        let recursive_loop = match recursion {
            Ok(Some(allow)) if allow == "Allow" => Ok(RecursiveLoop::Allow),
            Ok(_) => Ok(RecursiveLoop::Terminate),
            Err(error) => Err(unread("lambda:GetFunctionRecursionConfig", &name, &error)),
        };
        let reserved_concurrency =
            concurrency.map_err(|error| unread("lambda:GetFunctionConcurrency", &name, &error));
        let secrets = self.secrets(&role, settings).await;
        Function {
            timeout: parse::timeout(configuration),
            state: parse::state(configuration),
            vpc: parse::vpc(configuration),
            name,
            role,
            logs: logging,
            log_group,
            log_access,
            recursive_loop,
            reserved_concurrency,
            unreserved_concurrency,
            secrets,
        }
    }

    /// Asks whether `role` may read the secrets in the settings.
    async fn secrets(&self, role: &str, settings: &FunctionSettings) -> Vec<Secret> {
        let FunctionSettings::Valid(valid) = settings else { return Vec::new() };
        let asked = valid.secrets.iter().map(async |arn| {
            let action = reading(arn);
            // A role may read any end of this ARN, so the real one does not matter.
            let resource = if is_whole(arn) { arn.clone() } else { format!("{arn}-XXXXXX") };
            let access = self.simulate(role, &[action], &resource).await;
            // IAM's response has a decision for each action.
            let decision =
                access.map(|access| access.get(action).copied().unwrap_or(AccessDecision::Depends));
            Secret { arn: arn.clone(), decision }
        });
        join_all(asked).await
    }
}

//! The properties of a function.

use futures_util::future::join_all;
use jiff::Timestamp;
use requeue::RecursiveLoop;
use requeue_aws::CallError;

use super::super::access_policy::account as account_of;
use super::super::calls::lambda::{self, FunctionConfiguration};
use super::super::calls::secrets::{self, ParameterMetadata};
use super::super::calls::{cloudwatch, ec2, logs};
use super::super::checks::{LOGGING, PARAMETER, is_whole, reading};
use super::super::facts::{
    AccessDecision, Alias, EncryptionKey, Function, FunctionSettings, Known, SecondVersion, Secret,
    Unread, Vpc,
};
use super::super::parse;
use super::{Clients, Named, unread};

/// The seconds of a day.
const DAY: u32 = 86_400;
const ACCOUNT: &str = "lambda:GetAccountSettings";
const RECURSION: &str = "lambda:GetFunctionRecursionConfig";
const CONCURRENCY: &str = "lambda:GetFunctionConcurrency";
const LOG_GROUPS: &str = "logs:DescribeLogGroups";
const METRICS: &str = "cloudwatch:GetMetricStatistics";
const TABLES: &str = "ec2:DescribeRouteTables";
const ENDPOINTS: &str = "ec2:DescribeVpcEndpoints";
const GATEWAYS: &str = "ec2:DescribeNatGateways";

impl Clients {
    pub(super) async fn properties(
        &self,
        configuration: &FunctionConfiguration,
        Named { qualifier, mapped }: Named,
        settings: &FunctionSettings,
    ) -> Function {
        let name = configuration.function_name.clone().unwrap_or_default();
        let recursion = self.called(RECURSION, lambda::recursive_loop(&self.sdk, &name));
        let concurrency = lambda::reserved_concurrency(&self.sdk, &name);
        let concurrency = self.called(CONCURRENCY, concurrency);
        let account = self.called(ACCOUNT, lambda::account_limit(&self.sdk));
        let role = configuration.role.clone().unwrap_or_default();
        let logging = parse::logs(configuration);
        let group = logging.group_of(&name);
        let log_group = self.called(LOG_GROUPS, logs::log_group_class(&self.sdk, &group));
        // The resource of an event is a log stream, and Lambda chooses its name.
        let partition = role.split(':').nth(1).unwrap_or("aws");
        let region = &self.region;
        let stream = format!(
            "arn:{partition}:logs:{region}:{}:log-group:{group}:log-stream:any",
            account_of(&role)
        );
        let log_access = self.simulate(&role, &LOGGING, &stream);
        let refused_metrics = self.refused_metrics(&group);
        let (recursion, concurrency, account, log_group, log_access, refused_metrics) =
            tokio::join!(recursion, concurrency, account, log_group, log_access, refused_metrics);
        let unreserved_concurrency =
            account.map_err(|error| unread(ACCOUNT, &"*", &error)).and_then(|limit| {
                limit.unreserved_concurrent_executions.ok_or_else(|| Unread {
                    permission: ACCOUNT,
                    resource: "*".to_owned(),
                    code: "NoLimit".to_owned(),
                    is_answered: false,
                })
            });
        let log_group = log_group.map_err(|error| unread(LOG_GROUPS, &group, &error));
        let recursive_loop = match recursion {
            Ok(Some(allow)) if allow == "Allow" => Ok(RecursiveLoop::Allow),
            Ok(_) => Ok(RecursiveLoop::Terminate),
            Err(error) => Err(unread(RECURSION, &name, &error)),
        };
        let reserved_concurrency = concurrency.map_err(|error| unread(CONCURRENCY, &name, &error));
        let secrets = self.secrets(&role, settings);
        let alias = self.alias(&name, qualifier.as_deref(), configuration);
        let (secrets, alias, vpc) = tokio::join!(secrets, alias, self.network(configuration));
        Function {
            qualifier,
            mapped,
            alias,
            timeout: parse::timeout(configuration),
            state: parse::state(configuration),
            vpc,
            name,
            role,
            logs: logging,
            log_group,
            refused_metrics,
            log_access,
            recursive_loop,
            reserved_concurrency,
            unreserved_concurrency,
            secrets,
        }
    }

    /// The lines of a log group in the last day from which CloudWatch could make no metrics. Source:
    /// CloudWatch Logs user guide, "Monitoring with CloudWatch metrics".
    async fn refused_metrics(&self, group: &str) -> Known<u64> {
        let day = (Timestamp::now().as_second() - i64::from(DAY), DAY);
        let dimensions = [("LogGroupName", group)];
        let count = async |name| {
            let sum = cloudwatch::sum(&self.sdk, "AWS/Logs", name, &dimensions, day);
            self.called(METRICS, sum).await
        };
        let counts = tokio::join!(count("EMFValidationErrors"), count("EMFParsingErrors"));
        let known = |count: Result<Option<f64>, CallError>| {
            count.map_err(|error| unread(METRICS, &"*", &error))
        };
        let (invalid, unparsed) = (known(counts.0)?, known(counts.1)?);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "CloudWatch counts lines in a floating-point number"
        )]
        let refused = (invalid.unwrap_or_default() + unparsed.unwrap_or_default()) as u64;
        Ok(refused)
    }

    /// The versions of an alias. `first` is the configuration of its first version.
    async fn alias(
        &self,
        function: &str,
        qualifier: Option<&str>,
        first: &FunctionConfiguration,
    ) -> Option<Known<Alias>> {
        // A number is a version, and an alias is none.
        let alias = qualifier.filter(|qualifier| {
            *qualifier != "$LATEST" && !qualifier.bytes().all(|byte| byte.is_ascii_digit())
        })?;
        let configuration = lambda::alias(&self.sdk, function, alias);
        let configuration = match self.called("lambda:GetAlias", configuration).await {
            Ok(configuration) => configuration,
            Err(error) => {
                return Some(Err(unread(
                    "lambda:GetAlias",
                    &format!("{function}:{alias}"),
                    &error,
                )));
            }
        };
        let weights =
            configuration.routing_config.and_then(|routing| routing.additional_version_weights);
        let second = match weights.into_iter().flatten().next() {
            None => None,
            Some((version, weight)) => {
                let name = format!("{function}:{version}");
                let permission = "lambda:GetFunctionConfiguration";
                let second = lambda::function_configuration(&self.sdk, &name);
                let differences = self
                    .called(permission, second)
                    .await
                    .map(|second| parse::differences(first, &second))
                    .map_err(|error| unread(permission, &name, &error));
                Some(SecondVersion { version, weight, differences })
            }
        };
        Some(Ok(Alias { version: configuration.function_version, second }))
    }

    async fn network(&self, configuration: &FunctionConfiguration) -> Option<Vpc> {
        let vpc = configuration.vpc_config.as_ref()?.vpc_id.as_ref().filter(|id| !id.is_empty())?;
        let tables = self.called(TABLES, ec2::route_tables(&self.sdk, vpc));
        let endpoints = self.called(ENDPOINTS, ec2::vpc_endpoints(&self.sdk, vpc));
        let gateways = self.called(GATEWAYS, ec2::nat_gateways(&self.sdk, vpc));
        let (tables, endpoints, gateways) = tokio::join!(tables, endpoints, gateways);
        let tables = tables.map_err(|error| unread(TABLES, &"*", &error));
        let endpoints = endpoints.map_err(|error| unread(ENDPOINTS, &"*", &error));
        let gateways = gateways.map_err(|error| unread(GATEWAYS, &"*", &error));
        parse::vpc(configuration, tables, endpoints, gateways)
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
            let mut key = self.key_of_secret(arn).await;
            if let Ok(Some(key)) = &mut key {
                self.ask_of_key(key, role).await;
            }
            Secret { arn: arn.clone(), decision, key }
        });
        join_all(asked).await
    }

    /// `None` for a parameter that is not encrypted.
    async fn key_of_secret(&self, arn: &str) -> Known<Option<EncryptionKey>> {
        let sdk = self.at(arn);
        let name = if reading(arn) == PARAMETER {
            let described = secrets::describe_parameter(&sdk, arn);
            let described = self.called("ssm:DescribeParameters", described).await;
            match described.map_err(|error| unread("ssm:DescribeParameters", &arn, &error))? {
                Some(ParameterMetadata { key_id: Some(key) }) => key,
                Some(ParameterMetadata { key_id: None }) => return Ok(None),
                None => {
                    return Err(Unread {
                        permission: "ssm:DescribeParameters",
                        resource: arn.to_owned(),
                        code: "ParameterNotFound".to_owned(),
                        is_answered: true,
                    });
                }
            }
        } else {
            let key = secrets::key_of_secret(&sdk, arn);
            match self.called("secretsmanager:DescribeSecret", key).await {
                Ok(Some(key)) => key,
                Ok(None) => return Ok(Some(EncryptionKey::ManagedByAws)),
                Err(error) => return Err(unread("secretsmanager:DescribeSecret", &arn, &error)),
            }
        };
        Ok(Some(self.key(&name, arn).await))
    }
}

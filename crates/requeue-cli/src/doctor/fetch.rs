//! Reads a deployment through AWS's clients, and changes nothing. Only this file of the doctor
//! calls them, and it judges nothing.

use std::time::Duration;

use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::get_queue_attributes::GetQueueAttributesError;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_types::timeout::TimeoutConfig;
use futures_util::future::join_all;
use requeue::aws::{self, SdkConfig};
use requeue::policy::RetryPolicy;
use requeue::queue::{QueueArn, QueueUrl};
use requeue::{QueueConfig, RecursiveLoop};
use requeue_lambda::Config;

use super::access_policy::account as account_of;
use super::calls::{self, EventSourceMapping, FunctionConfiguration, KeyMetadata};
use super::checks::{KEY, LOGGING, NO_KEY, SENDING, TAKING, is_alias, is_whole, reading};
use super::facts::{
    Access, AccessDecision, CustomerKey, Deployment, EncryptionKey, Function, FunctionSettings,
    Key, Known, Mapping, QueuePath, Reached, Secret, Unread, Valid,
};
use super::parse;
use crate::{CREDENTIALS, Error};

/// Longest wait for a response, with all retries.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Clients {
    region: String,
    sdk: SdkConfig,
    sqs: aws_sdk_sqs::Client,
}

impl Clients {
    /// By AWS's standard environment, in `region` if that is given.
    pub(crate) async fn new(region: Option<&str>) -> Result<Self, Error> {
        let timeouts = TimeoutConfig::builder().operation_timeout(OPERATION_TIMEOUT).build();
        let mut config = aws::config().await.into_builder().timeout_config(timeouts);
        if let Some(region) = region {
            config = config.region(Region::new(region.to_owned()));
        }
        let config = config.build();
        let region = config
            .region()
            .ok_or("no region is known; set AWS_REGION, or add --region REGION")?
            .to_string();
        Ok(Self { region, sqs: aws_sdk_sqs::Client::new(&config), sdk: config })
    }

    /// The function of this name or ARN, with all its queues.
    pub(crate) async fn function(
        &self,
        name: &str,
        policy: Option<&RetryPolicy>,
    ) -> Result<Deployment, Error> {
        let configuration = calls::function_configuration(&self.sdk, name).await;
        let configuration = configuration.map_err(|error| match code(&error).as_str() {
            "ResourceNotFoundException" => {
                format!(
                    "there is no function {name} in {}; check its name and the region",
                    self.region
                )
            }
            _ => self.unreadable("lambda:GetFunctionConfiguration", name, &error),
        })?;
        let mappings = calls::event_source_mappings(&self.sdk, "FunctionName", name).await;
        let mappings = mappings
            .map_err(|error| self.unreadable("lambda:ListEventSourceMappings", name, &error))?;
        self.deployment(&configuration, mappings, policy).await
    }

    /// The functions that the queue of this URL invokes; or the queue alone, as a worker's.
    pub(crate) async fn queue(
        &self,
        url: &QueueUrl,
        policy: Option<&RetryPolicy>,
    ) -> Result<Vec<Deployment>, Error> {
        let source = self.reached(url.arn("aws", &self.region)).await;
        match &source.queue {
            Ok(Some(_)) => {}
            Ok(None) => {
                let name = source.arn.name();
                return Err(format!(
                    "there is no queue {name} in {}; check its URL and the region",
                    self.region
                )
                .into());
            }
            Err(Unread { permission, resource, code, is_answered: true }) => {
                let needs = format!("use valid credentials with {permission}");
                return Err(format!("{resource} cannot be read ({code}); {needs}").into());
            }
            Err(Unread { code, .. }) => {
                let region = &self.region;
                return Err(format!(
                    "SQS does not respond in {region} ({code}); {CHECK} {CREDENTIALS}"
                )
                .into());
            }
        }
        let arn = source.arn.to_string();
        let mappings = calls::event_source_mappings(&self.sdk, "EventSourceArn", &arn).await;
        let (mappings, unlisted) = match mappings {
            Ok(mappings) => (mappings, None),
            Err(error) => {
                (Vec::new(), Some(unread("lambda:ListEventSourceMappings", &source.arn, &error)))
            }
        };
        let mut functions: Vec<&str> =
            mappings.iter().filter_map(|mapping| mapping.function_arn.as_deref()).collect();
        functions.dedup();
        if functions.is_empty() {
            let settings = of_worker(policy).await;
            let paths = vec![self.path(None, source, None, &settings).await];
            let queue_config = QueueConfig::default();
            let region = self.region.clone();
            return Ok(vec![Deployment {
                region,
                function: None,
                settings,
                queue_config,
                paths,
                unlisted,
            }]);
        }
        let mut deployments = Vec::new();
        for function in functions {
            // With its other queues, since they share its concurrency and settings.
            deployments.push(self.function(function, policy).await?);
        }
        Ok(deployments)
    }

    async fn deployment(
        &self,
        configuration: &FunctionConfiguration,
        mappings: Vec<EventSourceMapping>,
        policy: Option<&RetryPolicy>,
    ) -> Result<Deployment, Error> {
        let settings = parse::settings(configuration, policy);
        let function = self.properties(configuration, &settings).await;
        let queues = mappings.iter().filter_map(|mapping| {
            Some((mapping, mapping.event_source_arn.as_ref()?.parse().ok()?))
        });
        let paths = join_all(queues.map(|(mapping, queue)| async {
            let (source, mapping) = tokio::join!(self.reached(queue), self.mapping(mapping));
            self.path(Some(mapping), source, Some(&function.role), &settings).await
        }));
        let paths = paths.await;
        let (region, queue_config) = (self.region.clone(), QueueConfig::default());
        Ok(Deployment {
            region,
            function: Some(function),
            settings,
            queue_config,
            paths,
            unlisted: None,
        })
    }

    /// A list of mappings has no filters that a key encrypts. Source: Lambda API reference,
    /// `ListEventSourceMappings`.
    async fn mapping(&self, listed: &EventSourceMapping) -> Mapping {
        let has_key = listed.kms_key_arn.as_ref().is_some_and(|key| !key.is_empty());
        let uuid = listed.uuid.as_deref().unwrap_or_default();
        let is_hidden = listed.filter_criteria.is_none() || listed.filter_criteria_error.is_some();
        if !has_key || !is_hidden {
            return parse::mapping(listed);
        }
        match calls::event_source_mapping(&self.sdk, uuid).await {
            Ok(whole) => parse::mapping(&whole),
            Err(error) => Mapping {
                filters: Err(unread("lambda:GetEventSourceMapping", &uuid, &error)),
                ..parse::mapping(listed)
            },
        }
    }

    async fn properties(
        &self,
        configuration: &FunctionConfiguration,
        settings: &FunctionSettings,
    ) -> Function {
        let name = configuration.function_name.clone().unwrap_or_default();
        let recursion = calls::recursive_loop(&self.sdk, &name);
        let concurrency = calls::reserved_concurrency(&self.sdk, &name);
        let account = calls::account_limit(&self.sdk);
        let role = configuration.role.clone().unwrap_or_default();
        let logs = parse::logs(configuration);
        let group = logs.group_of(&name);
        let has_group = calls::has_log_group(&self.sdk, &group);
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
            logs,
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

    /// Follows a queue to its dead-letter queues, and asks for the permissions of `role` on them.
    async fn path(
        &self,
        mapping: Option<Mapping>,
        mut source: Reached,
        role: Option<&str>,
        settings: &FunctionSettings,
    ) -> QueuePath {
        let target = source.known().and_then(|queue| queue.redrive.as_ref()?.target.parse().ok());
        let direct = match settings {
            FunctionSettings::Valid(valid) => {
                let queue = valid.config.dead_letter.queue();
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

    async fn reached(&self, arn: QueueArn) -> Reached {
        let request = self
            .sqs
            .get_queue_attributes()
            .queue_url(arn.url())
            .attribute_names(QueueAttributeName::All);
        let name = arn.to_string();
        let consumers = calls::event_source_mappings(&self.sdk, "EventSourceArn", &name);
        let (attributes, consumers) = tokio::join!(request.send(), consumers);
        let consumers = consumers
            .map(|mappings| mappings.iter().map(parse::consumer).collect())
            .map_err(|error| unread("lambda:ListEventSourceMappings", &name, &error));
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
            Some(key) => Some(self.key(key, &arn).await),
            None => None,
        };
        // A queue's ARN has its partition; a URL has none.
        let own = attribute(QueueAttributeName::QueueArn).and_then(|own| own.parse().ok());
        let queue = attributes.map(|attributes| attributes.as_ref().map(parse::queue));
        Reached { arn: own.unwrap_or(arn), queue, access: None, key, consumers }
    }

    /// The key by its name in the attributes of this queue.
    async fn key(&self, name: &str, queue: &QueueArn) -> EncryptionKey {
        if name == MANAGED_KEY || name.ends_with(&format!(":{MANAGED_KEY}")) {
            return EncryptionKey::ManagedByAws;
        }
        let name = parse::key_name(name, queue);
        let key = match calls::describe_key(&self.sdk, &name).await {
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
            _ => calls::key_policy(&self.sdk, arn)
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

    /// Asks for the permissions of the role on an existing queue and its key.
    async fn ask(&self, reached: &mut Reached, role: &str, actions: &[&str]) {
        reached.access = Some(self.simulate(role, actions, &reached.arn.to_string()).await);
        if let Some(EncryptionKey::Customer(customer)) = &mut reached.key {
            let CustomerKey { name, access, key, .. } = &mut **customer;
            let arn = key.as_ref().map_or(&*name, |key| &key.arn);
            let resource = if is_alias(arn) { "*" } else { arn };
            *access = self.simulate(role, &KEY, resource).await;
        }
    }

    async fn simulate(&self, role: &str, actions: &[&str], resource: &str) -> Known<Access> {
        let results = calls::simulate_principal_policy(&self.sdk, role, actions, resource).await;
        let results = results.map_err(|error| unread(SIMULATE, &role, &error))?;
        let decisions = results.into_iter().map(|result| {
            let decision = match result.decision.as_str() {
                "allowed" => AccessDecision::Allowed,
                _ if result.is_missing_context => AccessDecision::Depends,
                "explicitDeny" => AccessDecision::Denied,
                _ => AccessDecision::NotAllowed,
            };
            (result.action, decision)
        });
        Ok(decisions.collect())
    }

    /// The error for a deployment that cannot be read.
    fn unreadable<E, R>(&self, permission: &str, resource: &str, error: &SdkError<E, R>) -> String
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        let (code, region) = (code(error), &self.region);
        if let SdkError::ServiceError(_) = error {
            return format!(
                "{resource} in {region} cannot be read ({code}); use valid credentials with \
                 {permission}"
            );
        }
        let mut innermost: &dyn std::error::Error = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let reason = innermost.to_string();
        format!(
            "AWS does not respond in {region} ({code}: {}); {CHECK} {CREDENTIALS}",
            reason.lines().next().unwrap_or_default().trim_end_matches(". Attempted:")
        )
    }
}

const CHECK: &str = "check the network, AWS_ENDPOINT_URL, and that there are";
const ACCOUNT: &str = "lambda:GetAccountSettings";
const SIMULATE: &str = "iam:SimulatePrincipalPolicy";
const MANAGED_KEY: &str = "alias/aws/sqs";

/// The service's error code, or a word for the failure of the request.
fn code<E, R>(error: &SdkError<E, R>) -> String
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    let word = match error {
        SdkError::DispatchFailure(_) if aws::lacks_credentials(error) => aws::NO_CREDENTIALS,
        SdkError::TimeoutError(_) => "TimedOut",
        SdkError::DispatchFailure(_) => "NoAnswer",
        SdkError::ConstructionFailure(_) => "NotSent",
        _ => "UnreadableAnswer",
    };
    error.code().unwrap_or(word).to_owned()
}

fn unread<E, R>(
    permission: &'static str,
    resource: &impl ToString,
    error: &SdkError<E, R>,
) -> Unread
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    let is_answered = matches!(error, SdkError::ServiceError(_));
    Unread { permission, resource: resource.to_string(), code: code(error), is_answered }
}

/// The settings that `requeue work` would read here.
async fn of_worker(policy: Option<&RetryPolicy>) -> FunctionSettings {
    match Config::load().await {
        Ok(mut config) => {
            if let Some(policy) = policy {
                config.settings.policy = policy.clone();
            }
            FunctionSettings::Valid(Box::new(Valid { config: config.settings, ..Valid::default() }))
        }
        Err(invalid) => FunctionSettings::Invalid(invalid.problems().to_vec()),
    }
}

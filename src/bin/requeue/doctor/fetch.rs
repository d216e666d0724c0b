//! Reads a deployment through AWS's clients, and changes nothing. The only file of the doctor that calls them; what is good or bad, it does
//! not know.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_iam::types::PolicyEvaluationDecisionType;
use aws_sdk_lambda::config::Region;
use aws_sdk_lambda::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_lambda::operation::get_function_configuration::GetFunctionConfigurationOutput;
use aws_sdk_lambda::types::{
    EventSourceMappingConfiguration, FunctionResponseType, LogFormat, RecursiveLoop as Property,
};
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_types::timeout::TimeoutConfig;
use futures_util::future::join_all;
use requeue::policy::RetryPolicy;
use requeue::queue::{MAX_BATCH_BYTES, QueueArn, QueueUrl};
use requeue::{Config, DeadLetterMode, RecursiveLoop};
use serde_json::Value;

use super::aws;
use super::checks::{KEY, SENDING, TAKING, is_alias};
use super::facts::{
    Access, Decision, Deployment, Function, Key, Logs, Mapping, Place, Queue, Reached, Read, Redrive, RedriveAllow,
    Settings, Unread, Valid,
};
use crate::Error;

/// Longest wait for an answer, tries again included.
const PATIENCE: Duration = Duration::from_secs(30);

const PREFIX: &str = "REQUEUE_";

pub(crate) struct Clients {
    region: String,
    lambda: aws_sdk_lambda::Client,
    sqs: aws_sdk_sqs::Client,
    iam: aws_sdk_iam::Client,
}

impl Clients {
    /// By AWS's standard environment, in `region` if that is given.
    pub(crate) async fn new(region: Option<&str>) -> Result<Self, Error> {
        let timeouts = TimeoutConfig::builder().operation_timeout(PATIENCE).build();
        let mut config = aws::config().await.into_builder().timeout_config(timeouts);
        if let Some(region) = region {
            config = config.region(Region::new(region.to_owned()));
        }
        let config = config.build();
        let region = config.region().ok_or("in which region? Set AWS_REGION, or give --region")?.to_string();
        Ok(Self {
            region,
            lambda: aws_sdk_lambda::Client::new(&config),
            sqs: aws_sdk_sqs::Client::new(&config),
            iam: aws_sdk_iam::Client::new(&config),
        })
    }

    /// The function of this name or ARN, with everything that it takes messages from.
    pub(crate) async fn function(&self, name: &str, policy: Option<&RetryPolicy>) -> Result<Deployment, Error> {
        let request = self.lambda.get_function_configuration().function_name(name);
        let configuration = request.send().await.map_err(|error| match code(&error).as_str() {
            "ResourceNotFoundException" => {
                format!("there is no function {name} in {}: check its name and the region", self.region)
            }
            _ => self.unreadable("lambda:GetFunctionConfiguration", name, &error),
        })?;
        let request = self.lambda.list_event_source_mappings().function_name(name).into_paginator().items();
        let mappings: Result<Vec<_>, _> = request.send().collect().await;
        let mappings = mappings.map_err(|error| self.unreadable("lambda:ListEventSourceMappings", name, &error))?;
        self.deployment(&configuration, mappings, policy).await
    }

    /// The queue of this ARN, with the functions that it invokes.
    pub(crate) async fn queue(&self, url: &QueueUrl, policy: Option<&RetryPolicy>) -> Result<Vec<Deployment>, Error> {
        let source = self.reached(url.arn("aws", &self.region)).await;
        match &source.queue {
            Ok(Some(_)) => {}
            Ok(None) => {
                let name = source.arn.name();
                return Err(format!("there is no queue {name} in {}: check its URL and the region", self.region).into());
            }
            Err(Unread { permission, resource, code, is_answered: true }) => {
                let needs = format!("that needs {permission}, and valid credentials");
                return Err(format!("{resource} cannot be read ({code}): {needs}").into());
            }
            Err(Unread { code, .. }) => {
                let check = "check the network, the credentials and AWS_ENDPOINT_URL";
                return Err(format!("SQS does not answer in {} ({code}): {check}", self.region).into());
            }
        }
        let asked = self.lambda.list_event_source_mappings().event_source_arn(source.arn.to_string());
        let mappings: Result<Vec<_>, _> = asked.into_paginator().items().send().collect().await;
        let (mappings, unlisted) = match mappings {
            Ok(mappings) => (mappings, None),
            Err(error) => (Vec::new(), Some(unread("lambda:ListEventSourceMappings", &source.arn, &error))),
        };
        let mut functions: Vec<&str> =
            mappings.iter().filter_map(EventSourceMappingConfiguration::function_arn).collect();
        functions.dedup();
        if functions.is_empty() {
            let settings = of_worker(policy).await;
            let places = vec![self.place(None, source, None, &settings).await];
            return Ok(vec![Deployment { region: self.region.clone(), function: None, settings, places, unlisted }]);
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
        configuration: &GetFunctionConfigurationOutput,
        mappings: Vec<EventSourceMappingConfiguration>,
        policy: Option<&RetryPolicy>,
    ) -> Result<Deployment, Error> {
        let settings = settings(configuration, policy);
        let function = self.properties(configuration).await;
        let queues = mappings.iter().filter_map(|mapping| Some((mapping, mapping.event_source_arn()?.parse().ok()?)));
        let places = join_all(queues.map(|(mapping, queue)| async {
            let source = self.reached(queue).await;
            self.place(Some(read_mapping(mapping)), source, Some(&function.role), &settings).await
        }));
        let places = places.await;
        Ok(Deployment { region: self.region.clone(), function: Some(function), settings, places, unlisted: None })
    }

    async fn properties(&self, configuration: &GetFunctionConfigurationOutput) -> Function {
        let name = configuration.function_name().unwrap_or_default().to_owned();
        let recursion = self.lambda.get_function_recursion_config().function_name(&name).send();
        let concurrency = self.lambda.get_function_concurrency().function_name(&name).send();
        let (recursion, concurrency) = tokio::join!(recursion, concurrency);
        let recursive_loop = match recursion {
            Ok(answer) if answer.recursive_loop() == Some(&Property::Allow) => Ok(RecursiveLoop::Allow),
            Ok(_) => Ok(RecursiveLoop::Terminate),
            Err(error) => Err(unread("lambda:GetFunctionRecursionConfig", &name, &error)),
        };
        let reserved_concurrency = match concurrency {
            Ok(answer) => Ok(answer.reserved_concurrent_executions().map(count)),
            Err(error) => Err(unread("lambda:GetFunctionConcurrency", &name, &error)),
        };
        let logs = configuration.logging_config().map_or_else(Logs::default, |logs| Logs {
            is_json: logs.log_format() == Some(&LogFormat::Json),
            level: logs.application_log_level().map(|level| level.as_str().to_owned()),
            group: logs.log_group().map(str::to_owned),
        });
        let timeout = seconds(configuration.timeout());
        let role = configuration.role().unwrap_or_default().to_owned();
        Function { name, timeout, role, logs, recursive_loop, reserved_concurrency }
    }

    /// Follows a queue to where its messages end, and asks what `role` may do on the way.
    async fn place(
        &self,
        mapping: Option<Mapping>,
        mut source: Reached,
        role: Option<&str>,
        settings: &Settings,
    ) -> Place {
        let target = source.known().and_then(|queue| queue.redrive.as_ref()?.target.parse().ok());
        let direct = match settings {
            Settings::Valid(Valid { config: Config { dead_letter: DeadLetterMode::Direct(url), .. }, .. }) => {
                Some(url.arn(source.arn.partition(), &self.region))
            }
            _ => None,
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
        Place { mapping, source, dead_letters, direct }
    }

    async fn reached(&self, arn: QueueArn) -> Reached {
        let request = self.sqs.get_queue_attributes().queue_url(arn.url()).attribute_names(QueueAttributeName::All);
        let attributes = match request.send().await {
            Ok(answer) => Ok(Some(answer.attributes.unwrap_or_default())),
            Err(error) if error.as_service_error().is_some_and(is_missing) => Ok(None),
            Err(error) => Err(unread("sqs:GetQueueAttributes", &arn, &error)),
        };
        let attribute = |name| attributes.as_ref().ok()?.as_ref()?.get(&name);
        let key = attribute(QueueAttributeName::KmsMasterKeyId).filter(|key| !key.is_empty()).map(|key| {
            let not_asked =
                Unread { permission: SIMULATE, resource: key.clone(), code: "NotAsked".to_owned(), is_answered: false };
            if key == MANAGED_KEY || key.ends_with(&format!(":{MANAGED_KEY}")) {
                Key::ManagedByAws
            } else {
                Key::Customer { name: key_name(key, &arn), access: Err(not_asked) }
            }
        });
        // The queue knows its partition better than a URL.
        let own = attribute(QueueAttributeName::QueueArn).and_then(|own| own.parse().ok());
        let queue = attributes.map(|attributes| attributes.as_ref().map(read_queue));
        Reached { arn: own.unwrap_or(arn), queue, access: None, key }
    }

    /// Asks what the role may do to a queue that is there, and with its key.
    async fn ask(&self, reached: &mut Reached, role: &str, actions: &[&str]) {
        reached.access = Some(self.simulate(role, actions, &reached.arn.to_string()).await);
        if let Some(Key::Customer { name, access }) = &mut reached.key {
            let resource = if is_alias(name) { "*" } else { name };
            *access = self.simulate(role, &KEY, resource).await;
        }
    }

    async fn simulate(&self, role: &str, actions: &[&str], resource: &str) -> Read<Access> {
        let actions = actions.iter().map(|action| (*action).to_owned()).collect();
        let request = self.iam.simulate_principal_policy().policy_source_arn(role).set_action_names(Some(actions));
        let answer = request.resource_arns(resource).send().await;
        let answer = answer.map_err(|error| unread(SIMULATE, &role, &error))?;
        let decisions = answer.evaluation_results().iter().map(|result| {
            let decision = match result.eval_decision() {
                PolicyEvaluationDecisionType::Allowed => Decision::Allowed,
                _ if !result.missing_context_values().is_empty() => Decision::Depends,
                PolicyEvaluationDecisionType::ExplicitDeny => Decision::Denied,
                _ => Decision::NotAllowed,
            };
            (result.eval_action_name().to_owned(), decision)
        });
        Ok(decisions.collect())
    }

    /// Why there is nothing to look at.
    fn unreadable<E, R>(&self, permission: &str, resource: &str, error: &SdkError<E, R>) -> String
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        let (code, region) = (code(error), &self.region);
        if let SdkError::ServiceError(_) = error {
            return format!(
                "{resource} in {region} cannot be read ({code}): that needs {permission}, and valid credentials"
            );
        }
        let mut innermost: &dyn std::error::Error = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let reason = innermost.to_string();
        format!(
            "AWS does not answer in {region} ({code}: {}): check the network, AWS_ENDPOINT_URL, and that there are credentials in the \
             environment or in AWS's files; `aws configure export-credentials --format env` prints those of a single sign-on",
            reason.lines().next().unwrap_or_default().trim_end_matches(". Attempted:")
        )
    }
}

const SIMULATE: &str = "iam:SimulatePrincipalPolicy";
const MANAGED_KEY: &str = "alias/aws/sqs";

/// The service's code, or a word for what became of the request.
fn code<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> String {
    let word = match error {
        SdkError::TimeoutError(_) => "TimedOut",
        SdkError::DispatchFailure(_) => "NoAnswer",
        SdkError::ConstructionFailure(_) => "NotSent",
        _ => "UnreadableAnswer",
    };
    error.code().unwrap_or(word).to_owned()
}

fn unread<E: ProvideErrorMetadata, R>(
    permission: &'static str,
    resource: &impl ToString,
    error: &SdkError<E, R>,
) -> Unread {
    let is_answered = matches!(error, SdkError::ServiceError(_));
    Unread { permission, resource: resource.to_string(), code: code(error), is_answered }
}

fn is_missing(error: &aws_sdk_sqs::operation::get_queue_attributes::GetQueueAttributesError) -> bool {
    error.is_queue_does_not_exist()
}

/// Keys may be named by their id alone, of which IAM knows nothing.
fn key_name(key: &str, queue: &QueueArn) -> String {
    if key.starts_with("arn:") || is_alias(key) {
        return key.to_owned();
    }
    let queue = queue.to_string();
    let parts: Vec<&str> = queue.split(':').collect();
    format!("{}:kms:{}:key/{key}", parts[..2].join(":"), parts[3..5].join(":"))
}

fn settings(configuration: &GetFunctionConfigurationOutput, policy: Option<&RetryPolicy>) -> Settings {
    let environment = configuration.environment();
    if let Some(error) = environment.and_then(|environment| environment.error()) {
        let resource = configuration.kms_key_arn().unwrap_or("the key of the function's environment").to_owned();
        let code = error.error_code().unwrap_or("UnreadableEnvironment").to_owned();
        return Settings::Unread(Unread { permission: "kms:Decrypt", resource, code, is_answered: true });
    }
    let variables = environment.and_then(|environment| environment.variables());
    read_settings(variables.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str())), policy)
}

/// What `requeue work` would read here.
async fn of_worker(policy: Option<&RetryPolicy>) -> Settings {
    match Config::load().await {
        Ok(mut config) => {
            if let Some(policy) = policy {
                config.policy = policy.clone();
            }
            Settings::Valid(Valid { config, ..Valid::default() })
        }
        Err(invalid) => Settings::Invalid(invalid.problems().to_vec()),
    }
}

/// Reads the variables of a program that runs elsewhere. With the policy in hand if it is given, whatever they say of it.
pub(crate) fn read_settings<'v>(
    variables: impl IntoIterator<Item = (&'v str, &'v str)>,
    policy: Option<&RetryPolicy>,
) -> Settings {
    let mut variables: HashMap<&str, &str> =
        variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    let names_strategy = variables.get("REQUEUE_STRATEGY").is_some_and(|value| !value.is_empty());
    let count = variables.len();
    let is_file = |value: &str| !value.is_empty() && !value.trim_start().starts_with('{');
    // A path leads elsewhere on this machine.
    let file = variables.get("REQUEUE_POLICY").copied().filter(|value| is_file(value)).map(str::to_owned);
    if file.is_some() {
        variables.remove("REQUEUE_POLICY");
    }
    let mut config = match Config::from_vars_without_secrets(variables) {
        Ok(config) => config,
        Err(invalid) => return Settings::Invalid(invalid.problems().to_vec()),
    };
    let policy_file = if policy.is_none() { file } else { None };
    if let Some(policy) = policy {
        config.policy = policy.clone();
    }
    Settings::Valid(Valid { config, variables: count, policy_file, names_strategy })
}

fn read_mapping(mapping: &EventSourceMappingConfiguration) -> Mapping {
    let uuid = mapping.uuid().unwrap_or_default().to_owned();
    let filters = match mapping.filter_criteria_error() {
        Some(error) => Err(Unread {
            permission: "kms:Decrypt",
            resource: mapping.kms_key_arn().unwrap_or("the key of the mapping's filters").to_owned(),
            code: error.error_code().unwrap_or("UnreadableFilters").to_owned(),
            is_answered: true,
        }),
        None => {
            let filters = mapping.filter_criteria().map(|criteria| criteria.filters()).unwrap_or_default();
            Ok(filters.iter().filter_map(|filter| filter.pattern().map(str::to_owned)).collect())
        }
    };
    Mapping {
        uuid,
        state: mapping.state().unwrap_or("unknown").to_owned(),
        batch_size: mapping.batch_size().map_or(DEFAULT_BATCH, count),
        window: seconds(mapping.maximum_batching_window_in_seconds()),
        reports_failures: mapping.function_response_types().contains(&FunctionResponseType::ReportBatchItemFailures),
        maximum_concurrency: mapping.scaling_config().and_then(|scaling| scaling.maximum_concurrency()).map(count),
        maximum_pollers: mapping.provisioned_poller_config().and_then(|p| p.maximum_pollers()).map(count),
        filters,
    }
}

/// Source: Lambda API reference, `CreateEventSourceMapping`.
const DEFAULT_BATCH: u32 = 10;
/// What a queue has that names none. Source: SQS API reference, `SetQueueAttributes`.
const DEFAULT_RECEIVES: u32 = 10;

fn read_queue(attributes: &HashMap<QueueAttributeName, String>) -> Queue {
    let text = |name| attributes.get(&name).filter(|text| !text.is_empty());
    let number = |name| text(name)?.parse::<u64>().ok();
    let json = |name| serde_json::from_str::<Value>(text(name)?).ok();
    let redrive = json(QueueAttributeName::RedrivePolicy).and_then(|policy| {
        let target = policy["deadLetterTargetArn"].as_str()?.to_owned();
        // A number or a text, as it was set.
        let count = &policy["maxReceiveCount"];
        let count = count.as_u64().or_else(|| count.as_str()?.parse().ok());
        let max_receive_count = count.and_then(|count| u32::try_from(count).ok()).unwrap_or(DEFAULT_RECEIVES);
        Some(Redrive { target, max_receive_count })
    });
    let allow = json(QueueAttributeName::RedriveAllowPolicy).unwrap_or_default();
    let redrive_allow = match allow["redrivePermission"].as_str() {
        Some("denyAll") => RedriveAllow::None,
        Some("byQueue") => {
            let sources = allow["sourceQueueArns"].as_array().into_iter().flatten();
            RedriveAllow::Queues(sources.filter_map(|source| source.as_str().map(str::to_owned)).collect())
        }
        _ => RedriveAllow::All,
    };
    Queue {
        visibility: Duration::from_secs(number(QueueAttributeName::VisibilityTimeout).unwrap_or_default()),
        retention: Duration::from_secs(number(QueueAttributeName::MessageRetentionPeriod).unwrap_or_default()),
        maximum_message_size: number(QueueAttributeName::MaximumMessageSize).unwrap_or(MAX_BATCH_BYTES as u64),
        redrive,
        redrive_allow,
        policy: text(QueueAttributeName::Policy).cloned(),
    }
}

fn seconds(count: Option<i32>) -> Duration {
    Duration::from_secs(count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default())
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

//! Reads a deployment through AWS's clients, and changes nothing. Only this part of the doctor calls
//! them, and it judges nothing.

use std::error::Error as _;
use std::time::Duration;

use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_types::timeout::TimeoutConfig;
use futures_util::future::join_all;
use requeue::aws::{self, SdkConfig};
use requeue::policy::RetryPolicy;
use requeue::queue::QueueUrl;
use requeue::{QueueConfig, Variables};
use requeue_lambda::Config;

use super::calls::lambda::{self, EventSourceMapping, FunctionConfiguration};
use super::calls::{TooManyPages, cloudwatch};
use super::diagnosis::TOO_MANY_PAGES;
use super::facts::{Alarm, Deployment, FunctionSettings, Known, Mapping, Unread, Valid};
use super::parse;
use crate::{CREDENTIALS, Error};

mod calls;
mod function;
mod key;
mod queue;
mod table;

use calls::OpenCalls;

/// Longest wait for a response, with all retries.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const MAPPINGS: &str = "lambda:ListEventSourceMappings";

pub(crate) struct Clients {
    region: String,
    pub(super) sdk: SdkConfig,
    pub(super) sqs: aws_sdk_sqs::Client,
    pub(super) calls: OpenCalls,
}

/// The version or the alias of a function that the user names.
struct Named {
    qualifier: Option<String>,
    /// The others that mappings invoke.
    mapped: Vec<String>,
}

impl Clients {
    /// By AWS's standard environment, in `region` if that is given.
    pub(crate) async fn new(region: Option<&str>) -> Result<Self, Error> {
        let timeouts = TimeoutConfig::builder().operation_timeout(OPERATION_TIMEOUT).build();
        let calls = OpenCalls::none();
        let mut config = aws::config().await.into_builder().timeout_config(timeouts);
        if let Some(region) = region {
            config = config.region(Region::new(region.to_owned()));
        }
        let config = config.build();
        let region = config
            .region()
            .ok_or("no region is known; set AWS_REGION, or add --region REGION")?
            .to_string();
        Ok(Self { region, sqs: aws_sdk_sqs::Client::new(&config), sdk: config, calls })
    }

    /// The function of this name or ARN, with all its queues.
    pub(crate) async fn function(
        &self,
        name: &str,
        policy: Option<&RetryPolicy>,
    ) -> Result<Deployment, Error> {
        let configuration = lambda::function_configuration(&self.sdk, name);
        let configuration = self.called("lambda:GetFunctionConfiguration", configuration).await;
        let configuration = configuration.map_err(|error| match code(&error).as_str() {
            "ResourceNotFoundException" => {
                format!(
                    "there is no function {name} in {}; check its name and the region",
                    self.region
                )
            }
            _ => self.unreadable("lambda:GetFunctionConfiguration", name, &error),
        })?;
        let function = configuration.function_name.as_deref().unwrap_or_default();
        let qualifier = parse::qualifier(name, function);
        // Lambda lists the mappings of an alias by its whole ARN. Source: Lambda API reference,
        // `ListEventSourceMappings`.
        let listed = match (&qualifier, &configuration.function_arn) {
            (Some(qualifier), Some(arn)) => {
                let arn: Vec<&str> = arn.splitn(8, ':').take(7).collect();
                format!("{}:{qualifier}", arn.join(":"))
            }
            _ => name.to_owned(),
        };
        let mappings = lambda::event_source_mappings(&self.sdk, "FunctionName", &listed);
        let mappings = self.called(MAPPINGS, mappings).await;
        let mappings = mappings.map_err(|error| self.unreadable(MAPPINGS, name, &error))?;
        // A mapping on another version or alias runs other settings.
        let (mappings, others): (Vec<_>, Vec<_>) = mappings.into_iter().partition(|mapping| {
            let arn = mapping.function_arn.as_deref().unwrap_or_default();
            parse::qualifier(arn, function) == qualifier
        });
        let named = Named { qualifier, mapped: parse::mapped(&others, function) };
        self.deployment(&configuration, named, mappings, policy).await
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
        let mappings = lambda::event_source_mappings(&self.sdk, "EventSourceArn", &arn);
        let mappings = self.called(MAPPINGS, mappings).await;
        let (mappings, unlisted) = match mappings {
            Ok(mappings) => (mappings, None),
            Err(error) => (Vec::new(), Some(unread(MAPPINGS, &source.arn, &error))),
        };
        let mut functions: Vec<&str> =
            mappings.iter().filter_map(|mapping| mapping.function_arn.as_deref()).collect();
        functions.sort_unstable();
        functions.dedup();
        if functions.is_empty() {
            let settings = of_worker(policy).await;
            let path = self.path(None, source, None, &settings);
            let table = self.table(&settings, None);
            let (path, alarms, table) = tokio::join!(path, self.alarms(), table);
            let paths = vec![path];
            let queue_config = QueueConfig::default();
            let region = self.region.clone();
            return Ok(vec![Deployment {
                region,
                function: None,
                settings,
                queue_config,
                paths,
                table,
                unlisted,
                alarms,
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
        named: Named,
        mappings: Vec<EventSourceMapping>,
        policy: Option<&RetryPolicy>,
    ) -> Result<Deployment, Error> {
        let settings = parse::settings(configuration, policy);
        let function = self.properties(configuration, named, &settings).await;
        let queues = mappings.iter().filter_map(|mapping| {
            Some((mapping, mapping.event_source_arn.as_ref()?.parse().ok()?))
        });
        let paths = join_all(queues.map(|(mapping, queue)| async {
            let (source, mapping) = tokio::join!(self.reached(queue), self.mapping(mapping));
            self.path(Some(mapping), source, Some(&function.role), &settings).await
        }));
        let table = self.table(&settings, Some(&function.role));
        let (paths, alarms, table) = tokio::join!(paths, self.alarms(), table);
        let (region, queue_config) = (self.region.clone(), QueueConfig::default());
        Ok(Deployment {
            region,
            function: Some(function),
            settings,
            queue_config,
            paths,
            table,
            unlisted: None,
            alarms,
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
        let whole = lambda::event_source_mapping(&self.sdk, uuid);
        match self.called("lambda:GetEventSourceMapping", whole).await {
            Ok(whole) => parse::mapping(&whole),
            Err(error) => Mapping {
                filters: Err(unread("lambda:GetEventSourceMapping", &uuid, &error)),
                ..parse::mapping(listed)
            },
        }
    }

    /// For calls in the region of this ARN.
    fn at(&self, arn: &str) -> SdkConfig {
        let region = arn.split(':').nth(3).filter(|region| !region.is_empty());
        let region = region.unwrap_or(&self.region).to_owned();
        self.sdk.to_builder().region(Region::new(region)).build()
    }

    /// The alarms of the region.
    async fn alarms(&self) -> Known<Vec<Alarm>> {
        let alarms = cloudwatch::describe_alarms(&self.sdk);
        let alarms = self.called("cloudwatch:DescribeAlarms", alarms).await;
        alarms
            .map(|alarms| alarms.into_iter().map(parse::alarm).collect())
            .map_err(|error| unread("cloudwatch:DescribeAlarms", &"*", &error))
    }

    /// The error for a deployment that cannot be read.
    pub(super) fn unreadable<E, R>(
        &self,
        permission: &str,
        resource: &str,
        error: &SdkError<E, R>,
    ) -> String
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

/// The service's error code, or a word for the failure of the request.
pub(super) fn code<E, R>(error: &SdkError<E, R>) -> String
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    let is_too_long = || error.source().is_some_and(<dyn std::error::Error>::is::<TooManyPages>);
    let word = match error {
        SdkError::ConstructionFailure(_) if is_too_long() => TOO_MANY_PAGES,
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
    let (mut config, problems) = match Config::load().await {
        Ok(config) => (config, Vec::new()),
        Err(invalid) => {
            let variables = Variables::from_env().into_values().into_iter().collect();
            let problems = invalid.problems().to_vec();
            match parse::read_valid::<String, String>(variables) {
                Ok(((config, _), _)) => (config, problems),
                Err(_) => return FunctionSettings::Invalid(problems),
            }
        }
    };
    if let Some(policy) = policy {
        config.settings.policy = policy.clone();
    }
    FunctionSettings::Valid(Box::new(Valid {
        config: config.settings,
        lacks_policy: policy.is_none() && parse::lacks_policy(&problems),
        problems,
        table: Variables::from_env().get("TABLE"),
        ..Valid::default()
    }))
}

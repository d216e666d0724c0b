//! Reads a deployment through AWS's clients, and changes nothing. Only this part of the doctor calls
//! them, and it judges nothing.

use std::error::Error as _;

use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use futures_util::future::join_all;
use requeue::aws::SdkConfig;
use requeue::policy::RetryPolicy;
use requeue::queue::{CallError, QueueArn};
use requeue::{DeadLetterMode, QueueConfig, Variables};
use requeue_lambda::Config;

use super::calls::lambda::{self, EventSourceMapping, FunctionConfiguration};
use super::calls::{TooManyPages, cloudwatch};
use super::diagnosis::TOO_MANY_PAGES;
use super::facts::{Alarm, Deployment, FunctionSettings, Known, Mapping, Reached, Unread, Valid};
use super::{endpoints, parse};
use crate::Error;
use crate::failed_call::{FailedCall, call_error};

mod calls;
mod function;
mod key;
mod queue;
mod table;

use calls::OpenCalls;

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
    pub(crate) fn new(sdk: &SdkConfig, region: &str) -> Self {
        let region = region.to_owned();
        let sdk = sdk.to_builder().region(Region::new(region.clone())).build();
        Self { region, sqs: aws_sdk_sqs::Client::new(&sdk), sdk, calls: OpenCalls::none() }
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

    /// The functions that this queue invokes; or the queue alone, as a worker's.
    pub(crate) async fn queue(
        &self,
        queue: QueueArn,
        policy: Option<&RetryPolicy>,
    ) -> Result<Vec<Deployment>, Error> {
        let source = self.reached(queue).await;
        let error = match &source.queue {
            Ok(Some(_)) => None,
            Ok(None) => Some(CallError::answered(400, "QueueDoesNotExist")),
            Err(Unread { code, is_answered: true, .. }) => Some(CallError::answered(400, code)),
            Err(Unread { code, .. }) => Some(CallError::ambiguous(code)),
        };
        if let Some(error) = error {
            let queue = source.arn.to_string();
            return Err(self.failed("sqs:GetQueueAttributes", &queue, &error).into());
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
            self.refuse_dead_letters(&source).await?;
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

    /// An error if this queue is the dead-letter queue of another one. A redrive policy, as a
    /// worker's queue needs, would move its messages away when somebody looks at them.
    async fn refuse_dead_letters(&self, queue: &Reached) -> Result<(), Error> {
        if queue.known().is_some_and(|queue| queue.redrive.is_some()) {
            return Ok(());
        }
        let request = self.sqs.list_dead_letter_source_queues().queue_url(queue.arn.url());
        let listed = self.called("sqs:ListDeadLetterSourceQueues", request.send()).await;
        // Without the permission it counts as a worker's queue.
        let urls = listed.map(|listed| listed.queue_urls).unwrap_or_default();
        let names: Vec<&str> = urls.iter().filter_map(|url| url.rsplit('/').next()).collect();
        let Some(first) = names.first() else { return Ok(()) };
        Err(format!(
            "{name} is the dead-letter queue of {}; check a queue that messages are handled from: \
             `requeue doctor --queue {first}`; `requeue dlq list --queue {name}` shows the dead letters",
            names.join(" and "),
            name = queue.arn.name()
        )
        .into())
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
    pub(super) fn unreadable<E>(
        &self,
        permission: &str,
        resource: &str,
        error: &SdkError<E>,
    ) -> String
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        self.failed(permission, resource, &call_error(error))
    }

    fn failed(&self, permission: &str, resource: &str, error: &CallError) -> String {
        let (prefix, operation) = permission.split_once(':').unwrap_or_default();
        let service = endpoints::service(prefix);
        let endpoint = endpoints::shown_endpoint(service, &self.sdk);
        FailedCall { service, operation, resource, endpoint: &endpoint, error }.to_string()
    }
}

/// The service's error code, or a word for the failure of the request.
pub(super) fn code<E>(error: &SdkError<E>) -> String
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match error {
        SdkError::ConstructionFailure(_)
            if error.source().is_some_and(<dyn std::error::Error>::is::<TooManyPages>) =>
        {
            TOO_MANY_PAGES.to_owned()
        }
        _ => call_error(error).code,
    }
}

fn unread<E>(permission: &'static str, resource: &impl ToString, error: &SdkError<E>) -> Unread
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
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
    config.settings.dead_letter.get_or_insert(DeadLetterMode::OF_WORKERS);
    FunctionSettings::Valid(Box::new(Valid {
        config: config.settings,
        lacks_policy: policy.is_none() && parse::lacks_policy(&problems),
        problems,
        table: Variables::from_env().get("TABLE"),
        ..Valid::default()
    }))
}

//! Reads a deployment through AWS's clients, which no other part of the doctor calls. Decides
//! nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use requeue::queue::{CallError, QueueArn};
use requeue_aws::{Service, call_json};
use serde_json::{Value, json};

use super::arn::{Arn, qualifier};
use super::calls::{list, text};
use super::checks::{SENDING, TAKING};
use super::facts::{
    Alarm, Deployment, Function, FunctionSettings, Known, Mapping, Metric, QueuePath, Reached,
    Unread,
};
use super::settings;
use crate::Error;
use crate::document::Document;
use crate::function::{self as deployed, FunctionConfiguration, encoded, get};

mod ask;
mod function;
mod key;
mod queue;

pub(crate) use ask::Clients;
use function::count;

const MAPPINGS: &str = "lambda:ListEventSourceMappings";
pub(super) const ATTRIBUTES: &str = "sqs:GetQueueAttributes";
const SOURCES: &str = "sqs:ListDeadLetterSourceQueues";
const CONFIGURATION: &str = "lambda:GetFunctionConfiguration";
/// Source: Lambda API reference, `CreateEventSourceMapping`.
const DEFAULT_BATCH: u32 = 10;
const HOUR: u32 = 3_600;

/// A deployed function, and the mappings that invoke the version or the alias that the user names.
pub(crate) struct Invoked {
    pub(crate) configuration: FunctionConfiguration,
    pub(crate) mappings: Vec<Value>,
    qualifier: Option<String>,
    pub(crate) mapped: Vec<String>,
}

impl Clients {
    pub(crate) async fn function(
        &self,
        name: &str,
        policy: Option<&Document>,
    ) -> Result<Deployment, Error> {
        let invoked = self.invoked(name).await?;
        Ok(Box::pin(self.deployment(&invoked, policy)).await)
    }

    pub(crate) async fn configuration(&self, name: &str) -> Result<FunctionConfiguration, Error> {
        let configuration = deployed::function_configuration(&self.sdk, name);
        let configuration = self.ask(CONFIGURATION, name, configuration).await;
        Ok(configuration.map_err(|unread| deployed::not_found(name, &self.sdk, &unread.error))?)
    }

    pub(crate) async fn invoked(&self, name: &str) -> Result<Invoked, Error> {
        let configuration = self.configuration(name).await?;
        let function = configuration.function_name.as_deref().unwrap_or_default();
        let own = qualifier(name, function);
        // Lambda lists the mappings of an alias by its whole ARN (API reference,
        // `ListEventSourceMappings`).
        let listed = match (own, &configuration.function_arn) {
            (Some(qualifier), Some(arn)) => {
                let Arn { partition, region, account, .. } = Arn::of(arn);
                format!("arn:{partition}:lambda:{region}:{account}:function:{function}:{qualifier}")
            }
            _ => name.to_owned(),
        };
        let mappings = self.mappings("FunctionName", &listed).await;
        let mappings = mappings.map_err(|unread| self.told(&unread))?;
        // A mapping on another version or alias runs other settings.
        let of = |mapping: &Value| {
            let arn = text(&mapping["FunctionArn"]).unwrap_or_default();
            qualifier(&arn, function).map(str::to_owned)
        };
        let (mappings, others): (Vec<_>, Vec<_>) =
            mappings.into_iter().partition(|mapping| of(mapping).as_deref() == own);
        let others = others.iter().map(|mapping| match of(mapping) {
            Some(qualifier) => format!("{function}:{qualifier}"),
            None => function.to_owned(),
        });
        let others: BTreeSet<String> = others.collect();
        let mapped = others.into_iter().collect();
        Ok(Invoked { qualifier: own.map(str::to_owned), configuration, mappings, mapped })
    }

    pub(crate) async fn consumers(&self, queue: &str) -> Known<Vec<Value>> {
        self.mappings("EventSourceArn", queue).await
    }

    /// All mappings with this `FunctionName` or `EventSourceArn`.
    async fn mappings(&self, parameter: &str, value: &str) -> Known<Vec<Value>> {
        let first = format!("2015-03-31/event-source-mappings?{parameter}={}", encoded(value));
        let page = async |marker: Option<String>| {
            let marker = marker.map(|marker| format!("&Marker={}", encoded(&marker)));
            let page: Value =
                get(&self.sdk, &format!("{first}{}", marker.unwrap_or_default())).await?;
            Ok((list(&page["EventSourceMappings"]).to_vec(), text(&page["NextMarker"])))
        };
        self.list(MAPPINGS, "*", page).await
    }

    /// The functions that this queue invokes; or the queue alone, as a worker's.
    pub(crate) async fn queue(
        &self,
        queue: QueueArn,
        policy: Option<&Document>,
    ) -> Result<Vec<Deployment>, Error> {
        let source = self.reached(queue, None, &[]).await;
        let missing = || {
            let missing = CallError::responded(400, "QueueDoesNotExist");
            Unread::of(ATTRIBUTES, source.arn.to_string(), missing)
        };
        let found = source.queue.clone().and_then(|queue| queue.ok_or_else(missing));
        found.map_err(|unread| self.told(&unread))?;
        let consumers = source.consumers.iter().flatten();
        // With the other queues of each function, since they share its concurrency and settings.
        let functions: BTreeSet<String> =
            consumers.map(|consumer| consumer.function.clone()).collect();
        if functions.is_empty() {
            return Ok(vec![Box::pin(self.worker(source, policy)).await?]);
        }
        let mut deployments = Vec::new();
        for function in functions {
            deployments.push(self.function(&function, policy).await?);
        }
        // The check `other-consumers` names those without Requeue, for which no other check is.
        if !deployments.iter().all(Deployment::lacks_variables) {
            deployments.retain(|deployment| !deployment.lacks_variables());
        }
        Ok(deployments)
    }

    async fn worker(
        &self,
        source: Reached,
        policy: Option<&Document>,
    ) -> Result<Deployment, Error> {
        let unlisted = self.refuse_dead_letters(&source).await?;
        let settings = Ok(settings::of_worker(policy).await);
        let path = Box::pin(self.path(None, source, None, &settings)).await;
        Ok(Deployment { unlisted, ..self.with_paths(None, settings, vec![path]).await })
    }

    /// An error if this queue is the dead-letter queue of another one. A redrive policy, as a
    /// worker's queue needs, would move its messages away when somebody looks at them.
    async fn refuse_dead_letters(&self, queue: &Reached) -> Result<Option<Unread>, Error> {
        if queue.known().is_some_and(|queue| queue.redrive.is_some()) {
            return Ok(None);
        }
        let request = self.sqs.list_dead_letter_source_queues().queue_url(queue.arn.url());
        let urls = match self.ask(SOURCES, &queue.arn.to_string(), request.send()).await {
            Ok(listed) => listed.queue_urls,
            Err(unread) => return Ok(Some(unread)),
        };
        let names: Vec<&str> = urls.iter().filter_map(|url| url.rsplit('/').next()).collect();
        let Some(first) = names.first() else { return Ok(None) };
        let (name, sources) = (queue.arn.name(), names.join(" and "));
        let check = format!("check its source queue: `requeue doctor --queue {first}`");
        let look = format!("`requeue dlq list --queue {name}` shows the dead letters");
        Err(format!("{name} is the dead-letter queue of {sources}; {check}; {look}").into())
    }

    async fn deployment(&self, invoked: &Invoked, policy: Option<&Document>) -> Deployment {
        let settings = settings::settings(&invoked.configuration, policy);
        let function = self.properties(invoked, &settings).await;
        let queues = invoked.mappings.iter().filter_map(|mapping| {
            Some((mapping, mapping["EventSourceArn"].as_str()?.parse().ok()?))
        });
        let (role, needed) = (function.role.as_str(), [&TAKING[..], &[SENDING]].concat());
        let paths = join_all(queues.map(|(mapping, queue)| async {
            let source = self.reached(queue, Some(role), &needed);
            let (source, mapping) = tokio::join!(source, self.mapping(mapping));
            Box::pin(self.path(Some(mapping), source, Some(role), &settings)).await
        }));
        let paths = paths.await;
        self.with_paths(Some(function), settings, paths).await
    }

    async fn with_paths(
        &self,
        function: Option<Function>,
        settings: Known<FunctionSettings>,
        paths: Vec<QueuePath>,
    ) -> Deployment {
        let role = function.as_ref().map(|function| function.role.as_str());
        let sends = async {
            let is_in_vpc = function.as_ref().is_some_and(|function| function.vpc.is_some());
            let metrics = settings.as_ref().ok().and_then(|read| read.config.metrics.as_ref());
            match metrics.filter(|_| is_in_vpc) {
                Some(metrics) => self.sends(&metrics.service, &paths).await,
                None => Ok(None),
            }
        };
        let (alarms, table, target, sends) = tokio::join!(
            self.alarms(),
            self.table(&settings, role),
            self.target(&settings, role),
            sends
        );
        let (region, unlisted) = (self.region.clone(), None);
        let settings = function::fitted(settings, target.as_ref());
        Deployment { region, function, settings, paths, table, target, sends, unlisted, alarms }
    }

    /// A list of mappings has no encrypted filters (API reference, `ListEventSourceMappings`).
    async fn mapping(&self, listed: &Value) -> Mapping {
        let has_key = text(&listed["KMSKeyArn"]).is_some();
        let is_hidden =
            listed["FilterCriteria"].is_null() || listed["FilterCriteriaError"].is_object();
        if !has_key || !is_hidden {
            return mapping(listed);
        }
        let uuid = text(&listed["UUID"]).unwrap_or_default();
        let path = "2015-03-31/event-source-mappings/{}";
        match self.get("lambda:GetEventSourceMapping", &uuid, path).await {
            Ok(whole) => mapping(&whole),
            Err(unread) => Mapping { filters: Err(unread), ..mapping(listed) },
        }
    }

    /// All metric alarms and composite alarms of the region. `DescribeAlarmsForMetric` would be
    /// narrower, but leaves out alarms on an expression.
    async fn alarms(&self) -> Known<Vec<Alarm>> {
        let operation = "GraniteServiceVersion20100801.DescribeAlarms";
        let page = async |token: Option<String>| {
            let mut parameters =
                json!({ "AlarmTypes": ["MetricAlarm", "CompositeAlarm"], "MaxRecords": 100 });
            if let Some(token) = token {
                parameters["NextToken"] = token.into();
            }
            let page = call_json(&self.sdk, Service::CloudWatch, operation, &parameters).await;
            let page: Value = page?;
            let alarms = [list(&page["MetricAlarms"]), list(&page["CompositeAlarms"])].concat();
            Ok((alarms.iter().map(alarm).collect(), text(&page["NextToken"])))
        };
        self.list("cloudwatch:DescribeAlarms", "*", page).await
    }

    /// The copies of the last hour that this service sent to these queues.
    async fn sends(&self, service: &str, paths: &[QueuePath]) -> Known<Option<bool>> {
        let hour = (Timestamp::now().as_second() - i64::from(HOUR), HOUR);
        let mut sends = None;
        for path in paths {
            let dimensions = [("Service", service), ("Queue", path.source.arn.name())];
            let sum = async |metric| {
                let sum = self.metric_sum(metric, dimensions, hour).await;
                sum.map(|sum| sum.is_some_and(|sum| sum > 0.0))
            };
            let (confirmed, unconfirmed) =
                tokio::try_join!(sum("Requeued"), sum("SendUnconfirmed"))?;
            if confirmed || unconfirmed {
                sends = Some(!unconfirmed && sends != Some(false));
            }
        }
        Ok(sends)
    }
}

fn mapping(mapping: &Value) -> Mapping {
    let filters = match &mapping["FilterCriteriaError"] {
        Value::Null => {
            let filters = list(&mapping["FilterCriteria"]["Filters"]).iter();
            Ok(filters.filter_map(|filter| text(&filter["Pattern"])).collect())
        }
        error => {
            let key = text(&mapping["KMSKeyArn"]);
            let key = key.unwrap_or_else(|| "the key of the mapping's filters".to_owned());
            let code = error["ErrorCode"].as_str().unwrap_or("Unreadable");
            Err(Unread::of("kms:Decrypt", key, CallError::responded(400, code)))
        }
    };
    let window = mapping["MaximumBatchingWindowInSeconds"].as_u64();
    let mut response_types = list(&mapping["FunctionResponseTypes"]).iter();
    Mapping {
        uuid: text(&mapping["UUID"]).unwrap_or_default(),
        function: text(&mapping["FunctionArn"]).unwrap_or_default(),
        state: text(&mapping["State"]).unwrap_or_else(|| "unknown".to_owned()),
        batch_size: count(&mapping["BatchSize"]).unwrap_or(DEFAULT_BATCH),
        window: Duration::from_secs(window.unwrap_or_default()),
        reports_failures: response_types.any(|kind| kind == "ReportBatchItemFailures"),
        maximum_concurrency: count(&mapping["ScalingConfig"]["MaximumConcurrency"]),
        maximum_pollers: count(&mapping["ProvisionedPollerConfig"]["MaximumPollers"]),
        filters,
    }
}

fn alarm(alarm: &Value) -> Alarm {
    let queries = list(&alarm["Metrics"]);
    // An alarm on one metric names it itself; one on an expression has queries.
    let of = |query: &Value| metric(&query["MetricStat"]["Metric"], text(&query["AccountId"]));
    Alarm {
        name: text(&alarm["AlarmName"]).unwrap_or_default(),
        is_enabled: alarm["ActionsEnabled"].as_bool().unwrap_or_default(),
        actions: list(&alarm["AlarmActions"]).iter().filter_map(text).collect(),
        metrics: metric(alarm, None).into_iter().chain(queries.iter().filter_map(of)).collect(),
        expressions: queries.iter().filter_map(|query| text(&query["Expression"])).collect(),
        rule: text(&alarm["AlarmRule"]),
    }
}

fn metric(metric: &Value, account: Option<String>) -> Option<Metric> {
    let dimensions = list(&metric["Dimensions"]).iter();
    let dimension = |one: &Value| Some((text(&one["Name"])?, text(&one["Value"])?));
    Some(Metric {
        namespace: text(&metric["Namespace"])?,
        name: text(&metric["MetricName"])?,
        dimensions: dimensions.filter_map(dimension).collect(),
        account,
    })
}

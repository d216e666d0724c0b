//! Turns AWS's responses into facts. Sends no request, and reads no secret.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use requeue::queue::MAX_BATCH_BYTES;
use serde_json::Value;

use super::calls::cloudwatch;
use super::calls::dynamodb::TableDescription;
use super::calls::lambda::{EventSourceMapping, FunctionConfiguration};
use super::checks::is_alias;
use super::facts::{
    Alarm, AllowedSources, Consumer, Known, Logs, Mapping, Metric, NatGateway, QueueAttributes,
    RedriveSettings, RouteTable, State, TableProperties, Unread, Vpc, VpcEndpoint,
};
use crate::redrive_policy::{self, RedrivePolicy};

mod settings;

pub(crate) use settings::{lacks_policy, read_valid, settings};

/// A queue or a secret may name its key by the id alone, but IAM needs the ARN.
pub(crate) fn key_name(key: &str, of: &str) -> String {
    if key.starts_with("arn:") || is_alias(key) {
        return key.to_owned();
    }
    let parts: Vec<&str> = of.split(':').collect();
    format!("{}:kms:{}:key/{key}", parts[..2].join(":"), parts[3..5].join(":"))
}

pub(crate) fn logs(configuration: &FunctionConfiguration) -> Logs {
    configuration.logging_config.as_ref().map_or_else(Logs::default, |logs| Logs {
        is_json: logs.log_format.as_deref() == Some("JSON"),
        level: logs.application_log_level.clone(),
        group: logs.log_group.clone(),
    })
}

pub(crate) fn state(configuration: &FunctionConfiguration) -> State {
    State {
        current: configuration.state.clone(),
        reason: configuration.state_reason.clone(),
        last_update: configuration.last_update_status.clone(),
        last_update_reason: configuration.last_update_status_reason.clone(),
    }
}

/// Lambda shows the configuration of no VPC with empty lists.
pub(crate) fn vpc(
    configuration: &FunctionConfiguration,
    tables: Known<Vec<RouteTable>>,
    endpoints: Known<Vec<VpcEndpoint>>,
    gateways: Known<Vec<NatGateway>>,
) -> Option<Vpc> {
    let vpc = configuration.vpc_config.as_ref()?;
    let subnets = vpc.subnet_ids.clone().filter(|subnets| !subnets.is_empty())?;
    let environment = configuration.environment.as_ref();
    let variables = environment.and_then(|environment| environment.variables.as_ref());
    // Otherwise the SDK calls a host that has no IPv6 address.
    let is_dual_stack = variables
        .and_then(|variables| variables.get("AWS_USE_DUALSTACK_ENDPOINT"))
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let has_ipv6 = vpc.allows_ipv6 == Some(true) && is_dual_stack;
    let id = vpc.vpc_id.clone().unwrap_or_default();
    Some(Vpc { id, subnets, has_ipv6, tables, endpoints, gateways })
}

/// The version or alias in the name or ARN of this function.
pub(crate) fn qualifier(name: &str, function: &str) -> Option<String> {
    let parts: Vec<&str> = name.split(':').collect();
    let qualifier = match parts[..] {
        ["arn", _, _, _, _, _, _, qualifier] => qualifier,
        ["arn", ..] => return None,
        [.., name, qualifier] if name == function => qualifier,
        _ => return None,
    };
    Some(qualifier.to_owned())
}

/// The versions and aliases of this function that mappings invoke, with its name.
pub(crate) fn mapped(mappings: &[EventSourceMapping], function: &str) -> Vec<String> {
    let arns = mappings.iter().filter_map(|mapping| mapping.function_arn.as_deref());
    let names: BTreeSet<String> = arns
        .map(|arn| match qualifier(arn, function) {
            Some(qualifier) => format!("{function}:{qualifier}"),
            None => function.to_owned(),
        })
        .collect();
    names.into_iter().collect()
}

/// The properties that the checks read, and in which two versions differ.
pub(crate) fn differences(
    one: &FunctionConfiguration,
    other: &FunctionConfiguration,
) -> Vec<&'static str> {
    let differs = [
        ("Role", one.role != other.role),
        ("Timeout", one.timeout != other.timeout),
        ("KMSKeyArn", one.kms_key_arn != other.kms_key_arn),
        ("Environment", one.environment != other.environment),
        ("LoggingConfig", one.logging_config != other.logging_config),
        ("VpcConfig", one.vpc_config != other.vpc_config),
    ];
    differs.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
}

pub(crate) fn table(described: &TableDescription) -> TableProperties {
    let kind = |name: &str| {
        let mut definitions = described.attribute_definitions.iter();
        let definition = definitions.find(|definition| definition.attribute_name == name);
        definition.map_or("?", |definition| definition.attribute_type.as_str())
    };
    // The partition key first.
    let mut key: Vec<_> = described.key_schema.iter().collect();
    key.sort_by_key(|element| element.key_type != "HASH");
    let key = key.into_iter().map(|element| element.attribute_name.as_str());
    let billing = described.billing_mode_summary.as_ref();
    let is_on_demand =
        billing.and_then(|mode| mode.billing_mode.as_deref()) == Some("PAY_PER_REQUEST");
    let throughput = described.provisioned_throughput.as_ref();
    let units = throughput.and_then(|throughput| throughput.write_capacity_units);
    TableProperties {
        status: described.table_status.clone().unwrap_or_default(),
        key: key.map(|name| format!("{name} ({})", kind(name))).collect(),
        provisioned: (!is_on_demand).then(|| units.unwrap_or_default()),
    }
}

pub(crate) fn consumer(mapping: &EventSourceMapping) -> Consumer {
    Consumer {
        uuid: mapping.uuid.clone().unwrap_or_default(),
        function: mapping.function_arn.clone().unwrap_or_default(),
        state: mapping.state.as_deref().unwrap_or("unknown").to_owned(),
    }
}

pub(crate) fn timeout(configuration: &FunctionConfiguration) -> Duration {
    Duration::from_secs(configuration.timeout.unwrap_or(DEFAULT_TIMEOUT))
}

pub(crate) fn mapping(mapping: &EventSourceMapping) -> Mapping {
    let filters = if let Some(error) = &mapping.filter_criteria_error {
        Err(Unread {
            permission: "kms:Decrypt",
            resource: mapping
                .kms_key_arn
                .as_deref()
                .unwrap_or("the key of the mapping's filters")
                .to_owned(),
            code: error.error_code.as_deref().unwrap_or("UnreadableFilters").to_owned(),
            is_answered: true,
        })
    } else {
        let filters = mapping.filter_criteria.iter().flat_map(|criteria| &criteria.filters);
        Ok(filters.flatten().filter_map(|filter| filter.pattern.clone()).collect())
    };
    let mut response_types = mapping.function_response_types.iter().flatten();
    Mapping {
        uuid: mapping.uuid.clone().unwrap_or_default(),
        state: mapping.state.as_deref().unwrap_or("unknown").to_owned(),
        batch_size: mapping.batch_size.unwrap_or(DEFAULT_BATCH),
        window: Duration::from_secs(mapping.maximum_batching_window_in_seconds.unwrap_or_default()),
        reports_failures: response_types.any(|kind| kind == "ReportBatchItemFailures"),
        maximum_concurrency: mapping
            .scaling_config
            .as_ref()
            .and_then(|config| config.maximum_concurrency),
        maximum_pollers: mapping
            .provisioned_poller_config
            .as_ref()
            .and_then(|config| config.maximum_pollers),
        filters,
    }
}

pub(crate) fn alarm(alarm: cloudwatch::Alarm) -> Alarm {
    let (mut metrics, mut expressions) = (Vec::new(), Vec::new());
    metrics.extend(metric(alarm.metric, None));
    for query in alarm.metrics.into_iter().flatten() {
        let account = query.account_id;
        metrics.extend(query.metric_stat.and_then(|stat| metric(stat.metric, account)));
        expressions.extend(query.expression);
    }
    Alarm {
        name: alarm.name.unwrap_or_default(),
        is_enabled: alarm.actions_enabled.unwrap_or_default(),
        actions: alarm.actions.unwrap_or_default(),
        metrics,
        expressions,
        rule: alarm.rule,
    }
}

fn metric(metric: cloudwatch::Metric, account: Option<String>) -> Option<Metric> {
    let dimensions = metric.dimensions.into_iter().flatten();
    Some(Metric {
        namespace: metric.namespace?,
        name: metric.name?,
        dimensions: dimensions.map(|dimension| (dimension.name, dimension.value)).collect(),
        account,
    })
}

/// In seconds. Source: Lambda API reference, `CreateFunction`.
const DEFAULT_TIMEOUT: u64 = 3;
/// Source: Lambda API reference, `CreateEventSourceMapping`.
const DEFAULT_BATCH: u32 = 10;
/// The default of a queue. Source: SQS API reference, `SetQueueAttributes`.
const DEFAULT_RECEIVES: u32 = 10;

pub(crate) fn queue(attributes: &HashMap<QueueAttributeName, String>) -> QueueAttributes {
    let text = |name| attributes.get(&name).filter(|text| !text.is_empty());
    let number = |name| text(name)?.parse::<u64>().ok();
    let secs = |name| Duration::from_secs(number(name).unwrap_or_default());
    let json = |name| serde_json::from_str::<Value>(text(name)?).ok();
    let redrive =
        text(QueueAttributeName::RedrivePolicy).and_then(|policy| redrive_policy::read(policy));
    let redrive =
        redrive.map(|RedrivePolicy { target, max_receive_count: count }| RedriveSettings {
            target,
            max_receive_count: count
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(DEFAULT_RECEIVES),
        });
    let allow = json(QueueAttributeName::RedriveAllowPolicy).unwrap_or_default();
    let redrive_allow = match allow["redrivePermission"].as_str() {
        Some("denyAll") => AllowedSources::None,
        Some("byQueue") => {
            let sources = allow["sourceQueueArns"].as_array().into_iter().flatten();
            AllowedSources::Queues(
                sources.filter_map(|source| source.as_str().map(str::to_owned)).collect(),
            )
        }
        _ => AllowedSources::All,
    };
    QueueAttributes {
        visibility: secs(QueueAttributeName::VisibilityTimeout),
        retention: secs(QueueAttributeName::MessageRetentionPeriod),
        delay: secs(QueueAttributeName::DelaySeconds),
        receive_wait: secs(QueueAttributeName::ReceiveMessageWaitTimeSeconds),
        maximum_message_size: number(QueueAttributeName::MaximumMessageSize)
            .unwrap_or(MAX_BATCH_BYTES as u64),
        redrive,
        redrive_allow,
        policy: text(QueueAttributeName::Policy).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_queue_says_is_read_in_each_of_its_forms() {
        let target = r#""deadLetterTargetArn": "arn:aws:sqs:r:1:dead""#;
        for (count, expected) in
            [(r#", "maxReceiveCount": 3"#, 3), (r#", "maxReceiveCount": "3""#, 3), ("", 10)]
        {
            let attributes =
                [(QueueAttributeName::RedrivePolicy, format!("{{{target}{count}}}"))].into();
            let redrive = queue(&attributes)
                .redrive
                .map(|redrive| (redrive.target, redrive.max_receive_count));
            assert_eq!(redrive, Some(("arn:aws:sqs:r:1:dead".to_owned(), expected)), "{count}");
        }
        for (policy, expected) in [
            ("", AllowedSources::All),
            (r#"{"redrivePermission": "allowAll"}"#, AllowedSources::All),
            (r#"{"redrivePermission": "denyAll"}"#, AllowedSources::None),
            (
                r#"{"redrivePermission": "byQueue", "sourceQueueArns": ["a", "b"]}"#,
                AllowedSources::Queues(vec!["a".to_owned(), "b".to_owned()]),
            ),
        ] {
            let attributes = [(QueueAttributeName::RedriveAllowPolicy, policy.to_owned())].into();
            assert_eq!(queue(&attributes).redrive_allow, expected, "{policy}");
        }
    }

    #[test]
    fn a_version_or_alias_follows_the_name_of_the_function() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function";
        for (name, function, expected) in [
            ("orders".to_owned(), "orders", None),
            ("orders:live".to_owned(), "orders", Some("live")),
            ("123456789012:function:orders".to_owned(), "orders", None),
            ("123456789012:function:orders:3".to_owned(), "orders", Some("3")),
            (format!("{arn}:orders"), "orders", None),
            (format!("{arn}:orders:live"), "orders", Some("live")),
            // Names that are also words of an ARN.
            (format!("{arn}:aws"), "aws", None),
            (format!("{arn}:function"), "function", None),
            (format!("{arn}:function:live"), "function", Some("live")),
        ] {
            assert_eq!(qualifier(&name, function).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_key_is_known_by_its_arn_or_its_alias() {
        let queue = "arn:aws-cn:sqs:cn-north-1:123456789012:orders";
        let arn = "arn:aws-cn:kms:cn-north-1:123456789012:key/1a-2b";
        for (key, expected) in [("1a-2b", arn), (arn, arn), ("alias/orders", "alias/orders")] {
            assert_eq!(key_name(key, queue), expected);
        }
    }
}

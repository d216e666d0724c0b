//! Turns AWS's responses into facts. Sends no request, and reads no secret.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use requeue::policy::RetryPolicy;
use requeue::queue::MAX_BATCH_BYTES;
use requeue_lambda::Config;
use serde_json::Value;

use super::calls::cloudwatch;
use super::calls::dynamodb::TableDescription;
use super::calls::lambda::{EventSourceMapping, FunctionConfiguration};
use super::checks::is_alias;
use super::facts::{
    Alarm, AllowedSources, Consumer, FunctionSettings, Known, Logs, Mapping, Metric, NatGateway,
    PolicyPlace, QueueAttributes, RedriveSettings, RouteTable, State, TableProperties, Unread,
    Valid, Vpc, VpcEndpoint,
};
use crate::redrive_policy::{self, RedrivePolicy};

const PREFIX: &str = "REQUEUE_";

/// A queue or a secret may name its key by the id alone, but IAM needs the ARN.
pub(crate) fn key_name(key: &str, of: &str) -> String {
    if key.starts_with("arn:") || is_alias(key) {
        return key.to_owned();
    }
    let parts: Vec<&str> = of.split(':').collect();
    format!("{}:kms:{}:key/{key}", parts[..2].join(":"), parts[3..5].join(":"))
}

pub(crate) fn settings(
    configuration: &FunctionConfiguration,
    policy: Option<&RetryPolicy>,
) -> FunctionSettings {
    let environment = configuration.environment.as_ref();
    if let Some(error) = environment.and_then(|environment| environment.error.as_ref()) {
        let resource = configuration
            .kms_key_arn
            .as_deref()
            .unwrap_or("the key of the function's environment")
            .to_owned();
        let code = error.error_code.as_deref().unwrap_or("UnreadableEnvironment").to_owned();
        return FunctionSettings::Unread(Unread {
            permission: "kms:Decrypt",
            resource,
            code,
            is_answered: true,
        });
    }
    let variables = environment.and_then(|environment| environment.variables.as_ref());
    let variables =
        variables.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()));
    let function = configuration.function_name.as_deref().unwrap_or_default();
    read_settings(variables, function, policy)
}

/// Reads the variables of a program that runs elsewhere. A policy from `--policy` counts instead of
/// theirs.
fn read_settings<'v>(
    variables: impl IntoIterator<Item = (&'v str, &'v str)>,
    function: &'v str,
    policy: Option<&RetryPolicy>,
) -> FunctionSettings {
    let mut variables: HashMap<&str, &str> =
        variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    let names_strategy = variables.get("REQUEUE_STRATEGY").is_some_and(|value| !value.is_empty());
    let table = variables.get("REQUEUE_TABLE").filter(|name| !name.is_empty());
    let table = table.map(|name| (*name).to_owned());
    let count = variables.len();
    // In a function, these have other defaults than here.
    for (name, default) in [("REQUEUE_METRICS", "emf"), ("REQUEUE_SERVICE", function)] {
        let value = variables.entry(name).or_default();
        *value = if value.is_empty() { default } else { value };
    }
    let policy_place = variables.get("REQUEUE_POLICY").and_then(|value| policy_place(value));
    // A path in them means another machine's file.
    if let Some(PolicyPlace::File(_)) = policy_place {
        variables.remove("REQUEUE_POLICY");
    }
    let ((mut config, secrets), problems) = match read_valid(variables) {
        Ok(read) => read,
        Err(problems) => return FunctionSettings::Invalid(problems),
    };
    let policy_elsewhere = if policy.is_none() { policy_place } else { None };
    if let Some(policy) = policy {
        config.settings.policy = policy.clone();
    }
    FunctionSettings::Valid(Box::new(Valid {
        config: config.settings,
        lacks_policy: policy.is_none() && lacks_policy(&problems),
        problems,
        secrets,
        variables: count,
        policy_elsewhere,
        names_strategy,
        table,
    }))
}

pub(crate) fn lacks_policy(problems: &[String]) -> bool {
    problems.iter().any(|problem| problem.starts_with("REQUEUE_POLICY"))
}

/// The settings, and the ARNs of the secrets in them.
type ReadConfig = (Config, BTreeSet<String>);

/// Reads the valid variables, as if the others were not set, and returns the problems of these. Each
/// problem begins with the name of its variable.
pub(crate) fn read_valid<N, V>(
    mut variables: HashMap<N, V>,
) -> Result<(ReadConfig, Vec<String>), Vec<String>>
where
    N: AsRef<str> + Clone + Into<String> + Eq + Hash,
    V: Clone + Into<String>,
{
    let mut problems = Vec::new();
    loop {
        let invalid = match Config::from_vars_without_secrets(variables.clone()) {
            Ok(read) => return Ok((read, problems)),
            Err(invalid) => invalid,
        };
        problems.extend_from_slice(invalid.problems());
        let named: Vec<&str> = problems.iter().filter_map(|it| it.split(' ').next()).collect();
        let before = variables.len();
        variables.retain(|name, _| !named.contains(&name.as_ref()));
        if variables.len() == before {
            return Err(problems);
        }
    }
}

/// `None` if the setting has the policy itself.
fn policy_place(value: &str) -> Option<PolicyPlace> {
    let value = value.trim();
    if value.is_empty() || value.starts_with('{') {
        None
    } else if value.starts_with("arn:") {
        Some(PolicyPlace::Stored(value.to_owned()))
    } else {
        Some(PolicyPlace::File(value.to_owned()))
    }
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

    fn read(variables: &[(&str, &str)]) -> FunctionSettings {
        read_settings(variables.iter().copied(), "orders", None)
    }

    fn valid(variables: &[(&str, &str)]) -> Valid {
        match read(variables) {
            FunctionSettings::Valid(valid) => *valid,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_path_in_the_settings_of_a_function_is_not_followed_on_this_machine() {
        let read =
            valid(&[("REQUEUE_POLICY", "Cargo.toml"), ("REQUEUE_WRAP", "never"), ("PATH", "/bin")]);
        let file = PolicyPlace::File("Cargo.toml".to_owned());
        assert_eq!((read.variables, read.policy_elsewhere), (2, Some(file)));
        assert_eq!(
            valid(&[("REQUEUE_POLICY", r#"{"preset": "critical"}"#)]).config.policy.max_retries,
            5
        );
        let mut given = RetryPolicy::default();
        given.max_retries = 7;
        let FunctionSettings::Valid(read) =
            read_settings([("REQUEUE_POLICY", "Cargo.toml")], "orders", Some(&given))
        else {
            panic!()
        };
        assert_eq!((read.policy_elsewhere, read.config.policy.max_retries), (None, 7));
    }

    #[test]
    fn a_function_writes_metrics_under_its_name_unless_told_otherwise() {
        for (variables, expected) in [
            (&[][..], Some("orders")),
            (&[("REQUEUE_METRICS", ""), ("REQUEUE_SERVICE", "")], Some("orders")),
            (&[("REQUEUE_SERVICE", "shop")], Some("shop")),
            (&[("REQUEUE_METRICS", "off")], None),
        ] {
            let read = valid(variables);
            let service = read.config.metrics.as_ref().map(|metrics| &*metrics.service);
            assert_eq!((service, read.variables), (expected, variables.len()));
        }
    }

    #[test]
    fn a_policy_that_is_stored_at_an_arn_is_a_secret_that_the_function_reads() {
        let arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/policy";
        let read = valid(&[("REQUEUE_POLICY", &format!(" {arn}:3"))]);
        assert_eq!(read.policy_elsewhere, Some(PolicyPlace::Stored(format!("{arn}:3"))));
        assert_eq!(read.secrets, [arn.to_owned()].into());
        let given = RetryPolicy::default();
        let FunctionSettings::Valid(read) =
            read_settings([("REQUEUE_POLICY", arn)], "orders", Some(&given))
        else {
            panic!()
        };
        assert_eq!((read.policy_elsewhere, read.secrets), (None, [arn.to_owned()].into()));
    }

    #[test]
    fn secrets_that_only_the_function_can_fetch_are_no_problem_and_are_not_shown() {
        let secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf";
        let parameter = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/signing";
        let headers =
            format!(r#"{{"Authorization": "Bearer {secret}:token::", "X-Key": "s3cret"}}"#);
        let signing = format!("{parameter}:3 {parameter}:live {secret}::AWSPREVIOUS:");
        let read = valid(&[("REQUEUE_HEADERS", &headers), ("REQUEUE_SIGNING_SECRET", &signing)]);
        assert_eq!(read.secrets, [secret, parameter].map(str::to_owned).into());
        assert!(!format!("{read:?}").contains("s3cret"));
        let problems =
            valid(&[("REQUEUE_HEADERS", "s3cret"), ("REQUEUE_SIGNING_SECRET", "whsec_s3cret")])
                .problems;
        assert_eq!(problems.len(), 2);
        assert!(!problems.concat().contains("s3cret"), "{problems:?}");
    }

    #[test]
    fn an_invalid_variable_hides_neither_the_others_nor_their_problems() {
        let read = valid(&[
            ("REQUEUE_STRATEGY", "visible"),
            ("REQUEUE_CONCURRENCI", "9"),
            ("REQUEUE_CONCURRENCY", "7"),
        ]);
        assert_eq!((read.config.limits.concurrency, read.lacks_policy), (7, false));
        let names: Vec<&str> =
            read.problems.iter().filter_map(|problem| problem.split(' ').next()).collect();
        assert_eq!(names, ["REQUEUE_CONCURRENCI", "REQUEUE_STRATEGY"], "{:?}", read.problems);
        let policy = [("REQUEUE_POLICY", r#"{"maxRetries": -1}"#), ("REQUEUE_MODE", "report")];
        let read = valid(&policy);
        assert_eq!((read.config.mode, read.lacks_policy), (requeue::Mode::Report, true));
        let given = RetryPolicy::default();
        let read = read_settings(policy, "orders", Some(&given));
        assert!(matches!(read, FunctionSettings::Valid(read) if !read.lacks_policy));
    }

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

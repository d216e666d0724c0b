//! Whether alarms of CloudWatch watch the dead letters and the age of messages, and whether they
//! notify anybody. The doctor sees alarms of this account and region only.

use requeue::Mode;
use requeue::queue::QueueArn;
use serde_json::json;

use super::super::access_policy::account;
use super::super::check::Check;
use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::{Alarm, Metric};
use super::super::remedy;
use super::worst;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "dead-letter-alarm",
        why: "Nothing handles dead letters until a person acts, and SQS deletes them when their \
              retention ends.",
        look: dead_letter_alarm,
    },
    Check {
        id: "age-alarm",
        why: "While calls fail, or nothing receives the messages, only their age shows the \
              trouble.",
        look: age_alarm,
    },
];

const SQS: &str = "AWS/SQS";
/// The namespace of Requeue's own metrics.
pub(crate) const REQUEUE: &str = "Requeue";
const VISIBLE: &str = "ApproximateNumberOfMessagesVisible";
const OLDEST: &str = "ApproximateAgeOfOldestMessage";
const AGE: &str = "MessageAge";
/// Messages that SQS itself moves to a dead-letter queue do not count. Source: SQS developer guide,
/// "Available CloudWatch metrics for Amazon SQS".
const SENT: &str = "NumberOfMessagesSent";

/// The alarm that a check looks for.
struct Sought<'s> {
    queue: &'s QueueArn,
    /// Metrics of SQS, the best first.
    of_sqs: &'s [&'s str],
    /// The dimension `Service` of Requeue's metric of the age, if that is sought.
    service: Option<&'s str>,
    /// A metric of SQS that looks right and is not.
    misleading: Option<&'s str>,
    /// The reason for which another alarm does not replace this one.
    reason: &'s str,
    /// The command that makes such an alarm.
    create: &'s str,
}

impl Sought<'_> {
    fn reads(&self, metric: &Metric) -> bool {
        let (name, queue) = (metric.name.as_str(), self.queue);
        let dimension = |name| metric.dimensions.get(name).is_some_and(|of| of == queue.name());
        let is_own = match metric.dimensions.len() {
            1 => metric.namespace == SQS && self.of_sqs.contains(&name) && dimension("QueueName"),
            2 => {
                let service = metric.dimensions.get("Service").map(String::as_str);
                self.is_age(metric) && self.service == service
            }
            _ => false,
        };
        is_own && metric.account.as_ref().is_none_or(|of| of == account(&queue.to_string()))
    }

    /// Whether this is Requeue's metric of the age, of any service.
    fn is_age(&self, metric: &Metric) -> bool {
        let queue = metric.dimensions.get("Queue").map(String::as_str);
        metric.namespace == REQUEUE && metric.name == AGE && queue == Some(self.queue.name())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.of_sqs.iter().copied().chain(self.service.map(|_| AGE))
    }

    fn told(&self) -> String {
        let queue = self.queue.name();
        match self.service {
            Some(service) => format!("{AGE} of {queue} with the Service {service}"),
            None => format!("{} of {queue}", self.of_sqs.join(" or ")),
        }
    }
}

fn dead_letter_alarm(context: &Context<'_>) -> Checked {
    let path = context.path()?;
    let reached = path.dead_letters.iter().chain(&path.direct);
    let mut queues: Vec<&QueueArn> = reached.map(|reached| &reached.arn).collect();
    queues.dedup();
    worst(queues.into_iter().map(|queue| {
        let (of_sqs, misleading) = (&[VISIBLE, OLDEST], Some(SENT));
        let create = &put_alarm(queue, VISIBLE, &of_queue(queue, VISIBLE), 0);
        look(context, &Sought { queue, of_sqs, service: None, misleading, reason: "", create })
    }))
}

/// SQS counts the age anew for each copy, and Requeue sees only the messages that something receives.
/// Where messages wait in copies, only alarms on both metrics see all of them.
fn age_alarm(context: &Context<'_>) -> Checked {
    let queue = &context.source()?.arn;
    let has_copies = has_copies(context);
    let reason = match has_copies {
        Ok(true) => ", and MessageAge has no values while nothing receives messages",
        Ok(false) | Err(_) => "",
    };
    let metrics = context.config().ok().and_then(|config| config.metrics.as_ref());
    let create = &match (&has_copies, metrics) {
        (Ok(true), Some(metrics)) => put_alarm(queue, AGE, &of_both(queue, &metrics.service), 900),
        _ => put_alarm(queue, OLDEST, &of_queue(queue, OLDEST), 900),
    };
    let of_sqs = &[OLDEST];
    let sought = Sought { queue, of_sqs, service: None, misleading: None, reason, create };
    let waiting = look(context, &sought);
    match has_copies {
        Ok(true) => both(through_copies(context, queue, create), waiting),
        Ok(false) => waiting,
        Err(skip) => worst([waiting, Err(skip)]),
    }
}

/// Whether messages of this queue wait in copies.
fn has_copies(context: &Context<'_>) -> Result<bool, Skip> {
    Ok(!context.waits_in_place()? && context.config()?.mode == Mode::Requeue)
}

/// The alarm on the age since the first send.
fn through_copies(context: &Context<'_>, queue: &QueueArn, create: &str) -> Checked {
    let Some(metrics) = &context.config()?.metrics else {
        let found =
            "REQUEUE_METRICS is off, so no metric counts a message's age through its copies";
        let remedy = match context.function() {
            Ok(_) => remedy::variable("METRICS", "emf"),
            Err(_) => "set REQUEUE_METRICS=emf in the environment of `requeue work`".to_owned(),
        };
        return Ok(Diagnosis::warning(found, [remedy]));
    };
    let (of_sqs, service, misleading) = (&[], Some(&*metrics.service), None);
    let reason = ", and SQS counts the age anew for each copy";
    look(context, &Sought { queue, of_sqs, service, misleading, reason, create })
}

/// Two alarms that are needed.
fn both(one: Checked, other: Checked) -> Checked {
    match (one, other) {
        (Ok(one), Ok(other)) if one.level == other.level && one != other => {
            let more = other.remedies.into_iter().filter(|more| !one.remedies.contains(more));
            let more: Vec<String> = more.collect();
            let needed = if more.is_empty() { "" } else { "; both alarms are needed" };
            let found = format!("{}; {}{needed}", one.found, other.found);
            let remedies = more.into_iter().chain(one.remedies).collect();
            Ok(Diagnosis { level: one.level, found, remedies })
        }
        (one, other) => worst([one, other]),
    }
}

fn of_queue(queue: &QueueArn, metric: &str) -> String {
    format!(
        "--namespace {SQS} --metric-name {metric} --dimensions Name=QueueName,Value={} \
         --statistic Maximum --period 60",
        queue.name()
    )
}

/// The larger of two ages, as the template's alarm has it. With each copy, SQS counts the age anew.
/// Requeue does not, but its metric has no values while nothing receives the messages.
fn of_both(queue: &QueueArn, service: &str) -> String {
    let metric = |id: &str, namespace: &str, name: &str, dimensions: serde_json::Value| {
        let metric = json!({"Namespace": namespace, "MetricName": name, "Dimensions": dimensions});
        let read = json!({"Metric": metric, "Period": 900, "Stat": "Maximum"});
        json!({"Id": id, "MetricStat": read, "ReturnData": false})
    };
    let dimension = |name: &str, value: &str| json!({"Name": name, "Value": value});
    let own = json!([dimension("Service", service), dimension("Queue", queue.name())]);
    let metrics = json!([
        metric("age", REQUEUE, AGE, own),
        metric("waiting", SQS, OLDEST, json!([dimension("QueueName", queue.name())])),
        {"Id": "oldest", "Expression": "MAX([FILL(age, 0), FILL(waiting, 0)])"},
    ]);
    format!("--metrics '{metrics}'")
}

fn put_alarm(queue: &QueueArn, name: &str, reads: &str, threshold: u32) -> String {
    format!(
        "aws cloudwatch put-metric-alarm --region {} --alarm-name {}-{name} {reads} \
         --evaluation-periods 1 --comparison-operator GreaterThanThreshold --threshold {threshold} \
         --treat-missing-data notBreaching --alarm-actions TOPIC, with the ARN of an SNS topic",
        queue.region(),
        queue.name()
    )
}

fn look(context: &Context<'_>, sought: &Sought<'_>) -> Checked {
    let (arn, region) = (sought.queue.to_string(), sought.queue.region());
    let is_foreign =
        context.function().is_ok_and(|function| account(&function.role) != account(&arn));
    if is_foreign || region != context.region() {
        let found = format!("{arn} is of another account or region, which has the alarms on it");
        let list = format!("aws cloudwatch describe-alarms --region {region}, in that account");
        return Err(Skip::not_checked(found, [list]));
    }
    let alarms = context.deployment.alarms.as_ref()?;
    let watching: Vec<&Alarm> =
        alarms.iter().filter(|alarm| alarm.metrics.iter().any(|one| sought.reads(one))).collect();
    if watching.is_empty() {
        return none(alarms, sought);
    }
    if let Some(alarm) = watching.iter().find(|alarm| notifies(alarm)) {
        let actions = alarm.actions.join(" and ");
        return Ok(Diagnosis::ok(format!("{} notifies {actions}", alarm.name)));
    }
    let by_composite = |alarm: &&Alarm| {
        let mut composite = alarms.iter().filter(|composite| notifies(composite));
        composite.find(|composite| composite.rule.as_ref().is_some_and(|rule| names(rule, alarm)))
    };
    for alarm in &watching {
        let Some(composite) = by_composite(alarm) else { continue };
        let found = format!("the composite alarm {} notifies for {}", composite.name, alarm.name);
        if composite.rule.as_deref().is_some_and(is_any) {
            return Ok(Diagnosis::ok(found));
        }
        let show = format!(
            "aws cloudwatch describe-alarms --region {region} --alarm-types CompositeAlarm \
             --alarm-names {} shows its rule",
            quoted(&composite.name)
        );
        let found = format!("{found}, but its rule may need more than that alarm");
        return Err(Skip::not_checked(found, [show]));
    }
    Ok(silent(&watching, region))
}

/// No alarm reads the metric.
fn none(alarms: &[Alarm], sought: &Sought<'_>) -> Checked {
    // A query of Metrics Insights reads the metrics of many queues.
    let is_query = |expression: &String| {
        expression.trim_start().get(..6).is_some_and(|verb| verb.eq_ignore_ascii_case("SELECT"))
            && sought.names().any(|name| expression.contains(name))
    };
    let mut queries = alarms.iter().filter(|alarm| alarm.expressions.iter().any(is_query));
    if let Some(alarm) = queries.next() {
        let found = format!(
            "{} has a Metrics Insights query, which may read {}",
            alarm.name,
            sought.told()
        );
        return Err(Skip::not_checked(found, [sought.create]));
    }
    let (told, reason) = (sought.told(), sought.reason);
    let mut found = format!("no alarm of this account and region reads {told}{reason}");
    let is_age = |alarm: &&Alarm| alarm.metrics.iter().any(|metric| sought.is_age(metric));
    if let (Some(_), Some(alarm)) = (sought.service, alarms.iter().find(is_age)) {
        found = format!("{found}; {} reads {AGE} with other dimensions", alarm.name);
    }
    let misleading = Sought { of_sqs: sought.misleading.as_slice(), service: None, ..*sought };
    let mut misled =
        alarms.iter().filter(|alarm| alarm.metrics.iter().any(|metric| misleading.reads(metric)));
    if let (Some(alarm), Some(metric)) = (misled.next(), sought.misleading) {
        found = format!(
            "{found}; {} reads {metric}, which does not count the messages that SQS moves",
            alarm.name
        );
    }
    let template = "template, parameters: `Monitoring=alarms`".to_owned();
    Ok(Diagnosis::warning(found, [sought.create.to_owned(), template]))
}

/// Alarms that notify nobody.
fn silent(watching: &[&Alarm], region: &str) -> Diagnosis {
    let disabled = watching.iter().find(|alarm| !alarm.is_enabled && has_actions(alarm));
    if let Some(alarm) = disabled {
        let enable = format!(
            "aws cloudwatch enable-alarm-actions --region {region} --alarm-names {}",
            quoted(&alarm.name)
        );
        Diagnosis::warning(format!("the actions of {} are disabled", alarm.name), [enable])
    } else {
        let names: Vec<&str> = watching.iter().map(|alarm| alarm.name.as_str()).collect();
        Diagnosis::warning(
            format!("{} has no action that notifies anybody", names.join(" or ")),
            [
                "template, parameters: `AlarmTopicArn=` and the ARN of an SNS topic, or \
                 `AlarmEmail=` and an address",
                "add an SNS topic to the alarm's AlarmActions",
            ],
        )
    }
}

fn notifies(alarm: &Alarm) -> bool {
    alarm.is_enabled && has_actions(alarm)
}

/// Whether an action is for people or for a program. One that scales or stops machines is not.
fn has_actions(alarm: &Alarm) -> bool {
    let service = |action: &String| action.split(':').nth(2).unwrap_or_default().to_owned();
    alarm.actions.iter().any(|action| !["autoscaling", "automate"].contains(&&*service(action)))
}

/// Whether the rule of a composite alarm names the alarm, by its name or by its ARN.
fn names(rule: &str, alarm: &Alarm) -> bool {
    let name = &alarm.name;
    let mut places = rule.match_indices(name.as_str());
    places.any(|(at, _)| {
        let (before, after) = (&rule[..at], &rule[at + name.len()..]);
        let is_start = before.ends_with(['(', '"', '\'', ' ']) || before.ends_with(":alarm:");
        is_start && after.starts_with([')', '"', '\'', ' '])
    })
}

/// Whether one of the alarms in the rule is enough.
fn is_any(rule: &str) -> bool {
    let mut words = rule.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    !words.any(|word| ["AND", "NOT", "AT_LEAST", "OK"].contains(&&*word.to_ascii_uppercase()))
}

/// For a shell.
fn quoted(name: &str) -> String {
    format!("'{}'", name.replace('\'', "'\\''"))
}

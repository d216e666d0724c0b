//! Whether some alarm of this account and region with an action reads a queue's metric.

use requeue::queue::QueueArn;

use super::super::arn::Arn;
use super::super::facts::{Alarm, Metric};
use super::dead_letters::{dead_letters, direct};
use super::{Checked, Context, Remedy, all, not_checked, ok, remedy, warning};

const SQS: &str = "AWS/SQS";
/// The namespace of Requeue's own metrics.
pub(crate) const REQUEUE: &str = "Requeue";
const VISIBLE: &str = "ApproximateNumberOfMessagesVisible";
const OLDEST: &str = "ApproximateAgeOfOldestMessage";
const AGE: &str = "MessageAge";

struct Sought<'s> {
    queue: &'s QueueArn,
    /// The metric, and others that do as well.
    names: &'s [&'s str],
    service: Option<&'s str>,
    /// The reason for which another alarm does not replace this one.
    reason: &'s str,
    threshold: u32,
}

impl Sought<'_> {
    fn is(&self, metric: &Metric) -> bool {
        let Metric { namespace, name, dimensions, account } = metric;
        let dimension = |name: &str| dimensions.get(name).map(String::as_str);
        let queue = Some(self.queue.name());
        let is_of_queue = match self.service {
            Some(service) => {
                let service = dimension("Service") == Some(service);
                namespace == REQUEUE && service && dimension("Queue") == queue
            }
            None => namespace == SQS && dimensions.len() == 1 && dimension("QueueName") == queue,
        };
        let own = self.queue.to_string();
        let is_foreign = account.as_ref().is_some_and(|of| of != Arn::of(&own).account);
        is_of_queue && !is_foreign && self.names.contains(&name.as_str())
    }

    /// Whether a query of Metrics Insights, which reads the metrics of many queues, may read it.
    fn may_be_in(&self, query: &str) -> bool {
        query.trim_start().to_ascii_uppercase().starts_with("SELECT")
            && self.names.iter().any(|name| query.contains(name))
    }

    fn told(&self) -> String {
        let (names, queue) = (self.names.join(" or "), self.queue.name());
        let service = self.service.map(|service| format!(" with the Service {service}"));
        format!("{names} of {queue}{}", service.unwrap_or_default())
    }

    fn create(&self) -> Remedy {
        let (queue, region, name) = (self.queue.name(), self.queue.region(), self.names[0]);
        let reads = match self.service {
            Some(service) => {
                format!(
                    "{REQUEUE} --dimensions Name=Service,Value={service} Name=Queue,Value={queue}"
                )
            }
            None => format!("{SQS} --dimensions Name=QueueName,Value={queue}"),
        };
        let command = format!(
            "aws cloudwatch put-metric-alarm --region {region} --alarm-name {queue}-{name} \
             --metric-name {name} --namespace {reads} --statistic Maximum --period 60 \
             --evaluation-periods 1 --comparison-operator GreaterThanThreshold --threshold {} \
             --treat-missing-data notBreaching --alarm-actions TOPIC",
            self.threshold
        );
        Remedy::from(command).then("TOPIC is the ARN of an SNS topic")
    }
}

pub(super) fn dead_letter_alarm(context: &Context<'_>) -> Checked {
    let reached = [dead_letters(context), direct(context)].into_iter().flatten();
    let mut queues: Vec<&QueueArn> = reached.map(|reached| &reached.arn).collect();
    queues.dedup();
    all(queues.into_iter().map(|queue| {
        // The age of dead letters does as well, unless it omits some.
        let names: &[&str] = if queue.is_fifo() { &[VISIBLE, OLDEST] } else { &[VISIBLE] };
        look(context, &Sought { queue, names, service: None, reason: "", threshold: 0 })
    }))
}

/// SQS counts the age from 0 for each copy, and on a standard queue it leaves out messages that
/// were received three times or more (SQS developer guide, "Available CloudWatch metrics"). Requeue
/// sees only the messages that something receives. So there, only alarms on both metrics see all of
/// them.
pub(super) fn age_alarm(context: &Context<'_>) -> Checked {
    let queue = &context.source()?.arn;
    let reason = if queue.is_fifo() {
        ""
    } else {
        ", and MessageAge has no values while nothing receives messages"
    };
    let sought = Sought { queue, names: &[OLDEST], service: None, reason, threshold: 900 };
    let waiting = look(context, &sought);
    if queue.is_fifo() { waiting } else { all([since_first_send(context, queue), waiting]) }
}

fn since_first_send(context: &Context<'_>, queue: &QueueArn) -> Checked {
    let Some(metrics) = &context.config()?.metrics else {
        let found = "REQUEUE_METRICS is off, so no metric counts the age of a message that is \
                     retried";
        return warning(found, [remedy::variable(context, "METRICS", "emf")]);
    };
    let reason = ", and SQS leaves out messages received three times or more, and counts the age \
                  anew for each copy";
    let service = Some(&*metrics.service);
    look(context, &Sought { queue, names: &[AGE], service, reason, threshold: 900 })
}

fn look(context: &Context<'_>, sought: &Sought<'_>) -> Checked {
    let (arn, region) = (sought.queue.to_string(), sought.queue.region());
    let is_foreign = context
        .function()
        .is_ok_and(|function| Arn::of(&function.role).account != Arn::of(&arn).account);
    if is_foreign || region != context.region() {
        let found = format!("{arn} is of another account or region, which has the alarms on it");
        let list = format!("aws cloudwatch describe-alarms --region {region}");
        let list = Remedy::from("in that account:").then(list);
        return Err(not_checked(found, [list]));
    }
    let alarms = context.deployment.alarms.as_ref()?;
    let reading: Vec<&Alarm> =
        alarms.iter().filter(|alarm| alarm.metrics.iter().any(|one| sought.is(one))).collect();
    // A composite alarm may have the action.
    let notifying = reading.iter().find_map(|alarm| {
        let is_in = |other: &&Alarm| {
            std::ptr::eq(*other, *alarm)
                || other.rule.as_ref().is_some_and(|rule| names(rule, alarm))
        };
        alarms.iter().find(|other| is_in(other) && notifies(other))
    });
    if let Some(alarm) = notifying {
        let actions = alarm.actions.join(" and ");
        return ok(format!("{} notifies {actions}", alarm.name));
    }
    if let Some(alarm) = reading.first() {
        let found =
            format!("{} reads it, but has no enabled action that notifies anybody", alarm.name);
        let enable = format!(
            "aws cloudwatch enable-alarm-actions --region {region} --alarm-names '{}'",
            alarm.name.replace('\'', "'\\''")
        );
        let add = "if the alarm has no actions, add an SNS topic to its AlarmActions";
        let enable = Remedy::of([add, &enable]);
        let template =
            "`AlarmTopicArn=` and the ARN of an SNS topic, or `AlarmEmail=` and an address";
        let template = remedy::parameters(context, template);
        return warning(found, [enable].into_iter().chain(template));
    }
    let is_query = |alarm: &&Alarm| alarm.expressions.iter().any(|query| sought.may_be_in(query));
    let told = sought.told();
    if let Some(Alarm { name, .. }) = alarms.iter().find(is_query) {
        let found = format!("{name} has a Metrics Insights query, which may read {told}");
        return Err(not_checked(found, [sought.create()]));
    }
    let found = format!("no alarm of this account and region reads {told}{}", sought.reason);
    let template = remedy::parameters(context, "`Monitoring=alarms`");
    warning(found, [sought.create()].into_iter().chain(template))
}

/// Whether an enabled action is for people or for a program, and not one that scales machines.
fn notifies(alarm: &Alarm) -> bool {
    let is_of_machines =
        |action: &String| ["autoscaling", "automate"].contains(&Arn::of(action).service);
    alarm.is_enabled && alarm.actions.iter().any(|action| !is_of_machines(action))
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

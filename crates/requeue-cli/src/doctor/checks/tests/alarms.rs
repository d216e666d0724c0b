//! Findings about alarms.

use super::*;

const DEAD: usize = 0;
const AGED: usize = 1;

/// The alarm on dead letters reads this metric of a queue instead.
fn reads(d: &mut Deployment, metric: &str, queue: &str) {
    d.alarms()[DEAD] = alarm("dead-letters", "AWS/SQS", metric, &[("QueueName", queue)]);
}

/// The alarm on dead letters has no action, but a composite alarm with this rule has one.
fn composite(d: &mut Deployment, rule: &str) {
    d.alarms()[DEAD].actions.clear();
    let rule = Some(rule.to_owned());
    let all = Alarm { metrics: Vec::new(), rule, ..alarm("all", "", "", &[]) };
    d.alarms().push(all);
}

fn query(d: &mut Deployment, expression: &str) {
    d.alarms()[DEAD].metrics.clear();
    d.alarms()[DEAD].expressions.push(expression.to_owned());
}

const OLDEST: &str = "ApproximateAgeOfOldestMessage";

pub(super) const ROWS: &[Row] = &[
    ("dead-letter-alarm", |d| d.alarms = refused(), Some(Unknown)),
    ("dead-letter-alarm", |d| drop(d.alarms().remove(DEAD)), Some(Warning)),
    ("dead-letter-alarm", |d| d.path().dead_letters = None, None),
    ("dead-letter-alarm", |d| reads(d, OLDEST, "dead"), Some(Fine)),
    ("dead-letter-alarm", |d| reads(d, VISIBLE, "orders"), Some(Warning)),
    ("dead-letter-alarm", |d| reads(d, "NumberOfMessagesSent", "dead"), Some(Warning)),
    ("dead-letter-alarm", |d| d.alarms()[DEAD].is_enabled = false, Some(Warning)),
    ("dead-letter-alarm", |d| d.alarms()[DEAD].actions.clear(), Some(Warning)),
    (
        "dead-letter-alarm",
        |d| d.alarms()[DEAD].actions = vec!["arn:aws:autoscaling:r:1:scalingPolicy:p".to_owned()],
        Some(Warning),
    ),
    (
        "dead-letter-alarm",
        |d| d.alarms()[DEAD].metrics[0].account = Some("999999999999".to_owned()),
        Some(Warning),
    ),
    (
        "dead-letter-alarm",
        |d| d.alarms()[DEAD].metrics[0].account = Some("123456789012".to_owned()),
        Some(Fine),
    ),
    // One of several alarms is enough.
    (
        "dead-letter-alarm",
        |d| {
            let silent = Alarm { actions: Vec::new(), ..d.alarms()[DEAD].clone() };
            d.alarms().insert(0, silent);
        },
        Some(Fine),
    ),
    ("dead-letter-alarm", |d| composite(d, "ALARM(\"dead-letters\")"), Some(Fine)),
    (
        "dead-letter-alarm",
        |d| composite(d, "ALARM(other) OR ALARM(arn:aws:cloudwatch:r:1:alarm:dead-letters)"),
        Some(Fine),
    ),
    ("dead-letter-alarm", |d| composite(d, "ALARM(dead-letters) AND ALARM(other)"), Some(Unknown)),
    ("dead-letter-alarm", |d| composite(d, "ALARM(\"more-dead-letters\")"), Some(Warning)),
    (
        "dead-letter-alarm",
        |d| query(d, "SELECT MAX(ApproximateNumberOfMessagesVisible) FROM \"AWS/SQS\""),
        Some(Unknown),
    ),
    ("dead-letter-alarm", |d| query(d, "MAX(METRICS())"), Some(Warning)),
    // The queue to which the function sends has its own alarm.
    ("dead-letter-alarm", |d| d.direct(14 * DAY), Some(Warning)),
    ("age-alarm", |d| d.alarms = refused(), Some(Unknown)),
    ("age-alarm", |d| drop(d.alarms().remove(AGED)), Some(Warning)),
    (
        "age-alarm",
        |d| d.alarms()[AGED] = alarm("age", "AWS/SQS", OLDEST, &[("QueueName", "orders")]),
        Some(Fine),
    ),
    // Requeue's metric has both dimensions.
    (
        "age-alarm",
        |d| d.alarms()[AGED] = alarm("age", "Requeue", "MessageAge", &[("Queue", "orders")]),
        Some(Warning),
    ),
    ("age-alarm", |d| d.function = None, Some(Fine)),
    (
        "age-alarm",
        |d| d.function().role = "arn:aws:iam::999999999999:role/other".to_owned(),
        Some(Unknown),
    ),
];

#[test]
fn an_alarm_that_reads_a_misleading_metric_is_named() {
    let mut deployment = good();
    reads(&mut deployment, "NumberOfMessagesSent", "dead");
    let found = found(&deployment, "dead-letter-alarm").unwrap().diagnosis.found;
    assert!(found.contains("; dead-letters reads NumberOfMessagesSent, "), "{found}");
}

#[test]
fn a_new_alarm_on_the_age_counts_through_copies_and_while_nothing_is_received() {
    for (change, expected) in [
        (
            (|_| {}) as fn(&mut Deployment),
            "--metrics '[{\"Id\":\"age\",\"MetricStat\":{\"Metric\":{\"Dimensions\":[\
             {\"Name\":\"Service\",\"Value\":\"orders\"},{\"Name\":\"Queue\",\"Value\":\"orders\"}],\
             \"MetricName\":\"MessageAge\",\"Namespace\":\"Requeue\"},\"Period\":900,\
             \"Stat\":\"Maximum\"},\"ReturnData\":false},{\"Id\":\"waiting\",\"MetricStat\":{\"Metric\":{\
             \"Dimensions\":[{\"Name\":\"QueueName\",\"Value\":\"orders\"}],\
             \"MetricName\":\"ApproximateAgeOfOldestMessage\",\"Namespace\":\"AWS/SQS\"},\
             \"Period\":900,\"Stat\":\"Maximum\"},\"ReturnData\":false},\
             {\"Expression\":\"MAX([FILL(age, 0), FILL(waiting, 0)])\",\"Id\":\"oldest\"}]' ",
        ),
        (
            |d| d.valid().config.strategy = Strategy::Visibility,
            "--metric-name ApproximateAgeOfOldestMessage --dimensions Name=QueueName,Value=orders ",
        ),
        (
            |d| d.function = None,
            "--metric-name ApproximateAgeOfOldestMessage --dimensions Name=QueueName,Value=orders ",
        ),
    ] {
        let mut deployment = good();
        change(&mut deployment);
        deployment.alarms().clear();
        let remedies = found(&deployment, "age-alarm").unwrap().diagnosis.remedies;
        assert!(remedies[0].contains(expected), "{remedies:?}");
    }
}

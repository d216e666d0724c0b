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

/// Only the alarm on this metric of the age, with these dimensions.
fn only(d: &mut Deployment, namespace: &str, metric: &str, dimensions: &[(&str, &str)]) {
    d.alarms()[AGED] = alarm("age", namespace, metric, dimensions);
}

/// Only the alarm on the age in SQS.
fn waiting(d: &mut Deployment) {
    only(d, "AWS/SQS", OLDEST, &[("QueueName", "orders")]);
}

/// Only the alarm on Requeue's metric of this service and this queue, beside SQS's of the queue.
fn of(d: &mut Deployment, service: &str, queue: &str) {
    waiting(d);
    let dimensions = [("Service", service), ("Queue", queue)];
    d.alarms().push(alarm("through-copies", "Requeue", "MessageAge", &dimensions));
}

pub(super) const ROWS: &[Row] = &[
    ("dead-letter-alarm", |d| d.alarms = refused(), Some(Unknown)),
    ("dead-letter-alarm", |d| drop(d.alarms().remove(DEAD)), Some(Warning)),
    ("dead-letter-alarm", |d| d.path().dead_letters = None, None),
    // A message that was received three times is not in this metric.
    ("dead-letter-alarm", |d| reads(d, OLDEST, "dead"), Some(Warning)),
    (
        "dead-letter-alarm",
        |d| {
            d.fifo();
            reads(d, OLDEST, "dead.fifo");
        },
        Some(Fine),
    ),
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
    ("dead-letter-alarm", |d| composite(d, "ALARM(dead-letters) AND ALARM(other)"), Some(Fine)),
    ("dead-letter-alarm", |d| composite(d, "ALARM(\"more-dead-letters\")"), Some(Warning)),
    (
        "dead-letter-alarm",
        |d| query(d, "SELECT MAX(ApproximateNumberOfMessagesVisible) FROM \"AWS/SQS\""),
        Some(Unknown),
    ),
    ("dead-letter-alarm", |d| query(d, "MAX(METRICS())"), Some(Warning)),
    // The check `direct-queue` reports the queue to which the function sends.
    (
        "dead-letter-alarm",
        |d| {
            d.direct(14 * DAY);
            d.path().direct.as_mut().unwrap().arn = arn("elsewhere");
        },
        Some(Fine),
    ),
    // Without a redrive policy, dead letters are in that queue alone.
    (
        "dead-letter-alarm",
        |d| {
            d.direct(14 * DAY);
            d.path().direct.as_mut().unwrap().arn = arn("elsewhere");
            d.path().dead_letters = None;
            d.queue().redrive = None;
        },
        Some(Warning),
    ),
    ("age-alarm", |d| d.alarms = refused(), Some(Unknown)),
    ("age-alarm", |d| drop(d.alarms().remove(AGED)), Some(Warning)),
    ("age-alarm", |d| of(d, "orders", "orders"), Some(Fine)),
    ("age-alarm", |d| of(d, "other", "orders"), Some(Warning)),
    ("age-alarm", |d| of(d, "orders", "other"), Some(Warning)),
    (
        "age-alarm",
        |d| {
            of(d, "shop", "orders");
            d.valid().config.metrics = Some(Metrics::of("shop"));
        },
        Some(Fine),
    ),
    // Requeue's metric has both dimensions.
    (
        "age-alarm",
        |d| {
            of(d, "orders", "orders");
            d.alarms()[2].metrics[0].dimensions.remove("Service");
        },
        Some(Warning),
    ),
    ("age-alarm", |d| d.valid().config.metrics = None, Some(Warning)),
    (
        "age-alarm",
        |d| only(d, "Requeue", "MessageAge", &[("Service", "orders"), ("Queue", "orders")]),
        Some(Warning),
    ),
    // With each copy, SQS counts the age anew. From its third receive on, it leaves out a message.
    ("age-alarm", waiting, Some(Warning)),
    (
        "age-alarm",
        |d| {
            waiting(d);
            d.valid().config.strategy = Strategy::Visibility;
        },
        Some(Warning),
    ),
    (
        "age-alarm",
        |d| {
            waiting(d);
            d.valid().config.mode = Mode::Report;
        },
        Some(Warning),
    ),
    (
        "age-alarm",
        |d| {
            d.fifo();
            only(d, "AWS/SQS", OLDEST, &[("QueueName", "orders.fifo")]);
        },
        Some(Fine),
    ),
    ("age-alarm", |d| d.settings = refused(), Some(Unknown)),
    // Each of both alarms has to notify.
    (
        "age-alarm",
        |d| {
            of(d, "orders", "orders");
            d.alarms()[2].actions.clear();
        },
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
fn each_alarm_on_the_age_says_what_it_cannot_see() {
    let none = "no alarm of this account and region reads ";
    let through = "MessageAge of orders with the Service orders, and SQS leaves out messages \
                   received three times or more, and counts the age anew for each copy";
    let oldest = "ApproximateAgeOfOldestMessage of orders";
    let blind = ", and MessageAge has no values while nothing receives messages";
    let table: [(Change, String); 6] = [
        (
            |d| d.alarms().clear(),
            format!("{none}{through}; {none}{oldest}{blind}; each needs its remedy"),
        ),
        (waiting, format!("{none}{through}")),
        (|d| of(d, "other", "orders"), format!("{none}{through}")),
        (
            |d| only(d, "Requeue", "MessageAge", &[("Service", "orders"), ("Queue", "orders")]),
            format!("{none}{oldest}{blind}"),
        ),
        (
            |d| {
                waiting(d);
                d.valid().config.metrics = None;
            },
            "REQUEUE_METRICS is off, so no metric counts the age of a message that is retried"
                .to_owned(),
        ),
        (
            |d| {
                d.alarms().clear();
                d.fifo();
            },
            format!("{none}{oldest}.fifo"),
        ),
    ];
    for (change, expected) in table {
        let mut deployment = good();
        change(&mut deployment);
        assert_eq!(found(&deployment, "age-alarm").unwrap().diagnosis.found, expected);
    }
}

#[test]
fn a_new_alarm_on_the_age_reads_the_metric_that_is_missing() {
    let oldest = "--metric-name ApproximateAgeOfOldestMessage --namespace AWS/SQS --dimensions \
                  Name=QueueName,Value=orders ";
    let fifo = "--metric-name ApproximateAgeOfOldestMessage --namespace AWS/SQS --dimensions \
                Name=QueueName,Value=orders.fifo ";
    let age = "--metric-name MessageAge --namespace Requeue --dimensions Name=Service,Value=shop \
               Name=Queue,Value=orders ";
    let table: [(Change, &[&str]); 3] = [
        (|d| d.alarms().clear(), &[age, oldest]),
        (waiting, &[age]),
        (
            |d| {
                d.alarms().clear();
                d.fifo();
            },
            &[fifo],
        ),
    ];
    for (change, expected) in table {
        let mut deployment = good();
        deployment.valid().config.metrics = Some(Metrics::of("shop"));
        change(&mut deployment);
        let remedies = found(&deployment, "age-alarm").unwrap().diagnosis.remedies;
        let template = "# or: template, parameters: `Monitoring=alarms`";
        let (templates, commands): (Vec<_>, Vec<_>) =
            remedies.into_iter().partition(|remedy| remedy == template);
        assert_eq!(templates.len(), 1);
        assert_eq!(commands.len(), expected.len(), "{commands:?}");
        for (command, expected) in commands.iter().zip(expected) {
            assert!(command.contains(expected), "{command:?}");
        }
    }
}

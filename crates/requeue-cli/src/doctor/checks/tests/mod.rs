//! Each check, made to speak and made to be silent, at its boundaries.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::queue::{CallError, QueueArn};
use requeue::{DeadLetterMode, Metrics, Mode, RecursiveLoop, Strategy, Wrap};

use super::super::diagnosis::Level::{self, Danger, Ok as Fine, Unknown, Warning};
use super::super::facts::*;
use super::*;

mod alarms;
mod dead_letters;
mod function;
mod mapping;
mod network;
mod order;
mod permissions;
mod queue;
mod remedies;
mod secrets;
mod table;
mod target;

const DAY: u64 = 86_400;

impl<T: AsRef<str> + ?Sized> PartialEq<T> for Remedy {
    fn eq(&self, text: &T) -> bool {
        **self == *text.as_ref()
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn arn(name: &str) -> QueueArn {
    format!("arn:aws:sqs:eu-west-1:123456789012:{name}").parse().unwrap()
}

fn refused<T>() -> Known<T> {
    Err(Unread {
        permission: "aws:Ask",
        resource: "it".to_owned(),
        error: CallError::responded(403, "AccessDenied"),
    })
}

fn allowed(actions: &[&str]) -> Access {
    actions.iter().map(|action| ((*action).to_owned(), AccessDecision::Allowed)).collect()
}

fn consumer(uuid: &str, function: &str) -> Mapping {
    Mapping {
        uuid: uuid.to_owned(),
        function: format!("arn:aws:lambda:eu-west-1:123456789012:function:{function}"),
        state: "Enabled".to_owned(),
        batch_size: 10,
        window: secs(20),
        reports_failures: true,
        maximum_concurrency: Some(10),
        maximum_pollers: None,
        filters: Ok(Vec::new()),
    }
}

fn queue(retention: u64) -> QueueAttributes {
    QueueAttributes {
        visibility: secs(380),
        delay: secs(0),
        retention: secs(retention),
        maximum_message_size: 1_048_576,
        redrive: None,
        redrive_allow: None,
        policy: None,
    }
}

#[test]
fn the_page_lists_every_check_in_the_order_of_the_output() {
    let page =
        std::fs::read_to_string(requeue_testkit::repository("docs/operate/doctor.md")).unwrap();
    let (_, section) = page.split_once("## The checks").unwrap();
    let (section, _) = section.split_once("## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let listed: Vec<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    assert_eq!(listed, all_ids().collect::<Vec<_>>());
}

/// The template's deployment, with its defaults.
pub(in super::super) fn good() -> Deployment {
    let mut config = requeue::Settings::default();
    config.dead_letter = Some(DeadLetterMode::Annotate);
    config.recursive_loop = RecursiveLoop::Allow;
    config.limits.timeout = secs(10);
    config.metrics = Some(Metrics::of("orders"));
    let redrive = RedriveSettings { target: arn("dead").to_string(), max_receive_count: 5 };
    let all = [&TAKING[..], &[SENDING]].concat();
    let source = Reached {
        arn: arn("orders"),
        queue: Ok(Some(QueueAttributes { redrive: Some(redrive), ..queue(7 * DAY) })),
        access: Ok(allowed(&all)),
        key: None,
        consumers: Ok(vec![consumer("4e1f", "orders")]),
    };
    let redrive_allow = Some(vec![source.arn.to_string()]);
    let dead_letters = QueueAttributes { redrive_allow, ..queue(14 * DAY) };
    let mapping = consumer("4e1f", "orders");
    let function = Function {
        name: "orders".to_owned(),
        qualifier: None,
        mapped: Vec::new(),
        timeout: secs(60),
        role: "arn:aws:iam::123456789012:role/service/orders-Role".to_owned(),
        state: Readiness {
            state: Some("Active".to_owned()),
            last_update_status: Some("Successful".to_owned()),
            ..Readiness::default()
        },
        start_failure: Ok(None),
        vpc: None,
        log_group: Ok(Some("STANDARD".to_owned())),
        log_access: Ok(allowed(&LOGGING)),
        unreserved_concurrency: Ok(1_000),
        logs: Logs {
            log_format: Some("JSON".to_owned()),
            application_log_level: Some("INFO".to_owned()),
            log_group: None,
        },
        recursive_loop: Ok(RecursiveLoop::Allow),
        reserved_concurrency: Ok(None),
        secrets: Vec::new(),
    };
    let dead_letters = Reached {
        arn: arn("dead"),
        queue: Ok(Some(dead_letters)),
        access: Ok(Access::new()),
        key: None,
        consumers: Ok(Vec::new()),
    };
    Deployment {
        region: "eu-west-1".to_owned(),
        function: Some(function),
        settings: Ok(FunctionSettings { config, variables: 4, ..FunctionSettings::default() }),
        paths: vec![QueuePath {
            mapping: Some(mapping),
            source,
            dead_letters: Some(dead_letters),
            direct: None,
        }],
        table: None,
        target: None,
        sends: Ok(None),
        unlisted: None,
        alarms: Ok(vec![
            alarm("dead-letters", "AWS/SQS", VISIBLE, &[("QueueName", "dead")]),
            age_alarm(),
        ]),
    }
}

/// As in the template, an alarm on both ages.
fn age_alarm() -> Alarm {
    let dimensions = [("Service", "orders"), ("Queue", "orders")];
    let mut age = alarm("age", "Requeue", "MessageAge", &dimensions);
    let waiting = alarm("", "AWS/SQS", OLDEST, &[("QueueName", "orders")]);
    age.metrics.extend(waiting.metrics);
    age
}

/// An alarm that notifies a topic.
fn alarm(name: &str, namespace: &str, metric: &str, dimensions: &[(&str, &str)]) -> Alarm {
    let dimensions =
        dimensions.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let metric = Metric {
        namespace: namespace.to_owned(),
        name: metric.to_owned(),
        dimensions: dimensions.collect(),
        account: None,
    };
    Alarm {
        name: name.to_owned(),
        is_enabled: true,
        actions: vec!["arn:aws:sns:eu-west-1:123456789012:on-call".to_owned()],
        metrics: vec![metric],
        ..Alarm::default()
    }
}

const VISIBLE: &str = "ApproximateNumberOfMessagesVisible";
const OLDEST: &str = "ApproximateAgeOfOldestMessage";

/// Parts of it, for a row to change.
trait Parts {
    fn function(&mut self) -> &mut Function;
    fn valid(&mut self) -> &mut FunctionSettings;
    fn path(&mut self) -> &mut QueuePath;
    fn mapping(&mut self) -> &mut Mapping;
    fn queue(&mut self) -> &mut QueueAttributes;
    fn dead_letters(&mut self) -> &mut QueueAttributes;
    fn own_policies(&mut self, queues: &[&str]);
    fn retries(&mut self, most: u32);
    fn receives(&mut self, most: u32);
    fn fifo(&mut self);
    fn direct(&mut self, retention: u64);
    fn decides(&mut self, action: &str, decision: AccessDecision);
    fn key(&mut self, name: &str, access: Known<Access>);
    fn key_state(&mut self, key: Known<Key>);
    fn key_policy(&mut self, decision: AccessDecision, policy: Known<String>);
    fn customer(&mut self) -> &mut CustomerKey;
    fn secret(&mut self, arn: &str, decision: Known<AccessDecision>);
    fn alarms(&mut self) -> &mut Vec<Alarm>;
}

impl Parts for Deployment {
    fn function(&mut self) -> &mut Function {
        self.function.as_mut().unwrap()
    }

    fn valid(&mut self) -> &mut FunctionSettings {
        self.settings.as_mut().unwrap()
    }

    fn path(&mut self) -> &mut QueuePath {
        &mut self.paths[0]
    }

    fn mapping(&mut self) -> &mut Mapping {
        self.path().mapping.as_mut().unwrap()
    }

    fn queue(&mut self) -> &mut QueueAttributes {
        self.path().source.queue.as_mut().unwrap().as_mut().unwrap()
    }

    fn dead_letters(&mut self) -> &mut QueueAttributes {
        self.path().dead_letters.as_mut().unwrap().queue.as_mut().unwrap().as_mut().unwrap()
    }

    fn own_policies(&mut self, queues: &[&str]) {
        let own = |queue: &&str| ((*queue).to_owned(), requeue::QueueSettings::default());
        self.valid().config.queues = queues.iter().map(own).collect();
    }

    fn retries(&mut self, most: u32) {
        self.valid().config.policy.max_retries = most;
    }

    fn receives(&mut self, most: u32) {
        self.queue().redrive.as_mut().unwrap().max_receive_count = most;
    }

    fn fifo(&mut self) {
        self.path().source.arn = arn("orders.fifo");
        self.path().dead_letters.as_mut().unwrap().arn = arn("dead.fifo");
        self.dead_letters().redrive_allow = None;
    }

    fn direct(&mut self, retention: u64) {
        let url = arn("dead").url().parse().unwrap();
        self.valid().config.dead_letter = Some(DeadLetterMode::Direct(url));
        let queue = Ok(Some(queue(retention)));
        self.path().direct = Some(Reached {
            arn: arn("dead"),
            queue,
            access: Ok(allowed(&[SENDING])),
            key: None,
            consumers: Ok(Vec::new()),
        });
    }

    fn decides(&mut self, action: &str, decision: AccessDecision) {
        let access = self.path().source.access.as_mut().unwrap();
        access.insert(action.to_owned(), decision);
    }

    fn key(&mut self, name: &str, access: Known<Access>) {
        self.path().source.key = Some(customer(name, access));
    }

    fn key_state(&mut self, key: Known<Key>) {
        self.key(ARN_OF_KEY, Ok(may(AccessDecision::Allowed, AccessDecision::Allowed)));
        self.customer().key = key;
    }

    fn key_policy(&mut self, decision: AccessDecision, policy: Known<String>) {
        self.key(ARN_OF_KEY, Ok(may(decision, AccessDecision::Allowed)));
        self.customer().policy = policy;
    }

    fn customer(&mut self) -> &mut CustomerKey {
        self.path().source.key.as_mut().unwrap()
    }

    fn secret(&mut self, arn: &str, decision: Known<AccessDecision>) {
        let key = Ok(None);
        let access = decision.map(|decision| [(reading(arn).to_owned(), decision)].into());
        self.function().secrets.push(Secret { arn: arn.to_owned(), access, key });
    }

    fn alarms(&mut self) -> &mut Vec<Alarm> {
        self.alarms.as_mut().unwrap()
    }
}

fn may(decrypt: AccessDecision, encrypt: AccessDecision) -> Access {
    KEY.into_iter().map(str::to_owned).zip([decrypt, encrypt]).collect()
}

/// A key that is enabled, and whose policy leaves the decision to IAM.
fn customer(name: &str, access: Known<Access>) -> CustomerKey {
    let key = Ok(Key { arn: ARN_OF_KEY.to_owned(), state: "Enabled".to_owned() });
    let (name, policy) = (name.to_owned(), Ok(delegating()));
    CustomerKey { name, access, key, policy }
}

/// The policy that KMS gives a key.
fn delegating() -> String {
    r#"{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
        "Action": "kms:*", "Resource": "*"}]}"#
        .to_owned()
}

type Change = fn(&mut Deployment);

/// The finding of a check after this change to the template's set-up; `None` if the check does not
/// apply.
type Row = (&'static str, fn(&mut Deployment), Option<Level>);

const ARN_OF_KEY: &str = "arn:aws:kms:eu-west-1:123456789012:key/1";

fn provisioned(d: &mut Deployment, pollers: u32) {
    d.mapping().maximum_concurrency = None;
    d.mapping().maximum_pollers = Some(pollers);
}

fn unbounded(d: &mut Deployment, reserved: u32) {
    d.mapping().maximum_concurrency = None;
    d.function().reserved_concurrency = Ok(Some(reserved));
}

/// Batches of `batch`, 10 at a time, of 10 s each, in a minute less the reserve of 5 s.
fn batches(d: &mut Deployment, batch: u32) {
    d.mapping().batch_size = batch;
}

fn fifo(d: &mut Deployment, batch: u32, receives: u32) {
    d.fifo();
    batches(d, batch);
    d.retries(8);
    d.receives(receives);
}

fn budget(d: &mut Deployment, secs_of_quota: u64) {
    d.valid().config.policy.quota.total_timeout = secs(secs_of_quota);
}

const TABLES: [&[Row]; 10] = [
    function::ROWS,
    network::ROWS,
    secrets::ROWS,
    table::ROWS,
    target::ROWS,
    mapping::ROWS,
    queue::ROWS,
    dead_letters::ROWS,
    permissions::ROWS,
    alarms::ROWS,
];

/// The deployment of each row, also without variables.
pub(in super::super) fn changed() -> impl Iterator<Item = Deployment> {
    let remedies = secrets::REMEDIES.iter().map(|(_, change, _)| *change);
    let rows = TABLES.iter().flat_map(|table| table.iter()).map(|(_, change, _)| *change);
    rows.chain(remedies).flat_map(|change| {
        let mut deployment = good();
        change(&mut deployment);
        let (mut without, mut aliased) = (deployment.clone(), deployment.clone());
        if let Ok(read) = &mut without.settings {
            read.variables = 0;
        }
        if let Some(function) = &mut aliased.function {
            function.qualifier = Some("live".to_owned());
        }
        [deployment, without, aliased]
    })
}

/// All remedies that a test meets are looked at.
fn found(deployment: &Deployment, id: &str) -> Option<Finding> {
    let findings = examine(deployment);
    for step in findings.iter().flat_map(|f| &f.diagnosis.remedies).flat_map(|one| one.lines()) {
        assert!(is_one_step(step), "{step}");
    }
    findings.into_iter().find(|finding| finding.id == id)
}

/// Whether a line is a command that a shell runs as it is, or has none. A comment may have one.
pub(in super::super) fn is_one_step(line: &str) -> bool {
    let line = line.trim_start_matches("# ");
    if !["aws ", "requeue ", "curl "].iter().any(|program| line.starts_with(program)) {
        return !line.contains(" --") && !line.contains("aws ");
    }
    let outside: String = line.split('\'').step_by(2).collect();
    let is_safe = |c: char| c.is_ascii_alphanumeric() || " -_./:=,{}()$@#+|>".contains(c);
    // A name that a shell would take for a variable.
    let has_variable = outside.replace("$(", "").contains('$');
    let has_words = [", ", ": ", " then "].iter().any(|words| outside.contains(words));
    outside.chars().all(is_safe) && !has_variable && !has_words
}

#[test]
fn a_command_has_no_words_on_its_line() {
    for (line, expected) in [
        ("aws sqs purge-queue --queue-url URL", true),
        ("aws iam put-role-policy --policy-document '{\"Action\": \"a, b; c\"}'", true),
        ("curl -i -d '{}' http://localhost/", true),
        ("aws kms get-key --key-id $(aws kms describe-key --key-id alias/a)", true),
        ("template, parameters: `SharedTable=dynamodb`", true),
        ("aws sqs purge-queue --queue-url URL, if it is empty", false),
        ("aws sqs purge-queue; then wait", false),
        ("aws lambda wait --function-name orders:$LATEST", false),
        ("requeue doctor … --policy -", false),
        ("in that account: aws cloudwatch describe-alarms", false),
        ("run doctor --strict again", false),
        ("# aws sqs purge-queue --queue-url URL", true),
        ("# or: aws sqs purge-queue --queue-url URL", false),
    ] {
        assert_eq!(is_one_step(line), expected, "{line}");
    }
}

#[test]
fn what_the_template_deploys_is_ok() {
    let findings = examine(&good());
    let worse: Vec<_> = findings.iter().filter(|finding| finding.diagnosis.level != Fine).collect();
    assert!(worse.is_empty(), "{worse:#?}");
    assert_eq!(findings.len(), 26);
}

#[test]
fn each_check_speaks_at_its_boundary_and_not_before() {
    for (at, (id, change, expected)) in TABLES.iter().flat_map(|table| table.iter()).enumerate() {
        let mut deployment = good();
        change(&mut deployment);
        let finding = found(&deployment, id);
        let level = finding.as_ref().map(|finding| finding.diagnosis.level);
        assert_eq!(level, *expected, "row {at}, {id}: {finding:#?}");
    }
}

#[test]
fn each_check_is_seen_to_speak_and_to_be_silent() {
    let rows = || TABLES.iter().flat_map(|table| table.iter());
    let ids = |worse: bool| -> BTreeSet<&str> {
        let is_worse = |level: &Option<Level>| level.is_some_and(|level| level > Fine);
        rows().filter(|(_, _, level)| is_worse(level) == worse).map(|(id, ..)| *id).collect()
    };
    let silent: BTreeSet<&str> =
        ids(false).into_iter().chain(examine(&good()).iter().map(|f| f.id)).collect();
    let all: BTreeSet<&str> = all_ids().collect();
    assert_eq!((&ids(true), &silent), (&all, &all));
}

#[test]
fn a_finding_that_is_not_ok_says_what_to_do() {
    for (id, change, _) in TABLES.iter().flat_map(|table| table.iter()) {
        let mut deployment = good();
        change(&mut deployment);
        let Some(finding) = found(&deployment, id) else { continue };
        let depends_on_another = finding.diagnosis.found.ends_with(", see settings");
        let has_remedy = !finding.diagnosis.remedies.is_empty();
        assert_eq!(
            has_remedy,
            finding.diagnosis.level > Fine && !depends_on_another,
            "{finding:#?}"
        );
    }
}

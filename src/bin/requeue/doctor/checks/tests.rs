//! Each check, made to speak and made to be silent, at its boundaries.

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::queue::QueueArn;
use requeue::{Config, DeadLetterMode, Mode, RecursiveLoop, Strategy, Wrap};

use super::super::facts::*;
use super::super::finding::Level::{self, Danger, Ok as Fine, Unknown, Warning};
use super::*;

const DAY: u64 = 86_400;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn arn(name: &str) -> QueueArn {
    format!("arn:aws:sqs:eu-west-1:123456789012:{name}").parse().unwrap()
}

fn refused<T>() -> Read<T> {
    Err(Unread { permission: "aws:Ask", resource: "it".to_owned(), code: "AccessDenied".to_owned(), is_answered: true })
}

fn allowed(actions: &[&str]) -> Option<Read<Access>> {
    Some(Ok(actions.iter().map(|action| ((*action).to_owned(), Decision::Allowed)).collect()))
}

fn queue(retention: u64) -> Queue {
    Queue {
        visibility: secs(380),
        retention: secs(retention),
        maximum_message_size: 1_048_576,
        redrive: None,
        redrive_allow: RedriveAllow::All,
        policy: None,
    }
}

/// What the template deploys, with its defaults.
fn good() -> Deployment {
    let config = Config {
        dead_letter: DeadLetterMode::Annotate,
        recursive_loop: RecursiveLoop::Allow,
        limits: requeue::Limits { timeout: secs(10), ..Default::default() },
        ..Config::default()
    };
    let redrive = Redrive { target: arn("dead").to_string(), max_receive_count: 5 };
    let all = [&TAKING[..], &[SENDING]].concat();
    let source = Reached {
        arn: arn("orders"),
        queue: Ok(Some(Queue { redrive: Some(redrive), ..queue(7 * DAY) })),
        access: allowed(&all),
        key: None,
    };
    let redrive_allow = RedriveAllow::Queues(vec![source.arn.to_string()]);
    let dead_letters = Queue { redrive_allow, ..queue(14 * DAY) };
    let mapping = Mapping {
        uuid: "4e1f".to_owned(),
        state: "Enabled".to_owned(),
        batch_size: 10,
        window: secs(20),
        reports_failures: true,
        maximum_concurrency: Some(10),
        maximum_pollers: None,
        filters: Ok(Vec::new()),
    };
    let function = Function {
        name: "orders".to_owned(),
        timeout: secs(60),
        role: "arn:aws:iam::123456789012:role/service/orders-Role".to_owned(),
        logs: Logs { is_json: true, level: Some("INFO".to_owned()), group: None },
        recursive_loop: Ok(RecursiveLoop::Allow),
        reserved_concurrency: Ok(None),
    };
    let dead_letters = Reached { arn: arn("dead"), queue: Ok(Some(dead_letters)), access: None, key: None };
    Deployment {
        region: "eu-west-1".to_owned(),
        function: Some(function),
        settings: Settings::Valid(Valid { config, variables: 4, ..Valid::default() }),
        places: vec![Place { mapping: Some(mapping), source, dead_letters: Some(dead_letters), direct: None }],
        unlisted: None,
    }
}

/// Parts of it, for a row to change.
trait Parts {
    fn function(&mut self) -> &mut Function;
    fn valid(&mut self) -> &mut Valid;
    fn place(&mut self) -> &mut Place;
    fn mapping(&mut self) -> &mut Mapping;
    fn queue(&mut self) -> &mut Queue;
    fn dead_letters(&mut self) -> &mut Queue;
    fn retries(&mut self, most: u32);
    fn receives(&mut self, most: u32);
    fn fifo(&mut self);
    fn direct(&mut self, retention: u64);
    fn decides(&mut self, action: &str, decision: Decision);
    fn key(&mut self, name: &str, access: Read<Access>);
}

impl Parts for Deployment {
    fn function(&mut self) -> &mut Function {
        self.function.as_mut().unwrap()
    }

    fn valid(&mut self) -> &mut Valid {
        let Settings::Valid(valid) = &mut self.settings else { unreachable!() };
        valid
    }

    fn place(&mut self) -> &mut Place {
        &mut self.places[0]
    }

    fn mapping(&mut self) -> &mut Mapping {
        self.place().mapping.as_mut().unwrap()
    }

    fn queue(&mut self) -> &mut Queue {
        self.place().source.queue.as_mut().unwrap().as_mut().unwrap()
    }

    fn dead_letters(&mut self) -> &mut Queue {
        self.place().dead_letters.as_mut().unwrap().queue.as_mut().unwrap().as_mut().unwrap()
    }

    fn retries(&mut self, most: u32) {
        self.valid().config.policy.max_retries = most;
    }

    fn receives(&mut self, most: u32) {
        self.queue().redrive.as_mut().unwrap().max_receive_count = most;
    }

    fn fifo(&mut self) {
        self.place().source.arn = arn("orders.fifo");
        self.place().dead_letters.as_mut().unwrap().arn = arn("dead.fifo");
    }

    fn direct(&mut self, retention: u64) {
        let url = arn("given-up").url().parse().unwrap();
        self.valid().config.dead_letter = DeadLetterMode::Direct(url);
        let queue = Ok(Some(queue(retention)));
        self.place().direct = Some(Reached { arn: arn("given-up"), queue, access: allowed(&[SENDING]), key: None });
    }

    fn decides(&mut self, action: &str, decision: Decision) {
        let access = self.place().source.access.as_mut().unwrap().as_mut().unwrap();
        access.insert(action.to_owned(), decision);
    }

    fn key(&mut self, name: &str, access: Read<Access>) {
        self.place().source.key = Some(Key::Customer { name: name.to_owned(), access });
    }
}

fn may(decrypt: Decision, encrypt: Decision) -> Read<Access> {
    Ok(KEY.into_iter().map(str::to_owned).zip([decrypt, encrypt]).collect())
}

/// What a check finds when this is done to the template's set-up; `None` when it has nothing to look at.
type Row = (&'static str, fn(&mut Deployment), Option<Level>);

const ARN_OF_KEY: &str = "arn:aws:kms:eu-west-1:123456789012:key/1";

const FUNCTION: &[Row] = &[
    ("settings", |_| {}, Some(Fine)),
    ("settings", |d| d.valid().variables = 0, Some(Fine)),
    ("settings", |d| d.settings = Settings::Invalid(vec!["REQUEUE_X is unknown".to_owned()]), Some(Danger)),
    ("settings", |d| d.settings = Settings::Unread(refused::<()>().unwrap_err()), Some(Unknown)),
    ("settings", |d| d.valid().policy_file = Some("policy.json".to_owned()), Some(Unknown)),
    ("mapping", |d| d.places.clear(), Some(Danger)),
    ("mapping", |d| d.unlisted = refused::<()>().err(), Some(Unknown)),
    ("mapping", |d| d.function = None, Some(Fine)),
    ("recursive-loop", |d| d.function().recursive_loop = Ok(RecursiveLoop::Terminate), Some(Danger)),
    ("recursive-loop", |d| d.function().recursive_loop = refused(), Some(Unknown)),
    ("recursive-loop", |d| d.valid().config.recursive_loop = RecursiveLoop::Terminate, Some(Warning)),
    ("recursive-loop", |d| terminated(d, 10), Some(Fine)),
    ("recursive-loop", |d| terminated(d, 11), Some(Danger)),
    (
        "recursive-loop",
        |d| {
            terminated(d, 50);
            d.valid().config.strategy = Strategy::Visibility;
        },
        Some(Fine),
    ),
    (
        "recursive-loop",
        |d| {
            d.function().recursive_loop = Ok(RecursiveLoop::Terminate);
            d.fifo();
        },
        Some(Fine),
    ),
    ("recursive-loop", |d| d.settings = Settings::Invalid(Vec::new()), Some(Unknown)),
    ("mode", |d| d.valid().config.mode = Mode::Report, Some(Warning)),
    ("reserved-concurrency", |d| d.function().reserved_concurrency = Ok(Some(0)), Some(Danger)),
    ("reserved-concurrency", |d| d.function().reserved_concurrency = Ok(Some(9)), Some(Warning)),
    ("reserved-concurrency", |d| d.function().reserved_concurrency = Ok(Some(10)), Some(Fine)),
    ("reserved-concurrency", |d| unbounded(d, 4), Some(Warning)),
    ("reserved-concurrency", |d| unbounded(d, 5), Some(Fine)),
    ("reserved-concurrency", |d| d.function().reserved_concurrency = refused(), Some(Unknown)),
    ("logs", |d| d.function().logs.is_json = false, Some(Warning)),
    ("logs", |d| d.function().logs.level = Some("WARN".to_owned()), Some(Warning)),
    ("logs", |d| d.function().logs.level = Some("DEBUG".to_owned()), Some(Fine)),
];

fn terminated(d: &mut Deployment, retries: u32) {
    d.function().recursive_loop = Ok(RecursiveLoop::Terminate);
    d.valid().config.recursive_loop = RecursiveLoop::Terminate;
    d.retries(retries);
}

fn unbounded(d: &mut Deployment, reserved: u32) {
    d.mapping().maximum_concurrency = None;
    d.function().reserved_concurrency = Ok(Some(reserved));
}

fn filtered(d: &mut Deployment, pattern: &str) {
    d.mapping().filters = Ok(vec![r#"{"body": {"kind": ["order"]}}"#.to_owned(), pattern.to_owned()]);
}

/// Batches of `batch`, 10 at a time, of 10 s each, in a minute less the reserve of 5 s.
fn batches(d: &mut Deployment, batch: u32) {
    d.mapping().batch_size = batch;
}

const MAPPING: &[Row] = &[
    ("mapping-enabled", |d| d.mapping().state = "Disabled".to_owned(), Some(Warning)),
    ("mapping-enabled", |d| d.mapping().state = "Disabling".to_owned(), Some(Warning)),
    ("mapping-enabled", |d| d.mapping().state = "Updating".to_owned(), Some(Fine)),
    ("partial-batch-responses", |d| d.mapping().reports_failures = false, Some(Danger)),
    ("filter-members", |d| filtered(d, r#"{"body": {"retryCount": [{"numeric": ["<", 3]}]}}"#), Some(Danger)),
    ("filter-members", |d| filtered(d, r#"{"body": {"$or": [{"retryState": [{"exists": false}]}]}}"#), Some(Danger)),
    ("filter-members", |d| filtered(d, r#"{"$or": [{"body": {"retryBody": ["x"]}}]}"#), Some(Danger)),
    ("filter-members", |d| filtered(d, r#"{"body": {"order": {"retryCount": [3]}}}"#), Some(Fine)),
    ("filter-members", |d| d.mapping().filters = refused(), Some(Unknown)),
    ("filter-wrapping", |d| filtered(d, r#"{"body": ["plain"]}"#), Some(Danger)),
    ("filter-wrapping", |d| filtered(d, r#"{"body": {"total": [1]}}"#), Some(Warning)),
    (
        "filter-wrapping",
        |d| {
            filtered(d, r#"{"body": ["plain"]}"#);
            d.valid().config.wrap = Wrap::Never;
        },
        Some(Fine),
    ),
    ("filter-wrapping", |d| d.mapping().filters = Ok(vec![r#"{"eventSource": ["aws:sqs"]}"#.to_owned()]), Some(Fine)),
    ("maximum-concurrency", |d| d.mapping().maximum_concurrency = None, Some(Warning)),
    ("maximum-concurrency", |d| unbounded(d, 7), Some(Fine)),
    (
        "maximum-concurrency",
        |d| {
            d.mapping().maximum_concurrency = None;
            d.mapping().maximum_pollers = Some(20);
        },
        Some(Fine),
    ),
    (
        "maximum-concurrency",
        |d| {
            d.mapping().maximum_concurrency = None;
            d.function().reserved_concurrency = refused();
        },
        Some(Unknown),
    ),
    ("batch-fits-timeout", |d| batches(d, 50), Some(Fine)),
    ("batch-fits-timeout", |d| batches(d, 51), Some(Warning)),
    ("batch-fits-timeout", |d| d.valid().config.limits.timeout = secs(55), Some(Fine)),
    ("batch-fits-timeout", |d| d.valid().config.limits.timeout = secs(56), Some(Warning)),
    // Of a short time-out a quarter is kept back.
    ("batch-fits-timeout", |d| d.function().timeout = secs(13), Some(Warning)),
    ("batch-fits-timeout", |d| d.function().timeout = secs(14), Some(Fine)),
    (
        "batch-fits-timeout",
        |d| {
            d.fifo();
            batches(d, 5);
        },
        Some(Fine),
    ),
    (
        "batch-fits-timeout",
        |d| {
            d.fifo();
            batches(d, 6);
        },
        Some(Warning),
    ),
];

fn worker(d: &mut Deployment, visibility: u64) {
    d.function = None;
    d.place().mapping = None;
    d.queue().visibility = secs(visibility);
}

fn in_place(d: &mut Deployment, receives: u32) {
    d.valid().config.strategy = Strategy::Visibility;
    d.retries(8);
    d.receives(receives);
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

const QUEUE_ROWS: &[Row] = &[
    ("queue", |d| d.place().source.queue = Ok(None), Some(Danger)),
    ("queue", |d| d.place().source.queue = refused(), Some(Unknown)),
    ("visibility-timeout", |d| d.place().source.queue = refused(), None),
    ("visibility-timeout", |d| d.queue().visibility = secs(59), Some(Danger)),
    ("visibility-timeout", |d| d.queue().visibility = secs(60), Some(Warning)),
    ("visibility-timeout", |d| d.queue().visibility = secs(379), Some(Warning)),
    ("visibility-timeout", |d| d.queue().visibility = secs(380), Some(Fine)),
    ("visibility-timeout", |d| worker(d, 0), Some(Danger)),
    ("visibility-timeout", |d| worker(d, 9), Some(Warning)),
    ("visibility-timeout", |d| worker(d, 10), Some(Fine)),
    ("retention", |d| d.queue().retention = secs(2 * DAY + 900), Some(Warning)),
    ("retention", |d| d.queue().retention = secs(2 * DAY + 901), Some(Fine)),
    ("retention", |d| d.queue().retention = secs(900), Some(Danger)),
    ("retention", |d| d.queue().retention = secs(901), Some(Warning)),
    ("retention", |d| budget(d, 14 * DAY), Some(Warning)),
    ("retention", |d| d.valid().policy_file = Some("policy.json".to_owned()), Some(Unknown)),
    (
        "retention",
        |d| {
            d.fifo();
            d.queue().retention = secs(2 * DAY + 900);
        },
        Some(Danger),
    ),
    ("message-size", |d| d.queue().maximum_message_size = 1_048_575, Some(Warning)),
    ("message-size", |_| {}, Some(Fine)),
    ("max-receive-count", |d| d.receives(1), Some(Danger)),
    ("max-receive-count", |d| d.receives(2), Some(Warning)),
    ("max-receive-count", |d| d.receives(4), Some(Warning)),
    ("max-receive-count", |d| d.receives(5), Some(Fine)),
    ("max-receive-count", |d| d.queue().redrive = None, None),
    ("receives-for-retries", |_| {}, None),
    ("receives-for-retries", |d| in_place(d, 8), Some(Warning)),
    ("receives-for-retries", |d| in_place(d, 9), Some(Fine)),
    ("receives-for-retries", |d| fifo(d, 1, 8), Some(Warning)),
    ("receives-for-retries", |d| fifo(d, 1, 9), Some(Fine)),
    ("receives-for-retries", |d| fifo(d, 2, 15), Some(Warning)),
    ("receives-for-retries", |d| fifo(d, 2, 16), Some(Fine)),
    ("fifo-strategy", |_| {}, None),
    ("fifo-strategy", |d| d.fifo(), Some(Fine)),
    (
        "fifo-strategy",
        |d| {
            d.fifo();
            d.valid().names_strategy = true;
        },
        Some(Warning),
    ),
];

const DEAD_LETTERS: &[Row] = &[
    ("redrive-policy", |d| d.queue().redrive = None, Some(Danger)),
    (
        "redrive-policy",
        |d| {
            d.queue().redrive = None;
            d.direct(14 * DAY);
        },
        Some(Warning),
    ),
    ("dead-letter-queue", |d| d.place().dead_letters.as_mut().unwrap().queue = Ok(None), Some(Danger)),
    ("dead-letter-queue", |d| d.place().dead_letters.as_mut().unwrap().queue = refused(), Some(Unknown)),
    ("redrive-allow-policy", |d| d.dead_letters().redrive_allow = RedriveAllow::None, Some(Danger)),
    (
        "redrive-allow-policy",
        |d| d.dead_letters().redrive_allow = RedriveAllow::Queues(vec![arn("order").to_string()]),
        Some(Danger),
    ),
    ("redrive-allow-policy", |d| d.dead_letters().redrive_allow = RedriveAllow::All, Some(Fine)),
    ("redrive-allow-policy", |d| d.place().dead_letters.as_mut().unwrap().queue = refused(), None),
    ("dead-letter-retention", |d| d.dead_letters().retention = secs(7 * DAY - 1), Some(Danger)),
    ("dead-letter-retention", |d| d.dead_letters().retention = secs(7 * DAY), Some(Warning)),
    ("dead-letter-retention", |d| d.dead_letters().retention = secs(14 * DAY - 1), Some(Warning)),
    (
        "dead-letter-retention",
        |d| {
            d.fifo();
            d.dead_letters().retention = secs(7 * DAY - 1);
        },
        Some(Warning),
    ),
    ("annotate-receives", |d| d.receives(10), Some(Fine)),
    ("annotate-receives", |d| d.receives(11), Some(Warning)),
    (
        "annotate-receives",
        |d| {
            d.valid().config.dead_letter = DeadLetterMode::Redrive;
            d.receives(11);
        },
        None,
    ),
    ("annotate-fifo", |d| d.fifo(), Some(Warning)),
    (
        "annotate-fifo",
        |d| {
            d.fifo();
            d.valid().config.dead_letter = DeadLetterMode::Redrive;
        },
        Some(Fine),
    ),
    ("direct-queue", |_| {}, None),
    ("direct-queue", |d| d.direct(14 * DAY), Some(Fine)),
    ("direct-queue", |d| d.direct(14 * DAY - 1), Some(Warning)),
    (
        "direct-queue",
        |d| {
            d.direct(14 * DAY);
            d.place().direct.as_mut().unwrap().queue = Ok(None);
        },
        Some(Danger),
    ),
    (
        "direct-queue",
        |d| {
            d.direct(14 * DAY);
            d.place().direct.as_mut().unwrap().queue = refused();
        },
        Some(Unknown),
    ),
    (
        "direct-queue",
        |d| {
            d.direct(14 * DAY);
            d.place().direct.as_mut().unwrap().arn = arn("orders");
        },
        Some(Danger),
    ),
    (
        "direct-queue",
        |d| {
            d.direct(14 * DAY);
            d.fifo();
        },
        Some(Warning),
    ),
];

fn granted(d: &mut Deployment, principal: &str) {
    d.decides(SENDING, Decision::NotAllowed);
    let statement = r#"{"Statement": {"Effect": "Allow", "Principal": PRINCIPAL, "Action": "sqs:*"}}"#;
    d.queue().policy = Some(statement.replace("PRINCIPAL", principal));
}

const PERMISSIONS: &[Row] = &[
    ("queue-permissions", |d| d.decides(SENDING, Decision::NotAllowed), Some(Danger)),
    ("queue-permissions", |d| d.decides("sqs:DeleteMessage", Decision::Denied), Some(Danger)),
    ("queue-permissions", |d| d.decides("sqs:ChangeMessageVisibility", Decision::NotAllowed), Some(Danger)),
    ("queue-permissions", |d| d.decides(SENDING, Decision::Depends), Some(Unknown)),
    ("queue-permissions", |d| d.place().source.access = Some(refused()), Some(Unknown)),
    ("queue-permissions", |d| granted(d, r#"{"AWS": "*"}"#), Some(Unknown)),
    ("queue-permissions", |d| granted(d, r#""*""#), Some(Unknown)),
    (
        "queue-permissions",
        |d| granted(d, r#"{"AWS": ["arn:aws:iam::123456789012:role/service/orders-Role"]}"#),
        Some(Unknown),
    ),
    ("queue-permissions", |d| granted(d, r#"{"AWS": "arn:aws:iam::123456789012:root"}"#), Some(Danger)),
    ("queue-permissions", |d| granted(d, r#"{"Service": "sns.amazonaws.com"}"#), Some(Danger)),
    (
        "queue-permissions",
        |d| {
            d.fifo();
            d.decides(SENDING, Decision::NotAllowed);
        },
        Some(Fine),
    ),
    ("direct-permissions", |_| {}, None),
    ("direct-permissions", |d| d.direct(14 * DAY), Some(Fine)),
    (
        "direct-permissions",
        |d| {
            d.direct(14 * DAY);
            d.place().direct.as_mut().unwrap().access = Some(Ok(Access::new()));
        },
        Some(Unknown),
    ),
    (
        "direct-permissions",
        |d| {
            d.direct(14 * DAY);
            let access = [(SENDING.to_owned(), Decision::NotAllowed)].into();
            d.place().direct.as_mut().unwrap().access = Some(Ok(access));
        },
        Some(Danger),
    ),
    ("key-permissions", |_| {}, None),
    ("key-permissions", |d| d.place().source.key = Some(Key::ManagedByAws), Some(Fine)),
    ("key-permissions", |d| d.key(ARN_OF_KEY, may(Decision::Allowed, Decision::Allowed)), Some(Fine)),
    ("key-permissions", |d| d.key(ARN_OF_KEY, may(Decision::Allowed, Decision::NotAllowed)), Some(Danger)),
    ("key-permissions", |d| d.key(ARN_OF_KEY, may(Decision::Denied, Decision::Allowed)), Some(Danger)),
    ("key-permissions", |d| d.key(ARN_OF_KEY, refused()), Some(Unknown)),
    ("key-permissions", |d| d.key("alias/orders", may(Decision::Allowed, Decision::NotAllowed)), Some(Unknown)),
    ("key-permissions", |d| d.key("alias/orders", may(Decision::Allowed, Decision::Allowed)), Some(Fine)),
    (
        "key-permissions",
        |d| {
            d.fifo();
            d.key(ARN_OF_KEY, may(Decision::Allowed, Decision::NotAllowed));
        },
        Some(Fine),
    ),
];

const TABLES: [&[Row]; 5] = [FUNCTION, MAPPING, QUEUE_ROWS, DEAD_LETTERS, PERMISSIONS];

fn found(deployment: &Deployment, id: &str) -> Option<Finding> {
    examine(deployment).into_iter().find(|finding| finding.id == id)
}

#[test]
fn what_the_template_deploys_is_ok() {
    let findings = examine(&good());
    let worse: Vec<_> = findings.iter().filter(|finding| finding.verdict.level != Fine).collect();
    assert!(worse.is_empty(), "{worse:#?}");
    assert_eq!(findings.len(), 23);
}

#[test]
fn each_check_speaks_at_its_boundary_and_not_before() {
    for (at, (id, change, expected)) in TABLES.iter().flat_map(|table| table.iter()).enumerate() {
        let mut deployment = good();
        change(&mut deployment);
        let finding = found(&deployment, id);
        let level = finding.as_ref().map(|finding| finding.verdict.level);
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
    let silent: BTreeSet<&str> = ids(false).into_iter().chain(examine(&good()).iter().map(|f| f.id)).collect();
    let tables = [function::CHECKS, mapping::CHECKS, super::queue::CHECKS, dead_letters::CHECKS, permissions::CHECKS];
    let all: BTreeSet<&str> = tables.iter().flat_map(|table| table.iter()).map(|check| check.id).collect();
    assert_eq!((&ids(true), &silent), (&all, &all));
}

#[test]
fn a_finding_that_is_not_ok_says_what_to_do() {
    for (id, change, _) in TABLES.iter().flat_map(|table| table.iter()) {
        let mut deployment = good();
        change(&mut deployment);
        let Some(finding) = found(&deployment, id) else { continue };
        let depends_on_another = finding.verdict.found.ends_with(", see settings");
        let has_remedy = !finding.verdict.remedies.is_empty();
        assert_eq!(has_remedy, finding.verdict.level > Fine && !depends_on_another, "{finding:#?}");
    }
}

#[test]
fn remedies_name_what_is_there() {
    let table: [(&str, fn(&mut Deployment), &[&str]); 9] = [
        (
            "partial-batch-responses",
            |d| d.mapping().reports_failures = false,
            &[
                "aws lambda update-event-source-mapping --region eu-west-1 --uuid 4e1f --function-response-types ReportBatchItemFailures",
                "template, in the event: `FunctionResponseTypes: [ReportBatchItemFailures]`",
            ],
        ),
        (
            "visibility-timeout",
            |d| d.queue().visibility = secs(30),
            &[
                "aws sqs set-queue-attributes --region eu-west-1 --queue-url https://sqs.eu-west-1.amazonaws.com/123456789012/orders \
               --attributes VisibilityTimeout=380",
            ],
        ),
        (
            "retention",
            |d| d.queue().retention = secs(DAY),
            &[
                "aws sqs set-queue-attributes --region eu-west-1 --queue-url https://sqs.eu-west-1.amazonaws.com/123456789012/orders \
               --attributes MessageRetentionPeriod=345600",
            ],
        ),
        (
            "retention",
            |d| budget(d, 14 * DAY),
            &["policy: a `totalTimeoutSeconds` below 1208700, since SQS keeps a message for 14 days at most"],
        ),
        (
            "redrive-policy",
            |d| {
                d.fifo();
                d.queue().redrive = None;
            },
            &["aws sqs create-queue --region eu-west-1 --queue-name orders-dead-letters.fifo --attributes \
               MessageRetentionPeriod=1209600,FifoQueue=true && aws sqs set-queue-attributes --region eu-west-1 --queue-url \
               https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo --attributes '{\"RedrivePolicy\":\"{\\\"deadLetterTargetArn\\\":\
               \\\"arn:aws:sqs:eu-west-1:123456789012:orders-dead-letters.fifo\\\",\\\"maxReceiveCount\\\":5}\"}'"],
        ),
        (
            "recursive-loop",
            |d| d.function().recursive_loop = Ok(RecursiveLoop::Terminate),
            &[
                "aws lambda put-function-recursion-config --region eu-west-1 --function-name orders --recursive-loop Allow",
                "template, property of the function: `RecursiveLoop: Allow`",
            ],
        ),
        (
            "queue-permissions",
            |d| d.decides(SENDING, Decision::NotAllowed),
            &["aws iam put-role-policy --role-name orders-Role --policy-name requeue-orders --policy-document \
               '{\"Statement\":[{\"Action\":[\"sqs:SendMessage\"],\"Effect\":\"Allow\",\"Resource\":\
               \"arn:aws:sqs:eu-west-1:123456789012:orders\"}],\"Version\":\"2012-10-17\"}'"],
        ),
        (
            "batch-fits-timeout",
            |d| batches(d, 100),
            &[
                "aws lambda update-event-source-mapping --region eu-west-1 --uuid 4e1f --batch-size 50",
                "template, below Environment: Variables: `REQUEUE_CONCURRENCY: 20`",
                "template, below Environment: Variables: `REQUEUE_TIMEOUT_SECONDS: 5`",
                "aws lambda update-function-configuration --region eu-west-1 --function-name orders --timeout 105, and then the queue's \
                 visibility timeout",
            ],
        ),
        (
            "receives-for-retries",
            |d| fifo(d, 10, 9),
            &[
                "aws sqs set-queue-attributes --region eu-west-1 --queue-url https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo \
                 --attributes '{\"RedrivePolicy\":\"{\\\"deadLetterTargetArn\\\":\\\"arn:aws:sqs:eu-west-1:123456789012:dead\\\",\
                 \\\"maxReceiveCount\\\":16}\"}'",
                "aws lambda update-event-source-mapping --region eu-west-1 --uuid 4e1f --batch-size 1",
                "policy: `\"maxRetries\": 4`",
            ],
        ),
    ];
    for (id, change, expected) in table {
        let mut deployment = good();
        change(&mut deployment);
        let finding = found(&deployment, id).unwrap();
        assert_eq!(finding.verdict.remedies, expected, "{id}");
    }
}

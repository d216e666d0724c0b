//! Findings that follow from the mistake of another one, and remedies that have to wait for it.

use super::*;

/// The findings with a problem, as the output has them.
fn problems(change: Change) -> Vec<Finding> {
    let mut deployment = good();
    change(&mut deployment);
    let mut findings = examine(&deployment);
    in_order(&deployment, &mut findings);
    findings.retain(|finding| finding.diagnosis.level > Fine);
    findings
}

/// The ids of the problems, each with the checks before it.
fn told(change: Change) -> Vec<(&'static str, String)> {
    let ids = problems(change).into_iter().map(|finding| {
        let first = finding.diagnosis.remedies.first().map(|remedy| remedy.to_string());
        let first = first.unwrap_or(finding.diagnosis.found);
        let waits =
            [" is fixed: ", " are fixed: "].into_iter().find_map(|are| first.split_once(are));
        (finding.id, waits.map_or_else(String::new, |(after, _)| after.to_owned()))
    });
    ids.collect()
}

fn gone<T>() -> Known<T> {
    let error = CallError::responded(404, "NoSuchEntity");
    Err(Unread { permission: "iam:SimulatePrincipalPolicy", resource: "role".to_owned(), error })
}

fn sends_elsewhere(d: &mut Deployment) {
    d.direct(14 * DAY);
    let direct = d.path().direct.as_mut().unwrap();
    direct.arn = arn("elsewhere");
    direct.access = Ok([(SENDING.to_owned(), AccessDecision::NotAllowed)].into());
}

fn without_alarms(d: &mut Deployment) {
    d.alarms().clear();
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn a_remedy_waits_for_the_mistake_on_which_it_depends() {
    const DEAD: &str = "after dead-letter-queue";
    let table: [(Change, &[(&str, &str)]); 22] = [
        // Which consumer is to stay decides what the queue needs.
        (
            |d| {
                d.path().source.consumers.as_mut().unwrap().push(consumer("5a", "audit"));
                d.receives(1);
            },
            &[("other-consumers", ""), ("max-receive-count", "after other-consumers")],
        ),
        // SQS would refuse the same target again.
        (
            |d| {
                d.path().dead_letters.as_mut().unwrap().queue = Ok(None);
                d.receives(1);
                d.valid().config.dead_letter = None;
                d.alarms().remove(0);
            },
            &[
                ("max-receive-count", DEAD),
                ("dead-letter-queue", ""),
                ("dead-letter-reasons", DEAD),
                ("dead-letter-alarm", DEAD),
            ],
        ),
        (
            |d| {
                d.queue().redrive = None;
                d.path().dead_letters = None;
                d.valid().config.dead_letter = None;
            },
            &[("redrive-policy", ""), ("dead-letter-reasons", "after redrive-policy")],
        ),
        // Nothing about a queue that is no dead-letter queue of this one.
        (
            |d| {
                d.path().dead_letters.as_mut().unwrap().arn = arn("dead.fifo");
                d.dead_letters().retention = secs(DAY);
                d.alarms().remove(0);
            },
            &[("redrive-policy", "")],
        ),
        (
            |d| {
                d.path().dead_letters.as_mut().unwrap().arn = arn("orders");
                let own = d.path().source.consumers.clone();
                d.path().dead_letters.as_mut().unwrap().consumers = own;
                d.alarms().remove(0);
            },
            &[("redrive-policy", "")],
        ),
        (
            |d| {
                let others = Ok(vec![consumer("5a", "payments")]);
                d.path().dead_letters.as_mut().unwrap().consumers = others;
                let target = arn("payments-dead").to_string();
                let redrive = RedriveSettings { target, max_receive_count: 5 };
                d.dead_letters().redrive = Some(redrive);
            },
            &[("redrive-policy", "")],
        ),
        (|d| d.path().dead_letters = None, &[("redrive-policy", "")]),
        // Nor about a queue to which the function sends by mistake.
        (sends_elsewhere, &[("direct-queue", "")]),
        (
            |d| {
                sends_elsewhere(d);
                d.path().direct.as_mut().unwrap().queue = Ok(None);
                without_alarms(d);
            },
            &[("direct-queue", ""), ("dead-letter-alarm", ""), ("age-alarm", "")],
        ),
        (
            |d| {
                d.path().source.queue = Ok(None);
                d.path().dead_letters = None;
                d.decides(SENDING, AccessDecision::NotAllowed);
                without_alarms(d);
            },
            &[("queue", ""), ("queue-permissions", "after queue"), ("age-alarm", "after queue")],
        ),
        (
            |d| {
                d.mapping().state = "Disabled".to_owned();
                d.mapping().reports_failures = false;
                let other = consumer("5a", "orders-v2");
                d.path().source.consumers.as_mut().unwrap().push(other);
            },
            &[("mapping-enabled", ""), ("partial-batch-responses", "")],
        ),
        // The policies of a role that does not exist.
        (
            |d| {
                d.function().log_access = gone();
                d.path().source.access = gone();
                d.key(ARN_OF_KEY, gone());
            },
            &[("function-state", "")],
        ),
        (
            |d| {
                d.key(ARN_OF_KEY, Ok(may(AccessDecision::NotAllowed, AccessDecision::NotAllowed)));
                d.customer().key = Ok(Key { arn: ARN_OF_KEY.to_owned(), state: NO_KEY.to_owned() });
            },
            &[("key-permissions", "")],
        ),
        (
            |d| {
                d.function().vpc = Some("vpc-1".to_owned());
                d.sends = Ok(Some(false));
                d.decides(SENDING, AccessDecision::NotAllowed);
            },
            &[("network", "after queue-permissions"), ("queue-permissions", "")],
        ),
        (
            |d| {
                d.paths.clear();
                d.own_policies(&["orders"]);
            },
            &[("mapping", "")],
        ),
        (
            |d| {
                target::invoked(d).reserved_concurrency = Ok(Some(0));
                d.mapping().maximum_concurrency = None;
            },
            &[("concurrency", ""), ("target-concurrency", "after concurrency")],
        ),
        // Each of these messages would be lost, or have no retry.
        (
            |d| {
                d.function().reserved_concurrency = Ok(Some(0));
                d.mapping().state = "Disabled".to_owned();
                d.mapping().reports_failures = false;
            },
            &[
                ("concurrency", "after partial-batch-responses"),
                ("mapping-enabled", "after concurrency and partial-batch-responses"),
                ("partial-batch-responses", ""),
            ],
        ),
        (
            |d| {
                d.function().reserved_concurrency = Ok(Some(0));
                d.mapping().state = "Disabled".to_owned();
                d.queue().visibility = secs(3);
                without_alarms(d);
            },
            &[
                ("concurrency", "after visibility-timeout"),
                ("mapping-enabled", "after concurrency and visibility-timeout"),
                ("visibility-timeout", ""),
                ("dead-letter-alarm", ""),
                ("age-alarm", ""),
            ],
        ),
        (
            |d| {
                d.mapping().state = "Disabled".to_owned();
                d.decides(SENDING, AccessDecision::NotAllowed);
            },
            &[("mapping-enabled", "after queue-permissions"), ("queue-permissions", "")],
        ),
        (
            |d| {
                target::invoked(d).properties = Ok(None);
                d.target.as_mut().unwrap().access =
                    Ok([(INVOKING[0].to_owned(), AccessDecision::NotAllowed)].into());
            },
            &[("target", "")],
        ),
        // The dead-letter queue has a mapping to the function itself.
        (
            |d| {
                let own = consumer("5a", "orders");
                let dead = d.path().dead_letters.as_mut().unwrap();
                dead.consumers = Ok(vec![own.clone()]);
                let mut path = d.paths[0].clone();
                path.source = path.dead_letters.take().unwrap();
                path.mapping = Some(Mapping { maximum_concurrency: None, ..own });
                d.paths.push(path);
            },
            &[("dead-letter-consumers", "")],
        ),
        // A worker's handler may run for as long as its target.
        (
            |d| {
                target::invoked(d).properties = Ok(None);
                d.function = None;
                d.path().mapping = None;
                d.queue().visibility = secs(5);
            },
            &[("target", ""), ("visibility-timeout", "after target")],
        ),
    ];
    for (at, (change, expected)) in table.into_iter().enumerate() {
        let expected: Vec<_> =
            expected.iter().map(|(id, first)| (*id, (*first).to_owned())).collect();
        assert_eq!(told(change), expected, "row {at}");
    }
}

#[test]
fn a_remedy_names_the_mistake_of_two_queues_once() {
    let found = problems(|d| {
        d.function().reserved_concurrency = Ok(Some(0));
        d.queue().visibility = secs(3);
        d.mapping().reports_failures = false;
        let mut other = d.paths[0].clone();
        other.source.arn = arn("others");
        d.paths.push(other);
    });
    let concurrency = found.iter().find(|finding| finding.id == "concurrency").unwrap();
    assert_eq!(
        concurrency.diagnosis.remedies,
        ["after partial-batch-responses and visibility-timeout and dead-letter-queue are fixed: \
          run requeue doctor again"]
    );
}

#[test]
fn nothing_is_checked_by_a_variable_that_is_not_valid() {
    for (problem, change, id) in [
        (
            "REQUEUE_DEAD_LETTER is `dierct`",
            (|d: &mut Deployment| d.valid().config.dead_letter = None) as Change,
            "dead-letter-reasons",
        ),
        ("REQUEUE_METRIKS is unknown; did you mean REQUEUE_METRICS?", without_alarms, "age-alarm"),
        ("REQUEUE_TIMEOUT_SECONDS is `1m`", |d| batches(d, 100), "batch-fits-timeout"),
        (
            "REQUEUE_TARGET_FUNCTION is `a b`",
            |d| d.queue().visibility = secs(60),
            "visibility-timeout",
        ),
    ] {
        for (problem, is_checked) in [(problem, false), ("REQUEUE_WRAP is `target`", true)] {
            let mut deployment = good();
            deployment.valid().problems.push(problem.to_owned());
            change(&mut deployment);
            let mut findings = examine(&deployment);
            in_order(&deployment, &mut findings);
            let finding = findings.into_iter().find(|finding| finding.id == id).unwrap();
            assert_eq!(finding.diagnosis.level == Warning, is_checked, "{finding:#?}");
            let see = finding.diagnosis.found.ends_with(" is not valid, see settings");
            assert_eq!(see, !is_checked, "{finding:#?}");
        }
    }
}

fn environments(d: &mut Deployment, most: u32) {
    if let Some(table) = &mut d.valid().config.shared_table {
        table.max_environments = most;
    }
}

fn per_call(d: &mut Deployment, most: u32) {
    if let Some(target) = &mut d.target {
        target.messages_per_call = most;
    }
}

/// A variable, its default, and other values.
type Values = (&'static str, Change, &'static [Change]);

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn a_check_names_each_variable_without_whose_value_it_may_warn_by_mistake() {
    let variables: [Values; 13] = [
        (
            "REQUEUE_STRATEGY",
            |d| d.valid().config.strategy = Strategy::Copy,
            &[|d| d.valid().config.strategy = Strategy::Visibility],
        ),
        (
            "REQUEUE_MODE",
            |d| d.valid().config.mode = Mode::Requeue,
            &[|d| d.valid().config.mode = Mode::Report],
        ),
        (
            "REQUEUE_DEAD_LETTER",
            |d| {
                d.valid().config.dead_letter = None;
                d.path().direct = None;
            },
            &[
                |d| d.valid().config.dead_letter = Some(DeadLetterMode::Redrive),
                |d| d.valid().config.dead_letter = Some(DeadLetterMode::Annotate),
                |d| d.direct(14 * DAY),
            ],
        ),
        (
            "REQUEUE_CONCURRENCY",
            |d| d.valid().config.limits.concurrency = 10,
            &[
                |d| d.valid().config.limits.concurrency = 1,
                |d| d.valid().config.limits.concurrency = 1_000,
            ],
        ),
        (
            "REQUEUE_TIMEOUT_SECONDS",
            |d| d.valid().config.limits.timeout = secs(30),
            &[|d| d.valid().config.limits.timeout = secs(1)],
        ),
        (
            "REQUEUE_RESERVE_SECONDS",
            |d| d.valid().config.limits.reserve = secs(5),
            &[|d| d.valid().config.limits.reserve = secs(0)],
        ),
        (
            "REQUEUE_WRAP",
            |d| d.valid().config.wrap = Wrap::WhenNeeded,
            &[|d| d.valid().config.wrap = Wrap::Never],
        ),
        (
            "REQUEUE_METRICS",
            |d| d.valid().config.metrics = Some(Metrics::of("orders")),
            &[|d| d.valid().config.metrics = None],
        ),
        (
            "REQUEUE_SERVICE",
            |d| d.valid().config.metrics = Some(Metrics::of("another")),
            &[|d| d.valid().config.metrics = Some(Metrics::of("orders"))],
        ),
        (
            "REQUEUE_RECURSIVE_LOOP",
            |d| d.valid().config.recursive_loop = RecursiveLoop::Terminate,
            &[|d| d.valid().config.recursive_loop = RecursiveLoop::Allow],
        ),
        (
            "REQUEUE_MAX_ENVIRONMENTS",
            |d| environments(d, 5),
            &[|d| environments(d, 1), |d| environments(d, 10)],
        ),
        (
            "REQUEUE_MESSAGES_PER_CALL",
            |d| per_call(d, 10),
            &[|d| per_call(d, 1), |d| per_call(d, 10_000)],
        ),
        (
            "REQUEUE_TARGET_FUNCTION",
            |d| d.target = None,
            &[|d| {
                target::invoked(d);
            }],
        ),
    ];
    let mut missing = BTreeSet::new();
    for (id, change, _) in TABLES.iter().flat_map(|table| table.iter()) {
        let level = |set: Change| {
            let mut deployment = good();
            change(&mut deployment);
            if deployment.settings.is_ok() && !deployment.paths.is_empty() {
                set(&mut deployment);
            }
            let config = deployment.settings.as_ref().ok().map(|read| &read.config);
            let check = OF_FUNCTION.iter().chain(OF_QUEUE).find(|check| check.id == *id).unwrap();
            let path = deployment.paths.first();
            let finding = check.finding(&Context { deployment: &deployment, path, config });
            finding.map_or(Fine, |finding| finding.diagnosis.level)
        };
        for (name, default, others) in variables {
            let is_false = level(default) > Unknown && others.iter().any(|set| level(*set) == Fine);
            missing.extend((is_false && !after(id).contains(&name)).then_some((*id, name)));
        }
    }
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn commands_in_any_order_leave_a_visibility_timeout_above_the_timeout() {
    let commands = |change: Change| -> Vec<String> {
        let findings = problems(change).into_iter().flat_map(|finding| finding.diagnosis.remedies);
        let lines: Vec<String> =
            findings.flat_map(|it| it.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        lines.into_iter().filter(|line| line.contains("imeout")).collect()
    };
    let is_last = |line: &String, end: &str| line.ends_with(end);
    for (change, timeout) in [
        ((|d: &mut Deployment| batches(d, 100)) as Change, 105),
        (|d| target::properties(d).timeout = secs(120), 130),
        (
            |d| {
                target::properties(d).timeout = secs(120);
                d.queue().visibility = secs(30);
            },
            130,
        ),
    ] {
        let commands = commands(change);
        let visible = format!("VisibilityTimeout={}", 6 * timeout + 20);
        let of = |end: &str| commands.iter().filter(|line| is_last(line, end)).count();
        let sets = commands.iter().filter(|line| line.contains("VisibilityTimeout=")).count();
        assert!(sets > 0 && sets == of(&visible), "{commands:#?}");
        let at = |end: &str| commands.iter().position(|line| is_last(line, end));
        let runs = format!("--timeout {timeout} --query LastUpdateStatus");
        assert!(at(&visible) < at(&runs), "{commands:#?}");
    }
}

#[test]
fn a_redrive_policy_names_the_queue_to_which_the_function_sends() {
    for (exists, creates) in [(true, false), (false, true)] {
        let mut deployment = good();
        deployment.direct(14 * DAY);
        deployment.queue().redrive = None;
        deployment.path().dead_letters = None;
        if !exists {
            deployment.path().direct.as_mut().unwrap().queue = Ok(None);
        }
        let remedy = &found(&deployment, "redrive-policy").unwrap().diagnosis.remedies[0];
        assert!(remedy.contains(&format!("\\\"{}\\\"", arn("dead"))), "{remedy:?}");
        assert_eq!(remedy.contains("create-queue"), creates, "{remedy:?}");
    }
}

#[test]
fn a_worker_gets_no_line_of_a_template() {
    for (id, change, _) in TABLES.iter().flat_map(|table| table.iter()) {
        let mut deployment = good();
        change(&mut deployment);
        deployment.function = None;
        deployment.paths.iter_mut().for_each(|path| path.mapping = None);
        for finding in examine(&deployment) {
            let of_template =
                finding.diagnosis.remedies.iter().find(|one| one.contains("template"));
            assert_eq!(of_template, None, "{id}: {finding:#?}");
        }
    }
    let mut deployment = good();
    deployment.fifo();
    deployment.function = None;
    assert_eq!(
        found(&deployment, "dead-letter-reasons").unwrap().diagnosis.remedies,
        ["set REQUEUE_DEAD_LETTER=direct and REQUEUE_DEAD_LETTER_QUEUE_URL=https://sqs.eu-west-1.\
          amazonaws.com/123456789012/dead.fifo in the environment of `requeue work`, with \
          sqs:SendMessage on it"]
    );
}

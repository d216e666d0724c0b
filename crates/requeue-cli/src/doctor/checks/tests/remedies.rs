//! Commands that can be copied.

use super::*;

/// The remedies after this change to the template's set-up.
pub(super) type Remedies = (&'static str, fn(&mut Deployment), &'static [&'static str]);

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn remedies_name_what_is_there() {
    let table: [Remedies; 16] = [
        (
            "settings",
            |d| d.valid().problems.push("REQUEUE_X is unknown".to_owned()),
            &[
                "correct them in the template, below Environment: Variables, and deploy; or by hand:\n\
                 install -m 600 /dev/null environment.json\n\
                 aws lambda get-function-configuration --region eu-west-1 --function-name orders \
                 --query '{Variables: Environment.Variables}' --output json > environment.json\n\
                 correct the file; if it has null, stop, since kms:Decrypt is missing\n\
                 # then replace all variables by those of the file:\n\
                 # aws lambda update-function-configuration --region eu-west-1 --function-name orders \
                 --environment file://environment.json --query LastUpdateStatus\n\
                 # rm environment.json",
            ],
        ),
        (
            "partial-batch-responses",
            |d| d.mapping().reports_failures = false,
            &[
                "aws lambda update-event-source-mapping --region eu-west-1 --uuid 4e1f \
                 --function-response-types ReportBatchItemFailures",
                "template, in the event: `FunctionResponseTypes: [ReportBatchItemFailures]`",
            ],
        ),
        (
            "visibility-timeout",
            |d| d.queue().visibility = secs(30),
            &["aws sqs set-queue-attributes --region eu-west-1 --queue-url \
               https://sqs.eu-west-1.amazonaws.com/123456789012/orders --attributes \
               VisibilityTimeout=380"],
        ),
        // A delay may be wanted.
        (
            "queue-delay",
            |d| d.queue().delay = secs(60),
            &[
                "ignore this check, if each message is to wait, as for the time to cancel an order",
                "aws sqs set-queue-attributes --region eu-west-1 --queue-url \
                 https://sqs.eu-west-1.amazonaws.com/123456789012/orders --attributes \
                 DelaySeconds=0",
            ],
        ),
        (
            "retention",
            |d| d.queue().retention = secs(DAY),
            &["aws sqs set-queue-attributes --region eu-west-1 --queue-url \
               https://sqs.eu-west-1.amazonaws.com/123456789012/orders --attributes \
               MessageRetentionPeriod=345600"],
        ),
        (
            "retention",
            |d| budget(d, 14 * DAY),
            &["policy: a `totalTimeoutSeconds` below 1208700, since SQS keeps a message for 14 \
               days at most"],
        ),
        (
            "redrive-policy",
            |d| {
                d.fifo();
                d.queue().redrive = None;
            },
            &[
                "aws sqs create-queue --region eu-west-1 --queue-name orders-dead-letters.fifo \
               --attributes MessageRetentionPeriod=1209600,FifoQueue=true\naws sqs \
               set-queue-attributes --region eu-west-1 --queue-url \
               https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo --attributes \
               '{\"RedrivePolicy\":\"{\\\"deadLetterTargetArn\\\":\\\"arn:aws:sqs:eu-west-1:123456789012:orders-dead-letters.fifo\\\",\\\"maxReceiveCount\\\":100}\"}'",
                "if another queue has its dead letters, name that one instead",
            ],
        ),
        (
            "target",
            |d| target::invoked(d).properties = Ok(None),
            &["aws lambda list-functions --region eu-west-1 --query 'Functions[].FunctionName' \
               --output text\ntemplate, below Environment: Variables: \
               `REQUEUE_TARGET_FUNCTION: NAME`"],
        ),
        (
            "recursive-loop",
            |d| d.function().recursive_loop = Ok(RecursiveLoop::Terminate),
            &[
                "aws lambda put-function-recursion-config --region eu-west-1 --function-name \
                 orders --recursive-loop Allow",
                "template, property of the function: `RecursiveLoop: Allow`",
            ],
        ),
        (
            "concurrency",
            |d| {
                d.function().reserved_concurrency = Ok(Some(4));
                d.function().unreserved_concurrency = Ok(106);
            },
            &[
                "aws lambda put-function-concurrency --region eu-west-1 --function-name orders \
                 --reserved-concurrent-executions 10",
                "template, parameters: `ReserveConcurrency=true`, which reserves as many as the \
                 mapping needs",
                "lower the MaximumConcurrency or the MaximumPollers of the mappings",
            ],
        ),
        (
            "concurrency",
            |d| d.function().unreserved_concurrency = Ok(7),
            &[
                "lower the MaximumConcurrency or the MaximumPollers of the mappings",
                "aws service-quotas request-service-quota-increase --region eu-west-1 \
                 --service-code lambda --quota-code L-B99A9384 --desired-value QUOTA\nQUOTA is at \
                 least the present one + 3",
            ],
        ),
        // AWS leaves 100 unreserved.
        (
            "concurrency",
            |d| {
                d.function().reserved_concurrency = Ok(Some(4));
                d.function().unreserved_concurrency = Ok(105);
            },
            &["lower the MaximumConcurrency or the MaximumPollers of the mappings"],
        ),
        (
            "key-permissions",
            |d| d.key_state(Ok(Key { arn: ARN_OF_KEY.to_owned(), state: NO_KEY.to_owned() })),
            &["aws sqs set-queue-attributes --region eu-west-1 --queue-url \
               https://sqs.eu-west-1.amazonaws.com/123456789012/orders --attributes \
               KmsMasterKeyId=KEY"],
        ),
        (
            "queue-permissions",
            |d| d.decides(SENDING, AccessDecision::NotAllowed),
            &[
                "aws iam put-role-policy --role-name orders-Role --policy-name requeue-orders-orders \
               --policy-document \
               '{\"Statement\":[{\"Action\":[\"sqs:ReceiveMessage\",\"sqs:GetQueueAttributes\",\"sqs:DeleteMessage\",\"sqs:ChangeMessageVisibility\",\"sqs:SendMessage\"],\"Effect\":\"Allow\",\"Resource\":\"arn:aws:sqs:eu-west-1:123456789012:orders\"}],\"Version\":\"2012-10-17\"}'",
            ],
        ),
        (
            "batch-fits-timeout",
            |d| batches(d, 100),
            &[
                "aws lambda update-event-source-mapping --region eu-west-1 --uuid 4e1f \
                 --batch-size 50",
                "template, below Environment: Variables: `REQUEUE_CONCURRENCY: 20`",
                "aws sqs set-queue-attributes --region eu-west-1 --queue-url \
                 https://sqs.eu-west-1.amazonaws.com/123456789012/orders --attributes \
                 VisibilityTimeout=650\naws lambda update-function-configuration --region \
                 eu-west-1 --function-name orders --timeout 105 --query LastUpdateStatus",
                "template, below Environment: Variables: `REQUEUE_TIMEOUT_SECONDS: 5`",
            ],
        ),
        (
            "max-receive-count",
            |d| fifo(d, 10, 9),
            &[
                "aws sqs set-queue-attributes --region eu-west-1 --queue-url \
                 https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo --attributes \
                 '{\"RedrivePolicy\":\"{\\\"deadLetterTargetArn\\\":\\\"arn:aws:sqs:eu-west-1:123456789012:dead\\\",\\\"maxReceiveCount\\\":16}\"}'",
                "aws lambda update-event-source-mapping --region eu-west-1 --uuid 4e1f \
                 --batch-size 1",
                "policy: `\"maxRetries\": 4`",
            ],
        ),
    ];
    for (id, change, expected) in table.iter().chain(secrets::REMEDIES) {
        let mut deployment = good();
        change(&mut deployment);
        let remedies = found(&deployment, id).unwrap().diagnosis.remedies;
        // A shell runs the first one only.
        let or = |(at, remedy): (usize, &&str)| match at {
            0 => (*remedy).to_owned(),
            _ if remedy.starts_with("aws ") => format!("# or:\n# {}", remedy.replace('\n', "\n# ")),
            _ => format!("# or: {remedy}"),
        };
        let expected: Vec<String> = expected.iter().enumerate().map(or).collect();
        assert_eq!(remedies, expected, "{id}");
    }
}

#[test]
fn a_shell_runs_one_remedy_of_several_and_stops_no_consumer() {
    let audited: Change =
        |d| d.path().source.consumers.as_mut().unwrap().push(consumer("5a", "audit"));
    for (change, id, commands) in [
        (audited, "other-consumers", 0),
        ((|d| batches(d, 100)) as Change, "batch-fits-timeout", 1),
        (|d| fifo(d, 10, 9), "max-receive-count", 1),
    ] {
        let mut deployment = good();
        change(&mut deployment);
        let remedies = found(&deployment, id).unwrap().diagnosis.remedies;
        let run = remedies.iter().flat_map(|it| it.lines()).filter(|line| line.starts_with("aws "));
        assert_eq!(run.count(), commands, "{remedies:#?}");
    }
    // Retries that need receives, and an annotated copy that has too many: SQS cannot have both.
    let mut deployment = good();
    deployment.valid().config.strategy = Strategy::Visibility;
    deployment.receives(20);
    deployment.retries(50);
    let remedies = found(&deployment, "max-receive-count").unwrap().diagnosis.remedies;
    let sets = |remedy: &&Remedy| remedy.starts_with("aws ");
    assert_eq!(remedies.iter().filter(sets).count(), 1, "{remedies:#?}");
}

#[test]
fn a_new_redrive_policy_has_as_many_receives_as_the_checks_demand() {
    let misfit: Change = |d| {
        d.fifo();
        d.queue().redrive.as_mut().unwrap().target = arn("dead").to_string();
        d.path().dead_letters.as_mut().unwrap().arn = arn("dead");
    };
    let table: [(Change, u32, u32, &str); 6] = [
        (|d| d.queue().redrive = None, 50, 0, "5"),
        (|d| d.fifo(), 8, 1, "16"),
        (misfit, 8, 5, "16"),
        (misfit, 8, 20, "20"),
        (misfit, 1_000, 20, "1000"),
        (|d| d.valid().config.strategy = Strategy::Visibility, 8, 1, "9"),
    ];
    for (change, most, present, expected) in table {
        let mut deployment = good();
        change(&mut deployment);
        deployment.retries(most);
        if let Some(redrive) = &mut deployment.queue().redrive {
            redrive.max_receive_count = present;
        }
        let is_set = |finding: &Finding| {
            let ids = ["redrive-policy", "max-receive-count"];
            ids.contains(&finding.id) && finding.diagnosis.level == Danger
        };
        let remedies = examine(&deployment).into_iter().find(is_set).unwrap().diagnosis.remedies;
        let set = format!("\\\"maxReceiveCount\\\":{expected}}}");
        assert!(remedies[0].contains(&set), "{expected}: {remedies:#?}");
    }
}

#[test]
fn a_command_that_may_undo_the_work_of_a_colleague_says_so() {
    let changes: [(&str, Change); 6] = [
        ("mapping-enabled", |d| d.mapping().state = "Disabled".to_owned()),
        ("mapping-enabled", |d| d.mapping().state = "Disabling".to_owned()),
        ("concurrency", |d| d.function().reserved_concurrency = Ok(Some(0))),
        ("target-concurrency", |d| target::invoked(d).reserved_concurrency = Ok(Some(0))),
        ("other-consumers", |d| {
            d.path().source.consumers.as_mut().unwrap().push(consumer("5a", "audit"));
        }),
        ("dead-letter-consumers", |d| {
            d.path().dead_letters.as_mut().unwrap().consumers = Ok(vec![consumer("5a", "audit")]);
        }),
    ];
    for (id, change) in changes {
        let mut deployment = good();
        change(&mut deployment);
        let found = found(&deployment, id).unwrap().diagnosis.found;
        assert!(found.ends_with(ASK), "{id}: {found}");
    }
}

//! Evidence and steps. The whole command runs in `tests/deployed_test.py`.

use std::time::Duration;

use requeue::queue::QueueArn;
use requeue::{DeadLetterMode, Mode};
use serde_json::json;

use super::super::checks::tests::good as deployment;
use super::super::diagnosis::Level;
use super::super::facts::{Deployment, FunctionSettings};
use super::plan::{MESSAGES, Plan, Target, target};
use super::step::{Evidence, Reason, Seen, steps};

/// A line as `src/telemetry` writes it.
fn line(class: Option<&str>, values: &[(&str, serde_json::Value)]) -> String {
    let mut line = json!({ "level": "WARN", "Service": "orders", "Queue": "q" });
    if let Some(class) = class {
        line["Class"] = class.into();
    }
    let metrics: Vec<_> = values.iter().map(|(name, _)| json!({ "Name": name })).collect();
    line["_aws"] = json!({ "CloudWatchMetrics": [{ "Namespace": "Requeue", "Metrics": metrics }] });
    for (name, value) in values {
        line[*name] = value.clone();
    }
    line.to_string()
}

#[test]
fn only_the_metrics_of_the_queue_are_evidence() {
    let mut evidence = Evidence::default();
    let count = |value: u64| [("Failed", json!(value))];
    for text in [
        line(None, &[("Completed", json!(2)), ("Failed", json!(3))]),
        line(Some("quota"), &[("Failed", json!(1)), ("RetryDelay", json!(70))]),
        line(Some("quota"), &[("Failed", json!(2)), ("RetryDelay", json!([5, 6]))]),
        line(None, &count(9)).replace("\"q\"", "\"other\""),
        line(None, &count(9)).replace("Requeue", "Other"),
        "START RequestId: 1".to_owned(),
        r#"{"level":"INFO","fields":{"message":"batch","completed":7}}"#.to_owned(),
    ] {
        evidence.add("q", &text);
    }
    assert_eq!(evidence.service.as_deref(), Some("orders"));
    assert_eq!((evidence.sum(None, "Completed"), evidence.sum(None, "Failed")), (2, 3));
    assert_eq!(evidence.sum(Some("quota"), "Failed"), 3);
    assert_eq!(evidence.values(Some("quota"), "RetryDelay"), [70, 5, 6]);
    assert_eq!(evidence.failures(), "quota 3");
}

#[test]
fn only_the_test_endpoint_is_a_target() {
    for (url, expected) in [
        ("https://a.on.aws/requeue-test-endpoint", Ok("https://a.on.aws/requeue-test-endpoint")),
        ("http://u:p@a:1/x/requeue-test-endpoint?k=s", Ok("http://a:1/x/requeue-test-endpoint")),
        (
            "https://u:secret@api.example.com/orders?k=secret",
            Err("orders posts to api.example.com, "),
        ),
        ("https://api.example.com/orders?/requeue-test-endpoint", Err("orders posts to ")),
        ("https://api.example.com/no-requeue-test-endpoint/x", Err("orders posts to ")),
        ("no url", Err("REQUEUE_TARGET_URL is no URL; deploy examples/test-endpoint")),
    ] {
        let valid =
            FunctionSettings { target_url: Some(url.to_owned()), ..FunctionSettings::default() };
        match (target("orders", &valid), expected) {
            (Ok(target), Ok(expected)) => assert_eq!(target, Target::Url(expected.to_owned())),
            (Err(error), Err(expected)) => {
                assert!(error.starts_with(expected) && !error.contains("secret"), "{error}");
            }
            (target, _) => panic!("{url}: {target:?}"),
        }
    }
    let none = target("orders", &FunctionSettings::default()).expect_err("no target");
    assert!(none.starts_with("orders has neither REQUEUE_TARGET_URL nor"), "{none}");
}

#[test]
fn only_the_test_function_is_a_target() {
    let arn = "arn:aws:lambda:eu-west-1:123456789012:function:requeue-test-endpoint:live";
    for (name, is_target) in [
        ("requeue-test-endpoint", true),
        ("requeue-test-endpoint:live", true),
        (arn, true),
        ("charge", false),
        ("charge:requeue-test-endpoint", false),
        ("no-requeue-test-endpoint", false),
        ("requeue-test-endpoint-2", false),
    ] {
        match target("orders", &invoking(name)) {
            Ok(found) => assert_eq!((found, is_target), (Target::Function(name.to_owned()), true)),
            Err(error) => {
                assert!(!is_target, "{error}");
                assert!(error.starts_with(&format!("orders invokes {name}, and only ")), "{error}");
            }
        }
    }
}

fn invoking(name: &str) -> FunctionSettings {
    FunctionSettings { target_function: Some((name.to_owned(), 10)), ..FunctionSettings::default() }
}

/// A function that posts to the test endpoint.
fn posting() -> Deployment {
    let mut deployment = deployment();
    valid(&mut deployment).target_url = Some("https://a/requeue-test-endpoint".to_owned());
    deployment
}

fn valid(deployment: &mut Deployment) -> &mut FunctionSettings {
    deployment.settings.as_mut().expect("they are known")
}

#[test]
fn a_deployment_that_would_lose_or_hide_messages_gets_none() {
    type Change = fn(&mut Deployment);
    let cases: [(Change, &str); 6] = [
        (|all| valid(all).config.metrics = None, "REQUEUE_METRICS is off"),
        (|all| valid(all).config.mode = Mode::Report, "REQUEUE_MODE is report"),
        (|all| all.paths.push(all.paths[0].clone()), "orders has 2 queues"),
        (|all| all.paths.clear(), "orders has 0 queues"),
        (
            |all| all.paths[0].mapping.as_mut().expect("one").filters = Ok(vec!["{}".to_owned()]),
            "Lambda would delete messages that the filter of orders's mapping does not match",
        ),
        (|all| all.paths[0].dead_letters = None, "the dead-letter queue of orders is not"),
    ];
    for (change, expected) in cases {
        let mut deployment = posting();
        change(&mut deployment);
        let refused = Plan::of(&deployment).expect_err(expected);
        assert!(refused.starts_with(expected), "{refused}");
    }
}

#[test]
fn the_dead_letter_is_expected_as_the_mode_sends_it() {
    for (mode, expected) in [
        (DeadLetterMode::Annotate, "in dead within a minute, with its reason"),
        // Five receives, each after the visibility timeout of 380 s.
        (DeadLetterMode::Redrive, "in dead after about 31 min 40 s, without a reason"),
    ] {
        let mut deployment = posting();
        valid(&mut deployment).config.dead_letter = Some(mode);
        let plan = Plan::of(&deployment).expect("a plan");
        assert_eq!(plan.arrival(), expected);
        assert_eq!(plan.function, "orders");
    }
}

fn plan(moved_after: Option<Duration>) -> Plan {
    let queue = |name: &str| -> QueueArn {
        format!("arn:aws:sqs:eu-west-1:123456789012:{name}").parse().expect("an ARN")
    };
    Plan {
        function: "orders".to_owned(),
        log_group: "/aws/lambda/orders".to_owned(),
        target: Target::Url("https://a/requeue-test-endpoint".to_owned()),
        source: queue("q"),
        dead_letters: queue("dead"),
        mode: "annotate",
        moved_after,
        is_redriven: false,
    }
}

/// All as it should be, with these further lines.
fn seen(lines: &[String]) -> Seen {
    let mut seen = Seen {
        completed_after: Some(Duration::from_secs(2)),
        arrived_after: Some(Duration::from_secs(14)),
        dead_letters: (0, 1),
        letter: Some(Ok(Some(Reason {
            class: "non-retryable".to_owned(),
            reason: "non-retryable".to_owned(),
        }))),
        received: Some(Ok(13.0)),
        waited: Duration::from_secs(80),
        is_whole: true,
        ..Seen::default()
    };
    for line in lines {
        seen.evidence.add("q", line);
    }
    seen
}

fn good() -> Vec<String> {
    let retried = |class, delay: u64| {
        let values = [("Failed", json!(1)), ("Requeued", json!(1)), ("RetryDelay", json!(delay))];
        line(Some(class), &values)
    };
    vec![
        line(None, &[("Completed", json!(4)), ("Failed", json!(4))]),
        retried("quota", 90),
        retried("temporary", 2),
        line(Some("non-retryable"), &[("Failed", json!(1)), ("DeadLettered", json!(1))]),
        retried("rate-limit", 6),
    ]
}

/// The steps that are not ok, with their levels.
fn bad(plan: &Plan, seen: &Seen) -> Vec<(&'static str, Level)> {
    let steps = steps(plan, seen);
    for step in &steps {
        assert_eq!(step.meaning.is_empty(), step.level == Level::Ok, "{step:?}");
    }
    let bad = steps.iter().filter(|step| step.level != Level::Ok);
    bad.map(|step| (step.id, step.level)).collect()
}

#[test]
fn all_is_ok_only_if_each_message_did_as_it_should() {
    let plan = plan(None);
    let all = seen(&good());
    assert!(all.is_complete(&plan));
    assert_eq!((steps(&plan, &all).len(), bad(&plan, &all)), (8, vec![]));
    for (place, message) in MESSAGES.iter().enumerate().skip(1) {
        let mut lines = good();
        lines.remove(place);
        let less = seen(&lines);
        assert!(!less.is_complete(&plan), "{message:?}");
        assert_eq!(bad(&plan, &less), [(message.id(), Level::Danger)]);
    }
}

#[test]
fn a_difference_has_a_level_and_a_meaning() {
    let plan = plan(None);
    let changed = |from: &str, to: &str| {
        seen(&good().iter().map(|line| line.replace(from, to)).collect::<Vec<_>>())
    };
    let retry_after = changed(r#""RetryDelay":6"#, r#""RetryDelay":1"#);
    assert_eq!(bad(&plan, &retry_after), [("rate-limit", Level::Warning)]);
    let fewer = changed(r#""Completed":4"#, r#""Completed":3"#);
    assert_eq!(bad(&plan, &fewer), [("completed", Level::Danger)]);
    let waiting = Seen { source: 1, ..fewer };
    assert_eq!(bad(&plan, &waiting), [("completed", Level::Unknown)]);
    let mut unconfirmed = good();
    unconfirmed.push(line(None, &[("SendUnconfirmed", json!(1))]));
    assert_eq!(bad(&plan, &seen(&unconfirmed)), [("completed", Level::Danger)]);
    let never = Seen { arrived_after: None, dead_letters: (0, 0), ..seen(&good()) };
    assert_eq!(bad(&plan, &never), [("dead-letter", Level::Danger)]);
    for (letter, level) in [
        (None, Level::Unknown),
        (Some(Err("AccessDenied".to_owned())), Level::Unknown),
        (Some(Ok(None)), Level::Warning),
    ] {
        let seen = Seen { letter, ..seen(&good()) };
        assert_eq!(bad(&plan, &seen), [("dead-letter", level)]);
    }
    for received in [None, Some(Err("AccessDenied".to_owned()))] {
        let seen = Seen { received, ..seen(&good()) };
        assert_eq!(bad(&plan, &seen), [("metrics", Level::Unknown)]);
    }
}

#[test]
fn a_message_that_sqs_moves_by_itself_is_not_awaited() {
    let plan = plan(Some(Duration::from_secs(1_900)));
    let seen = Seen { arrived_after: None, dead_letters: (0, 0), source: 1, ..seen(&good()) };
    assert!(seen.is_complete(&plan));
    assert_eq!(bad(&plan, &seen), [("dead-letter", Level::Unknown)]);
}

#[test]
fn without_a_success_nothing_else_is_shown() {
    let silent = Seen { waited: Duration::from_secs(120), ..Seen::default() };
    assert_eq!(bad(&plan(None), &silent), [("success", Level::Danger)]);
    let refused = line(Some("non-retryable"), &[("Failed", json!(1))]);
    let all = line(None, &[("Failed", json!(1)), ("DeadLettered", json!(1))]);
    let refused = Seen { is_whole: false, completed_after: None, ..seen(&[refused, all]) };
    assert!(refused.has_first() && refused.completed() == 0);
    let found = steps(&plan(None), &refused);
    assert_eq!((found.len(), found[0].level), (1, Level::Danger));
    assert_eq!(found[0].seen, "it failed: non-retryable 1");
    let deferred = [line(None, &[("Deferred", json!(2))]), line(None, &[("Deferred", json!(1))])];
    let deferred = Seen { is_whole: false, completed_after: None, ..seen(&deferred) };
    let found = steps(&plan(None), &deferred);
    assert_eq!(found[0].seen, "deferred 3 times within 80 s");
}

#[test]
fn a_difference_of_a_target_function_blames_no_proxy() {
    let target = Target::Function("requeue-test-endpoint".to_owned());
    let plan = Plan { target, ..plan(None) };
    let early: Vec<String> =
        good().iter().map(|line| line.replace(r#""RetryDelay":6"#, r#""RetryDelay":1"#)).collect();
    let refused = Seen {
        is_whole: false,
        completed_after: None,
        ..seen(&[line(Some("temporary"), &[("Failed", json!(1))])])
    };
    for seen in [seen(&early), seen(&good()[..1]), refused] {
        for step in steps(&plan, &seen).iter().filter(|step| step.level != Level::Ok) {
            let said = format!("{} {:?}", step.meaning, step.remedies);
            for word in ["proxy", "endpoint responds", "curl", "Retry-After"] {
                assert!(!said.contains(word), "{}: {said}", step.id);
            }
        }
    }
}

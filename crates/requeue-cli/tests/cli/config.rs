//! `requeue check --settings`: the effective settings and their origins.

use serde_json::{Value, json};

use crate::run::{requeue, requeue_with};

fn shown(variables: &[(&str, &str)], options: &[&str]) -> Value {
    let run = requeue_with(variables, &[&["check", "--settings", "--json"], options].concat());
    serde_json::from_str(&run.succeeded()).unwrap()
}

fn of<'v>(list: &'v Value, by: &str, name: &str) -> (&'v Value, &'v str) {
    let all = list.as_array().unwrap();
    let found = all.iter().find(|one| one[by] == name).unwrap_or_else(|| panic!("no {name}"));
    (&found["value"], found["origin"].as_str().unwrap())
}

#[test]
fn each_value_has_its_origin() {
    let shown = shown(
        &[
            ("REQUEUE_CONCURRENCY", "4"),
            ("REQUEUE_WRAP", ""),
            ("REQUEUE_POLICY", r#"{"preset": "critical", "maxRetries": 3}"#),
            ("REQUEUE_SIGNING_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
            ("REQUEUE_HEADERS", r#"{"Authorization": "Bearer s3cret"}"#),
            ("REQUEUE_TARGET_URL", "https://example.com/hooks/s3cret"),
        ],
        &[],
    );
    let setting = |name| of(&shown["settings"], "name", name);
    assert_eq!(setting("REQUEUE_CONCURRENCY"), (&json!("4"), "environment variable"));
    assert_eq!(setting("REQUEUE_WRAP"), (&json!("when-needed"), "default"));
    assert_eq!(setting("REQUEUE_HEADERS").0, "Authorization, values not shown");
    assert_eq!(setting("REQUEUE_TARGET_URL").0, "https://example.com/…");
    let policy = |key| of(&shown["policy"]["values"], "key", key);
    assert_eq!(policy("maxRetries"), (&json!(3), "policy document"));
    assert_eq!(policy("maxDeferrals"), (&json!(100), "preset critical"));
    assert_eq!(policy("errorConfigs.quota.maxDelay"), (&json!(10), "preset critical"));
    let text = shown.to_string();
    assert!(!text.contains("s3cret") && !text.contains("MfKQ9r8"), "{text}");
}

#[test]
fn the_values_of_a_queue_have_its_name() {
    let document =
        r#"{"maxRetries": 3, "queues": {"refunds": {"preset": "critical", "concurrency": 2}}}"#;
    let shown = shown(&[("REQUEUE_POLICY", document)], &[]);
    let policy = |key| of(&shown["policy"]["values"], "key", key);
    assert_eq!(policy("maxRetries"), (&json!(3), "policy document"));
    assert_eq!(policy("queues.refunds.maxRetries"), (&json!(5), "preset critical"));
    assert_eq!(policy("queues.refunds.concurrency"), (&json!(2), "policy document"));
    assert_eq!(policy("queues.refunds.rules").0, "those of all queues");
}

#[test]
fn an_option_names_another_policy_and_an_arn_is_not_fetched() {
    let arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/policy";
    let stored = [("REQUEUE_POLICY", arn)];
    let elsewhere = shown(&stored, &[]);
    assert_eq!(elsewhere["policy"]["document"], arn);
    assert!(elsewhere["policy"]["note"].as_str().unwrap().contains("--policy"));
    let named = shown(&stored, &["--policy", "high-volume"]);
    let policy = of(&named["policy"]["values"], "key", "maxRetries");
    assert_eq!(policy, (&json!(10), "preset high-volume"));
}

#[test]
fn a_wrong_setting_is_an_error() {
    let settings = ["check", "--settings"];
    let run = requeue_with(&[("REQUEUE_CONCURRENCY", "0")], &settings);
    assert!(run.status == 3 && run.stderr.contains("REQUEUE_CONCURRENCY is `0`"), "{run:?}");
    for command in [&settings[..], &["check"]] {
        let of = |policy| requeue(&[command, &["--policy", policy]].concat());
        let run = of(r#"{"maxRetries": -1}"#);
        assert!(run.status == 3 && run.stderr.contains("has 1 problem:\n"), "{run:?}");
        let run = of("none.json");
        assert!(run.status == 1 && run.stderr.contains("cannot be read"), "{run:?}");
    }
    let text = requeue(&settings).succeeded();
    assert!(text.contains("\npolicy: standard (default)\n"), "{text}");
    let run = requeue(&["check", "--function", "orders"]);
    assert!(run.status == 2 && run.stderr.contains("--settings"), "{run:?}");
}

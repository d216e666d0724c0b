//! Findings about a mapping.

use super::*;

fn filtered(d: &mut Deployment, pattern: &str) {
    d.mapping().filters =
        Ok(vec![r#"{"body": {"kind": ["order"]}}"#.to_owned(), pattern.to_owned()]);
}

pub(super) const ROWS: &[Row] = &[
    ("mapping-enabled", |d| d.mapping().state = "Disabled".to_owned(), Some(Danger)),
    ("mapping-enabled", |d| d.mapping().state = "Disabling".to_owned(), Some(Danger)),
    ("mapping-enabled", |d| d.mapping().state = "Updating".to_owned(), Some(Fine)),
    ("mapping-enabled", |d| d.mapping().state = "Deleting".to_owned(), Some(Warning)),
    ("mapping-enabled", |d| d.mapping().state = "unknown".to_owned(), Some(Unknown)),
    ("partial-batch-responses", |d| d.mapping().reports_failures = false, Some(Danger)),
    (
        "filters",
        |d| filtered(d, r#"{"body": {"retryCount": [{"numeric": ["<", 3]}]}}"#),
        Some(Danger),
    ),
    (
        "filters",
        |d| filtered(d, r#"{"body": {"$or": [{"retryState": [{"exists": false}]}]}}"#),
        Some(Danger),
    ),
    ("filters", |d| filtered(d, r#"{"$or": [{"body": {"retryBody": ["x"]}}]}"#), Some(Danger)),
    // A field of an order, not of Requeue.
    (
        "filters",
        |d| {
            filtered(d, r#"{"body": {"order": {"retryCount": [3]}}}"#);
            d.valid().config.wrap = Wrap::Never;
        },
        Some(Fine),
    ),
    ("filters", |d| d.mapping().filters = refused(), Some(Unknown)),
    (
        "filters",
        |d| {
            d.fifo();
            filtered(d, r#"{"body": {"retryCount": [3]}}"#);
        },
        Some(Fine),
    ),
    ("filters", |d| filtered(d, r#"{"body": ["plain"]}"#), Some(Danger)),
    ("filters", |d| filtered(d, r#"{"body": {"total": [1]}}"#), Some(Warning)),
    (
        "filters",
        |d| {
            filtered(d, r#"{"body": ["plain"]}"#);
            d.valid().config.wrap = Wrap::Never;
        },
        Some(Fine),
    ),
    (
        "filters",
        |d| d.mapping().filters = Ok(vec![r#"{"eventSource": ["aws:sqs"]}"#.to_owned()]),
        Some(Fine),
    ),
    (
        "filters",
        |d| {
            d.fifo();
            filtered(d, r#"{"body": ["plain"]}"#);
        },
        Some(Fine),
    ),
    (
        "other-consumers",
        |d| d.path().source.consumers.as_mut().unwrap().push(consumer("5a", "audit")),
        Some(Warning),
    ),
    (
        "other-consumers",
        |d| {
            let other = Mapping { state: "Disabled".to_owned(), ..consumer("5a", "audit") };
            d.path().source.consumers.as_mut().unwrap().push(other);
        },
        Some(Fine),
    ),
    ("other-consumers", |d| d.path().source.consumers = refused(), Some(Unknown)),
    ("concurrency", |d| d.mapping().maximum_concurrency = None, Some(Warning)),
    ("concurrency", |d| unbounded(d, 7), Some(Fine)),
    (
        "concurrency",
        |d| {
            provisioned(d, 20);
            d.function().unreserved_concurrency = Ok(200);
        },
        Some(Fine),
    ),
    (
        "concurrency",
        |d| {
            provisioned(d, 20);
            d.function().unreserved_concurrency = Ok(199);
        },
        Some(Warning),
    ),
    (
        "concurrency",
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
    // The reserve is a quarter of a short timeout.
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

#[test]
fn a_shell_changes_no_function_that_may_not_be_of_requeue() {
    let ask = "# if orders uses Requeue:\n# aws ";
    for (id, change) in [
        ("mapping-enabled", (|d| d.mapping().state = "Disabled".to_owned()) as Change),
        ("recursive-loop", |d| {
            d.function().recursive_loop = Ok(RecursiveLoop::Terminate);
            d.valid().config.recursive_loop = RecursiveLoop::Terminate;
        }),
        ("visibility-timeout", |d| d.queue().visibility = secs(60)),
    ] {
        for variables in [0, 1] {
            let mut deployment = good();
            deployment.valid().variables = variables;
            change(&mut deployment);
            let mut findings = examine(&deployment);
            in_order(&deployment, &mut findings);
            let finding = findings.into_iter().find(|finding| finding.id == id);
            let remedy = finding.expect(id).diagnosis.remedies.swap_remove(0);
            assert_eq!(remedy.starts_with(ask), variables == 0, "{id}: {}", &*remedy);
        }
    }
}

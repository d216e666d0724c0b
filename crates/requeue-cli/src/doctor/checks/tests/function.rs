//! Findings about the function itself.

use requeue::policy::{FairShares, MessageKey};

use super::*;

/// The function's state, and that of its last update.
fn state(d: &mut Deployment, state: &str, last_update: &str) {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (state, last_update_status) = (given(state), given(last_update));
    d.function().state = Readiness { state, last_update_status, ..Readiness::default() };
}

fn may_log(d: &mut Deployment, action: &str, decision: AccessDecision) {
    d.function().log_access.as_mut().unwrap().insert(action.to_owned(), decision);
}

fn class(d: &mut Deployment, class: &str) {
    d.function().log_group = Ok(Some(class.to_owned()));
}

pub(super) const ROWS: &[Row] = &[
    ("function-state", |d| state(d, "Failed", "Successful"), Some(Danger)),
    ("function-state", |d| state(d, "Pending", "Successful"), Some(Warning)),
    ("function-state", |d| state(d, "Inactive", "Successful"), Some(Warning)),
    ("function-state", |d| state(d, "Active", "Failed"), Some(Warning)),
    ("function-state", |d| state(d, "Active", "InProgress"), Some(Unknown)),
    ("function-state", |d| state(d, "Active", ""), Some(Unknown)),
    ("function-state", |d| state(d, "", "Successful"), Some(Unknown)),
    ("function-state", |d| state(d, "Deactivating", "Successful"), Some(Unknown)),
    ("concurrency", |d| d.function().unreserved_concurrency = Ok(10), Some(Fine)),
    ("concurrency", |d| d.function().unreserved_concurrency = Ok(9), Some(Warning)),
    ("concurrency", |d| d.function().unreserved_concurrency = refused(), Some(Unknown)),
    (
        "concurrency",
        |d| {
            d.function().unreserved_concurrency = Ok(9);
            d.function().reserved_concurrency = Ok(Some(10));
        },
        Some(Fine),
    ),
    (
        "concurrency",
        |d| {
            d.mapping().maximum_concurrency = None;
            d.function().unreserved_concurrency = Ok(4);
        },
        Some(Warning),
    ),
    (
        "log-permissions",
        |d| may_log(d, "logs:PutLogEvents", AccessDecision::NotAllowed),
        Some(Warning),
    ),
    (
        "log-permissions",
        |d| may_log(d, "logs:CreateLogStream", AccessDecision::Denied),
        Some(Warning),
    ),
    (
        "log-permissions",
        |d| may_log(d, "logs:PutLogEvents", AccessDecision::Depends),
        Some(Unknown),
    ),
    (
        "log-permissions",
        |d| may_log(d, "logs:CreateLogGroup", AccessDecision::NotAllowed),
        Some(Fine),
    ),
    (
        "log-permissions",
        |d| {
            may_log(d, "logs:CreateLogGroup", AccessDecision::NotAllowed);
            d.function().log_group = Ok(None);
        },
        Some(Warning),
    ),
    ("log-permissions", |d| d.function().log_group = Ok(None), Some(Fine)),
    ("log-permissions", |d| d.function().log_group = refused(), Some(Unknown)),
    ("log-permissions", |d| d.function().log_access = refused(), Some(Unknown)),
    ("settings", |_| {}, Some(Fine)),
    ("settings", |d| d.valid().variables = 0, Some(Fine)),
    // A lever of an emergency that somebody forgot.
    ("settings", |d| d.valid().config.mode = Mode::Report, Some(Warning)),
    ("settings", |d| d.own_policies(&["orders"]), Some(Fine)),
    ("settings", |d| d.own_policies(&["orders", "refundz"]), Some(Warning)),
    ("settings", |d| d.valid().problems.push("REQUEUE_X is unknown".to_owned()), Some(Danger)),
    ("settings", |d| d.settings = refused(), Some(Unknown)),
    ("settings", |d| d.valid().policy_elsewhere = Some("policy.json".to_owned()), Some(Unknown)),
    (
        "settings",
        |d| {
            let arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/policy:3";
            d.valid().policy_elsewhere = Some(arn.to_owned());
        },
        Some(Unknown),
    ),
    ("settings", |d| d.function().start_failure = refused(), Some(Unknown)),
    ("mapping", |d| d.paths.clear(), Some(Danger)),
    ("mapping", |d| d.function().mapped.push("orders:live".to_owned()), Some(Unknown)),
    (
        "mapping",
        |d| {
            d.paths.clear();
            d.function().mapped.push("orders:live".to_owned());
        },
        Some(Unknown),
    ),
    (
        "mapping",
        |d| {
            d.function = None;
            d.path().source.consumers = refused();
        },
        Some(Unknown),
    ),
    ("mapping", |d| d.function = None, Some(Fine)),
    (
        "recursive-loop",
        |d| d.function().recursive_loop = Ok(RecursiveLoop::Terminate),
        Some(Danger),
    ),
    ("recursive-loop", |d| d.function().recursive_loop = refused(), Some(Unknown)),
    (
        "recursive-loop",
        |d| d.valid().config.recursive_loop = RecursiveLoop::Terminate,
        Some(Warning),
    ),
    ("recursive-loop", |d| terminated(d, 10), Some(Fine)),
    (
        "recursive-loop",
        |d| {
            terminated(d, 10);
            fair(d);
        },
        Some(Danger),
    ),
    (
        "recursive-loop",
        |d| {
            terminated(d, 10);
            fair(d);
            d.valid().config.strategy = Strategy::Visibility;
        },
        Some(Fine),
    ),
    // The function does not start, whatever its queues are.
    (
        "recursive-loop",
        |d| {
            terminated(d, 10);
            fair(d);
            d.fifo();
        },
        Some(Danger),
    ),
    ("recursive-loop", fair, Some(Fine)),
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
    ("recursive-loop", |d| d.settings = refused(), Some(Unknown)),
    ("concurrency", |d| d.function().reserved_concurrency = Ok(Some(0)), Some(Danger)),
    ("concurrency", |d| d.function().reserved_concurrency = Ok(Some(9)), Some(Warning)),
    ("concurrency", |d| d.function().reserved_concurrency = Ok(Some(10)), Some(Fine)),
    ("concurrency", |d| unbounded(d, 4), Some(Warning)),
    ("concurrency", |d| unbounded(d, 5), Some(Fine)),
    ("concurrency", |d| d.function().reserved_concurrency = refused(), Some(Unknown)),
    ("logs", |d| d.function().logs.log_format = None, Some(Warning)),
    ("logs", |d| d.function().logs.application_log_level = Some("WARN".to_owned()), Some(Warning)),
    ("logs", |d| d.function().logs.application_log_level = Some("DEBUG".to_owned()), Some(Fine)),
    ("logs", |d| class(d, "INFREQUENT_ACCESS"), Some(Warning)),
    ("logs", |d| class(d, "DELIVERY"), Some(Warning)),
    // Lambda makes a group of the class STANDARD.
    ("logs", |d| d.function().log_group = Ok(None), Some(Fine)),
    ("logs", |d| d.function().log_group = refused(), Some(Unknown)),
    (
        "logs",
        |d| {
            d.function().log_group = refused();
            d.function().logs.log_format = None;
        },
        Some(Warning),
    ),
];

fn fair(d: &mut Deployment) {
    d.valid().config.policy.fair_shares = Some(FairShares::by(MessageKey::MessageGroupId));
}

fn terminated(d: &mut Deployment, retries: u32) {
    d.function().recursive_loop = Ok(RecursiveLoop::Terminate);
    d.valid().config.recursive_loop = RecursiveLoop::Terminate;
    d.retries(retries);
}

#[test]
fn a_log_group_without_metrics_is_replaced_by_another() {
    let mut deployment = good();
    class(&mut deployment, "INFREQUENT_ACCESS");
    let diagnosis = found(&deployment, "logs").unwrap().diagnosis;
    assert_eq!(
        diagnosis.found,
        "the log group /aws/lambda/orders has the class INFREQUENT_ACCESS: CloudWatch reads no \
         metrics from its lines, and alarms on Requeue's metrics stay silent"
    );
    assert_eq!(
        diagnosis.remedies[1],
        "# or:\n# if the role may write to /aws/lambda/orders-standard:\n\
         # aws logs create-log-group --region eu-west-1 --log-group-name \
         /aws/lambda/orders-standard\n# aws lambda update-function-configuration --region \
         eu-west-1 --function-name orders --logging-config \
         LogFormat=JSON,ApplicationLogLevel=INFO,SystemLogLevel=WARN,LogGroup=/aws/lambda/orders-standard --query LastUpdateStatus"
    );
}

#[test]
fn a_changed_configuration_takes_effect_in_a_new_version() {
    let publish = "aws lambda publish-version --region eu-west-1 --function-name orders --query \
                   Version --output text";
    let alias = format!(
        "# this releases all other changes of $LATEST, too:\n# aws lambda update-alias --region \
         eu-west-1 --function-name orders --name live --function-version $({publish})"
    );
    for (qualifier, end) in
        [("live", alias), ("3", format!("{publish}\npoint what invokes 3 at the new version"))]
    {
        let mut deployment = good();
        deployment.function().qualifier = Some(qualifier.to_owned());
        deployment.function().logs.log_format = None;
        let remedies = found(&deployment, "logs").unwrap().diagnosis.remedies;
        assert!(remedies[0].ends_with(&format!("\n{end}")), "{remedies:?}");
    }
}

#[test]
fn a_start_that_failed_is_a_danger_before_everything_that_invokes_the_function() {
    let mut deployment = good();
    let error = "REQUEUE_TARGET_URL is missing: set it".to_owned();
    deployment.function().start_failure = Ok(Some((std::time::UNIX_EPOCH + secs(3_660), error)));
    deployment.mapping().state = "Disabled".to_owned();
    let mut findings = examine(&deployment);
    in_order(&deployment, &mut findings);
    let of = |id| findings.iter().find(|finding| finding.id == id).unwrap().diagnosis.clone();
    assert_eq!(
        of("settings").found,
        "the function could not start at 01:01:00 UTC: REQUEUE_TARGET_URL is missing: set it"
    );
    assert_eq!(
        of("mapping-enabled").remedies,
        ["after settings is fixed: run requeue doctor again"]
    );
    // With an invalid setting, the line has the same text.
    deployment.valid().problems.push("REQUEUE_X is unknown".to_owned());
    let found = found(&deployment, "settings").unwrap().diagnosis.found;
    assert!(!found.contains("could not start"), "{found}");
}

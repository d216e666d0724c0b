//! Findings about the function that the function invokes.

use super::super::target::INVOKING;
use super::*;

/// A target of 45 s, and the template's minute for a batch of ten in one call.
pub(super) fn invoked(d: &mut Deployment) -> &mut InvokedFunction {
    let state = Readiness {
        state: Some("Active".to_owned()),
        last_update_status: Some("Successful".to_owned()),
        ..Readiness::default()
    };
    d.target.insert(InvokedFunction {
        name: "charge:live".to_owned(),
        arn: "arn:aws:lambda:eu-west-1:123456789012:function:charge:live".to_owned(),
        messages_per_call: 10,
        properties: Ok(Some(TargetProperties {
            state,
            timeout: secs(45),
            isolates_tenants: false,
            is_durable: false,
        })),
        reserved_concurrency: Ok(None),
        access: Ok(allowed(&INVOKING)),
    })
}

fn as_made(d: &mut Deployment) {
    invoked(d);
}

pub(super) fn properties(d: &mut Deployment) -> &mut TargetProperties {
    invoked(d).properties.as_mut().unwrap().as_mut().unwrap()
}

fn state(d: &mut Deployment, state: &str, update: &str) {
    let readiness = &mut properties(d).state;
    readiness.state = Some(state.to_owned());
    readiness.last_update_status = Some(update.to_owned());
}

fn decided(d: &mut Deployment, decision: AccessDecision) {
    let access = invoked(d).access.as_mut().unwrap();
    access.insert(INVOKING[0].to_owned(), decision);
}

fn also_invokes(d: &mut Deployment, function: &str, state: &str) {
    invoked(d);
    let other = Mapping { state: state.to_owned(), ..consumer("9c3a", function) };
    d.path().source.consumers.as_mut().unwrap().push(other);
}

pub(super) const ROWS: &[Row] = &[
    ("target", |_| {}, None),
    ("target", as_made, Some(Fine)),
    ("target", |d| invoked(d).properties = Ok(None), Some(Danger)),
    ("target", |d| invoked(d).properties = refused(), Some(Unknown)),
    ("target", |d| invoked(d).name = "orders".to_owned(), Some(Danger)),
    // An alias of another function.
    ("target", |d| invoked(d).name = "charge:orders".to_owned(), Some(Fine)),
    ("target", |d| properties(d).isolates_tenants = true, Some(Danger)),
    ("target", |d| properties(d).is_durable = true, Some(Fine)),
    (
        "target",
        |d| {
            properties(d).is_durable = true;
            d.target.as_mut().unwrap().name = "charge".to_owned();
        },
        Some(Danger),
    ),
    ("target", |d| state(d, "Failed", "Successful"), Some(Danger)),
    ("target", |d| state(d, "Inactive", "Successful"), Some(Danger)),
    ("target", |d| state(d, "Pending", "InProgress"), Some(Warning)),
    ("target", |d| state(d, "Active", "Failed"), Some(Warning)),
    ("target", |d| state(d, "Active", "InProgress"), Some(Unknown)),
    ("target-timeout", |_| {}, None),
    // With 5 s to start and 5 s to settle, 50 s are a minute.
    ("target-timeout", |d| properties(d).timeout = secs(50), Some(Fine)),
    ("target-timeout", |d| properties(d).timeout = secs(51), Some(Warning)),
    ("target-timeout", |d| properties(d).timeout = secs(900), Some(Warning)),
    ("target-timeout", |d| invoked(d).properties = Ok(None), None),
    ("target-timeout", |d| invoked(d).properties = refused(), Some(Unknown)),
    (
        // Two calls, one after the other.
        "target-timeout",
        |d| {
            invoked(d).messages_per_call = 5;
            d.valid().config.limits.concurrency = 1;
        },
        Some(Warning),
    ),
    ("target-concurrency", |_| {}, None),
    ("target-concurrency", as_made, Some(Fine)),
    ("target-concurrency", |d| invoked(d).reserved_concurrency = Ok(Some(10)), Some(Fine)),
    ("target-concurrency", |d| invoked(d).reserved_concurrency = Ok(Some(9)), Some(Warning)),
    (
        "target-concurrency",
        |d| {
            provisioned(d, 2);
            invoked(d).reserved_concurrency = Ok(Some(19));
        },
        Some(Warning),
    ),
    ("target-concurrency", |d| invoked(d).reserved_concurrency = Ok(Some(0)), Some(Danger)),
    ("target-concurrency", |d| invoked(d).reserved_concurrency = refused(), Some(Unknown)),
    (
        // Two calls at a time for each batch.
        "target-concurrency",
        |d| {
            invoked(d).messages_per_call = 5;
            d.target.as_mut().unwrap().reserved_concurrency = Ok(Some(19));
        },
        Some(Warning),
    ),
    ("target-permissions", |_| {}, None),
    ("target-permissions", as_made, Some(Fine)),
    ("target-permissions", |d| decided(d, AccessDecision::NotAllowed), Some(Danger)),
    ("target-permissions", |d| decided(d, AccessDecision::Denied), Some(Danger)),
    ("target-permissions", |d| decided(d, AccessDecision::Depends), Some(Unknown)),
    ("target-permissions", |d| invoked(d).access = refused(), Some(Unknown)),
    ("other-consumers", |_| {}, Some(Fine)),
    ("other-consumers", as_made, Some(Fine)),
    ("other-consumers", |d| also_invokes(d, "charge", "Enabled"), Some(Danger)),
    ("other-consumers", |d| also_invokes(d, "charge:7", "Enabled"), Some(Danger)),
    ("other-consumers", |d| also_invokes(d, "charge", "Disabled"), Some(Fine)),
    ("other-consumers", |d| also_invokes(d, "charges", "Enabled"), Some(Warning)),
    // The target's own timeout counts instead.
    ("batch-fits-timeout", as_made, None),
    (
        "max-receive-count",
        |d| {
            invoked(d);
            d.receives(3);
        },
        Some(Danger),
    ),
    (
        "max-receive-count",
        |d| {
            invoked(d);
            d.receives(4);
        },
        Some(Warning),
    ),
];

#[test]
fn a_longer_timeout_leaves_room_for_the_target() {
    let mut deployment = good();
    properties(&mut deployment).timeout = secs(120);
    let finding = found(&deployment, "target-timeout").unwrap();
    assert!(finding.diagnosis.remedies[0].contains("--timeout 130"), "{finding:#?}");
}

#[test]
fn the_reserved_concurrency_is_of_the_function_and_not_of_its_alias() {
    let mut deployment = good();
    invoked(&mut deployment).reserved_concurrency = Ok(Some(9));
    let finding = found(&deployment, "target-concurrency").unwrap();
    let raise = "--function-name charge --reserved-concurrent-executions 10";
    assert!(finding.diagnosis.remedies[0].ends_with(raise), "{finding:#?}");
}

#[test]
fn a_function_that_invokes_itself_is_told_by_each_of_its_names() {
    let arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders";
    let found_in = |d: &Deployment| {
        let found = examine(d).into_iter().filter(|finding| finding.id.starts_with("target"));
        found.map(|finding| (finding.id, finding.diagnosis.level)).collect::<Vec<_>>()
    };
    let partial = "123456789012:function:orders";
    for name in ["orders", arn, partial] {
        for qualifier in ["", ":live", ":7", ":$LATEST"] {
            let mut deployment = good();
            invoked(&mut deployment).name = format!("{name}{qualifier}");
            assert_eq!(found_in(&deployment), [("target", Danger)], "{name}{qualifier}");
            let diagnosis = found(&deployment, "target").unwrap().diagnosis;
            let told = "REQUEUE_TARGET_FUNCTION is this function itself: each message would invoke \
                        it again and again";
            assert_eq!(diagnosis.found, told);
            let another = "template, below Environment: Variables: `REQUEUE_TARGET_FUNCTION: NAME`";
            assert_eq!(diagnosis.remedies, [another]);
        }
    }
    let elsewhere =
        [arn.replace("eu-west-1", "eu-west-2"), arn.replace("123456789012", "123456789013")];
    for name in elsewhere.into_iter().chain(["orders2".to_owned(), format!("{arn}-2:live")]) {
        let mut deployment = good();
        invoked(&mut deployment).name = name.clone();
        assert_eq!(found_in(&deployment)[0], ("target", Fine), "{name}");
    }
}

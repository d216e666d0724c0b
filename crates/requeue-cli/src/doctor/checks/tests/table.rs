//! Findings about the table that the execution environments share.

use std::sync::Arc;

use requeue::SharedTable;
use requeue::policy::{FairShares, KeyLimit, MessageKey, RateLimit};
use requeue::table::MemoryTable;

use super::*;

const TABLE: &str = "arn:aws:dynamodb:eu-west-1:123456789012:table/limits";

/// The table as the template makes it, and a rate limit.
fn shared(d: &mut Deployment) -> &mut Table {
    limited(d, 49);
    let mut shared_table = SharedTable::by(Arc::new(MemoryTable::default()));
    shared_table.max_environments = 10;
    d.valid().config.shared_table = Some(shared_table);
    let properties =
        TableProperties { status: "ACTIVE".to_owned(), key: vec!["id (S)".to_owned()] };
    d.table.insert(Table {
        name: "limits".to_owned(),
        arn: TABLE.to_owned(),
        properties: Ok(Some(properties)),
        expiry: Ok(Some("expires".to_owned())),
        access: Ok(allowed(&USING)),
        key: None,
    })
}

fn as_made(d: &mut Deployment) {
    shared(d);
}

fn limited(d: &mut Deployment, calls: u32) {
    d.valid().config.policy.limit = Some(RateLimit::new(calls, secs(1)));
}

fn fair(d: &mut Deployment) {
    limited(d, 49);
    d.valid().config.policy.fair_shares = Some(FairShares::by(MessageKey::MessageGroupId));
}

/// A limit of each tenant, and none of all.
fn by_key(d: &mut Deployment) {
    let (policy, five) = (&mut d.valid().config.policy, RateLimit::new(5, secs(1)));
    policy.limit = None;
    policy.key_limits = vec![KeyLimit::new(MessageKey::MessageGroupId, five)];
}

fn properties(d: &mut Deployment) -> &mut TableProperties {
    shared(d).properties.as_mut().unwrap().as_mut().unwrap()
}

fn decided(d: &mut Deployment, decision: AccessDecision) {
    let access = shared(d).access.as_mut().unwrap();
    access.insert(USING[1].to_owned(), decision);
}

fn keyed(d: &mut Deployment, decrypt: AccessDecision) -> &mut CustomerKey {
    let key = customer(ARN_OF_KEY, Ok(may(decrypt, AccessDecision::NotAllowed)));
    shared(d).key.insert(key)
}

fn gone(d: &mut Deployment) {
    shared(d).properties = Ok(None);
}

fn environments(d: &mut Deployment, most: u32) {
    shared(d);
    d.valid().config.shared_table.as_mut().unwrap().max_environments = most;
}

pub(super) const ROWS: &[Row] = &[
    ("table", |_| {}, None),
    ("table", as_made, Some(Fine)),
    ("table", |d| properties(d).status = "UPDATING".to_owned(), Some(Fine)),
    (
        "table",
        |d| properties(d).status = "INACCESSIBLE_ENCRYPTION_CREDENTIALS".to_owned(),
        Some(Danger),
    ),
    ("table", |d| properties(d).key = vec!["id (N)".to_owned()], Some(Danger)),
    ("table", |d| properties(d).key.push("at (N)".to_owned()), Some(Danger)),
    ("table", gone, Some(Danger)),
    ("table", |d| shared(d).properties = refused(), Some(Unknown)),
    ("table", |d| shared(d).expiry = Ok(None), Some(Warning)),
    ("table", |d| shared(d).expiry = Ok(Some("ttl".to_owned())), Some(Warning)),
    ("table", |d| shared(d).expiry = refused(), Some(Unknown)),
    ("table-permissions", as_made, Some(Fine)),
    ("table-permissions", |d| decided(d, AccessDecision::NotAllowed), Some(Danger)),
    ("table-permissions", |d| decided(d, AccessDecision::Denied), Some(Danger)),
    ("table-permissions", |d| decided(d, AccessDecision::OutOfBoundary), Some(Danger)),
    ("table-permissions", |d| decided(d, AccessDecision::Depends), Some(Unknown)),
    ("table-permissions", |d| shared(d).access = refused(), Some(Unknown)),
    ("table-permissions", |d| _ = keyed(d, AccessDecision::Allowed), Some(Fine)),
    ("table-permissions", |d| _ = keyed(d, AccessDecision::NotAllowed), Some(Danger)),
    (
        "table-permissions",
        |d| keyed(d, AccessDecision::Allowed).key.as_mut().unwrap().state = "Disabled".to_owned(),
        Some(Danger),
    ),
    ("rate-limit", |_| {}, None),
    // Without a table, each execution environment has its own.
    ("rate-limit", |d| limited(d, 49), None),
    ("rate-limit", fair, Some(Warning)),
    (
        "rate-limit",
        |d| {
            fair(d);
            d.function = None;
        },
        None,
    ),
    (
        "rate-limit",
        |d| {
            shared(d);
            fair(d);
        },
        Some(Warning),
    ),
    (
        "rate-limit",
        |d| {
            shared(d);
            fair(d);
            limited(d, 25);
        },
        Some(Fine),
    ),
    (
        "rate-limit",
        |d| {
            shared(d);
            fair(d);
            limited(d, 25);
            d.mapping().batch_size = 9;
        },
        Some(Warning),
    ),
    ("rate-limit", by_key, Some(Warning)),
    (
        "rate-limit",
        |d| {
            by_key(d);
            limited(d, 49);
        },
        Some(Warning),
    ),
    (
        "rate-limit",
        |d| {
            by_key(d);
            d.function = None;
        },
        None,
    ),
    (
        "rate-limit",
        |d| {
            environments(d, 10);
            by_key(d);
        },
        Some(Fine),
    ),
    (
        "rate-limit",
        |d| {
            environments(d, 9);
            by_key(d);
        },
        Some(Warning),
    ),
    ("rate-limit", |d| environments(d, 10), Some(Fine)),
    ("rate-limit", |d| environments(d, 11), Some(Fine)),
    ("rate-limit", |d| environments(d, 9), Some(Warning)),
    // Fewer execution environments than the mapping asks for.
    (
        "rate-limit",
        |d| {
            environments(d, 9);
            d.function().reserved_concurrency = Ok(Some(9));
        },
        Some(Fine),
    ),
    (
        "rate-limit",
        |d| {
            environments(d, 9);
            d.mapping().maximum_concurrency = None;
        },
        Some(Fine),
    ),
    (
        "rate-limit",
        |d| {
            environments(d, 20);
            provisioned(d, 2);
        },
        Some(Fine),
    ),
    (
        "rate-limit",
        |d| {
            environments(d, 19);
            provisioned(d, 2);
        },
        Some(Warning),
    ),
];

#[test]
fn a_limit_says_for_whom_it_holds() {
    let told = |change: Change| {
        let mut deployment = good();
        change(&mut deployment);
        found(&deployment, "rate-limit").unwrap().diagnosis.found
    };
    for (change, expected) in [
        (
            (|d| environments(d, 1_000)) as Change,
            "49 calls in 1 s for all together; while the table does not respond, an environment \
             without recent calls makes one in 20 s",
        ),
        (
            |d| environments(d, 5),
            "49 calls in 1 s for all together; but REQUEUE_MAX_ENVIRONMENTS is 5, and 10 batches run \
             at a time: while the table does not respond, up to 98 calls in 1 s",
        ),
        (
            fair,
            "the policy has fairBy, but the function has no table: each execution environment shares \
             its own calls between the tenants that it knows",
        ),
        (
            by_key,
            "the policy has a limit of each MessageGroupId, but the function has no table: each \
             execution environment allows the whole limit",
        ),
        (
            |d| {
                environments(d, 1_000);
                by_key(d);
                d.valid().config.policy.key_limits[0].units = Some(MessageKey::MessageGroupId);
            },
            "5 units of each MessageGroupId in 1 s for all together; while the table does not \
             respond, an environment without recent calls makes one of each MessageGroupId in 3 min \
             20 s",
        ),
        (
            |d| {
                environments(d, 5);
                by_key(d);
            },
            "5 calls of each MessageGroupId in 1 s for all together; but REQUEUE_MAX_ENVIRONMENTS is \
             5, and 10 batches run at a time: while the table does not respond, up to 10 calls of \
             each MessageGroupId in 1 s",
        ),
        (
            |d| {
                shared(d);
                fair(d);
            },
            "the policy has fairBy, but only 100 messages are handled at a time: with fewer than 196, \
             twice the calls of maxReservationSeconds, the backlog of one tenant makes others wait in \
             the queue",
        ),
    ] {
        assert_eq!(told(change), expected);
    }
}

//! Findings about the role.

use super::*;

fn granted(d: &mut Deployment, principal: &str) {
    d.decides(SENDING, AccessDecision::NotAllowed);
    let statement =
        r#"{"Statement": {"Effect": "Allow", "Principal": PRINCIPAL, "Action": "sqs:*"}}"#;
    d.queue().policy = Some(statement.replace("PRINCIPAL", principal));
}

/// Retries wait in their place, and the role may not send.
fn sends_nothing(d: &mut Deployment, dead_letter: DeadLetterMode) {
    d.valid().config.strategy = Strategy::Visibility;
    d.valid().config.dead_letter = dead_letter;
    d.decides(SENDING, AccessDecision::NotAllowed);
}

pub(super) const ROWS: &[Row] = &[
    ("queue-permissions", |d| d.decides(SENDING, AccessDecision::NotAllowed), Some(Danger)),
    ("queue-permissions", |d| d.decides("sqs:DeleteMessage", AccessDecision::Denied), Some(Danger)),
    (
        "queue-permissions",
        |d| d.decides("sqs:ChangeMessageVisibility", AccessDecision::NotAllowed),
        Some(Danger),
    ),
    ("queue-permissions", |d| d.decides(SENDING, AccessDecision::Depends), Some(Unknown)),
    ("queue-permissions", |d| d.path().source.access = Some(refused()), Some(Unknown)),
    ("queue-permissions", |d| granted(d, r#"{"AWS": "*"}"#), Some(Unknown)),
    ("queue-permissions", |d| granted(d, r#""*""#), Some(Unknown)),
    (
        "queue-permissions",
        |d| granted(d, r#"{"AWS": ["arn:aws:iam::123456789012:role/service/orders-Role"]}"#),
        Some(Unknown),
    ),
    (
        "queue-permissions",
        |d| granted(d, r#"{"AWS": "arn:aws:iam::123456789012:root"}"#),
        Some(Danger),
    ),
    ("queue-permissions", |d| granted(d, r#"{"Service": "sns.amazonaws.com"}"#), Some(Danger)),
    (
        "queue-permissions",
        |d| {
            d.fifo();
            d.decides(SENDING, AccessDecision::NotAllowed);
        },
        Some(Fine),
    ),
    ("queue-permissions", |d| sends_nothing(d, DeadLetterMode::Redrive), Some(Fine)),
    ("queue-permissions", |d| sends_nothing(d, DeadLetterMode::Annotate), Some(Danger)),
    (
        "queue-permissions",
        |d| {
            d.settings = FunctionSettings::Invalid(Vec::new());
            d.decides(SENDING, AccessDecision::NotAllowed);
        },
        Some(Danger),
    ),
    ("direct-permissions", |_| {}, None),
    ("direct-permissions", |d| d.direct(14 * DAY), Some(Fine)),
    (
        "direct-permissions",
        |d| {
            d.direct(14 * DAY);
            d.path().direct.as_mut().unwrap().access = Some(Ok(Access::new()));
        },
        Some(Unknown),
    ),
    (
        "direct-permissions",
        |d| {
            d.direct(14 * DAY);
            let access = [(SENDING.to_owned(), AccessDecision::NotAllowed)].into();
            d.path().direct.as_mut().unwrap().access = Some(Ok(access));
        },
        Some(Danger),
    ),
    ("key-permissions", |_| {}, None),
    ("key-permissions", |d| d.path().source.key = Some(EncryptionKey::ManagedByAws), Some(Fine)),
    (
        "key-permissions",
        |d| d.key(ARN_OF_KEY, Ok(may(AccessDecision::Allowed, AccessDecision::Allowed))),
        Some(Fine),
    ),
    (
        "key-permissions",
        |d| d.key(ARN_OF_KEY, Ok(may(AccessDecision::Allowed, AccessDecision::NotAllowed))),
        Some(Danger),
    ),
    (
        "key-permissions",
        |d| d.key(ARN_OF_KEY, Ok(may(AccessDecision::Denied, AccessDecision::Allowed))),
        Some(Danger),
    ),
    (
        "key-permissions",
        |d| d.key(ARN_OF_KEY, Ok(may(AccessDecision::Allowed, AccessDecision::Depends))),
        Some(Unknown),
    ),
    ("key-permissions", |d| d.key(ARN_OF_KEY, refused()), Some(Unknown)),
    (
        "key-permissions",
        |d| {
            d.direct(14 * DAY);
            let access = Ok(may(AccessDecision::Allowed, AccessDecision::NotAllowed));
            d.path().direct.as_mut().unwrap().key =
                Some(EncryptionKey::Customer { name: ARN_OF_KEY.to_owned(), access });
            d.path().source.key = Some(EncryptionKey::ManagedByAws);
        },
        Some(Danger),
    ),
    (
        "key-permissions",
        |d| d.key("alias/orders", Ok(may(AccessDecision::Allowed, AccessDecision::NotAllowed))),
        Some(Unknown),
    ),
    (
        "key-permissions",
        |d| d.key("alias/orders", Ok(may(AccessDecision::Allowed, AccessDecision::Allowed))),
        Some(Fine),
    ),
    (
        "key-permissions",
        |d| {
            d.fifo();
            d.key(ARN_OF_KEY, Ok(may(AccessDecision::Allowed, AccessDecision::NotAllowed)));
        },
        Some(Fine),
    ),
];

//! What is said of the role.

use super::*;

fn granted(d: &mut Deployment, principal: &str) {
    d.decides(SENDING, Decision::NotAllowed);
    let statement =
        r#"{"Statement": {"Effect": "Allow", "Principal": PRINCIPAL, "Action": "sqs:*"}}"#;
    d.queue().policy = Some(statement.replace("PRINCIPAL", principal));
}

/// Retries wait in their place, and the role may not send.
fn sends_nothing(d: &mut Deployment, dead_letter: DeadLetterMode) {
    d.valid().config.strategy = Strategy::Visibility;
    d.valid().config.dead_letter = dead_letter;
    d.decides(SENDING, Decision::NotAllowed);
}

pub(super) const ROWS: &[Row] = &[
    ("queue-permissions", |d| d.decides(SENDING, Decision::NotAllowed), Some(Danger)),
    ("queue-permissions", |d| d.decides("sqs:DeleteMessage", Decision::Denied), Some(Danger)),
    (
        "queue-permissions",
        |d| d.decides("sqs:ChangeMessageVisibility", Decision::NotAllowed),
        Some(Danger),
    ),
    ("queue-permissions", |d| d.decides(SENDING, Decision::Depends), Some(Unknown)),
    ("queue-permissions", |d| d.place().source.access = Some(refused()), Some(Unknown)),
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
            d.decides(SENDING, Decision::NotAllowed);
        },
        Some(Fine),
    ),
    ("queue-permissions", |d| sends_nothing(d, DeadLetterMode::Redrive), Some(Fine)),
    ("queue-permissions", |d| sends_nothing(d, DeadLetterMode::Annotate), Some(Danger)),
    (
        "queue-permissions",
        |d| {
            d.settings = Settings::Invalid(Vec::new());
            d.decides(SENDING, Decision::NotAllowed);
        },
        Some(Danger),
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
    (
        "key-permissions",
        |d| d.key(ARN_OF_KEY, Ok(may(Decision::Allowed, Decision::Allowed))),
        Some(Fine),
    ),
    (
        "key-permissions",
        |d| d.key(ARN_OF_KEY, Ok(may(Decision::Allowed, Decision::NotAllowed))),
        Some(Danger),
    ),
    (
        "key-permissions",
        |d| d.key(ARN_OF_KEY, Ok(may(Decision::Denied, Decision::Allowed))),
        Some(Danger),
    ),
    (
        "key-permissions",
        |d| d.key(ARN_OF_KEY, Ok(may(Decision::Allowed, Decision::Depends))),
        Some(Unknown),
    ),
    ("key-permissions", |d| d.key(ARN_OF_KEY, refused()), Some(Unknown)),
    (
        "key-permissions",
        |d| {
            d.direct(14 * DAY);
            let access = Ok(may(Decision::Allowed, Decision::NotAllowed));
            d.place().direct.as_mut().unwrap().key =
                Some(Key::Customer { name: ARN_OF_KEY.to_owned(), access });
            d.place().source.key = Some(Key::ManagedByAws);
        },
        Some(Danger),
    ),
    (
        "key-permissions",
        |d| d.key("alias/orders", Ok(may(Decision::Allowed, Decision::NotAllowed))),
        Some(Unknown),
    ),
    (
        "key-permissions",
        |d| d.key("alias/orders", Ok(may(Decision::Allowed, Decision::Allowed))),
        Some(Fine),
    ),
    (
        "key-permissions",
        |d| {
            d.fifo();
            d.key(ARN_OF_KEY, Ok(may(Decision::Allowed, Decision::NotAllowed)));
        },
        Some(Fine),
    ),
];

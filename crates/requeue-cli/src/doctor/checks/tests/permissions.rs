//! Findings about the role.

use super::*;

fn granted(d: &mut Deployment, principal: &str) {
    d.decides(SENDING, AccessDecision::NotAllowed);
    let statement =
        r#"{"Statement": {"Effect": "Allow", "Principal": PRINCIPAL, "Action": "sqs:*"}}"#;
    d.queue().policy = Some(statement.replace("PRINCIPAL", principal));
}

/// The queue's own policy denies everybody, under this condition.
fn denied(d: &mut Deployment, condition: &str) {
    let statement = r#"{"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Condition": CONDITION}]}"#;
    d.queue().policy = Some(statement.replace("CONDITION", condition));
}

/// The queue is of another account, and its policy allows this principal.
fn foreign(d: &mut Deployment, principal: &str) {
    d.path().source.arn = "arn:aws:sqs:eu-west-1:999999999999:orders".parse().unwrap();
    let statement = r#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "PRINCIPAL"}, "Action": "sqs:*"}}"#;
    d.queue().policy = Some(statement.replace("PRINCIPAL", principal));
}

const ROLE: &str = "arn:aws:iam::123456789012:role/service/orders-Role";
const BOUNDED: AccessDecision = AccessDecision::OutOfBoundary;
const OTHER: &str = "arn:aws:iam::123456789012:role/other";

/// The key's policy allows this principal, under this condition.
fn of_key(d: &mut Deployment, decision: AccessDecision, principal: &str, condition: &str) {
    let statement = r#"{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "PRINCIPAL"}, "Action": "kms:*", "Condition": CONDITION}]}"#;
    let policy = statement.replace("PRINCIPAL", principal).replace("CONDITION", condition);
    d.key_policy(decision, Ok(policy));
}

/// The key is known by its alias only.
fn hidden_alias(d: &mut Deployment, access: Access) {
    d.key("alias/orders", Ok(access));
    d.customer().key = refused();
    d.customer().policy = refused();
}

/// Retries wait in flight, and the role may not send.
fn sends_nothing(d: &mut Deployment, dead_letter: DeadLetterMode) {
    d.valid().config.strategy = Strategy::Visibility;
    d.valid().config.dead_letter = Some(dead_letter);
    d.decides(SENDING, AccessDecision::NotAllowed);
}

fn key(state: &str) -> Key {
    Key { arn: ARN_OF_KEY.to_owned(), state: state.to_owned() }
}

pub(super) const ROWS: &[Row] = &[
    ("key-permissions", |d| d.key_state(Ok(key("Enabled"))), Some(Fine)),
    ("key-permissions", |d| d.key_state(Ok(key("Disabled"))), Some(Danger)),
    ("key-permissions", |d| d.key_state(Ok(key("PendingDeletion"))), Some(Danger)),
    ("key-permissions", |d| d.key_state(Ok(key("Unavailable"))), Some(Danger)),
    ("key-permissions", |d| d.key_state(Ok(key(NO_KEY))), Some(Danger)),
    ("key-permissions", |d| d.key_state(Ok(key(""))), Some(Unknown)),
    ("key-permissions", |d| d.key_state(refused()), Some(Unknown)),
    (
        "key-permissions",
        |d| {
            d.key_state(Ok(key("Disabled")));
            let key = d.path().source.key.take();
            d.path().dead_letters.as_mut().unwrap().key = key;
        },
        Some(Danger),
    ),
    ("queue-permissions", |d| d.decides(SENDING, AccessDecision::NotAllowed), Some(Danger)),
    ("queue-permissions", |d| d.decides("sqs:DeleteMessage", AccessDecision::Denied), Some(Danger)),
    (
        "queue-permissions",
        |d| d.decides("sqs:ChangeMessageVisibility", AccessDecision::NotAllowed),
        Some(Danger),
    ),
    ("queue-permissions", |d| d.decides(SENDING, AccessDecision::Depends), Some(Unknown)),
    ("queue-permissions", |d| d.decides(SENDING, BOUNDED), Some(Danger)),
    (
        "queue-permissions",
        |d| {
            granted(d, r#"{"AWS": "*"}"#);
            d.decides(SENDING, BOUNDED);
        },
        Some(Unknown),
    ),
    ("queue-permissions", |d| d.decides(SENDING, AccessDecision::OutOfOrganization), Some(Unknown)),
    ("queue-permissions", |d| d.path().source.access = refused(), Some(Unknown)),
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
    ("queue-permissions", |d| denied(d, "{}"), Some(Danger)),
    (
        "queue-permissions",
        |d| denied(d, r#"{"Bool": {"aws:SecureTransport": "false"}}"#),
        Some(Fine),
    ),
    (
        "queue-permissions",
        |d| denied(d, r#"{"StringNotEquals": {"aws:SourceVpce": "vpce-1"}}"#),
        Some(Unknown),
    ),
    // The Deny counts even if IAM does not tell its decision.
    (
        "queue-permissions",
        |d| {
            denied(d, "{}");
            d.path().source.access = refused();
        },
        Some(Danger),
    ),
    ("queue-permissions", |d| d.queue().policy = Some("none".to_owned()), Some(Unknown)),
    ("queue-permissions", |d| d.path().source.queue = refused(), Some(Unknown)),
    ("queue-permissions", |d| foreign(d, ROLE), Some(Fine)),
    ("queue-permissions", |d| foreign(d, "arn:aws:iam::123456789012:root"), Some(Fine)),
    ("queue-permissions", |d| foreign(d, OTHER), Some(Danger)),
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
            d.settings = refused();
            d.decides(SENDING, AccessDecision::NotAllowed);
        },
        Some(Danger),
    ),
    ("queue-permissions", |d| d.direct(14 * DAY), Some(Fine)),
    (
        "queue-permissions",
        |d| {
            d.direct(14 * DAY);
            d.path().direct.as_mut().unwrap().access = Ok(Access::new());
        },
        Some(Unknown),
    ),
    (
        "queue-permissions",
        |d| {
            d.direct(14 * DAY);
            let access = [(SENDING.to_owned(), AccessDecision::NotAllowed)].into();
            d.path().direct.as_mut().unwrap().access = Ok(access);
        },
        Some(Danger),
    ),
    ("key-permissions", |_| {}, None),
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
    (
        "key-permissions",
        |d| d.key(ARN_OF_KEY, Ok(may(AccessDecision::Allowed, BOUNDED))),
        Some(Danger),
    ),
    ("key-permissions", |d| hidden_alias(d, may(BOUNDED, AccessDecision::Allowed)), Some(Unknown)),
    ("key-permissions", |d| d.key(ARN_OF_KEY, refused()), Some(Unknown)),
    (
        "key-permissions",
        |d| {
            d.direct(14 * DAY);
            let access = Ok(may(AccessDecision::Allowed, AccessDecision::NotAllowed));
            d.path().direct.as_mut().unwrap().key = Some(customer(ARN_OF_KEY, access));
        },
        Some(Danger),
    ),
    (
        "key-permissions",
        |d| hidden_alias(d, may(AccessDecision::Allowed, AccessDecision::NotAllowed)),
        Some(Unknown),
    ),
    (
        "key-permissions",
        |d| hidden_alias(d, may(AccessDecision::Allowed, AccessDecision::Allowed)),
        Some(Unknown),
    ),
    (
        "key-permissions",
        |d| d.key("alias/orders", Ok(may(AccessDecision::Allowed, AccessDecision::NotAllowed))),
        Some(Danger),
    ),
    (
        "key-permissions",
        |d| d.key("alias/orders", Ok(may(AccessDecision::Allowed, AccessDecision::Allowed))),
        Some(Fine),
    ),
    ("key-permissions", |d| d.key_policy(AccessDecision::Allowed, refused()), Some(Unknown)),
    ("key-permissions", |d| d.key_policy(AccessDecision::Denied, refused()), Some(Danger)),
    ("key-permissions", |d| d.key_policy(AccessDecision::NotAllowed, refused()), Some(Danger)),
    (
        "key-permissions",
        |d| d.key_policy(AccessDecision::Allowed, Ok("none".to_owned())),
        Some(Unknown),
    ),
    ("key-permissions", |d| of_key(d, AccessDecision::Allowed, OTHER, "{}"), Some(Danger)),
    ("key-permissions", |d| of_key(d, AccessDecision::Allowed, ROLE, "{}"), Some(Fine)),
    ("key-permissions", |d| of_key(d, AccessDecision::NotAllowed, ROLE, "{}"), Some(Unknown)),
    (
        "key-permissions",
        |d| {
            let through = r#"{"StringEquals": {"kms:ViaService": "sqs.eu-west-1.amazonaws.com"}}"#;
            of_key(d, AccessDecision::Allowed, ROLE, through);
        },
        Some(Fine),
    ),
    (
        "key-permissions",
        |d| {
            let tagged = r#"{"StringEquals": {"aws:PrincipalTag/team": "orders"}}"#;
            of_key(d, AccessDecision::Allowed, ROLE, tagged);
        },
        Some(Unknown),
    ),
    (
        "key-permissions",
        |d| {
            let deny = r#"{"Effect": "Deny", "Principal": "*", "Action": "kms:Decrypt"}, "#;
            let policy = delegating().replacen("[{", &format!("[{deny}{{"), 1);
            d.key_policy(AccessDecision::Allowed, Ok(policy));
        },
        Some(Danger),
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

/// A check, a limit on the role, and the actions with their place in the finding.
type Bounded = (&'static str, fn(&mut Deployment, AccessDecision), [&'static str; 2]);

#[test]
fn a_policy_that_bounds_the_role_is_named_and_widened() {
    let boundary = [
        "the role's permissions boundary does not allow ",
        "aws iam get-role --role-name orders-Role --query \
         Role.PermissionsBoundary.PermissionsBoundaryArn --output text\nallow ",
        " in the policy that it prints",
    ];
    let organization = [
        "not checked: IAM's simulation refuses ",
        "ask who administers the organization whether its service control policies allow ",
        " to arn:aws:iam::123456789012:role/service/orders-Role",
    ];
    let doubt = " by a policy of the organization, and may not know the facts of its conditions";
    let table: [Bounded; 4] = [
        (
            "queue-permissions",
            |d, limit| d.decides(SENDING, limit),
            ["sqs:SendMessage", " on orders"],
        ),
        (
            "key-permissions",
            |d, limit| {
                d.key(ARN_OF_KEY, Ok(may(limit, AccessDecision::Allowed)));
            },
            ["kms:Decrypt", " with arn:aws:kms:eu-west-1:123456789012:key/1"],
        ),
        (
            "log-permissions",
            |d, limit| {
                let access = d.function().log_access.as_mut().unwrap();
                access.insert(LOGGING[1].to_owned(), limit);
            },
            ["logs:PutLogEvents", " on /aws/lambda/orders"],
        ),
        (
            "secret-permissions",
            |d, limit| d.secret(PARAMETER, Ok(limit)),
            ["ssm:GetParameter", " on arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token"],
        ),
    ];
    for (limit, [found, before, after], end) in [
        (AccessDecision::OutOfBoundary, boundary, ""),
        (AccessDecision::OutOfOrganization, organization, doubt),
    ] {
        for (id, change, [actions, place]) in table {
            let mut deployment = good();
            change(&mut deployment, limit);
            let Finding { diagnosis, .. } = super::found(&deployment, id).unwrap();
            assert_eq!(diagnosis.found, format!("{found}{actions}{place}{end}"));
            assert_eq!(diagnosis.remedies, [format!("{before}{actions}{after}")]);
        }
    }
}

const PARAMETER: &str = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token";

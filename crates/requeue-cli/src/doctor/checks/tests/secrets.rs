//! Findings about the secrets in the settings.

use super::super::secrets::{is_whole, reading};
use super::remedies::Remedies;
use super::*;

const SECRET: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf";
/// Without the end that Secrets Manager gives it.
const PARTIAL: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:other";
const PARAMETER: &str = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token";

/// A secret that the role may read, with a key of the customer.
fn keyed(d: &mut Deployment, decrypt: AccessDecision) -> &mut CustomerKey {
    d.secret(SECRET, Ok(AccessDecision::Allowed));
    let key = customer(ARN_OF_KEY, Ok(may(decrypt, AccessDecision::NotAllowed)));
    d.function().secrets[0].key = Ok(Some(key));
    d.function().secrets[0].key.as_mut().unwrap().as_mut().unwrap()
}

fn missing(d: &mut Deployment, arn: &str) {
    d.secret(arn, Ok(AccessDecision::Allowed));
    let error = CallError::responded(400, "ResourceNotFoundException");
    d.function().secrets[0].key = Err(Unread { error, ..refused::<()>().unwrap_err() });
}

fn decrypts(d: &mut Deployment, decrypt: AccessDecision) {
    keyed(d, decrypt);
}

fn key_is(d: &mut Deployment, state: &str) {
    let key = Key { arn: ARN_OF_KEY.to_owned(), state: state.to_owned() };
    keyed(d, AccessDecision::Allowed).key = Ok(key);
}

pub(super) const ROWS: &[Row] = &[
    (
        "secret-permissions",
        |d| {
            d.secret(PARAMETER, Ok(AccessDecision::Allowed));
            d.function().secrets[0].key = Ok(None);
        },
        Some(Fine),
    ),
    (
        "secret-permissions",
        |d| {
            d.secret(SECRET, Ok(AccessDecision::Allowed));
            d.secret(PARAMETER, Ok(AccessDecision::Allowed));
            d.function().secrets[1].key = refused();
        },
        Some(Unknown),
    ),
    ("secret-permissions", |d| decrypts(d, AccessDecision::Allowed), Some(Fine)),
    ("secret-permissions", |d| decrypts(d, AccessDecision::NotAllowed), Some(Danger)),
    ("secret-permissions", |d| decrypts(d, AccessDecision::Depends), Some(Unknown)),
    ("secret-permissions", |d| key_is(d, "Disabled"), Some(Danger)),
    ("secret-permissions", |d| keyed(d, AccessDecision::Allowed).key = refused(), Some(Unknown)),
    ("secret-permissions", |d| keyed(d, AccessDecision::Allowed).policy = refused(), Some(Unknown)),
    ("secret-permissions", |d| missing(d, SECRET), Some(Danger)),
    // The services of another account need not say so, but its key is unknown.
    (
        "secret-permissions",
        |d| missing(d, "arn:aws:secretsmanager:eu-west-1:999999999999:secret:orders-AbCdEf"),
        Some(Unknown),
    ),
    // The key's policy allows its use through another service only.
    (
        "secret-permissions",
        |d| {
            let condition = r#""StringEquals": {"kms:ViaService": "sqs.eu-west-1.amazonaws.com"}"#;
            let condition = format!(r#""Condition": {{{condition}}}, "Effect""#);
            let policy = delegating().replace(r#""Effect""#, &condition);
            keyed(d, AccessDecision::Allowed).policy = Ok(policy);
        },
        Some(Danger),
    ),
    ("secret-permissions", |_| {}, None),
    ("secret-permissions", |d| d.function = None, None),
    ("secret-permissions", |d| d.secret(SECRET, Ok(AccessDecision::Allowed)), Some(Fine)),
    ("secret-permissions", |d| d.secret(SECRET, Ok(AccessDecision::NotAllowed)), Some(Danger)),
    ("secret-permissions", |d| d.secret(SECRET, Ok(AccessDecision::Denied)), Some(Danger)),
    ("secret-permissions", |d| d.secret(SECRET, Ok(AccessDecision::Depends)), Some(Unknown)),
    ("secret-permissions", |d| d.secret(SECRET, refused()), Some(Unknown)),
    ("secret-permissions", |d| d.secret(PARAMETER, Ok(AccessDecision::Allowed)), Some(Fine)),
    ("secret-permissions", |d| d.secret(PARAMETER, Ok(AccessDecision::NotAllowed)), Some(Danger)),
    ("secret-permissions", |d| d.secret(PARTIAL, Ok(AccessDecision::Allowed)), Some(Fine)),
    ("secret-permissions", |d| d.secret(PARTIAL, Ok(AccessDecision::NotAllowed)), Some(Unknown)),
    ("secret-permissions", |d| d.secret(PARTIAL, Ok(AccessDecision::Depends)), Some(Unknown)),
    ("secret-permissions", |d| d.secret(PARTIAL, Ok(AccessDecision::Denied)), Some(Danger)),
    // An unknown or a good secret must not hide a bad one.
    (
        "secret-permissions",
        |d| {
            d.secret(SECRET, refused());
            d.secret(PARTIAL, Ok(AccessDecision::NotAllowed));
            d.secret(PARAMETER, Ok(AccessDecision::NotAllowed));
        },
        Some(Danger),
    ),
    (
        "secret-permissions",
        |d| {
            d.secret(SECRET, Ok(AccessDecision::Allowed));
            d.secret(PARTIAL, Ok(AccessDecision::NotAllowed));
        },
        Some(Unknown),
    ),
];

pub(super) const REMEDIES: &[Remedies] = &[
    (
        "secret-permissions",
        |d| {
            d.secret(SECRET, Ok(AccessDecision::NotAllowed));
            d.secret(PARTIAL, Ok(AccessDecision::Allowed));
            d.secret(PARAMETER, Ok(AccessDecision::Allowed));
        },
        &[
            "aws iam put-role-policy --role-name orders-Role --policy-name requeue-secrets-orders \
             --policy-document \
             '{\"Statement\":[{\"Action\":[\"secretsmanager:GetSecretValue\"],\"Effect\":\"Allow\",\"Resource\":[\"arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf\"]}],\"Version\":\"2012-10-17\"}'\n\
             aws iam put-role-policy --role-name orders-Role --policy-name requeue-parameters-orders \
             --policy-document \
             '{\"Statement\":[{\"Action\":[\"ssm:GetParameter\"],\"Effect\":\"Allow\",\"Resource\":[\"arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token\"]}],\"Version\":\"2012-10-17\"}'",
            "template, parameters: \
             `SecretArns=arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf \
             ParameterArns=arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token`",
        ],
    ),
    (
        "secret-permissions",
        |d| d.secret(SECRET, Ok(AccessDecision::Denied)),
        &["remove the Deny from the role's policies or its boundary"],
    ),
    (
        "secret-permissions",
        |d| d.secret(PARTIAL, Ok(AccessDecision::NotAllowed)),
        &["aws secretsmanager describe-secret --region eu-west-1 \
           --secret-id arn:aws:secretsmanager:eu-west-1:123456789012:secret:other --query ARN \
           --output text\nsettings: the whole ARN that it prints"],
    ),
];

#[test]
fn each_secret_that_may_not_be_read_is_named_with_its_permission() {
    let mut deployment = good();
    for arn in [SECRET, PARAMETER] {
        deployment.secret(arn, Ok(AccessDecision::NotAllowed));
    }
    let found = found(&deployment, "secret-permissions").unwrap().diagnosis.found;
    for named in [
        format!("secretsmanager:GetSecretValue on {SECRET}"),
        format!("ssm:GetParameter on {PARAMETER}"),
    ] {
        assert!(found.contains(&named), "{found}");
    }
}

#[test]
fn an_arn_of_a_secret_is_whole_with_a_hyphen_and_six_characters_at_its_end() {
    for (end, expected) in [
        ("-AbCdEf", true),
        ("-a-0b1C2d", true),
        ("", false),
        ("-AbCdE", false),
        ("-AbCdEfG", false),
        ("-AbCd_f", false),
    ] {
        let arn = format!("arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders{end}");
        assert_eq!(
            (is_whole(&arn), reading(&arn)),
            (expected, "secretsmanager:GetSecretValue"),
            "{arn}"
        );
    }
    assert_eq!((is_whole(PARAMETER), reading(PARAMETER)), (true, "ssm:GetParameter"));
}

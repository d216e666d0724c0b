//! Whether the function's role may read the secrets in its settings. The doctor does not see a
//! secret's own policy.

use super::super::access_policy::account;
use super::super::check::Check;
use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::{AccessDecision, EncryptionKey, Function, Key, Limit, Secret};
use super::super::remedy;
use super::permissions::{DECRYPT, UsedKey, bounded, key_of};
use super::worst;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "secret-permissions",
        why: "If a function may not read a secret in its settings, it does not start, and SQS \
              redelivers its messages until they are dead-lettered.",
        look: secret_permissions,
    },
    Check {
        id: "secret-key-permissions",
        why: "If a KMS key of your own encrypts a secret, reading it also needs kms:Decrypt on \
              that key.",
        look: secret_key_permissions,
    },
];

const SECRET: &str = "secretsmanager:GetSecretValue";
pub(crate) const PARAMETER: &str = "ssm:GetParameter";

/// The permission to read this secret.
pub(crate) fn reading(arn: &str) -> &'static str {
    if arn.split(':').nth(2) == Some("ssm") { PARAMETER } else { SECRET }
}

/// The ARN of a secret ends with a hyphen and six characters. A request for its value may leave
/// them out, but IAM needs the whole ARN. Source: Secrets Manager API reference, `GetSecretValue`.
pub(crate) fn is_whole(arn: &str) -> bool {
    let is_end = |end: &str| end.len() == 6 && end.bytes().all(|byte| byte.is_ascii_alphanumeric());
    reading(arn) == PARAMETER || arn.rsplit_once('-').is_some_and(|(_, end)| is_end(end))
}

fn secret_permissions(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let missing: Vec<&str> = function
        .secrets
        .iter()
        .filter(|secret| is_missing(function, secret))
        .map(|secret| secret.arn.as_str())
        .collect();
    if !missing.is_empty() {
        let found = format!("{} does not exist", missing.join(" and "));
        return Ok(Diagnosis::danger(found, ["create it, or correct the ARN in the settings"]));
    }
    let is_unclear = |secret: &&Secret| {
        !is_whole(&secret.arn)
            && matches!(
                secret.decision,
                Ok(AccessDecision::NotAllowed
                    | AccessDecision::Limited(_)
                    | AccessDecision::Depends)
            )
    };
    let (unclear, clear): (Vec<&Secret>, Vec<&Secret>) =
        function.secrets.iter().partition(is_unclear);
    let of = |decision| clear.iter().copied().filter(move |secret| secret.decision == Ok(decision));
    let [denied, not_allowed, depends, allowed] = [
        AccessDecision::Denied,
        AccessDecision::NotAllowed,
        AccessDecision::Depends,
        AccessDecision::Allowed,
    ]
    .map(|decision| told(of(decision)));
    if !denied.is_empty() {
        return Ok(Diagnosis::danger(format!("the role is denied {denied}"), [remedy::NO_DENY]));
    }
    for limit in [Limit::Boundary, Limit::Organization] {
        let limited = told(of(AccessDecision::Limited(limit)));
        if !limited.is_empty() {
            let remedy = remedy::widen(function, limit, &limited);
            return Ok(Diagnosis::danger(bounded(limit, &limited), [remedy]));
        }
    }
    if !not_allowed.is_empty() {
        let found = format!(
            "the role's policies do not allow {not_allowed}: unless the secret's own policy does, \
             the function does not start"
        );
        return Ok(Diagnosis::danger(found, grants(function)));
    }
    if let Some(unread) = clear.iter().find_map(|secret| secret.decision.as_ref().err()) {
        return Err(unread.into());
    }
    if !depends.is_empty() {
        let found = format!("conditions in the role's policies decide about {depends}");
        return Err(Skip::not_checked(found, grants(function)));
    }
    if !unclear.is_empty() {
        let found = format!(
            "{} depends on the six characters that Secrets Manager adds to an ARN",
            told(unclear.iter().copied())
        );
        return Err(Skip::not_checked(found, unclear.iter().map(|secret| whole(&secret.arn))));
    }
    if allowed.is_empty() {
        Err(Skip::NotApplicable)
    } else {
        Ok(Diagnosis::ok(format!("the role may {allowed}")))
    }
}

fn secret_key_permissions(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let existing = function.secrets.iter().filter(|secret| !is_missing(function, secret));
    worst(existing.flat_map(|Secret { arn, key, .. }| {
        let key = match key {
            Ok(Some(key)) => key,
            Ok(None) => return [Err(Skip::NotApplicable), Err(Skip::NotApplicable)],
            Err(unread) => return [Err(unread.into()), Err(Skip::NotApplicable)],
        };
        let (service, policy) = if reading(arn) == PARAMETER {
            ("SSM", "requeue-parameter-key")
        } else {
            ("Secrets Manager", "requeue-secret-key")
        };
        let used = UsedKey { key, of: arn, service, policy: policy.to_owned() };
        [key_of(context, &used, &[DECRYPT]), state(key, arn)]
    }))
}

/// A key that is enabled needs no finding of its own.
pub(super) fn state(key: &EncryptionKey, secret: &str) -> Checked {
    let EncryptionKey::Customer(customer) = key else { return Err(Skip::NotApplicable) };
    let Key { arn, state } = customer.key.as_ref()?;
    if state == "Enabled" {
        return Err(Skip::NotApplicable);
    }
    let region = secret.split(':').nth(3).unwrap_or_default();
    let show =
        format!("aws kms describe-key --region {region} --key-id {arn}, and enable that key");
    Ok(Diagnosis::danger(format!("the key {arn} of {secret} is {state}"), [show]))
}

/// Whether the services of the function's own account know no such secret.
fn is_missing(function: &Function, secret: &Secret) -> bool {
    let is_own = account(&secret.arn) == account(&function.role);
    let code = secret.key.as_ref().err().map(|unread| unread.code.as_str());
    is_own && matches!(code, Some("ResourceNotFoundException" | "ParameterNotFound"))
}

fn told<'s>(secrets: impl Iterator<Item = &'s Secret>) -> String {
    let told: Vec<String> =
        secrets.map(|Secret { arn, .. }| format!("{} on {arn}", reading(arn))).collect();
    told.join(", ")
}

/// A statement for each service, or the template's parameters that make them. It covers all secrets
/// in the settings, since it replaces the policy of an earlier remedy with this name.
fn grants(function: &Function) -> [String; 2] {
    let services = [
        (SECRET, "requeue-secrets", "SecretArns"),
        (PARAMETER, "requeue-parameters", "ParameterArns"),
    ];
    let (commands, parameters): (Vec<String>, Vec<String>) = services
        .into_iter()
        .filter_map(|(action, policy, parameter)| {
            let arns = function.secrets.iter().map(|secret| secret.arn.as_str());
            let arns: Vec<&str> =
                arns.filter(|arn| reading(arn) == action && is_whole(arn)).collect();
            let parameter = format!("{parameter}={}", arns.join(","));
            (!arns.is_empty())
                .then(|| (remedy::grant(function, &[action], arns, policy), parameter))
        })
        .unzip();
    [commands.join(" && "), format!("template, parameters: `{}`", parameters.join(" "))]
}

fn whole(arn: &str) -> String {
    let region = arn.split(':').nth(3).unwrap_or_default();
    format!(
        "settings: the whole ARN, which `aws secretsmanager describe-secret --region {region} \
         --secret-id {arn} --query ARN --output text` prints"
    )
}

/// The command that prints a stored text.
pub(super) fn stored_text(arn: &str) -> String {
    let region = arn.split(':').nth(3).unwrap_or_default();
    if reading(arn) == PARAMETER {
        format!(
            "aws ssm get-parameter --region {region} --name {arn} --with-decryption --query \
             Parameter.Value --output text"
        )
    } else {
        format!(
            "aws secretsmanager get-secret-value --region {region} --secret-id {arn} --query \
             SecretString --output text"
        )
    }
}

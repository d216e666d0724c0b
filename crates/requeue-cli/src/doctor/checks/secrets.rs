//! Whether the function's role may read the secrets in its settings. The doctor sees neither a
//! secret's own policy nor its key.

use super::super::check::Check;
use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::{AccessDecision, Function, Secret};
use super::super::remedy;

pub(super) const CHECKS: &[Check] = &[Check {
    id: "secret-permissions",
    why: "If a function may not read a secret in its settings, it does not start, and SQS \
          redelivers its messages until they are dead-lettered.",
    look: secret_permissions,
}];

const SECRET: &str = "secretsmanager:GetSecretValue";
const PARAMETER: &str = "ssm:GetParameter";

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
    let is_unclear = |secret: &&Secret| {
        !is_whole(&secret.arn)
            && matches!(secret.decision, Ok(AccessDecision::NotAllowed | AccessDecision::Depends))
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
        let found =
            format!("not checked: conditions in the role's policies decide about {depends}");
        return Err(Skip::Unknown(Diagnosis::unknown(found, grants(function))));
    }
    if !unclear.is_empty() {
        let found = format!(
            "not checked: {} depends on the six characters that Secrets Manager adds to an ARN",
            told(unclear.iter().copied())
        );
        return Err(Skip::Unknown(Diagnosis::unknown(
            found,
            unclear.iter().map(|secret| whole(&secret.arn)),
        )));
    }
    if allowed.is_empty() {
        Err(Skip::NotApplicable)
    } else {
        Ok(Diagnosis::ok(format!("the role may {allowed}")))
    }
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

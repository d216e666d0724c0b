//! Whether the role may read the secrets in the settings. A secret's own policy is not read.

use super::super::arn::Arn;
use super::super::facts::{Function, Secret};
use super::permissions::{Asked, DECRYPT, use_of_key};
use super::{Checked, Context, Remedy, Skip, all, danger, remedy};

const SECRET: &str = "secretsmanager:GetSecretValue";
pub(crate) const PARAMETER: &str = "ssm:GetParameter";

/// The permission to read this secret.
pub(crate) fn reading(arn: &str) -> &'static str {
    if Arn::of(arn).service == "ssm" { PARAMETER } else { SECRET }
}

/// The ARN of a secret ends with a hyphen and six characters. A request for its value may leave
/// them out, but IAM needs the whole ARN. Source: Secrets Manager API reference, `GetSecretValue`.
pub(crate) fn is_whole(arn: &str) -> bool {
    let is_end = |end: &str| end.len() == 6 && end.bytes().all(|byte| byte.is_ascii_alphanumeric());
    reading(arn) == PARAMETER || arn.rsplit_once('-').is_some_and(|(_, end)| is_end(end))
}

pub(super) fn secret_permissions(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    all(function.secrets.iter().flat_map(|secret| {
        if is_missing(function, secret) {
            let found = format!("{} does not exist", secret.arn);
            return vec![danger(found, ["create it, or correct the ARN in the settings"])];
        }
        vec![permission(function, secret), key(context, secret)]
    }))
}

fn permission(function: &Function, Secret { arn, access, .. }: &Secret) -> Checked {
    let consequence =
        ": unless the secret's own policy does, the function does not start".to_owned();
    let (doubt, grants) = if is_whole(arn) {
        (None, grants(function))
    } else {
        (Some("the six characters that Secrets Manager adds to an ARN"), vec![whole(arn)])
    };
    let (needed, place) = ([reading(arn)], format!(" on {arn}"));
    Asked { consequence, doubt, grants, ..Asked::of(access, &needed, place) }.look(function)
}

fn key(context: &Context<'_>, Secret { arn, key, .. }: &Secret) -> Checked {
    let key = key.as_ref()?.as_ref().ok_or(Skip::NotApplicable)?;
    let (service, policy) = if reading(arn) == PARAMETER {
        ("SSM", "requeue-parameter-key")
    } else {
        ("Secrets Manager", "requeue-secret-key")
    };
    use_of_key(context, key, (arn, service), (&[DECRYPT], policy))
}

/// Whether the services of the function's own account know no such secret.
fn is_missing(function: &Function, secret: &Secret) -> bool {
    let is_own = Arn::of(&secret.arn).account == Arn::of(&function.role).account;
    let code = secret.key.as_ref().err().map(|unread| unread.error.code.as_str());
    is_own && matches!(code, Some("ResourceNotFoundException" | "ParameterNotFound"))
}

/// A statement for each service, or the template's parameters that make them. It covers all secrets
/// in the settings, since it replaces the policy of an earlier remedy with this name.
fn grants(function: &Function) -> Vec<Remedy> {
    let services = [
        (SECRET, "requeue-secrets", "SecretArns"),
        (PARAMETER, "requeue-parameters", "ParameterArns"),
    ];
    let (commands, parameters): (Vec<String>, Vec<String>) = services
        .into_iter()
        .filter_map(|(action, policy, parameter)| {
            let there = function.secrets.iter().filter(|secret| !is_missing(function, secret));
            let arns = there.map(|secret| secret.arn.as_str());
            let arns: Vec<&str> =
                arns.filter(|arn| reading(arn) == action && is_whole(arn)).collect();
            let parameter = format!("{parameter}={}", arns.join(","));
            (!arns.is_empty())
                .then(|| (remedy::grant(function, &[action], arns, policy), parameter))
        })
        .unzip();
    let parameters = format!("template, parameters: `{}`", parameters.join(" "));
    vec![Remedy::of(commands), parameters.into()]
}

fn whole(arn: &str) -> Remedy {
    let region = Arn::of(arn).region;
    let show = format!(
        "aws secretsmanager describe-secret --region {region} --secret-id {arn} --query ARN \
         --output text"
    );
    Remedy::from(show).then("settings: the whole ARN that it prints")
}

pub(super) fn stored_text(arn: &str) -> String {
    let region = Arn::of(arn).region;
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

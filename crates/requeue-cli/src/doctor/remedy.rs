//! Commands of AWS's command line and lines of a template, with the real names in them.

use std::fmt::Display;

use requeue::queue::QueueArn;
use serde::Serialize;
use serde_json::json;

use super::arn::Arn;
use super::diagnosis::{Context, Remedy};
use super::facts::{Deployment, Function, Mapping};

/// Of the name of a role's policy. Source: IAM API reference, `PutRolePolicy`.
const LONGEST_NAME: usize = 128;

pub(crate) fn queue_attribute(queue: &QueueArn, name: &str, value: impl Display) -> String {
    set_attributes(queue, format_args!("{name}={value}"))
}

pub(crate) fn queue_policy(queue: &QueueArn, name: &str, value: &serde_json::Value) -> String {
    set_attributes(queue, format_args!("'{}'", json!({ name: value.to_string() })))
}

fn set_attributes(queue: &QueueArn, attributes: impl Display) -> String {
    format!(
        "aws sqs set-queue-attributes --region {} --queue-url {} --attributes {attributes}",
        queue.region(),
        queue.url()
    )
}

pub(crate) fn redrive_policy(queue: &QueueArn, target: &str, max_receive_count: u32) -> String {
    let policy = json!({ "deadLetterTargetArn": target, "maxReceiveCount": max_receive_count });
    queue_policy(queue, "RedrivePolicy", &policy)
}

pub(crate) fn mapping(context: &Context<'_>, mapping: &Mapping, options: &str) -> String {
    let options = format!("--uuid {} {options}", mapping.uuid);
    lambda(context, "update-event-source-mapping", &options)
}

pub(crate) fn lambda(context: &Context<'_>, command: &str, options: &str) -> String {
    format!("aws lambda {command} --region {} {options}", context.region())
}

/// Of the function, whatever its version.
pub(crate) fn function(context: &Context<'_>, name: &str, command: &str, options: &str) -> String {
    lambda(context, command, format!("--function-name {name} {options}").trim_end())
}

/// Changes the configuration. A published version keeps the one that it has.
pub(crate) fn configuration(context: &Context<'_>, function: &Function, options: &str) -> Remedy {
    let of = |command: &str, options| self::function(context, &function.name, command, options);
    // The response would show all variables.
    let options = format!("{options} --query LastUpdateStatus");
    let update = of("update-function-configuration", &options);
    match &function.qualifier {
        Some(qualifier) if qualifier != "$LATEST" => {
            let wait = of("wait function-updated-v2", "");
            let publish = of("publish-version", "--query Version --output text");
            if qualifier.bytes().all(|byte| byte.is_ascii_digit()) {
                let last = format!("point what invokes {qualifier} at the new version");
                return Remedy::of([update, wait, publish, last]);
            }
            let to = format!("--name {qualifier} --function-version $({publish})");
            let release = format!("# {}", of("update-alias", &to));
            let why = "# this releases all other changes of $LATEST, too:".to_owned();
            Remedy::of([update, wait, why, release])
        }
        Some(_) | None => update.into(),
    }
}

pub(crate) fn variable(context: &Context<'_>, name: &str, value: &str) -> String {
    variables(context, &[(name, value)])
}

/// Another key for an encrypted resource: that of the function's other queues, if there is one.
pub(crate) fn another_key(context: &Context<'_>, of: &str) -> String {
    let queues =
        context.deployment.paths.iter().flat_map(|path| {
            [Some(&path.source), path.dead_letters.as_ref(), path.direct.as_ref()]
        });
    let mut keys = queues.flatten().filter_map(|queue| queue.key.as_ref()?.key.as_ref().ok());
    let key = keys.find(|key| key.state == "Enabled").map_or("KEY", |key| &*key.arn);
    match of.parse::<QueueArn>() {
        Ok(queue) => queue_attribute(&queue, "KmsMasterKeyId", key),
        Err(_) => format!("give {of} a key that exists, such as {key}"),
    }
}

/// As lines of the template: AWS's command line can only replace all variables at once. A worker has
/// no template.
pub(crate) fn variables(context: &Context<'_>, values: &[(&str, &str)]) -> String {
    let listed = |separator, quote: &str| {
        let each = values.iter();
        let each =
            each.map(|(name, value)| format!("{quote}REQUEUE_{name}{separator}{value}{quote}"));
        each.collect::<Vec<_>>().join(" and ")
    };
    match context.function() {
        Ok(_) => format!("template, below Environment: Variables: {}", listed(": ", "`")),
        Err(_) => format!("set {} in the environment of `requeue work`", listed("=", "")),
    }
}

/// These parameters of the template; none for a worker.
pub(crate) fn parameters(context: &Context<'_>, parameters: &str) -> Option<Remedy> {
    context.function().ok().map(|_| format!("template, parameters: {parameters}").into())
}

pub(crate) fn widen(function: &Function, actions: &str) -> Remedy {
    let name = Arn::of(&function.role).name();
    let show = format!(
        "aws iam get-role --role-name {name} --query \
         Role.PermissionsBoundary.PermissionsBoundaryArn --output text"
    );
    Remedy::of([show, format!("allow {actions} in the policy that it prints")])
}

/// No permission lets the account itself read the policies of the organization.
pub(crate) fn ask(function: &Function, actions: &str) -> String {
    format!(
        "ask who administers the organization whether its service control policies allow {actions} \
         to {}",
        function.role
    )
}

/// The remedy, which could harm a function that is not one of Requeue.
pub(super) fn of_requeue(deployment: &Deployment, remedy: &Remedy) -> Remedy {
    let is_harm = deployment.lacks_variables() && remedy.has_command();
    let function = deployment.function.as_ref().filter(|_| is_harm);
    function.map_or_else(
        || remedy.clone(),
        |function| remedy.commented(&format!("if {} uses Requeue:", function.name)),
    )
}

/// For a remedy that depends on the mistakes that other checks have found.
pub(crate) fn after(ids: &[&str]) -> Remedy {
    let are = if ids.len() > 1 { "are" } else { "is" };
    format!("after {} {are} fixed: run requeue doctor again", ids.join(" and ")).into()
}

/// Puts a policy of this name into the function's role, and replaces an earlier one. Other functions
/// may share the role, so the policy's name has the function's.
pub(crate) fn grant(
    function: &Function,
    actions: &[&str],
    resource: impl Serialize,
    name: &str,
) -> String {
    let role = Arn::of(&function.role).name();
    let statement = json!({ "Effect": "Allow", "Action": actions, "Resource": resource });
    let policy = json!({ "Version": "2012-10-17", "Statement": [statement] });
    let name: String = format!("{name}-{}", function.name).chars().take(LONGEST_NAME).collect();
    format!(
        "aws iam put-role-policy --role-name {role} --policy-name {name} --policy-document \
         '{policy}'"
    )
}

//! Checks of the function's role. IAM knows the role's own policies; those of a queue and of a key
//! may allow more.

use requeue::{DeadLetterMode, Strategy};
use serde_json::Value;

use super::super::check::Check;
use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::{Access, AccessDecision, EncryptionKey, Reached};
use super::super::remedy;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "queue-permissions",
        why: "With the function's role, Lambda's poller receives and deletes messages, and the \
              function sends copies, deletes originals and changes visibility.",
        look: queue_permissions,
    },
    Check {
        id: "direct-permissions",
        why: "In the mode direct the function sends each message that it gives up to this queue. \
              Without the permission, SQS redelivers that message again and again.",
        look: direct_permissions,
    },
    Check {
        id: "key-permissions",
        why: "If a KMS key encrypts the queue, a receive needs kms:Decrypt on that key, and a send \
              also kms:GenerateDataKey.",
        look: key_permissions,
    },
];

/// The actions of Lambda's poller and of the function on the queue.
pub(crate) const TAKING: [&str; 4] = [
    "sqs:ReceiveMessage",
    "sqs:GetQueueAttributes",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
];
pub(crate) const SENDING: &str = "sqs:SendMessage";
const DECRYPT: &str = "kms:Decrypt";
const ENCRYPT: &str = "kms:GenerateDataKey";
pub(crate) const KEY: [&str; 2] = [DECRYPT, ENCRYPT];

fn queue_permissions(context: &Context<'_>) -> Checked {
    let source = context.source()?;
    let sending = sends(context)?.then_some(SENDING);
    let needed: Vec<&str> = TAKING.into_iter().chain(sending).collect();
    permissions(context, source, &needed)
}

/// Whether the function sends to its source queue. If its settings are unknown, it may.
fn sends(context: &Context<'_>) -> Result<bool, Skip> {
    let is_standard = !context.source()?.arn.is_fifo();
    let needs_none = context.config().is_ok_and(|config| {
        config.strategy == Strategy::Visibility && config.dead_letter != DeadLetterMode::Annotate
    });
    Ok(is_standard && !needs_none)
}

fn direct_permissions(context: &Context<'_>) -> Checked {
    let direct = context.path()?.direct.as_ref().ok_or(Skip::NotApplicable)?;
    permissions(context, direct, &[SENDING])
}

fn permissions(context: &Context<'_>, reached: &Reached, needed: &[&str]) -> Checked {
    let function = context.function()?;
    let access = reached.access.as_ref().ok_or(Skip::NotApplicable)?.as_ref()?;
    let refused = Refused::of(access, needed);
    let name = reached.arn.name();
    let policy = reached.known().and_then(|queue| queue.policy.as_deref());
    let arn = reached.arn.to_string();
    // All actions, since this policy replaces one that an earlier remedy has put under the same
    // name.
    let grant = || [remedy::grant(function, needed, &arn, &policy_name(name))];
    Ok(if !refused.denied.is_empty() {
        let found = format!("the role is denied {} on {name}", refused.denied.join(", "));
        Diagnosis::danger(found, [remedy::NO_DENY])
    } else if !refused.not_allowed.is_empty() {
        let missing = refused.not_allowed.join(", ");
        if policy.is_some_and(|policy| may_grant(policy, &function.role)) {
            let found = format!(
                "not checked: the role's policies do not allow {missing} on {name}, but the \
                 queue's own policy may"
            );
            return Err(Skip::Unknown(Diagnosis::unknown(found, grant())));
        }
        Diagnosis::danger(format!("the role may not {missing} on {name}"), grant())
    } else if !refused.depends.is_empty() {
        let depends = refused.depends.join(", ");
        let found = format!(
            "not checked: conditions in the role's policies decide about {depends} on {name}"
        );
        return Err(Skip::Unknown(Diagnosis::unknown(found, grant())));
    } else {
        Diagnosis::ok(format!("the role may {} on {name}", needed.join(", ")))
    })
}

fn key_permissions(context: &Context<'_>) -> Checked {
    let path = context.path()?;
    let source: &[&str] = if sends(context)? { &KEY } else { &[DECRYPT] };
    let reached = [(Some(&path.source), source), (path.direct.as_ref(), &KEY[..])];
    let looked =
        reached.into_iter().filter_map(|(reached, needed)| Some(key(context, reached?, needed)));
    let level = |looked: &Checked| match looked {
        Ok(diagnosis) | Err(Skip::Unknown(diagnosis)) => Some(diagnosis.level),
        Err(Skip::NotApplicable) => None,
    };
    looked.max_by_key(level).unwrap_or(Err(Skip::NotApplicable))
}

fn key(context: &Context<'_>, reached: &Reached, needed: &[&str]) -> Checked {
    let function = context.function()?;
    let (name, access) = match reached.key.as_ref().ok_or(Skip::NotApplicable)? {
        EncryptionKey::ManagedByAws => {
            return Ok(Diagnosis::ok("the key that AWS manages; the role may use it through SQS"));
        }
        EncryptionKey::Customer { name, access } => (name, access.as_ref()?),
    };
    let Refused { denied, not_allowed, depends } = Refused::of(access, needed);
    let refused = [denied, not_allowed].concat();
    let missing = [refused.as_slice(), &depends].concat().join(" and ");
    let policy = format!("{}-key", policy_name(reached.arn.name()));
    if missing.is_empty() {
        return Ok(Diagnosis::ok(format!("the role may {} with {name}", needed.join(" and "))));
    }
    let (found, remedy) = if is_alias(name) {
        // IAM needs the ARN of a key, and only KMS knows the key of an alias.
        let region = context.region();
        let arn = format!(
            "aws kms describe-key --region {region} --key-id {name} --query KeyMetadata.Arn \
             --output text"
        );
        let (role, actions) = (&function.role, needed.join(" "));
        (
            format!(
                "not checked: the role may not {missing} with every key, and {name} is an alias of \
                 one"
            ),
            format!(
                "aws iam simulate-principal-policy --policy-source-arn {role} --action-names \
                 {actions} --resource-arns $({arn})"
            ),
        )
    } else if refused.is_empty() {
        (
            format!(
                "not checked: conditions in the role's policies decide about {missing} with {name}"
            ),
            remedy::grant(function, needed, name, &policy),
        )
    } else {
        let found = format!(
            "the role's policies do not allow {missing} with {name}: unless the key's own policy \
             does, SQS refuses the role"
        );
        return Ok(Diagnosis::danger(found, [remedy::grant(function, needed, name, &policy)]));
    };
    Err(Skip::Unknown(Diagnosis::unknown(found, [remedy])))
}

fn policy_name(queue: &str) -> String {
    format!("requeue-{}", queue.replace('.', "-"))
}

pub(crate) fn is_alias(key: &str) -> bool {
    key.starts_with("alias/") || key.contains(":alias/")
}

/// The actions that the role may not take, by reason.
#[derive(Default)]
struct Refused<'a> {
    denied: Vec<&'a str>,
    not_allowed: Vec<&'a str>,
    depends: Vec<&'a str>,
}

impl<'a> Refused<'a> {
    fn of(access: &Access, needed: &[&'a str]) -> Self {
        let mut refused = Self::default();
        for action in needed {
            match access.get(*action) {
                Some(AccessDecision::Allowed) => {}
                Some(AccessDecision::Denied) => refused.denied.push(action),
                Some(AccessDecision::NotAllowed) => refused.not_allowed.push(action),
                // IAM's response has a decision for each action.
                Some(AccessDecision::Depends) | None => refused.depends.push(action),
            }
        }
        refused
    }
}

/// Whether a queue's own policy allows anything to this role, or to everybody. An account in the
/// policy is no role.
fn may_grant(policy: &str, role: &str) -> bool {
    let Ok(policy) = serde_json::from_str::<Value>(policy) else { return true };
    let statements = match &policy["Statement"] {
        Value::Array(statements) => statements.as_slice(),
        statement => std::slice::from_ref(statement),
    };
    statements.iter().filter(|statement| statement["Effect"] == "Allow").any(|statement| {
        let principal = &statement["Principal"];
        let principals = match principal.get("AWS").unwrap_or(principal) {
            Value::Array(principals) => principals.as_slice(),
            principal => std::slice::from_ref(principal),
        };
        principals.iter().any(|principal| principal == "*" || principal == role)
    })
}

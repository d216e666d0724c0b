//! Checks of the function's role. IAM knows the role's own policies; those of a queue and of a key
//! are read here, since they may allow and deny more.

use requeue::{DeadLetterMode, Strategy};

use super::super::access_policy::{AccessPolicy, Request, Truth, account};
use super::super::check::Check;
use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::{
    Access, AccessDecision, CustomerKey, EncryptionKey, Function, Limit, Reached,
};
use super::super::remedy;
use super::worst;

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
pub(super) const DECRYPT: &str = "kms:Decrypt";
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
        config.strategy == Strategy::Visibility
            && config.dead_letter != Some(DeadLetterMode::Annotate)
    });
    Ok(is_standard && !needs_none)
}

fn direct_permissions(context: &Context<'_>) -> Checked {
    let direct = context.path()?.direct.as_ref().ok_or(Skip::NotApplicable)?;
    permissions(context, direct, &[SENDING])
}

fn permissions(context: &Context<'_>, reached: &Reached, needed: &[&str]) -> Checked {
    let function = context.function()?;
    let access = reached.access.as_ref().ok_or(Skip::NotApplicable)?;
    let (name, arn) = (reached.arn.name(), reached.arn.to_string());
    let own = reached.known().and_then(|queue| queue.policy.as_deref());
    let show = [format!(
        "aws sqs get-queue-attributes --region {} --queue-url {} --attribute-names Policy, and \
         correct that policy",
        reached.arn.region(),
        reached.arn.url()
    )];
    let Some(policy) = own.map_or_else(|| Some(AccessPolicy::empty()), AccessPolicy::read) else {
        return Err(Skip::not_checked(format!("the policy of {name} cannot be read"), show));
    };
    let request = Request { role: &function.role, action: "", resource: &arn, via: None };
    let by_policy = Stated::of(&policy, needed, request);
    if !by_policy.denied.is_empty() {
        let denied = by_policy.denied.join(", ");
        return Ok(Diagnosis::danger(
            format!("the queue's own policy denies the role {denied} on {name}"),
            show,
        ));
    }
    let refused = Refused::of(access.as_ref()?, needed);
    if let Err(unread) = &reached.queue {
        return Err(unread.into());
    }
    // All actions, since this policy replaces one that an earlier remedy has put under the same
    // name.
    let grant = || [remedy::grant(function, needed, &arn, &policy_name(name))];
    let is_foreign = account(&arn) != account(&function.role);
    let unknown = |found: String, remedies| Err(Skip::not_checked(found, remedies));
    let is_granted = |action: &str| policy.allows(&Request { action, ..request }) > Truth::No;
    if !refused.denied.is_empty() {
        let found = format!("the role is denied {} on {name}", refused.denied.join(", "));
        Ok(Diagnosis::danger(found, [remedy::NO_DENY]))
    } else if let Some((found, remedy)) = refused.limited(function, &format!(" on {name}")) {
        // No boundary limits a policy that names a session of the role.
        let is_bounded =
            |(limit, action): &(Limit, &str)| *limit != Limit::Boundary || !is_granted(action);
        if is_foreign || refused.limited.iter().any(is_bounded) {
            return Ok(Diagnosis::danger(found, [remedy]));
        }
        unknown(format!("{found}, but the queue's own policy may"), [remedy])
    } else if !refused.not_allowed.is_empty() {
        let missing = refused.not_allowed.join(", ");
        if !is_foreign && refused.not_allowed.iter().all(|action| is_granted(action)) {
            let found = format!(
                "the role's policies do not allow {missing} on {name}, but the queue's own policy \
                 may"
            );
            return unknown(found, grant());
        }
        Ok(Diagnosis::danger(format!("the role may not {missing} on {name}"), grant()))
    } else if is_foreign && !by_policy.not_allowed.is_empty() {
        let missing = by_policy.not_allowed.join(", ");
        let found = format!(
            "the queue is of another account, and its own policy does not allow {missing} to the \
             role"
        );
        Ok(Diagnosis::danger(found, show))
    } else if !refused.depends.is_empty() {
        let depends = refused.depends.join(", ");
        let found = format!("conditions in the role's policies decide about {depends} on {name}");
        unknown(found, grant())
    } else if !by_policy.may_deny.is_empty() {
        let depends = by_policy.may_deny.join(", ");
        let found = format!("a Deny in the policy of {name} may concern the role's {depends}");
        unknown(found, show)
    } else if is_foreign && !by_policy.may_allow.is_empty() {
        let depends = by_policy.may_allow.join(", ");
        unknown(format!("conditions in the policy of {name} decide about {depends}"), show)
    } else {
        Ok(Diagnosis::ok(format!("the role may {} on {name}", needed.join(", "))))
    }
}

fn key_permissions(context: &Context<'_>) -> Checked {
    let path = context.path()?;
    let source: &[&str] = if sends(context)? { &KEY } else { &[DECRYPT] };
    let reached = [(Some(&path.source), source), (path.direct.as_ref(), &KEY[..])];
    worst(reached.into_iter().filter_map(|(reached, needed)| {
        let (key, arn) = (reached?.key.as_ref()?, &reached?.arn);
        let (of, policy) = (arn.to_string(), policy_name(arn.name()));
        let used = UsedKey { key, of: &of, service: "SQS", policy: format!("{policy}-key") };
        Some(key_of(context, &used, needed))
    }))
}

/// The key of a queue or a secret.
pub(super) struct UsedKey<'u> {
    pub(super) key: &'u EncryptionKey,
    /// The ARN of the queue or the secret.
    pub(super) of: &'u str,
    pub(super) service: &'static str,
    /// The name of a policy for the role.
    pub(super) policy: String,
}

impl UsedKey<'_> {
    fn part_of_arn(&self, place: usize) -> &str {
        self.of.split(':').nth(place).unwrap_or_default()
    }

    fn region(&self) -> &str {
        self.part_of_arn(3)
    }
}

pub(super) fn key_of(context: &Context<'_>, used: &UsedKey<'_>, needed: &[&str]) -> Checked {
    let function = context.function()?;
    let service = used.service;
    let CustomerKey { name, access, key, policy } = match used.key {
        EncryptionKey::ManagedByAws => {
            let found = format!("the key that AWS manages; the role may use it through {service}");
            return Ok(Diagnosis::ok(found));
        }
        EncryptionKey::Customer(customer) => &**customer,
    };
    let arn = key.as_ref().map_or(name, |key| &key.arn);
    let region = used.region();
    // Other partitions have other names for the service.
    let via = (used.part_of_arn(1) == "aws")
        .then(|| format!("{}.{region}.amazonaws.com", used.part_of_arn(2)));
    let request = Request { role: &function.role, action: "", resource: arn, via: via.as_deref() };
    let show = format!(
        "aws kms get-key-policy --region {region} --key-id {arn} --policy-name default, and \
         correct that policy"
    );
    let unknown = |found: String| Err(Skip::not_checked(found, [show.clone()]));
    let policy = policy.as_ref().map(|policy| AccessPolicy::read(policy));
    let stated = match &policy {
        Ok(Some(policy)) => Some(Stated::of(policy, needed, request)),
        Ok(None) | Err(_) => None,
    };
    if let Some(stated) = &stated {
        if !stated.denied.is_empty() {
            let denied = stated.denied.join(" and ");
            let found = format!("the policy of the key {name} denies the role {denied}");
            return Ok(Diagnosis::danger(found, [show]));
        }
        if !stated.not_allowed.is_empty() {
            let missing = stated.not_allowed.join(" and ");
            let found = format!(
                "the policy of the key {name} neither allows the role {missing} nor leaves that to \
                 IAM: unless a grant does, {service} refuses the role"
            );
            return Ok(Diagnosis::danger(found, [show]));
        }
    }
    let refused = Refused::of(access.as_ref()?, needed);
    let is_granted = |action: &&str| match &policy {
        Ok(Some(policy)) => policy.allows(&Request { action, ..request }) > Truth::No,
        Ok(None) | Err(_) => false,
    };
    let grants = refused.not_allowed.iter().all(is_granted);
    if let Some(diagnosis) = by_role(function, used, (name, arn), &refused, needed, grants)? {
        return Ok(diagnosis);
    }
    let stated = match (stated, policy) {
        (Some(stated), _) => stated,
        (None, Err(unread)) => return Err(unread.into()),
        (None, Ok(_)) => return unknown(format!("the policy of the key {name} cannot be read")),
    };
    let depends = [stated.may_deny, stated.may_allow].concat();
    if !depends.is_empty() {
        let depends = depends.join(" and ");
        return unknown(format!("the policy of the key {name} has conditions about {depends}"));
    }
    Ok(Diagnosis::ok(format!("the role may {} with {name}", needed.join(" and "))))
}

/// A diagnosis by the role's own policies; `None` if they allow everything.
fn by_role(
    function: &Function,
    used: &UsedKey<'_>,
    (name, arn): (&str, &str),
    refused: &Refused<'_>,
    needed: &[&str],
    is_granted_by_key: bool,
) -> Result<Option<Diagnosis>, Skip> {
    let Refused { denied, limited, not_allowed, depends } = refused;
    let limited: Vec<&str> = limited.iter().map(|(_, action)| *action).collect();
    let missing = [denied.as_slice(), &limited, not_allowed, depends].concat().join(" and ");
    if missing.is_empty() {
        return Ok(None);
    }
    if !denied.is_empty() {
        let found = format!("the role is denied {} with {name}", denied.join(" and "));
        return Ok(Some(Diagnosis::danger(found, [remedy::NO_DENY])));
    }
    let bounded = refused.limited(function, &format!(" with {name}"));
    // A boundary may name the key, and the simulation for an alias does not.
    if let Some((found, remedy)) = bounded.filter(|_| !is_alias(arn)) {
        return Ok(Some(Diagnosis::danger(found, [remedy])));
    }
    let policy = &used.policy;
    let (found, remedy) = if is_alias(arn) {
        // IAM needs the ARN of a key, and only KMS knows the key of an alias.
        let region = used.region();
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
    } else if not_allowed.is_empty() {
        (
            format!(
                "not checked: conditions in the role's policies decide about {missing} with {name}"
            ),
            remedy::grant(function, needed, arn, policy),
        )
    } else if is_granted_by_key {
        (
            format!(
                "not checked: the role's policies do not allow {missing} with {name}, but the \
                 key's own policy may"
            ),
            remedy::grant(function, needed, arn, policy),
        )
    } else {
        let found = format!(
            "the role's policies do not allow {missing} with {name}: unless the key's own policy \
             does, {} refuses the role",
            used.service
        );
        let remedies = [remedy::grant(function, needed, arn, policy)];
        return Ok(Some(Diagnosis::danger(found, remedies)));
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
pub(super) struct Refused<'a> {
    pub(super) denied: Vec<&'a str>,
    limited: Vec<(Limit, &'a str)>,
    pub(super) not_allowed: Vec<&'a str>,
    pub(super) depends: Vec<&'a str>,
}

impl<'a> Refused<'a> {
    pub(super) fn of(access: &Access, needed: &[&'a str]) -> Self {
        let mut refused = Self::default();
        for action in needed {
            match access.get(*action) {
                Some(AccessDecision::Allowed) => {}
                Some(AccessDecision::Denied) => refused.denied.push(action),
                Some(AccessDecision::Limited(limit)) => refused.limited.push((*limit, action)),
                Some(AccessDecision::NotAllowed) => refused.not_allowed.push(action),
                // IAM's response has a decision for each action.
                Some(AccessDecision::Depends) | None => refused.depends.push(action),
            }
        }
        refused
    }

    /// The finding about a policy that bounds the role's permissions, and its remedy.
    pub(super) fn limited(&self, function: &Function, place: &str) -> Option<(String, String)> {
        let (limit, _) = *self.limited.first()?;
        let of_limit = self.limited.iter().filter(|(other, _)| *other == limit);
        let actions: Vec<&str> = of_limit.map(|(_, action)| *action).collect();
        let actions = actions.join(", ");
        Some((
            bounded(limit, &format!("{actions}{place}")),
            remedy::widen(function, limit, &actions),
        ))
    }
}

/// The finding about a policy that bounds the role's permissions.
pub(super) fn bounded(limit: Limit, action: &str) -> String {
    let policy = match limit {
        Limit::Boundary => "the role's permissions boundary does not",
        Limit::Organization => "the policies of the organization do not",
    };
    format!("{policy} allow {action}")
}

/// The actions that a queue's or a key's own policy denies the role, or does not allow it.
#[derive(Default)]
struct Stated<'a> {
    denied: Vec<&'a str>,
    may_deny: Vec<&'a str>,
    not_allowed: Vec<&'a str>,
    may_allow: Vec<&'a str>,
}

impl<'a> Stated<'a> {
    fn of(policy: &AccessPolicy, needed: &[&'a str], request: Request<'_>) -> Self {
        let mut stated = Self::default();
        for action in needed.iter().copied() {
            let request = Request { action, ..request };
            match policy.denies(&request) {
                Truth::No => {}
                Truth::Maybe => stated.may_deny.push(action),
                Truth::Yes => stated.denied.push(action),
            }
            match policy.allows(&request).max(policy.delegates(&request)) {
                Truth::No => stated.not_allowed.push(action),
                Truth::Maybe => stated.may_allow.push(action),
                Truth::Yes => {}
            }
        }
        stated
    }
}

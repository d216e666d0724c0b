//! Whether the function's role may do what the function needs: one ladder from a Deny to an Allow, for
//! every kind of resource. IAM knows the role's own policies; those of a queue and of a key are read
//! here, since they may allow and deny more.

use requeue::{DeadLetterMode, Strategy};

use super::super::access_policy::{AccessPolicy, Request, Truth};
use super::super::arn::{Arn, is_alias};
use super::super::facts::{
    Access, AccessDecision, CustomerKey, EncryptionKey, Function, Key, Known, Limit, Reached,
};
use super::{Check, Checked, Context, Diagnosis, Level, Skip, all, remedy};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "queue-permissions",
        why: "With the function's role, Lambda's poller receives and deletes messages, and the \
              function sends copies and dead letters, deletes originals and changes visibility.",
        look: queue_permissions,
    },
    Check {
        id: "key-permissions",
        why: "If a KMS key encrypts the queue, the key has to be enabled; a receive needs kms:Decrypt \
              on it, and a send also kms:GenerateDataKey.",
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
/// The state of a key that KMS does not know.
pub(crate) const NO_KEY: &str = "NotFound";

/// The permissions that the role needs on a resource.
pub(super) struct Asked {
    /// IAM's decision on each action, as a finding names the action.
    pub(super) decisions: Result<Vec<(String, AccessDecision)>, Skip>,
    /// The resource, as in ` on orders`.
    pub(super) place: String,
    /// The resource's own policy, if it has one that the doctor reads.
    pub(super) own: Result<Option<Stated>, Skip>,
    /// The level of a refusal.
    pub(super) level: Level,
    /// The end of the finding that the role's policies do not allow it.
    pub(super) consequence: String,
    /// The reason for a decision that depends.
    pub(super) doubt: &'static str,
    /// Give the role the permissions.
    pub(super) grants: Vec<String>,
}

impl Asked {
    /// On a resource without an own policy.
    pub(super) fn of(access: &Known<Access>, needed: &[&str], place: String) -> Self {
        let decided = |action: &&str| {
            let decision = access.as_ref().ok().and_then(|access| access.get(*action));
            // IAM's response has a decision for each action.
            ((*action).to_owned(), decision.copied().unwrap_or(AccessDecision::Depends))
        };
        let decisions = access.as_ref().map(|_| needed.iter().map(decided).collect());
        Self {
            decisions: decisions.map_err(Skip::from),
            place,
            own: Ok(None),
            level: Level::Danger,
            consequence: String::new(),
            doubt: "conditions in the role's policies",
            grants: Vec::new(),
        }
    }

    /// Denied, not allowed by the resource, limited, not allowed, depends, allowed: the first that
    /// holds for an action.
    pub(super) fn look(self, function: &Function) -> Checked {
        let Self { decisions, place, own, level, consequence, doubt, grants } = self;
        let stated = own.as_ref().ok().and_then(Option::as_ref);
        if let Some(diagnosis) = stated.and_then(Stated::refusal) {
            return Ok(diagnosis);
        }
        let decisions = decisions?;
        let of = |decision| -> Vec<&str> {
            let decided = decisions.iter().filter(move |(_, of)| *of == decision);
            decided.map(|(action, _)| action.as_str()).collect()
        };
        let bad = |found, remedies| Ok(Diagnosis { level, found, remedies });
        let is_granted = |actions: &[&str]| stated.is_some_and(|stated| stated.grants(actions));
        let but = || format!(", but {} may", stated.map_or("", |stated| &stated.subject));
        let denied = of(AccessDecision::Denied).join(", ");
        if !denied.is_empty() {
            return bad(format!("the role is denied {denied}{place}"), vec![NO_DENY.to_owned()]);
        }
        for limit in [Limit::Organization, Limit::Boundary] {
            let actions = of(AccessDecision::Limited(limit));
            if actions.is_empty() {
                continue;
            }
            let limited = actions.join(", ");
            let found = format!("{} allow {limited}{place}", limit.does_not());
            let widen = remedy::widen(function, limit, &limited);
            // No boundary limits a policy that names a session of the role.
            if limit == Limit::Boundary && is_granted(&actions) {
                return Err(Skip::not_checked(format!("{found}{}", but()), [widen]));
            }
            return bad(found, vec![widen]);
        }
        let missing = of(AccessDecision::NotAllowed);
        if !missing.is_empty() {
            let found = format!("the role's policies do not allow {}{place}", missing.join(", "));
            if is_granted(&missing) {
                return Err(Skip::not_checked(format!("{found}{}", but()), grants));
            }
            return bad(format!("{found}{consequence}"), grants);
        }
        let depends = of(AccessDecision::Depends).join(", ");
        if !depends.is_empty() {
            return Err(Skip::not_checked(format!("{depends}{place} depends on {doubt}"), grants));
        }
        if let Some(skip) = own?.as_ref().and_then(Stated::doubt) {
            return Err(skip);
        }
        let allowed = of(AccessDecision::Allowed).join(", ");
        if allowed.is_empty() {
            return Err(Skip::NotApplicable);
        }
        Ok(Diagnosis::ok(format!("the role may {allowed}{place}")))
    }
}

const NO_DENY: &str =
    "remove the Deny from the role's policies, its boundary or the organization's policies";

/// The actions that a resource's own policy denies the role, or does not allow it.
pub(super) struct Stated {
    /// As in `the policy of orders`.
    subject: String,
    /// Shows the policy.
    show: String,
    denied: Vec<String>,
    may_deny: Vec<String>,
    /// Only if this policy has to allow an action or to leave it to the role's account.
    not_allowed: Vec<String>,
    may_allow: Vec<String>,
    /// The actions that it may allow to the role itself, if that is enough.
    granted: Vec<String>,
}

impl Stated {
    /// `None` if the text is no policy.
    fn of(
        text: Option<&str>,
        needed: &[&str],
        request: Request<'_>,
        (subject, show): (String, String),
    ) -> Result<Self, Skip> {
        let policy = text.map_or_else(|| Some(AccessPolicy::empty()), AccessPolicy::read);
        let Some(policy) = policy else {
            return Err(Skip::not_checked(format!("{subject} cannot be read"), [show]));
        };
        let of = |truth: &dyn Fn(&Request<'_>) -> Truth, expected| -> Vec<String> {
            let actions = needed.iter().copied();
            let is = |action: &&str| truth(&Request { action, ..request }) == expected;
            actions.filter(is).map(str::to_owned).collect()
        };
        let denies = |request: &Request<'_>| policy.denies(request);
        let admits = |request: &Request<'_>| policy.allows(request).max(policy.delegates(request));
        let grants = |request: &Request<'_>| Truth::from(policy.allows(request) > Truth::No);
        let is_own = Arn::of(request.resource).account == Arn::of(request.role).account;
        // Nothing but its own policy gives access to a key, or to the queue of another account.
        let has_to_allow = !is_own || Arn::of(request.resource).service == "kms";
        let has_to = |actions| if has_to_allow { actions } else { Vec::new() };
        Ok(Self {
            subject,
            show,
            denied: of(&denies, Truth::Yes),
            may_deny: of(&denies, Truth::Maybe),
            not_allowed: has_to(of(&admits, Truth::No)),
            may_allow: has_to(of(&admits, Truth::Maybe)),
            granted: if is_own { of(&grants, Truth::Yes) } else { Vec::new() },
        })
    }

    fn refusal(&self) -> Option<Diagnosis> {
        let Self { subject, show, denied, not_allowed, .. } = self;
        let found = if !denied.is_empty() {
            format!("{subject} denies the role {}", denied.join(", "))
        } else if !not_allowed.is_empty() {
            let missing = not_allowed.join(", ");
            format!("{subject} neither allows the role {missing} nor leaves that to IAM")
        } else {
            return None;
        };
        Some(Diagnosis::danger(found, [format!("{show}, and correct that policy")]))
    }

    fn doubt(&self) -> Option<Skip> {
        let depends = [self.may_deny.as_slice(), &self.may_allow].concat().join(", ");
        let found = || format!("{} has conditions about {depends}", self.subject);
        (!depends.is_empty()).then(|| Skip::not_checked(found(), [&*self.show]))
    }

    fn grants(&self, actions: &[&str]) -> bool {
        actions.iter().all(|action| self.granted.iter().any(|granted| granted == action))
    }
}

fn queue_permissions(context: &Context<'_>) -> Checked {
    let source = context.source()?;
    let sending = sends(context)?.then_some(SENDING);
    let needed: Vec<&str> = TAKING.into_iter().chain(sending).collect();
    let direct = context.path()?.direct.as_ref();
    let direct = direct.map(|direct| permissions(context, direct, &[SENDING]));
    all([permissions(context, source, &needed)].into_iter().chain(direct))
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

fn permissions(context: &Context<'_>, reached: &Reached, needed: &[&str]) -> Checked {
    let function = context.function()?;
    let access = reached.access.as_ref().ok_or(Skip::NotApplicable)?;
    let (name, arn) = (reached.arn.name(), reached.arn.to_string());
    let show = format!(
        "aws sqs get-queue-attributes --region {} --queue-url {} --attribute-names Policy",
        reached.arn.region(),
        reached.arn.url()
    );
    let request = Request { role: &function.role, action: "", resource: &arn, via: None };
    let own = match &reached.queue {
        Ok(queue) => {
            let policy = queue.as_ref().and_then(|queue| queue.policy.as_deref());
            Stated::of(policy, needed, request, (format!("the policy of {name}"), show)).map(Some)
        }
        Err(unread) => Err(unread.into()),
    };
    // All actions, since this policy replaces one that an earlier remedy has put under the same
    // name.
    let grants = vec![remedy::grant(function, needed, &arn, &policy_name(name))];
    Asked { own, grants, ..Asked::of(access, needed, format!(" on {name}")) }.look(function)
}

fn policy_name(queue: &str) -> String {
    format!("requeue-{}", queue.replace('.', "-"))
}

fn key_permissions(context: &Context<'_>) -> Checked {
    let path = context.path()?;
    let source: &[&str] = if sends(context)? { &KEY } else { &[DECRYPT] };
    // SQS itself moves messages to the dead-letter queue.
    let reached = [
        (path.dead_letters.as_ref(), &[][..]),
        (Some(&path.source), source),
        (path.direct.as_ref(), &KEY),
    ];
    all(reached.into_iter().filter_map(|(reached, needed)| {
        let (key, arn) = (reached?.key.as_ref()?, &reached?.arn);
        let policy = format!("{}-key", policy_name(arn.name()));
        Some(use_of_key(context, key, (&arn.to_string(), "SQS"), (needed, &policy)))
    }))
}

/// Whether the key of the resource `of` is enabled, and the role may use it through a service. `policy` is the name of
/// the policy that would allow it.
pub(super) fn use_of_key(
    context: &Context<'_>,
    key: &EncryptionKey,
    (of, through): (&str, &str),
    (needed, policy): (&[&str], &str),
) -> Checked {
    let EncryptionKey::Customer(customer) = key else {
        let found = format!("the key that AWS manages; the role may use it through {through}");
        return Ok(Diagnosis::ok(found));
    };
    let (Ok(function), [_, ..]) = (context.function(), needed) else {
        return state_of_key(customer, of);
    };
    let CustomerKey { name, access, key, policy: own } = &**customer;
    let arn = key.as_ref().map_or(name, |key| &key.arn);
    let Arn { partition, service, region, .. } = Arn::of(of);
    // Other partitions have other names for the service.
    let via = (partition == "aws").then(|| format!("{service}.{region}.amazonaws.com"));
    let request = Request { role: &function.role, action: "", resource: arn, via: via.as_deref() };
    let subject = format!("the policy of the key {name}");
    let show =
        format!("aws kms get-key-policy --region {region} --key-id {arn} --policy-name default");
    let own = match own {
        Ok(own) => Stated::of(Some(own), needed, request, (subject, show)).map(Some),
        Err(unread) => Err(unread.into()),
    };
    let consequence = format!(": unless the key's own policy does, {through} refuses the role");
    let grants = vec![remedy::grant(function, needed, arn, policy)];
    let mut asked =
        Asked { own, consequence, grants, ..Asked::of(access, needed, format!(" with {name}")) };
    // IAM needs the ARN of a key, and only KMS knows the key of an alias.
    if is_alias(arn) {
        for (_, decision) in asked.decisions.iter_mut().flatten() {
            if !matches!(decision, AccessDecision::Allowed | AccessDecision::Denied) {
                *decision = AccessDecision::Depends;
            }
        }
        asked.doubt = "the key of this alias, which only KMS knows";
        asked.grants = vec![format!(
            "aws iam simulate-principal-policy --policy-source-arn {} --action-names {} \
             --resource-arns $(aws kms describe-key --region {region} --key-id {name} --query \
             KeyMetadata.Arn --output text)",
            function.role,
            needed.join(" ")
        )];
    }
    all([state_of_key(customer, of), asked.look(function)])
}

/// Whether the key of a resource is enabled.
fn state_of_key(CustomerKey { name, key, .. }: &CustomerKey, of: &str) -> Checked {
    let region = Arn::of(of).region;
    let Key { arn, state } = key.as_ref()?;
    let command = |operation| format!("aws kms {operation} --region {region} --key-id {arn}");
    let found = format!("the key {name} of {of} is {state}");
    let remedy = match state.as_str() {
        "Enabled" => return Ok(Diagnosis::ok(found)),
        "" => {
            let found = format!("the key {name} of {of} has no state");
            return Err(Skip::not_checked(found, [command("describe-key")]));
        }
        NO_KEY => {
            let found = format!("the key {name} of {of} does not exist");
            return Ok(Diagnosis::danger(found, [format!("give {of} a key that exists")]));
        }
        "Disabled" => command("enable-key"),
        "PendingDeletion" => {
            format!("{} && {}", command("cancel-key-deletion"), command("enable-key"))
        }
        _ => command("describe-key"),
    };
    Ok(Diagnosis::danger(found, [remedy]))
}

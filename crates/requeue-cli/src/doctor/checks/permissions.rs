//! Whether the function's role may do what the function needs: one ladder from a Deny to an Allow, for
//! every kind of resource. IAM knows the role's own policies; those of a queue and of a key are read
//! here, since they may allow and deny more.

use requeue::{DeadLetterMode, Strategy};

use super::super::access_policy::{AccessPolicy, Request, Truth};
use super::super::arn::{Arn, is_alias};
use super::super::facts::{
    Access, AccessDecision, CustomerKey, EncryptionKey, Function, Key, Known, Reached,
};
use super::{Check, Checked, Context, Diagnosis, Level, Remedy, Skip, all, remedy};

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
pub(super) struct Asked<'a> {
    /// IAM's decision on each action, as a finding names the action.
    pub(super) decisions: Result<Vec<(String, AccessDecision)>, Skip>,
    /// The resource, as in ` on orders`.
    pub(super) place: String,
    /// The resource's own policy, if it has one that the doctor reads.
    pub(super) own: Result<Option<OwnPolicy<'a>>, Skip>,
    /// The level of a refusal.
    pub(super) level: Level,
    /// The end of the finding that the role's policies do not allow it.
    pub(super) consequence: String,
    /// The reason for a decision that depends.
    pub(super) doubt: &'static str,
    /// Give the role the permissions.
    pub(super) grants: Vec<Remedy>,
}

impl Asked<'_> {
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

    /// With a refusal that is no Deny counting as unknown, for the reason `doubt`.
    pub(super) fn in_doubt(mut self, doubt: &'static str, grants: Vec<Remedy>) -> Self {
        for (_, decision) in self.decisions.iter_mut().flatten() {
            if !matches!(decision, AccessDecision::Allowed | AccessDecision::Denied) {
                *decision = AccessDecision::Depends;
            }
        }
        Self { doubt, grants, ..self }
    }

    /// Not allowed by the resource, denied, limited by a boundary, not allowed, by an organization,
    /// depends, allowed: the first that holds for an action.
    pub(super) fn look(self, function: &Function) -> Checked {
        use AccessDecision::{
            Allowed, Denied, Depends, NotAllowed, OutOfBoundary, OutOfOrganization,
        };
        let Self { decisions, place, own, level, consequence, doubt, grants } = self;
        let known = own.as_ref().ok().and_then(Option::as_ref);
        if let Some(diagnosis) = known.and_then(OwnPolicy::refusal) {
            return Ok(diagnosis);
        }
        let decisions = decisions?;
        let of = |decision| -> Vec<&str> {
            let decided = decisions.iter().filter(move |(_, of)| *of == decision);
            decided.map(|(action, _)| action.as_str()).collect()
        };
        let bad = [Denied, OutOfBoundary, NotAllowed, OutOfOrganization, Depends];
        let worst = bad.into_iter().find(|decision| !of(*decision).is_empty()).unwrap_or(Allowed);
        let actions = of(worst);
        let named = actions.join(", ");
        let (found, remedies) = match worst {
            Denied => (format!("the role is denied {named}{place}"), vec![NO_DENY.into()]),
            OutOfBoundary => (
                format!("the role's permissions boundary does not allow {named}{place}"),
                vec![remedy::widen(function, &named)],
            ),
            OutOfOrganization => {
                let found = format!(
                    "IAM's simulation refuses {named}{place} by a policy of the organization, and \
                     may not know the facts of its conditions"
                );
                return Err(Skip::not_checked(found, [remedy::ask(function, &named)]));
            }
            NotAllowed => (format!("the role's policies do not allow {named}{place}"), grants),
            Depends => {
                let found = format!("{named}{place} depends on {doubt}");
                return Err(Skip::not_checked(found, grants));
            }
            Allowed => {
                return match own?.as_ref().and_then(OwnPolicy::doubt) {
                    Some(skip) => Err(skip),
                    None if named.is_empty() => Err(Skip::NotApplicable),
                    None => Ok(Diagnosis::ok(format!("the role may {named}{place}"))),
                };
            }
        };
        // No boundary limits a policy that names a session of the role.
        let may_be_granted = matches!(worst, NotAllowed | OutOfBoundary);
        if let Some(own) = known.filter(|own| may_be_granted && own.grants(&actions)) {
            return Err(Skip::not_checked(format!("{found}, but {} may", own.subject), remedies));
        }
        let consequence = if worst == NotAllowed { consequence } else { String::new() };
        Ok(Diagnosis { level, found: format!("{found}{consequence}"), remedies })
    }
}

const NO_DENY: &str = "remove the Deny from the role's policies or its boundary";

/// A resource's own policy.
pub(super) struct OwnPolicy<'a> {
    policy: AccessPolicy,
    /// The role's request, without an action.
    request: Request<'a>,
    needed: &'a [&'a str],
    /// As in `the policy of orders`.
    subject: String,
    /// Shows the policy.
    show: String,
}

impl<'a> OwnPolicy<'a> {
    /// An error if the text is no policy.
    fn of(
        text: Option<&str>,
        needed: &'a [&'a str],
        request: Request<'a>,
        (subject, show): (String, String),
    ) -> Result<Self, Skip> {
        match text.map_or_else(|| Some(AccessPolicy::empty()), AccessPolicy::read) {
            Some(policy) => Ok(Self { policy, request, needed, subject, show }),
            None => Err(Skip::not_checked(format!("{subject} cannot be read"), [show])),
        }
    }

    fn is_of_own_account(&self) -> bool {
        Arn::of(self.request.resource).account == Arn::of(self.request.role).account
    }

    /// The needed actions for which `is` holds.
    fn actions(&self, is: impl Fn(&Request<'_>) -> bool) -> String {
        let needed = self.needed.iter().copied();
        let actions = needed.filter(|action| is(&Request { action, ..self.request }));
        actions.collect::<Vec<_>>().join(", ")
    }

    /// Whether the policy allows the request, or leaves it to the role's account. Nothing else gives
    /// access to a key, or to the queue of another account.
    fn admits(&self, request: &Request<'_>) -> Truth {
        let has_to = !self.is_of_own_account() || Arn::of(request.resource).service == "kms";
        let admits = self.policy.allows(request).max(self.policy.delegates(request));
        if has_to { admits } else { Truth::Yes }
    }

    fn refusal(&self) -> Option<Diagnosis> {
        let Self { policy, subject, show, .. } = self;
        let denied = self.actions(|request| policy.denies(request) == Truth::Yes);
        let missing = self.actions(|request| self.admits(request) == Truth::No);
        let found = if !denied.is_empty() {
            format!("{subject} denies the role {denied}")
        } else if !missing.is_empty() {
            format!("{subject} neither allows the role {missing} nor leaves that to IAM")
        } else {
            return None;
        };
        Some(Diagnosis::danger(
            found,
            [Remedy::from(show).then("correct the policy that it prints")],
        ))
    }

    fn doubt(&self) -> Option<Skip> {
        let Self { policy, subject, show, .. } = self;
        let depends = self.actions(|request| {
            policy.denies(request) == Truth::Maybe || self.admits(request) == Truth::Maybe
        });
        let found = || format!("{subject} has conditions about {depends}");
        (!depends.is_empty()).then(|| Skip::not_checked(found(), [&**show]))
    }

    /// Whether the policy may allow all these to the role itself, and that is enough.
    fn grants(&self, actions: &[&str]) -> bool {
        let may =
            |action: &&str| self.policy.allows(&Request { action, ..self.request }) > Truth::No;
        self.is_of_own_account() && actions.iter().all(may)
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
            OwnPolicy::of(policy, needed, request, (format!("the policy of {name}"), show))
                .map(Some)
        }
        Err(unread) => Err(unread.into()),
    };
    // All actions, since this policy replaces one that an earlier remedy has put under the same
    // name.
    let grants = vec![remedy::grant(function, needed, &arn, &policy_name(name)).into()];
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
    let access = access.as_ref().ok_or(Skip::NotApplicable)?;
    let arn = key.as_ref().map_or(name, |key| &key.arn);
    let Arn { partition, service, region, .. } = Arn::of(of);
    // Other partitions have other names for the service.
    let via = (partition == "aws").then(|| format!("{service}.{region}.amazonaws.com"));
    let request = Request { role: &function.role, action: "", resource: arn, via: via.as_deref() };
    let subject = format!("the policy of the key {name}");
    let show =
        format!("aws kms get-key-policy --region {region} --key-id {arn} --policy-name default");
    let own = match own {
        Ok(own) => OwnPolicy::of(Some(own), needed, request, (subject, show)).map(Some),
        Err(unread) => Err(unread.into()),
    };
    let consequence = format!(": unless the key's own policy does, {through} refuses the role");
    let grants = vec![remedy::grant(function, needed, arn, policy).into()];
    let mut asked =
        Asked { own, consequence, grants, ..Asked::of(access, needed, format!(" with {name}")) };
    // IAM needs the ARN of a key, and only KMS knows the key of an alias.
    if is_alias(arn) {
        let simulate = format!(
            "aws iam simulate-principal-policy --policy-source-arn {} --action-names {} \
             --resource-arns $(aws kms describe-key --region {region} --key-id {name} --query \
             KeyMetadata.Arn --output text)",
            function.role,
            needed.join(" ")
        );
        asked =
            asked.in_doubt("the key of this alias, which only KMS knows", vec![simulate.into()]);
    }
    all([state_of_key(customer, of), asked.look(function)])
}

/// Whether the key of a resource is enabled.
fn state_of_key(CustomerKey { name, key, .. }: &CustomerKey, of: &str) -> Checked {
    let region = Arn::of(of).region;
    let Key { arn, state } = key.as_ref()?;
    let command =
        |operation| Remedy::from(format!("aws kms {operation} --region {region} --key-id {arn}"));
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
        "PendingDeletion" => command("cancel-key-deletion").then(&*command("enable-key")),
        _ => command("describe-key"),
    };
    Ok(Diagnosis::danger(found, [remedy]))
}

//! Whether the function's role has the permissions that the function needs, by the same order of
//! decisions for every resource. IAM knows the role's own policies; those of queues and keys, which
//! may allow and deny more, are read.

use requeue::{DeadLetterMode, Strategy};

use super::super::access_policy::{AccessPolicy, Request, Truth};
use super::super::arn::{Arn, is_alias};
use super::super::facts::{
    Access, AccessDecision, CustomerKey, Function, Key, Known, Reached, Unread,
};
use super::dead_letters::{dead_letters, direct};
use super::{Checked, Context, Level, Remedy, Skip, all, at, danger, not_checked, ok, remedy};

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

pub(super) struct Asked<'a> {
    pub(super) access: &'a Known<Access>,
    pub(super) needed: &'a [&'a str],
    /// The resource, as in ` on orders`.
    pub(super) place: String,
    /// The resource's own policy, if it has one that the doctor reads.
    pub(super) own: Result<Option<OwnPolicy<'a>>, Skip>,
    pub(super) level: Level,
    /// The end of the finding that the role's policies do not allow it.
    pub(super) consequence: String,
    /// The reason for which a refusal that is no Deny counts as unknown.
    pub(super) doubt: Option<&'static str>,
    pub(super) grants: Vec<Remedy>,
}

impl<'a> Asked<'a> {
    /// On a resource without an own policy.
    pub(super) fn of(access: &'a Known<Access>, needed: &'a [&'a str], place: String) -> Self {
        let (consequence, grants) = (String::new(), Vec::new());
        let (own, level) = (Ok(None), Level::Danger);
        Self { access, needed, place, own, level, consequence, doubt: None, grants }
    }

    /// Refused by the resource, or else by the first [`AccessDecision`] of an action.
    pub(super) fn look(self, function: &Function) -> Checked {
        use AccessDecision::{
            Allowed, Denied, Depends, NotAllowed, OutOfBoundary, OutOfOrganization,
        };
        let Self { access, needed, place, own, level, consequence, doubt, grants } = self;
        let known = own.as_ref().ok().and_then(Option::as_ref);
        if let Some(refused) = known.and_then(OwnPolicy::refusal) {
            return refused;
        }
        // If there is no such role, the check `function-state` reports it.
        let unknown = |unread| {
            if is_gone(unread) { Skip::NotApplicable } else { unread.into() }
        };
        let access = access.as_ref().map_err(unknown)?;
        let decision = |action: &&str| match access.get(*action) {
            // IAM's response has a decision for each action.
            None => Depends,
            Some(decision @ (Allowed | Denied)) => *decision,
            Some(decision) => doubt.map_or(*decision, |_| Depends),
        };
        let Some(worst) = needed.iter().map(decision).min() else {
            return Err(Skip::NotApplicable);
        };
        let actions = needed.iter().copied().filter(|action| decision(action) == worst);
        let actions: Vec<&str> = actions.collect();
        let named = actions.join(", ");
        let what = format!("{named}{place}");
        let (found, remedies) = match worst {
            Denied => (format!("the role is denied {what}"), vec![NO_DENY.into()]),
            OutOfBoundary => (
                format!("the role's permissions boundary does not allow {what}"),
                vec![remedy::widen(function, &named)],
            ),
            NotAllowed => (format!("the role's policies do not allow {what}"), grants),
            OutOfOrganization => {
                let found = format!(
                    "IAM's simulation refuses {what} by a policy of the organization, and may not \
                     know the facts of its conditions"
                );
                return Err(not_checked(found, [remedy::ask(function, &named)]));
            }
            Depends => {
                let doubt = doubt.unwrap_or("conditions in the role's policies");
                return Err(not_checked(format!("{what} depends on {doubt}"), grants));
            }
            Allowed => {
                let doubt = own?.as_ref().and_then(OwnPolicy::doubt);
                return doubt.map_or_else(|| ok(format!("the role may {what}")), Err);
            }
        };
        // No boundary limits a policy that names a session of the role.
        if let Some(own) = known.filter(|own| worst != Denied && own.grants(&actions)) {
            return Err(not_checked(format!("{found}, but {} may", own.subject), remedies));
        }
        let consequence = if worst == NotAllowed { &*consequence } else { "" };
        at(level, format!("{found}{consequence}"), remedies)
    }
}

/// Whether IAM knows no such role.
pub(super) fn is_gone(unread: &Unread) -> bool {
    unread.error.code == "NoSuchEntity"
}

const NO_DENY: &str = "remove the Deny from the role's policies or its boundary";

pub(super) struct OwnPolicy<'a> {
    policy: AccessPolicy,
    /// The role's request, without an action.
    request: Request<'a>,
    needed: &'a [&'a str],
    /// As in `the policy of orders`.
    subject: String,
    show: String,
}

impl<'a> OwnPolicy<'a> {
    /// An error if the text is unknown, or no policy.
    fn of(
        text: Result<Option<&str>, &Unread>,
        needed: &'a [&'a str],
        request: Request<'a>,
        (subject, show): (String, String),
    ) -> Result<Option<Self>, Skip> {
        match text?.map_or_else(|| Some(AccessPolicy::empty()), AccessPolicy::read) {
            Some(policy) => Ok(Some(Self { policy, request, needed, subject, show })),
            None => Err(not_checked(format!("{subject} cannot be read"), [show])),
        }
    }

    fn is_of_own_account(&self) -> bool {
        Arn::of(self.request.resource).account == Arn::of(self.request.role).account
    }

    fn actions(&self, is: impl Fn(&Request<'_>) -> bool) -> String {
        let needed = self.needed.iter().copied();
        let actions = needed.filter(|action| is(&Request { action, ..self.request }));
        actions.collect::<Vec<_>>().join(", ")
    }

    /// Whether the policy allows the request, or leaves it to the role's account. Nothing else
    /// gives access to a key, or to the queue of another account.
    fn admits(&self, request: &Request<'_>) -> Truth {
        let has_to = !self.is_of_own_account() || Arn::of(request.resource).service == "kms";
        let admits = self.policy.allows(request).max(self.policy.delegates(request));
        if has_to { admits } else { Truth::Yes }
    }

    fn refusal(&self) -> Option<Checked> {
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
        Some(danger(found, [Remedy::from(show).then("correct the policy that it prints")]))
    }

    fn doubt(&self) -> Option<Skip> {
        let Self { policy, subject, show, .. } = self;
        let depends = self.actions(|request| {
            policy.denies(request) == Truth::Maybe || self.admits(request) == Truth::Maybe
        });
        let found = || format!("{subject} has conditions about {depends}");
        (!depends.is_empty()).then(|| not_checked(found(), [&**show]))
    }

    /// Whether the policy may allow all these to the role itself, and that is enough.
    fn grants(&self, actions: &[&str]) -> bool {
        let may =
            |action: &&str| self.policy.allows(&Request { action, ..self.request }) > Truth::No;
        self.is_of_own_account() && actions.iter().all(may)
    }
}

pub(super) fn queue_permissions(context: &Context<'_>) -> Checked {
    let source = context.source()?;
    let sending = sends(context)?.then_some(SENDING);
    let needed: Vec<&str> = TAKING.into_iter().chain(sending).collect();
    let direct = direct(context).and_then(|direct| permissions(context, direct, &[SENDING]));
    all([permissions(context, source, &needed), direct])
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
    let (name, arn) = (reached.arn.name(), reached.arn.to_string());
    let show = format!(
        "aws sqs get-queue-attributes --region {} --queue-url {} --attribute-names Policy",
        reached.arn.region(),
        reached.arn.url()
    );
    let request = Request { role: &function.role, action: "", resource: &arn, via: None };
    let policy = reached.queue.as_ref();
    let policy = policy.map(|queue| queue.as_ref().and_then(|queue| queue.policy.as_deref()));
    let own = OwnPolicy::of(policy, needed, request, (format!("the policy of {name}"), show));
    // All actions, since this policy replaces one of an earlier remedy with the same name.
    let grants = vec![remedy::grant(function, needed, &arn, &policy_name(name)).into()];
    Asked { own, grants, ..Asked::of(&reached.access, needed, format!(" on {name}")) }
        .look(function)
}

fn policy_name(queue: &str) -> String {
    format!("requeue-{}", queue.replace('.', "-"))
}

pub(super) fn key_permissions(context: &Context<'_>) -> Checked {
    let path = context.path()?;
    let source: &[&str] = if sends(context)? { &KEY } else { &[DECRYPT] };
    // SQS itself moves messages to the dead-letter queue.
    let reached = [
        (dead_letters(context).ok(), &[][..]),
        (Some(&path.source), source),
        (direct(context).ok(), &KEY),
    ];
    all(reached.into_iter().filter_map(|(reached, needed)| {
        let (key, arn) = (reached?.key.as_ref()?, &reached?.arn);
        let policy = format!("{}-key", policy_name(arn.name()));
        Some(use_of_key(context, key, (&arn.to_string(), "SQS"), (needed, &policy)))
    }))
}

/// Whether the key of the resource `of` is enabled, and the role may use it through a service.
/// `own_name` is the name of the policy that would allow it.
pub(super) fn use_of_key(
    context: &Context<'_>,
    customer: &CustomerKey,
    (of, through): (&str, &str),
    (needed, own_name): (&[&str], &str),
) -> Checked {
    let CustomerKey { name, access, key, policy } = customer;
    let arn = key.as_ref().map_or(name, |key| &key.arn);
    // Only KMS knows the key of such an alias. Another key is to replace one that does not exist.
    let is_hidden = is_alias(arn) || key.as_ref().is_ok_and(|key| key.state == NO_KEY);
    let (Ok(function), [_, ..], false) = (context.function(), needed, is_hidden) else {
        return state_of_key(context, customer, of);
    };
    let Arn { partition, service, region, .. } = Arn::of(of);
    // Other partitions have other names for the service.
    let via = (partition == "aws").then(|| format!("{service}.{region}.amazonaws.com"));
    let request = Request { role: &function.role, action: "", resource: arn, via: via.as_deref() };
    let show =
        format!("aws kms get-key-policy --region {region} --key-id {arn} --policy-name default");
    let told = (format!("the policy of the key {name}"), show);
    let own = OwnPolicy::of(policy.as_ref().map(|text| Some(&**text)), needed, request, told);
    let consequence = format!(": unless the key's own policy does, {through} refuses the role");
    let grants = vec![remedy::grant(function, needed, arn, own_name).into()];
    let asked = Asked::of(access, needed, format!(" with {name}"));
    all([
        state_of_key(context, customer, of),
        Asked { own, consequence, grants, ..asked }.look(function),
    ])
}

/// Whether the key of a resource is enabled.
fn state_of_key(
    context: &Context<'_>,
    CustomerKey { name, key, .. }: &CustomerKey,
    of: &str,
) -> Checked {
    let region = Arn::of(of).region;
    let Key { arn, state } = key.as_ref()?;
    let command =
        |operation| Remedy::from(format!("aws kms {operation} --region {region} --key-id {arn}"));
    let found = format!("the key {name} of {of} is {state}");
    let remedy = match state.as_str() {
        "Enabled" => return ok(found),
        "" => {
            let found = format!("the key {name} of {of} has no state");
            return Err(not_checked(found, [command("describe-key")]));
        }
        NO_KEY => {
            let found = format!("the key {name} of {of} does not exist");
            return danger(found, [remedy::another_key(context, of)]);
        }
        "Disabled" => command("enable-key"),
        "PendingDeletion" => command("cancel-key-deletion").then(&*command("enable-key")),
        _ => command("describe-key"),
    };
    danger(found, [remedy])
}

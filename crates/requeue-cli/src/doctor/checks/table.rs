//! The table that the execution environments share, and the rate limit that they share by it.

use requeue::policy::KeyLimit;

use super::super::facts::{Mapping, Table, TableProperties};
use super::permissions::{Asked, DECRYPT, use_of_key};
use super::{Checked, Context, Level, Remedy, Skip, all, at, danger, ok, remedy, warning};
use crate::document::places_for_tenants;
use crate::table::{counted, messages, span, thousands};

pub(crate) const USING: [&str; 2] = ["dynamodb:GetItem", "dynamodb:UpdateItem"];
const KEY: &str = "id (S)";
const EXPIRES: &str = "expires";

fn of_table<'d>(context: &Context<'d>) -> Result<&'d Table, Skip> {
    context.deployment.table.as_ref().ok_or(Skip::NotApplicable)
}

/// The properties. If there is no such table, the check `table` reports it.
fn properties<'d>(context: &Context<'d>) -> Result<&'d TableProperties, Skip> {
    of_table(context)?.properties.as_ref()?.as_ref().ok_or(Skip::NotApplicable)
}

fn create(context: &Context<'_>, name: &str) -> String {
    let region = context.region();
    format!(
        "aws dynamodb create-table --region {region} --table-name {name} --billing-mode \
         PAY_PER_REQUEST --attribute-definitions AttributeName=id,AttributeType=S --key-schema \
         AttributeName=id,KeyType=HASH"
    )
}

fn of_template(context: &Context<'_>) -> Option<Remedy> {
    remedy::parameters(context, "`SharedTable=dynamodb`")
}

pub(super) fn table(context: &Context<'_>) -> Checked {
    all([usable(context), expiry(context)])
}

fn usable(context: &Context<'_>) -> Checked {
    let Table { name, properties, .. } = of_table(context)?;
    let region = context.region();
    let Some(TableProperties { status, key }) = properties.as_ref()? else {
        let found = format!("there is no table {name} in {region}");
        let create = Remedy::from(create(context, name));
        return danger(found, [create].into_iter().chain(of_template(context)));
    };
    if *key != [KEY] {
        let found = format!("the key of {name} is {}, and must be {KEY} alone", key.join(", "));
        let other = format!("{name}-id");
        let variable = remedy::variable(context, "TABLE", &other);
        let create = Remedy::of([create(context, &other), variable]);
        return danger(found, [create].into_iter().chain(of_template(context)));
    }
    let is_usable = ["ACTIVE", "UPDATING"].contains(&status.as_str());
    let level = if is_usable { Level::Ok } else { Level::Danger };
    let wait =
        format!("aws dynamodb describe-table --region {region} --table-name {name} --query Table");
    let told =
        "wait until its TableStatus is ACTIVE; if its key is inaccessible, enable the KMS key";
    at(level, format!("{name} is {status}"), [Remedy::of([&*wait, told])])
}

fn expiry(context: &Context<'_>) -> Checked {
    properties(context)?;
    let Table { name, expiry, .. } = of_table(context)?;
    let set = |attribute: &str, is_on: bool| {
        format!(
            "aws dynamodb update-time-to-live --region {} --table-name {name} \
             --time-to-live-specification Enabled={is_on},AttributeName={attribute}",
            context.region()
        )
    };
    match expiry.as_ref()?.as_deref() {
        Some(EXPIRES) => ok(format!("items expire by {EXPIRES}")),
        Some(other) => warning(
            format!("items expire by {other}, and the function writes {EXPIRES}"),
            [Remedy::from(set(other, false)).then("once that is done:").then(set(EXPIRES, true))],
        ),
        None => warning(
            format!("items of {name} never expire: its time to live is off"),
            [set(EXPIRES, true)],
        ),
    }
}

pub(super) fn table_permissions(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let Table { name, arn, access, key, properties, .. } = of_table(context)?;
    // Another table is to replace this one, see the check `table`.
    if properties.as_ref().is_ok_and(|is| is.as_ref().is_none_or(|is| is.key != [KEY])) {
        return Err(Skip::NotApplicable);
    }
    let consequence =
        ": unless the table's own policy does, the function does without the table".to_owned();
    // Both actions, since this policy replaces one that an earlier remedy has put under the name.
    let grants = vec![remedy::grant(function, &USING, arn, "requeue-table").into()];
    let asked = Asked::of(access, &USING, format!(" on {name}"));
    let key = key
        .as_ref()
        .map(|key| use_of_key(context, key, (arn, "DynamoDB"), (&[DECRYPT], "requeue-table-key")));
    all([Asked { consequence, grants, ..asked }.look(function)].into_iter().chain(key))
}

pub(super) fn rate_limit(context: &Context<'_>) -> Checked {
    all([shared_limit(context), room_for_tenants(context)])
}

fn shared_limit(context: &Context<'_>) -> Checked {
    // An unknown policy is a finding of `settings`.
    let policy = context.policy().map_err(|_| Skip::NotApplicable)?;
    let total = policy.limit.map(|limit| (limit, policy.units.is_some(), String::new()));
    let of_key = policy.key_limits.first().map(|KeyLimit { key, limit, units, .. }| {
        (*limit, units.is_some(), format!(" of each {key}"))
    });
    let (limit, has_units, each) = total.or_else(|| of_key.clone()).ok_or(Skip::NotApplicable)?;
    let alone = match (&policy.fair_shares, of_key) {
        _ if context.deployment.table.is_some() => None,
        (Some(_), _) => Some(
            "the policy has fairBy, but the function has no table: each execution environment \
             shares its own calls between the tenants that it knows"
                .to_owned(),
        ),
        (None, Some((.., each))) => Some(format!(
            "the policy has a limit{each}, but the function has no table: each execution environment \
             allows the whole limit"
        )),
        (None, None) => None,
    };
    if let Some(alone) = alone {
        context.function()?;
        return warning(alone, of_template(context));
    }
    let shared_table = context.config()?.shared_table.as_ref().ok_or(Skip::NotApplicable)?;
    let (shares, calls, period) =
        (shared_table.max_environments, u64::from(limit.limit), span(limit.period));
    let unit = if has_units { "unit" } else { "call" };
    let told = format!("{}{each} in {period} for all together", counted(calls, unit));
    match environments(context) {
        Some(most) if most > shares => warning(
            format!(
                "{told}; but REQUEUE_MAX_ENVIRONMENTS is {}, and {} batches run at a time: while the \
                 table does not respond, up to {} {unit}s{each} in {period}",
                thousands(shares),
                thousands(most),
                thousands((calls * u64::from(most)).div_ceil(u64::from(shares.max(1))))
            ),
            [remedy::variable(context, "MAX_ENVIRONMENTS", &most.to_string())],
        ),
        _ => ok(format!(
            "{told}; while the table does not respond, an environment without recent calls makes \
             one{each} in {}",
            span(limit.interval().saturating_mul(shares))
        )),
    }
}

/// If tenants do not all fit, the rest wait in the queue, in which tenants have no shares.
fn room_for_tenants(context: &Context<'_>) -> Checked {
    of_table(context)?;
    let policy = context.policy().map_err(|_| Skip::NotApplicable)?;
    let needed = places_for_tenants(policy).ok_or(Skip::NotApplicable)?;
    let most = u64::from(environments(context).ok_or(Skip::NotApplicable)?);
    let batch = context.mappings().map(|mapping| u64::from(mapping.batch_size)).max();
    let concurrency = u64::try_from(context.config()?.limits.concurrency).unwrap_or(u64::MAX);
    let places = most * concurrency.min(batch.unwrap_or(u64::MAX));
    if places >= needed {
        return ok(format!("{} at a time leave room for other tenants", messages(places)));
    }
    let found = format!(
        "the policy has fairBy, but only {} are handled at a time: with fewer than {}, twice the \
         calls of maxReservationSeconds, the backlog of one tenant makes others wait in the queue",
        messages(places),
        thousands(needed)
    );
    let enough = needed.div_ceil((places / most).max(1));
    let scaling = format!("--scaling-config MaximumConcurrency={enough}");
    let more = context.mappings().map(|mapping| remedy::mapping(context, mapping, &scaling));
    warning(found, more.chain(["policy: `\"maxReservationSeconds\": 1`".to_owned()]))
}

/// The most execution environments at a time; `None` without a limit.
fn environments(context: &Context<'_>) -> Option<u32> {
    let by_mappings: Option<u32> = context.mappings().map(Mapping::most_batches).sum();
    let function = context.function().ok();
    let reserved = function.and_then(|function| *function.reserved_concurrency.as_ref().ok()?);
    by_mappings.into_iter().chain(reserved).filter(|most| *most > 0).min()
}

//! The existing function that the function invokes with its messages.

use std::time::Duration;

use requeue::queue::MAX_RUN;

use super::super::arn::{function_name, own_arn, qualifier};
use super::super::facts::{Function, InvokedFunction, TargetProperties};
use super::function::readiness;
use super::permissions::Asked;
use super::{
    ASK, Checked, Context, LOWER, Level, Remedy, Skip, at, danger, lengthen, ok, remedy, warning,
};
use crate::table::span;

/// The actions of the function on its target. Without the second it does not know its timeout.
pub(crate) const INVOKING: [&str; 2] = ["lambda:InvokeFunction", "lambda:GetFunctionConfiguration"];
/// For the start of an execution environment, and the way to Lambda and back.
const START: Duration = Duration::from_secs(5);

/// The target. If it is the function itself, the check `target` reports it.
fn of<'d>(context: &Context<'d>) -> Result<&'d InvokedFunction, Skip> {
    let target = context.deployment.target.as_ref();
    target.filter(|target| !is_itself(context, &target.name)).ok_or(Skip::NotApplicable)
}

/// Whether it is the name or an ARN of the function, with or without a version or an alias.
fn is_itself(context: &Context<'_>, target: &str) -> bool {
    let Ok(Function { name, role, .. }) = context.function() else { return false };
    let arn = own_arn(name, "lambda", context.region(), role, "function:");
    let partial = arn.splitn(5, ':').last().unwrap_or_default();
    let rests = [name, &*arn, partial].map(|own| target.strip_prefix(own));
    rests.into_iter().flatten().any(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// The properties. If there is no such function, the check `target` reports it.
fn properties<'d>(context: &Context<'d>) -> Result<&'d TargetProperties, Skip> {
    of(context)?.properties.as_ref()?.as_ref().ok_or(Skip::NotApplicable)
}

/// Concurrent calls of one batch, and calls in sequence.
fn calls(context: &Context<'_>, batch: u32) -> Result<(u32, u32), Skip> {
    let most = u32::try_from(context.config()?.limits.concurrency).unwrap_or(u32::MAX).max(1);
    let calls = batch.div_ceil(of(context)?.messages_per_call.max(1));
    Ok((calls.min(most), calls.div_ceil(most)))
}

/// The most calls at a time; `None` if nothing limits the batches. A worker counts as one batch.
fn most_calls(context: &Context<'_>) -> Result<Option<u32>, Skip> {
    if context.function().is_err() {
        return Ok(Some(u32::try_from(context.config()?.limits.concurrency).unwrap_or(u32::MAX)));
    }
    let reserved = *context.function()?.reserved_concurrency.as_ref()?;
    let reserved = reserved.filter(|most| *most > 0);
    let mut most = Some(0);
    for mapping in context.mappings() {
        let calls = calls(context, mapping.batch_size)?.0;
        let batches = mapping.most_batches().into_iter().chain(reserved).min();
        most = most
            .zip(batches)
            .map(|(most, batches): (u32, u32)| most.saturating_add(batches.saturating_mul(calls)));
    }
    // Without a mapping there is nothing to check.
    if most == Some(0) { Err(Skip::NotApplicable) } else { Ok(most) }
}

pub(super) fn target(context: &Context<'_>) -> Checked {
    let target = context.deployment.target.as_ref().ok_or(Skip::NotApplicable)?;
    let InvokedFunction { name, properties, .. } = target;
    let other = |value| remedy::variable(context, "TARGET_FUNCTION", value);
    if is_itself(context, name) {
        let found = "REQUEUE_TARGET_FUNCTION is this function itself: each message would invoke it \
                     again and again";
        return danger(found, [other("NAME")]);
    }
    let Some(TargetProperties { state, isolates_tenants, is_durable, .. }) = properties.as_ref()?
    else {
        let found = format!("there is no function {name} in {}", context.region());
        let list = "--query 'Functions[].FunctionName' --output text";
        let list = Remedy::from(remedy::lambda(context, "list-functions", list));
        return danger(found, [list.then(other("NAME"))]);
    };
    if *isolates_tenants {
        let found = format!(
            "{name} isolates tenants, which Requeue does not support: Lambda invokes such a function \
             only with a tenant id"
        );
        return danger(found, [other("NAME")]);
    }
    if *is_durable && qualifier(name, function_name(name)).is_none() {
        let found = format!(
            "{name} is a durable function, and Lambda invokes it only by a version or an alias"
        );
        return danger(found, [other(&format!("{name}:ALIAS"))]);
    }
    let (level, command) = readiness(state);
    // Only a call activates it.
    let level = if state.state.as_deref() == Some("Inactive") { Level::Danger } else { level };
    let found = format!("the state of {name} is {}", state.told());
    at(level, found, [remedy::function(context, name, command, "")])
}

/// The calls in sequence, and the time that they take.
fn rounds(context: &Context<'_>) -> Result<(u32, Duration), Skip> {
    let (target, mut rounds) = (properties(context)?.timeout, 1);
    for mapping in context.mappings() {
        rounds = rounds.max(calls(context, mapping.batch_size)?.1);
    }
    Ok((rounds, (target + START) * rounds))
}

/// The timeout that the calls need, if the function's is too short and Lambda allows this one.
pub(super) fn longer(context: &Context<'_>) -> Result<Option<Duration>, Skip> {
    let (function, (_, time)) = (context.function()?, rounds(context)?);
    let reserve = context.config()?.limits.reserve;
    let is_short = time + reserve.min(function.timeout / 4) > function.timeout;
    // A longer timeout has a longer reserve, up to the whole one.
    let needed = (time + reserve).as_millis().div_ceil(1_000);
    let needed = Duration::from_secs(u64::try_from(needed).unwrap_or(u64::MAX));
    Ok((is_short && needed <= MAX_RUN).then_some(needed))
}

pub(super) fn timeout(context: &Context<'_>) -> Checked {
    let (function, target) = (context.function()?, properties(context)?.timeout);
    let (rounds, time) = rounds(context)?;
    let reserve = context.config()?.limits.reserve.min(function.timeout / 4);
    let found = format!(
        "the target takes up to {}{}, with {} to start and {} to settle, and the function's timeout \
         is {}",
        span(target),
        if rounds > 1 { format!(" {rounds} times") } else { String::new() },
        span(START),
        span(reserve),
        span(function.timeout)
    );
    if time + reserve <= function.timeout {
        return ok(found);
    }
    let lengthen = |needed| lengthen(context, function, needed);
    let mut remedies: Vec<Remedy> = longer(context)?.map(lengthen).into_iter().collect();
    if rounds > 1 {
        remedies.push("lower the batch size of the mapping, or raise REQUEUE_CONCURRENCY".into());
    }
    remedies.push(format!("lower the timeout of {}", of(context)?.name).into());
    warning(found, remedies)
}

pub(super) fn concurrency(context: &Context<'_>) -> Checked {
    let InvokedFunction { name, reserved_concurrency, .. } = of(context)?;
    properties(context)?;
    let Some(reserved) = *reserved_concurrency.as_ref()? else {
        return ok(format!("{name} has no reserved concurrency"));
    };
    let Some(needed) = most_calls(context)? else {
        let found = format!(
            "{name} has a reserved concurrency of {reserved}, and nothing limits the number of \
             concurrent batches"
        );
        let level = if reserved == 0 { Level::Danger } else { Level::Warning };
        return at(level, found, [remedy::after(&["concurrency"])]);
    };
    let (level, ask) = match reserved {
        0 => (Level::Danger, ASK),
        _ if reserved < needed => (Level::Warning, ""),
        _ => (Level::Ok, ""),
    };
    let found = format!(
        "{name} has a reserved concurrency of {reserved}, and up to {needed} calls run at a time{ask}"
    );
    let options = format!("--reserved-concurrent-executions {needed}");
    let raise =
        remedy::function(context, function_name(name), "put-function-concurrency", &options);
    let lower = match context.function() {
        Ok(_) => LOWER.to_owned(),
        Err(_) => remedy::variable(context, "CONCURRENCY", &reserved.max(1).to_string()),
    };
    at(level, found, [raise, lower])
}

pub(super) fn permissions(context: &Context<'_>) -> Checked {
    let (function, target) = (context.function()?, of(context)?);
    let InvokedFunction { name, arn, access, properties, .. } = target;
    if matches!(properties, Ok(None)) {
        return Err(Skip::NotApplicable);
    }
    let consequence = ": unless the target's own policy does, every message is deferred".to_owned();
    let grants = vec![remedy::grant(function, &INVOKING, arn, "requeue-target").into()];
    let asked = Asked::of(access, &INVOKING[..1], format!(" on {name}"));
    Asked { consequence, grants, ..asked }.look(function)
}

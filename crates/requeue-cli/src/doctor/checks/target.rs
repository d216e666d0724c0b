//! The existing function that the function invokes with its messages.

use std::time::Duration;

use super::super::arn::function_name;
use super::super::facts::{InvokedFunction, TargetProperties};
use super::function::readiness;
use super::permissions::Asked;
use super::{ADAPT, Checked, Context, LOWER, Level, Remedy, Skip, at, danger, ok, remedy, warning};
use crate::table::span;

/// The actions of the function on its target. Without the second it does not know its timeout.
pub(crate) const INVOKING: [&str; 2] = ["lambda:InvokeFunction", "lambda:GetFunctionConfiguration"];
/// For the start of an execution environment, and the way to Lambda and back.
const START: Duration = Duration::from_secs(5);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(900);

pub(super) fn of<'d>(context: &Context<'d>) -> Result<&'d InvokedFunction, Skip> {
    context.deployment.target.as_ref().ok_or(Skip::NotApplicable)
}

/// The properties. If there is no such function, the check `target` reports it.
fn properties<'d>(context: &Context<'d>) -> Result<&'d TargetProperties, Skip> {
    of(context)?.properties.as_ref()?.as_ref().ok_or(Skip::NotApplicable)
}

/// Calls at a time of one batch, and calls one after the other.
fn calls(context: &Context<'_>, batch: u32) -> Result<(u32, u32), Skip> {
    let most = u32::try_from(context.config()?.limits.concurrency).unwrap_or(u32::MAX).max(1);
    let calls = batch.div_ceil(of(context)?.messages_per_call.max(1));
    Ok((calls.min(most), calls.div_ceil(most)))
}

pub(super) fn target(context: &Context<'_>) -> Checked {
    let InvokedFunction { name, properties, .. } = of(context)?;
    let Some(TargetProperties { state, .. }) = properties.as_ref()? else {
        let found = format!("there is no function {name} in {}", context.region());
        return danger(found, [remedy::variable("TARGET_FUNCTION", "NAME")]);
    };
    let (level, words, command) = readiness(state);
    // Nothing wakes it but a call.
    let level = if words.starts_with("Inactive") { Level::Danger } else { level };
    let found = format!("the state of {name} is {words}");
    at(level, found, [remedy::function(context, name, command, "")])
}

pub(super) fn timeout(context: &Context<'_>) -> Checked {
    let (function, target) = (context.function()?, properties(context)?.timeout);
    let mut rounds = 1;
    for mapping in context.mappings() {
        rounds = rounds.max(calls(context, mapping.batch_size)?.1);
    }
    let reserve = context.config()?.limits.reserve.min(function.timeout / 4);
    let needed = (target + START) * rounds + reserve;
    let found = format!(
        "the target takes up to {}{}, with {} to start and {} to settle, and the function's timeout \
         is {}",
        span(target),
        if rounds > 1 { format!(" {rounds} times") } else { String::new() },
        span(START),
        span(reserve),
        span(function.timeout)
    );
    if needed <= function.timeout {
        return ok(found);
    }
    let mut remedies: Vec<Remedy> = Vec::new();
    // A longer timeout has a longer reserve, up to the whole one.
    let longer =
        ((target + START) * rounds + context.config()?.limits.reserve).as_secs_f64().ceil();
    if longer <= LONGEST_TIMEOUT.as_secs_f64() {
        let longer = remedy::configuration(context, function, &format!("--timeout {longer}"));
        remedies.push(longer.then(ADAPT));
    }
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
    let mut needed: u32 = 0;
    for mapping in context.mappings() {
        let batches = mapping.most_batches().unwrap_or_default();
        needed =
            needed.saturating_add(batches.saturating_mul(calls(context, mapping.batch_size)?.0));
    }
    let found = format!(
        "{name} has a reserved concurrency of {reserved}, and up to {needed} calls run at a time"
    );
    let level = match reserved {
        0 => Level::Danger,
        _ if reserved < needed => Level::Warning,
        _ => Level::Ok,
    };
    let options = format!("--reserved-concurrent-executions {needed}");
    let raise =
        remedy::function(context, function_name(name), "put-function-concurrency", &options);
    at(level, found, [raise, LOWER.to_owned()])
}

pub(super) fn permissions(context: &Context<'_>) -> Checked {
    let (function, InvokedFunction { name, arn, access, .. }) = (context.function()?, of(context)?);
    let consequence = ": unless the target's own policy does, every message is deferred".to_owned();
    let grants = vec![remedy::grant(function, &INVOKING, arn, "requeue-target").into()];
    let asked = Asked::of(access, &INVOKING[..1], format!(" on {name}"));
    Asked { consequence, grants, ..asked }.look(function)
}

//! Checks of the event source mapping between a queue and the function.

use std::time::Duration;

use requeue::queue::MAX_RUN;
use requeue::{Limits, Wrap};
use serde_json::Value;

use super::super::arn::function_name;
use super::{
    ASK, Checked, Context, Level, Mapping, Remedy, Skip, at, consumers, danger, lengthen, named,
    ok, remedy, stop, warning,
};
use crate::table::{messages, span, thousands};

/// Requeue's own fields, and that of an envelope. Source: `docs/reference/wire-format.md`.
const MEMBERS: [&str; 5] =
    ["retryCount", "originalMessageId", "retryTimestamp", "retryState", "retryBody"];

const MAX_CONCURRENCY: u32 = 1_000;

pub(super) fn enabled(context: &Context<'_>) -> Checked {
    let mapping = context.mapping()?;
    let mut found = format!("the mapping {} is {}", mapping.uuid, mapping.state);
    let (level, remedy) = match mapping.state.as_str() {
        "Disabled" | "Disabling" => {
            found += ASK;
            let others = consumers(context.source()?, Some(&mapping.uuid)).unwrap_or_default();
            if !others.is_empty() {
                let found = format!("{found}: {} receives the queue's messages", named(&others));
                return warning(found, [""; 0]);
            }
            (Level::Danger, remedy::mapping(context, mapping, "--enabled"))
        }
        "Creating" | "Enabling" | "Enabled" | "Updating" => (Level::Ok, String::new()),
        "Deleting" => (Level::Warning, "create it again, if it is to receive messages".to_owned()),
        _ => {
            let options = format!("--uuid {}", mapping.uuid);
            (Level::Unknown, remedy::lambda(context, "get-event-source-mapping", &options))
        }
    };
    at(level, found, [remedy])
}

pub(super) fn partial_batch_responses(context: &Context<'_>) -> Checked {
    let mapping = context.mapping()?;
    if mapping.reports_failures {
        return ok("ReportBatchItemFailures");
    }
    let command =
        remedy::mapping(context, mapping, "--function-response-types ReportBatchItemFailures");
    let line = "template, in the event: `FunctionResponseTypes: [ReportBatchItemFailures]`";
    danger("FunctionResponseTypes lacks ReportBatchItemFailures", [&command, line])
}

pub(super) fn filters(context: &Context<'_>) -> Checked {
    let mapping = context.mapping()?;
    if context.source()?.arn.is_fifo() {
        return ok("a FIFO queue has no copies");
    }
    let filters = mapping.filters.as_ref()?;
    let patterns: Vec<Value> = filters.iter().flat_map(|filter| bodies(filter)).collect();
    let is_named = |member: &&str| patterns.iter().any(|pattern| names(pattern, member));
    let named: Vec<&str> = MEMBERS.into_iter().filter(is_named).collect();
    if !named.is_empty() {
        let found = format!("a filter names {}, so Lambda deletes copies", named.join(", "));
        let drop = remedy::mapping(context, mapping, "--filter-criteria '{}'");
        let fields = "remove these fields from the mapping's FilterCriteria";
        return danger(found, [fields, &drop]);
    }
    if patterns.is_empty() {
        return ok("no filter on bodies");
    }
    let (level, found) = if context.config()?.wrap == Wrap::Never {
        (Level::Ok, "the filters name no field of Requeue, and REQUEUE_WRAP is never")
    } else if patterns.iter().all(Value::is_object) {
        (
            Level::Warning,
            "a filter on fields of bodies passes JSON objects; if one has a field of Requeue \
             twice, Requeue wraps its copy, and Lambda deletes that",
        )
    } else {
        (
            Level::Danger,
            "a filter on bodies as text passes messages whose copies Requeue wraps, and Lambda \
             then deletes these copies",
        )
    };
    at(level, found, [remedy::variable(context, "WRAP", "never")])
}

pub(super) fn other_consumers(context: &Context<'_>) -> Checked {
    let own = context.mapping()?;
    let others = consumers(context.source()?, Some(&own.uuid))?;
    // The check `mapping-enabled` names the others of a disabled one.
    if others.is_empty() || own.state.starts_with("Disabl") {
        return ok("no other mapping receives messages of this queue");
    }
    let found = format!("the queue also invokes {}", named(&others));
    let target = context.deployment.target.as_ref().map(|target| function_name(&target.name));
    let is_target = |other: &&&Mapping| Some(function_name(&other.function)) == target;
    let mut targets = others.iter().filter(is_target).copied().peekable();
    if targets.peek().is_some() {
        let found = format!(
            "{found}: messages that the target gets so have no retries by class, and their copies \
             and state fields meet code that does not know them"
        );
        return danger(found, [stop(context, targets)]);
    }
    let keep = others.iter().map(|other| {
        let doctor = Remedy::from(format!("requeue doctor --function {}", other.function));
        let both = doctor.then(&*stop(context, [*other]));
        both.commented("keep one of them; to check this one, and to stop it:")
    });
    warning(found + ASK, keep)
}

/// The handlers of a batch that run at once, the rounds of them, and the time that the function has.
fn rounds(context: &Context<'_>) -> Result<(u32, u32, Duration), Skip> {
    let (mapping, function) = (context.mapping()?, context.function()?);
    // For a target, the check `target-timeout` has the sum.
    if context.deployment.target.is_some() {
        return Err(Skip::NotApplicable);
    }
    let Limits { concurrency, reserve, .. } = context.config()?.limits;
    let is_fifo = context.source()?.arn.is_fifo();
    // All messages of a FIFO batch may be of one group, and then run in sequence.
    let at_once = if is_fifo { 1 } else { u32::try_from(concurrency).unwrap_or(u32::MAX).max(1) };
    let time = function.timeout.saturating_sub(reserve.min(function.timeout / 4));
    Ok((at_once, mapping.batch_size.div_ceil(at_once), time))
}

/// The timeout that a batch needs, if the function's is too short and Lambda allows this one.
pub(super) fn longer(context: &Context<'_>) -> Result<Option<Duration>, Skip> {
    let ((_, rounds, time), limits) = (rounds(context)?, &context.config()?.limits);
    let longest = limits.timeout * rounds;
    let needed = (longest + limits.reserve.min(longest / 3)).as_millis().div_ceil(1_000);
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    Ok((longest > time && needed <= MAX_RUN.as_secs()).then(|| Duration::from_secs(needed)))
}

pub(super) fn batch_fits_timeout(context: &Context<'_>) -> Checked {
    let (at_once, rounds, time) = rounds(context)?;
    let (mapping, function) = (context.mapping()?, context.function()?);
    let timeout = context.config()?.limits.timeout;
    let is_fifo = context.source()?.arn.is_fifo();
    let batch = mapping.batch_size;
    let longest = timeout * rounds;
    let sum = format!(
        "a batch of {}, {} at once, {} each, takes up to {}; a timeout of {} leaves {}",
        messages(batch),
        thousands(at_once),
        span(timeout),
        span(longest),
        span(function.timeout),
        span(time)
    );
    if longest <= time {
        return ok(sum);
    }
    let mut remedies: Vec<Remedy> = Vec::new();
    let fitting = u32::try_from(time.as_millis() / timeout.as_millis().max(1)).unwrap_or(u32::MAX);
    if fitting > 0 {
        let size = format!("--batch-size {}", fitting.saturating_mul(at_once));
        remedies.push(remedy::mapping(context, mapping, &size).into());
        let concurrency = batch.div_ceil(fitting);
        if !is_fifo && concurrency <= MAX_CONCURRENCY {
            let concurrency = concurrency.to_string();
            remedies.push(remedy::variable(context, "CONCURRENCY", &concurrency).into());
        }
    }
    remedies.extend(longer(context)?.map(|needed| lengthen(context, function, needed)));
    let shorter = (time / rounds).as_secs();
    if shorter > 0 {
        let shorter = shorter.to_string();
        remedies.push(remedy::variable(context, "TIMEOUT_SECONDS", &shorter).into());
    }
    warning(sum, remedies)
}

/// The parts of a pattern that concern bodies, in all its alternatives.
fn bodies(pattern: &str) -> Vec<Value> {
    let mut found = Vec::new();
    // Lambda refuses a pattern that is not JSON.
    if let Ok(pattern) = serde_json::from_str(pattern) {
        walk(&pattern, "body", &mut |body| found.push(body.clone()));
    }
    found
}

/// Whether a pattern of bodies tests this field.
fn names(pattern: &Value, member: &str) -> bool {
    let mut is_named = false;
    walk(pattern, member, &mut |_| is_named = true);
    is_named
}

/// Each value of this field in an object, or in its alternatives.
fn walk(pattern: &Value, member: &str, found: &mut impl FnMut(&Value)) {
    let Value::Object(members) = pattern else { return };
    members.get(member).into_iter().for_each(&mut *found);
    for alternative in members.get("$or").and_then(Value::as_array).into_iter().flatten() {
        walk(alternative, member, found);
    }
}

//! Checks of the source queue.

use std::time::Duration;

use requeue::queue::{MAX_BATCH_BYTES, MAX_DELAY, MAX_RECEIVES, MAX_RETENTION, QueueArn};
use requeue::{DeadLetterMode, Mode};

use super::super::facts::RedriveSettings;
use super::dead_letters::set_direct;
use super::{
    ANNOTATED_RECEIVES, Checked, Context, LEAST_RECEIVES, Level, Skip, TIMEOUTS, all, at, danger,
    days, enough_receives, mapping, ok, receives_of_retries, recommended, remedy, set_visibility,
    target, warning,
};
use crate::document::{loses_waiting, retries};
use crate::table::{span, thousands};

pub(super) fn queue(context: &Context<'_>) -> Checked {
    let source = context.source()?;
    match source.queue.as_ref()? {
        Some(_) => ok(source.arn.to_string()),
        None => danger(
            format!("the queue {} does not exist", source.arn),
            ["create it again under this name, or delete the mapping"],
        ),
    }
}

pub(super) fn delay(context: &Context<'_>) -> Checked {
    let (delay, arn) = (context.queue()?.delay, &context.source()?.arn);
    let level = if delay.is_zero() { Level::Ok } else { Level::Warning };
    let set = remedy::queue_attribute(arn, "DelaySeconds", 0);
    let keep = "ignore this check, if each message is to wait, as for the time to cancel an order";
    at(level, format!("DelaySeconds is {}", delay.as_secs()), [keep, &set])
}

pub(super) fn visibility_timeout(context: &Context<'_>) -> Checked {
    let (queue, arn) = (context.queue()?, &context.source()?.arn);
    let visibility = queue.visibility;
    let (Ok(function), Ok(mapping)) = (context.function(), context.mapping()) else {
        return worker_visibility(context, arn, visibility);
    };
    let recommended = recommended(function.timeout, mapping);
    let level = match visibility {
        _ if visibility < function.timeout => Level::Danger,
        _ if visibility < recommended => Level::Warning,
        _ => Level::Ok,
    };
    let found = format!(
        "{}{} {TIMEOUTS} times the function's timeout of {} plus the batching window of {} are {}",
        span(visibility),
        if level == Level::Ok { ";" } else { ", but" },
        span(function.timeout),
        span(mapping.window),
        span(recommended)
    );
    // A longer timeout of the function may be the remedy of these.
    let longer =
        [mapping::longer(context), target::longer(context)].into_iter().flatten().flatten();
    let timeout = longer.max().unwrap_or_default().max(function.timeout);
    at(level, found, [set_visibility(arn, super::recommended(timeout, mapping))])
}

/// A worker extends the visibility timeout of its messages, unless the timeout is 0.
fn worker_visibility(context: &Context<'_>, arn: &QueueArn, visibility: Duration) -> Checked {
    let timeout = context.config()?.limits.timeout;
    let (level, consequence) = if visibility.is_zero() {
        (Level::Danger, ", so SQS delivers every message again while its handler runs")
    } else if visibility < timeout {
        let twice = "; if the worker cannot extend the timeout, SQS delivers the message twice";
        (Level::Warning, twice)
    } else {
        (Level::Ok, "")
    };
    let found =
        format!("{}, and a handler may run for {}{consequence}", span(visibility), span(timeout));
    let enough = timeout.max(Duration::from_secs(30));
    at(level, found, [set_visibility(arn, enough)])
}

pub(super) fn retention(context: &Context<'_>) -> Checked {
    let (queue, arn) = (context.queue()?, &context.source()?.arn);
    let (retention, budget) = (queue.retention, context.age_budget()?);
    let needed = budget + MAX_DELAY;
    let level = if loses_waiting(retention, context.policy()?, context.waits_in_place()?) {
        Level::Danger
    } else if retention > needed {
        Level::Ok
    } else {
        Level::Warning
    };
    let found = format!(
        "{}; a message can wait for the policy's {} plus one delay of {}{}",
        days(retention),
        span(budget),
        span(MAX_DELAY),
        if level == Level::Ok { "" } else { ", so the retention is too short" }
    );
    let days = [4, 7, 14].map(|days| Duration::from_secs(86_400 * days));
    let remedy = match days.into_iter().find(|days| *days > needed) {
        Some(days) => remedy::queue_attribute(arn, "MessageRetentionPeriod", days.as_secs()),
        None => format!(
            "policy: a `totalTimeoutSeconds` below {}, since SQS keeps a message for 14 days at \
             most",
            MAX_RETENTION.saturating_sub(MAX_DELAY).as_secs()
        ),
    };
    at(level, found, [remedy])
}

pub(super) fn message_size(context: &Context<'_>) -> Checked {
    let most = context.queue()?.maximum_message_size;
    let mut found = format!(
        "MaximumMessageSize is {} bytes, and SQS allows {}",
        thousands(most),
        thousands(MAX_BATCH_BYTES)
    );
    let arn = &context.source()?.arn;
    let is_low = most < MAX_BATCH_BYTES as u64 && !context.waits_in_place().unwrap_or(false);
    let level = if is_low { Level::Warning } else { Level::Ok };
    if is_low {
        found += "; SQS refuses a larger copy, so its message waits in flight, and \
                  goes to the dead-letter queue without a reason after maxReceiveCount receives";
    }
    at(level, found, [remedy::queue_attribute(arn, "MaximumMessageSize", MAX_BATCH_BYTES)])
}

pub(super) fn max_receive_count(context: &Context<'_>) -> Checked {
    let redrive = context.queue()?.redrive.as_ref().ok_or(Skip::NotApplicable)?;
    all([
        least_receives(context, redrive),
        receives_for_retries(context, redrive),
        annotate_receives(context, redrive),
    ])
}

/// The least `maxReceiveCount` with a target, so that a message is alone in a call before SQS moves it.
pub(crate) const RECEIVES_OF_A_TARGET: u32 = 4;

fn least_receives(context: &Context<'_>, redrive: &RedriveSettings) -> Checked {
    let count = redrive.max_receive_count;
    let (level, reason) = match count {
        0..2 => {
            (Level::Danger, ", so one crash, timeout, kill or throttle dead-letters the message")
        }
        2..RECEIVES_OF_A_TARGET if context.deployment.target.is_some() => (
            Level::Danger,
            ", and a message that makes its target throw is alone in a call from its third receive \
             on: SQS would move others with it",
        ),
        2..LEAST_RECEIVES => (Level::Warning, ", and AWS recommends at least 5"),
        LEAST_RECEIVES.. => (Level::Ok, ""),
    };
    let arn = &context.source()?.arn;
    let set = remedy::redrive_policy(arn, &redrive.target, enough_receives(context)?);
    at(level, format!("maxReceiveCount is {}{reason}", thousands(count)), [set])
}

fn receives_for_retries(context: &Context<'_>, redrive: &RedriveSettings) -> Checked {
    let (needed, shares_batches) = receives_of_retries(context)?;
    let (count, most) = (redrive.max_receive_count, context.max_retries()?);
    let arn = &context.source()?.arn;
    let batch_size = context.mapping().map_or(1, |mapping| mapping.batch_size);
    let compared = format!("the policy allows {}", retries(most));
    if count >= needed {
        return ok(compared);
    }
    let mut remedies = Vec::new();
    if u64::from(needed) <= MAX_RECEIVES {
        remedies.push(remedy::redrive_policy(arn, &redrive.target, needed));
    }
    if let (true, Ok(mapping)) = (shares_batches && count > most, context.mapping()) {
        remedies.push(remedy::mapping(context, mapping, "--batch-size 1"));
    }
    if count > 1 {
        let allowed = if shares_batches { count / 2 } else { count - 1 };
        remedies.push(format!("policy: `\"maxRetries\": {allowed}`"));
    }
    let needed = thousands(needed);
    let found = if shares_batches && count > most {
        let batch_size = thousands(batch_size);
        format!(
            "{compared}; in batches of {batch_size}, an earlier message of a group uses up \
             receives of later ones, so at least {needed} receives are needed"
        )
    } else {
        format!("{compared}, so at least {needed} receives are needed")
    };
    warning(found, remedies)
}

fn annotate_receives(context: &Context<'_>, redrive: &RedriveSettings) -> Checked {
    let (queue, config, arn) = (context.queue()?, context.config()?, &context.source()?.arn);
    let is_annotating =
        config.dead_letter == Some(DeadLetterMode::Annotate) && config.mode == Mode::Requeue;
    if !is_annotating || arn.is_fifo() {
        return Err(Skip::NotApplicable);
    }
    let slow = redrive.max_receive_count.saturating_sub(ANNOTATED_RECEIVES);
    if slow == 0 {
        return Err(Skip::NotApplicable);
    }
    let found = format!(
        "an annotated copy waits {} for its receives after the first {ANNOTATED_RECEIVES}, before \
         SQS moves it to the dead-letter queue",
        span(queue.visibility * slow)
    );
    // If each retry needs a receive, there may not be fewer.
    let fewer = remedy::redrive_policy(arn, &redrive.target, ANNOTATED_RECEIVES);
    let fewer = Some(fewer).filter(|_| !context.waits_in_place().unwrap_or_default());
    warning(found, fewer.into_iter().chain([set_direct(context)]))
}

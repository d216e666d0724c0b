//! Checks of the source queue.

use std::time::Duration;

use requeue::queue::{MAX_BATCH_BYTES, MAX_VISIBILITY};
use requeue::{DeadLetterMode, Mode, QueueConfig};

use super::super::check::Check;
use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::{CustomerKey, EncryptionKey, Reached};
use super::super::remedy;
use super::{LONGEST_DELAY, LONGEST_RETENTION, days, worst};
use crate::document::retries;
use crate::table::span;

pub(super) const CHECKS: &[Check] = &[
    Check { id: QUEUE, why: "All other checks of a queue need its attributes.", look: queue },
    Check {
        id: "key-state",
        why: "While a KMS key is not enabled, SQS can neither encrypt nor decrypt messages with \
              it. If KMS deletes the key, nobody can read these messages any more.",
        look: key_state,
    },
    Check {
        id: "visibility-timeout",
        why: "If a message becomes visible during its batch, or during the retries of a throttled \
              invocation, SQS delivers it twice.",
        look: visibility_timeout,
    },
    Check {
        id: "retention",
        why: "If the retention of a waiting message ends, SQS deletes the message silently, and \
              does not move it to the dead-letter queue.",
        look: retention,
    },
    Check {
        id: "message-size",
        why: "SQS refuses a copy that is larger than the queue's limit. The message then waits by \
              its visibility instead.",
        look: message_size,
    },
    Check {
        id: "max-receive-count",
        why: "Each invocation that is throttled, crashes or runs out of time costs every message \
              of its batch a receive.",
        look: max_receive_count,
    },
    Check {
        id: "queue-config",
        why: "Requeue does not apply `queueConfig`: change the queue, or the document if the queue \
              is right.",
        look: queue_config,
    },
    Check {
        id: "receives-for-retries",
        why: "With visibility, every receive counts as a retry. If `maxReceiveCount` is too low, \
              SQS dead-letters the message before its retries are used up.",
        look: receives_for_retries,
    },
    Check {
        id: "exact-attempts",
        why: "With a table, a receive without a call uses no retry. For that the function has to \
              send its dead letters, and SQS must not move a message before.",
        look: exact_attempts,
    },
    Check {
        id: "fifo-strategy",
        why: "A copy would lose its place, so messages of a FIFO queue always wait by their \
              visibility.",
        look: fifo_strategy,
    },
];

pub(crate) const QUEUE: &str = "queue";
/// The state of a key that KMS does not know.
pub(crate) const NO_KEY: &str = "NotFound";
/// The recommended visibility timeout, as a multiple of the function's timeout. Source: Lambda
/// developer guide, "Configuring SQS queue".
const TIMEOUTS: u32 = 6;
/// The least `maxReceiveCount`. Source: as above.
pub(super) const LEAST_RECEIVES: u32 = 5;
/// The greatest `maxReceiveCount`. Source: SQS API reference, `SetQueueAttributes`.
const MOST_RECEIVES: u32 = 1_000;

fn queue(context: &Context<'_>) -> Checked {
    let source = context.source()?;
    Ok(match source.queue.as_ref()? {
        Some(_) => Diagnosis::ok(source.arn.to_string()),
        None => Diagnosis::danger(
            format!("the queue {} does not exist", source.arn),
            ["create it again under this name, or delete the mapping"],
        ),
    })
}

fn key_state(context: &Context<'_>) -> Checked {
    let path = context.path()?;
    let reached = [Some(&path.source), path.dead_letters.as_ref(), path.direct.as_ref()];
    let found: Vec<Checked> = reached.into_iter().flatten().filter_map(state_of_key).collect();
    worst(found)
}

/// `None` if no key of the customer encrypts the queue.
fn state_of_key(reached: &Reached) -> Option<Checked> {
    let EncryptionKey::Customer(customer) = reached.key.as_ref()? else { return None };
    let CustomerKey { name, key, .. } = &**customer;
    let key = match key {
        Ok(key) => key,
        Err(unread) => return Some(Err(unread.into())),
    };
    let (queue, region) = (reached.arn.name(), reached.arn.region());
    let command = |operation| format!("aws kms {operation} --region {region} --key-id {}", key.arn);
    let found = format!("the key {name} of {queue} is {}", key.state);
    Some(Ok(match key.state.as_str() {
        "Enabled" => Diagnosis::ok(found),
        "Disabled" => Diagnosis::danger(found, [command("enable-key")]),
        "PendingDeletion" => Diagnosis::danger(
            found,
            [format!("{} && {}", command("cancel-key-deletion"), command("enable-key"))],
        ),
        NO_KEY => {
            let found = format!("the key {name} of {queue} does not exist");
            Diagnosis::danger(
                found,
                [remedy::queue_attribute(&reached.arn, "KmsMasterKeyId", "KEY")],
            )
        }
        "" => {
            let found = format!("not checked: the key {name} of {queue} has no state");
            Diagnosis::unknown(found, [command("describe-key")])
        }
        _ => Diagnosis::danger(found, [command("describe-key")]),
    }))
}

fn visibility_timeout(context: &Context<'_>) -> Checked {
    let (queue, arn) = (context.queue()?, &context.source()?.arn);
    let visibility = queue.visibility;
    let set =
        |seconds: Duration| [remedy::queue_attribute(arn, "VisibilityTimeout", seconds.as_secs())];
    let (Ok(function), Ok(mapping)) = (context.function(), context.mapping()) else {
        return worker_visibility(context, visibility, set);
    };
    let recommended = (function.timeout * TIMEOUTS + mapping.window).min(MAX_VISIBILITY);
    let needs = format!(
        "{TIMEOUTS} times the function's timeout of {} plus the batching window of {} are {}",
        span(function.timeout),
        span(mapping.window),
        span(recommended)
    );
    Ok(if visibility < function.timeout {
        let found = format!(
            "{}, less than the function's timeout of {}",
            span(visibility),
            span(function.timeout)
        );
        Diagnosis::danger(found, set(recommended))
    } else if visibility < recommended {
        Diagnosis::warning(format!("{}, but {needs}", span(visibility)), set(recommended))
    } else {
        Diagnosis::ok(format!("{}; {needs}", span(visibility)))
    })
}

/// A worker extends the visibility timeout of its messages, unless the timeout is 0.
fn worker_visibility(
    context: &Context<'_>,
    visibility: Duration,
    set: impl Fn(Duration) -> [String; 1],
) -> Checked {
    let timeout = context.config()?.limits.timeout;
    let enough = set(timeout.max(Duration::from_secs(30)));
    Ok(if visibility.is_zero() {
        Diagnosis::danger("0 s, so SQS delivers every message again while its handler runs", enough)
    } else if visibility < timeout {
        let found = format!(
            "{}, but a handler may run for {}; if the worker cannot extend the timeout, SQS \
             delivers the message twice",
            span(visibility),
            span(timeout)
        );
        Diagnosis::warning(found, enough)
    } else {
        Diagnosis::ok(format!("{}; a handler may run for {}", span(visibility), span(timeout)))
    })
}

fn retention(context: &Context<'_>) -> Checked {
    let (queue, arn) = (context.queue()?, &context.source()?.arn);
    let (retention, budget) = (queue.retention, context.age_budget()?);
    let needed = budget + LONGEST_DELAY;
    let compared = format!(
        "{}; a message can wait for the policy's {} plus one delay of {}",
        days(retention),
        span(budget),
        span(LONGEST_DELAY)
    );
    if retention > needed {
        return Ok(Diagnosis::ok(compared));
    }
    let days = [4, 7, 14].map(|days| Duration::from_secs(86_400 * days));
    let remedy = match days.into_iter().find(|days| *days > needed) {
        Some(days) => remedy::queue_attribute(arn, "MessageRetentionPeriod", days.as_secs()),
        None => format!(
            "policy: a `totalTimeoutSeconds` below {}, since SQS keeps a message for 14 days at \
             most",
            LONGEST_RETENTION.saturating_sub(LONGEST_DELAY).as_secs()
        ),
    };
    // Each copy starts its retention anew. So a queue whose retention exceeds every single wait
    // loses a message only in a backlog.
    let found = format!("{compared}, so the retention is too short");
    Ok(if context.waits_in_place()? || retention <= LONGEST_DELAY {
        Diagnosis::danger(found, [remedy])
    } else {
        Diagnosis::warning(found, [remedy])
    })
}

fn message_size(context: &Context<'_>) -> Checked {
    let (queue, arn) = (context.queue()?, &context.source()?.arn);
    let most = queue.maximum_message_size;
    Ok(if most < MAX_BATCH_BYTES as u64 {
        let found = format!("MaximumMessageSize is {most} bytes, and SQS allows {MAX_BATCH_BYTES}");
        Diagnosis::warning(
            found,
            [remedy::queue_attribute(arn, "MaximumMessageSize", MAX_BATCH_BYTES)],
        )
    } else {
        Diagnosis::ok(format!("{most} bytes"))
    })
}

fn max_receive_count(context: &Context<'_>) -> Checked {
    let redrive = context.queue()?.redrive.as_ref().ok_or(Skip::NotApplicable)?;
    let count = redrive.max_receive_count;
    if count >= LEAST_RECEIVES {
        return Ok(Diagnosis::ok(format!("maxReceiveCount is {count}")));
    }
    let remedies =
        [remedy::redrive_policy(&context.source()?.arn, &redrive.target, LEAST_RECEIVES)];
    Ok(if count < 2 {
        Diagnosis::danger(
            format!(
                "maxReceiveCount is {count}, so one throttled invocation, crash or timeout \
                 dead-letters the message"
            ),
            remedies,
        )
    } else {
        Diagnosis::warning(
            format!("maxReceiveCount is {count}, and AWS recommends at least {LEAST_RECEIVES}"),
            remedies,
        )
    })
}

fn queue_config(context: &Context<'_>) -> Checked {
    let (queue, arn, named) =
        (context.queue()?, &context.source()?.arn, &context.deployment.queue_config);
    if *named == QueueConfig::default() {
        return Err(Skip::NotApplicable);
    }
    let (mut found, mut remedies) = (Vec::new(), Vec::new());
    for (attribute, named, actual) in [
        ("VisibilityTimeout", named.visibility_timeout, queue.visibility),
        ("MessageRetentionPeriod", named.message_retention, queue.retention),
        ("DelaySeconds", named.delay, queue.delay),
        ("ReceiveMessageWaitTimeSeconds", named.receive_wait, queue.receive_wait),
    ] {
        if let Some(named) = named.filter(|named| *named != actual) {
            found.push(format!("{attribute} is {}, not {}", days(actual), days(named)));
            remedies.push(remedy::queue_attribute(arn, attribute, named.as_secs()));
        }
    }
    // Without a redrive policy, the check `redrive-policy` reports that.
    if let (Some(named), Some(redrive)) = (named.max_receive_count, &queue.redrive)
        && redrive.max_receive_count != named
    {
        found.push(format!("maxReceiveCount is {}, not {named}", redrive.max_receive_count));
        remedies.push(remedy::redrive_policy(arn, &redrive.target, named));
    }
    Ok(if found.is_empty() {
        Diagnosis::ok("as in queueConfig")
    } else {
        Diagnosis::warning(
            format!("{} as in queueConfig; one command for each", found.join("; ")),
            remedies,
        )
    })
}

fn receives_for_retries(context: &Context<'_>) -> Checked {
    let redrive = context.queue()?.redrive.as_ref().ok_or(Skip::NotApplicable)?;
    if !context.waits_in_place()? {
        return Err(Skip::NotApplicable);
    }
    let (count, most) = (redrive.max_receive_count, context.max_retries()?);
    let arn = &context.source()?.arn;
    let batch_size = context.mapping().map_or(1, |mapping| mapping.batch_size);
    let shares_batches = arn.is_fifo() && batch_size > 1;
    let needed = if shares_batches { most.saturating_mul(2) } else { most.saturating_add(1) };
    let compared = format!("maxReceiveCount is {count}, and the policy allows {}", retries(most));
    if count >= needed {
        return Ok(Diagnosis::ok(compared));
    }
    let mut remedies = Vec::new();
    if needed <= MOST_RECEIVES {
        remedies.push(remedy::redrive_policy(arn, &redrive.target, needed));
    }
    if shares_batches && count > most {
        remedies.extend(
            context
                .mapping()
                .ok()
                .map(|mapping| remedy::mapping(context, mapping, "--batch-size 1")),
        );
    }
    if count > 1 {
        let allowed = if shares_batches { count / 2 } else { count - 1 };
        remedies.push(format!("policy: `\"maxRetries\": {allowed}`"));
    }
    let found = if shares_batches && count > most {
        format!(
            "{compared}; in batches of {batch_size}, an earlier message of a group uses up \
             receives of later ones, so at least {needed} receives are needed"
        )
    } else {
        format!("{compared}, so at least {needed} receives are needed")
    };
    Ok(Diagnosis::warning(found, remedies))
}

fn exact_attempts(context: &Context<'_>) -> Checked {
    let (arn, config) = (&context.source()?.arn, context.config()?);
    let has_table = context.deployment.table.is_some() && config.mode == Mode::Requeue;
    let redrive = context.queue()?.redrive.as_ref();
    let redrive = redrive.filter(|_| has_table && arn.is_fifo()).ok_or(Skip::NotApplicable)?;
    let count = redrive.max_receive_count;
    let is_direct = matches!(config.dead_letter, Some(DeadLetterMode::Direct(_)));
    let mut remedies = Vec::new();
    if !is_direct {
        remedies.push(format!(
            "{} and `REQUEUE_DEAD_LETTER_QUEUE_URL: URL`, with sqs:SendMessage on it",
            remedy::variable("DEAD_LETTER", "direct")
        ));
    }
    if count < MOST_RECEIVES {
        remedies.push(remedy::redrive_policy(arn, &redrive.target, MOST_RECEIVES));
    }
    Ok(match (is_direct, count) {
        (true, MOST_RECEIVES..) => Diagnosis::ok(format!(
            "the table counts attempts, and SQS moves a message at its receive {count}"
        )),
        (true, _) => Diagnosis::warning(
            format!(
                "the table counts attempts, but SQS moves a message at its receive {count}, even \
                 if no handler was called"
            ),
            remedies,
        ),
        (false, _) => Diagnosis::warning(
            "REQUEUE_DEAD_LETTER is not direct, so each receive counts as a retry, even one \
             without a call",
            remedies,
        ),
    })
}

fn fifo_strategy(context: &Context<'_>) -> Checked {
    if !context.source()?.arn.is_fifo() {
        return Err(Skip::NotApplicable);
    }
    let settings = context.settings()?;
    let has_standard = context.deployment.paths.iter().any(|path| !path.source.arn.is_fifo());
    let is_copy = settings.config.strategy == requeue::Strategy::Copy;
    Ok(if settings.names_strategy && is_copy && !has_standard {
        let found = "REQUEUE_STRATEGY is copy, which has no effect on a FIFO queue";
        Diagnosis::warning(found, [remedy::variable("STRATEGY", "visibility")])
    } else {
        Diagnosis::ok("visibility")
    })
}

//! The tables of checks, each a pure function of the facts. Numbers that AWS recommends or demands
//! are here with their source; nothing here asks AWS.

use std::time::Duration;

use requeue::queue::{MAX_RECEIVES, MAX_VISIBILITY, QueueArn};

use super::diagnosis::{
    Check, Checked, Context, Diagnosis, Finding, Level, Remedy, Skip, at, danger, not_checked, ok,
    warning,
};
use super::facts::{Deployment, Function, Mapping, QueuePath, Reached};
use super::remedy;
use crate::table::span;

mod alarms;
mod dead_letters;
mod function;
mod logs;
mod mapping;
mod permissions;
mod queue;
mod secrets;
mod table;
mod target;
#[cfg(test)]
pub(super) mod tests;

/// As a multiple of the function's timeout. Source: Lambda developer guide, "Configuring SQS
/// queue".
pub(crate) const TIMEOUTS: u32 = 6;
/// The least `maxReceiveCount`. Source: as above.
pub(crate) const LEAST_RECEIVES: u32 = 5;
/// Receives after which an annotated copy is visible again at once.
const ANNOTATED_RECEIVES: u32 = 10;

/// Somebody may have done on purpose what the remedy would undo.
const ASK: &str = "; ask first whether a colleague wants it so";
const LOWER: &str = "lower the MaximumConcurrency or the MaximumPollers of the mappings";

pub(crate) use alarms::REQUEUE;
pub(crate) use logs::LOGGING;
pub(crate) use permissions::{KEY, NO_KEY, SENDING, TAKING};
pub(crate) use queue::RECEIVES_OF_A_TARGET;
pub(crate) use secrets::{PARAMETER, is_whole, reading};
pub(crate) use table::USING;
pub(crate) use target::INVOKING;

/// Days as in the settings of a queue (`4 days`), and shorter times as elsewhere.
fn days(time: Duration) -> String {
    let secs = time.as_secs();
    if secs >= 2 * 86_400 && secs.is_multiple_of(86_400) {
        format!("{} days", secs / 86_400)
    } else {
        span(time)
    }
}

/// All results of a check that apply. If several are equally bad, each needs its remedy.
fn all(looked: impl IntoIterator<Item = Checked>) -> Checked {
    let looked = looked.into_iter().filter_map(|looked| match looked {
        Ok(diagnosis) | Err(Skip::Unknown(diagnosis)) => Some(diagnosis),
        Err(Skip::NotApplicable) => None,
    });
    let mut looked: Vec<Diagnosis> = looked.collect();
    let level = looked.iter().map(|looked| looked.level).max().ok_or(Skip::NotApplicable)?;
    looked.retain(|looked| looked.level == level);
    let mut found: Vec<String> = looked.iter().map(|looked| looked.found.clone()).collect();
    let is_alike = looked.windows(2).all(|pair| pair[0].remedies == pair[1].remedies);
    if level != Level::Ok && !is_alike {
        found.push("each needs its remedy".to_owned());
    }
    let mut remedies = Vec::new();
    for remedy in looked.into_iter().flat_map(|looked| looked.remedies) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    Ok(Diagnosis { level, found: found.join("; "), remedies })
}

/// The other mappings than this through which functions receive messages of a queue.
fn consumers<'d>(reached: &'d Reached, own: Option<&str>) -> Result<Vec<&'d Mapping>, Skip> {
    let is_polling = |state: &str| !matches!(state, "Disabled" | "Disabling" | "Deleting");
    let consumers = reached.consumers.as_ref()?.iter();
    Ok(consumers.filter(|it| own != Some(&it.uuid) && is_polling(&it.state)).collect())
}

fn named(consumers: &[&Mapping]) -> String {
    consumers.iter().map(|consumer| &*consumer.function).collect::<Vec<_>>().join(", ")
}

fn stop<'m>(context: &Context<'_>, consumers: impl IntoIterator<Item = &'m Mapping>) -> Remedy {
    let stop = |consumer| remedy::mapping(context, consumer, "--no-enabled");
    Remedy::of(consumers.into_iter().map(stop))
}

fn recommended(timeout: Duration, mapping: &Mapping) -> Duration {
    (timeout * TIMEOUTS + mapping.window).min(MAX_VISIBILITY)
}

/// The `maxReceiveCount` that the check `max-receive-count` demands, and not below the present one.
fn enough_receives(context: &Context<'_>) -> Result<u32, Skip> {
    let present = context.queue()?.redrive.as_ref().map_or(0, |redrive| redrive.max_receive_count);
    // If the retries need more than SQS allows, only fewer retries help.
    let most = u32::try_from(MAX_RECEIVES).unwrap_or(u32::MAX);
    let retried = receives_of_retries(context).map_or(0, |(needed, _)| needed.min(most));
    Ok(present.max(retried).max(LEAST_RECEIVES))
}

/// How many receives the retries need, and whether messages of a batch use up those of others.
fn receives_of_retries(context: &Context<'_>) -> Result<(u32, bool), Skip> {
    if !context.waits_in_place()? {
        return Err(Skip::NotApplicable);
    }
    let is_shared = context.mapping().is_ok_and(|mapping| mapping.batch_size > 1);
    let (most, is_shared) = (context.max_retries()?, is_shared && context.source()?.arn.is_fifo());
    Ok((if is_shared { most.saturating_mul(2) } else { most.saturating_add(1) }, is_shared))
}

fn set_visibility(queue: &QueueArn, visibility: Duration) -> String {
    remedy::queue_attribute(queue, "VisibilityTimeout", visibility.as_secs())
}

/// Gives the function a longer timeout. Lambda refuses one above the visibility timeout of a queue.
fn lengthen(context: &Context<'_>, function: &Function, timeout: Duration) -> Remedy {
    let set = |path: &QueuePath| {
        let visibility = recommended(timeout, path.mapping.as_ref()?);
        let is_short = path.source.known()?.visibility < visibility;
        is_short.then(|| set_visibility(&path.source.arn, visibility))
    };
    let options = format!("--timeout {}", timeout.as_secs());
    let update = remedy::configuration(context, function, &options);
    let first = context.deployment.paths.iter().filter_map(set);
    Remedy::of(first.chain(update.lines().map(str::to_owned)))
}

/// Rows of the table: an id, the check, and the reason for it, as the output shows it.
macro_rules! checks {
    ($name:ident: $($id:literal, $look:path, $why:literal;)+) => {
        const $name: &[Check] = &[$(Check { id: $id, look: $look, why: $why }),+];
    };
}

// In the order of the output.
checks! {
    OF_FUNCTION:
    "settings", function::settings, "The settings decide what is retried. With an invalid one the \
        function does not start, and SQS redelivers its messages until they are dead-lettered.";
    "mapping", function::mapping, "Only an event source mapping delivers a queue's messages.";
    "function-state", function::state, "Lambda invokes a function only in the state Active, and \
        runs the old code and configuration if an update has failed.";
    "network", function::network, "In a VPC, a function reaches SQS only through an interface \
        endpoint or a public NAT gateway. Without one, no copy is sent, and each message waits.";
    "recursive-loop", function::recursive_loop, "Requeue sends copies to the function's own \
        queue. Without RecursiveLoop: Allow, Lambda dead-letters a message after about 16.";
    "concurrency", function::concurrency, "Failed messages do not slow Lambda's poller down: \
        without a limit it runs up to 1,250 batches at once. Throttled ones use up receives.";
    "logs", logs::logs, "Each message that fails or waits has a line at INFO.";
    "log-permissions", logs::log_permissions, "The log explains each retry, and CloudWatch reads \
        the metrics from it.";
    "secret-permissions", secrets::secret_permissions, "If a function may not read its secrets, \
        it does not start, and SQS redelivers its messages until they are dead-lettered. A KMS \
        key of your own also needs kms:Decrypt.";
    "table", table::table, "By the table, all execution environments share a rate limit. Without \
        it, each keeps a part of the limit. Its unused items stay without a time to live.";
    "table-permissions", table::table_permissions, "If the role may not read and change items, \
        the function does without the table. A KMS key of your own also needs kms:Decrypt.";
    "rate-limit", table::rate_limit, "A limit counts the calls of all execution environments \
        together. Without the table, and while it does not respond, each counts its own.";
    "target", target::target, "Without a function that Lambda can invoke, every message is \
        deferred.";
    "target-timeout", target::timeout, "The function waits for its target, and settles the \
        messages afterwards. If it ends before, the messages are handled again.";
    "target-concurrency", target::concurrency, "Lambda throttles a target without free \
        concurrency, and its messages are deferred.";
    "target-permissions", target::permissions, "The function invokes its target with its role.";
}

// Of each queue, after those of the function.
checks! {
    OF_QUEUE:
    "mapping-enabled", mapping::enabled, "While the mapping is disabled, messages wait, and SQS \
        deletes them when their retention ends.";
    "partial-batch-responses", mapping::partial_batch_responses, "Without ReportBatchItemFailures \
        Lambda treats every response as success and deletes failed messages.";
    "filters", mapping::filters, "Lambda deletes messages that do not match a filter. A copy has \
        fields that its original lacks, and Requeue wraps the body of some copies.";
    "other-consumers", mapping::other_consumers, "SQS gives each message to one consumer only. \
        Another function receives a part of the messages, and of the copies that Requeue sends.";
    "batch-fits-timeout", mapping::batch_fits_timeout, "If an invocation has no time left for a \
        message, Requeue defers it. That costs requests, and with visibility a receive.";
    "queue", queue::queue, "All other checks of a queue need its attributes.";
    "queue-delay", queue::delay, "Each message without a delay of its own waits for the queue's \
        DelaySeconds before its first receive, and so does a message that is sent again.";
    "visibility-timeout", queue::visibility_timeout, "If a message becomes visible during its \
        batch, or during the retries of a throttled invocation, SQS delivers it twice.";
    "retention", queue::retention, "If the retention of a waiting message ends, SQS deletes the \
        message silently, and does not move it to the dead-letter queue.";
    "message-size", queue::message_size, "SQS refuses a copy above the queue's limit.";
    "max-receive-count", queue::max_receive_count, "Each crash, timeout, kill or throttle costs \
        every message of its batch a receive, and with visibility each retry does. The copy of a \
        dead-lettered message uses up the rest.";
    "redrive-policy", dead_letters::redrive_policy, "Without a dead-letter queue, SQS redelivers \
        a message that is dead-lettered, or that crashes the function, until its retention ends.";
    "dead-letter-queue", dead_letters::dead_letter_queue, "A dead letter is lost if SQS may not \
        move it, or if its queue deletes it or passes it on before somebody has looked at it.";
    "dead-letter-consumers", dead_letters::dead_letter_consumers, "A function with a mapping from \
        the dead-letter queue receives dead letters at once, before a person has seen them.";
    "dead-letter-reasons", dead_letters::reasons, "If SQS moves the message itself, its dead \
        letter does not say why. On a FIFO queue, annotate works as redrive.";
    "direct-queue", dead_letters::direct_queue, "In the mode direct the function sends its dead \
        letters to this queue. If that fails, the message stays until SQS moves it.";
    "queue-permissions", permissions::queue_permissions, "With the function's role, Lambda's \
        poller receives and deletes messages, and the function sends, deletes and hides them.";
    "key-permissions", permissions::key_permissions, "If a KMS key encrypts the queue, the key \
        has to be enabled; a receive needs kms:Decrypt on it, and a send also \
        kms:GenerateDataKey.";
    "dead-letter-alarm", alarms::dead_letter_alarm, "Nothing handles dead letters until a person \
        acts, and SQS deletes them when their retention ends.";
    "age-alarm", alarms::age_alarm, "While calls fail, or nothing receives the messages, only \
        their age shows the trouble.";
}

/// The checks whose danger means that nothing is invoked. Before that is corrected, everything else is:
/// the function could lose or double messages. An alarm may come later.
const STARTS: [&str; 2] = ["concurrency", "mapping-enabled"];

/// The checks whose danger comes first: until they are corrected, this one's remedy would fail, or
/// be wrong afterwards. Also the variables without whose valid value there is nothing to check.
fn after(id: &str) -> &'static [&'static str] {
    match id {
        "network" => &["queue-permissions", "key-permissions"],
        "recursive-loop" => &["REQUEUE_RECURSIVE_LOOP", "REQUEUE_STRATEGY", "REQUEUE_MODE"],
        "rate-limit" => &["REQUEUE_MAX_ENVIRONMENTS", "REQUEUE_CONCURRENCY"],
        "target-timeout" => {
            &["REQUEUE_CONCURRENCY", "REQUEUE_MESSAGES_PER_CALL", "REQUEUE_RESERVE_SECONDS"]
        }
        "target-concurrency" => &["REQUEUE_CONCURRENCY", "REQUEUE_MESSAGES_PER_CALL"],
        "filters" => &["REQUEUE_WRAP"],
        "other-consumers" => &["queue"],
        "batch-fits-timeout" => &[
            "REQUEUE_CONCURRENCY",
            "REQUEUE_TIMEOUT_SECONDS",
            "REQUEUE_RESERVE_SECONDS",
            "REQUEUE_TARGET_FUNCTION",
        ],
        // The target's timeout counts for a call.
        "visibility-timeout" => &["target", "REQUEUE_TARGET_FUNCTION", "REQUEUE_TIMEOUT_SECONDS"],
        "retention" | "message-size" => &["REQUEUE_STRATEGY"],
        "key-permissions" => &["other-consumers", "REQUEUE_STRATEGY", "REQUEUE_DEAD_LETTER"],
        "max-receive-count" => &[
            "other-consumers",
            "redrive-policy",
            "dead-letter-queue",
            "REQUEUE_STRATEGY",
            "REQUEUE_MODE",
            "REQUEUE_DEAD_LETTER",
        ],
        "dead-letter-reasons" | "direct-queue" => {
            &["redrive-policy", "dead-letter-queue", "REQUEUE_MODE", "REQUEUE_DEAD_LETTER"]
        }
        "queue-permissions" => {
            &["queue", "other-consumers", "REQUEUE_STRATEGY", "REQUEUE_DEAD_LETTER"]
        }
        "dead-letter-alarm" => &["dead-letter-queue"],
        "age-alarm" => &["queue", "REQUEUE_METRICS", "REQUEUE_SERVICE"],
        _ => &[],
    }
}

/// Replaces each remedy that is to wait for another one, by [`after`].
pub(crate) fn in_order(deployment: &Deployment, findings: &mut [Finding]) {
    let settings = deployment.settings.iter();
    let problems: Vec<_> = settings.flat_map(|it| it.problems.iter().chain(&it.unread)).collect();
    // Two consumers need different things of a queue, and one of them is to be kept.
    let least = |id| if id == "other-consumers" { Level::Warning } else { Level::Danger };
    let dangers = findings.iter().filter(|it| it.diagnosis.level >= least(it.id));
    let dangers: Vec<_> = dangers.map(|it| (it.id, it.queue.clone())).collect();
    for Finding { id, queue, diagnosis, .. } in findings {
        let place = STARTS.iter().position(|it| it == id && diagnosis.level == Level::Danger);
        let comes_first = |other: &&str| {
            let is_its = |of: &Option<String>| of.is_none() || queue.is_none() || of == queue;
            let is_later = |later: &&str| later == other || after(other).contains(later);
            let starts_after = place.is_some_and(|at| !STARTS[at..].iter().any(is_later));
            (after(id).contains(other) || starts_after && !other.ends_with("-alarm"))
                && dangers.iter().any(|(id, of)| id == other && is_its(of))
        };
        let is_invalid = |name: &&&str| {
            name.starts_with("REQUEUE_") && problems.iter().any(|problem| problem.contains(**name))
        };
        let first: Vec<&str> = all_ids().filter(comes_first).collect();
        if diagnosis.level == Level::Ok {
        } else if let Some(name) = after(id).iter().find(is_invalid) {
            let reason = format!("{name} is not valid, see settings");
            let Skip::Unknown(unknown) = not_checked(reason, [""; 0]) else { continue };
            *diagnosis = unknown;
        } else if !first.is_empty() {
            diagnosis.remedies = vec![remedy::after(&first)];
        } else {
            diagnosis.remedies.iter_mut().for_each(|it| *it = remedy::of_requeue(deployment, it));
        }
    }
}

/// The id of every check, in the order of the output.
pub(crate) fn all_ids() -> impl Iterator<Item = &'static str> {
    OF_FUNCTION.iter().chain(OF_QUEUE).map(|check| check.id)
}

pub(crate) fn examine(deployment: &Deployment) -> Vec<Finding> {
    let config = deployment.settings.as_ref().ok().map(|read| &read.config);
    let whole = Context { deployment, path: None, config };
    let mut findings: Vec<Finding> =
        OF_FUNCTION.iter().filter_map(|check| check.finding(&whole)).collect();
    for path in deployment.handled() {
        let own = config.map(|config| config.of_queue(path.source.arn.name()));
        let context = Context { deployment, path: Some(path), config: own.as_ref() };
        findings.extend(OF_QUEUE.iter().filter_map(|check| check.finding(&context)));
    }
    findings
}

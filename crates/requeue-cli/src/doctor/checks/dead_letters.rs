//! Checks of the dead-letter queues.

use requeue::queue::QueueArn;
use requeue::{DeadLetterMode, Mode};

use super::super::facts::{QueueAttributes, QueuePath, Reached, RedriveSettings};
use super::{
    Checked, Context, LEAST_RECEIVES, LONGEST_RETENTION, Level, Remedy, Skip, all, at, consumers,
    danger, days, ok, remedy, warning,
};

pub(super) fn redrive_policy(context: &Context<'_>) -> Checked {
    let (queue, arn) = (context.queue()?, &context.source()?.arn);
    if let Some(redrive) = &queue.redrive {
        return ok(redrive.target.clone());
    }
    // The longest name has 80 characters.
    let name = arn.name().trim_end_matches(".fifo");
    let name: String = name.chars().take(80 - "-dead-letters.fifo".len()).collect();
    let name = format!("{name}-dead-letters{}", if arn.is_fifo() { ".fifo" } else { "" });
    let target = arn.to_string().replace(&format!(":{}", arn.name()), &format!(":{name}"));
    let redrive = remedy::redrive_policy(arn, &target, LEAST_RECEIVES);
    let remedies = [Remedy::of([create(arn, &name), redrive])];
    let config = context.config().ok();
    let mode = config.and_then(|config| config.dead_letter.as_ref());
    if matches!(mode, Some(DeadLetterMode::Direct(_))) {
        let found = "the queue has no redrive policy for messages that the function cannot send to \
                     its dead-letter queue";
        warning(found, remedies)
    } else {
        danger("the queue has no redrive policy", remedies)
    }
}

fn dead_letters<'d>(context: &Context<'d>) -> Result<&'d Reached, Skip> {
    context.path()?.dead_letters.as_ref().ok_or(Skip::NotApplicable)
}

pub(super) fn dead_letter_queue(context: &Context<'_>) -> Checked {
    let reached = dead_letters(context)?;
    let (arn, source) = (&reached.arn, context.source()?);
    match reached.queue.as_ref()? {
        Some(queue) => all([
            allow_policy(queue, arn, source.arn.to_string()),
            context.queue().and_then(|source| retention(queue, arn, source)),
            passed_on(queue, arn, &source.arn),
        ]),
        None => missing(arn),
    }
}

fn create(beside: &QueueArn, name: &str) -> String {
    let fifo = if beside.is_fifo() { ",FifoQueue=true" } else { "" };
    format!(
        "aws sqs create-queue --region {} --queue-name {name} --attributes \
         MessageRetentionPeriod={}{fifo}",
        beside.region(),
        LONGEST_RETENTION.as_secs()
    )
}

fn missing(arn: &QueueArn) -> Checked {
    danger(format!("the queue {arn} does not exist"), [create(arn, arn.name())])
}

fn allow_policy(queue: &QueueAttributes, arn: &QueueArn, source: String) -> Checked {
    let Some(named) = queue.redrive_allow.as_deref() else {
        return ok(format!("every queue of the account may use {}", arn.name()));
    };
    if named.contains(&source) {
        return ok(format!("{} allows {source}", arn.name()));
    }
    let found = format!("the RedriveAllowPolicy of {} does not name {source}", arn.name());
    let sources = [named, &[source]].concat();
    let policy = serde_json::json!({ "redrivePermission": "byQueue", "sourceQueueArns": sources });
    danger(found, [remedy::queue_policy(arn, "RedriveAllowPolicy", &policy)])
}

fn retention(queue: &QueueAttributes, arn: &QueueArn, source: &QueueAttributes) -> Checked {
    let (own, source) = (queue.retention, source.retention);
    // Source: SQS developer guide, "Using dead-letter queues in Amazon SQS", on retention.
    let counted = if arn.is_fifo() {
        "from the time when SQS moves it there"
    } else {
        "from the time of its first enqueue"
    };
    let (level, limit) = if own < source && !arn.is_fifo() {
        (Level::Danger, "; SQS deletes a late dead letter at once")
    } else if own < LONGEST_RETENTION {
        (Level::Warning, "; SQS allows 14 days")
    } else {
        (Level::Ok, "")
    };
    let found = format!(
        "{} keeps a message for {}, {counted}, and its source for {}{limit}",
        arn.name(),
        days(own),
        days(source)
    );
    at(level, found, [longest_retention(arn)])
}

fn longest_retention(arn: &QueueArn) -> String {
    remedy::queue_attribute(arn, "MessageRetentionPeriod", LONGEST_RETENTION.as_secs())
}

fn passed_on(queue: &QueueAttributes, arn: &QueueArn, source: &QueueArn) -> Checked {
    let Some(RedriveSettings { target, .. }) = &queue.redrive else {
        return ok(format!("{} has no redrive policy of its own", arn.name()));
    };
    let is_cycle = *target == source.to_string();
    let (level, to) = if is_cycle { (Level::Danger, "back") } else { (Level::Warning, "on") };
    let found = format!("{} passes dead letters {to} to {target}", arn.name());
    at(level, found, [remedy::queue_attribute(arn, "RedrivePolicy", "")])
}

pub(super) fn dead_letter_consumers(context: &Context<'_>) -> Checked {
    let reached = dead_letters(context)?;
    let name = reached.arn.name();
    let Some((consumers, remedies)) = consumers(context, reached, None)? else {
        return ok(format!("no mapping receives messages of {name}"));
    };
    let found = format!("{name} invokes {}", consumers.join(", "));
    // An ARN has the function's name before its alias or version.
    let is_own = |consumer: &&str| {
        let own = context.function().map(|function| function.name.as_str());
        own.is_ok_and(|own| consumer.split(':').nth(6) == Some(own))
    };
    if consumers.iter().any(is_own) {
        let found =
            format!("{found}: the function receives the messages again that it dead-lettered");
        danger(found, remedies)
    } else {
        warning(found, remedies)
    }
}

pub(super) fn reasons(context: &Context<'_>) -> Checked {
    let (path, config) = (context.path()?, context.config()?);
    if config.mode != Mode::Requeue {
        return Err(Skip::NotApplicable);
    }
    let is_fifo = path.source.arn.is_fifo();
    let found = match &config.dead_letter {
        Some(DeadLetterMode::Annotate) if is_fifo => {
            "REQUEUE_DEAD_LETTER is annotate, and the queue is FIFO"
        }
        None => "REQUEUE_DEAD_LETTER is not set, so it is redrive, and no dead letter says why",
        // Somebody has chosen it.
        Some(DeadLetterMode::Redrive) => {
            return ok("REQUEUE_DEAD_LETTER is redrive: no dead letter says why");
        }
        Some(mode) => {
            let found =
                format!("REQUEUE_DEAD_LETTER is {}: each dead letter says why", mode.as_str());
            return ok(found);
        }
    };
    let remedy = if is_fifo {
        format!(
            "{} and `REQUEUE_DEAD_LETTER_QUEUE_URL: {}`, with sqs:SendMessage on it",
            remedy::variable("DEAD_LETTER", "direct"),
            url(path)
        )
    } else {
        format!(
            "{}, with sqs:SendMessage on {}",
            remedy::variable("DEAD_LETTER", "annotate"),
            path.source.arn.name()
        )
    };
    warning(found, [remedy])
}

fn url(path: &QueuePath) -> String {
    path.dead_letters.as_ref().map_or_else(|| "URL".to_owned(), |reached| reached.arn.url())
}

pub(super) fn direct_queue(context: &Context<'_>) -> Checked {
    let path = context.path()?;
    let reached = path.direct.as_ref().ok_or(Skip::NotApplicable)?;
    let (direct, source) = (&reached.arn, &path.source.arn);
    if direct == source {
        let found = "REQUEUE_DEAD_LETTER_QUEUE_URL names the source queue itself, so messages that \
                     are dead-lettered return to it";
        let remedy = remedy::variable("DEAD_LETTER_QUEUE_URL", &url(path));
        return danger(found, [remedy]);
    }
    let Some(queue) = reached.queue.as_ref()? else { return missing(direct) };
    let name = direct.name();
    if direct.is_fifo() != source.is_fifo() {
        let kind = if source.is_fifo() { "FIFO" } else { "standard" };
        let found = format!("{name} is of another kind than {}, a {kind} queue", source.name());
        let remedy = format!("name a {kind} queue in REQUEUE_DEAD_LETTER_QUEUE_URL");
        return warning(found, [remedy]);
    }
    if let Some(other) = path.dead_letters.as_ref().filter(|other| other.arn != *direct) {
        let other = other.arn.name();
        let found = format!(
            "{name} is not {other}, the dead-letter queue of the redrive policy, where the `dlq` \
             commands and the alarms look"
        );
        let remedy = remedy::variable("DEAD_LETTER_QUEUE_URL", &url(path));
        return warning(found, [remedy]);
    }
    let is_short = queue.retention < LONGEST_RETENTION;
    let level = if is_short { Level::Warning } else { Level::Ok };
    let found = format!("{name} keeps a message for {}; SQS allows 14 days", days(queue.retention));
    at(level, found, [longest_retention(direct)])
}

//! Checks of the dead-letter queues.

use requeue::queue::{MAX_RETENTION, QueueArn};
use requeue::{DeadLetterMode, Mode};

use super::super::arn::function_name;
use super::super::facts::{QueueAttributes, Reached, RedriveSettings};
use super::{
    ASK, Checked, Context, Level, Mapping, Remedy, Skip, all, at, consumers, danger, days,
    enough_receives, named, ok, remedy, stop, warning,
};

pub(super) fn redrive_policy(context: &Context<'_>) -> Checked {
    let (queue, arn) = (context.queue()?, &context.source()?.arn);
    let found = match &queue.redrive {
        None => match &context.deployment.unlisted {
            Some(unread) => return Err(unread.into()),
            None => "the queue has no redrive policy".to_owned(),
        },
        Some(RedriveSettings { target, .. }) => match misfit(context)? {
            None => return ok(target.clone()),
            Some(why) => format!("the redrive policy names {target}, which is {why}"),
        },
    };
    // SQS redrives within one account and region.
    let place = |arn: &QueueArn| {
        let (text, name) = (arn.to_string(), arn.name());
        text.strip_suffix(name).unwrap_or_default().to_owned()
    };
    let direct = direct(context).ok().filter(|direct| place(&direct.arn) == place(arn));
    let name = direct.map_or_else(|| name_for(arn), |direct| direct.arn.name().to_owned());
    let is_new = direct.is_none_or(|direct| direct.queue == Ok(None));
    let redrive = remedy::redrive_policy(arn, &(place(arn) + &name), enough_receives(context)?);
    let create = is_new.then(|| create(arn, &name));
    let other = is_new.then_some("if another queue has its dead letters, name that one instead");
    let remedies = [Remedy::of(create.into_iter().chain([redrive]))];
    let remedies = remedies.into_iter().chain(other.map(Remedy::from));
    let mode = context.config().map(|config| &config.dead_letter);
    if matches!(mode, Ok(Some(DeadLetterMode::Direct(_)))) {
        let whose = "for messages that the function cannot send to its dead-letter queue";
        warning(format!("{found} {whose}"), remedies)
    } else {
        danger(found, remedies)
    }
}

/// The name of a new dead-letter queue. The longest name has 80 characters.
fn name_for(source: &QueueArn) -> String {
    let name = source.name().trim_end_matches(".fifo");
    let name: String = name.chars().take(80 - "-dead-letters.fifo".len()).collect();
    format!("{name}-dead-letters{}", if source.is_fifo() { ".fifo" } else { "" })
}

/// Why the queue that the redrive policy names is no dead-letter queue of this one.
fn misfit(context: &Context<'_>) -> Result<Option<String>, Skip> {
    let (path, source) = (context.path()?, &context.source()?.arn);
    let Some(reached) = &path.dead_letters else {
        return Ok(Some("no ARN of a queue".to_owned()));
    };
    if reached.arn == *source {
        return Ok(Some("this queue itself".to_owned()));
    }
    if reached.arn.is_fifo() != source.is_fifo() {
        return Ok(Some(format!("no {} queue", kind(source))));
    }
    let redrive = reached.known().and_then(|queue| queue.redrive.as_ref());
    let is_passed_on = redrive.is_some_and(|redrive| redrive.target != source.to_string());
    let others = consumers(reached, None).unwrap_or_default();
    let is_foreign = !others.is_empty() && !others.iter().any(|one| is_own(context, one));
    let why = || format!("a source queue: it invokes {}, and has a redrive policy", named(&others));
    Ok((is_passed_on && is_foreign).then(why))
}

fn kind(queue: &QueueArn) -> &'static str {
    if queue.is_fifo() { "FIFO" } else { "standard" }
}

/// The queue of the redrive policy, unless that one is wrong, which `redrive-policy` reports.
pub(super) fn dead_letters<'d>(context: &Context<'d>) -> Result<&'d Reached, Skip> {
    let reached = context.path()?.dead_letters.as_ref();
    let is_right = misfit(context)?.is_none();
    reached.filter(|_| is_right).ok_or(Skip::NotApplicable)
}

/// The queue to which the function sends dead letters, unless `direct-queue` reports it as wrong.
pub(super) fn direct<'d>(context: &Context<'d>) -> Result<&'d Reached, Skip> {
    let (path, other) = (context.path()?, dead_letters(context).ok());
    let is_right = |reached: &&Reached| {
        let (arn, source) = (&reached.arn, &path.source.arn);
        arn != source
            && arn.is_fifo() == source.is_fifo()
            && other.is_none_or(|other| other.arn == *arn)
    };
    path.direct.as_ref().filter(is_right).ok_or(Skip::NotApplicable)
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
        MAX_RETENTION.as_secs()
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
    } else if own < MAX_RETENTION {
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
    remedy::queue_attribute(arn, "MessageRetentionPeriod", MAX_RETENTION.as_secs())
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
    let others = consumers(reached, None)?;
    if others.is_empty() {
        return ok(format!("no mapping receives messages of {name}"));
    }
    let found = format!("{name} invokes {}", named(&others));
    if !others.iter().any(|one| is_own(context, one)) {
        return warning(found + ASK, [stop(context, others)]);
    }
    let found = format!("{found}: the function receives the messages again that it dead-lettered");
    danger(found, [stop(context, others.into_iter().filter(|one| is_own(context, one)))])
}

fn is_own(context: &Context<'_>, consumer: &Mapping) -> bool {
    let own = context.function().map(|function| function.name.as_str());
    own.is_ok_and(|own| function_name(&consumer.function) == own)
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
    let annotate = || remedy::variable(context, "DEAD_LETTER", "annotate");
    let set = if is_fifo { set_direct(context) } else { annotate() };
    let on = if is_fifo { "it" } else { path.source.arn.name() };
    warning(found, [format!("{set}, with sqs:SendMessage on {on}")])
}

/// The settings of the mode direct.
pub(super) fn set_direct(context: &Context<'_>) -> String {
    let values = [("DEAD_LETTER", "direct"), ("DEAD_LETTER_QUEUE_URL", &url(context))];
    remedy::variables(context, &values)
}

fn url(context: &Context<'_>) -> String {
    dead_letters(context).map_or_else(|_| "URL".to_owned(), |reached| reached.arn.url())
}

pub(super) fn direct_queue(context: &Context<'_>) -> Checked {
    let path = context.path()?;
    let reached = path.direct.as_ref().ok_or(Skip::NotApplicable)?;
    let (direct, source) = (&reached.arn, &path.source.arn);
    let set_url = || remedy::variable(context, "DEAD_LETTER_QUEUE_URL", &url(context));
    if direct == source {
        let found = "REQUEUE_DEAD_LETTER_QUEUE_URL names the source queue itself, so messages that \
                     are dead-lettered return to it";
        return danger(found, [set_url()]);
    }
    let name = direct.name();
    if direct.is_fifo() != source.is_fifo() {
        let kind = kind(source);
        let found = format!("{name} is of another kind than {}, a {kind} queue", source.name());
        let remedy = format!("name a {kind} queue in REQUEUE_DEAD_LETTER_QUEUE_URL");
        return warning(found, [remedy]);
    }
    if let Some(other) = dead_letters(context).ok().filter(|other| other.arn != *direct) {
        // Their names may be the same in two regions.
        let other = &other.arn;
        let (level, is) = match &reached.queue {
            Ok(None) => (Level::Danger, "does not exist, and is"),
            _ => (Level::Warning, "is"),
        };
        let found = format!(
            "{direct} {is} not {other}, the dead-letter queue of the redrive policy, where the `dlq` \
             commands and the alarms look"
        );
        return at(level, found, [set_url()]);
    }
    let Some(queue) = reached.queue.as_ref()? else { return missing(direct) };
    let is_short = queue.retention < MAX_RETENTION;
    let level = if is_short { Level::Warning } else { Level::Ok };
    let found = format!("{name} keeps a message for {}; SQS allows 14 days", days(queue.retention));
    at(level, found, [longest_retention(direct)])
}

//! Where messages go that are given up.

use requeue::queue::QueueArn;
use requeue::{DeadLetterMode, Mode};

use super::super::case::Case;
use super::super::facts::{Queue, Reached, RedriveAllow};
use super::super::finding::{Check, Looked, Skip, Verdict};
use super::super::remedy;
use super::queue::LEAST_RECEIVES;
use super::{LONGEST_RETENTION, days};
use crate::table::span;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "redrive-policy",
        why: "Without a dead-letter queue a message that is given up, or that crashes the function, comes back until its retention ends, and vanishes.",
        look: redrive_policy,
    },
    Check {
        id: "dead-letter-queue",
        why: "SQS keeps a message where it is when it cannot move it, and deletes it when its retention ends.",
        look: dead_letter_queue,
    },
    Check {
        id: "redrive-allow-policy",
        why: "SQS moves nothing to a dead-letter queue whose RedriveAllowPolicy does not name the source.",
        look: redrive_allow_policy,
    },
    Check {
        id: "dead-letter-retention",
        why: "SQS deletes a message when the retention of the dead-letter queue ends, whether or not somebody has looked at it.",
        look: retention,
    },
    Check {
        id: "annotate-receives",
        why: "An annotated copy comes back at once for its first 10 receives only, and then for each after a visibility timeout.",
        look: annotate_receives,
    },
    Check {
        id: "annotate-fifo",
        why: "The mode annotate sends a copy, which would lose its place: on a FIFO queue it is as redrive, and the dead-letter queue does not say why.",
        look: annotate_fifo,
    },
    Check {
        id: "direct-queue",
        why: "In the mode direct the function sends what is given up to this queue; if that fails, the message stays until SQS moves it.",
        look: direct_queue,
    },
];

/// Receives for which an annotated copy comes back at once.
const ANNOTATED_RECEIVES: u32 = 10;

fn redrive_policy(case: &Case<'_>) -> Looked {
    let (queue, arn) = (case.queue()?, &case.source()?.arn);
    if let Some(redrive) = &queue.redrive {
        return Ok(Verdict::ok(redrive.target.clone()));
    }
    let (name, is_fifo) =
        arn.name().strip_suffix(".fifo").map_or((arn.name(), false), |name| (name, true));
    let (suffix, attribute) = if is_fifo { (".fifo", ",FifoQueue=true") } else { ("", "") };
    // The longest name has 80 characters.
    let name: String = name.chars().take(80 - "-dead-letters.fifo".len()).collect();
    let name = format!("{name}-dead-letters{suffix}");
    let target = arn.to_string().replace(&format!(":{}", arn.name()), &format!(":{name}"));
    let create = format!(
        "aws sqs create-queue --region {} --queue-name {name} --attributes MessageRetentionPeriod={}{attribute}",
        arn.region(),
        LONGEST_RETENTION.as_secs()
    );
    let remedies =
        [format!("{create} && {}", remedy::redrive_policy(arn, &target, LEAST_RECEIVES))];
    let goes_elsewhere =
        case.config().is_ok_and(|config| matches!(config.dead_letter, DeadLetterMode::Direct(_)));
    Ok(if goes_elsewhere {
        let found = "the queue has no redrive policy, for what the function cannot send to its dead-letter queue itself";
        Verdict::warning(found, remedies)
    } else {
        Verdict::danger("the queue has no redrive policy", remedies)
    })
}

fn dead_letters<'d>(case: &Case<'d>) -> Result<&'d Reached, Skip> {
    case.place()?.dead_letters.as_ref().ok_or(Skip::NotApplicable)
}

/// The attributes. That there are none, `dead-letter-queue` says.
fn attributes<'d>(case: &Case<'d>) -> Result<(&'d Queue, &'d QueueArn), Skip> {
    let reached = dead_letters(case)?;
    Ok((reached.known().ok_or(Skip::NotApplicable)?, &reached.arn))
}

fn dead_letter_queue(case: &Case<'_>) -> Looked {
    let reached = dead_letters(case)?;
    Ok(match reached.queue.as_ref()? {
        Some(_) => Verdict::ok(format!("{} exists", reached.arn.name())),
        None => {
            Verdict::danger(format!("there is no queue {}", reached.arn), [create(&reached.arn)])
        }
    })
}

fn create(arn: &QueueArn) -> String {
    let fifo = if arn.is_fifo() { ",FifoQueue=true" } else { "" };
    format!(
        "aws sqs create-queue --region {} --queue-name {} --attributes MessageRetentionPeriod={}{fifo}",
        arn.region(),
        arn.name(),
        LONGEST_RETENTION.as_secs()
    )
}

fn redrive_allow_policy(case: &Case<'_>) -> Looked {
    let (queue, arn) = attributes(case)?;
    let source = case.source()?.arn.to_string();
    let found = match &queue.redrive_allow {
        RedriveAllow::All => return Ok(Verdict::ok("every queue of the account may use it")),
        RedriveAllow::Queues(sources) if sources.contains(&source) => {
            return Ok(Verdict::ok(format!("{} names {source}", arn.name())));
        }
        RedriveAllow::Queues(_) => {
            format!("the RedriveAllowPolicy of {} does not name {source}", arn.name())
        }
        RedriveAllow::None => {
            format!("the RedriveAllowPolicy of {} denies every queue", arn.name())
        }
    };
    let mut sources = match &queue.redrive_allow {
        RedriveAllow::Queues(sources) => sources.clone(),
        RedriveAllow::All | RedriveAllow::None => Vec::new(),
    };
    sources.push(source);
    let policy = serde_json::json!({ "redrivePermission": "byQueue", "sourceQueueArns": sources });
    Ok(Verdict::danger(found, [remedy::queue_policy(arn, "RedriveAllowPolicy", &policy)]))
}

fn retention(case: &Case<'_>) -> Looked {
    let (queue, arn) = attributes(case)?;
    let (own, source) = (queue.retention, case.queue()?.retention);
    // Source: SQS developer guide, "Using dead-letter queues in Amazon SQS", on retention.
    let counted = if arn.is_fifo() {
        "counted anew from when SQS moves it there"
    } else {
        "counted from when it was first enqueued"
    };
    let compared = format!(
        "{} keeps a message for {}, {counted}, and its source for {}",
        arn.name(),
        days(own),
        days(source)
    );
    let remedies =
        [remedy::queue_attribute(arn, "MessageRetentionPeriod", LONGEST_RETENTION.as_secs())];
    Ok(if own < source && !arn.is_fifo() {
        Verdict::danger(
            format!("{compared}: one that was given up late vanishes at once"),
            remedies,
        )
    } else if own < LONGEST_RETENTION {
        Verdict::warning(format!("{compared}; SQS allows {}", days(LONGEST_RETENTION)), remedies)
    } else {
        Verdict::ok(compared)
    })
}

fn annotate_receives(case: &Case<'_>) -> Looked {
    let redrive = case.queue()?.redrive.as_ref().ok_or(Skip::NotApplicable)?;
    let arn = &case.source()?.arn;
    if !is_annotating(case)? || arn.is_fifo() {
        return Err(Skip::NotApplicable);
    }
    let count = redrive.max_receive_count;
    Ok(if count > ANNOTATED_RECEIVES {
        let rest = case.queue()?.visibility * (count - ANNOTATED_RECEIVES);
        let found = format!(
            "maxReceiveCount is {count}: an annotated copy reaches the dead-letter queue {} later",
            span(rest)
        );
        let direct = "template, below Environment: Variables: `REQUEUE_DEAD_LETTER: direct`, and REQUEUE_DEAD_LETTER_QUEUE_URL";
        Verdict::warning(
            found,
            [remedy::redrive_policy(arn, &redrive.target, ANNOTATED_RECEIVES), direct.to_owned()],
        )
    } else {
        Verdict::ok(format!("maxReceiveCount is {count}, and {ANNOTATED_RECEIVES} are at once"))
    })
}

fn annotate_fifo(case: &Case<'_>) -> Looked {
    let place = case.place()?;
    if !place.source.arn.is_fifo() {
        return Err(Skip::NotApplicable);
    }
    if !is_annotating(case)? {
        return Ok(Verdict::ok("the mode is not annotate"));
    }
    let url =
        place.dead_letters.as_ref().map_or_else(|| "URL".to_owned(), |reached| reached.arn.url());
    let remedies = [format!(
        "{} and `REQUEUE_DEAD_LETTER_QUEUE_URL: {url}`, with sqs:SendMessage on it",
        remedy::variable("DEAD_LETTER", "direct")
    )];
    Ok(Verdict::warning("REQUEUE_DEAD_LETTER is annotate, and the queue is FIFO", remedies))
}

fn is_annotating(case: &Case<'_>) -> Result<bool, Skip> {
    let config = case.config()?;
    Ok(config.dead_letter == DeadLetterMode::Annotate && config.mode == Mode::Requeue)
}

fn direct_queue(case: &Case<'_>) -> Looked {
    let place = case.place()?;
    let reached = place.direct.as_ref().ok_or(Skip::NotApplicable)?;
    let (direct, source) = (&reached.arn, &place.source.arn);
    if direct == source {
        let found =
            "REQUEUE_DEAD_LETTER_QUEUE_URL is the queue itself: what is given up comes back";
        let url = place
            .dead_letters
            .as_ref()
            .map_or_else(|| "URL".to_owned(), |reached| reached.arn.url());
        return Ok(Verdict::danger(found, [remedy::variable("DEAD_LETTER_QUEUE_URL", &url)]));
    }
    Ok(match reached.queue.as_ref()? {
        None => Verdict::danger(format!("there is no queue {direct}"), [create(direct)]),
        Some(_) if direct.is_fifo() != source.is_fifo() => {
            let kind = if source.is_fifo() { "FIFO" } else { "standard" };
            let found = format!(
                "{} is of another kind than {}, which is {kind}",
                direct.name(),
                source.name()
            );
            Verdict::warning(
                found,
                [format!("name a {kind} queue in REQUEUE_DEAD_LETTER_QUEUE_URL")],
            )
        }
        Some(queue) if queue.retention < LONGEST_RETENTION => Verdict::warning(
            format!(
                "{} keeps a message for {}; SQS allows {}",
                direct.name(),
                span(queue.retention),
                days(LONGEST_RETENTION)
            ),
            [remedy::queue_attribute(
                direct,
                "MessageRetentionPeriod",
                LONGEST_RETENTION.as_secs(),
            )],
        ),
        Some(queue) => {
            Verdict::ok(format!("{} keeps a message for {}", direct.name(), days(queue.retention)))
        }
    })
}

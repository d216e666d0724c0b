//! The checks before the first message is received. They report a setting that would lose messages
//! or deliver them twice.

use std::time::{Duration, SystemTime};

use tokio::time::{sleep, timeout};

use super::RESPONSE_TIMEOUT;
use super::settings::{WithoutDeadLetterQueue, WorkerSettings};
use crate::clock::Clock;
use crate::config::Error;
use crate::disposition::Strategy;
use crate::queue::{CallError, CallErrorKind, Description, Queue, QueueArn, Source};
use crate::settings::{DeadLetterMode, Mode, NO_TABLE, Settings};
use crate::state::REDRIVE_TOLERANCE;

/// The most by which this machine's clock and that of SQS may differ. It is half of the tolerance
/// that distinguishes a redriven message from a copy.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(REDRIVE_TOLERANCE.as_secs() / 2);

/// The third receive of a message isolates it from others, and one more must be left then.
const LEAST_RECEIVES: u32 = 4;

/// Why a worker does not start.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// SQS refuses to describe the queue.
    #[error("{}", refusal(.queue, .code))]
    Refused {
        /// The queue.
        queue: QueueArn,
        /// SQS's code.
        code: String,
    },
    /// SQS does not respond, or is unavailable.
    #[error(
        "SQS does not respond ({code}): check the network, the credentials, the region and AWS_ENDPOINT_URL_SQS"
    )]
    Unavailable {
        /// The code from SQS, or a code of this crate.
        code: String,
    },
    /// The queue has no redrive policy; [`WithoutDeadLetterQueue::Warn`] allows that.
    #[error(
        "{queue} has no redrive policy, so a message that is dead-lettered would return until its retention ends: give it a \
         dead-letter queue, or allow to work without one by --without-dead-letter-queue"
    )]
    NoDeadLetterQueue {
        /// The queue.
        queue: QueueArn,
    },
    /// The dead-letter queue does not exist.
    #[error(
        "{} names {queue} as the dead-letter queue, but it does not exist, so a message that is dead-lettered would return \
         until its retention ends: create that queue, name another one, or allow to work without one by --without-dead-letter-queue",
        if *.is_direct { "REQUEUE_DEAD_LETTER_QUEUE_URL" } else { "the queue's redrive policy" }
    )]
    MissingDeadLetterQueue {
        /// The queue that is missing.
        queue: QueueArn,
        /// Whether the mode `direct` names it, and not the queue's redrive policy.
        is_direct: bool,
    },
    /// The mode `direct` names the queue itself as its dead-letter queue.
    #[error(
        "REQUEUE_DEAD_LETTER_QUEUE_URL names {queue} itself, so its dead letters would return to it: name its dead-letter queue"
    )]
    OwnDeadLetterQueue {
        /// The queue.
        queue: QueueArn,
    },
    /// The policy has `idempotency`, and the settings have no table.
    #[error("{NO_TABLE}")]
    NoTable,
    /// The queue's visibility timeout is zero.
    #[error(
        "the queue's visibility timeout is 0, so SQS delivers every message again while it is handled: set it to \
         30 s or more"
    )]
    NoVisibilityTimeout,
    /// The clocks of this machine and of SQS differ.
    #[error(
        "this machine's clock and that of SQS differ by {} s, and at most {} s are allowed: set the clock",
        .difference.as_secs(),
        MAX_CLOCK_DIFFERENCE.as_secs()
    )]
    Clock {
        /// The difference, in whole seconds.
        difference: Duration,
    },
}

fn refusal(queue: &QueueArn, code: &str) -> String {
    if is_missing(code) {
        let (name, region) = (queue.name(), queue.region());
        return format!(
            "there is no queue {name} in {region} ({code}): check the queue's URL, the region and AWS_ENDPOINT_URL_SQS"
        );
    }
    format!(
        "SQS refuses access to {queue} ({code}): the worker needs sqs:ReceiveMessage, sqs:DeleteMessage, \
         sqs:ChangeMessageVisibility, sqs:GetQueueAttributes and sqs:SendMessage on it, and valid credentials"
    )
}

requeue_sqs::debug_as_display!(StartError);

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        Self::of(error)
    }
}

pub(super) async fn check(
    source: &(impl Queue + Source),
    queue: &QueueArn,
    settings: &Settings,
    worker: &WorkerSettings,
) -> Result<Description, StartError> {
    if settings.lacks_table() {
        return Err(StartError::NoTable);
    }
    let description = describe(source, queue, settings).await?;
    let clock = settings.clock.clone().unwrap_or_else(|| source.clock());
    check_clock(&clock, description.date)?;
    if description.visibility.is_zero() {
        return Err(StartError::NoVisibilityTimeout);
    }
    if description.visibility < settings.limits.timeout {
        tracing::warn!(
            visibilitySeconds = description.visibility.as_secs(),
            timeoutSeconds = settings.limits.timeout.as_secs(),
            "the queue's visibility timeout is shorter than the handler's timeout: the worker extends it, but if an extension \
             fails, SQS delivers the message twice"
        );
    }
    if let Some(receives) = description.max_receive_count.filter(|count| *count < LEAST_RECEIVES) {
        tracing::warn!(
            maxReceiveCount = receives,
            "the queue's maxReceiveCount is low: each shutdown, crash or kill of a worker uses up a receive of the messages in hand, and \
             after the last one SQS dead-letters them without a reason: set it to 5 or more"
        );
    }
    if let Some(receives) = description.max_receive_count
        && waits_in_place(&description.arn, settings)
        && receives <= settings.policy.max_retries
    {
        tracing::warn!(
            maxReceiveCount = receives,
            maxRetries = settings.policy.max_retries,
            "messages wait in flight, so each receive counts as a retry, and SQS dead-letters a message before its retries \
             are used up: set the queue's maxReceiveCount above maxRetries, or lower maxRetries"
        );
    }
    check_dead_letters(source, &description, settings, worker).await?;
    warn_of_missing_queues(source, &description.arn, settings).await;
    Ok(description)
}

fn waits_in_place(queue: &QueueArn, settings: &Settings) -> bool {
    settings.mode == Mode::Requeue && (queue.is_fifo() || settings.strategy == Strategy::Visibility)
}

/// A message that is dead-lettered needs a dead-letter queue. In the mode `direct` the setting names it,
/// otherwise the redrive policy does.
async fn check_dead_letters(
    source: &impl Source,
    description: &Description,
    settings: &Settings,
    worker: &WorkerSettings,
) -> Result<(), StartError> {
    let direct = match &settings.dead_letter {
        Some(DeadLetterMode::Direct(url)) => {
            Some(url.arn(description.arn.partition(), description.arn.region()))
        }
        Some(DeadLetterMode::Redrive | DeadLetterMode::Annotate) | None => None,
    };
    if direct.as_ref() == Some(&description.arn) {
        return Err(StartError::OwnDeadLetterQueue { queue: description.arn.clone() });
    }
    if let (Some(direct), Some(moved)) = (&direct, &description.dead_letter_queue)
        && direct != moved
    {
        tracing::warn!(
            queue = direct.name(),
            redrivePolicy = moved.name(),
            "REQUEUE_DEAD_LETTER_QUEUE_URL names another queue than the redrive policy: a consumer of that queue gets the dead letters"
        );
    }
    let missing = match (&direct, &description.dead_letter_queue) {
        (Some(queue), _) | (None, Some(queue)) => {
            let is_direct = direct.is_some();
            let is_there = exists(source, queue, settings).await;
            (!is_there)
                .then(|| StartError::MissingDeadLetterQueue { queue: queue.clone(), is_direct })
        }
        (None, None) => Some(StartError::NoDeadLetterQueue { queue: description.arn.clone() }),
    };
    match missing {
        Some(missing) if worker.without_dead_letter_queue == WithoutDeadLetterQueue::Refuse => {
            return Err(missing);
        }
        Some(StartError::MissingDeadLetterQueue { queue, .. }) => {
            tracing::warn!(%queue, "the dead-letter queue does not exist: a message that is dead-lettered returns until its retention ends");
        }
        _ => {}
    }
    // In the mode `report` the worker sends nothing on any queue.
    if description.arn.is_fifo()
        && settings.dead_letter == Some(DeadLetterMode::Annotate)
        && settings.mode == Mode::Requeue
    {
        tracing::warn!(
            "the dead-letter mode annotate acts as redrive on a FIFO queue, so the dead-letter queue does not say why a message was \
             dead-lettered; the mode direct does"
        );
    }
    // Also in the mode `direct`: if a dead letter cannot be sent, the redrive policy has to move
    // it.
    if description.dead_letter_queue.is_none() {
        tracing::warn!(
            "the queue has no redrive policy: a message that is dead-lettered returns until its retention ends, and then SQS deletes it"
        );
    }
    Ok(())
}

/// Whether a queue exists. If the worker may not ask, it counts as existing.
async fn exists(source: &impl Source, queue: &QueueArn, settings: &Settings) -> bool {
    // The future is on the heap: it runs once in a worker's life, and would enlarge the future of
    // `start`.
    match Box::pin(describe(source, queue, settings)).await {
        Err(StartError::Refused { code, .. }) if is_missing(&code) => false,
        Err(error) => {
            tracing::info!(%queue, %error, "whether the dead-letter queue exists is not known");
            true
        }
        Ok(_) => true,
    }
}

/// Warns of settings for a queue that does not exist: its name is misspelt. One that exists may be the
/// queue of another worker with the same settings, and so may one that this worker may not ask for.
async fn warn_of_missing_queues(source: &impl Source, own: &QueueArn, settings: &Settings) {
    let asking = async {
        for queue in settings.queues.keys().filter(|name| *name != own.name()) {
            let (partition, region, account) = (own.partition(), own.region(), own.account());
            let arn = format!("arn:{partition}:sqs:{region}:{account}:{queue}");
            let Ok(arn) = arn.parse() else { continue };
            if source.describe(&arn).await.is_err_and(|error| is_missing(&error.code)) {
                tracing::warn!(
                    queue,
                    "the policy has an entry for a queue that does not exist, so the entry has no effect: correct the name, or remove it"
                );
            }
        }
    };
    // The work is more urgent than a warning.
    let _ = timeout(RESPONSE_TIMEOUT, asking).await;
}

/// Whether SQS's code means that there is no such queue.
fn is_missing(code: &str) -> bool {
    code.ends_with("NonExistentQueue") || code == "QueueDoesNotExist"
}

async fn describe(
    source: &impl Source,
    queue: &QueueArn,
    settings: &Settings,
) -> Result<Description, StartError> {
    let (mut attempts, mut previous) = (0, None);
    loop {
        attempts += 1;
        let response = timeout(RESPONSE_TIMEOUT, source.describe(queue)).await;
        let error = match response.unwrap_or_else(|_| Err(CallError::timed_out())) {
            Ok(description) => return Ok(description),
            Err(error) => error,
        };
        match error.kind {
            CallErrorKind::Refused | CallErrorKind::Malformed => {
                return Err(StartError::Refused { queue: queue.clone(), code: error.code });
            }
            CallErrorKind::Unavailable | CallErrorKind::Ambiguous => {}
        }
        let policy = &settings.policy.receive_calls;
        previous = policy.pause(attempts, previous, settings.sampler.sample());
        match previous {
            Some(pause) => sleep(pause).await,
            None => return Err(StartError::Unavailable { code: error.code }),
        }
    }
}

fn check_clock(clock: &Clock, date: Option<SystemTime>) -> Result<(), StartError> {
    let (Some(date), now) = (date, clock.now()) else { return Ok(()) };
    let difference = now.duration_since(date).unwrap_or_else(|early| early.duration());
    if difference > MAX_CLOCK_DIFFERENCE { Err(StartError::Clock { difference }) } else { Ok(()) }
}

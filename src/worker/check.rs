//! What is looked at before the first message is received: what would lose messages, or deliver them twice, is said at once.

use std::fmt;
use std::time::{Duration, SystemTime};

use tokio::time::{sleep, timeout};

use super::{ANSWER_TIMEOUT, WorkerSettings};
use crate::clock::{Clock, Sampler};
use crate::policy::CallPolicy;
use crate::queue::{CallError, CallErrorKind, Description, QueueArn, Source};
use crate::settings::{DeadLetterMode, Settings};

/// Our clock and that of SQS may differ by so much: half of what tells a redriven message from one that we sent.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);

/// What it means that the queue has no redrive policy.
///
/// ```
/// use requeue::WithoutDeadLetterQueue;
/// assert_eq!(WithoutDeadLetterQueue::default(), WithoutDeadLetterQueue::Refuse);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutDeadLetterQueue {
    /// The worker does not start.
    #[default]
    Refuse,
    /// A warning: a message that is given up comes back again and again, and vanishes when its retention ends.
    Warn,
}

/// Why a worker does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// SQS refuses to tell about the queue.
    Refused {
        /// The queue.
        queue: QueueArn,
        /// SQS's code.
        code: String,
    },
    /// SQS does not answer, or cannot now.
    Unavailable {
        /// SQS's code, or ours.
        code: String,
    },
    /// The queue has no redrive policy.
    NoDeadLetterQueue,
    /// The queue's visibility timeout is zero.
    NoVisibilityTimeout,
    /// The clocks differ.
    Clock {
        /// By so many seconds.
        difference: Duration,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { queue, code } if code.ends_with("NonExistentQueue") || code == "QueueDoesNotExist" => write!(
                f,
                "there is no queue {} in {} ({code}): check the queue's URL, the region and AWS_ENDPOINT_URL_SQS",
                queue.name(),
                queue.region()
            ),
            Self::Refused { queue, code } => write!(
                f,
                "SQS refuses access to {queue} ({code}): the worker needs sqs:ReceiveMessage, sqs:DeleteMessage, \
                 sqs:ChangeMessageVisibility, sqs:GetQueueAttributes and sqs:SendMessage on it, and valid credentials"
            ),
            Self::Unavailable { code } => write!(
                f,
                "SQS does not answer ({code}): check the network, the credentials, the region and AWS_ENDPOINT_URL_SQS"
            ),
            Self::NoDeadLetterQueue => f.write_str(
                "the queue has no redrive policy, so that what is given up would go round until it vanishes: give it a \
                 dead-letter queue, or say that it is to be worked on without",
            ),
            Self::NoVisibilityTimeout => f.write_str(
                "the queue's visibility timeout is 0, so that every message is delivered again while it is handled: set it to \
                 30 s or more",
            ),
            Self::Clock { difference } => write!(
                f,
                "this machine's clock and that of SQS differ by {} s, and at most {} s are allowed: set the clock",
                difference.as_secs(),
                MAX_CLOCK_DIFFERENCE.as_secs()
            ),
        }
    }
}

impl std::error::Error for StartError {}

pub(super) async fn check(
    source: &impl Source,
    queue: &QueueArn,
    settings: &Settings,
    worker: &WorkerSettings,
) -> Result<Description, StartError> {
    let description = describe(source, queue, &settings.policy.receive_calls, &settings.sampler).await?;
    check_clock(&settings.clock, description.date)?;
    if description.visibility.is_zero() {
        return Err(StartError::NoVisibilityTimeout);
    }
    if description.visibility < settings.limits.timeout {
        tracing::warn!(
            visibilitySeconds = description.visibility.as_secs(),
            timeoutSeconds = settings.limits.timeout.as_secs(),
            "the queue's visibility timeout is shorter than a handler may run: it is extended meanwhile, but where that fails, \
             the message is delivered twice"
        );
    }
    if !description.has_redrive_policy {
        let goes_elsewhere = matches!(settings.dead_letter, DeadLetterMode::Direct(_));
        if worker.without_dead_letter_queue == WithoutDeadLetterQueue::Refuse && !goes_elsewhere {
            return Err(StartError::NoDeadLetterQueue);
        }
        tracing::warn!(
            "the queue has no redrive policy: what is given up in it comes back until its retention ends, and then vanishes"
        );
    }
    Ok(description)
}

async fn describe(
    source: &impl Source,
    queue: &QueueArn,
    policy: &CallPolicy,
    sampler: &Sampler,
) -> Result<Description, StartError> {
    let (mut attempts, mut previous) = (0, None);
    loop {
        attempts += 1;
        let answer = timeout(ANSWER_TIMEOUT, source.describe(queue)).await;
        let error = match answer.unwrap_or_else(|_| Err(CallError::ambiguous("TimedOut"))) {
            Ok(description) => return Ok(description),
            Err(error) => error,
        };
        match error.kind {
            CallErrorKind::Refused | CallErrorKind::Malformed => {
                return Err(StartError::Refused { queue: queue.clone(), code: error.code });
            }
            CallErrorKind::Unavailable | CallErrorKind::Ambiguous => {}
        }
        previous = policy.pause(attempts, previous, sampler.sample());
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

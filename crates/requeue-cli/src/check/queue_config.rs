//! The `queueConfig` of a document, beside the policy's needs.

use std::time::Duration;

use requeue::QueueConfig;
use requeue::policy::RetryPolicy;
use serde_json::{Value, json};

use super::WARNING;
use crate::document::RETRIED_CLASSES;
use crate::table::{span, thousands};

/// A visibility timeout lasts at least this many function timeouts, plus the batching window.
/// Source: Lambda developer guide, "Using Lambda with Amazon SQS".
const VISIBILITY_FACTOR: u32 = 6;
/// The least `maxReceiveCount`. Source: as above.
const MIN_RECEIVES: u32 = 5;
/// The longest delay of one copy. A message may exceed its age budget by this.
const LAST_WAIT: Duration = Duration::from_secs(900);

pub(super) fn advice(queue: &QueueConfig, policy: &RetryPolicy) -> String {
    let mut lines =
        vec!["queueConfig: Requeue does not apply it; set these values at the queue".to_owned()];
    let mut tell =
        |name: &str, value: String, words: String| lines.push(format!("  {name} {value}: {words}"));
    if let Some(visibility) = queue.visibility_timeout {
        let words = match visibility / VISIBILITY_FACTOR {
            timeout if timeout < Duration::from_secs(1) => {
                format!(
                    "{WARNING}too short for any function; it must be at least {VISIBILITY_FACTOR} × the \
                     function's timeout plus the batching window"
                )
            }
            timeout => format!(
                "enough for a function timeout of {} at most, without a batching window",
                span(timeout)
            ),
        };
        tell("visibilityTimeout", span(visibility), words);
    }
    if let Some(retention) = queue.message_retention {
        let longest = RETRIED_CLASSES
            .iter()
            .filter_map(|class| policy.class(*class))
            .map(|class| class.total_timeout)
            .max();
        let needed = longest.unwrap_or_default() + LAST_WAIT;
        let words = if retention > needed {
            format!("longer than the {} that this policy may take", span(needed))
        } else {
            format!(
                "{WARNING}too short; this policy may take {}, and SQS deletes older messages",
                span(needed)
            )
        };
        tell("messageRetentionPeriod", span(retention), words);
    }
    if let Some(count) = queue.max_receive_count {
        let words = if count < MIN_RECEIVES {
            format!(
                "{WARNING}too low; it must be at least {MIN_RECEIVES}, because receives without a call \
                 count too"
            )
        } else {
            "enough with the strategy copy; for the strategy visibility, see `requeue schedule \
             --strategy visibility`"
                .to_owned()
        };
        tell("maxReceiveCount", thousands(count), words);
    }
    if let Some(delay) = queue.delay {
        tell(
            "delaySeconds",
            span(delay),
            "delays new messages only; copies have delays of their own".to_owned(),
        );
    }
    if let Some(wait) = queue.receive_wait {
        let words = "no effect: Lambda's poller waits 20 s, and `requeue work` a third of the \
                     visibility timeout, at most 20 s"
            .to_owned();
        tell("receiveMessageWaitTimeSeconds", span(wait), words);
    }
    lines.join("\n")
}

pub(super) fn config_json(queue: &QueueConfig) -> Value {
    json!({
        "visibilityTimeout": queue.visibility_timeout.map(|time| time.as_secs()),
        "messageRetentionPeriod": queue.message_retention.map(|time| time.as_secs()),
        "maxReceiveCount": queue.max_receive_count,
        "delaySeconds": queue.delay.map(|time| time.as_secs()),
        "receiveMessageWaitTimeSeconds": queue.receive_wait.map(|time| time.as_secs()),
    })
}

/// The `queueConfig` of a queue's entry in a valid document.
pub(super) fn config_of(text: &str, queue: &str) -> QueueConfig {
    QueueConfig::of_queue(text, queue).unwrap_or_default()
}

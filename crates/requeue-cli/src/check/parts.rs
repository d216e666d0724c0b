//! The rate limits and the `queueConfig` of a policy, as `requeue check` shows them.

use std::time::Duration;

use requeue::QueueConfig;
use requeue::policy::{FairShares, LimitPer, MessageKey, RateLimit, RetryPolicy};
use requeue::queue::MAX_DELAY;
use serde_json::{Value, json};

use super::WARNING;
use crate::doctor::{LEAST_RECEIVES, TIMEOUTS};
use crate::document::RETRIED_CLASSES;
use crate::table::{counted, span, thousands};

pub(super) fn rate_limits(policy: &RetryPolicy) -> String {
    let line = |each: &str,
                limit: &RateLimit,
                units: Option<&MessageKey>,
                burst: u32,
                more: &str| {
        let RateLimit { limit: calls, period, max_reservation, headers, .. } = *limit;
        let follows = if headers { "; headers of responses lower the limit" } else { "" };
        let what = units.map_or_else(
            || counted(calls, if limit.per == LimitPer::Message { "message" } else { "call" }),
            |at| format!("{} of {}", counted(calls, "unit"), place(at)),
        );
        format!(
            "rate limit{each}: {what} in {0}, and a burst of {4}: at most {1}{2} in any {0}; for \
             each scope; without REQUEUE_TABLE, in each execution environment; a copy waits inside \
             the function for at most {3}{follows}{more}\n",
            // A period of 1.1 s must not look like one of 1 s.
            if period > Duration::from_secs(1) && period.subsec_nanos() > 0 {
                format!("{} s", period.as_secs_f64())
            } else {
                span(period)
            },
            thousands(u64::from(calls) + u64::from(burst)),
            if units.is_some() { " and the last call" } else { "" },
            span(max_reservation),
            thousands(burst),
        )
    };
    let total = policy.limit.map(|limit| {
        let adaptive = if limit.adaptive {
            "; refused calls lower the limit, to a tenth at least"
        } else {
            ""
        };
        let shares = policy.fair_shares.as_ref().map_or_else(String::new, shares);
        line("", &limit, policy.units.as_ref(), limit.burst, &format!("{adaptive}{shares}"))
    });
    let keys = policy.key_limits.iter().enumerate().map(|(at, key)| {
        let (each, limit) = (format!(" of each {}", place(&key.key)), &key.limit);
        let later = policy.key_limits[at + 1..].iter().map(|key| &key.limit).chain(&policy.limit);
        let least = limit.together(later).saturating_add(1);
        let more = if least > limit.burst {
            format!("; the burst is {}, since calls wait for other limits too", thousands(least))
        } else {
            String::new()
        };
        line(&each, limit, key.units.as_ref(), limit.burst.max(least), &more)
    });
    total.into_iter().chain(keys).collect()
}

fn shares(shares: &FairShares) -> String {
    let weights = match shares.weights.len() {
        0 => String::new(),
        count => format!(", with {}", counted(count, "weight")),
    };
    let by = place(&shares.by);
    format!("; shared fairly by {by}{weights}; a function needs REQUEUE_RECURSIVE_LOOP=Allow")
}

fn place(key: &MessageKey) -> String {
    match key {
        MessageKey::Attribute(name) => format!("attribute {name}"),
        key => key.to_string(),
    }
}

pub(super) fn advice(queue: &QueueConfig, policy: &RetryPolicy) -> String {
    let mut lines =
        vec!["queueConfig: Requeue does not apply it; set these values at the queue".to_owned()];
    let mut tell =
        |name: &str, value: String, words: String| lines.push(format!("  {name} {value}: {words}"));
    if let Some(visibility) = queue.visibility_timeout {
        let words = match visibility / TIMEOUTS {
            timeout if timeout < Duration::from_secs(1) => {
                format!(
                    "{WARNING}too short for any function; it must be at least {TIMEOUTS} × the \
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
        let needed = longest.unwrap_or_default() + MAX_DELAY;
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
        let words = if count < LEAST_RECEIVES {
            format!(
                "{WARNING}too low; it must be at least {LEAST_RECEIVES}, because receives without a call \
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

//! The complete schedule as JSON, with the unit in each name. Released names do not change.

use requeue::policy::ClassPolicy;
use serde_json::{Value, json};

use super::cost::{Batching, DeadLettering, Requests};
use super::timeline::{JitterRange, Timeline};
use super::{ClassSchedule, Schedule, word};
use crate::document;

pub(crate) fn of(schedule: &Schedule) -> Value {
    let Schedule { name, policy, queue, classes, has_rules: _ } = schedule;
    json!({
        "policy": name,
        "maxRetries": policy.max_retries,
        "maxRetryAfterSeconds": policy.max_retry_after.as_secs_f64(),
        "messageTtlSeconds": policy.message_ttl.map(|ttl| ttl.as_secs_f64()),
        "maxDeferrals": policy.max_deferrals,
        "queue": {
            "strategy": word(&queue.strategy),
            "deadLetter": word(&queue.dead_letter),
            "maxReceiveCount": queue.max_receive_count,
            "visibilityTimeoutSeconds": queue.visibility_timeout.as_secs(),
            "messageBytes": queue.message_bytes,
            "usdPerMillionRequests": queue.price,
        },
        "classes": classes.iter().map(|class| of_class(schedule, class)).collect::<Vec<_>>(),
    })
}

fn of_class(schedule: &Schedule, of: &ClassSchedule) -> Value {
    let class = schedule.policy.class(of.class);
    let longest = of.timelines.most(|timeline| timeline.retries.len());
    json!({
        "class": of.class.as_str(),
        "backoff": class.map(|class| class.backoff.as_str()),
        "baseDelaySeconds": class.map(|class| class.backoff.base().as_secs_f64()),
        "maxDelaySeconds": class.map(|ClassPolicy { max_delay, .. }| max_delay.as_secs_f64()),
        "jitter": class.map(|class| class.jitter.to_string()),
        "maxRetries": document::max_retries(&schedule.policy, of.class),
        "totalTimeoutSeconds": class.map(|class| class.total_timeout.as_secs_f64()),
        "retries": (0..longest).map(|at| of_retry(&of.timelines, at)).collect::<Vec<_>>(),
        "end": of.timelines.with(&of.dead_lettering, of_end),
        "neededMaxReceiveCount": of.needed,
        "requests": of.requests.with(&of.dead_lettering, |requests, dead_lettering| {
            of_requests(schedule, requests, dead_lettering)
        }),
    })
}

/// A timeline that ended before this retry has no value here.
fn of_retry(timelines: &JitterRange<Timeline>, at: usize) -> Value {
    let retry = timelines.map(|timeline| timeline.retries.get(at).copied());
    json!({
        "retry": at + 1,
        "delaySeconds": retry.map(|retry| retry.map(|retry| retry.delay.as_secs())),
        "ageSeconds": retry.map(|retry| retry.map(|retry| retry.age.as_secs())),
        "hops": retry.map(|retry| retry.map(|retry| retry.hops)),
    })
}

fn of_end(timeline: &Timeline, dead_lettering: &DeadLettering) -> Value {
    json!({
        "reason": timeline.end.as_str(),
        "afterRetries": timeline.count(),
        "ageSeconds": timeline.age().as_secs(),
        "ageInDeadLetterQueueSeconds": (timeline.age() + dead_lettering.time).as_secs(),
    })
}

fn of_requests(schedule: &Schedule, requests: &Requests, dead_lettering: &DeadLettering) -> Value {
    let billed = |batching| {
        json!({
            "billedRequests": requests.billed(&schedule.queue, batching),
            "usdPerMillionMessages": requests.million(&schedule.queue, batching),
        })
    };
    let mut all = json!(requests);
    all["visibilityTimeoutsUntilDeadLetterQueue"] = dead_lettering.visibility_timeouts.into();
    (all["alone"], all["batched"]) = (billed(Batching::Alone), billed(Batching::Full));
    all
}

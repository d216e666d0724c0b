//! The schedule as JSON: everything, with the unit in each name. The names are kept once released.

use requeue::policy::ClassPolicy;
use serde_json::{Value, json};

use super::cost::{Company, Requests};
use super::life::{Life, Spread};
use super::way::Way;
use super::{ClassSchedule, Schedule};
use crate::policy_text;

pub(crate) fn of(schedule: &Schedule) -> Value {
    let Schedule { name, policy, queue, classes } = schedule;
    json!({
        "policy": name,
        "maxRetries": policy.max_retries,
        "maxRetryAfterSeconds": policy.max_retry_after.as_secs_f64(),
        "messageTtlSeconds": policy.message_ttl.map(|ttl| ttl.as_secs_f64()),
        "maxDeferrals": policy.max_deferrals,
        "queue": {
            "strategy": queue.strategy.as_str(),
            "deadLetter": queue.dead_letter.as_str(),
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
    let longest =
        of.lives.each().map(|(_, life)| life.retries.len()).into_iter().max().unwrap_or_default();
    json!({
        "class": of.class.as_str(),
        "backoff": class.map(|class| policy_text::backoff(&class.backoff)),
        "baseDelaySeconds": class.map(|class| class.backoff.base().as_secs_f64()),
        "maxDelaySeconds": class.map(|ClassPolicy { max_delay, .. }| max_delay.as_secs_f64()),
        "jitter": class.map(|class| policy_text::jitter(class.jitter)),
        "maxRetries": policy_text::max_retries(&schedule.policy, of.class),
        "totalTimeoutSeconds": class.map(|class| class.total_timeout.as_secs_f64()),
        "retries": (0..longest).map(|at| of_retry(&of.lives, at)).collect::<Vec<_>>(),
        "end": spread(&of.lives.with(&of.ways, of_end)),
        "neededMaxReceiveCount": of.needed,
        "requests": spread(&of.requests.with(&of.ways, |requests, way| of_requests(schedule, requests, way))),
    })
}

/// A message whose luck has ended its life earlier has no value here.
fn of_retry(lives: &Spread<Life>, at: usize) -> Value {
    let retry = lives.map(|life| life.retries.get(at).copied());
    json!({
        "retry": at + 1,
        "delaySeconds": spread(&retry.map(|retry| retry.map(|retry| retry.delay.as_secs()))),
        "ageSeconds": spread(&retry.map(|retry| retry.map(|retry| retry.age.as_secs()))),
        "hops": spread(&retry.map(|retry| retry.map(|retry| retry.hops))),
    })
}

fn of_end(life: &Life, way: &Way) -> Value {
    json!({
        "reason": life.end.as_str(),
        "afterRetries": life.count(),
        "ageSeconds": life.age().as_secs(),
        "ageInDeadLetterQueueSeconds": (life.age() + way.time).as_secs(),
    })
}

fn of_requests(schedule: &Schedule, requests: &Requests, way: &Way) -> Value {
    let billed = |company| {
        json!({
            "billedRequests": requests.billed(&schedule.queue, company),
            "usdPerMillionMessages": requests.million(&schedule.queue, company),
        })
    };
    json!({
        "receives": requests.receives,
        "sends": requests.sends,
        "deletes": requests.deletes,
        "pollerDeletes": requests.poller_deletes,
        "visibilityChanges": requests.visibility_changes,
        "handlerCalls": requests.calls,
        "visibilityTimeoutsUntilDeadLetterQueue": way.visibility_timeouts,
        "alone": billed(Company::Alone),
        "batched": billed(Company::Full),
    })
}

fn spread<T: serde::Serialize>(spread: &Spread<T>) -> Value {
    json!({ "min": spread.min, "median": spread.median, "max": spread.max })
}

//! The values of a policy in the form of its document, by the names of its keys.

use std::time::Duration;

use requeue::FailureClass;
use requeue::policy::{
    Backoff, CallPolicy, CircuitBreaker, ClassPolicy, Idempotency, Jitter, RateLimit, RetryPolicy,
    WhenUnavailable,
};
use serde_json::{Map, Value, json};

use crate::policy_text::RETRIED_CLASSES;

/// The document that gives this policy. It holds no rules: those name words of responses.
pub(crate) fn document(policy: &RetryPolicy) -> Map<String, Value> {
    let RetryPolicy { max_retries, max_retry_after, message_ttl, .. } = policy;
    let classes: Map<String, Value> = RETRIED_CLASSES
        .into_iter()
        .filter_map(|class| Some((name(class).to_owned(), of_class(policy.class(class)?))))
        .collect();
    let values = json!({
        "maxRetries": max_retries,
        "maxRetryAfterSeconds": secs(*max_retry_after),
        "messageTtlSeconds": message_ttl.map(secs),
        "maxDeferrals": policy.max_deferrals,
        "maxDeferralSeconds": secs(policy.max_deferral),
        "maxPostponements": policy.max_postponements,
        "maxPauseSeconds": policy.max_pause.map_or(json!("off"), secs),
        "circuitBreaker": policy.circuit_breaker.as_ref().map_or(json!("off"), of_circuit),
        "rateLimit": policy.limit.as_ref().map(of_limit),
        "idempotency": policy.idempotency.as_ref().map(of_once),
        "errorConfigs": classes,
        "sqsCalls": of_calls(&policy.sqs_calls),
        "receiveCalls": of_calls(&policy.receive_calls),
    });
    match values {
        Value::Object(values) => values.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

/// The name of a class in documents.
fn name(class: FailureClass) -> &'static str {
    match class {
        FailureClass::RateLimit => "RATE_LIMIT",
        FailureClass::Quota => "QUOTA",
        FailureClass::Temporary => "TEMPORARY",
        FailureClass::NonRetryable => "NON_RETRYABLE",
    }
}

/// Whole seconds as an integer, as people write them.
fn secs(duration: Duration) -> Value {
    if duration.subsec_nanos() == 0 {
        json!(duration.as_secs())
    } else {
        json!(duration.as_secs_f64())
    }
}

fn of_class(class: &ClassPolicy) -> Value {
    let mut values = of_backoff(&class.backoff);
    values.insert("maxDelay".to_owned(), secs(class.max_delay));
    values.insert("jitter".to_owned(), of_jitter(class.jitter));
    if let Some(retries) = class.max_retries {
        values.insert("maxRetries".to_owned(), json!(retries));
    }
    values.insert("totalTimeoutSeconds".to_owned(), secs(class.total_timeout));
    Value::Object(values)
}

fn of_backoff(backoff: &Backoff) -> Map<String, Value> {
    let list = match backoff {
        Backoff::List { first, then } => {
            Some([first].into_iter().chain(then).map(|delay| secs(*delay)).collect::<Vec<_>>())
        }
        _ => None,
    };
    let multiplier = match backoff {
        Backoff::Exponential { multiplier, .. } => Some(*multiplier),
        _ => None,
    };
    let base = list.is_none().then(|| secs(backoff.base()));
    let form = list.map_or_else(|| json!(backoff.as_str()), |delays| json!(delays));
    [("backoff", Some(form)), ("baseDelay", base), ("multiplier", multiplier.map(Value::from))]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

fn of_jitter(jitter: Jitter) -> Value {
    match jitter {
        Jitter::Proportional(part) => json!({ "proportional": part }),
        other => json!(other.to_string()),
    }
}

fn of_circuit(circuit: &CircuitBreaker) -> Value {
    json!({
        "threshold": circuit.threshold,
        "resetTimeoutSeconds": secs(circuit.reset_timeout),
    })
}

fn of_limit(limit: &RateLimit) -> Value {
    json!({
        "limit": limit.limit,
        "periodSeconds": secs(limit.period),
        "burst": limit.burst,
        "maxReservationSeconds": secs(limit.max_reservation),
        "adaptive": limit.adaptive,
    })
}

fn of_once(idempotency: &Idempotency) -> Value {
    let when = match idempotency.when_unavailable {
        WhenUnavailable::Defer => "defer",
        _ => "call",
    };
    let mut values = json!({ "keepSeconds": secs(idempotency.keep), "whenUnavailable": when });
    if let Some(key) = &idempotency.key {
        values["key"] = key.to_string().into();
    }
    values
}

fn of_calls(calls: &CallPolicy) -> Value {
    if calls.max_attempts <= 1 {
        return json!("off");
    }
    let mut values = of_backoff(&calls.backoff);
    // The document knows only exponential pauses.
    values.remove("backoff");
    values.insert("maxAttempts".to_owned(), json!(calls.max_attempts));
    values.insert("maxDelay".to_owned(), secs(calls.max_delay));
    values.insert("jitter".to_owned(), of_jitter(calls.jitter));
    Value::Object(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each document is read by the library, so a wrong name or value would be an error.
    #[test]
    fn the_document_of_a_policy_gives_that_policy_again() {
        for text in [
            "{}",
            r#"{"preset": "high-volume"}"#,
            r#"{"preset": "critical", "messageTtlSeconds": 60.5, "maxPauseSeconds": "off"}"#,
            r#"{"circuitBreaker": "off", "sqsCalls": "off", "backoff": [1, 2.5, 10]}"#,
            r#"{"rateLimit": {"limit": 20, "periodSeconds": 0.5, "burst": 3, "adaptive": true}}"#,
            r#"{"idempotency": {"key": "/orderId", "whenUnavailable": "defer"}}"#,
            r#"{"jitter": "decorrelated", "errorConfigs": {"QUOTA": {"maxRetries": 3}}}"#,
            r#"{"backoff": "fibonacci", "receiveCalls": {"maxAttempts": 7}}"#,
        ] {
            let policy: RetryPolicy = text.parse().expect("valid");
            let again = Value::Object(document(&policy)).to_string();
            assert_eq!(again.parse::<RetryPolicy>().as_ref(), Ok(&policy), "{text}: {again}");
        }
    }
}

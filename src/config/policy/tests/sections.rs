//! What has keys of its own and can be switched off: the protection of callees, and calls to SQS.

use super::*;
use crate::QueueConfig;

#[test]
fn the_protection_of_callees_can_be_set_and_switched_off() {
    let read = |document: &str| {
        let RetryPolicy { max_pause, circuit_breaker, .. } = accepted(document);
        (max_pause, circuit_breaker)
    };
    let default = (Some(secs(60)), Some(CircuitBreaker { threshold: 5, reset_timeout: secs(30) }));
    for preset in ["standard", "high-volume", "critical"] {
        assert_eq!(read(&format!(r#"{{"preset": "{preset}"}}"#)), default, "{preset}");
    }
    assert_eq!(read(r#"{"maxPauseSeconds": "off", "circuitBreaker": "off"}"#), (None, None));
    assert_eq!(
        read(r#"{"maxPauseSeconds": 0.5, "circuitBreaker": {}}"#),
        (Some(Duration::from_millis(500)), default.1)
    );
    for (document, expected) in [
        (
            r#"{"maxPauseSeconds": "on"}"#,
            r#"maxPauseSeconds is `"on"`: must be off, or a number of seconds from 0.001 to 900"#,
        ),
        (
            r#"{"maxPauseSeconds": 901}"#,
            "maxPauseSeconds is `901`: must be a number of seconds from 0.001 to 900, or a duration as in 12h",
        ),
        (r#"{"circuitBreaker": 5}"#, "circuitBreaker is `5`: must be off, or an object"),
        (
            r#"{"circuitBreaker": {"treshold": 5}}"#,
            "circuitBreaker.treshold is unknown; did you mean threshold?",
        ),
    ] {
        assert_eq!(super::read(document).expect_err(document), [expected]);
    }
}

#[test]
fn settings_of_the_queue_are_read_and_change_nothing() {
    let queue = |document: &str| {
        document.parse::<QueueConfig>().map_err(|invalid| invalid.problems().to_vec())
    };
    let document = r#"{"preset": "critical", "queueConfig": {"visibilityTimeout": 300, "messageRetentionPeriod": 1209600,
                       "maxReceiveCount": 3, "delaySeconds": 0, "receiveMessageWaitTimeSeconds": 20}}"#;
    assert_eq!(accepted(document), RetryPolicy::critical());
    let expected = QueueConfig {
        visibility_timeout: Some(secs(300)),
        message_retention: Some(secs(1_209_600)),
        max_receive_count: Some(3),
        delay: Some(secs(0)),
        receive_wait: Some(secs(20)),
    };
    assert_eq!(queue(document), Ok(expected));
    for document in ["{}", r#"{"queueConfig": {}}"#] {
        assert_eq!(queue(document), Ok(QueueConfig::default()), "{document}");
    }
    for (document, expected) in [
        (r#"{"queueConfig": 5}"#, "queueConfig is `5`: must be an object"),
        (
            r#"{"queueConfig": {"VisibilityTimeout": 5}}"#,
            "queueConfig.VisibilityTimeout is unknown; did you mean visibilityTimeout?",
        ),
        (
            r#"{"queueConfig": {"maxReceives": 5}}"#,
            "queueConfig.maxReceives is unknown; did you mean maxReceiveCount?",
        ),
    ] {
        assert_eq!(super::read(document).expect_err(document), [expected]);
        assert_eq!(queue(document).expect_err(document), [expected]);
    }
}

#[test]
fn calls_to_sqs_have_settings_of_their_own() {
    let calls = |document| accepted(document).sqs_calls;
    let default = CallPolicy {
        max_attempts: 5,
        backoff: Backoff::Exponential { base: Duration::from_millis(100), multiplier: 2.0 },
        max_delay: secs(5),
        jitter: Jitter::Proportional(0.1),
    };
    let with_backoff = |base, multiplier| CallPolicy {
        backoff: Backoff::Exponential { base: Duration::from_millis(base), multiplier },
        ..default.clone()
    };
    for (document, expected) in [
        ("{}", default.clone()),
        (r#"{"sqsCalls": {}}"#, default.clone()),
        // Nothing that is said of messages changes them.
        (r#"{"preset": "critical"}"#, default.clone()),
        (
            r#"{"maxRetries": 1, "backoff": "constant", "jitter": "none", "baseDelayMultiplier": 9, "maxDelaySeconds": 120}"#,
            default.clone(),
        ),
        (r#"{"sqsCalls": "off"}"#, CallPolicy { max_attempts: 1, ..default.clone() }),
        (r#"{"sqsCalls": {"maxAttempts": 1}}"#, CallPolicy::off()),
        (
            r#"{"sqsCalls": {"maxAttempts": 10}}"#,
            CallPolicy { max_attempts: 10, ..default.clone() },
        ),
        (r#"{"sqsCalls": {"baseDelay": 5}}"#, with_backoff(5_000, 2.0)),
        (r#"{"sqsCalls": {"multiplier": 3}}"#, with_backoff(100, 3.0)),
        (
            r#"{"sqsCalls": {"maxDelay": 0.1}}"#,
            CallPolicy { max_delay: Duration::from_millis(100), ..default.clone() },
        ),
        (
            r#"{"sqsCalls": {"jitter": "decorrelated"}}"#,
            CallPolicy { jitter: Jitter::Decorrelated, ..default.clone() },
        ),
    ] {
        assert_eq!(calls(document), expected, "{document}");
    }
    // Those for receiving have defaults of their own.
    let policy = accepted(r#"{"receiveCalls": {"maxDelay": 0.25}, "sqsCalls": "off"}"#);
    let receiving = CallPolicy {
        backoff: Backoff::Exponential { base: Duration::from_millis(250), multiplier: 2.0 },
        max_delay: Duration::from_millis(250),
        ..CallPolicy::receiving()
    };
    assert_eq!((policy.receive_calls, policy.sqs_calls), (receiving, CallPolicy::off()));
    // Nor do they change anything that is said of messages.
    let policy = accepted(r#"{"preset": "critical", "sqsCalls": "off"}"#);
    assert_eq!(policy, RetryPolicy { sqs_calls: CallPolicy::off(), ..RetryPolicy::critical() });
}

/// The library reads what it writes, so a wrong name or value would be an error.
#[test]
fn the_document_of_a_policy_gives_that_policy_again() {
    for text in [
        "{}",
        r#"{"preset": "high-volume"}"#,
        r#"{"preset": "critical", "messageTtlSeconds": 60.5, "maxPauseSeconds": "off"}"#,
        r#"{"circuitBreaker": "off", "sqsCalls": "off", "backoff": [1, 2.5, 10]}"#,
        r#"{"rateLimit": {"limit": 20, "periodSeconds": 0.5, "burst": 3, "adaptive": true}}"#,
        r#"{"rateLimit": {"limit": 20, "fairBy": "MessageGroupId"}}"#,
        r#"{"rateLimit": {"limit": 20, "fairBy": "/a~1b", "weights": {"acme": 3, "7": 255, "é": 1}}}"#,
        r#"{"rateLimit": {"key": "/tenant", "limit": 20}}"#,
        r#"{"limits": [{"limit": 50, "fairBy": "t"}, {"key": "t", "limit": 5, "burst": 11}, {"key": "/a", "limit": 1, "units": "/b"}]}"#,
        r#"{"idempotency": {"key": "/orderId", "whenUnavailable": "defer"}}"#,
        r#"{"jitter": "decorrelated", "errorConfigs": {"QUOTA": {"maxRetries": 3}}}"#,
        r#"{"backoff": "fibonacci", "receiveCalls": {"maxAttempts": 7}}"#,
        r#"{"receiveCalls": {"maxAttempts": 1, "jitter": "none"}}"#,
    ] {
        let policy: RetryPolicy = text.parse().expect("valid");
        let again = serde_json::to_string(&policy).expect("a document");
        assert_eq!(again.parse::<RetryPolicy>().as_ref(), Ok(&policy), "{text}: {again}");
    }
}

#[test]
fn a_limit_is_shared_by_a_place_in_the_message_and_by_weights() {
    let read = |rest: &str| read(&format!(r#"{{"rateLimit": {{"limit": 5, {rest}}}}}"#));
    for key in ["/tenant", "MessageGroupId", "tenant.id"] {
        let shares = read(&format!(r#""fairBy": "{key}""#)).expect(key).fair_shares.expect(key);
        assert_eq!((shares.by.to_string(), shares.weights.len()), (key.to_owned(), 0));
    }
    let many = |count| {
        let weights: Vec<String> = (0..count).map(|n| format!(r#""t{n}": 2"#)).collect();
        format!(r#""fairBy": "t", "weights": {{{}}}"#, weights.join(","))
    };
    assert_eq!(read(&many(1_000)).expect("all").fair_shares.expect("shares").weights.len(), 1_000);
    let by = "must be a JSON pointer such as /tenant, of at most 16 names and 1024 bytes, MessageGroupId, \
              or the name of a message attribute";
    let weight = "must be a whole number from 1 to 255";
    for (rest, problem) in [
        (r#""fairBy": "tenant id""#, format!(r#"rateLimit.fairBy is `"tenant id"`: {by}"#)),
        (r#""fairBy": 7"#, format!("rateLimit.fairBy is `7`: {by}")),
        (
            r#""weights": {"acme": 3}"#,
            "rateLimit.weights has no effect without rateLimit.fairBy: add rateLimit.fairBy, or remove \
             rateLimit.weights"
                .to_owned(),
        ),
        (r#""fairBy": "t", "weights": {"a": 0}"#, format!("rateLimit.weights.a is `0`: {weight}")),
        (r#""fairBy": "t", "weights": {"a": 256}"#, format!("rateLimit.weights.a is `256`: {weight}")),
        (
            r#""fairBy": "t", "weights": [3]"#,
            "rateLimit.weights is `[3]`: must be an object of at most 1000 weights".to_owned(),
        ),
        (
            r#""fairBy": "t", "weights": {"": 3}"#,
            "rateLimit.weights has a weight of an empty text, but that names no tenant: remove it".to_owned(),
        ),
        (
            r#""fairBy": "t", "weights": {"a": 3, "a": 2}"#,
            "rateLimit.weights.a stands more than once: keep one of them".to_owned(),
        ),
        (
            r#""fairBy": "t", "weights": {"70": 3, "7e1": 2}"#,
            "rateLimit.weights.7e1 is a weight, but rateLimit.weights.70 is that of the same number: keep \
             one of them"
                .to_owned(),
        ),
    ] {
        assert_eq!(read(rest), Err(vec![problem]), "{rest}");
    }
    let problems = read(&many(1_001)).expect_err("too many");
    assert!(problems[0].ends_with("must be an object of at most 1000 weights"), "{problems:?}");
}

#[test]
fn keys_with_their_name_before_the_first_release_are_read() {
    let [old, new] = [
        r#"{"once": {"key": "/n"}, "rateLimit": {"limit": 1, "maxSlotWaitSeconds": 3}}"#,
        r#"{"idempotency": {"key": "/n"}, "rateLimit": {"limit": 1, "maxReservationSeconds": 3}}"#,
    ];
    assert_eq!(accepted(old), accepted(new));
    let both = r#"{"once": {}, "idempotency": {}}"#.parse::<RetryPolicy>().expect_err("both names");
    assert!(both.to_string().contains("idempotency stands more than once"), "{both}");
}

#[test]
fn limits_are_that_of_all_messages_and_those_of_keys() {
    let limit = |calls| RateLimit::new(calls, secs(1));
    let of = |key: &str, calls| KeyLimit::new(key.parse().expect("a key"), limit(calls));
    let policy = accepted(
        r#"{"limits": [{"key": "/tenant", "limit": 5}, {"limit": 50}, {"key": "plan", "limit": 9}]}"#,
    );
    assert_eq!(policy.limit, Some(limit(50)));
    assert_eq!(policy.key_limits, [of("/tenant", 5), of("plan", 9)]);
    let policy = accepted(r#"{"rateLimit": {"key": "/tenant", "limit": 5}}"#);
    assert_eq!((policy.limit, policy.key_limits), (None, vec![of("/tenant", 5)]));
    for (word, per) in [("call", LimitPer::Call), ("message", LimitPer::Message)] {
        let policy = accepted(&format!(r#"{{"rateLimit": {{"limit": 5, "per": "{word}"}}}}"#));
        assert_eq!(policy.limit.map(|limit| limit.per), Some(per));
    }
    let for_all =
        "is for the limit of all messages, but this one has limits[0].key: remove one of them";
    for (text, problem) in [
        ("[]", "limits is `[]`: must be a list of 1 to 3 limits".to_owned()),
        (
            r#"[{"limit": 1}, {"limit": 2}]"#,
            "limits[1] is a second limit for all messages, but there may be one: give it a key, or remove it".to_owned(),
        ),
        (
            r#"[{"key": "a", "limit": 1}, {"limit": 3}, {"key": "a", "limit": 2}]"#,
            "limits[2] is a second limit for a, but one is enough: keep one of them".to_owned(),
        ),
        (r#"[{"key": "a"}]"#, "limits[0].limit is missing".to_owned()),
        (
            r#"[{"key": "a", "limit": 1, "adaptive": true}]"#,
            format!("limits[0].adaptive {for_all}"),
        ),
        (r#"[{"limit": 1, "per": "unit"}]"#, r#"limits[0].per is `"unit"`: must be call, message"#.to_owned()),
        (r#"[{"key": "a", "limit": 1, "fairBy": "b"}]"#, format!("limits[0].fairBy {for_all}")),
        (r#"[{"key": "a", "limit": 1, "weights": {}}]"#, "limits[0].weights has no effect with limits[0].key: remove limits[0].weights".to_owned()),
        (
            r#"[{"limit": 1}], "rateLimit": {"limit": 2}"#,
            "limits sets the same as rateLimit: remove one of them".to_owned(),
        ),
    ] {
        assert_eq!(read(&format!(r#"{{"limits": {text}}}"#)), Err(vec![problem]), "{text}");
    }
}

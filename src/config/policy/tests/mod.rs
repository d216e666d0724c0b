//! Documents and what becomes of them.

use std::time::Duration;

use super::DOCUMENT;
use crate::classify::Rules;
use crate::policy::{
    Backoff, CallPolicy, CircuitBreaker, ClassPolicy, FairShares, Idempotency, Jitter, KeyLimit,
    LimitPer, RateLimit, RetryPolicy, WhenUnavailable,
};
use crate::settings::{DeadLetterMode, Limits, Settings};

mod fuzz;
mod properties;
mod rules;
mod schema;
mod sections;

const ARTICLE: &str = r#"
{ "maxRetries": 50, "baseDelayMultiplier": 3.0, "maxDelaySeconds": 60, "jitterPercentage": 0.1, "totalTimeoutSeconds": 43200,
  "errorConfigs": { "RATE_LIMIT": {"baseDelay": 60, "maxDelay": 300}, "QUOTA": {"baseDelay": 120, "maxDelay": 600},
                    "TEMPORARY": {"baseDelay": 2, "maxDelay": 60}, "DEFAULT": {"baseDelay": 2, "maxDelay": 60} } }"#;

/// As the article has it for many messages of little weight, and for a few that must not wait.
const HIGH_VOLUME: &str = r#"
{ "maxRetries": 10, "baseDelayMultiplier": 2.0, "maxDelaySeconds": 30, "jitterPercentage": 0.3, "totalTimeoutSeconds": 3600,
  "errorConfigs": { "RATE_LIMIT": {"baseDelay": 10, "maxDelay": 30}, "QUOTA": {"baseDelay": 15, "maxDelay": 30},
                    "TEMPORARY": {"baseDelay": 2, "maxDelay": 30}, "DEFAULT": {"baseDelay": 2, "maxDelay": 30} } }"#;
const CRITICAL: &str = r#"
{ "maxRetries": 5, "baseDelayMultiplier": 2.0, "maxDelaySeconds": 10, "jitterPercentage": 0.2, "totalTimeoutSeconds": 600,
  "errorConfigs": { "RATE_LIMIT": {"baseDelay": 2, "maxDelay": 10}, "QUOTA": {"baseDelay": 5, "maxDelay": 10},
                    "TEMPORARY": {"baseDelay": 1, "maxDelay": 5}, "DEFAULT": {"baseDelay": 1, "maxDelay": 5} } }"#;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn read(document: &str) -> Result<RetryPolicy, Vec<String>> {
    read_all(document).map(|(policy, _)| policy)
}

fn read_all(document: &str) -> Result<(RetryPolicy, Rules), Vec<String>> {
    let read = super::read(document, &DOCUMENT);
    let read = read.map(|read| (read.policy, read.rules.unwrap_or_default()));
    read.map_err(|refused| refused.problems)
}

fn accepted(document: &str) -> RetryPolicy {
    read(document).unwrap_or_else(|problems| panic!("{document} is refused: {problems:#?}"))
}

fn article() -> RetryPolicy {
    let class = |base, cap| ClassPolicy {
        backoff: Backoff::Exponential { base: secs(base), multiplier: 3.0 },
        max_delay: secs(cap),
        jitter: Jitter::Proportional(0.1),
        max_retries: None,
        total_timeout: secs(43_200),
    };
    RetryPolicy {
        rate_limit: class(60, 300),
        quota: class(120, 600),
        temporary: class(2, 60),
        ..RetryPolicy::standard()
    }
}

/// The preset `high-volume` but for its jitter, which the article's format cannot say.
fn high_volume() -> RetryPolicy {
    let mut policy = RetryPolicy::high_volume();
    for class in [&mut policy.rate_limit, &mut policy.quota, &mut policy.temporary] {
        class.jitter = Jitter::Proportional(0.3);
    }
    policy
}

#[test]
fn the_articles_three_examples_are_accepted_as_they_stand_and_mean_what_they_say() {
    let table =
        [(ARTICLE, article()), (HIGH_VOLUME, high_volume()), (CRITICAL, RetryPolicy::critical())];
    for (document, expected) in table {
        assert_eq!(accepted(document), expected, "{document}");
        // Both names of a class mean the same.
        let renamed = document
            .replace("RATE_LIMIT", "RATE_LIMIT_EXCEEDED")
            .replace("QUOTA", "QUOTA_EXCEEDED")
            .replace("TEMPORARY", "TEMPORARY_ERROR");
        assert_eq!(accepted(&renamed), expected, "{renamed}");
        // DEFAULT serves a class without an entry, and is not needed when each has one.
        let class = &expected.temporary;
        let entry = format!(
            r#"{{"baseDelay": {}, "maxDelay": {}}}"#,
            class.backoff.base().as_secs(),
            class.max_delay.as_secs()
        );
        for without in [format!(r#""TEMPORARY": {entry}, "#), format!(r#", "DEFAULT": {entry}"#)] {
            assert!(document.contains(&without), "{document}: {without}");
            assert_eq!(
                accepted(&document.replace(&without, "")),
                expected,
                "{document} without {without}"
            );
        }
    }
}

#[test]
fn the_global_max_delay_serves_a_class_that_names_none_and_no_other() {
    assert_eq!(
        accepted(&ARTICLE.replace(r#"{"baseDelay": 2, "maxDelay": 60}"#, r#"{"baseDelay": 2}"#)),
        article()
    );
    let unnamed = CRITICAL.replace(
        r#""RATE_LIMIT": {"baseDelay": 2, "maxDelay": 10}"#,
        r#""RATE_LIMIT": {"baseDelay": 2}"#,
    );
    assert_eq!(accepted(&unnamed), RetryPolicy::critical());
}

#[test]
fn a_built_in_first_delay_gives_way_to_a_shorter_cap() {
    let base = |policy: &RetryPolicy| {
        [&policy.rate_limit, &policy.quota, &policy.temporary].map(|class| class.backoff.base())
    };
    let short = accepted(r#"{"maxDelaySeconds": 30, "errorConfigs": {"QUOTA": {"baseDelay": 1}}}"#);
    assert_eq!(base(&short), [30, 1, 2].map(Duration::from_secs));
    assert_eq!(short.rate_limit.max_delay, Duration::from_secs(30));
    let own = accepted(r#"{"errorConfigs": {"QUOTA": {"maxDelay": 90}}}"#);
    assert_eq!(base(&own), [60, 90, 2].map(Duration::from_secs));
    let calls = accepted(r#"{"sqsCalls": {"maxDelay": 0.05}}"#).sqs_calls;
    assert_eq!(
        (calls.backoff.base(), calls.max_delay),
        (Duration::from_millis(50), Duration::from_millis(50))
    );
}

#[test]
fn an_empty_document_is_the_standard_policy() {
    for document in [
        "{}",
        " {\n} ",
        "\u{feff}{}",
        r#"{"errorConfigs": {}}"#,
        r#"{"$schema": "infra/policy.schema.json"}"#,
    ] {
        assert_eq!(accepted(document), RetryPolicy::standard(), "{document}");
    }
}

#[test]
fn a_preset_replaces_the_table_and_other_keys_change_it() {
    assert_eq!(accepted(r#"{"preset": "standard"}"#), RetryPolicy::standard());
    assert_eq!(accepted(r#"{"preset": "high-volume"}"#), RetryPolicy::high_volume());
    assert_eq!(accepted(r#"{"preset": "critical"}"#), RetryPolicy::critical());

    let mut expected = RetryPolicy::critical();
    expected.max_retries = 7;
    expected.quota.max_delay = secs(20);
    let document =
        r#"{"preset": "critical", "maxRetries": 7, "errorConfigs": {"QUOTA": {"maxDelay": 20}}}"#;
    assert_eq!(accepted(document), expected);
}

#[test]
fn each_key_of_once_may_be_left_out() {
    assert_eq!(accepted(r#"{"idempotency": {}}"#).idempotency, Some(Idempotency::default()));
    assert_eq!(accepted("{}").idempotency, None);
    assert_eq!(Idempotency::default().keep, secs(14 * 86_400));
}

#[test]
fn every_key_reaches_its_place() {
    let document = r#"{
        "maxRetries": 0, "maxRetryAfterSeconds": 90.5, "messageTtlSeconds": 3600, "maxDeferrals": 10000,
        "maxDeferralSeconds": 900, "maxPostponements": 5, "maxPauseSeconds": 12.5,
        "circuitBreaker": {"threshold": 3, "resetTimeoutSeconds": 7},
        "rateLimit": {"limit": 30, "periodSeconds": 60, "burst": 4, "maxReservationSeconds": 1.5,
                      "adaptive": true, "headers": true, "units": "/tokens", "fairBy": "/tenant", "weights": {"acme": 3, "7.0": 255}},
        "idempotency": {"key": "/order/id", "keepSeconds": 3600, "whenUnavailable": "defer"},
        "backoff": "linear", "jitter": "none", "totalTimeoutSeconds": 600, "maxDelaySeconds": 5e2,
        "errorConfigs": {
            "RATE_LIMIT": {"baseDelay": 0.5, "multiplier": 1.5, "backoff": "exponential", "jitter": {"proportional": 1},
                           "maxRetries": 3.0, "totalTimeoutSeconds": 7, "maxDelay": 86400},
            "QUOTA": {"backoff": [5, 30.5, 300], "jitter": "full"},
            "DEFAULT": {"backoff": "fibonacci"}
        },
        "sqsCalls": {"maxAttempts": 3, "baseDelay": 0.25, "maxDelay": 7, "multiplier": 1.5, "jitter": "equal"},
        "receiveCalls": {"maxAttempts": 4, "baseDelay": 0.75, "maxDelay": 8, "multiplier": 2.5, "jitter": "full"}
    }"#;
    let expected = RetryPolicy {
        max_retries: 0,
        max_retry_after: Duration::from_millis(90_500),
        message_ttl: Some(secs(3_600)),
        max_deferrals: 10_000,
        max_deferral: secs(900),
        max_postponements: 5,
        max_pause: Some(Duration::from_millis(12_500)),
        circuit_breaker: Some(CircuitBreaker { threshold: 3, reset_timeout: secs(7) }),
        limit: Some(RateLimit {
            limit: 30,
            period: secs(60),
            burst: 4,
            max_reservation: Duration::from_millis(1_500),
            adaptive: true,
            headers: true,
            per: LimitPer::Call,
            has_units: false,
        }),
        units: Some("/tokens".parse().expect("a pointer")),
        key_limits: Vec::new(),
        fair_shares: Some(FairShares {
            by: "/tenant".parse().expect("a pointer"),
            weights: [("acme", 3), ("7.0", 255)]
                .map(|(tenant, weight)| (tenant.to_owned(), weight))
                .into(),
        }),
        idempotency: Some(Idempotency {
            key: Some("/order/id".parse().expect("a pointer")),
            keep: secs(3_600),
            when_unavailable: WhenUnavailable::Defer,
        }),
        rate_limit: ClassPolicy {
            backoff: Backoff::Exponential { base: Duration::from_millis(500), multiplier: 1.5 },
            max_delay: secs(86_400),
            jitter: Jitter::Proportional(1.0),
            max_retries: Some(3),
            total_timeout: secs(7),
        },
        quota: ClassPolicy {
            backoff: Backoff::List {
                first: secs(5),
                then: vec![Duration::from_millis(30_500), secs(300)],
            },
            max_delay: secs(300),
            jitter: Jitter::Full,
            max_retries: None,
            total_timeout: secs(600),
        },
        temporary: ClassPolicy {
            backoff: Backoff::Fibonacci { base: secs(2) },
            max_delay: secs(500),
            jitter: Jitter::None,
            max_retries: None,
            total_timeout: secs(600),
        },
        sqs_calls: CallPolicy {
            max_attempts: 3,
            backoff: Backoff::Exponential { base: Duration::from_millis(250), multiplier: 1.5 },
            max_delay: secs(7),
            jitter: Jitter::Equal,
        },
        receive_calls: CallPolicy {
            max_attempts: 4,
            backoff: Backoff::Exponential { base: Duration::from_millis(750), multiplier: 2.5 },
            max_delay: secs(8),
            jitter: Jitter::Full,
        },
    };
    assert_eq!(accepted(document), expected);
}

#[test]
fn a_time_is_a_number_of_seconds_or_a_duration() {
    for (durations, seconds) in [
        (r#"{"totalTimeoutSeconds": "12h"}"#, r#"{"totalTimeoutSeconds": 43200}"#),
        (
            r#"{"maxDelaySeconds": "1h30m", "maxPauseSeconds": "45s"}"#,
            r#"{"maxDelaySeconds": 5400, "maxPauseSeconds": 45}"#,
        ),
        (r#"{"backoff": ["10s", 30, "2m"]}"#, r#"{"backoff": [10, 30, 120]}"#),
        (
            r#"{"errorConfigs": {"quota": {"baseDelay": "5m"}}}"#,
            r#"{"errorConfigs": {"quota": {"baseDelay": 300}}}"#,
        ),
    ] {
        assert_eq!(read(durations), read(seconds), "{durations}");
        assert!(read(durations).is_ok(), "{durations}");
        let document = serde_json::from_str(durations).expect("JSON");
        assert!(schema::allows(&document), "{durations}");
    }
}

#[test]
fn the_nearest_value_wins() {
    let rate_limit = |document| accepted(document).rate_limit;
    let multiplier = |document| match rate_limit(document).backoff {
        Backoff::Exponential { multiplier, .. } => multiplier,
        other => panic!("{other:?}"),
    };
    // Preset, then global, then DEFAULT, then the class; DEFAULT adds nothing to an entry.
    for (document, expected) in [
        (r#"{"preset": "critical"}"#, 2.0),
        (r#"{"preset": "critical", "baseDelayMultiplier": 4}"#, 4.0),
        (r#"{"baseDelayMultiplier": 4, "errorConfigs": {"DEFAULT": {"multiplier": 5}}}"#, 5.0),
        (
            r#"{"baseDelayMultiplier": 4, "errorConfigs": {"DEFAULT": {"multiplier": 5}, "RATE_LIMIT": {}}}"#,
            4.0,
        ),
        (
            r#"{"errorConfigs": {"DEFAULT": {"multiplier": 5}, "RATE_LIMIT": {"multiplier": 6}}}"#,
            6.0,
        ),
        (
            r#"{"backoff": "constant", "errorConfigs": {"DEFAULT": {"backoff": "exponential"}}}"#,
            3.0,
        ),
    ] {
        assert_eq!(multiplier(document).to_bits(), f64::to_bits(expected), "{document}");
    }
    for (document, expected) in [
        (r"{}", 300),
        (r#"{"maxDelaySeconds": 130}"#, 130),
        (r#"{"maxDelaySeconds": 600}"#, 600),
        (r#"{"maxDelaySeconds": 130, "errorConfigs": {"RATE_LIMIT": {"maxDelay": 200}}}"#, 200),
        (
            r#"{"maxDelaySeconds": 130, "errorConfigs": {"RATE_LIMIT": {"backoff": [200, 90]}}}"#,
            200,
        ),
        (r#"{"maxDelaySeconds": 60, "backoff": [100, 90]}"#, 100),
        (r#"{"backoff": [100, 90], "errorConfigs": {"RATE_LIMIT": {"maxDelay": 200}}}"#, 200),
    ] {
        assert_eq!(rate_limit(document).max_delay, secs(expected), "{document}");
    }
    assert_eq!(rate_limit(r#"{"jitterPercentage": 0.2}"#).jitter, Jitter::Proportional(0.2));
    assert_eq!(accepted(r#"{"totalTimeoutSeconds": 60}"#).quota.total_timeout, secs(60));
}

#[test]
fn each_number_is_accepted_at_its_bounds_and_refused_beside_them() {
    let count = ["0", "10000"];
    let delay = ["0.001", "86400"];
    let age = ["1", "1208700"];
    for (key, accepted, refused) in [
        ("maxRetries", count, ["-1", "10001"]),
        ("maxDeferrals", count, ["0.5", "1e9"]),
        ("maxDeferralSeconds", delay, ["0", "86401"]),
        ("maxPostponements", count, ["-1", "10001"]),
        ("circuitBreaker.threshold", ["1", "1000"], ["0", "1001"]),
        ("circuitBreaker.resetTimeoutSeconds", ["0.001", "900"], ["0", "901"]),
        ("baseDelayMultiplier", ["1", "100"], ["0.999", "100.1"]),
        ("jitterPercentage", ["0", "1"], ["-0.1", "10"]),
        ("totalTimeoutSeconds", age, ["0.9", "1208701"]),
        ("maxRetryAfterSeconds", age, ["0", "1e999"]),
        ("messageTtlSeconds", age, ["-1e999", "1e300"]),
        ("errorConfigs.QUOTA.baseDelay", delay, ["0", "86401"]),
        ("errorConfigs.QUOTA.maxDelay", ["120", "86400"], ["-5", "99999999999999999999999"]),
        ("errorConfigs.QUOTA.multiplier", ["1", "100"], ["0", "1e400"]),
        ("errorConfigs.QUOTA.maxRetries", count, ["1.5", "4294967296"]),
        ("errorConfigs.QUOTA.totalTimeoutSeconds", age, ["0", "1e9"]),
        ("sqsCalls.maxAttempts", ["1", "10"], ["0", "11"]),
        ("sqsCalls.baseDelay", ["0.001", "60"], ["0", "60.1"]),
        ("sqsCalls.maxDelay", ["0.1", "60"], ["-0.1", "61"]),
        ("sqsCalls.multiplier", ["1", "100"], ["0.9", "101"]),
        ("receiveCalls.maxAttempts", ["1", "10"], ["0", "11"]),
        ("receiveCalls.baseDelay", ["0.001", "60"], ["0", "60.1"]),
        ("idempotency.keepSeconds", ["60", "31536000"], ["59", "31536001"]),
        ("queueConfig.visibilityTimeout", ["0", "43200"], ["-1", "43201"]),
        ("queueConfig.messageRetentionPeriod", ["60", "1209600"], ["59", "1209601"]),
        ("queueConfig.maxReceiveCount", ["1", "1000"], ["0", "1001"]),
        ("queueConfig.delaySeconds", ["0", "900"], ["-1", "901"]),
        ("queueConfig.receiveMessageWaitTimeSeconds", ["0", "20"], ["0.5", "21"]),
    ] {
        let document = |value: &str| match key.split('.').collect::<Vec<_>>()[..] {
            [section, "baseDelay"] => {
                format!(r#"{{"{section}": {{"baseDelay": {value}, "maxDelay": 60}}}}"#)
            }
            [section, class, "baseDelay"] => {
                format!(
                    r#"{{"{section}": {{"{class}": {{"baseDelay": {value}, "maxDelay": 86400}}}}}}"#
                )
            }
            [section, class, key] => {
                format!(r#"{{"{section}": {{"{class}": {{"{key}": {value}}}}}}}"#)
            }
            [section, key] => format!(r#"{{"{section}": {{"{key}": {value}}}}}"#),
            _ => format!(r#"{{"{key}": {value}}}"#),
        };
        for value in accepted {
            assert!(read(&document(value)).is_ok(), "{key} {value}: {:?}", read(&document(value)));
        }
        for value in refused.into_iter().chain(["null", "true", r#""5""#, "[]", "{}"]) {
            let problems = read(&document(value)).expect_err(key);
            let [problem] = &problems[..] else { panic!("{problems:?}") };
            assert!(problem.starts_with(&format!("{key} is `{value}`: must be a")), "{problem}");
        }
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn each_problem_names_the_key_its_value_and_what_is_allowed() {
    let one_key: [(&str, &str); 43] = [
        (r#"{"maxRetrys": 5}"#, "maxRetrys is unknown; did you mean maxRetries?"),
        (r#"{"MAXRETRIES": 5}"#, "MAXRETRIES is unknown; did you mean maxRetries?"),
        (
            r#"{"totalTimeoutSeconds": "20d"}"#,
            r#"totalTimeoutSeconds is `"20d"`: must be a number of seconds from 1 to 1208700, or a duration as in 12h"#,
        ),
        (
            r#"{"totalTimeoutSeconds": "soon"}"#,
            r#"totalTimeoutSeconds is `"soon"`: must be a number of seconds from 1 to 1208700, or a duration as in 12h"#,
        ),
        (
            r#"{"temporray": {}}"#,
            "temporray is unknown: remove it, or use a key of docs/reference/policy.md",
        ),
        (
            r#"{"errorConfigs": {"rate_limits": {}}}"#,
            "errorConfigs.rate_limits is unknown; did you mean rate-limit?",
        ),
        (
            r#"{"errorConfigs": {"QUOTA": {"base_delay": 1}}}"#,
            "errorConfigs.QUOTA.base_delay is unknown; did you mean baseDelay?",
        ),
        (
            r#"{"errorConfigs": {"QUOTA": {"x": 1}}}"#,
            "errorConfigs.QUOTA.x is unknown: use one of baseDelay, maxDelay, multiplier, backoff, jitter, maxRetries, \
             totalTimeoutSeconds",
        ),
        (
            r#"{"maxRetries": 5, "maxRetries": 5}"#,
            "maxRetries stands more than once: keep one of them",
        ),
        (
            r#"{"maxRetries": 5, "maxRetries": 5, "max\u0052etries": 5}"#,
            "maxRetries stands more than once: keep one of them",
        ),
        (
            r#"{"errorConfigs": {"QUOTA": {"jitter": "none", "jitter": "full"}}}"#,
            "errorConfigs.QUOTA.jitter stands more than once: keep one of them",
        ),
        (
            r#"{"errorConfigs": {"QUOTA": {}, "QUOTA_EXCEEDED": {}}}"#,
            "errorConfigs.QUOTA_EXCEEDED is a second entry for the class of errorConfigs.QUOTA: remove one of them",
        ),
        (r#"{"preset": "fast"}"#, r#"preset is `"fast"`: must be standard, high-volume, critical"#),
        (r#"{"errorConfigs": []}"#, "errorConfigs is `[]`: must be an object"),
        (r#"{"errorConfigs": {"QUOTA": 5}}"#, "errorConfigs.QUOTA is `5`: must be an object"),
        ("[]", "is `[]`: must be an object"),
        (
            r#"{"jitter": "ful"}"#,
            r#"jitter is `"ful"`: must be full, equal, decorrelated, none, or {"proportional": a share from 0 to 1}"#,
        ),
        (
            r#"{"jitter": {"proportional": 2}}"#,
            "jitter.proportional is `2`: must be a share from 0 to 1",
        ),
        (
            r#"{"jitter": {"proportional": 1, "x": 1}}"#,
            r#"jitter is `{"proportional": 1, "x": 1}`: must be full, equal, decorrelated, none, or {"proportional": a share from 0 to 1}"#,
        ),
        (
            r#"{"jitter": "full", "jitterPercentage": 0.1}"#,
            "jitterPercentage sets the same as jitter: remove one of them",
        ),
        (
            r#"{"backoff": []}"#,
            "backoff is `[]`: must be exponential, linear, fibonacci, constant, or a list of 1 to 100 delays",
        ),
        (
            r#"{"backoff": [5, 0]}"#,
            "backoff[1] is `0`: must be a number of seconds from 0.001 to 86400, or a duration as in 12h",
        ),
        (
            r#"{"errorConfigs": {"RATE_LIMIT": {"baseDelay": 300.5}}}"#,
            "errorConfigs.RATE_LIMIT.baseDelay is 300.5: must be at most 300, by the preset standard for rate-limit",
        ),
        (
            r#"{"maxDelaySeconds": 200, "errorConfigs": {"RATE_LIMIT": {"baseDelay": 201}}}"#,
            "errorConfigs.RATE_LIMIT.baseDelay is 201: must be at most 200, by maxDelaySeconds",
        ),
        (
            r#"{"errorConfigs": {"DEFAULT": {"baseDelay": 9, "maxDelay": 8}}}"#,
            "errorConfigs.DEFAULT.baseDelay is 9: must be at most 8, by errorConfigs.DEFAULT.maxDelay",
        ),
        (
            r#"{"errorConfigs": {"DEFAULT": {"baseDelay": 9, "maxDelay": 8}, "QUOTA": {}, "RATE_LIMIT": {}, "TEMPORARY": {}}}"#,
            "errorConfigs.DEFAULT.baseDelay is 9: must be at most 8, by errorConfigs.DEFAULT.maxDelay",
        ),
        (r#"{"idempotency": true}"#, "idempotency is `true`: must be an object"),
        (
            r#"{"idempotency": {"key": "orderId"}}"#,
            r#"idempotency.key is `"orderId"`: must be a JSON pointer such as /orderId, of at most 16 names and 1024 bytes"#,
        ),
        (
            r#"{"idempotency": {"key": "/a~2"}}"#,
            r#"idempotency.key is `"/a~2"`: must be a JSON pointer such as /orderId, of at most 16 names and 1024 bytes"#,
        ),
        (
            r#"{"idempotency": {"whenUnavailable": "wait"}}"#,
            r#"idempotency.whenUnavailable is `"wait"`: must be call, defer"#,
        ),
        (r#"{"sqscalls": "off"}"#, "sqscalls is unknown; did you mean sqsCalls?"),
        (r#"{"sqsCalls": "of"}"#, r#"sqsCalls is `"of"`: must be off, or an object"#),
        (
            r#"{"receiveCalls": "off"}"#,
            r#"receiveCalls is `"off"`: must be an object (a worker tries again as long as it runs)"#,
        ),
        (r#"{"receiveCalls": "on"}"#, r#"receiveCalls is `"on"`: must be an object"#),
        (
            r#"{"receiveCalls": {"baseDelay": 10.1}}"#,
            "receiveCalls.baseDelay is 10.1: must be at most 10, by the default of maxDelay",
        ),
        (r#"{"sqsCalls": false}"#, "sqsCalls is `false`: must be off, or an object"),
        (
            r#"{"sqsCalls": {"maxAttempt": 3}}"#,
            "sqsCalls.maxAttempt is unknown; did you mean maxAttempts?",
        ),
        (
            r#"{"sqsCalls": {"backoff": "linear"}}"#,
            "sqsCalls.backoff is unknown: use one of maxAttempts, baseDelay, maxDelay, multiplier, jitter",
        ),
        (
            r#"{"sqsCalls": {"jitter": "none", "jitter": "full"}}"#,
            "sqsCalls.jitter stands more than once: keep one of them",
        ),
        (
            r#"{"sqsCalls": {"maxAttempts": 2.5}}"#,
            "sqsCalls.maxAttempts is `2.5`: must be a whole number from 1 to 10",
        ),
        (
            r#"{"sqsCalls": {"jitter": {"proportional": 1.5}}}"#,
            "sqsCalls.jitter.proportional is `1.5`: must be a share from 0 to 1",
        ),
        (
            r#"{"sqsCalls": {"baseDelay": 9, "maxDelay": 8.5}}"#,
            "sqsCalls.baseDelay is 9: must be at most 8.5, by sqsCalls.maxDelay",
        ),
        (
            r#"{"sqsCalls": {"baseDelay": 5.1}}"#,
            "sqsCalls.baseDelay is 5.1: must be at most 5, by the default of maxDelay",
        ),
    ];
    for (document, problem) in one_key {
        assert_eq!(read(document), Err(vec![problem.to_owned()]), "{document}");
    }
}

#[test]
fn an_entry_of_queues_is_a_policy_of_its_own() {
    let dead_letter = Some(DeadLetterMode::Redrive);
    let mut settings = Settings { dead_letter, ..Settings::default() };
    let document = r#"{
        "maxRetries": 9, "sqsCalls": "off",
        "rules": [{"match": {"status": 404}, "class": "temporary"}],
        "queues": {
            "refunds": {"preset": "critical", "rules": [], "timeoutSeconds": "1m", "concurrency": 2, "deadLetter": "annotate"},
            "orders.fifo": {"maxRetries": 7, "deadLetter": "https://sqs.eu-west-1.amazonaws.com/123456789012/dead.fifo"},
            "invoices": {}
        }
    }"#;
    settings.set_policy(document).expect("a document");
    let of = |queue: &str| {
        let own = settings.of_queue(queue);
        assert_eq!(own.policy.sqs_calls.max_attempts, 1, "of the process: {queue}");
        let mode = own.dead_letter.as_ref().map(DeadLetterMode::as_str);
        let Limits { timeout, concurrency, .. } = own.limits;
        (own.policy.max_retries, own.rules.len(), timeout.as_secs(), concurrency, mode)
    };
    assert_eq!(of("payments"), (9, 1, 30, 10, Some("redrive")));
    assert_eq!(of("invoices"), (50, 1, 30, 10, Some("redrive")));
    assert_eq!(of("orders.fifo"), (7, 1, 30, 10, Some("direct")));
    assert_eq!(of("refunds"), (5, 0, 60, 2, Some("annotate")));
    let refunds = settings.queues["refunds"].to_document();
    assert_eq!(
        (&refunds["timeoutSeconds"], &refunds["concurrency"], &refunds["deadLetter"]),
        (&60.into(), &2.into(), &"annotate".into())
    );
    assert!(!refunds.contains_key("sqsCalls") && !refunds.contains_key("queues"));
    settings.set_policy("{}").expect("a document");
    assert!(settings.queues.is_empty());
}

#[test]
fn a_wrong_entry_of_queues_is_refused_with_its_place() {
    let long = "q".repeat(81);
    let many: Vec<String> = (0..101).map(|at| format!(r#""q{at}": {{}}"#)).collect();
    for (entries, problem) in [
        (
            r#""refunds": {"maxRetrys": 7}"#.to_owned(),
            "queues.refunds.maxRetrys is unknown; did you mean maxRetries?",
        ),
        (
            r#""refunds": {"timeoutSeconds": 5401}"#.to_owned(),
            "queues.refunds.timeoutSeconds is `5401`: must be a number of seconds from 0.001 to 5400, or a duration as in 12h",
        ),
        (
            r#""refunds": {"concurrency": 0}"#.to_owned(),
            "queues.refunds.concurrency is `0`: must be a whole number from 1 to 1000",
        ),
        (
            r#""refunds": {"deadLetter": "direct"}"#.to_owned(),
            "queues.refunds.deadLetter is `\"direct\"`: must be redrive, annotate, or the URL of the dead-letter queue",
        ),
        (
            r#""refunds": {"sqsCalls": "off"}"#.to_owned(),
            "queues.refunds.sqsCalls is unknown: remove it, or use a key of docs/reference/policy.md",
        ),
        (
            r#""refunds": {"limits": [{"limit": 1}], "rateLimit": {"limit": 1}}"#.to_owned(),
            "queues.refunds.limits sets the same as queues.refunds.rateLimit: remove one of them",
        ),
        (
            r#""refunds": {"backoff": [5], "errorConfigs": {"quota": {"baseDelay": 5}}}"#
                .to_owned(),
            "queues.refunds.errorConfigs.quota.baseDelay is 5, but queues.refunds.backoff is a list of delays: remove one of them",
        ),
        (
            r#""refunds": {}, "refunds": {}"#.to_owned(),
            "queues.refunds stands more than once: keep one of them",
        ),
        (r#""refunds": 7"#.to_owned(), "queues.refunds is `7`: must be an object"),
        (
            r#""arn:aws:sqs:a:1:b": {}"#.to_owned(),
            "queues.arn:aws:sqs:a:1:b is no name of a queue: use the last part of the queue's ARN",
        ),
        (format!(r#""{long}": {{}}"#), "is no name of a queue"),
        (
            r#"".fifo": {}"#.to_owned(),
            "queues..fifo is no name of a queue: use the last part of the queue's ARN",
        ),
        (many.join(","), "must be an object of at most 100 queues"),
    ] {
        let problems = read(&format!(r#"{{"queues": {{{entries}}}}}"#)).expect_err(problem);
        assert!(
            matches!(&problems[..], [only] if only.ends_with(problem) || only.contains(problem)),
            "{problems:?}"
        );
    }
}

#[test]
fn what_would_have_no_effect_is_refused() {
    for (document, problem) in [
        (
            r#"{"errorConfigs": {"QUOTA": {"baseDelay": 5, "backoff": [5]}}}"#,
            "errorConfigs.QUOTA.baseDelay is 5, but errorConfigs.QUOTA.backoff is a list of delays: remove one of them",
        ),
        (
            r#"{"backoff": [5], "errorConfigs": {"QUOTA": {"baseDelay": 5}}}"#,
            "errorConfigs.QUOTA.baseDelay is 5, but backoff is a list of delays: remove one of them",
        ),
        (
            r#"{"errorConfigs": {"QUOTA": {"maxDelay": 29, "backoff": [5, 30]}}}"#,
            "errorConfigs.QUOTA.backoff has a delay of 30: must be at most 29, by errorConfigs.QUOTA.maxDelay",
        ),
        (
            r#"{"errorConfigs": {"QUOTA": {"multiplier": 2, "backoff": "linear"}}}"#,
            "errorConfigs.QUOTA.multiplier is 2, but errorConfigs.QUOTA.backoff is not exponential: remove one of them",
        ),
        (
            r#"{"backoff": "constant", "errorConfigs": {"QUOTA": {"multiplier": 2}}}"#,
            "errorConfigs.QUOTA.multiplier is 2, but backoff is not exponential: remove one of them",
        ),
        (
            r#"{"jitter": "decorrelated", "backoff": [5]}"#,
            "jitter is decorrelated, but backoff is not exponential: change one of them",
        ),
    ] {
        assert_eq!(read(document), Err(vec![problem.to_owned()]), "{document}");
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let document = r#"{
        "maxRetries": -1,
        "presett": "critical",
        "jitter": "loud",
        "maxDelaySeconds": 1,
        "errorConfigs": {
            "QUOTA": {"baseDelay": "5", "maxDelay": 3, "backoff": [1, -2, "x"]},
            "TEMPORARY": {"baseDelay": 9, "maxDelay": 3},
            "RATE_LIMITED": {}
        },
        "sqsCalls": {"maxAttempts": 0, "baseDelay": 30, "maxDelay": 100, "retries": 3}
    }"#;
    let problems = read(document).expect_err("refused");
    let begins = [
        "presett is unknown",
        "maxRetries is `-1`",
        "jitter is `\"loud\"`",
        "errorConfigs.RATE_LIMITED is unknown",
        "errorConfigs.QUOTA.baseDelay is `\"5\"`",
        "errorConfigs.QUOTA.backoff[1] is `-2`",
        "errorConfigs.QUOTA.backoff[2] is `\"x\"`",
        "sqsCalls.retries is unknown",
        "sqsCalls.maxAttempts is `0`",
        "sqsCalls.maxDelay is `100`",
        "errorConfigs.TEMPORARY.baseDelay is 9: must be at most 3",
    ];
    assert_eq!(problems.len(), begins.len(), "{problems:#?}");
    let forms = problems.iter().filter(|problem| problem.ends_with("or a duration as in 12h"));
    assert_eq!(forms.count(), 1, "{problems:#?}");
    for (problem, begin) in problems.iter().zip(begins) {
        assert!(problem.starts_with(begin), "{problem}");
    }
}

#[test]
fn broken_json_is_told_with_line_and_column() {
    for (document, place) in [
        ("", "line 1 column 0"),
        ("{", "line 1 column 1"),
        ("{\n  \"maxRetries\": 5,\n}", "line 3 column 1"),
        ("{\n  \"maxRetries\" 5}", "line 2 column 16"),
        ("{} {}", "line 1 column 4"),
        ("{\"maxRetries\": 05}", "line 1 column 17"),
        ("{\"maxRetries\": NaN}", "line 1 column 16"),
        ("standard", "line 1 column 1"),
    ] {
        let problems = read(document).expect_err(document);
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(
            problem.starts_with("is not JSON: ") && problem.ends_with(place),
            "{document}: {problem}"
        );
    }
}

#[test]
fn what_a_problem_shows_is_one_short_line() {
    let long = format!(
        "{{\"maxRetries\": \"{}\", \"{}\": 1, \"a\\nb\": [\n1,\n\n2]}}",
        "x".repeat(1_000),
        "y".repeat(1_000)
    );
    for problem in read(&long).expect_err("refused") {
        assert!(problem.len() < 420 && !problem.contains('\n'), "{problem}");
    }
}

#[test]
fn no_depth_is_too_deep() {
    for depth in [100, 1_000, 200_000] {
        for value in
            [format!("{}{}", "[".repeat(depth), "]".repeat(depth)), "{\"jitter\":".repeat(depth)]
        {
            assert!(read(&format!("{{\"backoff\": {value}}}")).is_err());
        }
    }
}

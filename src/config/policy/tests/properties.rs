//! What holds for every document, and that the schema says the same as the code.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::super::classes::{self, CLASS};
use super::super::delays::CALL;
use super::super::keys::{DOCUMENT, ENTRY};
use super::super::rules::{CONDITIONS, RULE};
use super::schema::{allows, schema};
use super::{read_all as read, secs};
use crate::policy::{Backoff, Jitter, RetryPolicy};

fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-2_i64..20_000).prop_map(Value::from),
        (0.0..3.0).prop_map(Value::from),
        (0_u32..200).prop_map(|halves| Value::from(f64::from(halves) / 2.0)),
        any::<f64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
    ]
}

fn words() -> impl Strategy<Value = String> {
    let known = [
        "standard",
        "high-volume",
        "critical",
        "exponential",
        "linear",
        "fibonacci",
        "constant",
        "full",
        "equal",
        "decorrelated",
        "none",
        "off",
    ];
    prop_oneof![9 => prop::sample::select(known.map(str::to_owned).to_vec()), 1 => any::<String>()]
}

fn names() -> impl Strategy<Value = String> {
    let globals = DOCUMENT.names().into_iter().chain(ENTRY.names());
    let classes = CLASS.names();
    let calls = CALL.names();
    let rules = RULE.names().into_iter().chain(CONDITIONS.names());
    let names = classes::classes().map(|(name, _)| name);
    let known = globals
        .chain(classes)
        .chain(calls)
        .chain(rules)
        .chain(names)
        .chain(["proportional"])
        .map(str::to_owned);
    prop_oneof![19 => prop::sample::select(known.collect::<Vec<_>>()), 1 => any::<String>()]
}

/// Anything, but often made of what the document knows.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => numbers(),
        3 => words().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(names(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A name, and what mostly stands there.
type Member = (&'static str, fn() -> BoxedStrategy<Value>);

/// An object with some of these members.
fn objects(keys: &'static [Member]) -> BoxedStrategy<Value> {
    let members: Vec<_> = keys
        .iter()
        .map(|(name, values)| prop::option::weighted(0.3, values()).prop_map(|v| (*name, v)))
        .collect();
    members
        .prop_map(|members| {
            members
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect()
        })
        .prop_map(Value::Object)
        .boxed()
}

fn counts() -> BoxedStrategy<Value> {
    (0_u32..=10_000).prop_map(Value::from).boxed()
}

fn factors() -> BoxedStrategy<Value> {
    (1.0..=100.0).prop_map(Value::from).boxed()
}

fn ages() -> BoxedStrategy<Value> {
    prop_oneof![20 => (1.0..1_208_700.0).prop_map(Value::from), 1 => numbers()].boxed()
}

fn short() -> BoxedStrategy<Value> {
    prop_oneof![20 => (0.001..100.0).prop_map(Value::from), 1 => numbers()].boxed()
}

fn long() -> BoxedStrategy<Value> {
    prop_oneof![20 => (100.0..86_400.0).prop_map(Value::from), 1 => values()].boxed()
}

fn jitters() -> BoxedStrategy<Value> {
    let share = (0.0..=1.0).prop_map(|share| json!({ "proportional": share }));
    let word =
        prop::sample::select(vec!["full", "equal", "decorrelated", "none"]).prop_map(Value::from);
    prop_oneof![5 => share, 5 => word, 1 => values()].boxed()
}

fn backoffs() -> BoxedStrategy<Value> {
    let list = prop::collection::vec(short(), 1..5).prop_map(Value::from);
    let word = prop::sample::select(vec!["exponential", "linear", "fibonacci", "constant"])
        .prop_map(Value::from);
    prop_oneof![5 => list, 9 => word, 1 => values()].boxed()
}

fn presets() -> BoxedStrategy<Value> {
    prop::sample::select(vec!["standard", "high-volume", "critical"]).prop_map(Value::from).boxed()
}

fn classes() -> BoxedStrategy<Value> {
    objects(&[
        ("baseDelay", short),
        ("maxDelay", long),
        ("multiplier", factors),
        ("backoff", backoffs),
        ("jitter", jitters),
        ("maxRetries", counts),
        ("totalTimeoutSeconds", ages),
    ])
}

fn calls() -> BoxedStrategy<Value> {
    let object = objects(&[
        ("maxAttempts", || (1_u32..=10).prop_map(Value::from).boxed()),
        ("baseDelay", || (0.001..6.0).prop_map(Value::from).boxed()),
        ("maxDelay", || {
            prop_oneof![20 => (5.0..60.0).prop_map(Value::from), 1 => values()].boxed()
        }),
        ("multiplier", factors),
        ("jitter", jitters),
    ]);
    prop_oneof![9 => object, 3 => Just("off".into()), 1 => values()].boxed()
}

fn entries() -> BoxedStrategy<Value> {
    objects(&[
        ("RATE_LIMIT", classes),
        ("QUOTA", classes),
        ("QUOTA_EXCEEDED", classes),
        ("TEMPORARY_ERROR", classes),
        ("DEFAULT", classes),
    ])
}

fn statuses() -> BoxedStrategy<Value> {
    let number = (198_u16..=1_001).prop_map(Value::from);
    prop_oneof![5 => number, 5 => prop::sample::select(vec!["2xx", "3xx", "4xx", "5xx"]).prop_map(Value::from), 1 => values()]
        .boxed()
}

fn texts() -> BoxedStrategy<Value> {
    prop_oneof![9 => "[a-z !]{0,9}|.{255,257}".prop_map(Value::from), 1 => values()].boxed()
}

fn several(one: fn() -> BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop_oneof![2 => one(), 1 => prop::collection::vec(one(), 0..3).prop_map(Value::from)].boxed()
}

fn headers() -> BoxedStrategy<Value> {
    let value = prop_oneof![4 => texts(), 4 => Just(Value::from(true)), 1 => values()];
    let headers = prop::collection::hash_map("[a-z-]{1,6}|.{0,2}", value, 0..12);
    headers.prop_map(|members| Value::Object(members.into_iter().collect())).boxed()
}

fn rules() -> BoxedStrategy<Value> {
    let matches = || {
        objects(&[
            ("status", || several(statuses)),
            ("code", || several(texts)),
            ("header", headers),
            ("words", || several(texts)),
        ])
    };
    let outcome = prop::sample::select(vec![
        "RATE_LIMIT",
        "QUOTA_EXCEEDED",
        "TEMPORARY",
        "NON_RETRYABLE",
        "DEFAULT",
    ]);
    let rule =
        (matches(), outcome, prop::option::of(short())).prop_map(|(matches, class, delay)| {
            match delay {
                Some(delay) => json!({ "match": matches, "class": class, "delaySeconds": delay }),
                None => json!({ "match": matches, "class": class }),
            }
        });
    prop_oneof![9 => prop::collection::vec(rule, 0..3).prop_map(Value::from), 1 => values()].boxed()
}

fn breakers() -> BoxedStrategy<Value> {
    let object = objects(&[
        ("threshold", || (1..=1_000).prop_map(Value::from).boxed()),
        ("resetTimeoutSeconds", || (0.001..900.0).prop_map(Value::from).boxed()),
    ]);
    prop_oneof![Just(Value::from("off")), object].boxed()
}

fn limits() -> BoxedStrategy<Value> {
    let place = || prop_oneof![9 => "/?[a-zA-Z_.~/-]{0,4}|MessageGroupId".prop_map(Value::from), 1 => values()];
    let weights = || {
        let weight = prop_oneof![20 => (1_u32..=255).prop_map(Value::from), 1 => numbers()];
        let weights = prop::collection::hash_map("[a-c]{1,2}|[17](\\.0|e0)?|.{0,1}", weight, 0..4);
        weights.prop_map(|members| Value::Object(members.into_iter().collect()))
    };
    let key = prop::option::weighted(0.3, place());
    let limit = (1_u32..=1_000_000, key, prop::option::of(place()), prop::option::of(weights()));
    limit
        .prop_map(|(limit, key, by, weights)| {
            let mut limit = json!({ "limit": limit });
            if let Some(key) = key {
                limit["key"] = key.clone();
                limit["units"] = key;
            }
            if let Some(by) = by {
                limit["fairBy"] = by;
            }
            if let Some(weights) = weights {
                limit["weights"] = weights;
            }
            limit
        })
        .boxed()
}

fn queues() -> BoxedStrategy<Value> {
    objects(&[
        ("visibilityTimeout", || (0..=43_200).prop_map(Value::from).boxed()),
        ("messageRetentionPeriod", || (60..=1_209_600).prop_map(Value::from).boxed()),
        ("maxReceiveCount", || (1..=1_000).prop_map(Value::from).boxed()),
    ])
}

fn own() -> BoxedStrategy<Value> {
    let entry = objects(&[
        ("preset", presets),
        ("maxRetries", counts),
        ("jitter", jitters),
        ("backoff", backoffs),
        ("errorConfigs", entries),
        ("rateLimit", limits),
        ("rules", rules),
        ("queueConfig", queues),
        ("timeoutSeconds", || (0.0..6_000.0).prop_map(Value::from).boxed()),
        ("concurrency", || (0..=1_001).prop_map(Value::from).boxed()),
        ("deadLetter", || {
            prop::sample::select(vec![
                "redrive",
                "annotate",
                "direct",
                "https://sqs.eu-west-1.amazonaws.com/123456789012/dead",
            ])
            .prop_map(Value::from)
            .boxed()
        }),
        ("sqsCalls", calls),
    ]);
    let entry = prop_oneof![9 => entry, 1 => values()];
    let entries = prop::collection::hash_map("[a-z]{1,3}([.]fifo)?|.{0,2}", entry, 0..3);
    entries.prop_map(|members| Value::Object(members.into_iter().collect())).boxed()
}

fn documents() -> BoxedStrategy<Value> {
    objects(&[
        ("preset", presets),
        ("maxRetries", counts),
        ("baseDelayMultiplier", factors),
        ("maxDelaySeconds", long),
        ("jitterPercentage", || (0.0..=1.0).prop_map(Value::from).boxed()),
        ("jitter", jitters),
        ("backoff", backoffs),
        ("totalTimeoutSeconds", ages),
        ("maxRetryAfterSeconds", ages),
        ("messageTtlSeconds", ages),
        ("maxDeferrals", counts),
        ("maxDeferralSeconds", long),
        ("maxPostponements", counts),
        ("maxPauseSeconds", || {
            prop_oneof![Just(Value::from("off")), (0.001..900.0).prop_map(Value::from)].boxed()
        }),
        ("circuitBreaker", breakers),
        ("errorConfigs", entries),
        ("rateLimit", limits),
        ("limits", || prop::collection::vec(limits(), 0..4).prop_map(Value::from).boxed()),
        ("rules", rules),
        ("sqsCalls", calls),
        ("receiveCalls", calls),
        ("queueConfig", queues),
        ("queues", own),
    ])
}

/// A problem between two values, each of which alone is as the schema wants it.
pub(super) fn is_between_values(problem: &str) -> bool {
    [
        ", since ",
        ", but ",
        ", by ",
        " sets the same as ",
        " is a second entry ",
        ", as one before it",
    ]
    .iter()
    .any(|words| problem.contains(words))
}

pub(super) fn assert_bounded(policy: &RetryPolicy) {
    const LONGEST: Duration = secs(14 * 86_400);
    assert!(policy.max_retries <= 10_000 && policy.max_deferrals <= 10_000);
    assert!(policy.max_deferral <= secs(86_400) && policy.max_postponements <= 10_000);
    assert!(policy.max_pause.is_none_or(|pause| pause <= secs(900)));
    let breaker = policy.circuit_breaker.as_ref();
    assert!(
        breaker
            .is_none_or(|it| (1..=1_000).contains(&it.threshold) && it.reset_timeout <= secs(900))
    );
    assert!(
        policy.max_retry_after <= LONGEST && policy.message_ttl.is_none_or(|ttl| ttl <= LONGEST)
    );
    for class in [&policy.rate_limit, &policy.quota, &policy.temporary] {
        assert!(class.max_delay <= secs(86_400) && class.total_timeout <= LONGEST, "{class:?}");
        assert!(
            !class.backoff.base().is_zero() && class.backoff.base() <= class.max_delay,
            "{class:?}"
        );
        assert!(class.max_retries.is_none_or(|max| max <= 10_000), "{class:?}");
        assert!(
            matches!(class.backoff, Backoff::Exponential { multiplier, .. } if (1.0..=100.0).contains(&multiplier))
                || !matches!(class.backoff, Backoff::Exponential { .. }),
            "{class:?}"
        );
        assert!(
            !matches!(class.jitter, Jitter::Proportional(share) if !(0.0..=1.0).contains(&share)),
            "{class:?}"
        );
    }
    for calls in [&policy.sqs_calls, &policy.receive_calls] {
        assert!((1..=10).contains(&calls.max_attempts) && calls.max_delay <= secs(60), "{calls:?}");
        assert!(
            !calls.backoff.base().is_zero() && calls.backoff.base() <= calls.max_delay,
            "{calls:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_048))]

    #[test]
    fn no_text_and_no_json_panics(text in any::<String>(), value in values(), inner in values()) {
        let _ = read(&text);
        for document in [value.clone(), json!({ "errorConfigs": value }), json!({ "errorConfigs": { "QUOTA": inner } })] {
            match read(&document.to_string()) {
                Ok((policy, _)) => assert_bounded(&policy),
                Err(problems) => prop_assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.contains('\n'))),
            }
        }
    }

    #[test]
    fn a_document_with_a_piece_cut_out_never_panics(document in documents(), from in 0_usize..400, len in 0_usize..40) {
        let text = document.to_string();
        let cut: String = text.chars().enumerate().filter(|(at, _)| !(from..from + len).contains(at)).map(|(_, c)| c).collect();
        if let Ok((policy, _)) = read(&cut) {
            assert_bounded(&policy);
        }
    }

    #[test]
    fn the_schema_and_the_code_accept_the_same(document in prop_oneof![4 => documents(), 1 => values()]) {
        let by_schema = allows(&document);
        match read(&document.to_string()) {
            Ok((policy, _)) => {
                assert_bounded(&policy);
                prop_assert!(by_schema, "only the code accepts {document}");
            }
            Err(problems) => {
                let between = problems.iter().all(|problem| is_between_values(problem));
                prop_assert_eq!(by_schema, between, "{} {:#?}", document, problems);
            }
        }
    }
}

/// A document with this value at every place that the schema names, one place in each.
fn with_everywhere(value: &Value, at: &Value, root: &Value, depth: u8) -> Vec<Value> {
    let mut documents = vec![value.clone()];
    if depth == 0 {
        return documents;
    }
    let within = |at: &Value| with_everywhere(value, at, root, depth - 1);
    if let Some(place) = at["$ref"].as_str().and_then(|place| root.pointer(&place[1..])) {
        return with_everywhere(value, place, root, depth);
    }
    for choice in at["anyOf"].as_array().into_iter().flatten() {
        documents.extend(within(choice));
    }
    for (name, at) in at["properties"].as_object().into_iter().flatten() {
        documents.extend(within(at).into_iter().map(|inner| json!({ name: inner })));
    }
    if at["additionalProperties"].is_object() {
        let inner = within(&at["additionalProperties"]);
        documents.extend(inner.into_iter().map(|inner| json!({ "a": inner })));
    }
    if at["items"].is_object() {
        documents.extend(within(&at["items"]).into_iter().map(|inner| json!([inner])));
    }
    documents
}

#[test]
fn a_value_of_another_type_is_refused_at_every_place() {
    let schema = schema();
    for value in [json!(0.5), json!(-1), json!(true), json!(""), json!(null), json!([]), json!({})]
    {
        let documents = with_everywhere(&value, &schema, &schema, 9);
        assert!(documents.len() > 200, "{}", documents.len());
        for document in documents {
            let problems = read(&document.to_string()).err().unwrap_or_default();
            let is_sound = problems.iter().all(|problem| is_between_values(problem));
            assert_eq!(allows(&document), is_sound, "{document} {problems:#?}");
        }
    }
}

#[test]
fn the_generated_documents_are_of_both_kinds() {
    let mut runner = TestRunner::deterministic();
    let accepted = (0..1_000).filter(|_| {
        read(&documents().new_tree(&mut runner).expect("a tree").current().to_string()).is_ok()
    });
    let accepted = accepted.count();
    assert!((200..900).contains(&accepted), "{accepted} of 1,000");
}

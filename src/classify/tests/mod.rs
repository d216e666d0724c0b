//! Answers of real providers, and the order of evidence.

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use FailureClass::{NonRetryable, Quota, RateLimit, Temporary};

// What providers answer, by provider.
mod clouds;
mod code_hosts;
mod exceptions;
mod fuzz;
mod google;
mod messaging;
mod models;
mod payments;
mod providers;
mod saas;
mod standards;
mod texts;
mod thrown;

/// The page with the built-in tables.
pub(super) const PAGE: &str = include_str!("../../../docs/reference/classes.md");

/// The page has a row with this word and this class.
#[track_caller]
pub(super) fn assert_on_page(word: &str, class: FailureClass) {
    let [word, class] = [word, class.as_str()].map(|text| format!("`{text}`"));
    let has = |row: &&str| row.starts_with('|') && row.contains(&word) && row.contains(&class);
    assert!(PAGE.lines().any(|row| has(&row)), "the page lacks {word} as {class}");
}

/// The words of a section's table on the page, each with the class of its row.
pub(super) fn words_on_page(heading: &str) -> Vec<(&'static str, &'static str)> {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the page has it");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.rsplit_once(" | `"));
    let words: Vec<_> = rows
        .flat_map(|(words, class)| {
            let class = class.split('`').next().unwrap_or_default();
            words.split('`').skip(1).step_by(2).map(move |word| (word, class))
        })
        .collect();
    assert!(words.len() > 10, "{words:?}");
    words
}

/// Where it is described, status, headers, body; class, and delay in milliseconds. The time is
/// 2023-11-14T22:13:20Z.
type Told<'a> = (&'a str, u16, &'a [(&'a str, &'a str)], &'a str, FailureClass, Option<u64>);

fn assert_told(rows: &[Told<'_>]) {
    for (source, status, headers, body, class, millis) in rows {
        let failure = answered(*status, headers, body);
        assert_eq!(
            (failure.class(), failure.delay()),
            (*class, millis.map(Duration::from_millis)),
            "{source}: {status} {headers:?} {body}"
        );
    }
}

fn answered(status: u16, headers: &[(&str, &str)], body: &str) -> Failure {
    let headers: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let answer = Response { status, headers: &headers, body: body.as_bytes() };
    let failure = Failure::from_response(
        &answer,
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
    );
    assert!(
        failure.is_postponed() || matches!(failure.evidence(), Evidence::Typed | Evidence::Rule)
    );
    failure
}

#[test]
fn a_status_alone_decides() {
    for (status, class) in [
        (0, Temporary),
        (100, Temporary),
        (199, Temporary),
        (299, Temporary),
        (300, NonRetryable),
        (301, NonRetryable),
        (304, NonRetryable),
        (399, NonRetryable),
        (400, NonRetryable),
        (401, NonRetryable),
        (403, NonRetryable),
        (404, NonRetryable),
        (407, NonRetryable),
        (408, Temporary),
        (409, NonRetryable),
        (410, NonRetryable),
        (420, RateLimit),
        (423, Temporary),
        (424, Temporary),
        (425, Temporary),
        (426, NonRetryable),
        (428, NonRetryable),
        (429, RateLimit),
        (430, NonRetryable),
        (421, Temporary),
        (449, Temporary),
        (432, NonRetryable),
        (498, Temporary),
        (499, Temporary),
        (500, Temporary),
        (501, NonRetryable),
        (502, Temporary),
        (503, Temporary),
        (504, Temporary),
        (505, NonRetryable),
        (506, Temporary),
        (529, Temporary),
        (599, Temporary),
        (600, Temporary),
        (u16::MAX, Temporary),
    ] {
        let failure = answered(status, &[], "");
        assert_eq!(
            (failure.class(), failure.detail()),
            (class, &*format!("status {status}")),
            "{status}"
        );
    }
}

#[test]
fn the_servers_own_code_is_told_and_nothing_else_of_what_it_says() {
    const CANARIES: &str = r#"{"code":"ann@example.com","reason":"Dear Ann","errorCode":"0b6f1bd4-8d2f-4b58-9d2a-5f1c9c1f0a11",
        "type":"https://example.com/reset?token=canary","message":"canary","detail":"canary","title":"canary",
        "error":{"code":"sk_live_51H8xJ2eZvKYlo2C","message":"canary"},"errors":[{"code":"+49 170 1234567","reason":"canary canary"}]}"#;
    assert_rows(&[
        (
            422,
            &[],
            r#"{"code":"outdated-fare","message":"Dear Ann"}"#,
            NonRetryable,
            "status 422: outdated-fare",
            None,
        ),
        (422, &[], r#"{"reason":"sold_out"}"#, NonRetryable, "status 422: sold_out", None),
        (
            422,
            &[],
            r#"{"type":"https://example.com/probs/out-of-credit/"}"#,
            NonRetryable,
            "status 422: out-of-credit",
            None,
        ),
        (
            422,
            &[],
            r#"{"type":"urn:example:no-seat","status":422}"#,
            NonRetryable,
            "status 422: no-seat",
            None,
        ),
        (422, &[], r#"{"type":"about:blank","status":422}"#, NonRetryable, "status 422", None),
        (
            422,
            &[],
            r#"{"errors":[{"status":"422","code":"no-seat"}]}"#,
            NonRetryable,
            "status 422: no-seat",
            None,
        ),
        (
            422,
            &[],
            r#"[{"errorCode":"FIELD_MISSING"}]"#,
            NonRetryable,
            "status 422: FIELD_MISSING",
            None,
        ),
        (400, &[], r#"{"code":21211,"status":400}"#, NonRetryable, "status 400: 21211", None),
        (400, &[], r#"{"code":400,"error":{"code":"x-1"}}"#, NonRetryable, "status 400: x-1", None),
        (400, &[], r#"{"error":"invalid_grant"}"#, NonRetryable, "status 400: invalid_grant", None),
        (
            400,
            &[],
            r#"{"error":{"code":400,"status":"INVALID_ARGUMENT"}}"#,
            NonRetryable,
            "status 400: INVALID_ARGUMENT",
            None,
        ),
        (
            400,
            &[],
            r#"{"error":{"type":"card_error","code":"expired"}}"#,
            NonRetryable,
            "status 400: expired",
            None,
        ),
        (
            400,
            &[],
            r#"{"__type":"com.example#OutOfStock"}"#,
            NonRetryable,
            "status 400: OutOfStock",
            None,
        ),
        (
            400,
            &[("x-amzn-errortype", "OutOfStock:http://x/")],
            "{}",
            NonRetryable,
            "status 400: OutOfStock",
            None,
        ),
        (
            402,
            &[("Stripe-Should-Retry", "false")],
            r#"{"error":{"code":"card_declined"}}"#,
            NonRetryable,
            "status 402: card_declined, retry not wanted",
            None,
        ),
        (503, &[], r#"{"code":"E_DB"}"#, Temporary, "status 503: E_DB", None),
        (302, &[], r#"{"code":"moved"}"#, NonRetryable, "status 302", None),
        (422, &[], r#"{"code":"outdated-fare""#, NonRetryable, "status 422", None),
        (422, &[], CANARIES, NonRetryable, "status 422", None),
    ]);
}

/// Status, headers, body; class, reason, delay in seconds.
type Row<'a> = (u16, &'a [(&'a str, &'a str)], &'a str, FailureClass, &'a str, Option<u64>);

fn assert_rows(rows: &[Row<'_>]) {
    for (status, headers, body, class, reason, delay) in rows {
        let failure = answered(*status, headers, body);
        assert_eq!(
            (failure.class(), failure.detail(), failure.delay()),
            (*class, *reason, delay.map(Duration::from_secs)),
            "{status} {headers:?} {body}"
        );
    }
}

#[test]
fn google_says_in_the_body_why_it_forbids() {
    const RATE: &str = r#"{"error":{"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}],"code":403}}"#;
    const DAY: &str = r#"{"error":{"errors":[{"domain":"usageLimits","reason":"dailyLimitExceeded"}],"code":403}}"#;
    const FORBIDDEN: &str =
        r#"{"error":{"errors":[{"domain":"global","reason":"forbidden"}],"code":403}}"#;
    const RPC: &str = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
        {"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[]}]}}"#;
    const RPC_SOON: &str = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
        {"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[]},
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"36s"}]}}"#;
    let soon = &[("Retry-After", "5")];
    assert_rows(&[
        (403, &[], RATE, RateLimit, "status 403: userRateLimitExceeded", None),
        (403, &[], DAY, Quota, "status 403: dailyLimitExceeded", None),
        (403, &[], FORBIDDEN, NonRetryable, "status 403: forbidden", None),
        (403, &[], &RATE[..40], NonRetryable, "status 403", None),
        (403, &[], "rateLimitExceeded", NonRetryable, "status 403", None),
        (429, &[], RPC, Quota, "status 429: QuotaFailure", None),
        (429, &[], RPC_SOON, RateLimit, "status 429: RESOURCE_EXHAUSTED", Some(36)),
        (429, soon, RPC_SOON, RateLimit, "status 429: RESOURCE_EXHAUSTED", Some(5)),
        (301, &[], RATE, NonRetryable, "status 301", None),
    ]);
}

#[test]
fn problem_types_and_error_codes_of_providers_are_known() {
    const QUOTA: &str =
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"t"}"#;
    const CAPACITY: &str =
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"}"#;
    const OPENAI: &str =
        r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    const PLAIN: &str = r#"{"error":"rate_limit_exceeded"}"#;
    const AWS: &str =
        r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"m"}"#;
    const THROTTLED: &str = "status 400: throttled: ThrottlingException";
    let aws = &[("x-amzn-ErrorType", "ThrottlingException:http://x")];
    assert_rows(&[
        (429, &[], QUOTA, Quota, "status 429: quota-exceeded", None),
        (503, &[], CAPACITY, Temporary, "status 503: temporary-reduced-capacity", None),
        (429, &[], OPENAI, Quota, "status 429: insufficient_quota", None),
        (429, &[], PLAIN, RateLimit, "status 429: rate_limit_exceeded", None),
        (400, &[], AWS, RateLimit, THROTTLED, None),
        (400, aws, "", RateLimit, THROTTLED, None),
    ]);
}

#[test]
fn stripe_knows_best_whether_to_retry() {
    const LOCK: &str = r#"{"error":{"code":"lock_timeout","type":"invalid_request_error"}}"#;
    let yes = &[("Stripe-Should-Retry", "true")];
    let no = &[("Stripe-Should-Retry", "false")];
    assert_rows(&[
        (429, yes, LOCK, Temporary, "status 429: lock_timeout", None),
        (429, yes, "", RateLimit, "status 429", None),
        (429, no, "", RateLimit, "status 429", None),
        (409, yes, "", Temporary, "status 409: retry wanted", None),
        (503, yes, "", Temporary, "status 503", None),
        (500, no, "", NonRetryable, "status 500: retry not wanted", None),
    ]);
}

#[test]
fn headers_turn_a_403_into_a_rate_limit_and_name_its_end() {
    const LIMITED: &str = "status 403: rate limit";
    let primary = &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000060")];
    let neither = &[("x-ratelimit-remaining", "41"), ("x-ratelimit-reset", "1700000060")];
    let secondary = &[("x-ratelimit-remaining", "41"), ("retry-after", "60")];
    let draft = &[("Retry-After", "garbage"), ("RateLimit", r#""p";r=0;t=30"#)];
    assert_rows(&[
        (403, primary, "", RateLimit, LIMITED, Some(60)),
        (403, neither, "", NonRetryable, "status 403", None),
        (403, secondary, "", RateLimit, LIMITED, Some(60)),
        (429, draft, "", RateLimit, "status 429", Some(30)),
        (503, draft, "", Temporary, "status 503", None),
        (503, secondary, "", Temporary, "status 503", Some(60)),
        (404, secondary, "", NonRetryable, "status 404", None),
        (301, secondary, "", NonRetryable, "status 301", None),
    ]);
}

#[test]
fn a_service_schedules_work_by_postponing() {
    let postponed = answered(429, &[("Retry-After", "3600"), ("Requeue-Scope", "Message")], "");
    assert!(postponed.is_postponed());
    assert_eq!(postponed.delay(), Some(Duration::from_hours(1)));
    for (status, headers) in [
        (429, &[("Requeue-Scope", "message")][..]),
        (429, &[("Requeue-Scope", "message"), ("Retry-After", "later")]),
        (429, &[("Requeue-Scope", "tenant"), ("Retry-After", "1")]),
        (503, &[("Requeue-Scope", "message"), ("Retry-After", "1")]),
    ] {
        assert!(!answered(status, headers, "").is_postponed());
    }
}

/// An error with any text around any cause.
#[derive(Debug)]
struct Wrapped(String, Option<Box<dyn Error + Send + Sync>>);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_ref().map(|cause| &**cause as _)
    }
}

#[test]
fn a_type_deep_in_the_chain_beats_words_at_its_top() {
    let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
    let depths: [Box<dyn Error>; 3] = [
        Box::new(Wrapped("403 Forbidden".into(), Some(reset().into()))),
        Box::new(Wrapped("403 Forbidden".into(), Some(io::Error::other(reset()).into()))),
        Box::new(io::Error::other(Wrapped(
            "429".into(),
            Some(io::Error::new(io::ErrorKind::InvalidData, reset()).into()),
        ))),
    ];
    for error in depths {
        let failure = Failure::classified(&*error);
        assert_eq!(
            (failure.class(), failure.evidence(), failure.detail()),
            (Temporary, Evidence::Typed, "connection reset")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_elapsed_timer_is_a_time_out() {
    let elapsed = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
    let failure = Failure::classified(&elapsed.expect_err("nothing ever happens"));
    assert_eq!((failure.evidence(), failure.detail()), (Evidence::Typed, "timed out"));
}

#[test]
fn own_rules_come_first_in_their_order() {
    let rules = Rules::new()
        .on::<Wrapped>(|wrapped| (wrapped.0 == "locked").then(|| Failure::quota("locked")))
        .on::<io::Error>(|_| Some(Failure::non_retryable("i/o")));
    let reset = || Some(io::Error::from(io::ErrorKind::ConnectionReset).into());
    assert_eq!(rules.classify(&Wrapped("locked".into(), reset())).class(), Quota);
    assert_eq!(rules.classify(&Wrapped("free".into(), reset())).class(), NonRetryable);
    assert_eq!(rules.classify(&Wrapped("timeout".into(), None)).class(), Temporary);
}

#[test]
fn a_rule_may_ask_the_built_in_tables_and_is_not_asked_again() {
    let rules = Rules::new().on::<Wrapped>(|wrapped| {
        Some(Failure::classified(wrapped).retry_after(Duration::from_secs(7)))
    });
    let failure = rules.classify(&Wrapped("status 429".into(), None));
    assert_eq!((failure.class(), failure.delay()), (RateLimit, Some(Duration::from_secs(7))));
}

#[test]
fn rules_of_the_document_and_of_the_code_are_one_list() {
    let document = r#"{"rules": [{"match": {"words": "locked"}, "class": "QUOTA"}]}"#;
    let rules = document
        .parse::<Rules>()
        .expect("a rule")
        .on::<Wrapped>(|_| Some(Failure::non_retryable("wrapped")));
    let by = |text: &str| rules.classify(&Wrapped(text.into(), None)).detail().to_owned();
    assert_eq!(
        (rules.len(), by("is locked"), by("is free")),
        (2, "by rules[0]".to_owned(), "wrapped".to_owned())
    );
}

#[tokio::test]
async fn rules_hold_within_their_scope_and_not_beyond() {
    let rules = Rules::new().on::<Wrapped>(|_| Some(Failure::quota("ruled")));
    let class = || Failure::classified(&Wrapped("status 400".into(), None)).class();
    let within = rules.scope(async {
        tokio::task::yield_now().await;
        let started = tokio::spawn(async move { class() }).await.expect("no panic");
        let reached = tokio::spawn(rules.scope(async move { class() })).await.expect("no panic");
        (class(), started, reached)
    });
    assert_eq!(within.await, (Quota, NonRetryable, Quota));
    assert_eq!(class(), NonRetryable);
}

#[test]
fn an_endless_chain_ends() {
    #[derive(Debug)]
    struct Ouroboros;
    impl fmt::Display for Ouroboros {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("tail")
        }
    }
    impl Error for Ouroboros {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }
    assert_eq!(Failure::classified(&Ouroboros).evidence(), Evidence::Unrecognised);
}

proptest! {
    #[test]
    fn words_never_change_what_a_type_says_and_never_reach_the_reason(
        outer in ".{0,80}|status (403|429)|quota exceeded|timed out",
        inner in ".{0,80}|throttled|400 Bad Request",
    ) {
        let typed = io::Error::new(io::ErrorKind::ConnectionRefused, inner);
        let failure = Failure::classified(&Wrapped(outer, Some(typed.into())));
        prop_assert_eq!((failure.class(), failure.evidence()), (Temporary, Evidence::Typed));
        prop_assert_eq!(failure.detail(), "connection refused");
    }

    #[test]
    fn foreign_words_never_reach_a_reason(secret in "[a-z]{12,20}", status in 0_u16..700) {
        let body = format!(
            r#"{{"title":"{secret}","detail":"{secret}","{secret}":"{secret}",
                "error":{{"reason":"{secret} {secret}","code":"{secret}@example.com","message":"quotaExceeded {secret}"}}}}"#
        );
        let kind = format!("{secret}={secret}");
        let answered = answered(status, &[("x-amzn-errortype", &kind), ("retry-after", &secret)], &body);
        prop_assert!(!answered.detail().contains(&secret));
        let said = Failure::classified(&Wrapped(format!("status 503 timed out {secret}"), None));
        prop_assert!(!said.detail().contains(&secret));
    }

    #[test]
    fn not_even_the_words_of_a_rule_reach_a_reason(secret in "[a-z]{12,20}") {
        let rules = serde_json::json!({ "rules": [
            { "match": { "status": 404, "header": { "x-secret": secret.as_str() }, "code": format!("{secret} {secret}") }, "class": "QUOTA" },
            { "match": { "words": secret.as_str() }, "class": "RATE_LIMIT" },
        ]}).to_string().parse::<Rules>().expect("rules");
        let body = format!(r#"{{"code":"{secret} {secret}"}}"#);
        let answered = rules.within(|| answered(404, &[("x-secret", &secret)], &body));
        prop_assert_eq!((answered.class(), answered.detail()), (Quota, "status 404, by rules[0]"));
        let said = rules.classify(&Wrapped(secret, None));
        prop_assert_eq!((said.class(), said.detail()), (RateLimit, "by rules[1]"));
    }

    #[test]
    fn no_body_causes_a_panic(status: u16, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let answer = Response { status, headers: &[], body: &body };
        let _ = Failure::from_response(&answer, SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn no_text_causes_a_panic(text in any::<String>()) {
        let _ = Failure::classified(&Wrapped(text, None));
    }
}

#[test]
fn a_time_that_has_come_names_no_delay() {
    let now = "Tue, 14 Nov 2023 22:13:20 GMT";
    for headers in [
        [("retry-after", "0"), ("x", "")],
        [("retry-after", now), ("date", now)],
        [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000000")],
    ] {
        let failure = answered(429, &headers, "");
        assert_eq!((failure.class(), failure.delay()), (RateLimit, None), "{headers:?}");
    }
    let postponed = answered(429, &[("retry-after", "0"), ("requeue-scope", "message")], "");
    assert!(postponed.is_postponed());
    assert_eq!(postponed.delay(), Some(Duration::from_secs(1)));
}

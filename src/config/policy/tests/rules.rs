//! The user's own rules: what each condition matches, and what is said about a rule that cannot be.

use std::time::{Duration, SystemTime};

use crate::classify::{GrpcStatus, Response, Rules};
use crate::{Evidence, Failure, FailureClass};
use FailureClass::{NonRetryable, Quota, RateLimit, Temporary};

fn rules(list: &str) -> Result<Rules, Vec<String>> {
    super::read_all(&format!(r#"{{"rules": {list}}}"#)).map(|(_, rules)| rules)
}

/// An answer with everything in it that a rule may ask for; by itself it is non-retryable.
fn answered() -> Failure {
    let headers: &[(&str, &[u8])] =
        &[("Content-Type", b"application/json"), ("X-Shard", b" Seven "), ("Retry-After", b"5")];
    let body = br#"{"error": {"code": 20429, "reason": "notYet", "errors": [{"reason": "deep"}]}, "message": "Not there, TRY again!"}"#;
    Failure::from_response(&Response { status: 404, headers, body }, SystemTime::UNIX_EPOCH)
}

#[test]
fn each_condition_matches_what_it_says_and_all_must_hold() {
    assert_eq!((answered().class(), answered().evidence()), (NonRetryable, Evidence::Typed));
    for (condition, holds) in [
        (r#"{"status": 404}"#, true),
        (r#"{"status": 404.0}"#, true),
        (r#"{"status": 403}"#, false),
        (r#"{"status": 405}"#, false),
        (r#"{"status": "4xx"}"#, true),
        (r#"{"status": "3xx"}"#, false),
        (r#"{"status": "5xx"}"#, false),
        (r#"{"status": [500, "4xx"]}"#, true),
        (r#"{"status": [403, 405, "5xx"]}"#, false),
        (r#"{"code": "notYet"}"#, true),
        (r#"{"code": "notyet"}"#, false),
        (r#"{"code": "not"}"#, false),
        (r#"{"code": "deep"}"#, true),
        (r#"{"code": "20429"}"#, true),
        (r#"{"code": "2042"}"#, false),
        (r#"{"code": ["gone", "deep"]}"#, true),
        (r#"{"code": ["gone", "away"]}"#, false),
        (r#"{"header": {"x-shard": true}}"#, true),
        (r#"{"header": {"X-SHARD": "seven"}}"#, true),
        (r#"{"header": {"x-shard": "sev"}}"#, false),
        (r#"{"header": {"x-shard": "eight"}}"#, false),
        (r#"{"header": {"x-shards": true}}"#, false),
        (r#"{"header": {"x-shard": true, "content-type": "application/json"}}"#, true),
        (r#"{"header": {"x-shard": true, "content-type": "text/plain"}}"#, false),
        (r#"{"words": "try again"}"#, true),
        (r#"{"words": "  Try, AGAIN. "}"#, true),
        (r#"{"words": "there try"}"#, true),
        (r#"{"words": "again try"}"#, false),
        (r#"{"words": "try"}"#, true),
        (r#"{"words": "tr"}"#, false),
        (r#"{"words": "ry again"}"#, false),
        (r#"{"words": ["no", "try again"]}"#, true),
        (r#"{"words": ["no", "never"]}"#, false),
        (
            r#"{"status": 404, "code": "deep", "header": {"x-shard": "seven"}, "words": "again"}"#,
            true,
        ),
        (
            r#"{"status": 403, "code": "deep", "header": {"x-shard": "seven"}, "words": "again"}"#,
            false,
        ),
        (
            r#"{"status": 404, "code": "away", "header": {"x-shard": "seven"}, "words": "again"}"#,
            false,
        ),
        (
            r#"{"status": 404, "code": "deep", "header": {"x-shard": "eight"}, "words": "again"}"#,
            false,
        ),
        (
            r#"{"status": 404, "code": "deep", "header": {"x-shard": "seven"}, "words": "never"}"#,
            false,
        ),
    ] {
        let rules =
            rules(&format!(r#"[{{"match": {condition}, "class": "QUOTA"}}]"#)).expect(condition);
        let failure = rules.within(answered);
        let expected =
            if holds { (Quota, Evidence::Rule) } else { (NonRetryable, Evidence::Typed) };
        assert_eq!((failure.class(), failure.evidence()), expected, "{condition}");
    }
}

#[test]
fn a_rule_names_its_reason_or_tells_its_place_and_the_code_of_the_answer() {
    let refused = std::io::Error::other("the fare is outdated");
    let long = "x".repeat(64);
    for (reason, of_answer, of_error) in [
        (None, "status 404: 20429, by rules[0]", "by rules[0]"),
        (Some("outdated-fare"), "status 404: outdated-fare", "outdated-fare"),
        (Some("x\\u000ay"), "status 404: x y", "x y"),
        (Some(long.as_str()), &format!("status 404: {long}"), long.as_str()),
    ] {
        let reason = reason.map(|reason| format!(r#", "reason": "{reason}""#)).unwrap_or_default();
        let list = format!(r#"[{{"match": {{"status": 404}}, "class": "QUOTA"{reason}}}]"#);
        assert_eq!(rules(&list).expect("valid").within(answered).detail(), of_answer);
        let list = format!(r#"[{{"match": {{"words": "outdated"}}, "class": "QUOTA"{reason}}}]"#);
        assert_eq!(rules(&list).expect("valid").classify(&refused).detail(), of_error);
    }
    for bad in ["\"\"", "\" \"", "7", "null", &format!("\"{}\"", "x".repeat(65))] {
        let problems = rules(&format!(
            r#"[{{"match": {{"status": 404}}, "class": "QUOTA", "reason": {bad}}}]"#
        ))
        .expect_err("refused");
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(
            problem.starts_with("rules[0].reason is ") && problem.contains("1 to 64 characters"),
            "{problem}"
        );
    }
}

#[test]
fn the_first_rule_that_matches_wins_and_its_delay_before_that_of_the_answer() {
    const NAMES: [(&str, FailureClass); 6] = [
        ("RATE_LIMIT", RateLimit),
        ("RATE_LIMIT_EXCEEDED", RateLimit),
        ("QUOTA", Quota),
        ("QUOTA_EXCEEDED", Quota),
        ("TEMPORARY", Temporary),
        ("TEMPORARY_ERROR", Temporary),
    ];
    for (name, class) in NAMES {
        for (delay, expected) in [
            ("", 5_000),
            (r#", "delaySeconds": 0.001"#, 1),
            (r#", "delaySeconds": 43200"#, 43_200_000),
        ] {
            let list = format!(
                r#"[{{"match": {{"status": 403}}, "class": "NON_RETRYABLE"}}, {{"match": {{"status": 404}}, "class": "{name}"{delay}}},
                    {{"match": {{"status": 404}}, "class": "NON_RETRYABLE"}}]"#
            );
            let failure = rules(&list).expect(&list).within(answered);
            assert_eq!(
                (failure.class(), failure.detail()),
                (class, "status 404: 20429, by rules[1]"),
                "{list}"
            );
            assert_eq!(failure.delay(), Some(Duration::from_millis(expected)), "{list}");
        }
    }
    let final_one = rules(r#"[{"match": {"status": "4xx"}, "class": "NON_RETRYABLE"}]"#)
        .expect("a rule")
        .within(answered);
    assert_eq!(
        (final_one.class(), final_one.delay(), final_one.evidence()),
        (NonRetryable, None, Evidence::Rule)
    );
}

#[test]
fn what_the_target_asks_for_explicitly_is_no_matter_for_rules() {
    let rules = rules(r#"[{"match": {"status": 429}, "class": "NON_RETRYABLE"}]"#).expect("a rule");
    let headers: &[(&str, &[u8])] = &[("Requeue-Scope", b"message"), ("Retry-After", b"5")];
    let answer = Response { status: 429, headers, body: b"" };
    assert!(
        rules.within(|| Failure::from_response(&answer, SystemTime::UNIX_EPOCH)).is_postponed()
    );
    let limited = Response { headers: &headers[1..], ..answer };
    assert_eq!(
        rules.within(|| Failure::from_response(&limited, SystemTime::UNIX_EPOCH)).class(),
        NonRetryable
    );
}

#[test]
fn errors_match_by_their_codes_and_words_and_by_nothing_else() {
    use crate::ResultExt;
    use aws_smithy_types::error::ErrorMetadata;

    let refused = || {
        std::io::Error::new(
            std::io::ErrorKind::ConnectionRefused,
            "the ledger, status 404, is locked",
        )
    };
    let aws =
        || ErrorMetadata::builder().code("ns#BooksClosed:http://x").message("until Monday").build();
    let errors: [(&str, &dyn Fn() -> Failure); 5] = [
        ("words", &|| Failure::classified(&refused())),
        ("words", &|| Err::<(), _>(refused()).classified().expect_err("an error")),
        ("code", &|| Failure::classified(&aws())),
        ("code", &|| Failure::aws(&aws())),
        ("grpc", &|| {
            Failure::from_grpc(GrpcStatus {
                retry_delay: Some(Duration::from_secs(9)),
                ..GrpcStatus::new(9)
            })
        }),
    ];
    for (condition, matching) in [
        (r#"{"words": "ledger"}"#, "words"),
        (r#"{"words": "is locked", "status": 404}"#, ""),
        (r#"{"status": ["3xx", "4xx", "5xx"]}"#, ""),
        (r#"{"header": {"date": true}}"#, ""),
        (r#"{"words": "until monday"}"#, "code"),
        (r#"{"code": "BooksClosed"}"#, "code"),
        (r#"{"code": "ns#BooksClosed:http://x", "words": "monday"}"#, "code"),
        (r#"{"code": "ns"}"#, ""),
        (r#"{"code": "FAILED_PRECONDITION"}"#, "grpc"),
        (r#"{"code": "FAILED_PRECONDITION", "words": "failed"}"#, ""),
    ] {
        let rules = rules(&format!(r#"[{{"match": {condition}, "class": "RATE_LIMIT"}}]"#))
            .expect(condition);
        for (kind, error) in &errors {
            let failure = rules.within(error);
            assert_eq!(
                failure.evidence() == Evidence::Rule,
                *kind == matching,
                "{condition} for {kind}"
            );
            if *kind == matching {
                let named = (*kind == "grpc").then(|| Duration::from_secs(9));
                assert_eq!(
                    (failure.detail(), failure.delay()),
                    ("by rules[0]", named),
                    "{condition}"
                );
            }
        }
    }
    assert_eq!(
        Failure::classified(&refused()).evidence(),
        Evidence::Typed,
        "no rules are in force here"
    );
}

/// An error of a service, which tells its code to those who know its type.
#[derive(Debug)]
struct Modelled(aws_smithy_types::error::ErrorMetadata);

impl std::fmt::Display for Modelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("service error")
    }
}

impl std::error::Error for Modelled {}

impl aws_smithy_types::error::metadata::ProvideErrorMetadata for Modelled {
    fn meta(&self) -> &aws_smithy_types::error::ErrorMetadata {
        &self.0
    }
}

#[test]
fn a_rule_beats_the_code_that_the_built_in_tables_know() {
    let throttled = || {
        Modelled(
            aws_smithy_types::error::ErrorMetadata::builder().code("ThrottlingException").build(),
        )
    };
    let rules = rules(r#"[{"match": {"code": "ThrottlingException"}, "class": "NON_RETRYABLE"}]"#)
        .expect("a rule");
    assert_eq!(Failure::aws(&throttled()).class(), RateLimit);
    assert_eq!(rules.within(|| Failure::aws(&throttled())).class(), NonRetryable);
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn what_is_no_rule_is_refused_in_its_place() {
    let long = format!(r#"[{{"match": {{"words": "{}"}}, "class": "QUOTA"}}]"#, "a".repeat(257));
    let long_problem = format!(
        "rules[0].match.words is `\"{}…`: must be a text of 1 to 256 characters, or a list",
        "a".repeat(39)
    );
    let headers: Vec<String> = (0..11).map(|n| format!(r#""h{n}":1"#)).collect();
    let headers =
        format!(r#"[{{"match": {{"header": {{{}}}}}, "class": "QUOTA"}}]"#, headers.join(","));
    for (list, problem) in [
        ("{}", "rules is `{}`: must be a list of at most 100 rules"),
        ("null", "rules is `null`: must be a list of at most 100 rules"),
        ("[7]", "rules[0] is `7`: must be an object"),
        (r#"[{"class": "QUOTA"}]"#, "rules[0].match is missing"),
        (r#"[{"match": {"status": 404}}]"#, "rules[0].class is missing"),
        (
            r#"[{"match": {"status": 404}, "klass": "QUOTA", "class": "QUOTA"}]"#,
            "rules[0].klass is unknown; did you mean class?",
        ),
        (
            r#"[{"match": {"status": 404}, "class": "QUOTA", "delay": 3}]"#,
            "rules[0].delay is unknown; did you mean delaySeconds?",
        ),
        (
            r#"[{"match": {"status": 404}, "class": "DEFAULT"}]"#,
            "rules[0].class is `\"DEFAULT\"`: must be rate-limit, quota, temporary, non-retryable",
        ),
        (r#"[{"match": 404, "class": "QUOTA"}]"#, "rules[0].match is `404`: must be an object"),
        (
            r#"[{"match": {"status": [503, "2xx"]}, "class": "QUOTA"}]"#,
            "rules[0].match is not enough, since every success is a 200 and would be done again: \
             add a code, words or a header",
        ),
        (
            r#"[{"match": {}, "class": "QUOTA"}]"#,
            "rules[0].match is `{}`: must be an object with at least one of status, code, header, words",
        ),
        (
            r#"[{"match": {"reason": "x"}, "class": "QUOTA"}]"#,
            "rules[0].match.reason is unknown: use one of status, code, header, words",
        ),
        (
            r#"[{"match": {"stauts": 404}, "class": "QUOTA"}]"#,
            "rules[0].match.stauts is unknown; did you mean status?",
        ),
        (
            r#"[{"match": {"status": 199}, "class": "QUOTA"}]"#,
            "rules[0].match.status is `199`: must be a status from 200 to 999, 2xx, 3xx, 4xx, 5xx, or a list",
        ),
        (
            r#"[{"match": {"status": ["4xx", "1xx"]}, "class": "QUOTA"}]"#,
            "rules[0].match.status[1] is `\"1xx\"`: must be a status from 200 to 999, 2xx, 3xx, 4xx, 5xx, or a list",
        ),
        (
            r#"[{"match": {"status": []}, "class": "QUOTA"}]"#,
            "rules[0].match.status is `[]`: must be a list of 1 to 100",
        ),
        (
            r#"[{"match": {"code": 404}, "class": "QUOTA"}]"#,
            "rules[0].match.code is `404`: must be a text of 1 to 256 characters, or a list",
        ),
        (
            r#"[{"match": {"code": ""}, "class": "QUOTA"}]"#,
            "rules[0].match.code is `\"\"`: must be a text of 1 to 256 characters, or a list",
        ),
        (&long, &long_problem),
        (
            r#"[{"match": {"words": "?!"}, "class": "QUOTA"}]"#,
            "rules[0].match.words is `\"?!\"`, but it has no word: write a text with a word",
        ),
        (
            r#"[{"match": {"header": "x-foo"}, "class": "QUOTA"}]"#,
            "rules[0].match.header is `\"x-foo\"`: must be an object of 1 to 10 headers",
        ),
        (
            r#"[{"match": {"header": {}}, "class": "QUOTA"}]"#,
            "rules[0].match.header is `{}`: must be an object of 1 to 10 headers",
        ),
        (
            &headers,
            "rules[0].match.header is `{\"h0\":1,\"h1\":1,\"h2\":1,\"h3\":1,\"h4\":1,\"h5\"…`: must be an object of 1 to 10 headers",
        ),
        (
            r#"[{"match": {"header": {"x foo": true}}, "class": "QUOTA"}]"#,
            "rules[0].match.header.x foo is not allowed, since no header has such a name",
        ),
        (
            r#"[{"match": {"header": {"x-foo": true, "X-Foo": "bar"}}, "class": "QUOTA"}]"#,
            "rules[0].match.header.X-Foo stands more than once, but the case of a name does not count: remove one of them",
        ),
        (
            r#"[{"match": {"header": {"x-foo": false}}, "class": "QUOTA"}]"#,
            "rules[0].match.header.x-foo is `false`: must be true, or a text of at most 256 characters",
        ),
        (
            r#"[{"match": {"status": 404}, "class": "QUOTA", "delaySeconds": 0}]"#,
            "rules[0].delaySeconds is `0`: must be a number of seconds from 0.001 to 43200, or a duration as in 12h",
        ),
        (
            r#"[{"match": {"status": 404}, "class": "QUOTA", "delaySeconds": 43201}]"#,
            "rules[0].delaySeconds is `43201`: must be a number of seconds from 0.001 to 43200, or a duration as in 12h",
        ),
        (
            r#"[{"match": {"status": 404}, "class": "NON_RETRYABLE", "delaySeconds": 3}]"#,
            "rules[0].delaySeconds is 3, but rules[0].class is non-retryable: change one of them",
        ),
    ] {
        assert_eq!(rules(list).map(|rules| rules.len()), Err(vec![problem.to_owned()]), "{list}");
    }
}

#[test]
fn a_hundred_rules_are_allowed_and_all_problems_of_all_rules_are_told() {
    let rule = r#"{"match": {"status": 404}, "class": "QUOTA"}"#;
    let most = rules(&format!("[{}]", vec![rule; 100].join(","))).expect("not too many");
    assert_eq!(
        (most.len(), most.is_empty(), format!("{most:?}")),
        (100, false, "Rules(100)".to_owned())
    );
    assert_eq!(rules("[]").map(|rules| rules.is_empty()), Ok(true));
    let problems = rules(&format!("[{}]", vec![rule; 101].join(","))).expect_err("too many");
    assert!(problems[0].ends_with("must be a list of at most 100 rules"), "{problems:?}");

    let wrong =
        r#"[{"match": {"status": 1, "code": ""}}, {"match": {"words": [1, 2]}, "class": "x"}]"#;
    assert_eq!(rules(wrong).expect_err("all is wrong").len(), 6);
}

#[test]
fn the_policies_in_the_documents_are_accepted() {
    let pages = [
        include_str!("../../../../docs/concepts/retry-policy.md"),
        include_str!("../../../../docs/concepts/classification.md"),
    ]
    .concat();
    let documents = pages
        .split("```json\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(document, _)| document);
    let policies: Vec<&str> = documents
        .filter(|document| document.contains("preset") || document.contains("rules"))
        .collect();
    assert_eq!(policies.len(), 3);
    for document in policies {
        assert_eq!(super::read_all(document).map(drop), Ok(()), "{document}");
    }
}

#[test]
fn the_rules_of_the_page_classify_as_the_page_says() {
    let page = include_str!("../../../../docs/concepts/classification.md");
    let (_, section) = page.split_once("\n## Rules of your own\n").expect("the page has rules");
    let (_, rules) = section.split_once("```json\n").expect("the section has rules");
    let (rules, _) = rules.split_once("```").expect("the block ends");
    let rules: Rules = rules.parse().expect("they are valid");
    let maintenance = [("X-Maintenance", &b"tonight"[..])];
    for (status, headers, body, row) in [
        (
            404,
            &[][..],
            r#"{"message": "Not found, yet."}"#,
            "| 404, body `{BODY}` | `CLASS`, after 30 s | `DETAIL` |",
        ),
        (503, &maintenance, "", "| 503 with `X-Maintenance: tonight` | `CLASS` | `DETAIL` |"),
        (402, &[], r#"{"code": "card_declined"}"#, "| 402, body `{BODY}` | `CLASS` | `DETAIL` |"),
    ] {
        let response = Response { status, headers, body: body.as_bytes() };
        let failure = rules.within(|| Failure::from_response(&response, SystemTime::UNIX_EPOCH));
        let row = row
            .replace("{BODY}", body)
            .replace("CLASS", failure.class().as_str())
            .replace("DETAIL", failure.detail());
        assert!(page.lines().any(|line| line == row), "the page lacks: {row}");
    }
}

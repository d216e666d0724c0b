//! `requeue check`: the same verdict, in the same words, as at the start of the Lambda.

use serde_json::{Value, json};

use crate::documents::text;
use crate::run::{Run, file, requeue, requeue_reading, requeue_with};

const ARTICLE: &str = r#"
{ "maxRetries": 50, "baseDelayMultiplier": 3.0, "maxDelaySeconds": 60, "jitterPercentage": 0.1, "totalTimeoutSeconds": 43200,
  "errorConfigs": { "RATE_LIMIT": {"baseDelay": 60, "maxDelay": 300}, "QUOTA": {"baseDelay": 120, "maxDelay": 600},
                    "TEMPORARY": {"baseDelay": 2, "maxDelay": 60}, "DEFAULT": {"baseDelay": 2, "maxDelay": 60} } }"#;

/// The row of a table that begins with this word.
#[track_caller]
fn row<'t>(text: &'t str, class: &str) -> Vec<&'t str> {
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with(class))
        .unwrap_or_else(|| panic!("{text}"));
    line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn good_documents_are_confirmed_and_summed_up() {
    let long_names = ARTICLE
        .replace("RATE_LIMIT", "RATE_LIMIT_EXCEEDED")
        .replace("QUOTA", "QUOTA_EXCEEDED")
        .replace("TEMPORARY", "TEMPORARY_ERROR");
    for (name, document) in [("article.json", ARTICLE), ("article-long.json", &long_names)] {
        let path = file(name, document);
        let said = requeue(&["check", &path]).succeeded();
        assert!(said.starts_with(&format!("the policy {path} is valid")), "{said}");
        let rate_limit = [
            "rate-limit",
            "60, 180, 300, 300, …",
            "proportional 0.1",
            "50 retries in at most 4 h 4 min",
            "12 h",
        ];
        assert_eq!(row(&said, "rate-limit"), rate_limit);
        assert_eq!(row(&said, "quota")[1], "120, 360, 600, 600, …");
        assert_eq!(row(&said, "temporary")[1], "2, 6, 18, 54, 60, 60, …");
    }
}

#[test]
fn a_period_with_a_fraction_is_not_rounded() {
    for (period, said) in [("1.1", "1.1 s"), ("0.25", "250 ms"), ("60", "60 s")] {
        let document = format!(r#"{{"rateLimit": {{"limit": 1, "periodSeconds": {period}}}}}"#);
        let summary = requeue_reading(&document, &["check", "-"]).succeeded();
        let line =
            format!("rate limit: 1 call in {said}, and a burst of 1: at most 2 in any {said};");
        assert!(summary.contains(&line), "{summary}");
    }
}

#[test]
fn the_standard_input_is_read_for_a_hyphen() {
    let said = requeue_reading(r#"{"preset": "critical"}"#, &["check", "-"]).succeeded();
    assert!(said.contains("\nfails fast: dead-letters a temporary failure after 17 s\n"), "{said}");
    let standard = requeue(&["check", "standard"]).succeeded();
    assert!(!standard.contains("fails fast"), "{standard}");
    assert!(said.starts_with("the policy (standard input) is valid"), "{said}");
    let rate_limit = [
        "rate-limit",
        "2, 4, 8, 10, 10, …",
        "proportional 0.2",
        "5 retries in at most 34 s",
        "10 min",
    ];
    assert_eq!(row(&said, "rate-limit"), rate_limit);
}

#[test]
fn what_protects_the_downstream_service_is_told() {
    for (document, expected) in [
        (
            "{}",
            [
                "pause, if the downstream service names a delay: defers other messages for at most \
                 60 s",
                "circuit breaker: opens after 5 failures in a row, of 5 messages; stays open \
                 for at most 30 s at a time; in an outage, a 503, a timeout and their like use no \
                 retry",
                "deferrals: at most 100 in a row for each message; each lasts at most 60 s or the \
                 rest of the pause, and jitter can double it",
            ],
        ),
        (
            r#"{"maxPauseSeconds": "off", "circuitBreaker": "off", "maxDeferrals": 1, "maxDeferralSeconds": 900}"#,
            [
                "pause, if the downstream service names a delay: defers no other message",
                "circuit breaker: never opens",
                "deferrals: at most 1 in a row for each message; each lasts at most 15 min or the \
                 rest of the pause, and jitter can double it",
            ],
        ),
        (
            r#"{"maxPauseSeconds": 90, "circuitBreaker": {"threshold": 1, "resetTimeoutSeconds": 0.5}}"#,
            [
                "pause, if the downstream service names a delay: defers other messages for at most \
                 90 s",
                "circuit breaker: opens after each failure; stays open for at most 500 ms at a time; in an outage, a 503, a timeout and their like use no retry",
                "deferrals: at most 100 in a row for each message; each lasts at most 60 s or the \
                 rest of the pause, and jitter can double it",
            ],
        ),
    ] {
        let said = requeue_reading(document, &["check", "-"]).succeeded();
        let told: Vec<&str> = said
            .lines()
            .filter(|line| {
                ["pause, ", "circuit ", "deferrals: "].iter().any(|begin| line.starts_with(begin))
            })
            .collect();
        assert_eq!(told, expected, "{document}");
    }
}

#[test]
fn a_rate_limit_is_told_with_its_bounds_and_no_line_without_one() {
    let told = |document: &str| {
        let said = requeue_reading(document, &["check", "-"]).succeeded();
        said.lines().find(|line| line.starts_with("rate limit: ")).map(str::to_owned)
    };
    assert_eq!(told("{}"), None);
    for (document, calls, wait) in [
        (
            r#"{"rateLimit": {"limit": 50}}"#,
            "50 calls in 1 s, and a burst of 1: at most 51 in any 1 s",
            "2 s",
        ),
        (
            r#"{"rateLimit": {"limit": 50, "per": "message"}}"#,
            "50 messages in 1 s, and a burst of 1: at most 51 in any 1 s",
            "2 s",
        ),
        (
            r#"{"rateLimit": {"limit": 100, "periodSeconds": 60, "burst": 3, "maxReservationSeconds": 3}}"#,
            "100 calls in 60 s, and a burst of 3: at most 103 in any 60 s",
            "3 s",
        ),
        (
            r#"{"rateLimit": {"limit": 50, "adaptive": true}}"#,
            "50 calls in 1 s, and a burst of 1: at most 51 in any 1 s",
            "2 s; refused calls lower the limit, to a tenth at least",
        ),
        (
            r#"{"rateLimit": {"limit": 50, "fairBy": "/tenant", "weights": {"acme": 3, "7": 2}}}"#,
            "50 calls in 1 s, and a burst of 1: at most 51 in any 1 s",
            "2 s; shared fairly by /tenant, with 2 weights; a function needs REQUEUE_RECURSIVE_LOOP=Allow",
        ),
        (
            r#"{"rateLimit": {"limit": 50, "fairBy": "tenant"}}"#,
            "50 calls in 1 s, and a burst of 1: at most 51 in any 1 s",
            "2 s; shared fairly by attribute tenant; a function needs REQUEUE_RECURSIVE_LOOP=Allow",
        ),
    ] {
        let expected = format!(
            "rate limit: {calls}; for each scope; without REQUEUE_TABLE, in each execution environment; a copy waits \
             inside the function for at most {wait}"
        );
        assert_eq!(told(document), Some(expected));
    }
    let limits = r#"{"limits": [{"limit": 4000, "periodSeconds": 60, "units": "/tokens"},
                               {"key": "/tenant", "limit": 5}, {"key": "plan", "limit": 1, "burst": 9}]}"#;
    let said = requeue_reading(limits, &["check", "-"]).succeeded();
    let begins = |begin: &str| said.lines().any(|line| line.starts_with(begin));
    for begin in [
        "rate limit: 4,000 units of /tokens in 60 s, and a burst of 1: at most 4,001 and the last call in any 60 s; ",
        "rate limit of each /tenant: 5 calls in 1 s, and a burst of 21: at most 26 in any 1 s; ",
        "rate limit of each attribute plan: 1 call in 1 s, and a burst of 9: at most 10 in any 1 s; ",
    ] {
        assert!(begins(begin), "{begin}: {said}");
    }
    assert!(said.contains("; the burst is 21, since calls wait for other limits too\n"), "{said}");
    let refused = requeue_reading(r#"{"rateLimit": {"burst": 5}}"#, &["check", "-"]);
    assert!(refused.stderr.contains("rateLimit.limit is missing"), "{}", refused.stderr);
}

#[test]
fn events_that_are_handled_once_are_told_with_their_name() {
    let told = |document: &str| {
        let said = requeue_reading(document, &["check", "-"]).succeeded();
        said.lines().find(|line| line.starts_with("idempotency: ")).map(str::to_owned)
    };
    assert_eq!(told("{}"), None);
    for (document, event, keep, trouble) in [
        (
            r#"{"idempotency": {}}"#,
            "for each original message id",
            "336 h",
            "is called, perhaps twice",
        ),
        (
            r#"{"idempotency": {"key": "/order/id", "keepSeconds": 7200, "whenUnavailable": "defer"}}"#,
            "for each value at /order/id, or each original message id without one",
            "2 h",
            "waits, at most for its deferrals",
        ),
    ] {
        let expected = format!(
            "idempotency: {event}; remembered for {keep}; needs REQUEUE_TABLE; while the table does not \
             respond, a message {trouble}"
        );
        assert_eq!(told(document), Some(expected));
    }
}

#[test]
fn retries_of_a_class_beyond_those_of_the_policy_are_told_to_have_no_effect() {
    let no_effect = |own: u32, class: &str, all: u32| {
        format!(
            "warning: maxRetries {own} of {class} has no effect: the policy's maxRetries of {all} limits \
             all classes together; raise that limit"
        )
    };
    for (document, expected) in [
        (r#"{"maxRetries": 10}"#, vec![]),
        (r#"{"maxRetries": 10, "errorConfigs": {"RATE_LIMIT": {"maxRetries": 10}}}"#, vec![]),
        (
            r#"{"maxRetries": 10, "errorConfigs": {"RATE_LIMIT": {"maxRetries": 30}}}"#,
            vec![no_effect(30, "rate-limit", 10)],
        ),
        (r#"{"errorConfigs": {"QUOTA": {"maxRetries": 51}}}"#, vec![no_effect(51, "quota", 50)]),
        (
            r#"{"maxRetries": 1, "errorConfigs": {"QUOTA": {"maxRetries": 0}, "DEFAULT": {"maxRetries": 2}}}"#,
            vec![no_effect(2, "rate-limit", 1), no_effect(2, "temporary", 1)],
        ),
    ] {
        let said = requeue_reading(document, &["check", "-"]).succeeded();
        let told: Vec<&str> = said.lines().filter(|line| line.contains("has no effect")).collect();
        assert_eq!(told, expected, "{document}");
    }
}

#[test]
fn settings_of_the_queue_are_compared_with_what_the_policy_needs() {
    for (document, expected) in [
        ("{}", &[][..]),
        (r#"{"queueConfig": {}}"#, &[]),
        (
            r#"{"queueConfig": {"visibilityTimeout": 300, "messageRetentionPeriod": 173700, "maxReceiveCount": 3, "delaySeconds": 5,
                "receiveMessageWaitTimeSeconds": 10}}"#,
            &[
                "visibilityTimeout 5 min: enough for a function timeout of 50 s at most, without a \
                 batching window",
                "messageRetentionPeriod 48 h 15 min: warning: too short; this policy may take 48 h 15 min, \
                 and SQS deletes older messages",
                "maxReceiveCount 3: warning: too low; it must be at least 5, because receives without a \
                 call count too",
                "delaySeconds 5 s: delays new messages only; copies have delays of their own",
                "receiveMessageWaitTimeSeconds 10 s: no effect: Lambda's poller waits 20 s, and \
                 `requeue work` a third of the visibility timeout, at most 20 s",
            ],
        ),
        (
            r#"{"preset": "critical", "queueConfig": {"visibilityTimeout": 5, "messageRetentionPeriod": 1501, "maxReceiveCount": 5}}"#,
            &[
                "visibilityTimeout 5 s: warning: too short for any function; it must be at least 6 × the \
                 function's timeout plus the batching window",
                "messageRetentionPeriod 25 min 1 s: longer than the 25 min that this policy may \
                 take",
                "maxReceiveCount 5: enough with the strategy copy; for the strategy visibility, \
                 see `requeue schedule --strategy visibility`",
            ],
        ),
    ] {
        let said = requeue_reading(document, &["check", "-"]).succeeded();
        let after = said
            .lines()
            .skip_while(|line| {
                *line
                    != "queueConfig: Requeue does not apply it; set these values \
                                         at the queue"
            })
            .skip(1);
        assert_eq!(after.map(str::trim).collect::<Vec<_>>(), expected, "{document}");
    }
}

#[test]
fn settings_for_calls_and_receives_are_told_when_they_are_not_the_default() {
    let sqs = "failed calls to SQS: ";
    let receives = "failed receives of a worker: retried after ";
    for (document, begin, expected) in [
        ("{}", sqs, None),
        (r#"{"sqsCalls": {"maxAttempts": 5, "baseDelay": 0.1}}"#, sqs, None),
        (r#"{"sqsCalls": "off"}"#, sqs, Some("no retry")),
        (r#"{"sqsCalls": {"maxAttempts": 1, "baseDelay": 2}}"#, sqs, Some("no retry")),
        (
            r#"{"sqsCalls": {"maxAttempts": 7, "multiplier": 3, "jitter": "full"}}"#,
            sqs,
            Some("retried after 0.1, 0.3, 0.9, 2.7, 5, 5 s; jitter full"),
        ),
        ("{}", receives, None),
        (r#"{"receiveCalls": {"maxAttempts": 3, "baseDelay": 0.5}}"#, receives, None),
        (
            r#"{"receiveCalls": {"maxDelay": 30, "jitter": "full"}}"#,
            receives,
            Some("0.5 to 30 s, as long as it runs; jitter full"),
        ),
    ] {
        let said = requeue_reading(document, &["check", "-"]).succeeded();
        assert_eq!(said.lines().find_map(|line| line.strip_prefix(begin)), expected, "{document}");
    }
}

#[test]
fn rules_are_told_in_one_line_when_there_are_any() {
    let rule = r#"{"match": {"status": 404}, "class": "TEMPORARY"}"#;
    let without = requeue_reading("{}", &["check", "-"]).succeeded();
    for (rules, expected) in [
        (String::new(), None),
        (rule.to_owned(), Some("rules: 1, applied before the built-in ones")),
        (
            format!("{rule}, {rule}"),
            Some("rules: 2, applied before the built-in ones; the first match wins"),
        ),
    ] {
        let said =
            requeue_reading(&format!(r#"{{"rules": [{rules}]}}"#), &["check", "-"]).succeeded();
        let told: Vec<&str> =
            said.lines().filter(|line| !without.lines().any(|known| known == *line)).collect();
        assert_eq!(told, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn every_problem_is_told_in_the_words_of_the_start() {
    let document =
        r#"{"maxRetrys": 5, "jitter": "ful", "errorConfigs": {"QUOTA": {"baseDelay": -1}}}"#;
    let checked = requeue_reading(document, &["check", "-"]);
    assert_eq!((checked.status, checked.stdout.as_str()), (3, ""));
    let (head, problems) = checked.stderr.split_once('\n').unwrap();
    assert_eq!(head, "error: the policy (standard input) has 3 problems:");
    assert!(problems.contains("  maxRetrys is unknown; did you mean maxRetries?\n"), "{problems}");
    assert!(problems.contains("  errorConfigs.QUOTA.baseDelay is `-1`: must be "), "{problems}");

    let at_start =
        requeue::Settings::from_vars([("REQUEUE_POLICY", document)]).unwrap_err().to_string();
    for problem in problems.lines() {
        let problem = format!("  REQUEUE_POLICY {}", problem.trim_start());
        assert!(at_start.lines().any(|line| line == problem), "{problem:?} is in\n{at_start}");
    }
    assert_eq!(problems.lines().count(), at_start.lines().count() - 1);
}

#[test]
fn what_is_no_policy_is_refused_with_the_reason() {
    let broken = file("broken.json", "{\"maxRetries\": 5,\n}");
    let list = file("list.json", "[]");
    let missing = crate::run::scratch("no-such-file.json");
    let table = [
        (broken.as_str(), 3, "has 1 problem:\n  is not JSON: "),
        (&list, 3, "has 1 problem:\n  is `[]`: must be an object\n"),
        (missing.to_str().unwrap(), 1, "cannot be read: No such file"),
        ("src", 1, "cannot be read: "),
    ];
    for (path, status, expected) in table {
        let checked = requeue(&["check", path]);
        assert_eq!((checked.status, checked.stdout.as_str()), (status, ""), "{path}");
        assert!(
            checked.stderr.starts_with(&format!("error: the policy {path} {expected}")),
            "{}",
            checked.stderr
        );
    }
    let standard = requeue(&["check", "standard"]).succeeded();
    assert_eq!(requeue(&["check"]).succeeded(), standard);
}

#[test]
fn the_policy_of_each_queue_is_summed_up() {
    let document = r#"{
        "maxRetries": 9,
        "rules": [{"match": {"status": 404}, "class": "temporary"}],
        "queues": {
            "invoices": {"maxRetries": 3, "errorConfigs": {"quota": {"maxRetries": 4}}},
            "refunds": {"preset": "critical", "rules": [], "timeoutSeconds": 5, "concurrency": 2,
                        "deadLetter": "annotate", "queueConfig": {"maxReceiveCount": 2}}
        }
    }"#;
    let said = requeue(&["check", document]).succeeded();
    let (general, queues) = said.split_once("\nqueue invoices:\n").expect("its own part");
    let (invoices, refunds) = queues.split_once("\nqueue refunds:\n").expect("its own part");
    assert!(general.contains("at most 9 retries") && general.contains("rules: 1,"), "{general}");
    let without_room = "warning: maxRetries 4 of quota has no effect";
    for words in ["at most 3 retries", "rules: those of all queues", without_room] {
        assert!(invoices.contains(words), "{words}: {invoices}");
    }
    let own = "concurrency: 2; handler timeout: 5 s; dead-letter mode: annotate";
    for words in ["at most 5 retries", own, "maxReceiveCount 2: warning: too low"] {
        assert!(refunds.contains(words), "{words}: {refunds}");
    }
    assert!(!refunds.contains("rules:"), "{refunds}");
    let of_all = "concurrency: that of all queues; handler timeout: that of all queues";
    assert!(invoices.contains(of_all), "{invoices}");

    let json: Value =
        serde_json::from_str(&requeue(&["check", document, "--json"]).succeeded()).unwrap();
    let refunds = &json["queues"]["refunds"];
    assert_eq!((&refunds["values"]["timeoutSeconds"], &refunds["rules"]), (&json!(5), &json!(0)));
    assert_eq!(refunds["queueConfig"]["maxReceiveCount"], 2);
    let invoices = &json["queues"]["invoices"];
    assert_eq!((&invoices["values"]["maxRetries"], &invoices["rules"]), (&json!(3), &json!(null)));
}

#[test]
fn a_policy_is_named_in_each_form() {
    let document = r#"{"preset": "critical"}"#;
    let path = file("forms.json", document);
    let shown = |run: Run| run.succeeded().split_once(":\n").unwrap().1.to_owned();
    let expected = shown(requeue(&["check", &path]));
    for arguments in [
        &["check", "--policy", &path][..],
        &["check", document],
        &["check", "--policy", document],
        &["check", "critical"],
    ] {
        assert_eq!(shown(requeue(arguments)), expected, "{arguments:?}");
    }
    assert_eq!(shown(requeue_reading(document, &["check", "--policy", "-"])), expected);
    let by_variable = requeue_with(&[("REQUEUE_POLICY", document)], &["check"]);
    assert_eq!(shown(by_variable), expected);
    assert_eq!(requeue(&["check", &path, "--policy", "critical"]).status, 2);

    let json: Value =
        serde_json::from_str(&requeue(&["check", &path, "--json"]).succeeded()).unwrap();
    assert_eq!((&json["valid"], &json["values"]["maxRetries"]), (&json!(true), &json!(5)));
    let invalid = requeue(&["check", r#"{"maxRetrys": 5}"#, "--json"]);
    let json: Value = serde_json::from_str(&invalid.stdout).unwrap();
    assert_eq!((invalid.status, &json["valid"]), (3, &json!(false)));
    assert_eq!(json["problems"], json!(["maxRetrys is unknown; did you mean maxRetries?"]));
}

/// `REQUEUE_POLICY` of a deployed function may be an ARN.
#[test]
fn an_arn_is_refused_with_the_command_that_prints_the_document() {
    for (service, rest, command) in [
        ("ssm", "parameter/orders", "aws ssm get-parameter --with-decryption --name "),
        ("secretsmanager", "secret:a-AbCdEf", "aws secretsmanager get-secret-value --secret-id "),
    ] {
        let arn = format!("arn:aws:{service}:eu-west-1:123456789012:{rest}");
        let checked = requeue_reading(&format!("{arn}\n"), &["check", "-"]);
        assert_eq!((checked.status, checked.stdout.as_str()), (1, ""));
        assert!(checked.stderr.contains(" is an ARN: "), "{}", checked.stderr);
        assert!(
            checked.stderr.contains(&format!("\n  {command}{arn} --query ")),
            "{}",
            checked.stderr
        );
    }
}

/// Lambda counts the quotation marks of a document twice.
#[test]
fn a_document_too_large_for_the_environment_is_told_with_the_remedy() {
    let rules = |count: usize| {
        let rule = |n| {
            let words = format!("word {n:03}");
            serde_json::json!({ "match": { "words": words }, "class": "TEMPORARY" })
        };
        serde_json::json!({ "rules": (100..100 + count).map(rule).collect::<Vec<_>>() })
    };
    let fits = rules(40);
    let (spread, large) = (serde_json::to_string_pretty(&fits).unwrap(), rules(60).to_string());
    let remedy = "store it as a parameter and set REQUEUE_POLICY to its ARN, or put it into a file \
                  of the function's package and set REQUEUE_POLICY to its path\n";
    let verdict = "too large for Lambda: all variables of a function may take 4,096 bytes together, \
                   and the template's others take about 600; ";
    let said = |document: &str| {
        let said = requeue_reading(document, &["check", "-"]).succeeded();
        said.find("warning: size: ").map(|at| said[at..].to_owned()).unwrap_or_default()
    };
    assert_eq!(said(&fits.to_string()), "");
    let bytes = |text: &str| {
        let bytes = text.len() + text.matches('"').count() + text.matches('\n').count() + 21;
        format!("{},{:03}", bytes / 1_000, bytes % 1_000)
    };
    let compact =
        format!("remove the white space, which leaves {} bytes, or ", bytes(&fits.to_string()));
    for (document, remedies) in [(&spread, compact + remedy), (&large, remedy.to_owned())] {
        let size = format!("warning: size: {} bytes as REQUEUE_POLICY, ", bytes(document));
        assert_eq!(said(document), size + verdict + &remedies);
    }
    let page = text("docs/reference/policy.md");
    assert!(page.replace('\n', " ").contains("If `requeue check` warns of a large document"));
}

//! What the variables mean, alone and together, and what is said about those that mean nothing.

use std::time::Duration;

use super::*;

const URL: &str = "http://127.0.0.1:9324/000000000000/orders-dlq.fifo";

fn read(vars: &[(&str, &str)]) -> Result<Settings, String> {
    let vars = vars.iter().map(|(name, value)| (format!("{PREFIX}{name}"), *value));
    Settings::from_vars(vars).map_err(|error| error.to_string())
}

fn refused(problems: &[&str]) -> String {
    InvalidConfig { problems: problems.iter().map(ToString::to_string).collect() }.to_string()
}

#[test]
fn a_dead_letter_queue_is_named_for_the_mode_direct_and_for_no_other() {
    let direct = || DeadLetterMode::Direct(URL.parse().expect("a queue URL"));
    let unknown = "REQUEUE_DEAD_LETTER is `Direct`: must be one of redrive, annotate, direct";
    let missing = "REQUEUE_DEAD_LETTER_QUEUE_URL is missing: REQUEUE_DEAD_LETTER is `direct`, which sends to that queue";
    let no_effect =
        "REQUEUE_DEAD_LETTER_QUEUE_URL has no effect: REQUEUE_DEAD_LETTER is not `direct`";
    let no_url = "REQUEUE_DEAD_LETTER_QUEUE_URL is `orders-dlq`: not the URL of an SQS queue, as in \
                  https://sqs.eu-west-1.amazonaws.com/123456789012/orders";
    let padded = format!(" {URL}\n");
    let no_host = no_url.replace("`orders-dlq`", "`https://orders-dlq`");
    for (mode, url, expected) in [
        ("", "", Ok(None)),
        ("", URL, Err(no_effect)),
        ("", "orders-dlq", Err(no_effect)),
        ("redrive", "", Ok(Some(DeadLetterMode::Redrive))),
        ("redrive", URL, Err(no_effect)),
        ("redrive", "orders-dlq", Err(no_effect)),
        ("annotate", "", Ok(Some(DeadLetterMode::Annotate))),
        ("annotate", URL, Err(no_effect)),
        ("annotate", "orders-dlq", Err(no_effect)),
        ("direct", "", Err(missing)),
        ("direct", URL, Ok(Some(direct()))),
        ("direct", &padded, Ok(Some(direct()))),
        ("direct", "orders-dlq", Err(no_url)),
        ("direct", "https://user:s3cret@orders-dlq", Err(&no_host)),
        // What the mode should have been is not known, so nothing is said about the URL.
        ("Direct", "", Err(unknown)),
        ("Direct", URL, Err(unknown)),
        ("Direct", "orders-dlq", Err(unknown)),
    ] {
        let read = read(&[("DEAD_LETTER", mode), ("DEAD_LETTER_QUEUE_URL", url)]);
        let mode_read = read.map(|settings| settings.dead_letter);
        assert_eq!(
            mode_read,
            expected.map_err(|problem| refused(&[problem])),
            "{mode:?} and {url:?}"
        );
    }
}

#[test]
fn a_strategy_is_one_of_two_words() {
    let unknown = |word| {
        refused(&[&format!("REQUEUE_STRATEGY is `{word}`: must be one of copy, visibility")])
    };
    for (word, expected) in [
        ("", Ok(Strategy::Copy)),
        ("copy", Ok(Strategy::Copy)),
        ("visibility", Ok(Strategy::Visibility)),
        ("Visibility", Err(unknown("Visibility"))),
        ("fifo", Err(unknown("fifo"))),
    ] {
        assert_eq!(
            read(&[("STRATEGY", word)]).map(|settings| settings.strategy),
            expected,
            "{word:?}"
        );
    }
}

#[test]
fn every_variable_reaches_its_place() {
    let settings = read(&[
        // Of HTTP delivery, and not read here.
        ("TARGET_URL", "ftp://example.com/"),
        ("POLICY", r#"{"maxRetries": 7, "sqsCalls": "off", "rules": [{"match": {"status": 404}, "class": "QUOTA"}]}"#),
        ("CONCURRENCY", "3"),
        ("TIMEOUT_SECONDS", "1.5"),
        ("RESERVE_SECONDS", "2"),
        ("STRATEGY", "visibility"),
        ("WRAP", "never"),
        ("PRODUCER_LIMITS", "off"),
        ("DETAIL_TEXT", "on"),
        ("TRUSTED_SENDERS", "own, AROAEXAMPLEOPERATOR01"),
        ("DEAD_LETTER", "annotate"),
        ("RECURSIVE_LOOP", "Allow"),
    ])
    .expect("all is well");
    let limits = Limits {
        concurrency: 3,
        timeout: Duration::from_millis(1_500),
        reserve: Duration::from_secs(2),
    };
    assert_eq!(settings.limits, limits);
    assert_eq!((settings.policy.max_retries, settings.policy.sqs_calls.max_attempts), (7, 1));
    assert_eq!(settings.rules.len(), 1);
    assert_eq!((settings.strategy, settings.wrap), (Strategy::Visibility, Wrap::Never));
    let operator = "AROAEXAMPLEOPERATOR01".parse().expect("an id");
    assert_eq!(settings.trusted_senders, Some(TrustedSenders { own: true, ids: vec![operator] }));
    assert_eq!(
        (settings.producer_limits, Settings::default().producer_limits),
        (ProducerLimits::Off, ProducerLimits::On)
    );
    assert_eq!(
        (settings.detail_text, Settings::default().detail_text),
        (DetailText::On, DetailText::Off)
    );
    assert_eq!(
        (settings.dead_letter, settings.recursive_loop),
        (Some(DeadLetterMode::Annotate), RecursiveLoop::Allow)
    );
}

#[test]
fn a_policy_that_is_no_document_is_told_by_the_file_that_was_given() {
    let allowed = "must be a JSON object, or the path of a file that can be read";
    for (given, error) in [
        ("polic.json", "No such file or directory (os error 2)"),
        ("[]", "No such file or directory (os error 2)"),
        ("src", "Is a directory (os error 21)"),
    ] {
        let expected = refused(&[&format!("REQUEUE_POLICY is `{given}` ({error}): {allowed}")]);
        assert_eq!(read(&[("POLICY", given)]).err(), Some(expected), "{given}");
    }
}

#[test]
fn a_trusted_sender_is_the_own_one_or_an_id() {
    for (list, unknown) in [
        ("own", None),
        ("AROAEXAMPLEOPERATOR01,AIDAEXAMPLEPRODUCER01 , own", None),
        ("me", Some("me")),
        ("own,", Some("")),
        ("123456789012", None),
        ("AKIAEXAMPLEACCESSKEY", Some("AKIAEXAMPLEACCESSKEY")),
        ("1234567890123", Some("1234567890123")),
        ("ORDERSFUNCTION", Some("ORDERSFUNCTION")),
        ("AROAEXAMPLEOPERATOR01:session", Some("AROAEXAMPLEOPERATOR01:session")),
        ("arn:aws:iam::123456789012:role/requeue", Some("arn:aws:iam::123456789012:role/requeue")),
    ] {
        let problem = unknown.map(|unknown| {
            let allowed =
                "must be `own` or the unique id of a role or user, such as AROA… or AIDA…";
            format!("1 setting is invalid:\n  REQUEUE_TRUSTED_SENDERS has `{unknown}`: {allowed}")
        });
        assert_eq!(read(&[("TRUSTED_SENDERS", list)]).err(), problem, "{list}");
    }
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_their_names() {
    let vars = [
        ("STRATEGY", "fast"),
        ("DEAD_LETTER", "direct"),
        ("RECURSIVE_LOOP", "allow"),
        ("POLICY", r#"{"maxRetries": -1, "sqsCalls": "on"}"#),
        ("DEAD_LETER", "direct"),
        ("CONCURRENCY", "0"),
    ];
    let told = read(&vars).expect_err("nothing is well");
    assert_eq!(
        told,
        "7 settings are invalid:\n  \
         REQUEUE_CONCURRENCY is `0`: must be a whole number from 1 to 1000\n  \
         REQUEUE_DEAD_LETER is unknown; did you mean REQUEUE_DEAD_LETTER?\n  \
         REQUEUE_DEAD_LETTER_QUEUE_URL is missing: REQUEUE_DEAD_LETTER is `direct`, which sends to that queue\n  \
         REQUEUE_POLICY maxRetries is `-1`: must be a whole number from 0 to 10000\n  \
         REQUEUE_POLICY sqsCalls is `\"on\"`: must be off, or an object\n  \
         REQUEUE_RECURSIVE_LOOP is `allow`: must be one of Allow, Terminate\n  \
         REQUEUE_STRATEGY is `fast`: must be one of copy, visibility"
    );
}

#[test]
fn variables_that_kubernetes_makes_for_a_service_are_no_settings() {
    let url = "tcp://10.0.171.239:80";
    for (name, value, is_link) in [
        ("PORT", url, true),
        ("PORT", "tcp://[fd00::1]:80", true),
        ("TARGET_PORT", url, true),
        ("SERVICE_HOST", "10.0.171.239", true),
        ("SERVICE_PORT", "80", true),
        ("TARGET_SERVICE_PORT_HTTP", "80", true),
        ("PORT_80_TCP", url, true),
        ("PORT_80_TCP_PROTO", "tcp", true),
        ("PORT_80_TCP_PORT", "80", true),
        ("PORT_80_TCP_ADDR", "10.0.171.239", true),
        ("PORT", "80", false),
        ("PORT", "http://10.0.171.239:80", false),
        ("SERVICE_HOST", "orders", false),
        ("SERVICE_PORT", "http", false),
        ("SERVICE", "80", true),
        ("SERVICES", "80", false),
        ("PORT_HTTP_TCP", url, false),
        ("PORT_80_TCP_ADDR", "orders", false),
        ("PORT_80_TCP_NAME", "80", false),
    ] {
        assert_eq!(read(&[(name, value)]).is_ok(), is_link, "{name} {value}");
    }
}

#[test]
fn a_name_is_suggested_only_for_a_slip_of_the_pen() {
    for (name, meant) in [
        ("TABEL", Some("TABLE")),
        ("CONCURENCY", Some("CONCURRENCY")),
        ("TIMEOUT", Some("TIMEOUT_SECONDS")),
        ("PORT", None),
        ("TARGET_PORT", None),
        ("ROLE", None),
    ] {
        let hint = meant.map(|meant| format!("; did you mean REQUEUE_{meant}?"));
        let problem = format!("REQUEUE_{name} is unknown{}", hint.unwrap_or_default());
        assert_eq!(read(&[(name, "x")]).err(), Some(refused(&[&problem])), "{name}");
    }
}

#[test]
fn metrics_are_written_in_a_function_unless_told_otherwise_under_the_name_of_function_or_service() {
    let long = "a".repeat(255);
    let too_long = "a".repeat(256);
    let of = |service: &str, level: &str| {
        Some(Metrics { level: level.to_owned(), ..Metrics::of(service) })
    };
    let refuses = |name: &str| {
        let what = "a name of 1 to 255 printable ASCII characters, of which the first is no colon";
        Err(refused(&[&format!("REQUEUE_SERVICE is `{name}`: must be {what}")]))
    };
    let unknown = Err(refused(&["REQUEUE_METRICS is `on`: must be one of emf, off"]));
    for (function, level, metrics, service, expected) in [
        (None, None, "", "", Ok(None)),
        (None, None, "off", "", Ok(None)),
        (None, None, "emf", "", Ok(of("requeue", "INFO"))),
        (None, None, "emf", "billing", Ok(of("billing", "INFO"))),
        (Some("orders-fn"), None, "", "", Ok(of("orders-fn", "INFO"))),
        (Some("orders-fn"), Some("WARN"), "", "", Ok(of("orders-fn", "WARN"))),
        (Some("orders-fn"), None, "emf", "billing", Ok(of("billing", "INFO"))),
        (Some("orders-fn"), None, "", &long, Ok(of(&long, "INFO"))),
        (Some("orders-fn"), None, "off", "billing", Ok(None)),
        (Some("orders-fn"), None, "on", "", unknown),
        (None, None, "emf", &too_long, refuses(&too_long)),
        (None, None, "emf", ":billing", refuses(":billing")),
        (None, None, "emf", "bílling", refuses("bílling")),
        (None, None, "emf", " ", refuses(" ")),
    ] {
        let host = Host {
            function: function.map(str::to_owned),
            log_level: level.map(str::to_owned),
            ..Host::default()
        };
        let vars = [("METRICS", metrics), ("SERVICE", service)];
        let vars =
            vars.into_iter().map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()));
        let mut variables = Variables::new(vars);
        variables.host = host;
        let read = Settings::checked(variables).map_err(|error| error.to_string());
        assert_eq!(
            read.map(|settings| settings.metrics),
            expected,
            "{function:?} {metrics:?} {service:?}"
        );
    }
}

#[test]
fn a_table_is_a_name_or_an_arn_and_the_namespace_is_the_function() {
    let arn = "arn:aws:dynamodb:eu-west-1:000000000000:table/requeue";
    let refuses = |table: &str| {
        let what =
            "the name of a DynamoDB table (3 to 255 of a-z, A-Z, 0-9, _, - and .) or its ARN";
        Err(refused(&[&format!("REQUEUE_TABLE is `{table}`: must be {what}")]))
    };
    let told = |namespace: &str, most| Ok(Some((namespace.to_owned(), most)));
    let useless = |name: &str| format!("REQUEUE_{name} has no effect without REQUEUE_TABLE");
    for (function, table, namespace, most, expected) in [
        (None, "", "", "", Ok(None)),
        (Some("orders-fn"), "", "", "", Ok(None)),
        (Some("orders-fn"), "requeue", "", "", told("orders-fn", 1_000)),
        (Some("orders-fn"), arn, "billing", "50", told("billing", 50)),
        (None, "requeue", "", "", told("", 1_000)),
        (None, "no", "", "", refuses("no")),
        (None, "my table", "", "", refuses("my table")),
        (
            None,
            "arn:aws:sqs:eu-west-1:0:requeue",
            "",
            "",
            refuses("arn:aws:sqs:eu-west-1:0:requeue"),
        ),
        (None, "", "a", "5", Err(refused(&[&useless("MAX_ENVIRONMENTS"), &useless("NAMESPACE")]))),
        (
            None,
            "requeue",
            "",
            "0",
            Err(refused(&[
                "REQUEUE_MAX_ENVIRONMENTS is `0`: must be a whole number from 1 to 100000",
            ])),
        ),
    ] {
        let vars = [("TABLE", table), ("NAMESPACE", namespace), ("MAX_ENVIRONMENTS", most)];
        let vars =
            vars.into_iter().map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()));
        let mut variables = Variables::new(vars);
        variables.host = Host { function: function.map(str::to_owned), ..Host::default() };
        let read = Settings::checked(variables).map_err(|error| error.to_string());
        let read = read.map(|settings| {
            settings.shared_table.map(|shared| (shared.namespace, shared.max_environments))
        });
        assert_eq!(read, expected, "{table:?} {namespace:?} {most:?}");
    }
}

#[test]
fn a_policy_that_handles_events_once_needs_a_table() {
    let needed = "REQUEUE_POLICY has `idempotency`, which needs a table: set REQUEUE_TABLE, or remove `idempotency`";
    let settings = read(&[("POLICY", r#"{"idempotency": {}}"#)]);
    assert_eq!(settings.map(drop), Err(refused(&[needed])));
    assert!(read(&[("POLICY", r#"{"idempotency": {}}"#), ("TABLE", "requeue")]).is_ok());
}

#[test]
fn in_a_function_that_shares_a_limit_fairly_copies_are_no_loop() {
    let fair = r#"{"rateLimit": {"limit": 5, "fairBy": "/tenant"}}"#;
    let problem = "REQUEUE_POLICY has `fairBy`, and REQUEUE_RECURSIVE_LOOP is not Allow, so Lambda stops a message \
                   after about 16 copies in a row; a wait for other tenants may take more: set the function's \
                   property RecursiveLoop and REQUEUE_RECURSIVE_LOOP to Allow, or remove `fairBy`";
    for (function, policy, recursive_loop, strategy, is_refused) in [
        (Some("orders-fn"), fair, "", "", true),
        (Some("orders-fn"), fair, "Terminate", "copy", true),
        (Some("orders-fn"), fair, "Allow", "", false),
        (Some("orders-fn"), fair, "", "visibility", false),
        (Some("orders-fn"), r#"{"rateLimit": {"limit": 5}}"#, "", "", false),
        (None, fair, "", "", false),
    ] {
        let vars = [("POLICY", policy), ("RECURSIVE_LOOP", recursive_loop), ("STRATEGY", strategy)];
        let vars = vars.map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()));
        let mut variables = Variables::new(vars);
        variables.host = Host { function: function.map(str::to_owned), ..Host::default() };
        let read = Settings::checked(variables).map(drop).map_err(|error| error.to_string());
        let expected = if is_refused { Err(refused(&[problem])) } else { Ok(()) };
        assert_eq!(read, expected, "{function:?} {policy} {recursive_loop:?} {strategy:?}");
    }
}

#[test]
fn the_error_of_a_main_keeps_the_source_of_its_cause() {
    #[derive(Debug, thiserror::Error)]
    #[error("no answer")]
    struct NoAnswer(#[source] std::fmt::Error);

    let error = Error::of(NoAnswer(std::fmt::Error));
    assert_eq!((error.to_string(), format!("{error:?}")), ("no answer".into(), "no answer".into()));
    let source = std::error::Error::source(&error).expect("its cause has one");
    assert!(source.is::<std::fmt::Error>());
}

//! What the variables mean, alone and together, and what is said about those that mean nothing.

use super::*;

const URL: &str = "http://127.0.0.1:9324/000000000000/orders-dlq.fifo";

fn read(vars: &[(&str, &str)]) -> Result<Config, String> {
    let vars = vars.iter().map(|(name, value)| (format!("{PREFIX}{name}"), *value));
    Config::from_vars(vars).map_err(|error| error.to_string())
}

fn refused(problems: &[&str]) -> String {
    InvalidConfig { problems: problems.iter().map(ToString::to_string).collect() }.to_string()
}

#[test]
fn a_dead_letter_queue_is_named_for_the_mode_direct_and_for_no_other() {
    let direct = || DeadLetterMode::Direct(URL.parse().expect("a queue URL"));
    let unknown = "REQUEUE_DEAD_LETTER is `Direct`: allowed are redrive, annotate, direct";
    let missing =
        "REQUEUE_DEAD_LETTER_QUEUE_URL is missing: REQUEUE_DEAD_LETTER is `direct`, which sends to that queue";
    let no_effect = "REQUEUE_DEAD_LETTER_QUEUE_URL has no effect: REQUEUE_DEAD_LETTER is not `direct`";
    let no_url = "REQUEUE_DEAD_LETTER_QUEUE_URL is `orders-dlq`: not the URL of an SQS queue, as in \
                  https://sqs.eu-west-1.amazonaws.com/123456789012/orders";
    let padded = format!(" {URL}\n");
    for (mode, url, expected) in [
        ("", "", Ok(DeadLetterMode::Redrive)),
        ("", URL, Err(no_effect)),
        ("", "orders-dlq", Err(no_effect)),
        ("redrive", "", Ok(DeadLetterMode::Redrive)),
        ("redrive", URL, Err(no_effect)),
        ("redrive", "orders-dlq", Err(no_effect)),
        ("annotate", "", Ok(DeadLetterMode::Annotate)),
        ("annotate", URL, Err(no_effect)),
        ("annotate", "orders-dlq", Err(no_effect)),
        ("direct", "", Err(missing)),
        ("direct", URL, Ok(direct())),
        ("direct", &padded, Ok(direct())),
        ("direct", "orders-dlq", Err(no_url)),
        // What the mode should have been is not known, so nothing is said about the URL.
        ("Direct", "", Err(unknown)),
        ("Direct", URL, Err(unknown)),
        ("Direct", "orders-dlq", Err(unknown)),
    ] {
        let read = read(&[("DEAD_LETTER", mode), ("DEAD_LETTER_QUEUE_URL", url)]);
        let mode_read = read.map(|config| config.into_settings().dead_letter);
        assert_eq!(mode_read, expected.map_err(|problem| refused(&[problem])), "{mode:?} and {url:?}");
    }
}

#[test]
fn a_strategy_is_one_of_two_words() {
    let unknown = |word| refused(&[&format!("REQUEUE_STRATEGY is `{word}`: allowed are copy, visibility")]);
    for (word, expected) in [
        ("", Ok(Strategy::Copy)),
        ("copy", Ok(Strategy::Copy)),
        ("visibility", Ok(Strategy::Visibility)),
        ("Visibility", Err(unknown("Visibility"))),
        ("fifo", Err(unknown("fifo"))),
    ] {
        assert_eq!(read(&[("STRATEGY", word)]).map(|config| config.into_settings().strategy), expected, "{word:?}");
    }
}

#[test]
fn every_variable_reaches_its_place() {
    let config = read(&[
        ("TARGET_URL", "http://example.com/"),
        ("ALLOW_HTTP", "true"),
        ("POLICY", r#"{"maxRetries": 7, "sqsCalls": "off", "rules": [{"match": {"status": 404}, "class": "QUOTA"}]}"#),
        ("CONCURRENCY", "3"),
        ("TIMEOUT_SECONDS", "1.5"),
        ("RESERVE_SECONDS", "2"),
        ("STRATEGY", "visibility"),
        ("WRAP", "never"),
        ("DEAD_LETTER", "annotate"),
        ("RECURSIVE_LOOP", "Allow"),
    ])
    .expect("all is well");
    #[cfg(feature = "http")]
    assert!(config.required_target().is_ok());
    let settings = config.into_settings();
    let limits = Limits { concurrency: 3, timeout: Duration::from_millis(1_500), reserve: Duration::from_secs(2) };
    assert_eq!(settings.limits, limits);
    assert_eq!((settings.policy.max_retries, settings.policy.sqs_calls.max_attempts), (7, 1));
    assert_eq!(settings.rules.len(), 1);
    assert_eq!((settings.strategy, settings.wrap), (Strategy::Visibility, Wrap::Never));
    assert_eq!((settings.dead_letter, settings.recursive_loop), (DeadLetterMode::Annotate, RecursiveLoop::Allow));
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
         REQUEUE_CONCURRENCY is `0`: allowed is a whole number from 1 to 1000\n  \
         REQUEUE_DEAD_LETER is unknown; did you mean REQUEUE_DEAD_LETTER?\n  \
         REQUEUE_DEAD_LETTER_QUEUE_URL is missing: REQUEUE_DEAD_LETTER is `direct`, which sends to that queue\n  \
         REQUEUE_POLICY maxRetries is `-1`: allowed is a whole number from 0 to 10000\n  \
         REQUEUE_POLICY sqsCalls is `\"on\"`: allowed is off, or an object\n  \
         REQUEUE_RECURSIVE_LOOP is `allow`: allowed are Allow, Terminate\n  \
         REQUEUE_STRATEGY is `fast`: allowed are copy, visibility"
    );
}

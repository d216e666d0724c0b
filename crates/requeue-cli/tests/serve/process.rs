//! How the processes of a function begin and end.

use std::time::Duration;

use requeue::printable::is_printable;
use tokio::time::Instant;

use crate::served::{Served, bootstrap, program};

#[test]
fn a_process_that_overruns_is_killed_and_its_batch_comes_back() {
    let path = bootstrap("overruns", "");
    let options = ["--timeout", "1", "--visibility-timeout", "2", "--maximum-concurrency", "1"];
    let mut served = Served::start(&[&options[..], &["--function", &path]].concat(), &[]);
    served.send(&["hang"]);
    served.line("1| gets hang");
    served.line("#1 1 message: all kept, timed out after 1 s and was killed, ");
    served.line("2| gets hang");
}

#[test]
fn a_process_that_ends_is_told_and_replaced() {
    let path = bootstrap("ends", "");
    let mut served = Served::start(&["--function", &path], &[]);
    served.send(&["ok", "exit"]);
    served.line("#1 2 messages: all kept, function exited (status 3), ");
    served.send(&["ok"]);
    served.line("2| gets ok");
    served.line("#2 1 message: 1 deleted, ");
}

#[test]
fn a_function_has_arguments_of_its_own() {
    let path = bootstrap("arguments", "\"$@\"");
    let arguments = ["--function", &path, "--tag", "x", "-v", "--depth=2"];
    let mut served = Served::start(&arguments, &[]);
    served.line("1| starts --tag x -v --depth=2");
}

#[test]
fn the_response_of_a_process_that_ends_right_after_it_counts() {
    let path = bootstrap("last-response", "");
    let mut served = Served::start(&["--function", &path], &[]);
    for number in 1..=5 {
        served.send(&["respond and exit"]);
        // A message that came before the end of the process is known would be given to that process.
        let deleted = format!(" #{number} 1 message: 1 deleted, ");
        let mut missing = vec![deleted.as_str(), "exited (status 0) between invocations"];
        while !missing.is_empty() {
            let line = served.line("");
            missing.retain(|text| !line.contains(text));
        }
    }
}

#[test]
fn a_function_whose_file_has_gone_is_told_so() {
    let path = bootstrap("gone", "");
    let mut served = Served::start(&["--function", &path], &[]);
    served.line("function started");
    std::fs::remove_file(&path).unwrap();
    served.send(&["exit"]);
    served.line(" #1 ");
    served.send(&["ok"]);
    served.line("/gone no longer exists; build it again; next start in 1 s");
}

#[test]
fn a_process_that_ends_at_its_start_is_started_again_after_growing_pauses() {
    let path = program("useless", "echo nothing; exit 7");
    let begun = Instant::now();
    let mut served = Served::start(&["--function", &path], &[]);
    served.send(&["ok"]);
    for pause in ["1 s", "2 s"] {
        let line = served.line("function exited at its start (status 7)");
        assert!(line.ends_with(&format!("; next start in {pause}")), "{line}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(1));
    served.line("3| nothing");
    assert!(begun.elapsed() >= Duration::from_secs(3));
    // No message was received for nothing.
    assert!(!served.seen.iter().any(|line| line.contains(" #")), "{:?}", served.seen);
}

#[test]
fn a_program_that_ends_well_without_an_invocation_is_told_what_it_lacks() {
    let path = program("no-function", "exit 0");
    let mut served = Served::start(&["--function", &path], &[]);
    served.line("it must call requeue::run or lambda_runtime::run");
}

#[test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn a_program_that_asks_for_no_invocation_is_told_so() {
    let path = program("silent", "exec sleep 300");
    let mut served = Served::start(&["--function", &path], &[]);
    served.line("the function has asked for no invocation within 10 s:");
    served.line("it must call requeue::run or lambda_runtime::run");
    let mut served = Served::start(&["--", &path], &[]);
    served.line("the function has asked for no invocation within 10 s:");
    served.line("if it is already built, it must call requeue::run or lambda_runtime::run");
}

#[test]
fn a_function_cannot_control_the_terminal_or_forge_lines_of_serve() {
    let hostile = r#"printf '%s\n' '{"level":"INFO","fields":{"message":"paid\n12:00:00 #1 1 message: 1 deleted\u001b[2K\u202e","a\nb":1}}'
        printf 'plain \033[2K\342\200\256end\r12:00:00 #2 1 message\n'
        exec sleep 300"#;
    let path = program("hostile", hostile);
    for options in [&["--ui=0"][..], &[]] {
        let mut served = Served::start(&[options, &["--function", &path]].concat(), &[]);
        for text in ["paid", "plain", "12:00:00 #2 1 message"] {
            let line = served.line(text);
            assert!(line.starts_with("1| ") && line.chars().all(is_printable), "{line:?}");
        }
        if !options.is_empty() {
            let shown =
                "1|  INFO paid\u{FFFD}12:00:00 #1 1 message: 1 deleted\u{FFFD} a\u{FFFD}b=1";
            assert!(served.seen.iter().any(|line| line == shown), "{:?}", served.seen);
        }
    }
}

/// Variables that may be set in a user's shell.
const OF_AWS: &str = "AWS_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_ACCOUNT_ID AWS_BEARER_TOKEN_BEDROCK \
                      AWS_CONFIG_FILE AWS_CREDENTIAL_FILE AWS_EC2_METADATA_DISABLED \
                      AWS_ENDPOINT_URL AWS_ENDPOINT_URL_SQS AWS_ENDPOINT_URL_STS AWS_PROFILE \
                      AWS_ROLE_ARN AWS_ROLE_SESSION_NAME AWS_SECRET_ACCESS_KEY AWS_SECRET_KEY \
                      AWS_SESSION_TOKEN AWS_SHARED_CREDENTIALS_FILE AWS_SSO_ACCESS_TOKEN \
                      AWS_USE_DUALSTACK_ENDPOINT AWS_USE_FIPS_ENDPOINT AWS_WHAT_COMES_NEXT \
                      _X_AMZN_TRACE_ID";

#[test]
fn a_process_has_lambdas_variables_and_no_credentials_of_the_user() {
    let path = bootstrap("variables", "");
    let users =
        [("REQUEUE_DEAD_LETTER", "redrive"), ("AWS_LAMBDA_LOG_LEVEL", "DEBUG"), ("OWN", "kept")];
    let of_aws = OF_AWS.split_whitespace().map(|name| (name, "http://real"));
    let users: Vec<_> = of_aws.chain(users).collect();
    let mut served = Served::start(&["--function", &path], &users);
    served.send(&["environment"]);
    served.line(" #1 ");
    let has = |line: &str| served.seen.iter().any(|seen| seen.strip_prefix("1| ") == Some(line));
    for line in [
        "AWS_LAMBDA_FUNCTION_NAME=variables",
        "AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=128",
        "AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/variables",
        "AWS_REGION=us-east-1",
        "AWS_ACCESS_KEY_ID=example",
        "AWS_SECRET_ACCESS_KEY=example",
        "AWS_SESSION_TOKEN=example",
        "AWS_CONFIG_FILE=/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
        "AWS_EC2_METADATA_DISABLED=true",
        "AWS_LAMBDA_LOG_LEVEL=DEBUG",
        "_HANDLER=bootstrap",
        "REQUEUE_DEAD_LETTER=redrive",
        "REQUEUE_RECURSIVE_LOOP=Allow",
        "OWN=kept",
    ] {
        assert!(has(line), "{line} is not in {:#?}", served.seen);
    }
    assert!(has(&format!("AWS_ENDPOINT_URL_SQS=http://127.0.0.1:{}", served.port)));
    assert!(!served.seen.iter().any(|line| line.contains("real")), "{:#?}", served.seen);
}

#[test]
fn a_handler_reaches_a_table_on_this_machine_alone() {
    let path = bootstrap("with-table", "");
    for (endpoint, namespace, is_passed, exported) in [
        ("http://127.0.0.1:5000", "", true, Some("with-table")),
        ("http://[::1]:5000", "own", true, None),
        ("http://localhost:5000", "", true, Some("with-table")),
        ("http://127.0.0.1.example.com", "", false, Some("with-table")),
        ("https://dynamodb.us-east-1.amazonaws.com", "", false, Some("with-table")),
    ] {
        let users = [
            ("AWS_ENDPOINT_URL_DYNAMODB", endpoint),
            ("REQUEUE_TABLE", "requeue"),
            ("REQUEUE_NAMESPACE", namespace),
        ];
        let mut served = Served::start(&["--function", &path], &users);
        served.send(&["environment"]);
        served.line(" #1 ");
        let passed = format!("1| AWS_ENDPOINT_URL_DYNAMODB={endpoint}");
        assert_eq!(served.seen.contains(&passed), is_passed, "{:#?}", served.seen);
        let export = served.seen.iter().find(|line| line.starts_with("export ")).unwrap();
        let own = export.split_once(" REQUEUE_NAMESPACE=").map(|(_, name)| name);
        assert_eq!(own, exported, "{export}");
    }
}

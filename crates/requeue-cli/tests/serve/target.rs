//! `--target`: what the answer of an existing function means for each message, with the runtime
//! interface clients of Python and Node, without and with Powertools.
//!
//! The functions are in `tests/runtimes/`. Each does what the field `do` in the bodies says.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use requeue_testkit::repository;
use requeue_testkit::tools::tool;
use serde_json::{Value, json};

use crate::served::requeue;

/// Copies without a delay, and neither pauses nor circuits, so that no message holds up another.
pub(crate) const POLICY: (&str, &str) = (
    "REQUEUE_POLICY",
    r#"{"jitter": "none", "circuitBreaker": "off", "maxPauseSeconds": "off", "maxRetries": 20,
        "errorConfigs": {"DEFAULT": {"backoff": [1]}}}"#,
);

/// A function, and the program that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    Python,
    Node,
}

impl Runtime {
    /// The words after `--`; `None` without the tools.
    pub(crate) fn command(self, handler: &str) -> Option<Vec<String>> {
        let (program, client) = match self {
            Self::Python => (tool("REQUEUE_TEST_RUNTIME_PYTHON")?, &["-m", "awslambdaric"][..]),
            Self::Node => {
                (tool("REQUEUE_TEST_RUNTIME_NODE")?, &["node_modules/aws-lambda-ric/index.mjs"][..])
            }
        };
        let words = client.iter().map(|word| (*word).to_owned());
        Some([program].into_iter().chain(words).chain([format!("app.{handler}")]).collect())
    }
}

/// The directory of the functions, from which they start.
pub(crate) fn functions() -> PathBuf {
    repository("tests/runtimes")
}

/// The end of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Done,
    /// With this class, and these words in its reason.
    Failed(&'static str, &'static str),
    /// Nobody knows whether it failed: no copy is sent.
    Unclear,
}

use End::{Done, Failed, Unclear};

type Ends = &'static [End];

const NAMED: End = Failed("temporary", "");

/// A record alone in its call: what the function does, and the end for a plain function and for one
/// with Powertools, which knows no responses of another form.
const ALONE: [(&str, End, Option<End>); 18] = [
    ("null", Done, None),
    ("object", Done, None),
    ("empty", Done, None),
    ("text", Done, None),
    ("ok", Done, Some(Done)),
    ("fail", NAMED, Some(NAMED)),
    ("classified", Failed("rate-limit", "back-at-nine"), None),
    ("misnamed", NAMED, None),
    ("misnamed", NAMED, None),
    ("unknown", NAMED, None),
    ("no-id", NAMED, None),
    ("empty-id", NAMED, None),
    ("no-list", NAMED, None),
    ("throw", Failed("temporary", "BankClosed"), Some(NAMED)),
    ("throttle", Failed("rate-limit", "ThrottlingException"), None),
    ("hang", Failed("temporary", "the function timed out"), Some(NAMED)),
    ("exit", Failed("temporary", "the function broke off: "), Some(NAMED)),
    ("killed", Failed("temporary", "the function "), Some(NAMED)),
];

/// Several records in one call: what the function does with each, and the ends.
const TOGETHER: [(&[&str], Ends, Option<Ends>); 7] = [
    (&["ok", "ok", "ok"], &[Done, Done, Done], Some(&[Done, Done, Done])),
    (&["ok", "fail", "ok"], &[Done, NAMED, Done], Some(&[Done, NAMED, Done])),
    (&["fail", "fail"], &[NAMED, NAMED], Some(&[NAMED, NAMED])),
    (&["ok", "unknown"], &[Unclear, Unclear], None),
    (&["ok", "throw"], &[Unclear, Unclear], Some(&[Done, NAMED])),
    (&["ok", "hang"], &[Unclear, Unclear], Some(&[Unclear, Unclear])),
    (&["ok", "exit"], &[Unclear, Unclear], Some(&[Unclear, Unclear])),
];

/// An event of these bodies' messages, on a FIFO queue each in a group of its own.
pub(crate) fn event(does: &[&str], is_fifo: bool) -> Value {
    let queue = if is_fifo { "orders.fifo" } else { "orders" };
    let records = does.iter().enumerate().map(|(at, what)| {
        let mut attributes = json!({
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1795860000000",
            "SenderId": "AIDAEXAMPLE",
            "ApproximateFirstReceiveTimestamp": "1795860000001",
        });
        if is_fifo {
            attributes["MessageGroupId"] = format!("group-{at}").into();
            attributes["MessageDeduplicationId"] = format!("{what}-{at}").into();
            attributes["SequenceNumber"] = format!("{:020}", at + 1).into();
        }
        json!({
            "messageId": format!("{what}-{at}"),
            "receiptHandle": format!("handle-{at}"),
            "body": json!({ "do": what }).to_string(),
            "attributes": attributes,
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": format!("arn:aws:sqs:us-east-1:123456789012:{queue}"),
            "awsRegion": "us-east-1",
        })
    });
    json!({ "Records": records.collect::<Vec<_>>() })
}

/// `requeue invoke EVENT --json --target -- COMMAND`.
pub(crate) fn invoke(
    name: &str,
    event: &Value,
    command: &[String],
    variables: &[(&str, &str)],
) -> Command {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("target");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{name}.json"));
    fs::write(&path, event.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let mut words = vec!["invoke", path, "--json", "--timeout", "2s", "--target", "--"];
    words.extend(command.iter().map(String::as_str));
    // One process, since most of the time is that of their starts.
    let one = [POLICY, ("REQUEUE_CONCURRENCY", "1"), ("PYTHONDONTWRITEBYTECODE", "1")];
    let variables = [&one, variables].concat();
    let mut invoke = requeue(&words, &variables);
    invoke.current_dir(functions());
    invoke
}

/// The messages of the result by their ids, and the lines of the terminal.
fn outcomes(mut invoke: Command) -> (BTreeMap<String, Value>, String) {
    let output = invoke.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}\n{said}", String::from_utf8_lossy(&output.stdout))
    });
    let messages = result["messages"].as_array().unwrap().iter();
    let id = |message: &Value| message["messageId"].as_str().unwrap().to_owned();
    (messages.map(|message| (id(message), message.clone())).collect(), said)
}

#[track_caller]
fn assert_end(outcome: &Value, end: End, is_fifo: bool, said: &str) {
    let place = outcome["place"].as_str().unwrap();
    let is_copied = place.contains("copy in orders");
    let is_right = match end {
        Done => outcome["disposition"] == "complete" && outcome["class"].is_null(),
        Failed(class, words) => {
            let detail = outcome["detail"].as_str().unwrap_or_default();
            outcome["class"] == class && detail.contains(words) && is_copied != is_fifo
        }
        Unclear => outcome["class"] == "temporary" && !is_copied,
    };
    assert!(is_right, "not {end:?}: {outcome:#}\n{said}");
}

/// The handlers, and whether Powertools is in them.
fn handlers(is_fifo: bool) -> [(&'static str, bool); 2] {
    [("plain", false), (if is_fifo { "powertools_fifo" } else { "powertools" }, true)]
}

fn check_alone(runtime: Runtime, is_fifo: bool) {
    for (handler, has_powertools) in handlers(is_fifo) {
        let Some(command) = runtime.command(handler) else { return };
        let ends = ALONE.iter().filter_map(|(does, plain, powertools)| {
            Some((*does, if has_powertools { (*powertools)? } else { *plain }))
        });
        let ends: Vec<(&str, End)> = ends.collect();
        let does: Vec<&str> = ends.iter().map(|(does, _)| *does).collect();
        let name = format!("alone-{runtime:?}-{handler}-{is_fifo}");
        let alone = [("REQUEUE_MESSAGES_PER_CALL", "1")];
        let invoke = invoke(&name, &event(&does, is_fifo), &command, &alone);
        let (outcomes, said) = outcomes(invoke);
        assert_eq!(outcomes.len(), ends.len(), "{said}");
        let warnings = said.matches("a failed record's class is none of rate-limit, ").count();
        assert_eq!(warnings, usize::from(!has_powertools), "{said}");
        for (at, (does, end)) in ends.into_iter().enumerate() {
            assert_end(&outcomes[&format!("{does}-{at}")], end, is_fifo, &said);
        }
    }
}

fn check_together(runtime: Runtime, is_fifo: bool) {
    for (handler, has_powertools) in handlers(is_fifo) {
        let Some(command) = runtime.command(handler) else { return };
        for (row, (does, plain, powertools)) in TOGETHER.iter().enumerate() {
            let ends = if has_powertools { *powertools } else { Some(*plain) };
            let Some(ends) = ends else { continue };
            let name = format!("together-{runtime:?}-{handler}-{is_fifo}-{row}");
            let (outcomes, said) = outcomes(invoke(&name, &event(does, is_fifo), &command, &[]));
            let one_call = format!(" call 1: {} messages, ", does.len());
            assert!(said.contains(&one_call), "{name}:\n{said}");
            // A FIFO processor stops at the first failure, and reports the rest as failed too.
            let stops = is_fifo && has_powertools && ends.contains(&NAMED);
            let first = ends.iter().position(|end| *end == NAMED).filter(|_| stops);
            for (at, (does, end)) in does.iter().zip(ends).enumerate() {
                let end = if first.is_some_and(|first| at >= first) { NAMED } else { *end };
                assert_end(&outcomes[&format!("{does}-{at}")], end, is_fifo, &said);
            }
        }
    }
}

#[test]
fn an_answer_for_one_record_of_python_settles_it() {
    check_alone(Runtime::Python, false);
}

#[test]
fn an_answer_for_one_record_of_python_settles_it_on_a_fifo_queue() {
    check_alone(Runtime::Python, true);
}

#[test]
fn an_answer_for_one_record_of_node_settles_it() {
    check_alone(Runtime::Node, false);
}

#[test]
fn an_answer_for_one_record_of_node_settles_it_on_a_fifo_queue() {
    check_alone(Runtime::Node, true);
}

#[test]
fn a_response_that_is_no_json_settles_no_message() {
    let Some(command) = Runtime::Node.command("streamed") else { return };
    let (alone, said) = outcomes(invoke("no-json", &event(&["ok"], false), &command, &[]));
    assert_end(&alone["ok-0"], NAMED, false, &said);
}

#[test]
fn an_answer_for_several_records_of_python_settles_each() {
    check_together(Runtime::Python, false);
}

#[test]
fn an_answer_for_several_records_of_python_settles_each_on_a_fifo_queue() {
    check_together(Runtime::Python, true);
}

#[test]
fn an_answer_for_several_records_of_node_settles_each() {
    check_together(Runtime::Node, false);
}

#[test]
fn an_answer_for_several_records_of_node_settles_each_on_a_fifo_queue() {
    check_together(Runtime::Node, true);
}

/// Powertools throws if all records of a call fail. Only that for Python tells the causes, and that
/// of a FIFO queue stops at the first.
#[test]
fn records_that_all_failed_have_their_own_causes_where_powertools_tells_them() {
    const SLOW: End = Failed("rate-limit", "ThrottlingException");
    const CLOSED: End = Failed("temporary", "BankClosed");
    const UNKNOWN: End = Failed("temporary", "all records failed");
    const STOPPED: End = Failed("temporary", "a previous record failed");
    for (runtime, handler, does, ends) in [
        (Runtime::Python, "powertools", ["throttle", "throw"], [SLOW, CLOSED]),
        // Either of the two may be the invalid one, since they may have run at once.
        (Runtime::Python, "powertools", ["invalid", "throttle"], [UNKNOWN, SLOW]),
        (Runtime::Python, "powertools_fifo", ["throttle", "ok"], [SLOW, STOPPED]),
        (Runtime::Node, "powertools", ["throttle", "throw"], [UNKNOWN; 2]),
        (Runtime::Node, "powertools_fifo", ["throttle", "ok"], [UNKNOWN; 2]),
    ] {
        let Some(command) = runtime.command(handler) else { return };
        let is_fifo = handler == "powertools_fifo";
        let name = format!("all-{runtime:?}-{handler}-{}", does[0]);
        let (outcomes, said) = outcomes(invoke(&name, &event(&does, is_fifo), &command, &[]));
        for (at, (does, end)) in does.iter().zip(ends).enumerate() {
            assert_end(&outcomes[&format!("{does}-{at}")], end, is_fifo, &said);
        }
    }
}

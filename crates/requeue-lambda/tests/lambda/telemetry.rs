//! The telemetry of real processes: metrics, log lines of a message, and the messages themselves.

use aws_sdk_sqs::types::{MessageSystemAttributeNameForSends, MessageSystemAttributeValue};
use requeue::embedded::MessageView;
use requeue_testkit::emf;
use serde_json::Value;

use crate::runtime_api::TRACE;
use crate::stage::{Stage, TIMEOUT, UNPROTECTED};

/// The metrics of all messages in one batch, from a log.
fn metrics(log: &str) -> Vec<Value> {
    let lines = log.lines().filter(|line| line.starts_with(r#"{"_aws""#));
    lines.map(|line| Value::Object(emf::checked(line))).collect()
}

/// The levels of Lambda's logging controls.
const LEVELS: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];

/// Whether Lambda sends a line to CloudWatch Logs. Lambda takes a line without `level`, or without
/// a valid `timestamp`, for INFO. Source: Lambda developer guide, "Log-level filtering".
fn passes(line: &str, filter: &str) -> bool {
    let json: Value = serde_json::from_str(line).unwrap_or_default();
    let level = json["level"].as_str().filter(|_| is_rfc_3339(&json["timestamp"]));
    let rank = |level| LEVELS.iter().position(|known| *known == level);
    level.and_then(rank).or(rank("INFO")) >= rank(filter)
}

/// `2024-11-02T16:51:31.587199Z`, with any number of decimals.
fn is_rfc_3339(timestamp: &Value) -> bool {
    let form = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "0");
    let text = timestamp.as_str().and_then(|text| text.strip_suffix('Z')).unwrap_or_default();
    let (time, decimals) = text.split_once('.').unwrap_or((text, "0"));
    form(time) == "0000-00-00T00:00:00"
        && !decimals.is_empty()
        && decimals.chars().all(|c| c.is_ascii_digit())
}

#[tokio::test]
async fn every_batch_writes_its_metrics_at_a_level_that_passes() {
    for (format, level) in LEVELS.map(|level| ("JSON", level)).into_iter().chain([("Text", "")]) {
        let stage = Stage::new().await;
        let settings =
            [UNPROTECTED, ("AWS_LAMBDA_LOG_FORMAT", format), ("AWS_LAMBDA_LOG_LEVEL", level)];
        let mut function = stage.requeue_lambda(&settings).await;
        for answer in ["ok", "ok", "unavailable", "invalid"] {
            stage.send(&format!(r#"{{"answer":"{answer}"}}"#)).await;
        }
        stage.invoke(&mut function, TIMEOUT).await;
        let log = function.stop().await;
        assert!(!log.contains('\u{1b}'), "a colour in {log}");
        let lines = metrics(&log);
        let whole = &lines[0];
        let level = if level.is_empty() { "INFO" } else { level };
        assert_eq!(
            [&whole["Service"], &whole["Queue"], &whole["level"]],
            ["orders", "orders", level],
            "{log}"
        );
        let counts = ["Received", "Completed", "Failed", "Requeued", "DeadLettered"]
            .map(|name| &whole[name]);
        assert_eq!(counts, [4, 2, 2, 1, 1], "{log}");
        let classes: Vec<&Value> = lines.iter().filter_map(|line| line.get("Class")).collect();
        assert_eq!(classes, ["temporary", "non-retryable"], "{log}");
        if format == "JSON" {
            for line in log.lines() {
                let json: Value = serde_json::from_str(line).expect("JSON");
                assert!(json["level"].is_string() && is_rfc_3339(&json["timestamp"]), "{line}");
                assert!(passes(line, level), "{line} at {level}");
            }
        }
    }
}

#[tokio::test]
async fn an_error_passes_at_every_level_that_shows_errors() {
    for level in ["WARN", "ERROR", "FATAL"] {
        let stage = Stage::new().await;
        let mut function = stage.trouble(&[("AWS_LAMBDA_LOG_LEVEL", level)]).await;
        stage.send(r#"{"do":"panic"}"#).await;
        stage.invoke(&mut function, TIMEOUT).await;
        let log = function.stop().await;
        let panic = log.lines().find(|line| line.contains(r#""message":"panic""#));
        let panic = panic.unwrap_or_else(|| panic!("no panic is logged at {level}: {log}"));
        assert_eq!(passes(panic, level), level != "FATAL", "{panic}");
    }
}

#[tokio::test]
async fn the_line_of_a_retry_says_which_it_is_and_its_delay_before_jitter() {
    let stage = Stage::new().await;
    let settings = [UNPROTECTED, ("AWS_LAMBDA_LOG_FORMAT", "JSON")];
    let mut function = stage.requeue_lambda(&settings).await;
    stage.send(r#"{"answer":"unavailable"}"#).await;
    stage.send(r#"{"answer":"invalid"}"#).await;
    stage.invoke(&mut function, TIMEOUT).await;
    let log = function.stop().await;
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lines: Vec<Value> = lines
        .filter(|line| line["fields"]["message"] == "message")
        .map(|line| line["fields"].clone())
        .collect();
    let of = |disposition: &str| {
        lines.iter().find(|line| line["disposition"] == disposition).expect("a line")
    };
    assert_eq!(of("requeue")["retryProgress"], "1/50", "{log}");
    assert_eq!(of("requeue")["delayBeforeJitterSeconds"], 2.0, "{log}");
    let dead_lettered = of("dead-letter");
    assert_eq!(
        [dead_lettered.get("retryProgress"), dead_lettered.get("delayBeforeJitterSeconds")],
        [None, None],
        "{log}"
    );
}

/// The bytes that ten messages in one batch write into the log: the lines of metrics, and all
/// lines.
async fn logged(answer: &str) -> [usize; 2] {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[UNPROTECTED]).await;
    for _ in 0..10 {
        stage.send(&format!(r#"{{"answer":"{answer}"}}"#)).await;
    }
    let (batch, _) = stage.invoke(&mut function, TIMEOUT).await;
    assert_eq!(batch.message_ids().len(), 10);
    let log = function.stop().await;
    let of_metrics = |line: &&str| line.contains(r#""_aws""#);
    let of_invocation = |line: &&str| of_metrics(line) || line.contains(r#""requestId""#);
    let bytes = |lines: Vec<&str>| lines.iter().map(|line| line.len()).sum();
    [log.lines().filter(of_metrics).collect(), log.lines().filter(of_invocation).collect()]
        .map(bytes)
}

#[tokio::test]
async fn a_batch_logs_as_much_as_its_costs_are_reckoned_from() {
    let page = include_str!("../../../../docs/operate/cost.md");
    for (answer, row) in [
        ("ok", "| log of ten messages that complete |"),
        ("rate-limit", "| log of ten messages that are retried |"),
    ] {
        let [metrics, all] = logged(answer).await;
        println!("{row} {metrics} of metrics | {all} in all |");
        let stated = page
            .lines()
            .find_map(|line| line.strip_prefix(row))
            .unwrap_or_else(|| panic!("no row {row}"));
        let stated: usize =
            stated.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
        assert!(all.abs_diff(stated) * 10 <= stated, "{row} {stated} bytes, measured {all}");
    }
}

#[tokio::test]
async fn metrics_can_be_switched_off_and_have_the_name_of_the_service() {
    let stage = Stage::new().await;
    for (settings, expected) in [
        ([("REQUEUE_METRICS", "off")], None),
        ([("REQUEUE_SERVICE", "billing")], Some(Value::from("billing"))),
    ] {
        let mut function = stage.requeue_lambda(&settings).await;
        stage.send(r#"{"answer":"ok"}"#).await;
        stage.invoke(&mut function, TIMEOUT).await;
        let log = function.stop().await;
        assert_eq!(metrics(&log).first().map(|line| line["Service"].clone()), expected, "{log}");
    }
}

#[tokio::test]
async fn a_trace_goes_on_to_the_target_and_none_of_the_function_does() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[UNPROTECTED]).await;
    stage.send_with(r#"{"answer":"ok"}"#, &[("traceparent", PARENT), ("tracestate", "a=b")]).await;
    stage.invoke(&mut function, TIMEOUT).await;
    stage
        .send_with(
            r#"{"answer":"unavailable"}"#,
            &[("traceparent", "garbled"), ("tracestate", "a=b")],
        )
        .await;
    for _ in 0..2 {
        stage.invoke(&mut function, TIMEOUT).await;
    }
    let header_of_producer = MessageSystemAttributeValue::builder()
        .data_type("String")
        .string_value("Root=1-5759e988-0d862e3fe1be46a994272793;Parent=0bad5c3f42cd8ad8;Sampled=1");
    let sent = stage.sqs.client().send_message().queue_url(stage.queue.url());
    sent.message_body(r#"{"answer":"unavailable"}"#)
        .message_system_attributes(
            MessageSystemAttributeNameForSends::AwsTraceHeader,
            header_of_producer.build().unwrap(),
        )
        .send()
        .await
        .unwrap();
    // The first copy of the other message is due again too.
    let requests = || stage.target.requests().len();
    while requests() < 3 + 2 {
        stage.invoke(&mut function, TIMEOUT).await;
    }
    let header = |request: &::http::request::Parts, name: &str| {
        request.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    let sent: Vec<_> = stage
        .target
        .requests()
        .iter()
        .map(|(head, _)| [header(head, "traceparent"), header(head, "tracestate")])
        .collect();
    // Copies are sent in the trace of the invocation, which is not sampled.
    assert!(TRACE.contains("Sampled=0"));
    let copies = stage.messages();
    let is_of_invocation = |message: &MessageView| {
        message
            .system_attributes
            .get("AWSTraceHeader")
            .is_some_and(|trace| trace.contains("Sampled=0"))
    };
    assert!(copies.iter().all(is_of_invocation), "{copies:?}");
    let parents: Vec<_> = sent.iter().map(|[parent, _]| parent.as_deref()).collect();
    assert_eq!(sent[0], [Some(PARENT.to_owned()), Some("a=b".to_owned())]);
    let of_producer = Some("00-5759e9880d862e3fe1be46a994272793-0bad5c3f42cd8ad8-01");
    assert!(
        parents[1..].iter().all(|parent| parent.is_none() || *parent == of_producer),
        "{sent:?}"
    );
    let continued = parents.iter().filter(|parent| **parent == of_producer).count();
    let without = parents.iter().filter(|parent| parent.is_none()).count();
    assert!(continued >= 2 && without >= 2, "{sent:?}");
}

#[tokio::test]
async fn what_a_handler_logs_says_of_which_message_it_is() {
    let stage = Stage::new().await;
    let mut function = stage.trouble(&[]).await;
    let id = stage.send(r#"{"do":"panic"}"#).await;
    stage.invoke(&mut function, TIMEOUT).await;
    let log = function.stop().await;
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let panic = lines
        .into_iter()
        .find(|line| line["fields"]["message"] == "panic")
        .unwrap_or_else(|| panic!("no panic is logged: {log}"));
    let spans = panic["spans"].as_array().unwrap_or_else(|| panic!("no spans: {log}"));
    assert!(
        spans.iter().any(|span| span["name"] == "message" && span["messageId"] == id.as_str()),
        "{panic}"
    );
    assert!(spans.iter().any(|span| span["requestId"] == "request-1"), "{panic}");
}

#[tokio::test]
async fn a_layer_of_opentelemetry_exports_each_message_within_its_invocation_and_linked_to_its_sender()
 {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let stage = Stage::new().await;
    let mut function = stage.example("opentelemetry", &[UNPROTECTED]).await;
    let sender = format!("00-{TRACE}-b7ad6b7169203331-01");
    let id = stage.send_with("too early", &[("traceparent", &sender)]).await;
    for _ in 0..2 {
        stage.invoke(&mut function, TIMEOUT).await;
    }
    // The span of an invocation ends after its response, and before the next invocation.
    stage.send("in time").await;
    stage.invoke(&mut function, TIMEOUT).await;
    let (code, log) = function.shut_down().await;
    assert_eq!(code, Some(0), "{log}");
    let scopes = log.split("Instrumentation Scope").skip(1);
    let spans: Vec<&str> = scopes.filter_map(|scope| Some(scope.split_once("\n\n")?.1)).collect();
    let of = |span: &str, field: &str| {
        let value =
            span.lines().find_map(|line| line.trim().strip_prefix(field)?.trim().strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {field} in {span}")).trim().to_owned()
    };
    let named = |name: &str| -> Vec<&str> {
        spans.iter().copied().filter(|span| of(span, "Name") == name).collect()
    };
    let (messages, invocations) = (named("message"), named("Lambda runtime invoke"));
    assert!(messages.len() == 3 && invocations.len() >= 2, "{log}");
    for (message, invocation) in messages.into_iter().take(2).zip(invocations) {
        assert_eq!(of(message, "ParentSpanId"), of(invocation, "SpanId"), "{log}");
        let (_, links) = message.split_once("Links").unwrap_or_else(|| panic!("no link: {log}"));
        assert_eq!(of(links, "TraceId"), TRACE, "{log}");
        assert!(message.contains(&id), "the id of the first delivery: {log}");
    }
}

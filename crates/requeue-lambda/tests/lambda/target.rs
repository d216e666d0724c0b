//! The effect of settings on the requests and the log of `requeue-lambda`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use requeue_testkit::http;
use requeue_testkit::tools::tool;
use serde_json::{Value, json};

use crate::stage::{CANARY, Stage, TIMEOUT, failed};

pub const OLD: &str = "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xk";
pub const NEW: &str = "whsec_bmV3IG5ldyBuZXcgbmV3IG5ldyBuZXcgbmV3IG5ldyA=";
pub const OTHER: &str = "whsec_b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgb3RoZXI=";

/// Every failure is tried again after a second, so that its next attempt has another time stamp.
const AFTER_A_SECOND: &str = r#"{"maxRetries": 3, "maxDelaySeconds": 1, "baseDelayMultiplier": 1.0, "jitterPercentage": 0.0,
    "errorConfigs": {"TEMPORARY": {"baseDelay": 1, "maxDelay": 1}}}"#;

/// Has the library of the Standard Webhooks project judge requests, each a secret, headers and a
/// body.
pub fn accepted(requests: &[Value]) -> Option<Vec<bool>> {
    let python = tool("REQUEUE_TEST_WEBHOOKS")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lambda/verify.py");
    let mut verifier = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python");
    let input = serde_json::to_vec(requests).unwrap();
    verifier.stdin.take().unwrap().write_all(&input).unwrap();
    let output = verifier.wait_with_output().unwrap();
    Some(serde_json::from_slice(&output.stdout).expect("a list of verdicts"))
}

#[tokio::test]
async fn every_attempt_is_signed_anew_as_the_libraries_of_receivers_verify_it() {
    let stage = Stage::new().await;
    let secrets = format!("{OLD} {NEW}");
    let settings =
        [("REQUEUE_SIGNING_SECRET", secrets.as_str()), ("REQUEUE_POLICY", AFTER_A_SECOND)];
    let mut function = stage.requeue_lambda(&settings).await;
    let body = "{ \"answer\" : \"unavailable\", \"n\": 1.0e2, \"ü\": \"\\u0000\" }\n";
    let id = stage.send(body).await;
    stage.invoke(&mut function, TIMEOUT).await;
    stage.invoke(&mut function, TIMEOUT).await;

    let attempts: Vec<(Value, String)> = stage
        .target
        .requests()
        .into_iter()
        .map(|(head, body)| {
            let signed =
                head.headers.iter().filter(|(name, _)| name.as_str().starts_with("webhook-"));
            let headers =
                signed.map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap())));
            (headers.collect(), body)
        })
        .collect();
    let [(first, _), (second, again)] = &attempts[..] else { panic!("two attempts: {attempts:?}") };
    assert_eq!((&first["webhook-id"], again.as_str()), (&json!(id), body));
    assert_eq!(first["webhook-id"], second["webhook-id"]);
    let seconds =
        |headers: &Value| headers["webhook-timestamp"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(seconds(first) < seconds(second), "{first} {second}");

    let mut requests = Vec::new();
    let mut expected = Vec::new();
    for (headers, body) in &attempts {
        let with = |name: &str, value: &Value| {
            let mut headers = headers.clone();
            headers[name] = value.clone();
            headers
        };
        let earlier = json!((seconds(headers) - 1).to_string());
        for (secret, headers, body, is_accepted) in [
            (OLD, headers.clone(), body.clone(), true),
            (NEW, headers.clone(), body.clone(), true),
            (OTHER, headers.clone(), body.clone(), false),
            (NEW, headers.clone(), format!("{body} "), false),
            (NEW, with("webhook-id", &json!("another")), body.clone(), false),
            (NEW, with("webhook-timestamp", &earlier), body.clone(), false),
        ] {
            requests.push(json!({"secret": secret, "headers": headers, "body": body}));
            expected.push(is_accepted);
        }
    }
    let Some(accepted) = accepted(&requests) else { return };
    assert_eq!(accepted, expected);
    let log = function.stop().await;
    assert!(!log.contains("whsec_") && !log.contains("v1,"), "{log}");
}

#[tokio::test]
async fn method_headers_and_attributes_arrive_and_are_not_logged() {
    let stage = Stage::new().await;
    let settings = [
        ("AWS_LAMBDA_LOG_LEVEL", "TRACE"),
        ("REQUEUE_METHOD", "PUT"),
        ("REQUEUE_CONTENT_TYPE", "application/cbor"),
        (
            "REQUEUE_HEADERS",
            r#"{"Authorization": "Bearer canary-key", "X-Tenant": "nobody", "User-Agent": "orders"}"#,
        ),
        ("REQUEUE_ATTRIBUTE_HEADERS", "tenant = X-Tenant, trace=X-Trace"),
    ];
    let mut function = stage.requeue_lambda(&settings).await;
    let attributes =
        [("tenant", "canary-blue"), ("other", "canary-other"), ("Body.ContentType", "text/canary")];
    stage.send_with(r#"{"answer":"unavailable"}"#, &attributes).await;
    stage.send(r#"{"answer":"ok"}"#).await;
    stage.invoke(&mut function, TIMEOUT).await;

    let mut requests = stage.target.requests();
    requests.sort_by(|one, other| other.1.cmp(&one.1));
    let header = |index: usize, name: &str| {
        let values = requests[index].0.headers.get_all(name).into_iter();
        values.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" and ")
    };
    assert_eq!(requests.len(), 2);
    for (index, tenant, content_type) in
        [(0, "canary-blue", "text/canary"), (1, "nobody", "application/cbor")]
    {
        assert_eq!(requests[index].0.method, "PUT");
        assert_eq!(header(index, "authorization"), "Bearer canary-key");
        assert_eq!(header(index, "user-agent"), "orders");
        assert_eq!(
            (header(index, "x-tenant"), header(index, "content-type")),
            (tenant.into(), content_type.into())
        );
        for absent in ["x-trace", "webhook-timestamp", "webhook-signature"] {
            assert_eq!(header(index, absent), "", "{absent}");
        }
    }
    let log = function.stop().await;
    assert!(log.contains("requeue"), "{log}");
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn an_attribute_that_would_smuggle_a_header_is_final_and_not_told() {
    let stage = Stage::new().await;
    let settings =
        [("REQUEUE_ATTRIBUTE_HEADERS", "tenant=X-Tenant"), ("AWS_LAMBDA_LOG_LEVEL", "TRACE")];
    let mut function = stage.requeue_lambda(&settings).await;
    let mut expected = Vec::new();
    for (name, value) in [
        ("tenant", "canary-tenant\r\nX-Admin: yes"),
        ("tenant", "canary-tenant\n"),
        ("Body.ContentType", "text/canary\r\nX-Admin: yes"),
    ] {
        expected.push(stage.send_with(r#"{"answer":"ok"}"#, &[(name, value)]).await);
    }
    stage.send_with(r#"{"answer":"ok"}"#, &[("tenant", "blue")]).await;
    expected.sort_unstable();
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert_eq!(failed(&ended), expected);
    assert_eq!(stage.target.requests().len(), 1, "the neighbour is served");
    let log = function.stop().await;
    assert!(log.contains("message attribute tenant cannot be sent as a header"), "{log}");
    assert!(!log.contains("canary") && !log.contains("X-Admin"), "{log}");
}

#[tokio::test]
async fn no_answer_writes_lines_of_its_own_into_the_log() {
    let stage = Stage::new().await;
    let settings = [("AWS_LAMBDA_LOG_LEVEL", "TRACE"), ("REQUEUE_METRICS", "off")];
    let mut function = stage.requeue_lambda(&settings).await;
    stage.send(r#"{"answer":"hostile"}"#).await;
    stage.send(r#"{"answer":"hostile-text"}"#).await;
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert_eq!(failed(&ended).len(), 1);
    let log = function.stop().await;
    assert!(log.contains("status 400") && log.contains("status 503"), "{log}");
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert!(line.get("_aws").is_none() && line.get("fields").is_some(), "{line}");
    }
    for told in ["_aws", "\\u001b", CANARY] {
        assert!(!log.contains(told), "{told} in the log: {log}");
    }
}

#[tokio::test]
async fn invocations_share_a_connection_and_no_proxy_of_the_environment_is_asked() {
    let stage = Stage::new().await;
    let proxy = http::Server::start(|_| async { http::status(hyper::StatusCode::OK) }).await;
    let url = proxy.url();
    let names =
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let mut function = stage.requeue_lambda(&names.map(|name| (name, url.as_str()))).await;
    for count in 1..=3 {
        stage.send(r#"{"answer":"ok"}"#).await;
        stage.invoke(&mut function, TIMEOUT).await;
        assert_eq!(stage.target.requests().len(), count);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((stage.target.server.accepted(), proxy.accepted()), (1, 0));
}

//! `requeue status`: at `requeue serve`, and at a stand-in for CloudWatch, its logs and Lambda.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use requeue::Clock;
use requeue::embedded::{EmbeddedSqs, Fault};
use requeue::queue::QueueArn;
use requeue_testkit::http::Server;
use requeue_testkit::repository;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::run::{Run, requeue_with, scratch};
use crate::terminal::typed;

const QUEUE: &str = "arn:aws:sqs:us-east-1:000000000000:orders";

/// A queue with three messages, of which one is delayed, and a dead-letter queue with one.
async fn queues() -> EmbeddedSqs {
    let sqs = EmbeddedSqs::new(Clock::system());
    let dead = sqs.create_queue("orders-dlq", []).unwrap();
    let policy = format!(r#"{{"deadLetterTargetArn":"{dead}","maxReceiveCount":5}}"#);
    let queue = sqs.create_queue("orders", [("RedrivePolicy", policy.as_str())]).unwrap();
    for (queue, delay) in [(&queue, 0), (&queue, 0), (&queue, 60), (&dead, 0)] {
        let send = sqs.client().send_message().queue_url(queue.url()).message_body("{}");
        send.delay_seconds(delay).send().await.unwrap();
    }
    sqs
}

async fn run(variables: Vec<(&'static str, String)>, arguments: &[&str]) -> Run {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let run = move || {
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        requeue_with(&variables, &[&["status"], &words[..]].concat())
    };
    spawn_blocking(run).await.unwrap()
}

fn keys(sqs: &str) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL_SQS", sqs.to_owned()),
        ("AWS_ACCESS_KEY_ID", "any".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "any".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_MAX_ATTEMPTS", "1".to_owned()),
    ]
}

#[test]
fn no_output_has_the_password_of_a_queues_url() {
    let keys = keys("http://127.0.0.1:9");
    let keys: Vec<_> = keys.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let queue = "https://user:s3cret@sqs.us-east-1.amazonaws.com/000000000000/orders";
    let target = ["--target-url", "http://127.0.0.1:9"];
    for (arguments, shown) in [
        (&["status", "--queue", queue][..], "--queue names https://sqs.us-east-1.amazonaws.com, "),
        (&["work", queue, target[0], target[1]], "names https://sqs.us-east-1.amazonaws.com, "),
        (&["work", "https://user:s3cret@localhost"], "invalid value 'https://localhost' for"),
        (
            &["work", queue, queue],
            "argument 'https://sqs.us-east-1.amazonaws.com/000000000000/orders'",
        ),
    ] {
        let run = requeue_with(&keys, arguments);
        let said = run.stdout + &run.stderr;
        assert!(said.contains(shown) && !said.contains("s3cret"), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_queue_tells_its_depth_and_no_message_is_received() {
    let sqs = queues().await;
    let server = sqs.serve(0).await.unwrap();
    let port = server.url().rsplit(':').next().unwrap().to_owned();
    for (variables, place) in
        [(vec![], &["--sqs-port", &port][..]), (keys(&server.url()), &["orders"])]
    {
        let shown = run(variables.clone(), &[&["--json"], place].concat()).await.succeeded();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let queues: Vec<_> = shown["queues"]
            .as_array()
            .unwrap()
            .iter()
            .map(|queue| [&queue["visible"], &queue["delayed"], &queue["oldestSeconds"]])
            .collect();
        let null = &Value::Null;
        assert_eq!(queues, [[&json!(2), &json!(1), null], [&json!(1), &json!(0), null]]);
        assert_eq!(shown["functions"], json!([]));
        let unknown = shown["unknown"][0].as_str().unwrap();
        assert!(unknown.starts_with("oldest message, circuit and failures: "), "{unknown}");
        let text = run(variables, place).await.succeeded();
        assert!(text.contains("\n orders             2           0         1   unknown"), "{text}");
    }
    for queue in ["orders", "orders-dlq"] {
        let messages = sqs.messages(&QUEUE.replace("orders", queue).parse().unwrap()).unwrap();
        assert!(messages.iter().all(|message| message.receive_count == 0), "{messages:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_queue_the_endpoint_of_the_environment_or_the_profile_counts() {
    let sqs = queues().await;
    let server = sqs.serve(0).await.unwrap();
    let config = scratch("status-profile");
    std::fs::write(&config, format!("[profile local]\nendpoint_url = {}\n", server.url())).unwrap();
    let file = config.to_str().unwrap().to_owned();
    for (sent, endpoint) in [
        vec![("AWS_ENDPOINT_URL_SQS", server.url())],
        vec![("AWS_ENDPOINT_URL", server.url())],
        vec![("AWS_PROFILE", "local".to_owned()), ("AWS_CONFIG_FILE", file)],
    ]
    .into_iter()
    .enumerate()
    {
        let variables = [&keys("")[1..], &endpoint].concat();
        // The other services are not there.
        let shown = run(variables.clone(), &["--since", "1m"]).await;
        assert!(shown.stdout.contains("\n orders     "), "{variables:?}: {shown:?}");
        let sends = move || {
            let variables: Vec<_> = variables.iter().map(|(key, value)| (*key, &**value)).collect();
            requeue_with(&variables, &["send", "{}"])
        };
        assert_eq!(spawn_blocking(sends).await.unwrap().status, 0);
        assert_eq!(sqs.messages(&QUEUE.parse().unwrap()).unwrap().len(), 4 + sent);
    }
    let region = requeue_with(&[], &["send", "{}", "--region", "eu-west-1"]);
    assert!(region.status == 1 && region.stderr.contains("name the queue there with --queue"));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_what_may_delay_a_message_to_the_dead_letter_queue() {
    let sqs = queues().await;
    let server = sqs.serve(0).await.unwrap();
    let way = "of 3 messages in orders, a dead-lettered one reaches orders-dlq only when it is \
               received again, unless REQUEUE_DEAD_LETTER is direct; ";
    let shown = run(keys(&server.url()), &["orders"]).await.succeeded();
    let worker =
        format!("{way}while a circuit is open, a worker receives only messages that may probe");
    assert!(shown.contains(&worker), "{shown}");
    let aws = aws("").await;
    let variables = [keys(&server.url()), vec![("AWS_ENDPOINT_URL", aws.url())]].concat();
    let shown = run(variables, &["orders"]).await.succeeded();
    assert!(shown.contains(&format!("{way}the circuit of pay is open")), "{shown}");
    let queue: QueueArn = QUEUE.parse().unwrap();
    sqs.client().purge_queue().queue_url(queue.url()).send().await.unwrap();
    let shown = run(keys(&server.url()), &["orders"]).await.succeeded();
    assert!(!shown.contains("note: "), "{shown}");
}

/// The line of a message that failed, or of a circuit.
fn line(stream: &str, at: u64, fields: &Value) -> Value {
    json!({
        "eventId": format!("{stream}{at}"),
        "logStreamName": stream,
        "timestamp": at,
        "message": json!({ "fields": fields }).to_string(),
    })
}

/// Lambda, CloudWatch and its logs. `denied` is an operation that they refuse.
fn response(path: &str, target: &str, body: &Value, denied: &str) -> (StatusCode, Value) {
    let operation = target.rsplit('.').next().unwrap_or_default();
    if !denied.is_empty() && (operation == denied || path.contains(denied)) {
        return (StatusCode::BAD_REQUEST, json!({ "__type": "AccessDeniedException" }));
    }
    if operation == "FilterLogEvents" && denied == "no log group" {
        return (StatusCode::BAD_REQUEST, json!({ "__type": "ResourceNotFoundException" }));
    }
    if operation == "FilterLogEvents" && denied == "no lines" {
        return (StatusCode::OK, json!({ "events": [] }));
    }
    let response = match operation {
        "GetMetricStatistics" => match body["MetricName"].as_str().unwrap() {
            "ApproximateAgeOfOldestMessage" => json!({ "Datapoints": [
                { "Timestamp": 120, "Maximum": 7_380 }, { "Timestamp": 60, "Maximum": 1 },
            ] }),
            "Received" => json!({ "Datapoints": [
                { "Timestamp": 60, "Sum": 1_000 }, { "Timestamp": 120, "Sum": 203 },
            ] }),
            "Requeued" => json!({ "Datapoints": [{ "Timestamp": 60, "Sum": 90 }] }),
            _ => json!({ "Datapoints": [] }),
        },
        "FilterLogEvents" => {
            let failed = |detail: &str| {
                json!({ "messageId": "m", "disposition": "requeue", "class": "temporary",
                        "detail": detail })
            };
            let long = "status 503: https://payments.example/v1/charges/ch_3PqL0d2eZvKYlo2C0Xr";
            let opened = json!({ "event": "circuit-opened", "cause": "status 503" });
            let waits = json!({ "messageId": "m", "disposition": "defer", "reason": "call-refused",
                                "detail": "Lambda cannot invoke the function: ResourceNotFoundException" });
            json!({ "events": [
                line("a", 3_600_000, &failed(long)),
                line("a", 3_600_500, &waits),
                line("b", 3_601_000, &failed(long)),
                line("a", 3_602_000, &opened),
            ] })
        }
        _ if path.contains("event-source-mappings") => json!({ "EventSourceMappings": [{
            "EventSourceArn": QUEUE, "State": "Enabled", "UUID": "u",
            "FunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:pay",
        }] }),
        _ if path.ends_with("/concurrency") => {
            json!({ "ReservedConcurrentExecutions": u32::from(denied != "stopped") })
        }
        _ if denied == "stopped" => json!({
            "FunctionName": "pay", "State": "Active", "LastUpdateStatus": "Successful",
            "Environment": { "Variables": { "REQUEUE_WRAP": "maybe", "REQUEUE_HEADERS": "s3cret" } },
        }),
        _ => json!({
            "FunctionName": "pay", "State": "Active", "LastUpdateStatus": "Successful",
            "FunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:pay",
            "Environment": { "Variables": { "REQUEUE_TARGET_URL": "https://u:s3cret@example.com" } },
        }),
    };
    (StatusCode::OK, response)
}

async fn aws(denied: &'static str) -> Server {
    Server::start(move |request: Request<Incoming>| async move {
        let target = request.headers().get("x-amz-target");
        let target = target.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let (status, response) = response(&path, &target, &body, denied);
        let mut answer = Response::new(Full::new(Bytes::from(response.to_string())));
        *answer.status_mut() = status;
        answer
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployed_function_is_told_by_its_log_and_its_metrics() {
    let sqs = queues().await;
    let (server, aws) = (sqs.serve(0).await.unwrap(), aws("").await);
    let variables = [keys(&server.url()), vec![("AWS_ENDPOINT_URL", aws.url())]].concat();
    for place in [&["--function", "pay"][..], &["orders"]] {
        let shown = run(variables.clone(), &[place, &["--json"]].concat()).await.succeeded();
        assert!(!shown.contains("s3cret"), "{shown}");
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["unknown"], json!([]), "{shown}");
        assert_eq!(shown["queues"][0]["oldestSeconds"], 7_380);
        let function = &shown["functions"][0];
        assert_eq!(function["mappings"], json!([{ "queue": "orders", "state": "Enabled" }]));
        assert_eq!(function["counts"]["Received"], 1_203);
        assert_eq!(function["counts"]["DeadLettered"], 0);
        let circuit = &function["circuit"];
        assert_eq!((&circuit["state"], &circuit["cause"]), (&json!("open"), &json!("status 503")));
        assert_eq!(circuit["since"], "1970-01-01T01:00:02Z");
        let failures = function["failures"].as_array().unwrap();
        assert_eq!((failures.len(), &failures[0]["messages"]), (2, &json!(2)));
        assert_eq!(
            (&failures[1]["result"], &failures[1]["class"]),
            (&json!("deferred"), &Value::Null)
        );
        let text = run(variables.clone(), place).await.succeeded();
        for part in [
            " orders             2           0         1   2 h 3 min",
            "open since 01:00:02 UTC in 1 execution environment: status 503",
            "1,203 received, 0 completed, 90 retried",
            " 01:00:01           2   retried    temporary   status 503: https",
            " 01:00:00           1   deferred               call-refused: Lambda cannot invoke the function: Res",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
    let run = move || typed(80, &[], &variables, &["status", "--function", "pay"]);
    let typed = spawn_blocking(run).await.unwrap();
    let lines = typed.fitting(80);
    assert_eq!(typed.status, Some(0), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with(" 01:00:01 ")), "a table: {lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_cannot_run_is_told_with_the_reason() {
    let sqs = queues().await;
    let (server, aws) = (sqs.serve(0).await.unwrap(), aws("stopped").await);
    let variables = [keys(&server.url()), vec![("AWS_ENDPOINT_URL", aws.url())]].concat();
    let shown = run(variables.clone(), &["--function", "pay"]).await.succeeded();
    assert!(!shown.contains("s3cret"), "{shown}");
    for part in [
        " concurrency   reserved: 0, so Lambda never invokes the function",
        " setting       REQUEUE_WRAP is `maybe`: must be one of when-needed, never",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let shown = run(variables, &["--function", "pay", "--json"]).await.succeeded();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let function = &shown["functions"][0];
    assert_eq!(function["reservedConcurrency"], 0);
    assert_eq!(function["invalidSettings"].as_array().map(Vec::len), Some(2), "{function}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named_and_its_fact_is_unknown() {
    let sqs = queues().await;
    let server = sqs.serve(0).await.unwrap();
    for (denied, permission, is_error) in [
        ("FilterLogEvents", "logs:FilterLogEvents on /aws/lambda/pay", false),
        ("GetMetricStatistics", "cloudwatch:GetMetricStatistics", false),
        ("/concurrency", "lambda:GetFunctionConcurrency on pay", false),
        ("event-source-mappings", "lambda:ListEventSourceMappings", true),
        ("configuration", "lambda:GetFunctionConfiguration", true),
    ] {
        let aws = aws(denied).await;
        let variables = [keys(&server.url()), vec![("AWS_ENDPOINT_URL", aws.url())]].concat();
        let run = run(variables, &["--function", "pay"]).await;
        assert_eq!(run.status, i32::from(is_error), "{run:?}");
        let told = if is_error { &run.stderr } else { &run.stdout };
        assert!(told.contains(permission), "{told}");
        assert!(is_error || run.stdout.contains("unknown"), "{run:?}");
    }
    sqs.set_faults(|call| match call.operation.as_str() {
        "GetQueueAttributes" => Fault::Refuse { status: 403, code: "AccessDenied".into() },
        _ => Fault::None,
    });
    let run = run(keys(&server.url()), &["orders"]).await;
    assert!(run.status == 1 && run.stderr.contains("permission sqs:GetQueueAttributes"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_log_group_is_no_missing_permission() {
    let sqs = queues().await;
    let (server, aws) = (sqs.serve(0).await.unwrap(), aws("no log group").await);
    let variables = [keys(&server.url()), vec![("AWS_ENDPOINT_URL", aws.url())]].concat();
    let shown = run(variables, &["orders"]).await.succeeded();
    let told = "unknown: circuit and failures: the log group /aws/lambda/pay does not exist; run \
                `requeue doctor --function pay`";
    assert!(shown.contains(told) && !shown.contains("permission"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_any_line_says_nothing_of_the_circuit() {
    let sqs = queues().await;
    let (server, aws) = (sqs.serve(0).await.unwrap(), aws("no lines").await);
    let variables = [keys(&server.url()), vec![("AWS_ENDPOINT_URL", aws.url())]].concat();
    let shown = run(variables, &["orders"]).await.succeeded();
    assert!(shown.contains("/aws/lambda/pay has no line of Requeue in the last"), "{shown}");
    assert!(!shown.contains("not opened") && !shown.contains("no line of a failed"), "{shown}");
}

#[test]
fn a_name_is_at_aws_unless_the_port_of_serve_is_given() {
    // Nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = port.to_string();
    for (arguments, told) in [
        (&["status", "orders"][..], "there are no AWS credentials"),
        (&["status", "orders", "--sqs-port", &port], "no SQS listens on port "),
        (&["status", "--sqs-port", &port], "no SQS listens on port "),
    ] {
        let run = requeue_with(&[("AWS_REGION", "eu-west-1")], arguments);
        assert!(run.status == 1 && run.stderr.contains(told), "{run:?}");
    }
}

#[test]
fn an_operator_has_the_permissions_of_the_help() {
    let policy = std::fs::read_to_string(repository("infra/policies/operator.json")).unwrap();
    let help = requeue_with(&[], &["status", "--help"]).stdout;
    let (_, permissions) = help.split_once("Permissions: ").unwrap();
    let (permissions, _) = permissions.split_once("\n\n").unwrap();
    let is_permission = |word: &&str| word.contains(':');
    let words = permissions.split([' ', '\n', ',', ';']).filter(is_permission);
    let words: Vec<&str> = words.map(|word| word.trim_end_matches('.')).collect();
    assert!(words.len() > 4, "{words:?}");
    for word in words {
        assert!(policy.contains(&format!("\"{word}\"")), "{word}");
    }
}

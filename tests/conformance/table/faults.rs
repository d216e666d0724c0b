//! DynamoDB and the network in trouble: each error is told apart, and nothing is asked twice.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::web_identity_token::{StaticConfiguration, WebIdentityTokenCredentialsProvider};
use aws_sdk_sqs::config::SharedCredentialsProvider;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use requeue::aws::{NO_CREDENTIALS, SdkConfig};
use requeue::table::{DynamoTable, Field, Key, Table, TableError, Update};
use requeue_testkit::http::Server;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::{A, B, config};

const UNREADABLE: &str = "UnreadableResponse";
const THROTTLED: &str = "throttled";

/// A request: the operation and its parameters.
type Request = (String, Value);

/// A server that gives every request the same response, and notes the requests.
async fn server(
    status: u16,
    headers: &[(&'static str, &'static str)],
    body: &str,
) -> (Server, Arc<Mutex<Vec<Request>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&requests);
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    let response = response.body(Full::from(body.to_owned())).expect("a response");
    let server = Server::start(move |request: hyper::Request<hyper::body::Incoming>| {
        let (noted, response) = (Arc::clone(&noted), response.clone());
        async move {
            let header = |name: &str| request.headers()[name].to_str().expect("text").to_owned();
            assert_eq!(header("content-type"), "application/x-amz-json-1.0");
            assert!(header("authorization").contains("/us-east-1/dynamodb/aws4_request"));
            let operation = header("x-amz-target");
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let body = serde_json::from_slice(&body).expect("JSON");
            noted.lock().expect("no panic").push((operation, body));
            response
        }
    })
    .await;
    (server, requests)
}

/// Whatever the configuration says of retries.
fn eager(url: &str) -> SdkConfig {
    let retries = RetryConfig::standard().with_max_attempts(5);
    config(url).to_builder().retry_config(retries).build()
}

/// The error of an update and of a read.
async fn errors(config: &SdkConfig) -> [String; 2] {
    let (table, key) = (DynamoTable::new("table", config), Key::of(["key"]));
    let told = |error: TableError| error.to_string();
    let update = table.update(&key, &Update::new().when(A, 0..=9).add(A, 4711)).await;
    let read = table.read(&key).await;
    [update.map(drop).map_err(told), read.map(drop).map_err(told)]
        .map(|outcome| outcome.expect_err("an error"))
}

#[tokio::test]
async fn a_refusal_is_throttled_or_unavailable_with_its_code() {
    let long = format!(r#"{{"__type":"x#A\n{}"}}"#, "B".repeat(500));
    for (status, body, expected) in [
        (
            400,
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"4711"}"#,
            THROTTLED,
        ),
        (400, r#"{"__type":"com.amazon.coral.availability#ThrottlingException"}"#, THROTTLED),
        (400, r#"{"__type":"com.amazonaws.dynamodb.v20120810#RequestLimitExceeded"}"#, THROTTLED),
        (400, r#"{"__type":"com.amazonaws.dynamodb.v20120810#LimitExceededException"}"#, THROTTLED),
        (429, "<html>4711", THROTTLED),
        (429, "{}", THROTTLED),
        (
            400,
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}"#,
            "ResourceNotFoundException",
        ),
        (
            400,
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#AccessDeniedException","Message":"4711"}"#,
            "AccessDeniedException",
        ),
        (
            400,
            r#"{"__type":"com.amazon.coral.validate#ValidationException","message":"4711"}"#,
            "ValidationException",
        ),
        (
            400,
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ItemCollectionSizeLimitExceededException"}"#,
            "ItemCollectionSizeLimitExceededException",
        ),
        (
            400,
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException"}"#,
            "TransactionConflictException",
        ),
        (400, "{}", "Unknown"),
        (
            500,
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}"#,
            "InternalServerError",
        ),
        (500, "", "Unknown"),
        (
            503,
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ServiceUnavailable"}"#,
            "ServiceUnavailable",
        ),
        (502, "<html>4711", UNREADABLE),
        (413, "<html>4711", UNREADABLE),
        (302, "", "Unknown"),
        (400, &long, &format!("A\u{FFFD}{}", "B".repeat(98))),
    ] {
        let (server, requests) = server(status, &[], body).await;
        let errors = errors(&eager(&server.url())).await;
        assert_eq!(errors, [expected; 2], "{status} {body}");
        assert_eq!(requests.lock().expect("no panic").len(), 2, "{status} {body}");
    }
}

#[tokio::test]
async fn an_item_that_is_none_is_no_answer() {
    let unmet = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException";
    for item in [
        r#"{"id":{"S":"x"},"a":{"N":"18446744073709551616"}}"#,
        r#"{"a":{"N":"-1"}}"#,
        r#"{"a":{"N":"1.5"}}"#,
        r#"{"a":{"N":""}}"#,
        r#"{"a":{"S":"4711"}}"#,
        r#"{"a":{"BOOL":true}}"#,
        r#"{"a":{"N":4711}}"#,
        r#"{"a":4711}"#,
        "[4711]",
        r#"{"a":{"N":"4711"}"#,
    ] {
        for (status, body) in [
            (200, format!(r#"{{"Attributes":{item}}}"#)),
            (200, format!(r#"{{"Item":{item}}}"#)),
            (400, format!(r#"{{"__type":"{unmet}","Item":{item}}}"#)),
        ] {
            let (server, requests) = server(status, &[], &body).await;
            let [update, read] = errors(&eager(&server.url())).await;
            assert_eq!(update, UNREADABLE, "{body}");
            assert!(status == 400 || read == UNREADABLE, "{body}: {read}");
            assert_eq!(requests.lock().expect("no panic").len(), 2, "{body}");
        }
    }
    for body in ["", "<html>", "null", r#"{"Attributes":"#, "[4711]"] {
        let (server, requests) = server(200, &[], body).await;
        assert_eq!(errors(&eager(&server.url())).await, [UNREADABLE; 2], "{body}");
        assert_eq!(requests.lock().expect("no panic").len(), 2, "{body}");
    }
}

#[tokio::test]
async fn silence_and_a_lost_connection_are_told_apart_after_one_try() {
    let silent = Server::start(|_| std::future::pending()).await;
    let timeouts =
        TimeoutConfig::builder().operation_attempt_timeout(Duration::from_millis(100)).build();
    let config = eager(&silent.url()).to_builder().timeout_config(timeouts).build();
    assert_eq!(errors(&config).await, ["TimedOut"; 2]);
    assert_eq!(silent.accepted(), 2);

    let (lost, requests) = broken().await;
    assert_eq!(errors(&eager(&format!("http://{lost}"))).await, ["ConnectionLost"; 2]);
    assert_eq!(*requests.lock().expect("no panic"), 2);

    // No server listens on the port of tcpmux.
    assert_eq!(errors(&eager("http://127.0.0.1:1")).await, ["NoConnection: connection refused"; 2]);
}

/// A server that reads a request and resets the connection in the middle of the response.
async fn broken() -> (SocketAddr, Arc<Mutex<usize>>) {
    let requests = Arc::new(Mutex::new(0));
    let count = Arc::clone(&requests);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let read = stream.read(&mut [0; 4096]).await;
            assert!(read.expect("a request") > 0);
            *count.lock().expect("no panic") += 1;
            stream.set_zero_linger().expect("a socket");
        }
    });
    (address, requests)
}

#[tokio::test]
async fn a_client_without_credentials_or_region_says_so_and_asks_nobody() {
    let (server, requests) = server(200, &[], "{}").await;
    let absent = StaticConfiguration {
        web_identity_token_file: "absent".into(),
        role_arn: "arn:aws:iam::123456789012:role/absent".to_owned(),
        session_name: "absent".to_owned(),
    };
    let absent = WebIdentityTokenCredentialsProvider::builder().static_configuration(absent);
    let absent = SharedCredentialsProvider::new(absent.build());
    let sdk = config(&server.url()).to_builder().credentials_provider(absent).build();
    assert_eq!(errors(&sdk).await, [NO_CREDENTIALS; 2]);
    let sdk = config(&server.url()).to_builder().region(None).build();
    assert_eq!(errors(&sdk).await, ["RequestNotBuilt"; 2]);
    assert_eq!(requests.lock().expect("no panic").len(), 0);
}

#[tokio::test]
async fn a_request_says_no_more_than_it_must() {
    const DATE: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let (server, requests) =
        server(200, &[DATE], r#"{"Attributes":{"id":{"S":"x"},"a":{"N":"7"}}}"#).await;
    let table = DynamoTable::new("table", &config(&server.url()));
    let key = Key::of(["key"]);
    let update = Update::new()
        .when(A, 0..=u64::MAX)
        .when(B, 0..=5)
        .when(B, 2..=u64::MAX)
        .when(A, 3..=4)
        .set(A, 1)
        .add(Field::new("c"), 2)
        .set(B, 9);
    let answer = table.update(&key, &update).await.expect("an answer");
    assert_eq!((answer.is_changed, answer.before.get(A)), (true, 7));
    let date = answer.date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
    assert_eq!(date, Some(Duration::from_secs(784_111_777)));
    table.update(&key, &Update::new()).await.expect("an answer");
    table.read(&key).await.expect("an answer");

    let id = json!({ "id": { "S": key.to_string() } });
    let expected = [
        (
            "UpdateItem",
            json!({
                "TableName": "table", "Key": id, "ReturnValues": "ALL_OLD",
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                "ConditionExpression":
                    "(attribute_not_exists(#n0) OR #n0 <= :v0) AND #n0 >= :v1 AND #n1 >= :v2 AND #n1 <= :v3",
                "UpdateExpression": "SET #n1 = :v4, #n0 = :v6 ADD #n2 :v5",
                "ExpressionAttributeNames": { "#n0": "b", "#n1": "a", "#n2": "c" },
                "ExpressionAttributeValues": {
                    ":v0": { "N": "5" }, ":v1": { "N": "2" }, ":v2": { "N": "3" }, ":v3": { "N": "4" },
                    ":v4": { "N": "1" }, ":v5": { "N": "2" }, ":v6": { "N": "9" },
                },
            }),
        ),
        ("UpdateItem", json!({ "TableName": "table", "Key": id, "ReturnValues": "ALL_OLD" })),
        ("GetItem", json!({ "TableName": "table", "Key": id, "ConsistentRead": true })),
    ];
    let expected =
        expected.map(|(name, body)| (format!("DynamoDB_20120810.{name}"), body)).to_vec();
    assert_eq!(*requests.lock().expect("no panic"), expected);
}

#[tokio::test]
async fn an_unmet_condition_needs_no_second_request_if_it_comes_with_the_item() {
    const UNMET: &str = r#""__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed""#;
    for (item, expected) in [
        (r#","Item":{"id":{"S":"x"},"a":{"N":"7"}}"#, vec!["UpdateItem"]),
        ("", vec!["UpdateItem", "GetItem"]),
    ] {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let (server, requests) = server(400, &[date], &format!("{{{UNMET}{item}}}")).await;
        let table = DynamoTable::new("table", &config(&server.url()));
        let update = Update::new().when(A, 1..=1).set(A, 2);
        let answer = table.update(&Key::of(["key"]), &update).await;
        if let Ok(answer) = answer {
            assert_eq!((answer.is_changed, answer.before.get(A)), (false, 7));
            assert!(answer.date.is_some() && !item.is_empty());
        }
        let requests = requests.lock().expect("no panic");
        let operations: Vec<&str> = requests
            .iter()
            .filter_map(|(name, _)| name.split_once('.'))
            .map(|(_, name)| name)
            .collect();
        assert_eq!(operations, expected);
    }
}

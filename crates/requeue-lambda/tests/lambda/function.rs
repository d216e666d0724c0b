//! The ready Lambda with a function as its target, which a server on loopback stands in for.

use std::process::Command;

use ::http::header::{CONNECTION, HeaderValue};
use ::http::{Request, StatusCode};
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use requeue::aws::SdkConfig;
use requeue_aws::{Service, call};
use requeue_testkit::function::{Answer, FunctionApi, records};
use requeue_testkit::http;
use requeue_testkit::tools::tool;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::runtime_api::{Ended, Function};
use crate::stage::{CANARY, Stage, TIMEOUT, failed, json as parsed};

/// A function that reports each record as failed whose body says so.
async fn reporting() -> FunctionApi {
    FunctionApi::start(async |event| {
        let says_so =
            |record: &&Value| record["body"].as_str().unwrap_or_default().contains("unavailable");
        let failed = records(&event).iter().filter(says_so);
        let failed: Vec<Value> =
            failed.map(|record| json!({ "itemIdentifier": record["messageId"] })).collect();
        (200, "", json!({ "batchItemFailures": failed, "secret": CANARY }))
    })
    .await
}

/// The ready Lambda, invoking this function.
async fn requeue_lambda(stage: &Stage, api: &str) -> Function {
    stage
        .requeue_lambda(&[
            ("REQUEUE_TARGET_URL", ""),
            ("REQUEUE_TARGET_FUNCTION", "charge:live"),
            (
                "REQUEUE_POLICY",
                r#"{"errorConfigs": {"TEMPORARY": {"baseDelay": 1, "maxDelay": 1}}}"#,
            ),
            ("AWS_ENDPOINT_URL_LAMBDA", api),
        ])
        .await
}

#[tokio::test]
async fn a_function_sees_each_message_as_if_sqs_had_delivered_it_again() {
    let (stage, api) = (Stage::new().await, reporting().await);
    stage.set_max_receive_count(9).await;
    let mut function = requeue_lambda(&stage, &api.url()).await;
    let body = format!(r#"{{"answer":"unavailable","text":"{CANARY}"}}"#);
    let id = stage.send_with(&body, &[("tenant", "acme")]).await;
    let batch = stage.receive().await;
    let mut event = batch.event(&stage.queue);
    event["Records"][0]["newField"] = json!({ "number": 1.0 });
    let ended = function.invoke(&event, TIMEOUT).await;
    assert_eq!(failed(&ended), [""; 0], "a copy is sent");
    stage.acknowledge(&batch, &ended);
    stage.invoke(&mut function, TIMEOUT).await;

    let records = api.records();
    let [first, second] = &records[..] else { panic!("two attempts: {records:?}") };
    let mut expected = event["Records"][0].clone();
    for (name, value) in [("MessageId", &*id), ("Attempt", "1"), ("LastAttempt", "false")] {
        expected["attributes"][format!("Requeue{name}")] = value.into();
    }
    assert_eq!(first, &expected);
    for same in ["messageId", "body", "md5OfBody", "messageAttributes", "md5OfMessageAttributes"] {
        assert_eq!(first[same], second[same], "{same}");
    }
    let attributes = &second["attributes"];
    assert_ne!(attributes["RequeueMessageId"], id.as_str());
    assert_eq!(attributes["RequeueAttempt"], "2");
    assert_eq!(attributes["ApproximateReceiveCount"], "2");
    assert_eq!(attributes["SentTimestamp"], first["attributes"]["SentTimestamp"]);
    let output = function.stop().await;
    assert!(!output.contains(CANARY), "{output}");
}

#[tokio::test]
async fn a_refused_invocation_is_our_trouble_and_uses_no_retry() {
    let refused =
        async |_| -> Answer { (403, "AccessDeniedException", json!({ "Message": CANARY })) };
    let (stage, api) = (Stage::new().await, FunctionApi::start(refused).await);
    let mut function = requeue_lambda(&stage, &api.url()).await;
    for number in 0..3 {
        stage.send(&json!({ "number": number }).to_string()).await;
    }
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert!(matches!(ended, Ended::Response(_)), "{ended:?}");
    assert_eq!(failed(&ended), [""; 0], "copies wait");
    assert_eq!((stage.messages().len(), stage.dead().len()), (3, 0));
    for message in stage.messages() {
        let body = parsed(&message.body).unwrap();
        assert_eq!(body["retryCount"], 0, "{body}");
        assert_eq!(body["retryState"]["deferrals"], 1, "{body}");
    }
    let output = function.stop().await;
    assert_eq!(output.matches("the messages of the target function are deferred").count(), 1);
    assert!(output.contains("charge:live: the role needs lambda:InvokeFunction"), "{output}");
    assert!(!output.contains(CANARY), "{output}");
}

#[tokio::test]
async fn a_500_on_a_connection_that_closes_is_no_error_in_the_log() {
    let api = http::Server::start(|_| async {
        let mut response = http::status(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    });
    let (stage, api) = (Stage::new().await, api.await);
    let mut function = requeue_lambda(&stage, &api.url()).await;
    stage.send("{}").await;
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert!(matches!(ended, Ended::Response(_)), "{ended:?}");
    let output = function.stop().await;
    assert!(output.contains("temporary"), "{output}");
    assert!(!output.contains("ERROR"), "{output}");
}

/// A function of Python that reports the records that say so, and raises an error for another.
const HANDLER: &str = r#"
def handler(event, context):
    if any("raise" in record["body"] for record in event["Records"]):
        raise ValueError("no")
    failed = [record["messageId"] for record in event["Records"] if "unavailable" in record["body"]]
    return {"batchItemFailures": [{"itemIdentifier": id} for id in failed]}
"#;

/// A deployment package, in base64.
fn package() -> String {
    let script = "import base64, io, sys, zipfile\n\
                  file = io.BytesIO()\n\
                  with zipfile.ZipFile(file, 'w') as package: package.writestr('app.py', sys.argv[1])\n\
                  print(base64.b64encode(file.getvalue()).decode(), end='')";
    let written = Command::new("python3").args(["-c", script, HANDLER]).output().expect("Python 3");
    String::from_utf8(written.stdout).unwrap()
}

/// Creates the function in an emulator, under a unique name.
async fn created(url: &str) -> String {
    let name = format!("orders-{}", Uuid::new_v4());
    let credentials = Credentials::new("test", "test", None, None, "test");
    let sdk = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(url)
        .build();
    let function = json!({
        "FunctionName": name,
        "Runtime": "python3.12",
        "Handler": "app.handler",
        "Role": "arn:aws:iam::000000000000:role/orders",
        "Timeout": 5,
        "Code": { "ZipFile": package() },
    });
    let request = Request::post("/2015-03-31/functions").body(function.to_string()).unwrap();
    call(&sdk, Service::Lambda, request, |_| Ok(())).await.unwrap();
    name
}

#[tokio::test]
async fn the_lambda_of_an_emulator_is_invoked() {
    let Some(url) = tool("REQUEUE_TEST_MINISTACK") else { return };
    let name = created(&url).await;
    let stage = Stage::new().await;
    stage.set_max_receive_count(9).await;
    let start = async |name: &str| {
        stage
            .requeue_lambda(&[
                ("REQUEUE_TARGET_URL", ""),
                ("REQUEUE_TARGET_FUNCTION", name),
                ("AWS_ENDPOINT_URL_LAMBDA", &url),
                ("AWS_REGION", "us-east-1"),
            ])
            .await
    };
    let mut function = start(&name).await;
    for body in [r#"{"answer":"unavailable"}"#, "{}", "{}"] {
        stage.send(body).await;
    }
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert!(matches!(ended, Ended::Response(_)), "{ended:?}");
    let [message] = &stage.messages()[..] else { panic!("{:?}", stage.messages()) };
    let body = parsed(&message.body).unwrap();
    assert_eq!((&body["answer"], &body["retryCount"]), (&"unavailable".into(), &1.into()));
    function.stop().await;

    let mut function = start("no-such-function").await;
    stage.send("{}").await;
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert_eq!(failed(&ended), [""; 0], "copies wait");
    assert_eq!(stage.messages().len(), 2);
    let output = function.stop().await;
    assert!(output.contains("ResourceNotFoundException"), "{output}");
}

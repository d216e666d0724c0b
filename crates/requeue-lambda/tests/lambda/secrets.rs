//! Settings that name secrets by ARN: fetched at start from what two independent emulators store,
//! and never shown.

use std::time::{Duration, Instant};

use ::http::{Response, StatusCode};
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http_body_util::Full;
use requeue::aws::SdkConfig;
use requeue_aws::{Service, call_json};
use requeue_testkit::http;
use requeue_testkit::tools::tool;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::stage::{Stage, TIMEOUT};
use crate::target::{NEW, OLD, OTHER, accepted};

/// The region of the ARN counts, not that of the function.
const REGION: &str = "eu-west-1";

/// The stored secrets of this test in the emulators, under unique names.
struct Store {
    sdk: SdkConfig,
    url: String,
}

impl Store {
    /// One in each emulator that there is.
    fn all() -> Vec<Self> {
        ["REQUEUE_TEST_MOTO", "REQUEUE_TEST_MINISTACK"].into_iter().filter_map(Self::at).collect()
    }

    fn at(variable: &str) -> Option<Self> {
        let url = tool(variable)?;
        let credentials = Credentials::new("test", "test", None, None, "test");
        let sdk = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .retry_config(RetryConfig::disabled())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(&url)
            .build();
        Some(Self { sdk, url })
    }

    async fn secrets(&self, operation: &'static str, parameters: Value) -> Value {
        call_json(&self.sdk, Service::SecretsManager, operation, &parameters).await.unwrap()
    }

    async fn parameters(&self, operation: &'static str, parameters: Value) -> Value {
        call_json(&self.sdk, Service::Ssm, operation, &parameters).await.unwrap()
    }

    async fn create(&self, kind: &str, content: &str) -> String {
        let token = Uuid::new_v4().to_string();
        let name = format!("orders/{token}");
        let secret = json!({ "Name": name, kind: content, "ClientRequestToken": token });
        let created = self.secrets("secretsmanager.CreateSecret", secret).await;
        created["ARN"].as_str().unwrap().to_owned()
    }

    /// The ARN of a secret that holds the last of these texts, and before it the others.
    async fn secret(&self, texts: &[&str]) -> String {
        let arn = self.create("SecretString", texts[0]).await;
        for text in &texts[1..] {
            let token = Uuid::new_v4().to_string();
            let put = json!({ "SecretId": arn, "SecretString": text, "ClientRequestToken": token });
            self.secrets("secretsmanager.PutSecretValue", put).await;
        }
        arn
    }

    async fn binary(&self, bytes: &[u8]) -> String {
        self.create("SecretBinary", &BASE64_STANDARD.encode(bytes)).await
    }

    async fn parameter(&self, kind: &str, text: &str) -> String {
        let name = format!("/orders/{}", Uuid::new_v4());
        let parameter = json!({ "Name": name, "Type": kind, "Value": text });
        self.parameters("AmazonSSM.PutParameter", parameter).await;
        let stored = self.parameters("AmazonSSM.GetParameter", json!({ "Name": name })).await;
        stored["Parameter"]["ARN"].as_str().unwrap().to_owned()
    }
}

/// The variables with which the SDK finds both services at `url`.
fn endpoints(url: &str) -> [(&str, &str); 2] {
    [("AWS_ENDPOINT_URL_SECRETS_MANAGER", url), ("AWS_ENDPOINT_URL_SSM", url)]
}

#[tokio::test]
async fn requests_bear_and_are_signed_with_what_is_stored() {
    for store in Store::all() {
        let token = store.secret(&["{\"other\": 1, \"token\": \"canary-token\\n\"}"]).await;
        let plain = store.secret(&["canary-plain\n"]).await;
        let parameter = store.parameter("SecureString", "canary-parameter\n").await;
        let list = store.parameter("StringList", "canary-one,canary-two").await;
        let signing = store.secret(&[OTHER, OLD, NEW]).await;
        let headers = json!({
            "Authorization": format!("Bearer {token}:token::"),
            "X-Plain": format!("{plain} {parameter}"),
            "X-List": list,
            "X-Version": format!("{parameter}:1"),
        });
        let (headers, signing) =
            (headers.to_string(), format!("{signing} {signing}::AWSPREVIOUS:"));

        let stage = Stage::new().await;
        let mut settings = endpoints(&store.url).to_vec();
        settings
            .extend([("REQUEUE_HEADERS", headers.as_str()), ("REQUEUE_SIGNING_SECRET", &signing)]);
        settings.push(("AWS_LAMBDA_LOG_LEVEL", "TRACE"));
        let mut function = stage.requeue_lambda(&settings).await;
        let body = r#"{"answer":"ok"}"#;
        stage.send(body).await;
        stage.invoke(&mut function, TIMEOUT).await;

        let requests = stage.target.requests();
        let [(head, _)] = &requests[..] else {
            panic!("one request: {requests:?}\n{}", function.stop().await)
        };
        let header = |name| head.headers[name].to_str().unwrap();
        assert_eq!(header("authorization"), "Bearer canary-token");
        assert_eq!(header("x-plain"), "canary-plain canary-parameter");
        assert_eq!(
            (header("x-list"), header("x-version")),
            ("canary-one,canary-two", "canary-parameter")
        );
        let signed = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let signed: Value =
            signed.into_iter().map(|name| (name.to_owned(), json!(header(name)))).collect();
        let requests = [NEW, OLD, OTHER]
            .map(|secret| json!({"secret": secret, "headers": signed, "body": body}));
        assert_eq!(accepted(&requests).unwrap_or(vec![true, true, false]), [true, true, false]);
        let log = function.stop().await;
        assert!(!log.contains("canary-") && !log.contains("whsec_"), "{log}");
    }
}

#[tokio::test]
async fn what_cannot_be_fetched_or_used_fails_at_start_with_all_the_rest() {
    for store in Store::all() {
        let secret =
            store.secret(&["{\"token\": \"canary-token\", \"list\": [\"canary-list\"]}"]).await;
        let plain = store.secret(&["canary-plain\r\ncanary: header"]).await;
        let binary = store.binary(b"canary-binary").await;
        let parameter = store.parameter("String", "whsec_canary").await;
        let lost =
            format!("arn:aws:secretsmanager:{REGION}:123456789012:secret:{}", Uuid::new_v4());
        let lost_parameter =
            format!("arn:aws:ssm:{REGION}:123456789012:parameter/{}", Uuid::new_v4());
        let none = "nothing is stored at this ARN, or not in this version";
        let headers = json!({
            "X-A": binary, "X-B": format!("{secret}:Token::"), "X-C": format!("{secret}:list::"), "X-D": plain,
            "X-E": lost, "X-F": lost_parameter, "X-G": format!("{plain}:token::"), "X-H": format!("{secret}::AWSPREVIOUS:"),
        });
        let headers = headers.to_string();
        let stage = Stage::new().await;
        // The variable for all services: SQS has its own.
        let settings = [
            ("AWS_ENDPOINT_URL", store.url.as_str()),
            ("REQUEUE_HEADERS", &headers),
            ("REQUEUE_SIGNING_SECRET", &parameter),
            ("REQUEUE_CONCURRENCY", "0"),
        ];
        let expected = [
            "Error: 10 settings are invalid:".to_owned(),
            "REQUEUE_CONCURRENCY is `0`: must be a whole number from 1 to 1000".to_owned(),
            format!("REQUEUE_HEADERS has `X-A`: {binary}: SecretBinary: it has no text: store it as SecretString"),
            format!("REQUEUE_HEADERS has `X-B`: {secret}:Token::: the stored JSON object has no `Token`"),
            format!("REQUEUE_HEADERS has `X-C`: {secret}:list::: `list` of the stored JSON object is not a text"),
            "REQUEUE_HEADERS has `X-D`: invalid value of header x-d".to_owned(),
            format!("REQUEUE_HEADERS has `X-E`: {lost}: ResourceNotFoundException: {none}"),
            format!("REQUEUE_HEADERS has `X-F`: {lost_parameter}: ParameterNotFound: {none}"),
            format!(
                "REQUEUE_HEADERS has `X-G`: {plain}:token::: the stored text is not a JSON object, so remove the json-key or store an object"
            ),
            format!("REQUEUE_HEADERS has `X-H`: {secret}::AWSPREVIOUS:: ResourceNotFoundException: {none}"),
            "REQUEUE_SIGNING_SECRET number 1 is invalid: a signing secret must be base64 after whsec_, with its padding".to_owned(),
        ];
        // A handler of one's own has no use for the settings of HTTP delivery.
        let alone = ["Error: 1 setting is invalid:".to_owned(), expected[1].clone()];
        for (function, expected) in [
            (stage.requeue_lambda(&settings).await, &expected[..]),
            (stage.trouble(&settings).await, &alone[..]),
        ] {
            let (code, output) = function.ended().await;
            assert_eq!((code, ending(&output)), (Some(1), expected.join("\n  ").as_str()));
        }
    }
}

const SECRET: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf";
const PARAMETER: &str = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders";

/// The text that a program prints at its end, after its lines in the log.
fn ending(output: &str) -> &str {
    let at = output.find("\nError: ").unwrap_or_else(|| panic!("no error in {output}"));
    let (log, ending) = output.split_at(at + 1);
    assert!(log.lines().all(|line| line.starts_with(r#"{"timestamp":"#)), "{output}");
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains(r#""message":"the function cannot start""#), "{output}");
    ending.trim_end()
}

/// Starts the function with a service that gives this response to each request.
async fn refused(status: u16, answer: &'static str) -> String {
    let service = http::Server::start(move |_| async move {
        Response::builder().status(status).body(Full::from(answer)).unwrap()
    });
    let service = service.await;
    let headers =
        json!({"Authorization": format!("Bearer {SECRET}"), "X-Key": PARAMETER}).to_string();
    let url = service.url();
    let mut settings = endpoints(&url).to_vec();
    settings.push(("REQUEUE_HEADERS", &headers));
    let (code, output) = Stage::new().await.requeue_lambda(&settings).await.ended().await;
    assert_eq!(code, Some(1), "{output}");
    assert!(!output.contains("canary"), "{output}");
    output
}

#[tokio::test]
async fn a_stored_policy_counts_and_the_log_says_its_version() {
    const STORED: &str = r#"{"Parameter": {"Value": "{\"errorConfigs\": {\"TEMPORARY\": {\"maxRetries\": 0}}}", "Version": 17}}"#;
    let service = http::Server::start(|_| async {
        Response::builder().status(200).body(Full::from(STORED)).unwrap()
    });
    let service = service.await;
    let url = service.url();
    let settings = [("AWS_ENDPOINT_URL_SSM", url.as_str()), ("REQUEUE_POLICY", PARAMETER)];
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&settings).await;
    stage.send(r#"{"answer":"unavailable"}"#).await;
    stage.invoke(&mut function, TIMEOUT).await;
    let log = function.stop().await;
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lines: Vec<Value> = lines.map(|line| line["fields"].clone()).collect();
    let of = |message: &str| {
        let line = lines.iter().find(|line| line["message"] == message);
        line.unwrap_or_else(|| panic!("no {message} in {log}"))
    };
    let fetched = of("fetched a stored setting");
    assert_eq!([&fetched["arn"], &fetched["version"]], [PARAMETER, "17"], "{log}");
    let message = of("message");
    assert_eq!([&message["disposition"], &message["reason"]], ["dead-letter", "retries-exhausted"]);
}

#[tokio::test]
async fn a_refusal_names_what_the_role_needs() {
    const KMS: &str = "its KMS key must be enabled, and the role needs kms:Decrypt on that key";
    for (status, answer, code, secret, parameter) in [
        (
            400,
            r#"{"__type": "AccessDeniedException", "message": "canary"}"#,
            "AccessDeniedException",
            ": the role needs secretsmanager:GetSecretValue on it",
            ": the role needs ssm:GetParameter on it",
        ),
        (
            400,
            r#"{"__type": "AccessDeniedException", "Message": "Access to KMS is not allowed canary"}"#,
            "AccessDeniedException",
            &format!(": {KMS}"),
            &format!(": {KMS}"),
        ),
        (400, r#"{"__type": "canary canary\n", "message": "canary"}"#, "Unknown", "", ""),
    ] {
        let output = refused(status, answer).await;
        let expected = [
            "Error: 2 settings are invalid:".to_owned(),
            format!("REQUEUE_HEADERS has `Authorization`: {SECRET}: {code}{secret}"),
            format!("REQUEUE_HEADERS has `X-Key`: {PARAMETER}: {code}{parameter}"),
        ];
        assert_eq!(ending(&output), expected.join("\n  "), "{answer}");
    }
    for status in [200, 400] {
        let output = refused(status, "canary").await;
        assert!(output.ends_with(&format!("{PARAMETER}: UnreadableResponse\n")), "{output}");
    }
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_service_that_does_not_answer_holds_up_the_start_for_a_bounded_time() {
    const NETWORK: &str =
        "a function in a VPC needs a NAT gateway or an interface endpoint of the service";
    let silent = http::Server::start(|_| std::future::pending()).await;
    let silent = silent.url();
    let headers =
        json!({"Authorization": format!("Bearer {SECRET}"), "X-Key": PARAMETER}).to_string();
    // No server listens on the port of tcpmux.
    let absent = "http://127.0.0.1:1";
    let anonymous = [("AWS_ACCESS_KEY_ID", ""), ("AWS_EC2_METADATA_DISABLED", "true")];
    for (url, more, expected) in [
        (silent.as_str(), &[][..], format!("TimedOut: {NETWORK}")),
        (absent, &[], format!("NoConnection: connection refused: {NETWORK}")),
        (
            absent,
            &anonymous,
            "RequestNotBuilt: set AWS credentials in the environment, if there are none".to_owned(),
        ),
    ] {
        let settings = [&endpoints(url), more, &[("REQUEUE_HEADERS", headers.as_str())]].concat();
        let stage = Stage::new().await;
        let started = Instant::now();
        let (code, output) = stage.requeue_lambda(&settings).await.ended().await;
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "Lambda would have dead-lettered: {:?}",
            started.elapsed()
        );
        assert_eq!(code, Some(1), "{output}");
        for arn in [SECRET, PARAMETER] {
            assert!(output.contains(&format!("{arn}: {expected}\n")), "{output}");
        }
    }
}

#[tokio::test]
async fn nobody_is_asked_where_no_secret_is_named() {
    let service = http::Server::start(|_| async { http::status(StatusCode::OK) }).await;
    let url = service.url();
    let mut settings = endpoints(&url).to_vec();
    settings
        .push(("REQUEUE_HEADERS", r#"{"X-Queue": "arn:aws:sqs:eu-west-1:123456789012:orders"}"#));
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&settings).await;
    stage.send("{}").await;
    stage.invoke(&mut function, TIMEOUT).await;
    assert_eq!((stage.target.requests().len(), service.accepted()), (1, 0));
}

//! The invoker against a server on loopback that responds as the Invoke API does.

use ::http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use requeue::aws::SdkConfig;
use requeue::{QueueSettings, Settings};
use requeue_aws::Region;
use requeue_testkit::http::Server;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::super::connection::MAX_ANSWER;
use super::*;

/// The function at this address.
fn function(name: &str, url: &str) -> LambdaFunction {
    let credentials = aws_sdk_sqs::config::Credentials::new("key", "secret", None, None, "test");
    let credentials = aws_sdk_sqs::config::SharedCredentialsProvider::new(credentials);
    let sdk = SdkConfig::builder()
        .behavior_version(aws_sdk_sqs::config::BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(credentials)
        .endpoint_url(url)
        .build();
    LambdaFunction::new(name.parse().expect("a name"), &sdk).expect("TLS can be set up")
}

/// A response of the API: status, headers and body.
type Answer = (u16, &'static [(&'static str, &'static str)], &'static str);

fn response((status, headers, body): Answer) -> Response<Full<bytes::Bytes>> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Full::from(body)).expect("a response")
}

async fn answered(answer: Answer) -> Result<Invoked, InvokeError> {
    let server = Server::start(move |_| async move { response(answer) }).await;
    function("orders", &server.url()).invoke(b"{}".to_vec()).await
}

#[tokio::test]
async fn an_invocation_is_the_request_of_the_api() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(move |request: Request<Incoming>| {
        let tell = tell.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("the body arrives").to_bytes();
            tell.send((head, body)).expect("the test waits for it");
            response((200, &[("X-Amz-Executed-Version", "$LATEST")], r#"{"ok":true}"#))
        }
    })
    .await;
    let arn = "arn:aws:lambda:eu-central-1:123456789012:function:orders:live";
    let invoked = function(arn, &server.url()).invoke(br#"{"Records":[]}"#.to_vec()).await;
    let payload = br#"{"ok":true}"#.to_vec();
    assert_eq!(invoked, Ok(Invoked { payload, is_error: false }));
    let (head, body) = told.recv().await.expect("a request");
    let path = "arn%3Aaws%3Alambda%3Aeu-central-1%3A123456789012%3Afunction%3Aorders";
    assert_eq!(head.method, "POST");
    assert_eq!(
        head.uri.to_string(),
        format!("/2015-03-31/functions/{path}/invocations?Qualifier=live")
    );
    assert_eq!(head.headers["x-amz-invocation-type"], "RequestResponse");
    assert_eq!(head.headers["content-type"], "application/json");
    let signature = head.headers["authorization"].to_str().expect("a text");
    assert!(signature.contains("/eu-central-1/lambda/aws4_request"), "{signature}");
    assert_eq!(body, &br#"{"Records":[]}"#[..]);
}

#[tokio::test]
async fn an_error_of_the_function_is_an_answer() {
    let body = r#"{"errorMessage":"no","errorType":"ValueError"}"#;
    for kind in ["Unhandled", "Handled"] {
        let headers: &'static [_] = Box::leak(Box::new([("X-Amz-Function-Error", kind)]));
        let invoked = answered((200, headers, body)).await;
        assert_eq!(invoked, Ok(Invoked { payload: body.into(), is_error: true }), "{kind}");
    }
}

#[tokio::test]
async fn a_long_answer_is_cut() {
    let body: &'static str = Box::leak("x".repeat(MAX_ANSWER + 1).into_boxed_str());
    for (length, kept) in
        [(MAX_ANSWER - 1, MAX_ANSWER - 1), (MAX_ANSWER, MAX_ANSWER), (MAX_ANSWER + 1, MAX_ANSWER)]
    {
        let invoked = answered((200, &[], &body[..length])).await.expect("an answer");
        assert_eq!(invoked.payload.len(), kept, "{length}");
        assert!(!format!("{invoked:?}").contains("xx"), "it may be secret");
    }
}

/// Each error of the API has a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Throttled,
    Refused,
    TooLarge,
    Rejected,
    Lost,
}

fn kind(error: &InvokeError) -> Kind {
    match error {
        InvokeError::Throttled { .. } => Kind::Throttled,
        InvokeError::Refused { .. } => Kind::Refused,
        InvokeError::TooLarge => Kind::TooLarge,
        InvokeError::Rejected { .. } => Kind::Rejected,
        InvokeError::Lost { .. } => Kind::Lost,
    }
}

/// The errors of the operation `Invoke` and their status, from the service's model in botocore
/// 1.44, and others that the documentation names.
const ERRORS: [(u16, &str, Kind); 55] = [
    (429, "TooManyRequestsException", Kind::Throttled),
    (502, "EC2ThrottledException", Kind::Throttled),
    (502, "EC2UnexpectedException", Kind::Throttled),
    (502, "ENILimitReachedException", Kind::Throttled),
    (502, "ENINotReadyException", Kind::Throttled),
    (502, "SubnetIPAddressLimitReachedException", Kind::Throttled),
    (409, "CodeArtifactUserPendingException", Kind::Throttled),
    (502, "ResourceNotReadyException", Kind::Throttled),
    (409, "ResourceConflictException", Kind::Throttled),
    (402, "ServiceQuotaExceededException", Kind::Throttled),
    (409, "SnapStartNotReadyException", Kind::Throttled),
    (408, "SnapStartTimeoutException", Kind::Throttled),
    (408, "EFSMountConnectivityException", Kind::Throttled),
    (408, "EFSMountTimeoutException", Kind::Throttled),
    (408, "S3FilesMountConnectivityException", Kind::Throttled),
    (408, "S3FilesMountTimeoutException", Kind::Throttled),
    (403, "AccessDeniedException", Kind::Refused),
    (404, "ResourceNotFoundException", Kind::Refused),
    (400, "NoPublishedVersionException", Kind::Refused),
    (502, "InvalidRuntimeException", Kind::Refused),
    (409, "RuntimeAliasDeletedException", Kind::Refused),
    (409, "RuntimeVersionDeletedException", Kind::Refused),
    (502, "InvalidZipFileException", Kind::Refused),
    (409, "CodeArtifactUserDeletedException", Kind::Refused),
    (409, "CodeArtifactUserFailedException", Kind::Refused),
    (502, "KMSAccessDeniedException", Kind::Refused),
    (502, "KMSDisabledException", Kind::Refused),
    (502, "KMSInvalidStateException", Kind::Refused),
    (502, "KMSNotFoundException", Kind::Refused),
    (502, "InvalidSecurityGroupIDException", Kind::Refused),
    (502, "InvalidSubnetIDException", Kind::Refused),
    (502, "EC2AccessDeniedException", Kind::Refused),
    (410, "EFSIOException", Kind::Refused),
    (403, "EFSMountFailureException", Kind::Refused),
    (403, "S3FilesMountFailureException", Kind::Refused),
    (400, "SnapStartException", Kind::Refused),
    (409, "SnapStartRegenerationFailureException", Kind::Refused),
    (400, "RecursiveInvocationException", Kind::Refused),
    (400, "ModeNotSupportedException", Kind::Refused),
    (400, "InvalidParameterValueException", Kind::Refused),
    (409, "DurableExecutionAlreadyStartedException", Kind::Rejected),
    (400, "InvalidRequestContentException", Kind::Rejected),
    (415, "UnsupportedMediaTypeException", Kind::Rejected),
    (413, "RequestTooLargeException", Kind::TooLarge),
    (413, "SerializedRequestEntityTooLargeException", Kind::TooLarge),
    (500, "ServiceException", Kind::Lost),
    (403, "ExpiredTokenException", Kind::Refused),
    (403, "UnrecognizedClientException", Kind::Refused),
    (400, "ThrottlingException", Kind::Throttled),
    (403, "SomethingNew", Kind::Refused),
    (404, "SomethingNew", Kind::Refused),
    (429, "SomethingNew", Kind::Throttled),
    (400, "SomethingNew", Kind::Rejected),
    (503, "SomethingNew", Kind::Lost),
    (504, "SomethingNew", Kind::Lost),
];

#[tokio::test]
async fn each_error_of_the_api_has_its_kind() {
    let server = Server::start(|request: Request<Incoming>| async move {
        let number: usize =
            request.uri().path().split('/').nth(3).expect("a name").parse().expect("a number");
        let (status, code, _) = ERRORS[number];
        let body = r#"{"Type":"User","Message":"s3cret words"}"#;
        let response = Response::builder().status(status).header("x-amzn-ErrorType", code);
        response
            .header("content-type", "application/json")
            .body(Full::from(body))
            .expect("a response")
    })
    .await;
    for (number, (status, code, expected)) in ERRORS.into_iter().enumerate() {
        let error = function(&number.to_string(), &server.url()).invoke(b"{}".to_vec()).await;
        let error = error.expect_err(code);
        assert_eq!(kind(&error), expected, "{status} {code}: {error:?}");
        let words = error.to_string();
        assert!(!words.contains("s3cret"), "{words}");
        assert_eq!(words.contains(code), expected != Kind::TooLarge, "{words}");
    }
}

#[tokio::test]
async fn a_throttle_names_its_time_and_a_conflict_its_state() {
    let throttle = r#"{"Reason":"ReservedFunctionConcurrentInvocationLimitExceeded","Type":"User","message":"Rate Exceeded."}"#;
    let code = ("x-amzn-ErrorType", "TooManyRequestsException");
    let with_time: &[_] = &[code, ("Retry-After", "7")];
    for (headers, expected) in [(with_time, Some(7)), (&[code][..], None)] {
        let headers: &'static [_] = Box::leak(headers.to_vec().into_boxed_slice());
        let error = answered((429, headers, throttle)).await.expect_err("a throttle");
        assert_eq!(error, throttled(expected));
    }
    for (state, expected) in
        [("Pending", Kind::Throttled), ("Failed", Kind::Refused), ("Inactive", Kind::Throttled)]
    {
        let body = format!(
            r#"{{"Type":"User","Message":"The operation cannot be performed at this time. The function is currently in the following state: {state}"}}"#
        );
        let body: &'static str = Box::leak(body.into_boxed_str());
        let code: &[_] = &[("x-amzn-ErrorType", "ResourceConflictException")];
        let error = answered((409, code, body)).await.expect_err("a conflict");
        assert_eq!(kind(&error), expected, "{state}");
    }
}

#[tokio::test]
async fn a_function_that_needs_further_parameters_names_them() {
    for (message, words) in [
        (
            "The invoked function is enabled with tenancy configuration. Add a valid tenant ID in your request and try again.",
            "without TenancyConfig",
        ),
        (
            "You cannot invoke a durable function using an unqualified ARN.",
            "needs a version or an alias",
        ),
        (
            "You cannot synchronously invoke a durable function with an executionTimeout greater than 15 minutes.",
            "900 s at most",
        ),
        ("s3cret: arn:aws:lambda:eu-west-1:1:function:tenant", "check REQUEUE_TARGET_FUNCTION"),
    ] {
        let body = format!(r#"{{"Type":"User","message":"{message}"}}"#);
        let body: &'static str = Box::leak(body.into_boxed_str());
        let code: &[_] = &[("x-amzn-ErrorType", "InvalidParameterValueException")];
        let error = answered((400, code, body)).await.expect_err("a refusal");
        let said = error.to_string();
        assert_eq!(kind(&error), Kind::Refused, "{said}");
        assert!(said.contains(words) && !said.contains("s3cret"), "{said}");
    }
}

#[tokio::test]
async fn a_gateways_error_is_none_of_the_api() {
    for (status, expected) in
        [(502, Kind::Lost), (408, Kind::Lost), (403, Kind::Refused), (429, Kind::Throttled)]
    {
        let error = answered((status, &[], "<html>s3cret</html>")).await.expect_err("an error");
        assert_eq!(kind(&error), expected, "{status}");
        assert!(error.to_string().contains(&format!("HTTP {status}")), "{error}");
    }
}

#[tokio::test]
async fn a_broken_connection_is_lost_and_one_that_was_never_made_is_refused() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let accepting = tokio::spawn(async move {
        let mut accepted = 0;
        while let Ok(Ok((mut stream, _))) =
            tokio::time::timeout(Duration::from_secs(1), listener.accept()).await
        {
            accepted += 1;
            let _ = stream.read(&mut [0; 16]).await;
        }
        accepted
    });
    let function = function("orders", &url);
    let error = function.invoke(b"{}".to_vec()).await.expect_err("it is closed");
    assert_eq!(error, InvokeError::Lost { code: "ConnectionLost".to_owned() });
    assert_eq!(accepting.await.expect("no panic"), 1, "it is not tried again");
    let error = function.invoke(b"{}".to_vec()).await.expect_err("nobody listens");
    assert!(
        matches!(&error, InvokeError::Refused { code, .. } if code == "NoConnection: connection refused"),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_event_beyond_the_limit_is_not_sent() {
    let server = Server::start(|_| async { response((200, &[], "{}")) }).await;
    let function = function("orders", &server.url());
    for (length, expected) in [(6 * 1024 * 1024, true), (6 * 1024 * 1024 + 1, false)] {
        let invoked = function.invoke(vec![b' '; length]).await;
        assert_eq!(invoked != Err(InvokeError::TooLarge), expected, "{length}");
    }
    assert_eq!(server.accepted(), 1);
}

/// The kernel's table of sockets shows the timer of each: 02 is the one of keep-alive.
#[tokio::test]
async fn the_connection_of_a_long_invocation_is_kept_alive() {
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(move |_| {
        begun.send(()).expect("the test waits for it");
        async { std::future::pending().await }
    })
    .await;
    let (function, port) = (function("orders", &server.url()), server.port());
    let invoking = tokio::spawn(async move { function.invoke(b"{}".to_vec()).await });
    begins.recv().await.expect("an invocation");
    let timer = || {
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux has it");
        sockets.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_ours = fields.get(2)?.ends_with(&format!(":{port:04X}"));
            is_ours.then(|| fields[5].split(':').next().unwrap_or_default().to_owned())
        })
    };
    // The acknowledgement of the request may be under way.
    for _ in 0..100 {
        if timer().as_deref() == Some("02") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(timer().as_deref(), Some("02"));
    invoking.abort();
}

#[tokio::test]
async fn the_time_limit_of_a_call_is_the_functions_own_and_no_less() {
    let configuration: Answer =
        (200, &[], r#"{"FunctionName":"orders","Timeout":60,"State":"Active"}"#);
    let denied: Answer = (403, &[("x-amzn-ErrorType", "AccessDeniedException")], "{}");
    let durable: Answer = (200, &[], r#"{"Timeout":3,"DurableConfig":{"ExecutionTimeout":100}}"#);
    let endless: Answer =
        (200, &[], r#"{"Timeout":3,"DurableConfig":{"ExecutionTimeout":31622400}}"#);
    let strange: Answer = (200, &[], r#"{"Timeout":100000}"#);
    for (answer, limit, expected) in [
        (configuration, LONGEST_CALL.as_secs(), 75),
        (configuration, 30, 75),
        (configuration, 100, 100),
        // The function may run for as long as any.
        (denied, 30, 915),
        (denied, 2_000, 915),
        (strange, 30, 915),
        (durable, 30, 115),
        (endless, 30, 915),
    ] {
        let server = Server::start(move |request: Request<Incoming>| async move {
            let path = "/2015-03-31/functions/orders/configuration?Qualifier=live";
            assert_eq!(request.uri(), path);
            response(answer)
        })
        .await;
        let mut own = QueueSettings::default();
        own.timeout = Some(Duration::from_secs(limit));
        let mut settings = Settings::default().policy_for("refunds", own);
        settings.limits.timeout = Duration::from_secs(limit);
        function("orders:live", &server.url()).fit(&mut settings).await;
        for queue in ["orders", "refunds"] {
            let fitted = settings.of_queue(queue).limits.timeout;
            assert_eq!(fitted, Duration::from_secs(expected), "{limit} {queue}");
        }
    }
}

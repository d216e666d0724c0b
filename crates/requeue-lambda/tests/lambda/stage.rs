//! Everything around a function: its queue and dead-letter queue, its HTTP target, its process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::request::Parts;
use ::http::{Request, Response, StatusCode};
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use requeue::Clock;
use requeue::embedded::{
    Batch, EmbeddedSqs, EventSourceMapping, InvocationResult, MessageView, Server,
};
use requeue::queue::QueueArn;
use requeue_testkit::http;
use serde_json::Value;

use crate::runtime_api::{Ended, Function};

/// The timeout of a function, unless a test is about it.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A setting for batches in which some messages fail, and the others are to be handled all the
/// same.
pub const UNPROTECTED: (&str, &str) =
    ("REQUEUE_POLICY", r#"{"maxPauseSeconds": "off", "circuitBreaker": "off"}"#);

/// Text that must never be seen in a log.
pub const CANARY: &str = "canary-body-text";

pub struct Stage {
    pub sqs: EmbeddedSqs,
    pub queue: QueueArn,
    pub dead_letters: QueueArn,
    pub target: Target,
    server: Server,
}

impl Stage {
    pub async fn new() -> Self {
        Self::with("", &[]).await
    }

    /// With FIFO queues.
    pub async fn fifo() -> Self {
        Self::with(".fifo", &[("ContentBasedDeduplication", "true")]).await
    }

    async fn with(suffix: &str, attributes: &[(&str, &str)]) -> Self {
        let sqs = EmbeddedSqs::new(Clock::system());
        let create = |name, more: &[(&str, &str)]| {
            let attributes = attributes.iter().chain(more).copied();
            sqs.create_queue(&format!("{name}{suffix}"), attributes).unwrap()
        };
        let dead_letters = create("orders-dlq", &[]);
        let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":2}}"#);
        let queue = create("orders", &[("VisibilityTimeout", "2"), ("RedrivePolicy", &redrive)]);
        let server = sqs.serve(0).await.unwrap();
        Self { sqs, queue, dead_letters, target: Target::start().await, server }
    }

    /// Where SQS is.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The dead-letter queue as the settings name it.
    pub fn dead_letter_url(&self) -> String {
        self.dead_letters.url_at(&self.server.url())
    }

    /// The ready Lambda, posting to this stage's target.
    pub async fn requeue_lambda(&self, settings: &[(&str, &str)]) -> Function {
        let url = self.target.server.url();
        let mut environment = vec![
            ("AWS_ENDPOINT_URL_SQS", self.server.url()),
            ("REQUEUE_TARGET_URL", format!("{url}/?{CANARY}")),
        ];
        environment.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
        Self::start(env!("CARGO_BIN_EXE_requeue-lambda"), &environment).await
    }

    /// The Lambda on the library that does to itself what a message says.
    pub async fn trouble(&self, settings: &[(&str, &str)]) -> Function {
        self.example("trouble", settings).await
    }

    pub async fn example(&self, name: &str, settings: &[(&str, &str)]) -> Function {
        let tests = std::env::current_exe().unwrap();
        let path = tests.ancestors().nth(2).unwrap().join("examples").join(name);
        assert!(path.exists(), "build it first: cargo build --examples");
        let mut environment = vec![("AWS_ENDPOINT_URL_SQS", self.server.url())];
        environment.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
        Self::start(path.to_str().unwrap(), &environment).await
    }

    async fn start(binary: &str, environment: &[(&str, String)]) -> Function {
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Function::start(binary, &environment).await
    }

    /// Sends a message, which may fail.
    pub async fn try_send(&self, body: &str) {
        let _ = self
            .sqs
            .client()
            .send_message()
            .queue_url(self.queue.url())
            .message_body(body)
            .send()
            .await;
    }

    /// Sends a message; on a FIFO queue all are of one group.
    pub async fn send(&self, body: &str) -> String {
        self.send_with(body, &[]).await
    }

    /// Sends a message with attributes of the type `String`.
    pub async fn send_with(&self, body: &str, attributes: &[(&str, &str)]) -> String {
        let group = self.queue.is_fifo().then(|| "customer".to_owned());
        let mut request =
            self.sqs.client().send_message().queue_url(self.queue.url()).message_body(body);
        for (name, value) in attributes {
            let value = MessageAttributeValue::builder().data_type("String").string_value(*value);
            request = request.message_attributes(*name, value.build().unwrap());
        }
        let sent = request.set_message_group_id(group).send().await.unwrap();
        sent.message_id().unwrap().to_owned()
    }

    fn mapping(&self) -> EventSourceMapping {
        EventSourceMapping::new(self.sqs.clone(), self.queue.clone(), 100)
    }

    pub async fn set_max_receive_count(&self, count: u32) {
        let redrive = format!(
            r#"{{"deadLetterTargetArn":"{}","maxReceiveCount":{count}}}"#,
            self.dead_letters
        );
        let request = self.sqs.client().set_queue_attributes().queue_url(self.queue.url());
        request.attributes(QueueAttributeName::RedrivePolicy, redrive).send().await.unwrap();
    }

    /// Receives what is in the queue as one batch, if there is anything before long.
    pub async fn poll(&self) -> Option<Batch> {
        self.mapping().poll(Duration::from_secs(5)).await.unwrap()
    }

    /// Receives what is in the queue as one batch.
    pub async fn receive(&self) -> Batch {
        self.poll().await.expect("a message")
    }

    /// One invocation with all that is in the queue, as Lambda does it.
    pub async fn invoke(&self, function: &mut Function, timeout: Duration) -> (Batch, Ended) {
        let batch = self.receive().await;
        let ended = function.invoke(&batch.event(&self.queue), timeout).await;
        self.acknowledge(&batch, &ended);
        (batch, ended)
    }

    pub fn acknowledge(&self, batch: &Batch, ended: &Ended) {
        let answer = match ended {
            Ended::Response(response) => {
                InvocationResult::Response(serde_json::to_vec(response).unwrap())
            }
            Ended::Error(_) | Ended::Crashed | Ended::TimedOut => InvocationResult::FunctionError,
        };
        self.mapping().acknowledge(batch, &answer).unwrap();
    }

    pub fn messages(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.queue).unwrap()
    }

    pub fn dead(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.dead_letters).unwrap()
    }

    /// The ids of the messages in both queues, and for each copy the id that it had at first.
    pub fn ids(&self) -> Vec<(String, Option<String>)> {
        let original = |message: &MessageView| {
            Some(json(&message.body)?["originalMessageId"].as_str()?.to_owned())
        };
        self.messages()
            .iter()
            .chain(&self.dead())
            .map(|message| (message.id.clone(), original(message)))
            .collect()
    }
}

pub fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// The ids in `batchItemFailures`, sorted.
pub fn failed(ended: &Ended) -> Vec<String> {
    let Ended::Response(response) = ended else { panic!("the function did not answer: {ended:?}") };
    let items = response["batchItemFailures"].as_array().expect("a list");
    let mut ids: Vec<String> =
        items.iter().map(|item| item["itemIdentifier"].as_str().unwrap().to_owned()).collect();
    ids.sort_unstable();
    ids
}

/// An HTTP service that responds as the message's field `answer` says, and records its requests.
pub struct Target {
    pub server: http::Server,
    requests: Arc<Mutex<Vec<(Parts, String)>>>,
}

impl Target {
    async fn start() -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let server = http::Server::start(move |request| answer(request, Arc::clone(&log))).await;
        Self { server, requests }
    }

    /// The requests in order: method and headers, and the body.
    pub fn requests(&self) -> Vec<(Parts, String)> {
        self.requests.lock().unwrap().clone()
    }

    pub fn bodies(&self) -> Vec<String> {
        self.requests().into_iter().map(|(_, body)| body).collect()
    }
}

/// A response text that must have no effect in a log: line ends, colours, a metric.
const HOSTILE: &str = "\r\n\u{1b}[31m{\"_aws\":{\"CloudWatchMetrics\":[]}}\n{\"level\":\"INFO\"}";

async fn answer(
    request: Request<Incoming>,
    requests: Arc<Mutex<Vec<(Parts, String)>>>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    let wish = json(&text)
        .and_then(|body| Some(body.get("answer")?.as_str()?.to_owned()))
        .unwrap_or_default();
    requests.lock().unwrap().push((head, text));
    let reason =
        |reason| Full::from(format!(r#"{{"error":{{"errors":[{{"reason":"{reason}"}}]}}}}"#));
    let mut response = match wish.as_str() {
        "rate-limit" => http::status(StatusCode::TOO_MANY_REQUESTS),
        "unavailable" => http::status(StatusCode::SERVICE_UNAVAILABLE),
        "gateway-timeout" => http::status(StatusCode::GATEWAY_TIMEOUT),
        "quota" => Response::builder().status(403).body(reason("quotaExceeded")).unwrap(),
        "invalid" => http::status(StatusCode::BAD_REQUEST),
        "hostile" => Response::builder().status(400).body(reason(HOSTILE)).unwrap(),
        "hostile-text" => {
            Response::builder().status(503).body(Full::from(format!("{HOSTILE}{CANARY}"))).unwrap()
        }
        "hang" | "reset" => std::future::pending().await,
        _ => http::status(StatusCode::OK),
    };
    if wish == "rate-limit" {
        response.headers_mut().insert("retry-after", "40".parse().unwrap());
    }
    response
}

//! A queue with its dead-letter queue, a target that answers as messages wish and takes down its
//! calls, and workers between them.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ::http::{Request, Response, StatusCode};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{QueueAttributeName as Name, SendMessageBatchRequestEntry};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use requeue_testkit::http;
use serde_json::Value;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::proxy::Version;

/// How long a process may take to end by itself: many times what it needs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Delays of a second or two, three retries; and no circuit breaker, which would spare the target
/// most of the calls of messages that always fail.
const POLICY: &str = r#"{"maxRetries": 3, "totalTimeoutSeconds": 3600, "jitter": "none", "circuitBreaker": "off",
    "errorConfigs": {"DEFAULT": {"backoff": "linear", "baseDelay": 1, "maxDelay": 2}}}"#;

pub struct Shop {
    pub client: Client,
    endpoint: String,
    pub queue: String,
    pub dead_letters: String,
    target: http::Server,
    calls: Calls,
    begun: Arc<AtomicUsize>,
}

type Calls = Arc<Mutex<Vec<Call>>>;

/// A message came to the target.
#[derive(Clone, Debug)]
pub struct Call {
    pub n: usize,
    pub version: Version,
    /// When it came.
    pub at: Instant,
    pub is_accepted: bool,
}

impl Shop {
    /// On an SQS at this endpoint.
    pub async fn open(endpoint: &str, name: &str) -> Self {
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(endpoint)
            .build();
        let client = Client::from_conf(config);
        let create = async |name: String, attributes: &[(Name, String)]| {
            let attributes = attributes.iter().cloned().collect();
            let created = client
                .create_queue()
                .queue_name(name)
                .set_attributes(Some(attributes))
                .send()
                .await
                .unwrap();
            created.queue_url().unwrap().to_owned()
        };
        let dead_letters = create(format!("{name}-dlq"), &[]).await;
        let asked =
            client.get_queue_attributes().queue_url(&dead_letters).attribute_names(Name::QueueArn);
        let arn = asked.send().await.unwrap().attributes().unwrap()[&Name::QueueArn].clone();
        let redrive = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"3"}}"#);
        let attributes =
            [(Name::VisibilityTimeout, "5".to_owned()), (Name::RedrivePolicy, redrive)];
        let queue = create(name.to_owned(), &attributes).await;
        let calls = Calls::default();
        let log = Arc::clone(&calls);
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let target = http::Server::start(move |request| {
            count.fetch_add(1, Ordering::SeqCst);
            answer(request, Arc::clone(&log))
        });
        Self {
            client,
            endpoint: endpoint.to_owned(),
            queue,
            dead_letters,
            target: target.await,
            calls,
            begun,
        }
    }

    pub async fn send(&self, bodies: Vec<String>) {
        let chunks: Vec<Vec<String>> = bodies.chunks(10).map(<[String]>::to_vec).collect();
        let sends = chunks.into_iter().map(async |chunk| {
            let entries = chunk.into_iter().enumerate().map(|(at, body)| {
                SendMessageBatchRequestEntry::builder()
                    .id(at.to_string())
                    .message_body(body)
                    .build()
                    .unwrap()
            });
            let request = self.client.send_message_batch().queue_url(&self.queue);
            let answer = request.set_entries(Some(entries.collect())).send().await.unwrap();
            assert!(answer.failed().is_empty());
        });
        stream::iter(sends).buffer_unordered(8).collect::<()>().await;
    }

    /// As [`send`](Self::send); some messages may fail.
    pub async fn try_send(&self, bodies: Vec<String>) {
        for body in bodies {
            let _ =
                self.client.send_message().queue_url(&self.queue).message_body(body).send().await;
        }
    }

    /// A worker at work; more settings may follow.
    pub fn worker(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Worker {
        let command =
            [&[env!("CARGO_BIN_EXE_requeue"), "work", &self.queue][..], arguments].concat();
        self.started(&command, settings)
    }

    /// As [`worker`](Self::worker), started by another command that becomes the worker.
    pub fn started(&self, command: &[&str], settings: &[(&str, &str)]) -> Worker {
        let child = self.command(command, settings).spawn().unwrap();
        // Read all the while: a worker that cannot write its log waits.
        Worker { id: child.id().expect("it runs"), output: tokio::spawn(child.wait_with_output()) }
    }

    /// A command in the environment of a worker.
    pub fn command(&self, command: &[&str], settings: &[(&str, &str)]) -> Command {
        let mut child = Command::new(command[0]);
        child
            .args(&command[1..])
            .env_clear()
            .envs([
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("AWS_REGION", "us-east-1"),
                ("AWS_ENDPOINT_URL_SQS", &self.endpoint),
                ("REQUEUE_TARGET_URL", &self.target.url()),
                ("REQUEUE_POLICY", POLICY),
                ("REQUEUE_TIMEOUT_SECONDS", "20"),
            ])
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        child
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Waits until the target was called so often.
    pub async fn called(&self, times: usize) {
        let reached = async {
            while self.calls.lock().unwrap().len() < times {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, reached).await.expect("the worker works");
    }

    /// Waits until so many calls have begun.
    pub async fn begun(&self, times: usize) {
        let reached = async {
            while self.begun.load(Ordering::SeqCst) < times {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, reached).await.expect("the worker works");
    }

    /// How many messages of a queue are visible, delayed and in flight.
    pub async fn counts(&self, queue: &str) -> [usize; 3] {
        let asked = self
            .client
            .get_queue_attributes()
            .queue_url(queue)
            .attribute_names(Name::All)
            .send()
            .await;
        let answer = asked.unwrap();
        let count = |name| answer.attributes().unwrap()[&name].parse().unwrap();
        [
            count(Name::ApproximateNumberOfMessages),
            count(Name::ApproximateNumberOfMessagesDelayed),
            count(Name::ApproximateNumberOfMessagesNotVisible),
        ]
    }

    /// The numbers of the messages in the dead-letter queue, and how often each is there. They are
    /// deleted.
    pub async fn dead(&self) -> BTreeMap<usize, usize> {
        let mut dead = BTreeMap::new();
        loop {
            let request = self
                .client
                .receive_message()
                .queue_url(&self.dead_letters)
                .max_number_of_messages(10);
            let received = request.visibility_timeout(600).send().await.unwrap();
            if received.messages().is_empty() {
                return dead;
            }
            for message in received.messages() {
                *dead.entry(number(message.body().unwrap())).or_default() += 1;
            }
        }
    }
}

pub fn epoch_millis() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

fn number(body: &str) -> usize {
    let body: Value = serde_json::from_str(body).unwrap();
    usize::try_from(body["n"].as_u64().unwrap()).unwrap()
}

/// Responds to `{"answer": "quota", "times": 2}` twice with a quota, and then accepts it; with
/// `"until"`, it accepts it from this time of the clock, in milliseconds.
async fn answer(request: Request<Incoming>, calls: Calls) -> Response<Full<Bytes>> {
    let at = Instant::now();
    let header = |name| request.headers()[name].to_str().unwrap();
    let retries = header("x-requeue-retry-count").parse().unwrap();
    let version = Version { original: header("idempotency-key").to_owned(), retries };
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    if let Some(millis) = body["work"].as_u64() {
        sleep(Duration::from_millis(millis)).await;
    }
    let wish = body["answer"]
        .as_str()
        .filter(|_| body["times"].as_u64().is_none_or(|times| retries < times))
        .filter(|_| body["until"].as_u64().is_none_or(|until| epoch_millis() < until));
    calls.lock().unwrap().push(Call {
        n: usize::try_from(body["n"].as_u64().unwrap()).unwrap(),
        version,
        at,
        is_accepted: wish.is_none(),
    });
    let reason = r#"{"error":{"errors":[{"reason":"quotaExceeded"}]}}"#;
    match wish {
        None => http::status(StatusCode::OK),
        Some("rate-limit") => http::status(StatusCode::TOO_MANY_REQUESTS),
        Some("quota") => Response::builder().status(403).body(Full::from(reason)).unwrap(),
        Some("unavailable") => http::status(StatusCode::SERVICE_UNAVAILABLE),
        Some("broken") => http::status(StatusCode::INTERNAL_SERVER_ERROR),
        Some(_) => http::status(StatusCode::BAD_REQUEST),
    }
}

/// A process of `requeue work`.
pub struct Worker {
    id: u32,
    output: JoinHandle<std::io::Result<Output>>,
}

impl Worker {
    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn signal(&self, signal: &str) {
        assert!(!self.output.is_finished(), "it runs");
        let id = self.id.to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// How it ended: its status, or `None` by a signal; and what it said.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let in_time = timeout(PATIENCE, &mut self.output).await;
        let (output, is_late) = if let Ok(output) = in_time {
            (output, false)
        } else {
            self.signal("-TERM");
            (self.output.await, true)
        };
        let output = output.unwrap().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(!is_late, "it goes on: {said}");
        (output.status.code(), said)
    }
}

//! A Lambda Runtime API on loopback, and a function process that talks to it.
//!
//! Source of the paths and headers: Lambda developer guide, "Using the Lambda runtime API for
//! custom runtimes".

use std::collections::HashMap;
use std::future::pending;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use requeue_testkit::{environment, http};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};

/// The lineage of each invocation; Lambda's loop detection counts by `Lineage`.
pub const TRACE: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=0;Lineage=3:a87bd80c:1";

/// How long a process may take to end by itself: many times what it needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// How an invocation ended.
#[derive(Debug, PartialEq)]
pub enum Ended {
    /// The function responded.
    Response(Value),
    /// The function reported an error.
    Error(Value),
    /// The process ended, or never asked for work.
    Crashed,
    /// The deadline passed, and Lambda ended the environment.
    TimedOut,
}

struct Invocation {
    id: String,
    event: Vec<u8>,
    deadline: SystemTime,
    /// A header of the invocation, and its value instead of the usual one; `None` leaves it out.
    changed: Option<(&'static str, Option<&'static str>)>,
    ended: oneshot::Sender<Ended>,
}

struct Shared {
    queue: AsyncMutex<mpsc::UnboundedReceiver<Invocation>>,
    running: Mutex<HashMap<String, oneshot::Sender<Ended>>>,
}

/// One execution environment: the Runtime API and the process of the function.
pub struct Function {
    invocations: mpsc::UnboundedSender<Invocation>,
    process: Child,
    count: u64,
    _server: http::Server,
}

impl Function {
    /// Starts `binary` with `variables` beside what Lambda itself sets.
    pub async fn start(binary: &str, variables: &[(&str, &str)]) -> Self {
        let (invocations, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { queue: AsyncMutex::new(queue), running: Mutex::default() });
        let server = http::Server::start(move |request| answer(Arc::clone(&shared), request)).await;
        let mut command = environment::process(binary, server.authority());
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = command.spawn().expect("the function's binary is built");
        Self { invocations, process, count: 0, _server: server }
    }

    /// Invokes the function, and waits for its end at most until the deadline.
    pub async fn invoke(&mut self, event: &Value, timeout: Duration) -> Ended {
        let end = self.begin(event, timeout);
        tokio::select! {
            ended = end => ended.unwrap_or(Ended::Crashed),
            _ = self.process.wait() => Ended::Crashed,
            () = tokio::time::sleep(timeout) => Ended::TimedOut,
        }
    }

    /// Invokes the function, and does not wait for its end.
    pub fn begin(&mut self, event: &Value, timeout: Duration) -> oneshot::Receiver<Ended> {
        self.begin_changed(event, timeout, None)
    }

    /// The same with one header of the invocation changed, or without it.
    pub fn begin_changed(
        &mut self,
        event: &Value,
        timeout: Duration,
        changed: Option<(&'static str, Option<&'static str>)>,
    ) -> oneshot::Receiver<Ended> {
        self.count += 1;
        let (ended, end) = oneshot::channel();
        let invocation = Invocation {
            id: format!("request-{}", self.count),
            event: serde_json::to_vec(event).expect("an event is JSON"),
            deadline: SystemTime::now() + timeout,
            changed,
            ended,
        };
        self.invocations.send(invocation).expect("the server runs as long as this");
        end
    }

    /// The process id: another one means that the environment was replaced.
    pub fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// Tells the process to end, as Lambda tells one with an extension, and waits until it has.
    pub async fn shut_down(self) -> (Option<i32>, String) {
        let id = self.pid().expect("it runs").to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(told.expect("kill is installed").success());
        self.ended().await
    }

    /// Ends the process and returns all that it printed.
    pub async fn stop(mut self) -> String {
        let _ = self.process.start_kill();
        let output = self.process.wait_with_output().await.expect("a child's output");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Waits until the process ends by itself, and returns its exit code and all that it printed.
    pub async fn ended(self) -> (Option<i32>, String) {
        let ended = tokio::time::timeout(PATIENCE, self.process.wait_with_output()).await;
        let output = ended.expect("it ends by itself").expect("a child's output");
        (
            output.status.code(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let path = path.trim_start_matches("/2018-06-01/runtime/");
    match (request.method(), path.split('/').collect::<Vec<_>>().as_slice()) {
        (&Method::GET, ["invocation", "next"]) => next(&shared).await,
        (&Method::POST, ["invocation", id, kind]) => {
            let id = (*id).to_owned();
            let response = *kind == "response";
            let body = request
                .into_body()
                .collect()
                .await
                .map(http_body_util::Collected::to_bytes)
                .unwrap_or_default();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let ended = if response { Ended::Response(body) } else { Ended::Error(body) };
            if let Some(waiting) = shared.running.lock().expect("no panic").remove(&id) {
                let _ = waiting.send(ended);
            }
            http::status(StatusCode::ACCEPTED)
        }
        (&Method::POST, ["", "2020-01-01", "extension", "register"]) => Response::builder()
            .header("Lambda-Extension-Identifier", "1")
            .body(Full::new(Bytes::from_static(
                br#"{"functionName":"orders","functionVersion":"$LATEST","handler":"bootstrap"}"#,
            )))
            .expect("valid headers"),
        // It asked for no events.
        (&Method::GET, ["", "2020-01-01", "extension", "event", "next"]) => pending().await,
        _ => http::status(StatusCode::NOT_FOUND),
    }
}

async fn next(shared: &Shared) -> Response<Full<Bytes>> {
    let Some(invocation) = shared.queue.lock().await.recv().await else {
        return http::status(StatusCode::GONE);
    };
    let deadline =
        invocation.deadline.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis();
    shared.running.lock().expect("no panic").insert(invocation.id.clone(), invocation.ended);
    let mut response = Response::builder()
        .header("Lambda-Runtime-Aws-Request-Id", invocation.id)
        .header("Lambda-Runtime-Deadline-Ms", deadline.to_string())
        .header(
            "Lambda-Runtime-Invoked-Function-Arn",
            "arn:aws:lambda:us-east-1:000000000000:function:orders",
        )
        .header("Lambda-Runtime-Trace-Id", TRACE)
        .body(Full::new(Bytes::from(invocation.event)))
        .expect("valid headers");
    if let Some((name, value)) = invocation.changed {
        response.headers_mut().remove(name);
        let value = value.map(HeaderValue::from_static);
        response.headers_mut().extend(value.map(|value| (HeaderName::from_static(name), value)));
    }
    response
}

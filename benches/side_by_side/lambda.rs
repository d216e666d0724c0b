//! A Lambda Runtime API on loopback and the process of a function, with the time between the two.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use requeue_testkit::events::renewed;
use requeue_testkit::{environment, http};
use tokio::process::Child;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use crate::sqs::Sqs;

/// Longer than any measurement takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The response of the function.
pub struct Answer {
    /// Since the function got its event.
    pub took: Duration,
    at: Instant,
}

struct Shared {
    events: AsyncMutex<mpsc::Receiver<Bytes>>,
    polled: OnceLock<Instant>,
    handed_out: Mutex<Instant>,
    answers: mpsc::Sender<Answer>,
}

pub struct Function {
    events: mpsc::Sender<Bytes>,
    answers: mpsc::Receiver<Answer>,
    process: Child,
    started: Instant,
    rounds: u32,
    shared: Arc<Shared>,
    _server: http::Server,
}

impl Function {
    pub async fn start(binary: &Path, sqs: &Sqs, variables: &[(&str, &str)]) -> Self {
        let (events, queue) = mpsc::channel(1);
        let (answered, answers) = mpsc::channel(1);
        let handed_out = Mutex::new(Instant::now());
        let shared = Arc::new(Shared {
            events: AsyncMutex::new(queue),
            polled: OnceLock::new(),
            handed_out,
            answers: answered,
        });
        let asked = Arc::clone(&shared);
        let server = http::Server::start(move |request| answer(Arc::clone(&asked), request)).await;
        let mut command = environment::process(binary, server.authority());
        command
            .env("AWS_ENDPOINT_URL_SQS", sqs.url())
            .env("REQUEUE_RECURSIVE_LOOP", "Allow")
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let started = Instant::now();
        let process =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
        Self { events, answers, process, started, rounds: 0, shared, _server: server }
    }

    /// Gives the function one event with new messages, and waits for the response.
    pub async fn invoke(&mut self, event: &Bytes) -> Answer {
        self.rounds += 1;
        self.events.send(renewed(event, self.rounds)).await.expect("the server runs");
        let answer = tokio::time::timeout(TIMEOUT, self.answers.recv()).await;
        answer.expect("the function answers in time").expect("the server runs")
    }

    /// From the start of the process to its response to this event.
    pub async fn first(&mut self, event: &Bytes) -> Duration {
        self.invoke(event).await.at - self.started
    }

    /// From the start of the process to its first request for an event.
    pub fn until_polled(&self) -> Duration {
        *self.shared.polled.get().expect("it has asked") - self.started
    }

    /// A file of Linux about the process.
    fn path(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.process.id().expect("it runs")))
    }

    /// The peak memory of the process, in KiB.
    pub fn peak_kib(&self) -> f64 {
        let status = std::fs::read_to_string(self.path("status")).expect("Linux");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux");
        peak.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Processor time of one invocation, in seconds.
    pub async fn cpu_of(&mut self, event: &Bytes, rounds: usize) -> f64 {
        let before = self.cpu();
        for _ in 0..rounds {
            self.invoke(event).await;
        }
        (self.cpu() - before) / rounds as f64
    }

    /// Processor time so far, in seconds, of all threads that have not ended.
    pub fn cpu(&self) -> f64 {
        let threads = std::fs::read_dir(self.path("task")).expect("Linux");
        let schedstat = |thread: std::io::Result<DirEntry>| {
            std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()
        };
        let nanos = |schedstat: String| schedstat.split(' ').next()?.parse::<f64>().ok();
        threads
            .filter_map(schedstat)
            .map(|schedstat| nanos(schedstat).expect("a number"))
            .sum::<f64>()
            / 1e9
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() == Method::GET {
        shared.polled.get_or_init(Instant::now);
        let Some(event) = shared.events.lock().await.recv().await else {
            return http::status(StatusCode::GONE);
        };
        let deadline = (SystemTime::now() + TIMEOUT)
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970");
        *shared.handed_out.lock().expect("no panic") = Instant::now();
        return Response::builder()
            .header("Lambda-Runtime-Aws-Request-Id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd")
            .header("Lambda-Runtime-Deadline-Ms", deadline.as_millis().to_string())
            .header(
                "Lambda-Runtime-Invoked-Function-Arn",
                "arn:aws:lambda:us-east-1:123456789012:function:orders",
            )
            .body(Full::new(event))
            .expect("valid headers");
    }
    let _ = request.into_body().collect().await;
    let at = Instant::now();
    let took = at - *shared.handed_out.lock().expect("no panic");
    // The receiver is gone once the measurement is over.
    let _ = shared.answers.send(Answer { took, at }).await;
    http::status(StatusCode::ACCEPTED)
}

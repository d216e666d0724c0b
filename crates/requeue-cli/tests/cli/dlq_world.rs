//! A dead-letter queue that the library itself has filled, on loopback: its messages have failed in
//! virtual time, and from then on time is real.

#![allow(clippy::disallowed_methods, reason = "tests")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;
use requeue::embedded::{
    EmbeddedSqs, EventSourceMapping, InvocationResult, MessageState, MessageView, Server,
};
use requeue::queue::{QueueArn, SqsQueue};
use requeue::{
    BatchProcessor, Clock, DeadLetterMode, Failure, Message, RecursiveLoop, Settings, SqsEvent,
};
use requeue_testkit::terminal::in_terminal;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::run::{Run, requeue_with};

/// Bodies as they are first sent; each says how it fails. Edited, not parsed: none may lose a
/// space.
pub(crate) const BODIES: [&str; 5] = [
    r#"{ "fail" : "quota", "amount" : 1.0 }"#,
    r#"{"fail":"quota","text":"\u00e9é"}"#,
    "fail with quota, as text\nin two lines",
    r#"["non-retryable"]"#,
    r#"{"fail":"temporary","retryCount":"mine"}"#,
];

/// How the failures are spread: class, reason where it is written down, count.
pub(crate) const GROUPS: [(&str, &str, u64); 3] = [
    ("quota", "retries-exhausted", 3),
    ("non-retryable", "non-retryable", 1),
    ("temporary", "retries-exhausted", 1),
];

pub(crate) const SEND: &str = "SendMessageBatch";
pub(crate) const DELETE: &str = "DeleteMessageBatch";

pub(crate) struct World {
    pub(crate) sqs: EmbeddedSqs,
    pub(crate) server: Server,
    pub(crate) queue: QueueArn,
    pub(crate) dead_letters: QueueArn,
    /// The ids under which the bodies were first sent.
    pub(crate) ids: Vec<String>,
}

/// Runs the cases at the same time, each in a runtime with a time of its own: most of it is waiting.
pub(crate) fn side_by_side<T: Send>(
    cases: impl IntoIterator<Item = T>,
    run: impl AsyncFn(T) + Sync,
) {
    let run = |case| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(case));
    };
    std::thread::scope(|scope| {
        for case in cases {
            let run = &run;
            scope.spawn(move || run(case));
        }
    });
}

impl World {
    /// With [`BODIES`] in the dead-letter queue, by this way.
    pub(crate) async fn filled(mode: &str) -> Self {
        Self::filled_with(mode, "orders", &BODIES).await
    }

    pub(crate) async fn filled_with(mode: &str, name: &str, bodies: &[&str]) -> Self {
        let hours = Duration::from_hours(6);
        tokio::time::pause();
        let clock = Clock::starting_at(SystemTime::now() - hours);
        let sqs = EmbeddedSqs::new(clock);
        let dead = name
            .strip_suffix(".fifo")
            .map_or(format!("{name}-dlq"), |name| format!("{name}-dlq.fifo"));
        let dead_letters = sqs.create_queue(&dead, []).unwrap();
        let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":2}}"#);
        let queue = sqs
            .create_queue(name, [("VisibilityTimeout", "60"), ("RedrivePolicy", &redrive)])
            .unwrap();
        let mut settings = Settings::default();
        settings.recursive_loop = RecursiveLoop::Allow;
        settings.policy.max_retries = 1;
        settings.policy.max_pause = None;
        settings.policy.circuit_breaker = None;
        settings.dead_letter = Some(match mode {
            "annotate" => DeadLetterMode::Annotate,
            "direct" => DeadLetterMode::Direct(dead_letters.url().parse().unwrap()),
            _ => DeadLetterMode::Redrive,
        });
        let mut ids = Vec::new();
        for (at, body) in bodies.iter().enumerate() {
            ids.push(send(&sqs, &queue, body, at).await);
        }
        let processor = BatchProcessor::new(fail, SqsQueue::new(&sqs.client()), settings);
        let began = Instant::now();
        while sqs.message_count(&dead_letters).unwrap() < bodies.len() {
            assert!(began.elapsed() < hours, "a message does not fail");
            invoke(&sqs, &queue, &processor).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        // Real sockets need real time. No redrive of ours shall be taken for one of the retries.
        tokio::time::sleep(hours.saturating_sub(began.elapsed())).await;
        tokio::time::resume();
        let server = sqs.serve(0).await.unwrap();
        Self { sqs, server, queue, dead_letters, ids }
    }

    pub(crate) fn url(&self, queue: &QueueArn) -> String {
        queue.url_at(&self.server.url())
    }

    /// `requeue dlq …` on the dead-letter queue.
    pub(crate) async fn dlq(&self, arguments: &[&str]) -> Run {
        self.run(&[&["--queue-url", &self.url(&self.dead_letters)], arguments].concat()).await
    }

    /// `requeue dlq …`; the options that come first may be in front of the subcommand here.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Run {
        self.requeue(ordered(arguments)).await
    }

    /// `requeue ui …`, which must end by itself.
    pub(crate) async fn page(&self, arguments: &[&str]) -> Run {
        let arguments = ["ui"].iter().chain(arguments);
        self.requeue(arguments.map(|argument| (*argument).to_owned()).collect()).await
    }

    async fn requeue(&self, arguments: Vec<String>) -> Run {
        let variables = self.variables();
        let run = move || {
            let variables: Vec<(&str, &str)> =
                variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
            requeue_with(&variables, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    /// The same as a process that goes on.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let url = self.url(&self.dead_letters);
        let arguments = [&["--queue-url", url.as_str()], arguments].concat();
        Command::new(env!("CARGO_BIN_EXE_requeue"))
            .args(ordered(&arguments))
            .env_clear()
            .envs(self.variables())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// With the standard output in this file; the exit status and the standard error.
    pub(crate) async fn dlq_writing_to(
        &self,
        file: &str,
        arguments: &[&str],
    ) -> (Option<i32>, String) {
        let url = self.url(&self.dead_letters);
        self.writing_to(file, &ordered(&[&["--queue-url", url.as_str()], arguments].concat())).await
    }

    /// The same for any command.
    pub(crate) async fn writing_to(
        &self,
        file: &str,
        arguments: &[impl AsRef<OsStr>],
    ) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
        command.args(arguments).env_clear().envs(self.variables());
        command
            .stdin(Stdio::null())
            .stdout(std::fs::OpenOptions::new().write(true).open(file).unwrap());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// In a terminal, where the first keys are typed at once, and the others after the question; the
    /// exit status and all that was to be read.
    pub(crate) async fn typed(
        &self,
        [ahead, keys]: [&'static str; 2],
        arguments: &[&str],
    ) -> (Option<i32>, String) {
        let url = self.url(&self.dead_letters);
        let arguments = ordered(&[&["--queue-url", url.as_str()], arguments].concat());
        let variables = self.variables();
        let run = move || {
            let [program, words @ ..] = in_terminal("80");
            let mut child = Command::new(program)
                .args(words)
                .arg(env!("CARGO_BIN_EXE_requeue"))
                .args(arguments)
                .env_clear()
                .envs(["PATH", "HOME"].map(|name| (name, std::env::var(name).unwrap_or_default())))
                .envs(variables)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut keyboard = child.stdin.take().unwrap();
            let mut screen = child.stdout.take().unwrap();
            keyboard.write_all(ahead.as_bytes()).unwrap();
            let mut output = Vec::new();
            while !output.ends_with(b"[y/N] ") {
                let mut byte = [0];
                assert_eq!(screen.read(&mut byte).unwrap(), 1, "it ended without a question");
                output.push(byte[0]);
            }
            keyboard.write_all(keys.as_bytes()).unwrap();
            screen.read_to_end(&mut output).unwrap();
            // A line that is too long goes on below.
            let output = String::from_utf8_lossy(&output).replace("\r\n  ", " ");
            (child.wait().unwrap().code(), output)
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL_SQS", self.server.url()),
            ("AWS_ACCESS_KEY_ID", "any".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "any".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    pub(crate) fn dead(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.dead_letters).unwrap()
    }

    pub(crate) fn back(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.queue).unwrap()
    }

    /// How many are where.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.dead().len(), self.back().len())
    }

    #[track_caller]
    pub(crate) fn assert_all_visible(&self) {
        for message in self.dead() {
            assert_eq!(message.state, MessageState::Visible, "{}", message.id);
        }
    }

    pub(crate) async fn send_dead(&self, body: &str) -> String {
        send(&self.sqs, &self.dead_letters, body, 0).await
    }

    /// A queue `bills` with the same dead-letter queue, into which SQS has moved a message of it.
    pub(crate) async fn with_bill(&self) -> QueueArn {
        let policy =
            format!(r#"{{"deadLetterTargetArn":"{}","maxReceiveCount":1}}"#, self.dead_letters);
        let attributes = [("RedrivePolicy", policy.as_str()), ("VisibilityTimeout", "0")];
        let bills = self.sqs.create_queue("bills", attributes).unwrap();
        self.sqs
            .client()
            .send_message()
            .queue_url(bills.url())
            .message_body("a bill")
            .send()
            .await
            .unwrap();
        for _ in 0..2 {
            self.sqs.receive(&bills, 1, Duration::ZERO).await.unwrap();
        }
        assert_eq!(self.sqs.message_count(&bills).unwrap(), 0);
        bills
    }

    /// Each message is there once again, and in the dead-letter queue.
    pub(crate) async fn put_back(&self) {
        let both = [self.dead(), self.back()].concat();
        // Until whatever is hidden is visible, and a queue may be purged again.
        tokio::time::pause();
        tokio::time::advance(Duration::from_mins(10)).await;
        let client = self.sqs.client();
        for queue in [&self.dead_letters, &self.queue] {
            client.purge_queue().queue_url(queue.url()).send().await.unwrap();
        }
        let mut seen = BTreeMap::new();
        for message in &both {
            let dead = requeue::DeadLetter::read(&message.body);
            seen.entry(dead.original_message_id().unwrap().to_owned()).or_insert(&message.body);
        }
        for body in seen.values() {
            self.send_dead(body).await;
        }
        tokio::time::resume();
    }

    /// A function on the queue that dead-letters everything at once, for as long as this is awaited.
    pub(crate) async fn give_up_for_ever(&self) {
        let mut settings = Settings::default();
        settings.dead_letter =
            Some(DeadLetterMode::Direct(self.dead_letters.url().parse().unwrap()));
        settings.recursive_loop = RecursiveLoop::Allow;
        let refuse = async |_: Message| Err(Failure::non_retryable("never"));
        let processor = BatchProcessor::new(refuse, SqsQueue::new(&self.sqs.client()), settings);
        loop {
            invoke(&self.sqs, &self.queue, &processor).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Lets a function that accepts everything work on what was brought back; what it is given.
    pub(crate) async fn handled(&self) -> Vec<(String, String, u32)> {
        let (told, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let handler = move |message: Message| {
            let original = message.original_id().unwrap_or_default().to_owned();
            let _ = told.send((message.body().to_string(), original, message.retry_count()));
            async { Ok::<(), Failure>(()) }
        };
        let mut settings = Settings::default();
        settings.recursive_loop = RecursiveLoop::Allow;
        let processor = BatchProcessor::new(handler, SqsQueue::new(&self.sqs.client()), settings);
        while invoke(&self.sqs, &self.queue, &processor).await {}
        drop(processor);
        let mut all = Vec::new();
        while let Some(one) = seen.recv().await {
            all.push(one);
        }
        all.sort();
        all
    }
}

fn ordered(arguments: &[&str]) -> Vec<String> {
    let at = arguments
        .iter()
        .position(|argument| {
            ["list", "peek", "export", "import", "discard", "redrive"].contains(argument)
        })
        .unwrap();
    let rest = [&arguments[..at], &arguments[at + 1..]].concat();
    ["dlq", arguments[at]].into_iter().chain(rest).map(str::to_owned).collect()
}

async fn send(sqs: &EmbeddedSqs, queue: &QueueArn, body: &str, at: usize) -> String {
    let value = |kind: &str| MessageAttributeValue::builder().data_type(kind);
    let client = sqs.client();
    let mut message = client
        .send_message()
        .queue_url(queue.url())
        .message_body(body)
        .message_attributes(
            "tenant",
            value("String").string_value("secret-tenant").build().unwrap(),
        )
        .message_attributes(
            "print",
            value("Binary.sha").binary_value(Blob::new([0, 255, 7])).build().unwrap(),
        )
        .message_group_id(format!("group-{}", at % 2));
    if queue.is_fifo() {
        message = message.message_deduplication_id(format!("{at}"));
    }
    message.send().await.unwrap().message_id.unwrap()
}

/// Fails as the body says, in words that are no secret.
async fn fail(message: Message) -> Result<(), Failure> {
    let body = message.body();
    Err(if body.contains("non-retryable") {
        Failure::non_retryable("no such account")
    } else if body.contains("quota") {
        Failure::quota("status 403, quotaExceeded")
    } else {
        Failure::temporary("status 503")
    })
}

/// One invocation, if there is something to work on.
async fn invoke<H: requeue::Handler>(
    sqs: &EmbeddedSqs,
    queue: &QueueArn,
    processor: &BatchProcessor<H, SqsQueue>,
) -> bool {
    let mapping = EventSourceMapping::new(sqs.clone(), queue.clone(), 10);
    let Some(batch) = mapping.poll(Duration::ZERO).await.unwrap() else { return false };
    let event: SqsEvent = serde_json::from_value(batch.event(queue)).unwrap();
    let report =
        processor.process(event.records.unwrap(), Instant::now() + Duration::from_secs(30)).await;
    let failures: Vec<Value> = report
        .failed_ids()
        .unwrap()
        .into_iter()
        .map(|id| json!({ "itemIdentifier": id }))
        .collect();
    let answer = json!({ "batchItemFailures": failures }).to_string();
    mapping.acknowledge(&batch, &InvocationResult::Response(answer.into_bytes())).unwrap();
    true
}

/// The lines of JSON on the standard output.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The bodies as first delivered, sorted.
pub(crate) fn payloads(messages: &[MessageView]) -> Vec<String> {
    let mut payloads: Vec<String> = messages
        .iter()
        .map(|message| requeue::DeadLetter::read(&message.body).payload().to_owned())
        .collect();
    payloads.sort();
    payloads
}

/// How often each first id occurs in these messages.
pub(crate) fn originals(messages: &[MessageView]) -> BTreeMap<String, usize> {
    messages.iter().fold(BTreeMap::new(), |mut counts, message| {
        let dead = requeue::DeadLetter::read(&message.body);
        *counts.entry(dead.original_message_id().unwrap_or(&message.id).to_owned()).or_default() +=
            1;
        counts
    })
}

//! A redriven message starts afresh, on queues that strangers built: what always fails is handled by the real processor over the real
//! SDK client, moved by SQS's own redrive policy, moved back, and handled again with all its retries.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::types;
use futures_util::future::join_all;
use requeue::embedded::EmbeddedSqs;
use requeue::policy::{Backoff, Jitter};
use requeue::queue::SqsQueue;
use requeue::{BatchProcessor, Clock, DeadLetterMode, Failure, Handler, Message, Settings, SqsEvent};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::bench::{Bench, Observed, Queue, code, handle, pause, redrive_policy};
use crate::differences::known;

/// How far the processor's clock is behind that of SQS.
///
/// A copy is a redriven one when it was sent more than 120 s after its `retryTimestamp`. Nobody wants to wait for that, so every copy
/// says that it was sent 110 s ago. That leaves 10 s in which SQS must have stored a copy that is to count as the processor's own,
/// many times what a busy machine needs; and an operator who comes 11 s after the last copy comes late enough.
const BEHIND: Duration = Duration::from_secs(110);
/// The age by `retryTimestamp` at which a message is moved back: past the 120 s by more than a clock's grain.
const REDRIVEN_AT: Duration = Duration::from_secs(121);
/// Patience with one message: several times what its two lives take.
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::test]
async fn a_redriven_message_starts_afresh_everywhere() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.expect("a free port");
    let others = [("moto", "REQUEUE_TEST_MOTO"), ("ministack", "REQUEUE_TEST_MINISTACK")];
    let others = others.map(|(name, variable)| crate::emulator(variable).map(|url| (name, url)));
    let all = others.into_iter().flatten().chain([("embedded", server.url())]);
    let modes = [(DeadLetterMode::Redrive, "null"), (DeadLetterMode::Annotate, r#""retries-exhausted""#)];
    let stories = all.flat_map(|(name, url)| modes.clone().map(|(mode, why)| (name, url.clone(), mode, why)));
    let told = stories.map(async |(name, url, mode, why)| {
        let expected = [0, 1].map(|redrives| {
            format!(
                "called for attempts [1, 2, 3], dead after 2 retries and {redrives} redrives, why: {why}, origin kept"
            )
        });
        let observed = tokio::time::timeout(PATIENCE, two_lives(name, &url, mode.clone())).await;
        let observed = observed.unwrap_or_else(|_| Err("a story without end".to_owned()));
        (observed.as_ref() != Ok(&expected))
            .then(|| format!("{name}, {mode:?}: {observed:#?}\ninstead of {expected:#?}"))
    });
    let wrong: Vec<String> = join_all(told).await.into_iter().flatten().collect();
    server.stop().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn two_lives(implementation: &'static str, url: &str, mode: DeadLetterMode) -> Result<[String; 2], String> {
    let story = Story::new(implementation, url, mode).await?;
    let first = story.life().await?;
    story.redrive().await?;
    Ok([first, story.life().await?])
}

/// A message, the queues between which it moves, and the function that fails on it.
struct Story {
    implementation: &'static str,
    bench: Bench,
    queue: Queue,
    dead: Queue,
    arn: String,
    id: String,
    calls: Calls,
    processor: BatchProcessor<Failing, SqsQueue>,
}

/// The attempt and the original id of each call.
type Calls = Arc<Mutex<Vec<(u32, Option<String>)>>>;

struct Failing(Calls);

impl Handler for Failing {
    async fn handle(&self, message: Message) -> Result<(), Failure> {
        let call = (message.attempt().get(), message.original_id().map(str::to_owned));
        self.0.lock().expect("no panic while it is held").push(call);
        Err(Failure::temporary("no"))
    }
}

impl Story {
    async fn new(implementation: &'static str, url: &str, mode: DeadLetterMode) -> Result<Self, String> {
        let bench = Bench::new(crate::client(url));
        // A look at what is dead leaves it where it is.
        let dead = bench.queue(&[("VisibilityTimeout", "0")]).await?;
        let policy = redrive_policy(&dead.arn().await?, 2);
        let queue = bench.queue(&[("VisibilityTimeout", "1"), ("RedrivePolicy", &policy)]).await?;
        let arn = queue.arn().await?;
        let id = queue.send("{}").await?.message_id.unwrap_or_default();

        let clock = Clock::starting_at(Clock::system().now() - BEHIND);
        let mut settings = Settings { clock, dead_letter: mode, ..Settings::default() };
        settings.policy.max_retries = 2;
        settings.policy.temporary.backoff = Backoff::Constant { base: Duration::ZERO };
        settings.policy.temporary.jitter = Jitter::None;
        let calls = Calls::default();
        let processor = BatchProcessor::new(Failing(Arc::clone(&calls)), SqsQueue::new(&bench.client), settings);
        Ok(Self { implementation, bench, queue, dead, arn, id, calls, processor })
    }

    /// Handles the message until SQS has moved it to the dead-letter queue.
    async fn life(&self) -> Observed {
        let dead = loop {
            self.invoke().await?;
            if let Some(dead) = self.dead.receive().await?.pop() {
                break state(&dead)?;
            }
        };
        let calls = std::mem::take(&mut *self.calls.lock().expect("no panic while it is held"));
        let attempts: Vec<u32> = calls.iter().map(|(attempt, _)| *attempt).collect();
        let is_ours = |id: Option<&str>| id == Some(&self.id);
        let kept = calls.iter().all(|(_, id)| is_ours(id.as_deref())) && is_ours(dead["originalMessageId"].as_str());
        Ok(format!(
            "called for attempts {attempts:?}, dead after {} retries and {} redrives, why: {}, origin {}",
            dead["retryCount"],
            dead["retryState"]["redrives"].as_u64().unwrap_or(0),
            dead["retryState"]["deadLetter"]["reason"],
            if kept { "kept" } else { "lost" },
        ))
    }

    /// What Lambda's event source mapping does with the messages that are there now, or come within a second.
    async fn invoke(&self) -> Result<(), String> {
        let messages = self.queue.receive_with(|r| r.max_number_of_messages(10).wait_time_seconds(1)).await?;
        let records: Vec<Value> = messages.iter().map(|message| self.record(message)).collect();
        let event: SqsEvent = serde_json::from_value(json!({ "Records": records })).map_err(|e| e.to_string())?;
        let deadline = Instant::now() + Duration::from_secs(30);
        let report = self.processor.process(event.records.unwrap_or_default(), deadline).await;
        let kept = report.failed_ids().map_err(|e| e.to_string())?;
        for message in messages.iter().filter(|message| !message.message_id().is_some_and(|id| kept.contains(&id))) {
            // The processor has deleted what it sent again, and not everybody takes a second time well.
            self.queue.delete(handle(message)).await.ok();
        }
        Ok(())
    }

    fn record(&self, message: &types::Message) -> Value {
        let system = message.attributes().into_iter().flatten();
        let system: Map<String, Value> =
            system.map(|(name, value)| (name.as_str().to_owned(), value.as_str().into())).collect();
        json!({
            "messageId": message.message_id(),
            "receiptHandle": message.receipt_handle(),
            "body": message.body(),
            "attributes": system,
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": self.arn,
        })
    }

    /// What an operator does.
    async fn redrive(&self) -> Result<(), String> {
        let dead = self.dead.next().await?;
        let sent = state(&dead)?["retryTimestamp"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let due = SystemTime::from(sent.ok_or("no time stamp")?) + REDRIVEN_AT;
        tokio::time::sleep(due.duration_since(Clock::system().now()).unwrap_or_default()).await;

        let task = "a move task brings messages back to where they came from, as new ones";
        if known(task, self.implementation).is_some() {
            // No move tasks here. Received and sent again, it gets what a move task gives it: a new id and a new `SentTimestamp`. It
            // has no attributes to keep.
            self.queue.send(dead.body().unwrap_or_default()).await?;
            return self.dead.delete(handle(&dead)).await;
        }
        let start = self.bench.client.start_message_move_task().source_arn(self.dead.arn().await?);
        start.send().await.map_err(code)?;
        while !self.dead.receive().await?.is_empty() {
            pause(100).await;
        }
        Ok(())
    }
}

/// The members that the library added to a copy.
fn state(message: &types::Message) -> Result<Value, String> {
    serde_json::from_str(message.body().unwrap_or_default()).map_err(|e| e.to_string())
}

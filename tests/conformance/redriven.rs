//! A redriven message starts afresh, on the queues of independent implementations. The real
//! processor handles a message that always fails, over the real SDK client. SQS's own redrive
//! policy moves it to the dead-letter queue, and a redrive moves it back. Then the processor
//! handles it with all its retries again.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use requeue::embedded::EmbeddedSqs;
use requeue::policy::{Backoff, Jitter};
use requeue::{Clock, DeadLetterMode, Failure, Settings};
use requeue_testkit::tools::tool;

use crate::bench::{Bench, NO_CODE, Observed, Queue, code, handle, pause, redrive_policy};
use crate::differences::known;
use crate::function::{Function, state};

/// How far the processor's clock is behind that of SQS.
///
/// A copy is a redriven one when it was sent more than 120 s after its `retryTimestamp`. Nobody
/// wants to wait for that, so every copy says that it was sent 110 s ago. That leaves 10 s in which
/// SQS must have stored a copy that is to count as the processor's own, many times what a busy
/// machine needs; and an operator who comes 11 s after the last copy comes late enough.
const BEHIND: Duration = Duration::from_secs(110);
/// The age by `retryTimestamp` at which a message is moved back: past the 120 s by more than a
/// clock's grain.
const REDRIVEN_AT: Duration = Duration::from_secs(121);
/// Patience with one message: several times what its two lives take.
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_redriven_message_starts_afresh_everywhere() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.expect("a free port");
    let others = [("moto", "REQUEUE_TEST_MOTO"), ("ministack", "REQUEUE_TEST_MINISTACK")];
    let others = others.map(|(name, variable)| tool(variable).map(|url| (name, url)));
    let all = others.into_iter().flatten().chain([("embedded", server.url())]);
    let modes =
        [(DeadLetterMode::Redrive, "null"), (DeadLetterMode::Annotate, r#""retries-exhausted""#)];
    let stories =
        all.flat_map(|(name, url)| modes.clone().map(|(mode, why)| (name, url.clone(), mode, why)));
    let told = stories.map(async |(name, url, mode, why)| {
        let expected = [0, 1].map(|redrives| {
            format!(
                "called for attempts [1, 2, 3], dead after 2 retries and {redrives} redrives, why: {why}, origin kept"
            )
        });
        let live = async || {
            let told = tokio::time::timeout(PATIENCE, two_lives(name, &url, mode.clone())).await;
            told.unwrap_or_else(|_| Err("a story without end".to_owned()))
        };
        let mut observed = live().await;
        // moto's error page, as in the checks.
        if observed.as_ref().is_err_and(|code| code == NO_CODE) {
            observed = live().await;
        }
        (observed.as_ref() != Ok(&expected))
            .then(|| format!("{name}, {mode:?}: {observed:#?}\ninstead of {expected:#?}"))
    });
    let wrong: Vec<String> = join_all(told).await.into_iter().flatten().collect();
    server.stop().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn two_lives(
    implementation: &'static str,
    url: &str,
    mode: DeadLetterMode,
) -> Result<[String; 2], String> {
    let story = Story::new(implementation, url, mode).await?;
    let first = story.life().await?;
    story.redrive().await?;
    Ok([first, story.life().await?])
}

/// A message, the queues between which it moves, and the function that fails on it.
struct Story {
    implementation: &'static str,
    bench: Bench,
    dead: Queue,
    id: String,
    function: Function,
}

impl Story {
    async fn new(
        implementation: &'static str,
        url: &str,
        mode: DeadLetterMode,
    ) -> Result<Self, String> {
        let bench = Bench::new(crate::client(url), Clock::system());
        // A look at what is dead leaves it where it is.
        let dead = bench.queue(&[("VisibilityTimeout", "0")]).await?;
        let policy = redrive_policy(&dead.arn().await?, 2);
        let queue = bench.queue(&[("VisibilityTimeout", "1"), ("RedrivePolicy", &policy)]).await?;
        let id = queue.send("{}").await?.message_id.unwrap_or_default();

        let clock = Clock::starting_at(bench.clock.now() - BEHIND);
        let mut settings = Settings::default();
        settings.clock = Some(clock);
        settings.dead_letter = Some(mode);
        settings.policy.max_retries = 2;
        settings.policy.temporary.backoff = Backoff::Constant { base: Duration::ZERO };
        settings.policy.temporary.jitter = Jitter::None;
        let function = Function::new(queue, settings, |_| Err(Failure::temporary("no"))).await?;
        Ok(Self { implementation, bench, dead, id, function })
    }

    /// Handles the message until SQS has moved it to the dead-letter queue.
    async fn life(&self) -> Observed {
        let dead = loop {
            self.function.invoke().await?;
            if let Some(dead) = self.dead.receive().await?.pop() {
                break state(&dead)?;
            }
        };
        let calls = self.function.take_calls();
        let attempts: Vec<u32> = calls.iter().map(|call| call.attempt).collect();
        let kept = calls.iter().all(|call| call.original_id == self.id)
            && dead["originalMessageId"] == self.id.as_str();
        Ok(format!(
            "called for attempts {attempts:?}, dead after {} retries and {} redrives, why: {}, origin {}",
            dead["retryCount"],
            dead["retryState"]["redrives"].as_u64().unwrap_or(0),
            dead["retryState"]["deadLetter"]["reason"],
            if kept { "kept" } else { "lost" },
        ))
    }

    /// What an operator does.
    async fn redrive(&self) -> Result<(), String> {
        let dead = self.dead.next().await?;
        let sent = state(&dead)?["retryTimestamp"]
            .as_str()
            .and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let due = SystemTime::from(sent.ok_or("no time stamp")?) + REDRIVEN_AT;
        tokio::time::sleep(due.duration_since(self.bench.clock.now()).unwrap_or_default()).await;

        let task = "a move task brings messages back to where they came from, as new ones";
        if known(task, self.implementation).is_some() {
            // No move tasks here. Received and sent again, it gets what a move task gives it: a new
            // id and a new `SentTimestamp`. It has no attributes to keep.
            self.function.queue.send(dead.body().unwrap_or_default()).await?;
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

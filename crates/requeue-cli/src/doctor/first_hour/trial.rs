//! Sends the messages and waits for their results.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_sqs::types::MessageAttributeValue;
use jiff::Timestamp;
use requeue::queue::{QueueArn, Source as _, SqsQueue};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::super::facts::{Known, Unread};
use super::super::fetch::{ATTRIBUTES, Clients};
use super::plan::{MARK, MESSAGES, Plan, TestMessage};
use super::step::{Evidence, Reason, Seen, Step, steps};
use crate::{Error, bail, output};

const PAUSE: Duration = Duration::from_secs(2);
/// Longest wait for the first message, which may start the function.
const FIRST: Duration = Duration::from_secs(120);
/// Longest wait for the other failures, before the message that makes the function pause.
const FAILURES: Duration = Duration::from_secs(60);
/// CloudWatch has this much time to make metrics of the first lines.
const METRICS: Duration = Duration::from_secs(120);
/// The time that one request for a metric covers, in seconds: the longest wait, and an hour.
/// CloudWatch has no values of the future, and AWS's clock may be ahead.
const METRICS_SPAN: u32 = 7_200;
/// The log is read from this long before, since this machine's clock may be ahead of AWS's.
const CLOCK_SKEW: Duration = Duration::from_secs(600);
/// Longest part of a log that is read, in pages of at most 1 MB.
const MOST_PAGES: u32 = 20;

/// The lines of metrics in a log: stream, time and text. Emulators give the ids of lines again.
type Lines = BTreeSet<(String, u64, String)>;

pub(crate) struct Trial<'c> {
    clients: &'c Clients,
    pub(super) plan: Plan,
    /// The begin of the log's interesting part, in milliseconds of the epoch.
    since: u64,
    /// The minute of the first message, in seconds of the epoch.
    minute: i64,
    before: Lines,
    seen: Seen,
}

impl<'c> Trial<'c> {
    /// Sends nothing. If no message may be sent, the error has the reason.
    pub(crate) async fn prepare(clients: &'c Clients, plan: Plan) -> Result<Self, Error> {
        let (source, dead_letters) =
            tokio::try_join!(clients.count(&plan.source), clients.count(&plan.dead_letters))?;
        if source > 0 {
            return Err(format!(
                "--first-hour sends nothing: {} has {source} messages; wait until it is empty",
                plan.source.name()
            )
            .into());
        }
        let now = Timestamp::now();
        let since = u64::try_from((now - CLOCK_SKEW).as_millisecond())?;
        let minute = now.as_second() / 60 * 60;
        let before = clients.lines(&plan.log_group, since).await?;
        let seen = Seen { dead_letters: (dead_letters, dead_letters), ..Seen::default() };
        Ok(Self { clients, plan, since, minute, before, seen })
    }

    pub(crate) async fn run(mut self, wait: Duration) -> Result<Vec<Step>, Error> {
        let run = Uuid::new_v4().to_string();
        let [first, quota, temporary, non_retryable, pausing] = &MESSAGES;
        let began = Instant::now();
        let deadline = began + wait;
        self.send(first, &run).await?;
        let first_deadline = deadline.min(began + FIRST);
        self.until("the first message", began, first_deadline, |seen, _| seen.has_first()).await?;
        if self.seen.completed() > 0 {
            self.seen.is_whole = true;
            self.seen.completed_after = Some(began.elapsed());
            for message in [quota, temporary] {
                self.send(message, &run).await?;
            }
            let dead_lettered = self.send(non_retryable, &run).await?;
            let began = Instant::now();
            let failed = deadline.min(began + FAILURES);
            self.until("the first failures", began, failed, |seen, _| {
                seen.has_failed([quota, temporary, non_retryable])
            })
            .await?;
            self.send(pausing, &run).await?;
            self.until("the end of all messages", began, deadline, Seen::is_complete).await?;
            self.look(&dead_lettered).await;
            self.ask_for_metrics(deadline.min(began + METRICS)).await;
        }
        Ok(steps(&self.plan, &self.seen))
    }

    async fn send(&self, message: &TestMessage, run: &str) -> Result<String, Error> {
        let id = self.clients.send(&self.plan.source, run, message.body(run)).await?;
        output::note(format_args!("note: sent {} as {id}", message.id()));
        Ok(id)
    }

    /// Looks again and again until `is_enough` or the deadline.
    async fn until(
        &mut self,
        awaited: &str,
        began: Instant,
        deadline: Instant,
        is_enough: impl Fn(&Seen, &Plan) -> bool,
    ) -> Result<(), Error> {
        self.clients.begin_wait(&format!("waiting for {awaited}"), began, deadline);
        loop {
            sleep(PAUSE).await;
            self.clients.tell_wait(began);
            let Self { clients, plan, seen, .. } = self;
            let (source, dead_letters, lines) = tokio::try_join!(
                clients.count(&plan.source),
                clients.count(&plan.dead_letters),
                clients.lines(&plan.log_group, self.since)
            )?;
            seen.waited = began.elapsed();
            seen.source = source;
            seen.dead_letters.1 = dead_letters;
            if seen.dead_letters.1 > seen.dead_letters.0 {
                seen.arrived_after.get_or_insert(seen.waited);
            }
            seen.evidence = Evidence::default();
            for (_, _, line) in lines.difference(&self.before) {
                seen.evidence.add(plan.source.name(), line);
            }
            if is_enough(seen, plan) || Instant::now() >= deadline {
                return Ok(());
            }
        }
    }

    /// Reads the reason of the dead letter, if no other message would be received.
    async fn look(&mut self, id: &str) {
        let (before, now) = self.seen.dead_letters;
        if before > 0 || now == 0 || self.plan.is_redriven {
            return;
        }
        let found = self.clients.dead_letter(&self.plan.dead_letters, id).await;
        let letter = found.map_err(|unread| unread.error.code);
        let letter = letter.and_then(|letter| letter.ok_or("SQS did not hand it out".to_owned()));
        self.seen.letter = Some(letter.map(|letter| {
            let info = &letter["retryState"]["deadLetter"];
            let text = |name: &str| info[name].as_str().map(str::to_owned);
            Some(Reason { class: text("class")?, reason: text("reason")? })
        }));
    }

    /// Asks until there are values, or the deadline.
    async fn ask_for_metrics(&mut self, deadline: Instant) {
        let service = self.seen.evidence.service.clone().unwrap_or_default();
        let dimensions = [("Service", service.as_str()), ("Queue", self.plan.source.name())];
        let began = Instant::now();
        self.clients.begin_wait("waiting for the metrics", began, deadline);
        loop {
            self.clients.tell_wait(began);
            let times = (self.minute, METRICS_SPAN);
            let received = self.clients.metric_sum("Received", dimensions, times).await;
            self.seen.received = received.map_err(|unread| unread.error.code).transpose();
            if self.seen.received.is_some() || Instant::now() >= deadline {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}

impl Clients {
    async fn count(&self, queue: &QueueArn) -> Result<u64, Error> {
        let described = SqsQueue::new(&self.sqs).describe(queue).await;
        let unread = |error| Unread::of(ATTRIBUTES, queue.name(), error);
        Ok(described.map_err(|error| self.told(&unread(error)))?.messages)
    }

    async fn lines(&self, group: &str, since: u64) -> Result<Lines, Error> {
        let lines = match self.log_lines(group, since, None, MOST_PAGES).await {
            Ok((lines, true)) => lines,
            Ok(_) => bail!("{group} has too many lines of the last minutes; try again later"),
            // Lambda makes the group at the first invocation.
            Err(unread) if unread.error.code == "ResourceNotFoundException" => Vec::new(),
            Err(unread) => return Err(self.told(&unread).into()),
        };
        let of_metrics =
            lines.into_iter().filter(|line| line.message.contains("CloudWatchMetrics"));
        Ok(of_metrics.map(|line| (line.log_stream_name, line.timestamp, line.message)).collect())
    }

    async fn send(&self, queue: &QueueArn, run: &str, body: String) -> Result<String, Error> {
        let mark =
            MessageAttributeValue::builder().data_type("String").string_value(run).build()?;
        // Each message has a group of its own, so that none waits for another.
        let group = queue.is_fifo().then(|| Uuid::new_v4().to_string());
        let request = self.sqs.send_message().queue_url(queue.url()).message_body(body);
        let request = request
            .message_attributes(MARK, mark)
            .set_message_deduplication_id(group.clone())
            .set_message_group_id(group);
        let sent = self.ask("sqs:SendMessage", queue.name(), request.send()).await;
        let sent = sent.map_err(|unread| self.told(&unread))?;
        Ok(sent.message_id.unwrap_or_default())
    }

    /// Looks for a dead letter by the id of its first delivery, and hides none.
    async fn dead_letter(&self, queue: &QueueArn, id: &str) -> Known<Option<Value>> {
        let request = self.sqs.receive_message().queue_url(queue.url());
        let request = request.max_number_of_messages(10).visibility_timeout(0).wait_time_seconds(2);
        let received = self.ask("sqs:ReceiveMessage", queue.name(), request.send()).await?;
        let bodies = received.messages.unwrap_or_default().into_iter().filter_map(|m| m.body);
        let mut letters = bodies.filter_map(|body| serde_json::from_str::<Value>(&body).ok());
        Ok(letters.find(|letter| letter["originalMessageId"] == id))
    }
}

//! Sends the messages and waits for their results.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::super::fetch::Clients;
use super::evidence::Evidence;
use super::message::TestMessage;
use super::plan::Plan;
use super::step::{Letter, Metrics, Seen, Step, steps};
use crate::{Error, output};

/// Between two looks at counts and log.
const PAUSE: Duration = Duration::from_secs(2);
/// Longest wait for the first message, which may start the function.
const FIRST: Duration = Duration::from_secs(120);
/// Longest wait for the failures of the other messages, before the one that makes the function
/// pause.
const FAILURES: Duration = Duration::from_secs(60);
/// CloudWatch has had so much time to make metrics of the first lines.
const METRICS: Duration = Duration::from_secs(120);
/// The log is read from so long before the first message on, since this machine's clock may be
/// ahead of AWS's.
const CLOCK_SKEW: Duration = Duration::from_secs(600);

/// A deployment at rest.
pub(crate) struct Trial<'c> {
    clients: &'c Clients,
    plan: Plan,
    /// The begin of the log's interesting part.
    since: u64,
    /// The minute of the first message, in seconds of the epoch.
    minute: i64,
    /// Its lines of metrics before the first message, by their ids.
    before: BTreeMap<String, String>,
    seen: Seen,
}

impl<'c> Trial<'c> {
    /// Sends nothing. The error says why no message may be sent.
    pub(crate) async fn prepare(clients: &'c Clients, plan: Plan) -> Result<Self, Error> {
        let (source, dead_letters) =
            tokio::try_join!(clients.counts(&plan.source), clients.counts(&plan.dead_letters))?;
        if source.all() > 0 {
            return Err(format!(
                "--first-hour sends nothing: {} has {} messages; wait until it is empty",
                plan.source.name(),
                source.all()
            )
            .into());
        }
        let now = Timestamp::now();
        let since = u64::try_from((now - CLOCK_SKEW).as_millisecond())?;
        let minute = now.as_second() / 60 * 60;
        let before = clients.lines(&plan.log_group, since).await?;
        let seen =
            Seen { dead_letters: (dead_letters.all(), dead_letters.all()), ..Seen::default() };
        Ok(Self { clients, plan, since, minute, before, seen })
    }

    pub(crate) fn into_plan(self) -> Plan {
        self.plan
    }

    pub(crate) async fn run(mut self, wait: Duration) -> Result<Vec<Step>, Error> {
        let run = Uuid::new_v4().to_string();
        let [first, quota, temporary, non_retryable, pausing] = TestMessage::ALL;
        let began = Instant::now();
        let deadline = began + wait;
        self.send(first, &run).await?;
        let first_deadline = deadline.min(began + FIRST);
        self.until("the first message", began, first_deadline, |seen, _| seen.has_first()).await?;
        if self.seen.has_success() {
            self.seen.is_whole = true;
            self.seen.completed_after = Some(began.elapsed());
            for message in [quota, temporary] {
                self.send(message, &run).await?;
            }
            let dead_lettered = self.send(non_retryable, &run).await?;
            let began = Instant::now();
            let failed = deadline.min(began + FAILURES);
            self.until("the first failures", began, failed, |seen, _| {
                seen.has_failed(&[quota, temporary, non_retryable])
            })
            .await?;
            self.send(pausing, &run).await?;
            self.until("the end of all messages", began, deadline, Seen::is_complete).await?;
            self.look(&dead_lettered).await;
            self.ask_for_metrics(deadline.min(began + METRICS)).await;
        }
        Ok(steps(&self.plan, &self.seen))
    }

    async fn send(&self, message: TestMessage, run: &str) -> Result<String, Error> {
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
            let Self { clients, plan, .. } = &*self;
            let (source, dead_letters, lines) = tokio::try_join!(
                clients.counts(&plan.source),
                clients.counts(&plan.dead_letters),
                clients.lines(&plan.log_group, self.since)
            )?;
            let seen = &mut self.seen;
            seen.waited = began.elapsed();
            seen.source = source;
            seen.dead_letters.1 = dead_letters.all();
            if seen.dead_letters.1 > seen.dead_letters.0 {
                seen.arrived_after.get_or_insert(seen.waited);
            }
            seen.evidence = Evidence::default();
            for (_, line) in lines.iter().filter(|(id, _)| !self.before.contains_key(*id)) {
                seen.evidence.add(self.plan.source.name(), line);
            }
            if is_enough(seen, &self.plan) || Instant::now() >= deadline {
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
        self.seen.letter = match self.clients.dead_letter(&self.plan.dead_letters, id).await {
            Ok(Some(letter)) => {
                let info = &letter["retryState"]["deadLetter"];
                let text = |name: &str| info[name].as_str().map(str::to_owned);
                Letter::Found { class: text("class"), reason: text("reason") }
            }
            Ok(None) => Letter::NotFound,
            Err(code) => Letter::Refused(code),
        };
    }

    /// Asks until there are values, or the deadline.
    async fn ask_for_metrics(&mut self, deadline: Instant) {
        let service = self.seen.evidence.service.clone().unwrap_or_default();
        let dimensions = [("Service", service.as_str()), ("Queue", self.plan.source.name())];
        let began = Instant::now();
        self.clients.begin_wait("waiting for the metrics", began, deadline);
        loop {
            self.clients.tell_wait(began);
            let asked = self.clients.metric("Received", dimensions, self.minute).await;
            self.seen.metrics = match asked {
                Ok(Some(sum)) => Metrics::Received(sum),
                Ok(None) => Metrics::None,
                Err(code) => Metrics::Refused(code),
            };
            if !matches!(self.seen.metrics, Metrics::None) || Instant::now() >= deadline {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}
